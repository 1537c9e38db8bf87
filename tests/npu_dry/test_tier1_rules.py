"""What a device refuses or computes wrongly and the wheel's meta kernels let pass is refused by rules of our own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map

from device.operators.npu.needs import Refused
from device.operators.npu.rules import RULES, check
from tests.npu_dry import wrong_calls
from tests.npu_dry.calls import BF16, CALLS, INT8, INT8_CACHE, INT32, MANY, MORE_CALLS, SCALES, integers, rand

V1, V2 = "npu_fused_infer_attention_score", "npu_fused_infer_attention_score_v2"
FLOAT = torch.float32


def changed(name: str, **changes: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The right call of `name` with arguments changed."""
    return wrong_calls.changed(CALLS[name], **changes)


def wrong(name: str, says: str, **changes: Any) -> tuple[str, Any, str]:
    """A changed call and what its rule says."""
    return name, changed(name, **changes), says


def int8(**changes: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A right call on an INT8 cache with scales a channel, changed."""
    _, args, kwargs = MORE_CALLS["int8 mode 0"]
    return args, {**kwargs, **changes}


#: (call, arguments, what the rule says), all of which the meta kernels of 2.13.0 let pass.
WRONG: dict[str, tuple[str, Any, str]] = {
    "gamma length": wrong("npu_rms_norm", "gamma has 32 elements, a row 64", a1=rand(32)),
    "gamma type": wrong("npu_rms_norm", "all of one type", a1=rand(64, dtype=FLOAT)),
    "integer norm": ("npu_rms_norm", (tuple(integers(*s) for s in ((3, 64), (64,))), {}), "input is int8"),
    "residual shape": wrong("npu_add_rms_norm", "\\[3, 64\\] and \\[2, 64\\]", a1=rand(2, 64)),
    "residual type": wrong("npu_add_rms_norm", "one type", a1=rand(3, 64, dtype=FLOAT)),
    "quantised norm type": (
        "npu_add_rms_norm_dynamic_quant",
        changed(
            "npu_add_rms_norm_dynamic_quant",
            **{f"a{i}": rand(*s, dtype=FLOAT) for i, s in enumerate(((3, 64), (3, 64), (64,)))},
        ),
        "input is float32",
    ),
    "odd swiglu": wrong("npu_swiglu", "63 columns cannot be halved", a0=rand(3, 63)),
    "swiglu type": wrong("npu_swiglu", "input is int8", a0=integers(3, 64)),
    "rope layout left out": wrong("npu_apply_rotary_pos_emb", "the layout must be given", layout=None),
    "rope layout": wrong("npu_apply_rotary_pos_emb", "layout BSH; A2 and A3 take", layout="BSH"),
    "rope mode": wrong("npu_apply_rotary_pos_emb", "take half", rotary_mode="quarter"),
    "rope dimension": (
        "npu_apply_rotary_pos_emb",
        ((rand(3, 4, 96), rand(3, 2, 96), rand(3, 1, 96), rand(3, 1, 96)), {"layout": "TND"}),
        "head dimension 96",
    ),
    "rope rows": wrong("npu_apply_rotary_pos_emb", "cos has 4 rows, query 3", a2=rand(4, 1, 128)),
    "rope types": wrong("npu_apply_rotary_pos_emb", "one type", a2=rand(3, 1, 128, dtype=FLOAT)),
    "rope heads of cos": wrong("npu_apply_rotary_pos_emb", "cos has 4 heads, not 1", a2=rand(3, 4, 128)),
    "cache mode left out": wrong("npu_scatter_pa_kv_cache", "PA_NZ wants blocks in FRAC", cache_mode=None),
    "cache type": wrong("npu_scatter_pa_kv_cache", "one type", a2=integers(3, 128, 2, 64)),
    "cache heads": wrong("npu_scatter_pa_kv_cache", "heads and dim are \\[4, 64\\]", a0=rand(2, 4, 64)),
    "slots short": wrong("npu_scatter_pa_kv_cache", "1 slots for 2", a4=torch.tensor([5])),
    "slot type": wrong("npu_scatter_pa_kv_cache", "slots is float32", a4=torch.tensor([5.0, 6.0])),
    "flat slots": wrong("npu_scatter_nd_update_", "1 dimensions, at least 2", a1=torch.tensor([5, 200])),
    "update width": wrong("npu_scatter_nd_update_", "not \\[2, 128\\]", a2=rand(2, 64)),
    "update type": wrong("npu_scatter_nd_update_", "one type", a2=rand(2, 128, dtype=FLOAT)),
    "quantised float32": wrong("npu_dynamic_quant", "is float32", a0=rand(3, 64, dtype=FLOAT)),
    "one row": wrong("npu_dynamic_quant", "1 dimensions", a0=rand(64)),
    "channel scales": (
        "npu_quantize",
        ((rand(3, 64), rand(32), None, torch.qint8, -1, True), {}),
        "scales for 64 chan",
    ),
    "division by float16": (
        "npu_quantize",
        ((rand(3, 64), rand(64, dtype=torch.float16), None, torch.qint8, -1, True), {}),
        "scales is float16",
    ),
    "output type left out": wrong("npu_quant_matmul", "the result is INT8", output_dtype=None),
    "product of floats": wrong("npu_quant_matmul", "x1 is bfloat16", a0=rand(3, 64)),
    "token scales": wrong("npu_quant_matmul", "token scales for 3 rows", pertoken_scale=rand(2, dtype=FLOAT)),
    "float16 without token scales": wrong(
        "npu_quant_matmul", "npu_trans_qua", pertoken_scale=None, output_dtype=torch.float16
    ),
    "a wide product": wrong(
        "npu_quant_matmul", "k is 65536, at most 65535", a0=integers(3, 65536), a1=integers(65536, 32)
    ),
    "weight inputs": wrong("npu_weight_quant_batchmatmul", "rows of 64", a1=integers(32, 32)),
    "weight scale type": wrong("npu_weight_quant_batchmatmul", "one type", a2=rand(32, dtype=FLOAT)),
    "weight scales": wrong("npu_weight_quant_batchmatmul", "scales for 32 outputs", a2=rand(16)),
    "bias type": wrong("npu_weight_quant_batchmatmul", "bias is bfloat", bias=rand(32)),
    "all-reduce inputs": wrong("npu_mm_all_reduce_base", "rows of 64 times a weight of 32", a1=rand(32, 32)),
    "all-reduce sum": wrong("npu_mm_all_reduce_base", "only sum is there", reduce_op="max"),
    "all-reduce scale": wrong("npu_mm_all_reduce_base", "dequant_sc", a0=integers(3, 64), a1=integers(64, 32)),
    "query heads": wrong(V1, "query has 4 heads, num_heads says 8", num_heads=8),
    "key heads left out": wrong(V1, "0 key heads for 4 query heads", num_key_value_heads=0),
    "uneven heads": wrong(V1, "do not share 3 keys evenly", num_key_value_heads=3),
    "key lengths left out": wrong(V1, "key lengths are missing", actual_seq_lengths_kv=None),
    "key lengths short": wrong(V1, "1 key lengths for 2 requests", actual_seq_lengths_kv=[130]),
    "blocks of 100": wrong(V1, "blocks of 100 tokens", a1=rand(3, 100, 256), a2=rand(3, 100, 256), block_size=100),
    "block size": wrong(V1, "a block of the cache has 128 tokens", block_size=64),
    "width of a token": wrong(V1, "has 128 values, not 256", a1=rand(3, 128, 128), a2=rand(3, 128, 128)),
    "table type": wrong(V1, "block_table is int64", block_table=torch.tensor([[0, 1], [2, 1]])),
    "table rows": wrong(V1, "1 rows in the block table", block_table=torch.tensor([[0, 1]], dtype=INT32)),
    "table blocks": wrong(V1, "1 blocks a request in the ta", block_table=torch.tensor([[0], [2]], dtype=INT32)),
    "a query in int8": wrong(V1, "query is int8", a0=integers(2, 1, 4, 128)),
    "a query in float32": wrong(V1, "query is float32", a0=rand(2, 1, 4, 128, dtype=FLOAT)),
    "keys in float16": wrong(
        V1,
        "of the query's type or INT8",
        a1=rand(3, 128, 256, dtype=torch.float16),
        a2=rand(3, 128, 256, dtype=torch.float16),
    ),
    "no mask": (V1, (MANY[0], {**MANY[1], "atten_mask": None}), "sparse_mode 3 needs the mask"),
    "a full mask": (
        V1,
        (MANY[0], {**MANY[1], "atten_mask": torch.ones(3, 256, dtype=INT8)}),
        "takes the compressed one",
    ),
    "mask type": (V1, (MANY[0], {**MANY[1], "atten_mask": torch.ones(2048, 2048, dtype=BF16)}), "mask is bfloat16"),
    "no causality": (V1, (MANY[0], {**MANY[1], "sparse_mode": 0, "atten_mask": None}), "see what comes after them"),
    "small blocks of a prefill": (
        V1,
        ((MANY[0][0], rand(3, 64, 256), rand(3, 64, 256)), {**MANY[1], "block_size": 64}),
        "blocks of 64 tokens",
    ),
    "int8 without scales": (V1, int8(key_antiquant_scale=None), "need their scales"),
    "int8 scale shape": (V1, int8(key_antiquant_scale=rand(2, 128)), "mode 0 has \\(1, 2, 128\\)"),
    "int8 scale type": (V1, int8(key_antiquant_scale=rand(1, 2, 128, dtype=FLOAT)), "scales is float32"),
    "int8 mode": (V1, int8(key_antiquant_mode=4), "scaled in two ways"),
    "int8 paged mode": (
        V1,
        int8(
            key_antiquant_mode=1, value_antiquant_mode=1, key_antiquant_scale=SCALES[4], value_antiquant_scale=SCALES[4]
        ),
        "antiquant mode 1 for this layout",
    ),
    "int8 with several queries": (
        V1,
        (
            (MANY[0][0], *INT8_CACHE[1:]),
            {**MANY[1], "key_antiquant_scale": SCALES[0], "value_antiquant_scale": SCALES[0]},
        ),
        "several query tokens",
    ),
    "v2 query lengths left out": wrong(V2, "TND needs the query lengths|key lengths for 0", actual_seq_qlen=None),
    "v2 lengths that fall": wrong(V2, "never fall", actual_seq_qlen=[6, 5]),
    "v2 lengths that end early": wrong(V2, "end at 4 of 5 rows", actual_seq_qlen=[2, 4]),
    "v2 heads": wrong(V2, "query has 4 heads, num_heads says 2", num_query_heads=2),
    "v2 blocks of 64": wrong(V2, "blocks of 64 tokens", a1=rand(3, 64, 256), a2=rand(3, 64, 256), block_size=64),
    **wrong_calls.WRONG,
    "v2 head dimension": wrong(V2, "TND takes 128", a0=rand(5, 4, 64), a1=rand(3, 128, 128), a2=rand(3, 128, 128)),
}


@pytest.mark.parametrize("name", [name for name in CALLS if name in RULES])
def test_a_right_call_passes_its_rule(name: str) -> None:
    check(name, *CALLS[name])


@pytest.mark.parametrize("case", MORE_CALLS)
def test_other_right_calls_pass_too(case: str) -> None:
    name, args, kwargs = MORE_CALLS[case]
    check(name, args, kwargs)


def on_meta(x: Any) -> Any:
    return tree_map(lambda leaf: leaf.to("meta") if isinstance(leaf, torch.Tensor) else leaf, x)


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_call_is_refused_though_the_meta_kernel_takes_it(case: str) -> None:
    name, (args, kwargs), wanted = WRONG[case]
    with pytest.raises(Refused, match=wanted):
        check(name, args, kwargs)
    getattr(torch.ops.npu, name)(*on_meta(args), **on_meta(kwargs))


GATHER, ATB_WRITE = "npu_gather_pa_kv_cache", "_npu_reshape_and_cache"
#: Of calls without a meta kernel.
WRONG_WRITES = {
    "slots in int64": (changed(ATB_WRITE, a4=torch.tensor([5, 200])), "slots is int64"),
    "one slot": (changed(ATB_WRITE, a4=torch.tensor([5], dtype=INT32)), "1 slots for 2"),
    "heads of the cache": (changed(ATB_WRITE, a0=rand(2, 4, 64)), "heads and dim are \\[4, 64\\]"),
    "values in float": (changed(ATB_WRITE, a0=rand(2, 2, 64, dtype=FLOAT)), "new values is float32"),
}


@pytest.mark.parametrize("case", WRONG_WRITES)
def test_a_wrong_write_by_atb_is_refused(case: str) -> None:
    (args, kwargs), wanted = WRONG_WRITES[case]
    with pytest.raises(Refused, match=wanted):
        check(ATB_WRITE, args, kwargs)


WRONG_READS = {
    "lengths in int64": (changed(GATHER, a3=torch.tensor([130, 20])), "seq_lens is int64"),
    "a table in int64": (changed(GATHER, a2=torch.tensor([[0, 1], [2, 1]])), "block_tables is int64"),
    "lengths of other requests": (changed(GATHER, a3=torch.tensor([130], dtype=INT32)), "1 lengths, 2 tables"),
    "rows of another width": (changed(GATHER, a4=rand(150, 1, 64)), "a token is \\[1, 512\\]"),
    "other rows": (changed(GATHER, a5=rand(100, 1, 64)), "150 keys, 100 values"),
    "types of what is read": (changed(GATHER, a4=rand(150, 1, 512, dtype=FLOAT)), "one type"),
}


@pytest.mark.parametrize("case", WRONG_READS)
def test_a_wrong_reading_of_the_cache_is_refused(case: str) -> None:
    (args, kwargs), wanted = WRONG_READS[case]
    with pytest.raises(Refused, match=wanted):
        check(GATHER, args, kwargs)


def test_every_rule_has_a_negative_test() -> None:
    assert {name for name, _, _ in WRONG.values()} | {"npu_prefetch", GATHER, ATB_WRITE} == set(RULES)


def test_a_prefetch_of_nothing_is_refused_by_both() -> None:
    with pytest.raises(Refused, match="a size above 0"):
        check("npu_prefetch", (rand(3, 64), None, 0), {})
    with pytest.raises(RuntimeError, match="greater than zero"):
        torch.ops.npu.npu_prefetch(rand(3, 64).to("meta"), None, 0)
