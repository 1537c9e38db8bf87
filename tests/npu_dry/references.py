"""CPU kernels for the calls of torch_npu that the adapters make, written from torch_npu's documentation.

They are independent of device/operators: what an adapter passes (layouts, lengths, masks, scales) is computed here as
the documentation says, so a wrong argument gives a wrong number. `register` puts them under the real operators of the
wheel, where torch.library.opcheck holds them against its schema and its meta kernel. Slow and plain.
"""

from __future__ import annotations

import torch

from tests.npu_dry import references_caches, references_exchange, references_experts

#: torch.quint4x2 as a schema passes it.
QUINT4X2 = 16
MODES = {0: "channel", 1: "token", 3: "head", 4: "token", 5: "head"}


def rms_norm(x, gamma, epsilon=1e-6):
    wide = x.double()
    rstd = (wide.square().mean(-1, keepdim=True) + epsilon).rsqrt()
    return (wide * rstd * gamma.double()).to(x.dtype), rstd.float()


def add_rms_norm(x1, x2, gamma, epsilon=1e-6):
    total = x1 + x2
    y, rstd = rms_norm(total, gamma, epsilon)
    return y, rstd, total


def add_rms_norm_dynamic_quant(
    x1, x2, gamma, *, smooth_scale1=None, smooth_scale2=None, beta=None, epsilon=1e-6, output_mask=None, y_dtype=None
):
    y, _, total = add_rms_norm(x1, x2, gamma, epsilon)
    quantised, scale = dynamic_quant(y)
    # The second output is masked out; these shapes are the meta kernel's, a device gives ().
    return quantised, quantised.new_empty((0,)), total, scale, scale.new_empty((0,))


def swiglu(x, dim=-1):
    gate, up = x.double().chunk(2, dim)
    return (gate * torch.sigmoid(gate) * up).to(x.dtype)


def apply_rotary_pos_emb(query, key, cos, sin, layout="BSND", rotary_mode="half"):
    def rotated(x):
        half = x.shape[-1] // 2
        a, b = x.double()[..., :half], x.double()[..., half:]
        return (x.double() * cos.double() + torch.cat((-b, a), -1) * sin.double()).to(x.dtype)

    assert (layout, rotary_mode) in (("TND", "half"), ("BSND", "half"))
    return rotated(query), rotated(key)


