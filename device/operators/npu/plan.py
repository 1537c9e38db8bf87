"""What of a Program an NPU cannot run, said before it runs: each fused call is rehearsed on tensors without memory.

The rehearsal makes the real call on the device `meta`, held against the rules of `rules`: so a shape that the call does
not take, and an argument that the installed wheel does not know, are found on any machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import torch

from device.backends.base import DTYPES
from device.operators import experts, mla
from device.operators.npu.call import enforced
from device.operators.npu.kernels import KERNELS
from device.operators.npu.needs import Refused
from device.operators.npu.rules import FUSED_RANKS
from device.operators.npu.versions import lacks_call
from device.operators.reference import special
from device.step import Layout, Step
from scenarios.catalogue import CATALOGUE
from scenarios.errors import printable
from scenarios.program import Op, Program, Tensor

#: The switch that asks for a kind.
SWITCHES = {
    "rms_norm": "fusion.rms_norm", "add_rms_norm": "fusion.add_rms_norm", "rope": "fusion.rope",
    "swiglu": "fusion.swiglu", "attention": "fusion.attention", "kv_cache_write": "kv.layout",
    "add_rms_norm_dynamic_quant": "fusion.add_rms_norm_quant", "quant_matmul": "weights",
    "weight_quant_matmul": "weights", "dynamic_quant": "weights", "static_quant": "kv.dtype",
    "qkv_norm_rope_cache": "fusion.qkv_norm_rope_cache", "matmul_all_reduce": "fusion.matmul_all_reduce",
    "prefetch": "overlap.prefetch",
}  # fmt: skip
#: Fused kinds that stay in plain torch, in pieces: no switch asks for them, and their form says `composed`.
COMPOSED = ("top_k_top_p",)
#: Kinds of routers, experts and latent attention.
PREDICTED_ONLY = (*experts.KERNELS, *mla.KERNELS)
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
#: What a captured step cannot hold: shapes that follow the lengths.
GROWING = ("expand", "block_gather", "batch_matmul")


def lacking(program: Program, torch_npu: str) -> list[str]:
    """One line for each switch that cannot be had: its name, why, what to do. torch_npu: the installed version."""
    found: dict[str, str] = {}
    ops = tuple(dict.fromkeys(op for block in program.blocks for op in block.ops))
    if any(special(op) or op.kind in PREDICTED_ONLY for op in ops):
        return ["model: routers, experts and latent attention (MLA) have no adapter for torch_npu here; predicted only"]
    step = rehearsed_step(program)
    for op in ops:
        switch = SWITCHES.get(op.kind, op.kind)
        if why := _refused(op, torch_npu) or _rehearse(op, step):
            found.setdefault(switch, why)
    for switch, why in _graph(program):
        found.setdefault(switch, why)
    return [f"optimizations.{switch}: {why}" for switch, why in found.items()]


def _refused(op: Op, torch_npu: str) -> str | None:
    """What no call is made for."""
    if op.kind == "qkv_norm_rope_cache":
        if since := lacks_call("npu_qkv_rms_norm_rope_cache", torch_npu):
            return f"torch_npu {torch_npu} has no npu_qkv_rms_norm_rope_cache, {since} has; set it to false"
        return (
            "npu_qkv_rms_norm_rope_cache writes FRACTAL_NZ blocks, which this attention does not read; set it to false"
        )
    if op.kind == "quant_matmul" and op.inputs[1].dtype == "int4":
        return "npu_quant_matmul multiplies no INT4 weights with INT8 activations as they lie here; take w4a16 or w8a8"
    if op.kind == "matmul_all_reduce" and op.attr("ranks") not in FUSED_RANKS:
        return f"npu_mm_all_reduce_base joins 2, 4 or 8 ranks, not {op.attr('ranks')}; set it to false"
    known = op.kind in KERNELS or op.kind in (*COLLECTIVES, *COMPOSED)
    if CATALOGUE[op.kind].host == "npu" and not known:
        return f"{op.op_type or CATALOGUE[op.kind].op_type} has no adapter for torch_npu"
    return None


def _graph(program: Program) -> Iterator[tuple[str, str]]:
    if program.graph == "eager":
        return
    ops = [op for block in program.blocks if block.captured for op in block.ops]
    if any(op.kind in GROWING for op in ops):
        yield "graph", "a captured step cannot hold unfused attention, whose shapes grow; set fusion.attention to true"
    if program.graph == "aclgraph":
        return
    for op in ops:
        if op.stream:
            switch = "overlap.prefetch" if op.kind == "prefetch" else "overlap"
            what = f"{program.graph} issues compiled code on one stream; switch it off, or take aclgraph"
            yield switch, what
    if any(op.kind == "attention" and not op.attr("block_size") for op in ops):
        what = f"{program.graph} would copy a contiguous cache at each write; set it to paged, or take aclgraph"
        yield "kv.layout", what


def _rehearse(op: Op, step: Step) -> str | None:
    """What the call of `op` is refused for, None where it is taken."""
    kernel = KERNELS.get(op.kind)
    if kernel is None or kernel.form == "torch" or op.kind == "matmul_all_reduce":  # that one needs its HCCL group
        return None
    inputs = [standing_for(op, tensor) for tensor in op.inputs]
    try:
        with enforced(), torch.inference_mode():
            kernel.compute(op, inputs, step)
    except Refused as refusal:
        return f"{refusal}; change the scenario, or switch it off"
    except (RuntimeError, NotImplementedError, TypeError) as error:
        return f"torch_npu refuses it: {printable(str(error).strip().partition(chr(10))[0], 160)}"
    return None


def rehearsed_step(program: Program) -> Step:
    """A step of the Program's batch, without values."""
    pairs = [(group.query, group.context) for group in program.batch.groups for _ in range(group.count)]
    numbers = tuple(range(len(pairs)))
    queries, contexts = (tuple(pair[i] for pair in pairs) for i in (0, 1))
    rows = next(op.inputs[1] for op in program.block("embed").ops if op.kind == "embedding").shape[0]
    return Step(Layout(numbers, numbers, queries, contexts, rows), DTYPES, {}, None)


def standing_for(op: Op, tensor: Tensor) -> torch.Tensor:
    """A tensor without memory in the place of an operand, as the call reads it (npu_weights.py)."""
    shape, dtype = tensor.shape, DTYPES[tensor.dtype]
    act = DTYPES["fp16" if any(t.dtype == "fp16" for t in (*op.inputs, *op.outputs)) else "bf16"]
    if tensor.role == "weight" and tensor.dtype in ("int8", "int4"):
        outputs, inputs = shape
        if tensor.dtype == "int4":
            return torch.empty((inputs, outputs // 8), dtype=torch.int32, device="meta")
        return torch.empty((outputs, inputs), dtype=dtype, device="meta").t()
    if op.kind == "weight_quant_matmul" and tensor.role == "weight":
        is_bias_of_bf16 = tensor.name.endswith(".bias") and act == torch.bfloat16
        return torch.empty(shape, dtype=torch.float32 if is_bias_of_bf16 else act, device="meta")
    if tensor.role == "kv_cache" and op.kind == "attention" and len(shape) == 2:  # scales, kept place by place
        places = prod(op.inputs[1].shape[:2])
        return torch.empty((places, shape[1]), dtype=dtype, device="meta")
    return torch.empty(shape, dtype=dtype, device="meta")
