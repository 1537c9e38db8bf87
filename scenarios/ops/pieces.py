"""How the rows of a product are cut into pieces that are computed and communicated one after the other."""

from __future__ import annotations


def row_pieces(rows: int, pieces: int, unit: int) -> tuple[int, ...]:
    """At most `pieces` counts that sum to `rows`: multiples of `unit` but for the last, as even as that allows.

    Where there are fewer units than pieces, each piece is one unit. Raises ValueError for counts below 1.
    """
    if min(rows, pieces, unit) < 1:
        raise ValueError(f"rows, pieces and unit must be 1 or more, got {rows}, {pieces}, {unit}")
    units = -(-rows // unit)
    count = min(pieces, units)
    sizes = [unit * (units // count + (i < units % count)) for i in range(count)]
    sizes[-1] -= unit * units - rows
    return tuple(sizes)
