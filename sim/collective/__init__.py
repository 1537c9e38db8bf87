"""Collectives: who is joined by which link, what each algorithm moves, which one HCCL takes, and how long it lasts.

Pure functions of a hardware profile; ranks that wait for one another are the engine's business.
"""

from sim.collective.price import CollectiveTime, price_collective

__all__ = ["CollectiveTime", "price_collective"]