def scatter_pa_kv_cache(
    key,
    value,
    key_cache,
    value_cache,
    slots,
    *,
    compress_lens=None,
    compress_seq_offsets=None,
    seq_lens=None,
    cache_mode="PA_NZ",
):
    assert cache_mode == "Norm"
    for new, cache in ((key, key_cache), (value, value_cache)):
        size = cache.shape[1]
        for row, slot in enumerate(slots.tolist()):
            cache[slot // size, slot % size] = new[row]


def reshape_and_cache(key, value, key_cache, value_cache, slot_indices):
    assert slot_indices.dtype == torch.int32
    scatter_pa_kv_cache(key, value, key_cache, value_cache, slot_indices, cache_mode="Norm")


def scatter_nd_update_(x, indices, updates):
    assert indices.shape[-1] == 1
    for row, place in enumerate(indices.flatten().tolist()):
        x[place] = updates[row]
    return x


def dynamic_quant(x, *, smooth_scales=None, group_index=None, dst_type=None, quant_mode="pertoken", dst_type_max=0.0):
    scale = (x.float().abs().amax(-1) / 127).clamp_min(1e-12)
    return (x.float() / scale.unsqueeze(-1)).round().clamp(-128, 127).to(torch.int8), scale


def quantize(x, scales, zero_points, dtype, axis=1, div_mode=True):
    """INT8 by division; INT4 (quint4x2, number 16) by multiplication, eight to an int32."""
    assert (div_mode, zero_points) == (dtype != QUINT4X2, None)
    if dtype == QUINT4X2:
        return convert_weight_to_int4pack((x.float() * scales.float()).round().clamp(-8, 7))
    assert axis in (-1, x.ndim - 1)
    return (x.float() / scales.float()).round().clamp(-128, 127).to(torch.int8)


def quant_matmul(
    x1,
    x2,
    scale,
    *,
    offset=None,
    pertoken_scale=None,
    bias=None,
    output_dtype=None,
    x1_dtype=None,
    x2_dtype=None,
    pertoken_scale_dtype=None,
    scale_dtype=None,
    group_sizes=None,
    y_scale=None,
):
    if x2.dtype == torch.int32:
        return _half_bytes(x1, unpacked(x2), scale, offset, pertoken_scale, group_sizes).to(scalar_type(output_dtype))
    if scalar_type(output_dtype) == torch.int32:  # the sums as they are
        return (x1.double() @ x2.double()).to(torch.int32)
    y = x1.double() @ x2.double() * scale.double()
    if pertoken_scale is not None:
        y = y * pertoken_scale.double().unsqueeze(-1)
    y = y if bias is None else y + bias.double()
    return y.to(scalar_type(output_dtype))


def _half_bytes(x, w, scale, offset, row_scale, group_sizes):
    """INT8 rows as half bytes, x = 16 high + (low - 8) + 8: the last 8 is left out, and the offset stands for it."""
    assert list(group_sizes) == [0, 0, 256]
    real = scale.to(torch.int32).view(torch.float32).double().repeat_interleave(256, 0)  # as npu_trans_quant_param
    high, low = torch.div(x.to(torch.int32), 16, rounding_mode="floor"), (x.to(torch.int32) & 15) - 8
    return ((16 * high + low).double() @ (w.double() * real) + offset.double()) * row_scale.double()


def trans_quant_param(scale, offset=None, round_mode=0):
    """The bits of a float32 in the lower half of an int64."""
    assert offset is None
    return scale.view(torch.int32).to(torch.int64)


def weight_quant_batchmatmul(
    x,
    weight,
    antiquant_scale,
    antiquant_offset=None,
    quant_scale=None,
    quant_offset=None,
    bias=None,
    antiquant_group_size=0,
    inner_precise=0,
    weight_dtype=None,
):
    w = unpacked(weight) if weight.dtype == torch.int32 else weight
    y = x.double() @ (w.double() * antiquant_scale.double())
    return (y if bias is None else y + bias.double()).to(x.dtype)


def convert_weight_to_int4pack(weight, inner_k_tiles=0):
    """int32 [k, n] of -8 to 7 -> [k, n / 8], the first of eight in the lowest bits."""
    parts = (weight.to(torch.int64) & 15).unflatten(-1, (-1, 8))
    packed = (parts << (4 * torch.arange(8))).sum(-1)
    return torch.where(packed >= 1 << 31, packed - (1 << 32), packed).to(torch.int32)


def unpacked(weight):
    """The reverse."""
    parts = (weight.to(torch.int64).unsqueeze(-1) >> (4 * torch.arange(8))) & 15
    return torch.where(parts > 7, parts - 16, parts).flatten(-2)


def format_cast(x, acl_format, *, customize_dtype=None, input_dtype=None):
    """A private format is a device's business: the values are the same."""
    return x.clone()


def prefetch(weight, dependency, max_size, offset=0):
    return None


def scalar_type(code):
    """A ScalarType as the schema passes it, a number."""
    table = {1: torch.int8, 3: torch.int32, 5: torch.float16, 6: torch.float32, 15: torch.bfloat16}
    return code if isinstance(code, torch.dtype) else table[code]


def fused_infer_attention_score(query, key, value, **named):
    """Version 1, layout BSND."""
    assert named["input_layout"] == "BSND"
    rows, table, size = query.shape[1], named.get("block_table"), named.get("block_size", 0)
    queries = named.get("actual_seq_lengths") or [rows] * query.shape[0]
    scales = named.get("key_antiquant_scale"), named.get("value_antiquant_scale")
    mode = named.get("key_antiquant_mode", 0)
    out = torch.zeros_like(query)
    for request, (rows_used, keys) in enumerate(zip(queries, named["actual_seq_lengths_kv"], strict=True)):
        k, v = (
            _of_request(store, scale, mode, request, keys, table, size, named["num_key_value_heads"])
            for store, scale in zip((key, value), scales, strict=True)
        )
        mask = _mask(named.get("sparse_mode", 0), named.get("atten_mask"), rows_used, keys, named.get("pre_tokens"))
        out[request, :rows_used] = _attend(query[request, :rows_used], k, v, named["scale"], mask)
    return out, query.new_zeros(0, dtype=torch.float32)  # as the meta kernel; a device gives [1]


def fused_infer_attention_score_v2(query, key, value, **named):
    """Version 2, layout TND: query lengths are sums; key lengths too, but over blocks each request's own."""
    if named["input_layout"] == "BSND":
        return _over_nz_blocks(query, key, value, **named)
    assert named["input_layout"] == "TND"
    out, start, before = query.new_zeros((*query.shape[:2], value.shape[-1] // _heads_in(value, named))), 0, 0
    table, rope = named.get("block_table"), named.get("key_rope")
    pairs = zip(named["actual_seq_qlen"], named["actual_seq_kvlen"], strict=True)
    for request, (end, keys) in enumerate(pairs):
        if table is None:
            k, v, keys, before = key[before:keys].double(), value[before:keys].double(), keys - before, keys
        else:
            k, v = (
                _of_request(s, None, 0, request, keys, table, named["block_size"], named["num_key_value_heads"])
                for s in (key, value)
            )
        q = query[start:end]
        if rope is not None:
            q = torch.cat((q, named["query_rope"][start:end]), -1)
            k = torch.cat((k, _of_request(rope, None, 0, request, keys, table, named["block_size"], 1)), -1)
        mask = _mask(named.get("sparse_mode", 0), named.get("atten_mask"), end - start, keys, named.get("pre_tokens"))
        out[start:end] = _attend(q, k, v, named["softmax_scale"], mask, named.get("learnable_sink"))
        start = end
    return out, query.new_zeros(0, dtype=torch.float32)  # as the meta kernel; a device gives [1]


def _heads_in(value, named):
    """Heads side by side in the last dimension of the values: of blocks all, else none."""
    return 1 if named.get("block_table") is None else named["num_key_value_heads"]


def _over_nz_blocks(query, key, value, **named):
    """INT8 blocks [blocks, heads, dim / 32, block size, 32], scales a channel, lengths of each request by itself."""
    assert (named.get("key_quant_mode", 0), named.get("value_quant_mode", 0), named["inner_precise"]) == (0, 0, 1)
    out, size = torch.zeros_like(query), named["block_size"]
    pairs = zip(named["actual_seq_qlen"], named["actual_seq_kvlen"], strict=True)
    for request, (rows, keys) in enumerate(pairs):
        blocks = named["block_table"][request, : -(-keys // size)].long()
        k, v = (
            x[blocks].permute(0, 3, 1, 2, 4).flatten(3).flatten(0, 1)[:keys].double() * scale.double()
            for x, scale in ((key, named["dequant_scale_key"]), (value, named["dequant_scale_value"]))
        )
        mask = _mask(named.get("sparse_mode", 0), named.get("atten_mask"), rows, keys)
        out[request, :rows] = _attend(query[request, :rows], k, v, named["softmax_scale"], mask)
    return out, query.new_zeros(0, dtype=torch.float32)


def _of_request(store, scale, mode, request, keys, table, size, heads):
    """[keys, heads, dim] of one request in double, dequantised."""
    if table is None:
        double = store[request, :keys].double()
        by_token = {
            "token": lambda s: s[0, request, :keys, None, None],
            "head": lambda s: s[request, :, :keys].T[..., None],
        }
    else:
        blocks = table[request, : -(-keys // size)].long()
        double = store[blocks].flatten(0, 1)[:keys].unflatten(-1, (heads, -1)).double()
        by_token = {
            "token": lambda s: s[blocks].flatten()[:keys, None, None],
            "head": lambda s: s[blocks].transpose(1, 2).flatten(0, 1)[:keys, :, None],
        }
    if scale is None:
        return double
    return double * (scale[0] if MODES[mode] == "channel" else by_token[MODES[mode]](scale)).double()


def _mask(mode, mask, queries, keys, before=None):
    """What is hidden [queries, keys]. Mode 3: the triangle that ends at the last key, cut from the compressed mask;
    4: all but the diagonal that ends there and the `before` keys left of it."""
    if mode == 0:
        return torch.zeros(queries, keys, dtype=torch.bool)
    assert mode in (3, 4)
    assert torch.equal(mask.bool(), torch.ones(2048, 2048).triu(1).bool())
    later = torch.ones(queries, keys).triu(keys - queries + 1).bool()
    return later if mode == 3 else later | torch.ones(queries, keys).tril(keys - queries - before - 1).bool()


def _attend(q, k, v, scale, hidden, sinks=None):
    """q [queries, heads, dim], k and v [keys, shared heads, dim]. sinks [heads]: a further key without a value."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", q.double(), k) * scale
    scores = scores.masked_fill(hidden, float("-inf"))
    if sinks is not None:
        scores = torch.cat((scores, sinks.double().view(-1, 1, 1).expand(*scores.shape[:2], 1)), -1)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1)[..., : k.shape[0]], v).to(q.dtype)


def mm_all_reduce_base(x1, x2, hcom, *, antiquant_scale=None, dequant_scale=None, pertoken_scale=None, **named):
    """One rank's part: the sum over ranks is the group's business."""
    if dequant_scale is not None:
        y = x1.double() @ x2.double() * dequant_scale.double() * pertoken_scale.double().unsqueeze(-1)
        return y.to(torch.bfloat16 if dequant_scale.dtype == torch.bfloat16 else torch.float16)
    w = x2.double() if antiquant_scale is None else x2.double() * antiquant_scale.double()
    return (x1.double() @ w).to(x1.dtype)


def into(kernel):
    """The `.out` form of an attention call: into given tensors, with a workspace that nothing here needs."""

    def written(query, key, value, *, workspace=None, out, **named):
        for to, result in zip(out, kernel(query, key, value, **named), strict=True):
            if to.numel() == result.numel():  # the second is empty where no statistics are asked for
                to.copy_(result)
        return tuple(out)

    return written


#: Of the calls that a capture makes in another form.
OUT_KERNELS = {
    "npu_fused_infer_attention_score.out": into(fused_infer_attention_score),
    "npu_fused_infer_attention_score_v2.out": into(fused_infer_attention_score_v2),
}
KERNELS = {
    **references_caches.KERNELS,
    **references_experts.KERNELS,
    **references_exchange.KERNELS,
    "npu_trans_quant_param": trans_quant_param,
    "npu_rms_norm": rms_norm,
    "npu_add_rms_norm": add_rms_norm,
    "npu_add_rms_norm_dynamic_quant": add_rms_norm_dynamic_quant,
    "npu_swiglu": swiglu,
    "npu_apply_rotary_pos_emb": apply_rotary_pos_emb,
    "npu_scatter_pa_kv_cache": scatter_pa_kv_cache,
    "npu_scatter_nd_update_": scatter_nd_update_,
    "npu_dynamic_quant": dynamic_quant,
    "npu_quantize": quantize,
    "npu_quant_matmul": quant_matmul,
    "npu_weight_quant_batchmatmul": weight_quant_batchmatmul,
    "npu_convert_weight_to_int4pack": convert_weight_to_int4pack,
    "npu_format_cast": format_cast,
    "npu_prefetch": prefetch,
    "npu_fused_infer_attention_score": fused_infer_attention_score,
    "npu_fused_infer_attention_score_v2": fused_infer_attention_score_v2,
    "npu_mm_all_reduce_base": mm_all_reduce_base,
}

#: Of ATB.
ATB_KERNELS = {"_npu_reshape_and_cache": reshape_and_cache}

_libraries = []


def register():
    """Put the kernels under the real operators, for CPU tensors."""
    if not _libraries:
        for namespace, kernels in (("npu", {**KERNELS, **OUT_KERNELS}), ("atb", ATB_KERNELS)):
            library = torch.library.Library(namespace, "IMPL", "CPU")
            for name, kernel in kernels.items():
                library.impl(name, kernel)
            _libraries.append(library)
