"""Which instance of several serves a request.

round_robin: in turn. least_loaded: the one with the fewest requests under way, a waiting one counted four times (as
vLLM's data-parallel load balancer scores engines). prefix_aware: the one whose cache holds most of the prompt, while
the load is about even; else as least_loaded. Turns of a conversation go where the first went, unless the load decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scenarios.fleet_settings import Router as Policy
from scenarios.records import dataclass
from scenarios.serving.requests import Request

#: A waiting request counts as so many running ones.
WAITING_WEIGHT = 4
#: Loads are uneven where the largest exceeds the smallest by more than both (the rule of SGLang's router, with a
#: smaller number for instances of fewer requests).
UNEVEN_BY, UNEVEN_RATIO = 16, 1.5


@dataclass(frozen=True, slots=True)
class Load:
    """What an instance has to do, as it last said."""

    running: int
    waiting: int

    @property
    def score(self) -> int:
        return self.running + WAITING_WEIGHT * self.waiting


class Router:
    """Chooses among `instances`, numbered from 0; of equal ones, that which was sent the fewest requests."""

    def __init__(self, policy: Policy, instances: int) -> None:
        self.policy, self.instances = policy, instances
        self._turn = 0
        self._sent = [0] * instances
        self._place: dict[int, int] = {}

    def choose(self, request: Request, loads: Sequence[Load], known: Callable[[int], int]) -> int:
        """The instance for `request`. known: tokens of its prompt that an instance's cache holds."""
        if self.policy == "round_robin":
            place = self._place.get(request.after, -1)
            if place < 0:
                place, self._turn = self._turn, (self._turn + 1) % self.instances
            self._place[request.id] = place
            return place
        scores = [load.score for load in loads]
        uneven = max(scores) - min(scores) > UNEVEN_BY and max(scores) > UNEVEN_RATIO * min(scores)
        by_prefix = self.policy == "prefix_aware" and not uneven
        held = [known(n) if by_prefix else 0 for n in range(self.instances)]
        chosen = min(range(self.instances), key=lambda n: (-held[n], scores[n], self._sent[n], n))
        self._sent[chosen] += 1
        return chosen
