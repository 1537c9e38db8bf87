"""Compared rows by family, as pictures show them: matrix products, attention, vector and cache, collectives, steps."""

from __future__ import annotations

from collections.abc import Sequence

from scenarios.ops.families import Family, family_of_type
from sim.accuracy.score import Scored

_NAMES: dict[Family, str] = {"matmul": "matrix products", "attention": "attention", "vector": "vector and cache"}
FAMILIES = (*_NAMES.values(), "collectives", "whole steps")


def by_family(
    kernels: Sequence[Scored], collectives: Sequence[Scored], steps: Sequence[Scored]
) -> list[tuple[str, Scored]]:
    """Each row with its family, in the order given."""
    points = [(family_of(row.kind), row) for row in kernels]
    return points + [("collectives", row) for row in collectives] + [("whole steps", row) for row in steps]


def family_of(op_type: str) -> str:
    """The family of a kernel, by the profiler's name of it."""
    return _NAMES[family_of_type(op_type)]
