"""The optimisations in the order they are applied. Each is one rewrite Program -> Program in its own room."""

from __future__ import annotations

from scenarios.passes import (
    attention,
    branches,
    collectives,
    elementwise,
    experts,
    ffn,
    graph,
    kv,
    micro_batches,
    norms,
    prefetch,
    projections,
    weights,
)
from scenarios.passes.base import Context, Pass

PASSES: tuple[Pass, ...] = (
    norms.RMS_NORM,
    norms.ADD_RMS_NORM,
    elementwise.ROPE,
    experts.MOE_ROUTING,
    experts.GROUPED_MATMUL,
    experts.MOE_DISPATCH,
    projections.QKV,
    projections.GATE_UP,
    elementwise.SWIGLU,
    attention.ATTENTION,
    kv.LAYOUT,
    kv.DTYPE,
    kv.QKV_NORM_ROPE_CACHE,
    weights.WEIGHTS,
    norms.ADD_RMS_NORM_QUANT,
    elementwise.SWIGLU_QUANT,
    weights.WEIGHT_FORMAT,
    ffn.FFN,
    prefetch.PREFETCH,
    collectives.MATMUL_ALL_REDUCE,
    collectives.COMM_CHUNKS,
    branches.SHARED_EXPERT,
    branches.STREAMS,
    micro_batches.MICRO_BATCHES,
    graph.GRAPH,
)

__all__ = ["PASSES", "Context", "Pass"]
