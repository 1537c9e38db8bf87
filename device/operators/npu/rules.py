"""What torch_npu's operators take on Atlas A2 and A3, as its documentation says it.

The meta kernels of the wheel accept much of what a device refuses, or computes wrongly: a gamma of the wrong length,
heads that do not match the tensor, a paged cache without lengths, blocks of 100 tokens. Each rule here is one that they
do not check. Tensors need only `shape` and `dtype`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from device.operators.npu import rules_exchange, rules_experts
from device.operators.npu.needs import FLOATS, HALF, INTEGERS, MAX_INNER, need, same_type, typed
from device.operators.npu.rules_attention import fused_infer_attention_score, fused_infer_attention_score_v2
from device.operators.npu.rules_latent import (
    gather_pa_kv_cache,
    interleave_rope,
    kv_rmsnorm_rope_cache_v2,
    transpose_batchmatmul,
)

#: Inputs of an INT4 weight that share a scale, where the rows are INT8.
INT4_GROUP = 256
#: Ranks that npu_mm_all_reduce_base joins.
FUSED_RANKS = (1, 2, 4, 8)


def check(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raise Refused where a call of `name` breaks a rule, KeyError where `name` has none: a new call needs its own."""
    RULES[name](*args, **kwargs)


def _gamma(name: str, x: Any, gamma: Any) -> None:
    typed(f"{name}: input", x, *FLOATS)
    need(len(gamma.shape) == 1, f"{name}: gamma has {len(gamma.shape)} dimensions, not 1")
    need(gamma.shape[0] == x.shape[-1], f"{name}: gamma has {gamma.shape[0]} elements, a row {x.shape[-1]}")
    same_type(f"{name}: input and gamma", x, gamma)


def rms_norm(x: Any, gamma: Any, epsilon: float = 1e-6) -> None:
    _gamma("npu_rms_norm", x, gamma)


def add_rms_norm(x1: Any, x2: Any, gamma: Any, epsilon: float = 1e-6) -> None:
    need(x1.shape == x2.shape, f"npu_add_rms_norm: {list(x1.shape)} and {list(x2.shape)} are added; they must be alike")
    same_type("npu_add_rms_norm: the two inputs", x1, x2)
    _gamma("npu_add_rms_norm", x1, gamma)


def add_rms_norm_dynamic_quant(x1: Any, x2: Any, gamma: Any, *, epsilon: float = 1e-6, output_mask: Any = None) -> None:
    name = "npu_add_rms_norm_dynamic_quant"
    need(x1.shape == x2.shape, f"{name}: {list(x1.shape)} and {list(x2.shape)} are added; they must be alike")
    same_type(f"{name}: the two inputs", x1, x2)
    typed(f"{name}: input", x1, *HALF)
    _gamma(name, x1, gamma)


def swiglu(x: Any, dim: int = -1) -> None:
    typed("npu_swiglu: input", x, *FLOATS)
    need(x.shape[dim] % 2 == 0, f"npu_swiglu: {x.shape[dim]} columns cannot be halved")


def apply_rotary_pos_emb(
    query: Any, key: Any, cos: Any, sin: Any, layout: str | None = None, rotary_mode: str = "half"
) -> None:
    name = "npu_apply_rotary_pos_emb"
    need(layout is not None, f"{name}: the layout must be given; its default is BSH in 2.8 and BSND from 2.10 on")
    need(layout in ("TND", "BSND"), f"{name}: layout {layout}; A2 and A3 take TND and BSND")
    need(rotary_mode == "half", f"{name}: rotary_mode {rotary_mode}; A2 and A3 take half")
    same_type(f"{name}: query, key, cos and sin", query, key, cos, sin)
    typed(f"{name}: query", query, *FLOATS)
    rank = 3 if layout == "TND" else 4
    for what, x in (("query", query), ("key", key), ("cos", cos), ("sin", sin)):
        need(len(x.shape) == rank, f"{name}: {what} has {len(x.shape)} dimensions, {layout} has {rank}")
        need(x.shape[-1] in (64, 128), f"{name}: {what} has head dimension {x.shape[-1]}; A2 and A3 take 64 and 128")
        need(x.shape[0] == query.shape[0], f"{name}: {what} has {x.shape[0]} rows, query {query.shape[0]}")
    for what, x in (("cos", cos), ("sin", sin)):
        need(x.shape[-2] == 1, f"{name}: {what} has {x.shape[-2]} heads, not 1")


