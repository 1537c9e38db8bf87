"""Lesson: a second card does not mend one card's host. A step of a serving engine takes as long as the device or as
what the engine's host does for it, whichever is longer; only the device's part is shared out over cards.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from app_pages.learn.cases import case
from sim.engines.profile import load_engine
from sim.predict.predict import predict
from sim.predict.steps import Case

CARDS = (1, 2, 4)
REQUESTS = (1, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class Point:
    """A decode step of `requests` on `cards`, ms: what the device takes, what the engine's host does for it, how much
    of that while the device works (and issues the step), and the time from one step to the next."""

    cards: int
    requests: int
    device_ms: float
    host_ms: float
    hidden_ms: float
    step_ms: float

    @property
    def visible_ms(self) -> float:
        """What the device waits for, since it is not done while it works."""
        return self.step_ms - max(self.device_ms, self.hidden_ms)


def deployment(model: str, hardware: str, cards: int, requests: int) -> Case:
    """A captured decode step. Raises ScenarioError where it is refused."""
    return case(
        f"model={model}",
        f"hardware={hardware}",
        "optimizations.graph=aclgraph",
        f"workload.batch={requests}",
        "workload.input_tokens=520",
        f"engine.tensor_parallel_size={cards}",
    )


@lru_cache(maxsize=256)
def _device_ms(model: str, hardware: str, cards: int, requests: int) -> float:
    return predict(deployment(model, hardware, cards, requests)).step.total_ns / 1e6


def point(model: str, hardware: str, cards: int, requests: int, engine: str) -> Point:
    """One deployment behind an engine of that profile."""
    costs = load_engine(engine).costs(cards)
    device_ms = _device_ms(model, hardware, cards, requests)
    step_ms = costs.step_ns(1e6 * device_ms, requests) / 1e6
    host_ms = costs.host_ns(requests) / 1e6
    hidden_ms = costs.hidden_share * host_ms + costs.issue_ns(requests, 0) / 1e6
    return Point(cards, requests, costs.device_scale * device_ms, host_ms, hidden_ms, step_ms)
