"""What a GPU computes in its own way: attention by flash and memory-efficient kernels, products of INT8 and experts.

The math form of scaled_dot_product_attention, which writes all scores to memory, is switched off: what neither fused
kernel takes is an error. Flash takes no mask and 16 bits only, and serves several query heads by one of keys; the
memory-efficient one takes masks and float32, and heads of keys are copied for it.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F

from device.operators import attention, mla, torch_calls
from device.operators.compiled import KERNELS as COMPILED
from device.operators.kernel import Inputs, Kernel, Outputs
from device.step.step import COUNTS, Layout, Step
from scenarios.ops.catalogue import kind_of
from scenarios.ops.program import Op

#: torch._int_mm goes to cuBLASLt: more rows than this, and both other dimensions multiples of that.
INT8_ROWS_ABOVE, INT8_MULTIPLE = 16, 8
#: Both attention kernels read heads whose dimension is a multiple of this (16 bytes of 16-bit values).
HEAD_MULTIPLE = 8
#: Fused attention goes to flash up to this head dimension.
FLASH_HEAD_DIM = 256


def only_fused_attention() -> None:
    """Let scaled_dot_product_attention of this process choose among flash and memory-efficient kernels only."""
    torch.backends.cuda.enable_flash_sdp(True)
    torch.backends.cuda.enable_mem_efficient_sdp(True)
    torch.backends.cuda.enable_cudnn_sdp(False)  # it makes a plan for each new length, in the measured step
    torch.backends.cuda.enable_math_sdp(False)


def takes_flash(q: torch.Tensor, v: torch.Tensor, masked: bool) -> bool:
    """Whether flash attention takes this; the memory-efficient kernel takes the rest."""
    narrow = q.dtype in (torch.bfloat16, torch.float16)
    return narrow and not masked and q.shape[-1] == v.shape[-1] <= FLASH_HEAD_DIM


def attended(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, causal: bool, scale: float | None
) -> torch.Tensor:
    """q [requests, heads, queries, dim], k and v with as many heads or a part of them -> [requests, heads, queries, dim
    of v]."""
    flash = takes_flash(q, v, mask is not None)
    group = q.shape[1] // k.shape[1]
    if group > 1 and not flash:
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=group > 1 and flash
    )


def _attention(op: Op, inputs: Inputs, step: Step) -> Outputs:
    query = attention.heads_of(inputs[0], op)
    q = attention.by_request(query, step.layout)
    if attention.sinks_of(op, inputs) is not None:  # no fused kernel of torch has them
        return attention.KERNELS["attention"].compute(op, inputs, step)
    k, v = attention.keys_and_values(op, inputs, step, query.dtype)
    visible = attention.seen_by(op, step)
    causal = step.causal and visible is step.visible
    y = attended(q, k, v, None if causal else visible, causal, attention.scale_of(op))
    return (attention.by_token(y, step.layout).reshape(op.out.shape),)


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layout: Layout, scale: float) -> torch.Tensor:
    """Of latent attention. No mask where one query of each request sees all keys of equally long ones."""
    everything = layout.is_uniform and layout.longest_query == 1
    return attended(q, k, v, None if everything else attention.visible_keys(layout, q.device), False, scale)


def whole(op: Op) -> bool:
    """Whether an attention op is one call on the cache as it lies: no blocks to gather, nothing to dequantise, no heads
    to copy for a mask."""
    in_part = op.attr("window", 0) or op.attr("chunk", 0) or any(t.role == "weight" for t in op.inputs)
    if op.attr("block_size") or op.inputs[1].dtype == "int8" or in_part:
        return False
    groups = op.attr("groups")
    assert isinstance(groups, tuple)
    alike = len({(query, context) for _, query, context in groups}) == 1
    unmasked = alike and (groups[0][1] == 1 or not groups[0][2])
    return unmasked or op.attr("heads") == op.attr("kv_heads")


def int8_problem(op: Op) -> str | None:
    """What torch._int_mm does not take of a quantised product, None where it takes it."""
    rows, k = op.inputs[0].shape[0], op.inputs[0].shape[-1]
    outputs = op.inputs[1].shape[0]
    if rows <= INT8_ROWS_ABOVE:
        what = f"torch._int_mm multiplies more than {INT8_ROWS_ABOVE} rows on a GPU, {op.name} has {rows}"
        return f"{what}; raise workload.batch, or take bf16 or w8a16"
    if k % INT8_MULTIPLE or outputs % INT8_MULTIPLE:
        what = f"torch._int_mm wants multiples of {INT8_MULTIPLE} on a GPU, {op.name} is {k} x {outputs}"
        return f"{what}; take bf16 or w8a16"
    return None


def _grouped_matmul(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """16-bit experts by torch's grouped product, for which the host need not know the rows of each; float32 and
    unpacked weights one after the other."""
    x, w, *scale = inputs
    if scale or x.dtype != torch.bfloat16:
        return torch_calls.KERNELS["grouped_matmul"].compute(op, inputs, step)
    ends = step.values[COUNTS].cumsum(0).to(torch.int32)
    return (F.grouped_mm(x, w.transpose(-2, -1), offs=ends),)


def is_grouped(op: Op) -> bool:
    """Whether a product of experts is one call: bf16 rows and weights."""
    return kind_of(op).routed and {t.dtype for t in op.inputs[:2]} == {"bf16"}


KERNELS: dict[str, Kernel] = {
    **torch_calls.KERNELS,
    **COMPILED,
    "attention": Kernel(_attention, "fused", raw=True),
    "grouped_matmul": Kernel(_grouped_matmul, "composed"),
}
GROUPED = Kernel(_grouped_matmul, "fused")
#: Blocks are gathered, INT8 is dequantised, heads are copied before the fused kernel.
COMPOSED_ATTENTION = Kernel(_attention, "composed", raw=True)
NAMED = {
    **torch_calls.NAMED,
    "attention": Kernel(partial(mla.absorbed, by=_attend), "composed", raw=True),
    "prefill_attention": Kernel(partial(mla.unpacked, by=_attend), "composed", raw=True),
}