def scatter_pa_kv_cache(
    key: Any, value: Any, key_cache: Any, value_cache: Any, slot_mapping: Any, *, cache_mode: str = "PA_NZ"
) -> None:
    name = "npu_scatter_pa_kv_cache"
    need(cache_mode == "Norm", f"{name}: cache_mode {cache_mode} wants blocks in FRACTAL_NZ; these are plain: Norm")
    _write_both(name, key, value, key_cache, value_cache)
    _slots(name, slot_mapping, key.shape[0])


def reshape_and_cache(key: Any, value: Any, key_cache: Any, value_cache: Any, slot_indices: Any) -> None:
    name = "_npu_reshape_and_cache"
    typed(f"{name}: slots", slot_indices, torch.int32)
    typed(f"{name}: new values", key, *HALF, torch.int8)
    _write_both(name, key, value, key_cache, value_cache)
    _slots(name, slot_indices, key.shape[0])


def _write_both(name: str, key: Any, value: Any, key_cache: Any, value_cache: Any) -> None:
    for new, cache in ((key, key_cache), (value, value_cache)):
        same_type(f"{name}: new values and their cache", new, cache)
        need(len(new.shape) == 3, f"{name}: new values have {len(new.shape)} dimensions, not 3 (tokens, heads, dim)")
        need(len(cache.shape) == 4, f"{name}: the cache has {len(cache.shape)} dimensions, not 4")
        need(
            new.shape[1:] == cache.shape[2:],
            f"{name}: heads and dim are {list(new.shape[1:])}, the cache's {list(cache.shape[2:])}",
        )


def scatter_nd_update(cache: Any, indices: Any, updates: Any) -> None:
    name = "npu_scatter_nd_update_"
    same_type(f"{name}: cache and updates", cache, updates)
    typed(f"{name}: cache", cache, torch.float32, *HALF, torch.int8, torch.int64, torch.bool)
    need(len(indices.shape) >= 2, f"{name}: indices have {len(indices.shape)} dimensions, at least 2 are needed")
    wanted = [*indices.shape[:-1], *cache.shape[indices.shape[-1] :]]
    need(list(updates.shape) == wanted, f"{name}: updates have shape {list(updates.shape)}, not {wanted}")
    _slots(name, indices, updates.shape[0])


def _slots(name: str, slots: Any, tokens: int) -> None:
    typed(f"{name}: slots", slots, *INTEGERS)
    need(slots.shape[0] == tokens, f"{name}: {slots.shape[0]} slots for {tokens} tokens")


def dynamic_quant(x: Any) -> None:
    typed("npu_dynamic_quant: input", x, *HALF)
    need(len(x.shape) >= 2, f"npu_dynamic_quant: {len(x.shape)} dimensions, at least 2 are needed")


def quantize(x: Any, scales: Any, zero_points: Any, dtype: Any, axis: int = 1, div_mode: bool = True) -> None:
    name = "npu_quantize"
    typed(f"{name}: input", x, *FLOATS)
    typed(f"{name}: scales", scales, *((torch.float32, torch.bfloat16) if div_mode else FLOATS))
    need(scales.shape in ((1,), (x.shape[axis],)), f"{name}: {list(scales.shape)} scales for {x.shape[axis]} channels")


def _columns(x2: Any) -> int:
    """Columns of the weight [k, n]; INT4 lies eight to an int32 along n."""
    columns: int = x2.shape[-1]
    return columns * 8 if x2.dtype == torch.int32 else columns


def _product(name: str, x: Any, w: Any) -> None:
    need(w.shape[0] == x.shape[-1], f"{name}: rows of {x.shape[-1]} times a weight of {w.shape[0]} inputs")
    for what, length in (("k", x.shape[-1]), ("n", _columns(w))):
        need(length <= MAX_INNER, f"{name}: {what} is {length}, at most {MAX_INNER}")


