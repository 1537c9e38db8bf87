"""The optimisations in the order they are applied. Each is one rewrite Program -> Program in its own room."""

from __future__ import annotations

from scenarios.passes import attention, collectives, elementwise, graph, kv, norms, prefetch, projections, weights
from scenarios.passes.base import Context, Pass

PASSES: tuple[Pass, ...] = (
    norms.RMS_NORM,
    norms.ADD_RMS_NORM,
    elementwise.ROPE,
    projections.QKV,
    projections.GATE_UP,
    elementwise.SWIGLU,
    attention.ATTENTION,
    kv.LAYOUT,
    kv.DTYPE,
    kv.QKV_NORM_ROPE_CACHE,
    weights.WEIGHTS,
    norms.ADD_RMS_NORM_QUANT,
    weights.WEIGHT_FORMAT,
    prefetch.PREFETCH,
    collectives.MATMUL_ALL_REDUCE,
    collectives.COMM_CHUNKS,
    graph.GRAPH,
)

__all__ = ["PASSES", "Context", "Pass"]
