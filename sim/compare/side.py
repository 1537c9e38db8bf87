"""One of the two things that are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from scenarios.timeline import Timeline

Kind = Literal["scenario", "result", "trace", "profile"]


@dataclass(frozen=True, slots=True)
class Side:
    """A or B. result: its `run` document, where it has one. timeline: its spans, where it has them.

    sources: files it was read from. notes: what a reader of the comparison has to know.
    """

    name: str
    kind: Kind
    result: dict[str, Any] | None
    timeline: Timeline | None
    sources: tuple[str, ...]
    notes: tuple[str, ...] = ()