def quant_matmul(
    x1: Any,
    x2: Any,
    scale: Any,
    *,
    offset: Any = None,
    pertoken_scale: Any = None,
    bias: Any = None,
    output_dtype: Any = None,
    group_sizes: Any = None,
) -> None:
    name = "npu_quant_matmul"
    typed(f"{name}: x1", x1, torch.int8)
    typed(f"{name}: x2", x2, torch.int8, torch.int32)
    _product(name, x1, x2)
    if x2.dtype == torch.int32:
        _int4_product(
            name=name,
            x1=x1,
            x2=x2,
            scale=scale,
            offset=offset,
            per_token=pertoken_scale,
            bias=bias,
            output_dtype=output_dtype,
            sizes=group_sizes,
        )
        return
    need(offset is None and group_sizes is None, f"{name}: offset and group_sizes belong to INT4 weights here")
    typed(f"{name}: scale", scale, torch.float32, torch.bfloat16, torch.int64)
    need(scale.shape in ((1,), (x2.shape[-1],)), f"{name}: {list(scale.shape)} scales for {x2.shape[-1]} outputs")
    need(output_dtype is not None, f"{name}: output_dtype must be given; without it the result is INT8")
    need(
        output_dtype != torch.float16 or pertoken_scale is not None,
        f"{name}: float16 out without pertoken_scale wants the scale of npu_trans_quant_param",
    )
    if pertoken_scale is not None:
        typed(f"{name}: pertoken_scale", pertoken_scale, torch.float32)
        need(
            tuple(pertoken_scale.shape) == (x1.shape[0],),
            f"{name}: {list(pertoken_scale.shape)} token scales for {x1.shape[0]} rows",
        )
    if bias is not None:
        typed(f"{name}: bias", bias, torch.int32, torch.float32, *(HALF if output_dtype is None else (output_dtype,)))


