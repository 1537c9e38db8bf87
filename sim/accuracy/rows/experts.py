"""Measured kernels around the experts of a mixture as `Work`: rows put in the order of their experts and back."""

from __future__ import annotations

from math import prod

from scenarios.ops.work import RowsShape, Work
from sim.accuracy.rows.row import Row, Unpriced, rows_of

#: No model chooses more experts for a token.
MAX_CHOSEN = 64


def _picked(program: str, row: Row, rows: int, columns: int, read: int) -> Work:
    """`rows` rows of `columns`, written once; `read`: elements of the first input that are read."""
    size = row.size(0)
    return Work(
        "vector",
        RowsShape(rows, columns),
        warm_read_bytes=read * size + 8 * rows,
        write_bytes=rows * columns * size,
        program=program,
    )


def permuted(row: Row) -> Work:
    """MoeInitRouting, MoeTokenPermute, MoeReRouting: [tokens, hidden] and each token's experts [tokens, chosen] ->
    [tokens x chosen, hidden] in the order of the experts."""
    tokens, hidden = rows_of(row.shape(0))
    copies = prod(row.shape(1)[1:]) if row.shape(1)[:1] == (tokens,) else 1
    printed = row.outputs[0] if row.outputs else ()
    rows = rows_of(printed)[0] if len(printed) == 2 and printed[1] == hidden else tokens * copies
    return _picked("moe_init_routing", row, rows, hidden, rows * hidden)


def unpermuted(row: Row) -> Work:
    """MoeFinalizeRouting, MoeTokenUnpermute: [tokens x chosen, hidden], each row weighed, summed to [tokens, hidden].

    The tokens are those of the output, or of the first [tokens, chosen] that holds one number for each row.
    """
    rows, hidden = rows_of(row.shape(0))
    printed = row.outputs[0] if row.outputs else ()
    choices = [s for s in row.shapes[1:] if len(s) == 2 and prod(s) == rows and s[1] <= MAX_CHOSEN]
    if len(printed) == 2 and printed[1] == hidden:
        tokens = printed[0]
    elif choices:
        tokens = choices[0][0]
    else:
        raise Unpriced("neither the output nor the choice of experts tells the tokens")
    moved = row.size(0) * hidden
    return Work(
        "vector",
        RowsShape(tokens, hidden),
        vector_ops=2 * rows * hidden,
        warm_read_bytes=rows * moved,
        write_bytes=tokens * moved,
        program="moe_finalize_routing",
    )
