"""What of an op no call of torch_npu is made for, said before anything is rehearsed."""

from __future__ import annotations

from collections.abc import Callable

from device.operators.npu.attention import BY_V1, SINK_DIMS, has_sinks, takes_tnd
from device.operators.npu.kernels import kernel_of
from device.operators.npu.kv import writes_nz
from device.operators.npu.rules import FUSED_RANKS
from device.operators.npu.versions import QKV_IN_ONE, V2_IN_CAPTURE, lacks
from scenarios.models.model import Model
from scenarios.ops.catalogue import kind_of, op_type_of
from scenarios.ops.program import Op, Program

#: Fused kinds that stay in plain torch, in pieces: no switch asks for them, and their form says `composed`.
COMPOSED = ("top_k_top_p", "moe_re_routing")
#: What a supported wheel may lack that nothing stands in for, by the kind that needs it.
YOUNG = {"qkv_norm_rope_cache": QKV_IN_ONE}
#: How the names of Atlas A2's chips start.
ATLAS_A2 = "Ascend910B"
#: Calls without a meta kernel.
WITHOUT_META = ("npu_gather_pa_kv_cache", "_npu_reshape_and_cache")


def refused(op: Op, model: Model, torch_npu: str) -> str | None:
    """Why no call is made for `op`, None where one is. model: what this rank holds of it. torch_npu: the installed
    version."""
    kind = kind_of(op)
    if op.kind in YOUNG and writes_nz(op) and (lack := lacks(YOUNG[op.kind], torch_npu)):
        return f"{lack}; set it to false"
    if kernel_of(op, torch_npu, atb=False) is BY_V1 and has_sinks(op):  # which takes no learnable_sink
        return lacks(V2_IN_CAPTURE, torch_npu)
    if op.kind in _REFUSALS and (why := _REFUSALS[op.kind](op, model)):
        return why
    known = kernel_of(op, torch_npu, atb=False) is not None or kind.is_collective or op.kind in COMPOSED
    if kind.host == "npu" and not known:
        return f"{op_type_of(op)} has no adapter for torch_npu"
    return None


def on_chip(program: Program, chip: str) -> list[str]:
    """What a chip does not take though others do, one line a switch. chip: as CANN calls it."""
    kinds = {op.kind for block in program.blocks for op in block.ops}
    if not chip.startswith(ATLAS_A2) or "moe_dispatch" not in kinds:
        return []
    what = "npu_moe_distribute_dispatch_v2 takes 16 ranks and more on Atlas A2, over several servers"
    remedy = "set it to false and graph to eager, or engine.all2all_backend to allgather_reducescatter"
    return [f"optimizations.fusion.moe_dispatch: {what}; {remedy}"]


def _int8_experts(op: Op, _: Model) -> str | None:
    if op.inputs[1].dtype == "int4":
        return "npu_grouped_matmul multiplies no INT4 weights with INT8 rows; take w8a8 or w4a16"
    return None


def _attention(op: Op, _: Model) -> str | None:
    if op.attr("top_k", 0):
        return "SparseFlashAttention has no adapter for torch_npu"
    key, value = op.inputs[1:3]
    if not op.attr("latent", False) and value.role == "kv_cache" and key.shape[-1] != value.shape[-1]:
        return "values narrower than keys have no adapter for torch_npu"
    if op.attr("chunk", 0):
        return "npu_fused_infer_attention_score has no adapter for attention in chunks"
    if op.inputs[1].dtype == "int8" and (op.attr("window", 0) or has_sinks(op)):
        return "windows and sinks over an INT8 cache have no adapter for torch_npu; set kv.dtype to bf16"
    if has_sinks(op) and not takes_tnd(op):
        return (
            "npu_fused_infer_attention_score_v2 takes learnable_sink over blocks with heads of "
            f"{' and '.join(map(str, SINK_DIMS))} only; set kv.layout to paged"
        )
    if op.attr("latent", False) and not op.attr("block_size"):
        return "latent rows are read through a block table only; set kv.layout to paged"
    return None


def _cache_read(op: Op, _: Model) -> str | None:
    return None if op.attr("block_size") else "latent rows are read through a block table only; set it to paged"


def _choice(_: Op, model: Model) -> str | None:
    """What of a router the calls do not compute."""
    experts = model.experts
    assert experts is not None
    if experts.score == "sqrtsoftplus":
        return (
            "npu_moe_gating_top_k has no scores by the root of a softplus, and the call that has (of vLLM-Ascend) no "
            "adapter; set it to false"
        )
    if experts.score == "softmax" and experts.groups > 1:
        return "npu_moe_gating_top_k_softmax knows no groups of experts; set it to false"
    if experts.score == "sigmoid" and not experts.normalised:
        return "npu_moe_gating_top_k divides the weights of a sigmoid by their sum; set it to false"
    return None


def _fused_all_reduce(op: Op, _: Model) -> str | None:
    if op.attr("ranks") in FUSED_RANKS:
        return None
    return f"npu_mm_all_reduce_base joins 2, 4 or 8 ranks, not {op.attr('ranks')}; set it to false"


#: What a call does not take though its kind exists, by kind.
_REFUSALS: dict[str, Callable[[Op, Model], str | None]] = {
    "quant_grouped_matmul": _int8_experts,
    "attention": _attention,
    "cache_read": _cache_read,
    "moe_gating_top_k": _choice,
    "matmul_all_reduce": _fused_all_reduce,
}
