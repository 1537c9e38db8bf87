"""One of the two things that are compared."""

from __future__ import annotations

from typing import Any, Literal

from scenarios.records import dataclass
from scenarios.timeline import Timeline
from sim.compare.load_share import Load

Kind = Literal["scenario", "result", "trace", "profile", "load test"]


@dataclass(frozen=True, slots=True)
class Side:
    """A or B. result: its `run` document, where it has one. timeline: its spans, where it has them.

    sources: files it was read from. notes: what a reader of the comparison has to know. loads: what requests met, of a
    load test or a serving scenario; a load test has these alone.
    """

    name: str
    kind: Kind
    result: dict[str, Any] | None
    timeline: Timeline | None
    sources: tuple[str, ...]
    notes: tuple[str, ...] = ()
    loads: tuple[Load, ...] = ()

    @property
    def has_step(self) -> bool:
        return self.result is not None or self.timeline is not None
