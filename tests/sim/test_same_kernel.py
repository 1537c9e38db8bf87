"""One kernel, two readings: the op that a scenario lowers to, and the row that msprof prints for it.

The cost model is fitted to rows (`sim.accuracy.rows.op_types`) and asked about ops (`scenarios.ops.catalogue`). Where
the two count one kernel's work differently, what was learnt from measurements is lost on the way into a prediction. The
shapes are those of Qwen3-8B: 4,096 wide, 32 heads and 8 KV heads of 128, MLP of 12,288, vocabulary of 151,936.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import pytest

from scenarios.models.hf_config import load_model
from scenarios.ops.catalogue import op_type_of, work_of
from scenarios.ops.program import Op, Program
from scenarios.ops.work import FlatShape
from sim.accuracy.rows.op_types import work_of_row
from sim.hardware.profile import load_hardware
from sim.kernel.price import params_of, price
from tests.scenarios.making import bare, op, program, scenario

MODEL = load_model("Qwen3-8B")
#: Keys that each request attends to, the new one included.
KEYS = 1001
LENGTHS = {"workload__input_tokens": KEYS - 1, "workload__output_tokens": 1, "workload__context_tokens": KEYS - 1}
BF16, FP32 = "DT_BF16;DT_BF16;DT_BF16;DT_BF16", "FLOAT;FLOAT"


@dataclass(frozen=True)
class Kernel:
    """One kernel in both readings.

    name, block: the op of the program that `switches` make, from the fused defaults or from everything off. shapes: as
    msprof prints the inputs, {b} for the batch. op_type: the profiler's name where the op has another.
    """

    name: str
    shapes: str
    dtypes: str = BF16
    block: str = "layers"
    unfused: bool = False
    switches: tuple[tuple[str, str | bool], ...] = ()
    op_type: str = ""


def fused(name: str, shapes: str, dtypes: str = BF16, block: str = "layers", **switches: str) -> Kernel:
    return Kernel(name, shapes, dtypes, block, False, tuple(switches.items()))


def plain(name: str, shapes: str, dtypes: str = BF16, block: str = "layers") -> Kernel:
    return Kernel(name, shapes, dtypes, block, True)


KERNELS = {
    "matmul nd": fused("qkv_proj", "{b},4096;6144,4096"),
    "matmul nd, wide": fused("lm_head", "{b},4096;151936,4096", block="head"),
    "matmul nz": fused("qkv_proj", "{b},4096;256,384,16,16", optimizations__weight_format="nz"),
    "matmul nz, deep": fused("down_proj", "{b},12288;768,256,16,16", optimizations__weight_format="nz"),
    "quant_matmul nz": fused(
        "qkv_proj", "{b},4096;192,256,16,32;6144", "INT8;INT8;FLOAT",
        optimizations__weights="w8a8", optimizations__weight_format="nz",
    ),
    "quant_matmul nd": fused(
        "down_proj", "{b},12288;12288,4096;4096", "INT8;INT8;FLOAT", optimizations__weights="w8a8"
    ),
    "weight_quant_matmul": fused(
        "qkv_proj", "{b},4096;4096,6144;6144", "DT_BF16;INT8;FLOAT", optimizations__weights="w8a16"
    ),
    "rms_norm": fused("input_norm", "{b},4096;4096", block="embed"),
    "rms_norm of the heads": fused("q_norm", "{b},32,128;128"),
    "add_rms_norm": fused("next_norm", "{b},4096;{b},4096;4096"),
    "swiglu": fused("swiglu", "{b},24576"),
    "dynamic_quant": fused("quant_normed", "{b},4096", optimizations__weights="w8a8"),
    "static_quant": fused("quant_k_rotated", "{b},8,128;8,1,128", optimizations__kv__dtype="int8"),
    "cast up": fused("logits_cast", "{b},151936", block="sample"),
    "cast down": plain("post_attention_norm.cast_back", "{b},4096", FP32),
    "add": plain("add_mlp", "{b},4096;{b},4096"),
    "mul by a column": plain("post_attention_norm.mul", "{b},4096;{b},1", FP32),
    "mul by a row": plain("post_attention_norm.mul_gamma", "{b},4096;4096"),
    "mul over the heads": plain("rope_q.mul_cos", "{b},32,1,128;{b},1,1,128"),
    "muls": plain("attn.scale", "{b},32,1,1001"),
    "pow": plain("post_attention_norm.pow", "{b},4096", FP32),
    "mean": plain("post_attention_norm.mean", "{b},4096", FP32),
    "silu": plain("silu", "{b},12288"),
    "cos": plain("rotary.cos", "{b},128", FP32, block="embed"),
    "slice of Q": plain("rope_q.slice_upper", "{b},32,128;3;3", "DT_BF16;INT64;INT64"),
    "slice of K": plain("rope_k.slice_lower", "{b},8,128;3;3", "DT_BF16;INT64;INT64"),
    "softmax of the scores": plain("attn.softmax", "{b},32,1,1001", FP32),
    "softmax of the logits": fused(
        "softmax", "{b},151936", FP32, block="sample", workload__sampling="top_k_top_p"
    ),
    "argmax": fused("argmax", "{b},151936;", "FLOAT;INT64", block="sample"),
    "sort": fused("sort", "{b},151936", FP32, block="sample", workload__sampling="top_k_top_p"),
    "div": fused("temperature", "{b},151936;{b},1", FP32, block="sample", workload__sampling="top_k_top_p"),
    "attention decode, paged": fused(
        "attention", "{b},32,128;4096,128,1024;4096,128,1024;;2048,2048;{b};{b};;;;;;{b},9"
    ),
    "rope": fused("rope", "1,{b},32,128;1,{b},8,128;1,{b},1,128;1,{b},1,128"),
    "kv_cache_write of both": fused("write_kv", "{b},8,128;{b},8,128;4096,128,8,128;4096,128,8,128;{b}"),
    "kv_cache_write of one": Kernel(
        "write_k", "524288,8,128;{b},1;{b},8,128", "DT_BF16;INT64;DT_BF16",
        switches=(("optimizations__graph", "ge_graph"),), op_type="ScatterNdUpdate",
    ),
    "kv_cache_write into a static cache": Kernel(
        "write_k", "{b},8,4096,128;{b};{b},8,1,128", "DT_BF16;INT64;DT_BF16",
        switches=(("optimizations__graph", "ge_graph"), ("optimizations__kv__layout", "contiguous")),
        op_type="Scatter",
    ),
    "silu and mul, compiled": Kernel(
        "silu+mul_up", "{b},12288;{b},12288", switches=(
            ("optimizations__graph", "ge_graph"), ("optimizations__fusion__swiglu", False),
        ), op_type="AutomaticBufferFusionOp",
    ),
    "embedding": fused("embed_tokens", "151936,4096;{b};1", "DT_BF16;INT64;INT64", block="embed"),
}  # fmt: skip

BATCHES = (1, 16, 256)


@lru_cache(maxsize=64)
def lowered(batch: int, unfused: bool, switches: tuple[tuple[str, str | bool], ...]) -> Program:
    make = bare if unfused else scenario
    return program(make(workload__batch=batch, **LENGTHS, **dict(switches)), MODEL)


def op_of(kernel: Kernel, batch: int) -> Op:
    return op(lowered(batch, kernel.unfused, kernel.switches), kernel.name, kernel.block)


@pytest.mark.parametrize("hardware", ["atlas_a3_die", "atlas_a2_910b4", "950pr"])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", KERNELS)
def test_a_prediction_counts_a_kernels_work_as_its_measurement_does(name: str, batch: int, hardware: str) -> None:
    kernel, hw = KERNELS[name], load_hardware(hardware)
    asked = op_of(kernel, batch)
    ours = work_of(asked)
    theirs = work_of_row(kernel.op_type or op_type_of(asked), kernel.shapes.format(b=batch), kernel.dtypes, KEYS)
    assert (ours.unit, ours.shape, ours.cube_flops) == (theirs.unit, theirs.shape, theirs.cube_flops)
    assert params_of(ours, hw) == params_of(theirs, hw)
    # Bytes may differ by what a row does not tell: the statistic next to a norm, scales, block tables.
    assert price(ours, hw).duration_ns == pytest.approx(price(theirs, hw).duration_ns, rel=0.02), (ours, theirs)


def test_a_miscount_would_show() -> None:
    """Half of the elements, or a program of another name, are more than the tolerance allows."""
    hw = load_hardware("atlas_a3_die")
    asked = work_of(op_of(KERNELS["add"], 256))
    assert isinstance(asked.shape, FlatShape)
    half = replace(asked, shape=replace(asked.shape, elements=asked.shape.elements // 2))
    other = replace(asked, program="broadcast")
    for wrong in (half, other):
        assert price(wrong, hw).duration_ns != pytest.approx(price(asked, hw).duration_ns, rel=0.02)