def _int4_product(
    name: str, x1: Any, x2: Any, scale: Any, offset: Any, per_token: Any, bias: Any, output_dtype: Any, sizes: Any
) -> None:
    """INT8 rows x INT4 weights: the table of QuantBatchMatmulV4 for A2 and A3."""
    k, n = x1.shape[-1], _columns(x2)
    need(k % INT4_GROUP == 0, f"{name}: rows of {k} beside INT4 weights; multiples of {INT4_GROUP} are taken")
    need(
        list(sizes or ()) == [0, 0, INT4_GROUP], f"{name}: group_sizes {sizes}; INT4 weights want [0, 0, {INT4_GROUP}]"
    )
    typed(f"{name}: scale of INT4 weights", scale, torch.int64)
    wanted = (k // INT4_GROUP, n)
    need(tuple(scale.shape) == wanted, f"{name}: {list(scale.shape)} scales for INT4 weights, not {list(wanted)}")
    need(
        offset is not None,
        f"{name}: INT4 weights need the offset 8 x the sum of each column; without it the sum is off",
    )
    typed(f"{name}: offset", offset, torch.float32)
    need(tuple(offset.shape) == (n,), f"{name}: {list(offset.shape)} offsets for {n} outputs")
    need(per_token is not None, f"{name}: INT4 weights need pertoken_scale")
    typed(f"{name}: pertoken_scale", per_token, torch.float32)
    need(
        tuple(per_token.shape) == (x1.shape[0], 1), f"{name}: {list(per_token.shape)} token scales, INT4 wants a column"
    )
    need(bias is None, f"{name}: no bias beside INT4 weights")
    need(output_dtype in HALF, f"{name}: output_dtype beside INT4 weights is float16 or bfloat16")


def ffn(x: Any, weight1: Any, weight2: Any, activation: str, *, inner_precise: int = 0) -> None:
    name = "npu_ffn"
    need(activation == "swiglu", f"{name}: activation {activation}; the adapter asks for swiglu")
    for what, t in (("x", x), ("weight1", weight1), ("weight2", weight2)):
        typed(f"{name}: {what} with a gate", t, torch.float16)
    need(2 <= len(x.shape) <= 8, f"{name}: x has {len(x.shape)} dimensions, 2 to 8 are taken")
    need(len(weight1.shape) == len(weight2.shape) == 2, f"{name}: with a gate there are no groups of experts")
    need(inner_precise == 1, f"{name}: inner_precise {inner_precise}; with a gate only the high-performance form, 1")
    (k1, n1), (k2, n2) = weight1.shape, weight2.shape
    need(k1 == x.shape[-1], f"{name}: rows of {x.shape[-1]} times a weight of {k1} inputs")
    need(n1 == 2 * k2, f"{name}: {n1} outputs before the gate, {k2} inputs behind it; it takes twice as many")
    need(k1 == n2, f"{name}: {k1} inputs and {n2} outputs; they must be alike")
    need(max(k1, k2) <= MAX_INNER, f"{name}: inner dimensions {k1} and {k2}, at most {MAX_INNER}")


def dequant_swiglu_quant(
    x: Any,
    *,
    weight_scale: Any = None,
    activation_scale: Any = None,
    group_index: Any = None,
    activate_left: bool = False,
    quant_mode: int = 0,
) -> None:
    name = "npu_dequant_swiglu_quant"
    typed(f"{name}: x", x, torch.int32)
    need(len(x.shape) == 2, f"{name}: x has {len(x.shape)} dimensions, not 2")
    rows, columns = x.shape
    need(columns % 2 == 0, f"{name}: {columns} columns cannot be halved")
    need(activate_left, f"{name}: activate_left is off; gate and up lie side by side, the gate left")
    need(quant_mode == 1, f"{name}: quant_mode {quant_mode}; a scale a row is mode 1")
    groups = 1 if group_index is None else group_index.shape[0]
    need(weight_scale is not None and activation_scale is not None, f"{name}: INT32 sums need both their scales")
    typed(f"{name}: weight_scale", weight_scale, torch.float32)
    need(
        tuple(weight_scale.shape) == (groups, columns),
        f"{name}: weight_scale of {list(weight_scale.shape)}, not {[groups, columns]}",
    )
    typed(f"{name}: activation_scale", activation_scale, torch.float32)
    need(
        tuple(activation_scale.shape) == (rows,), f"{name}: {list(activation_scale.shape)} token scales for {rows} rows"
    )
    if group_index is not None:
        typed(f"{name}: group_index", group_index, torch.int64)
        half = columns // 2
        need(half % 64 == 0 and half <= 10496, f"{name}: {half} columns of a group; multiples of 64 up to 10496")


def qkv_rms_norm_rope_cache(
    qkv: Any,
    q_gamma: Any,
    k_gamma: Any,
    cos: Any,
    sin: Any,
    index: Any,
    q_out: Any,
    k_cache: Any,
    v_cache: Any,
    qkv_size: Sequence[int],
    head_nums: Sequence[int],
    *,
    k_scale: Any = None,
    v_scale: Any = None,
    epsilon: float = 1e-6,
    cache_mode: str = "PA_NZ",
) -> None:
    name = "npu_qkv_rms_norm_rope_cache"
    typed(f"{name}: qkv", qkv, *HALF)
    same_type(f"{name}: qkv, gammas, cos, sin and q_out", qkv, q_gamma, k_gamma, cos, sin, q_out)
    need(cache_mode == "PA_NZ", f"{name}: cache_mode {cache_mode}; it writes PA_NZ")
    tokens, dim, (heads, keys, values) = qkv.shape[0], qkv_size[3], head_nums
    need(dim == 128, f"{name}: head dimension {dim}; it takes 128")
    need(qkv_size[0] * qkv_size[1] == tokens, f"{name}: qkv_size says {qkv_size[0]} x {qkv_size[1]} of {tokens} rows")
    need(qkv_size[2] == heads + keys + values, f"{name}: qkv_size has {qkv_size[2]} heads, head_nums {sum(head_nums)}")
    need(qkv.shape[1] == qkv_size[2] * dim, f"{name}: rows of {qkv.shape[1]}, not {qkv_size[2]} heads of {dim}")
    for what, gamma in (("q_gamma", q_gamma), ("k_gamma", k_gamma)):
        need(tuple(gamma.shape) == (dim,), f"{name}: {what} has {list(gamma.shape)} elements, a head {dim}")
    for what, x in (("cos", cos), ("sin", sin)):
        need(list(x.shape) == [tokens, dim], f"{name}: {what} is {list(x.shape)}, not {[tokens, dim]}")
    need(list(q_out.shape) == [tokens, heads * dim], f"{name}: q_out is {list(q_out.shape)}")
    typed(f"{name}: index", index, torch.int64)
    need(tuple(index.shape) == (tokens,), f"{name}: {list(index.shape)} slots for {tokens} tokens")
    for what, cache, count, scale in (("k_cache", k_cache, keys, k_scale), ("v_cache", v_cache, values, v_scale)):
        typed(f"{name}: {what}", cache, torch.int8)  # 16-bit NZ blocks have no reader for grouped queries
        wanted = [count * dim // 32, 32]
        need([cache.shape[1], cache.shape[3]] == wanted, f"{name}: {what} of {list(cache.shape)}; blocks are {wanted}")
        need(scale is not None, f"{name}: an INT8 {what} needs its scale")
        typed(f"{name}: scale of {what}", scale, torch.float32)
        need(
            list(scale.shape) == [count, dim], f"{name}: the scale of {what} is {list(scale.shape)}, not {[count, dim]}"
        )


def weight_quant_batchmatmul(
    x: Any, weight: Any, antiquant_scale: Any, *, bias: Any = None, antiquant_group_size: int = 0
) -> None:
    name = "npu_weight_quant_batchmatmul"
    typed(f"{name}: x", x, *HALF)
    typed(f"{name}: weight", weight, torch.int8, torch.int32)
    _product(name, x, weight)
    same_type(f"{name}: x and antiquant_scale", x, antiquant_scale)
    columns = _columns(weight)
    need(
        tuple(antiquant_scale.shape) in ((1,), (columns,), (1, columns)),
        f"{name}: {list(antiquant_scale.shape)} scales for {columns} outputs",
    )
    if bias is not None:
        typed(f"{name}: bias", bias, torch.float32 if x.dtype == torch.bfloat16 else torch.float16)


def mm_all_reduce_base(
    x1: Any,
    x2: Any,
    hcom: str,
    *,
    reduce_op: str = "sum",
    bias: Any = None,
    antiquant_scale: Any = None,
    dequant_scale: Any = None,
    pertoken_scale: Any = None,
) -> None:
    name = "npu_mm_all_reduce_base"
    need(len(x1.shape) in (2, 3), f"{name}: x1 has {len(x1.shape)} dimensions, not 2 or 3")
    _product(name, x1, x2)
    need(reduce_op == "sum", f"{name}: reduce_op {reduce_op}, only sum is there")
    need(bool(hcom), f"{name}: the name of the HCCL group is missing")
    if x1.dtype == torch.int8:
        need(dequant_scale is not None, f"{name}: an INT8 product needs dequant_scale")
        need(bias is None or bias.dtype == torch.int32, f"{name}: the bias of an INT8 product is int32")
    elif x2.dtype == torch.int8:
        need(antiquant_scale is not None, f"{name}: an INT8 weight needs antiquant_scale")
        same_type(f"{name}: x1 and antiquant_scale", x1, antiquant_scale)
    else:
        same_type(f"{name}: x1 and x2", x1, x2)


def prefetch(weight: Any, dependency: Any, max_size: int, offset: int = 0) -> None:
    need(max_size > 0 <= offset, "npu_prefetch: a size above 0 and an offset from 0 on are needed")


RULES: dict[str, Callable[..., None]] = {
    **rules_experts.RULES,
    **rules_exchange.RULES,
    "npu_rms_norm": rms_norm,
    "npu_add_rms_norm": add_rms_norm,
    "npu_add_rms_norm_dynamic_quant": add_rms_norm_dynamic_quant,
    "npu_swiglu": swiglu,
    "npu_apply_rotary_pos_emb": apply_rotary_pos_emb,
    "npu_scatter_pa_kv_cache": scatter_pa_kv_cache,
    "_npu_reshape_and_cache": reshape_and_cache,
    "npu_scatter_nd_update_": scatter_nd_update,
    "npu_dynamic_quant": dynamic_quant,
    "npu_quantize": quantize,
    "npu_quant_matmul": quant_matmul,
    "npu_weight_quant_batchmatmul": weight_quant_batchmatmul,
    "npu_mm_all_reduce_base": mm_all_reduce_base,
    "npu_prefetch": prefetch,
    "npu_ffn": ffn,
    "npu_dequant_swiglu_quant": dequant_swiglu_quant,
    "npu_qkv_rms_norm_rope_cache": qkv_rms_norm_rope_cache,
    "npu_kv_rmsnorm_rope_cache_v2": kv_rmsnorm_rope_cache_v2,
    "npu_interleave_rope": interleave_rope,
    "npu_transpose_batchmatmul": transpose_batchmatmul,
    "npu_gather_pa_kv_cache": gather_pa_kv_cache,
    "npu_fused_infer_attention_score": fused_infer_attention_score,
    "npu_fused_infer_attention_score_v2": fused_infer_attention_score_v2,
}
