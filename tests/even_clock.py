"""A clock for served requests that no machine moves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class EvenClock:
    """Every look at it is a millisecond later: the same run each time."""

    kind = "wall"
    slept_ns = 0
    scaled_by = 1.0
    now: int = 0

    def start(self) -> None:
        self.now = 0

    def now_ns(self) -> int:
        self.now += 1_000_000
        return self.now

    def wait_until(self, ns: int) -> None:
        self.now = max(self.now, ns)

    def look(self) -> None:
        """Nothing."""
