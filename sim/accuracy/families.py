"""Compared rows by family, as pictures show them: matrix products, attention, vector and cache, collectives, steps."""

from __future__ import annotations

from collections.abc import Sequence

from sim.accuracy.score import Scored

FAMILIES = ("matrix products", "attention", "vector and cache", "collectives", "whole steps")


def by_family(
    kernels: Sequence[Scored], collectives: Sequence[Scored], steps: Sequence[Scored]
) -> list[tuple[str, Scored]]:
    """Each row with its family, in the order given."""
    points = [(family_of(row.kind), row) for row in kernels]
    return points + [("collectives", row) for row in collectives] + [("whole steps", row) for row in steps]


def family_of(op_type: str) -> str:
    """The family of a kernel, by the profiler's name of it."""
    name = op_type.lower()
    if "matmul" in name or "gemm" in name:
        return "matrix products"
    return "attention" if "attention" in name or "mla" in name else "vector and cache"
