"""Fused attention."""

from __future__ import annotations

from scenarios.lowering.primitives import groups_of
from scenarios.ops.program import Attr, Op, Program, Tensor
from scenarios.passes.base import Context, Pass, in_layers, replace_runs

ATTENTION_CALLS = (
    "expand",
    "expand",
    "batch_matmul",
    "muls",
    "add",
    "cast",
    "softmax",
    "cast",
    "batch_matmul",
)


#: The same with a learned score of each head in the softmax.
WITH_SINKS = (*ATTENTION_CALLS[:5], "concat", *ATTENTION_CALLS[5:8], "slice", ATTENTION_CALLS[8])


def fuse_attention(program: Program, context: Context) -> Program:
    """Nine calls -> npu_fused_infer_attention_score over the cache as it lies; the score matrix never leaves the
    chip. Windows are its band mode, sinks a further operand (v2)."""
    batch = program.batch

    def make(run: tuple[Op, ...]) -> tuple[Op, ...]:
        by_name = {op.name: op for op in run}
        product, scale, mask, out = by_name["attn.qk"], by_name["attn.scale"], by_name["attn.mask"], run[-1].out
        keys = max(g.kv_len for g in batch.groups)
        kv_heads, wide, narrow = run[0].inputs[0].shape[1], product.inputs[0].shape[-1], out.shape[2]
        query = Tensor(product.inputs[0].name, (*out.shape[:2], wide), out.dtype)
        key, value = (
            Tensor(op.inputs[0].name, (batch.requests, keys, kv_heads, dim), out.dtype, "kv_cache")
            for op, dim in zip(run[:2], (wide, narrow), strict=True)
        )
        dim = (wide + narrow) // 2  # the work counts their mean for both products
        sinks = tuple(t for op in run for t in op.inputs if t.role == "weight")
        own_scale = () if scale.attr("value") == dim**-0.5 else (("scale", scale.attr("value")),)
        static = 0 if mask.attrs or sinks else _static_tokens(context, batch.phase)
        attrs: tuple[tuple[str, Attr], ...] = (
            ("groups", groups_of(batch)),
            ("heads", out.shape[1]),
            ("kv_heads", kv_heads),
            ("head_dim", dim),
            ("block_size", 0),
            *((("static_tokens", static),) if static else ()),
            *mask.attrs,
            *own_scale,
        )
        op_type = "IncreFlashAttention" if static else ""
        return (Op("attention", "attention", (query, key, value, *sinks), (out,), attrs, op_type=op_type),)

    def rewrite(ops: tuple[Op, ...]) -> tuple[Op, ...]:
        if any(op.attr("alibi", 0) for op in ops):
            return ops
        return replace_runs(replace_runs(ops, ATTENTION_CALLS, make), WITH_SINKS, make)

    return in_layers(program, "fusion.attention", rewrite)


def _static_tokens(context: Context, phase: str) -> int:
    """Rows of a request that decode attention reads whatever its length, or 0: a compiled graph over a contiguous cache
    calls IncreFlashAttention with a mask over all of it, which is as long as a request may get; over a paged one it
    gives the lengths, as all other modes do.
    """
    optimizations = context.scenario.optimizations
    whole = optimizations.graph == "ge_graph" and optimizations.kv.layout == "contiguous" and phase == "decode"
    return context.scenario.longest_request_tokens if whole else 0


ATTENTION = Pass(
    switch="fusion.attention",
    title="Fused attention",
    rewrite=fuse_attention,
    idle=lambda model: (
        f"{model.name} attends to latent rows: only the fused kernel of that is modelled"
        if model.latent
        else f"{model.name} caps its scores, which npu_fused_infer_attention_score does not"
        if model.attention.soft_cap
        else f"{model.name} has biases by distance (ALiBi), which no fused call that engines make on Ascend takes"
        if model.attention.alibi
        else None
    ),
    rewrites="repeat K and V, QK, scale, mask, softmax, PV -> npu_fused_infer_attention_score",
    saves="eight launches, the copies of K and V over the group, and all traffic of the score matrix",
    costs="a fixed start-up of 17-22 us a layer; tiles must fit UB (online softmax)",
    claim="long sequences need tiles and online softmax, not a score matrix that fits on chip",
    name=("fused attention", "融合注意力"),
    label=("Attention", "注意力"),
    help=("QK, softmax, PV -> npu_fused_infer_attention_score.", "QK、softmax、PV → npu_fused_infer_attention_score。"),
)
