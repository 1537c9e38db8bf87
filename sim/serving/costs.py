"""What a serving engine's host adds to the steps of a device: `sim.engines.costs`."""

from sim.engines.costs import EngineCosts

__all__ = ["EngineCosts"]
