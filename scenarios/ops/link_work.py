"""Work of what ranks exchange: collectives, and tokens on the way to their experts and back."""

from __future__ import annotations

from typing import cast

from scenarios.ops.counting import total_bytes, whole_number
from scenarios.ops.op_kind import OpKind
from scenarios.ops.program import DTYPE_BITS, Op
from scenarios.ops.work import Collective, CollectiveShape, Exchange, ExchangeShape, Work

#: Which ranks a collective joins: how many, the first die, the distance from one to the next.
_GROUP = (("ranks", None), ("first", 0), ("stride", 1))


def collective(op: Op, kind: OpKind) -> Work:
    """Ranks exchange a tensor; every byte of it passes this rank's memory once in and once out."""
    whole = max(t.bytes for t in (*op.inputs, *op.outputs))  # a send has no output, a receive no input
    ranks, first, stride = (whole_number(op, key, default) for key, default in _GROUP)
    uneven = float(op.attr("imbalance", 1.0))  # type: ignore[arg-type]
    shape = CollectiveShape(
        cast(Collective, kind.name),
        whole,
        ranks=ranks,
        first=first,
        stride=stride,
        imbalance=uneven,
        mode=str(op.attr("mode", "auto")),
    )
    return Work(
        kind.unit, shape, warm_read_bytes=total_bytes(op.inputs), write_bytes=total_bytes(op.outputs), program=kind.name
    )


def exchange(op: Op, kind: OpKind) -> Work:
    """Tokens to the ranks of their experts, or their results back: `top_k` rows for each token of this rank."""
    token = op.inputs[0] if kind.name == "moe_dispatch" else op.out
    top_k, ranks = whole_number(op, "top_k"), whole_number(op, "ranks")
    sent = op.out.dtype if kind.name == "moe_dispatch" else op.inputs[0].dtype
    shape = ExchangeShape(
        cast(Exchange, kind.name),
        token.shape[0],
        top_k,
        token.shape[1],
        sent,
        ranks,
        core_share=float(op.attr("core_share", 1.0)),  # type: ignore[arg-type]
    )
    moved = token.shape[0] * top_k * token.shape[1] * DTYPE_BITS[sent] // 8
    return Work(kind.unit, shape, warm_read_bytes=moved, write_bytes=moved, program=kind.name)
