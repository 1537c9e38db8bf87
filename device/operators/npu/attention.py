"""Attention over the cache: npu_fused_infer_attention_score and its second version.

Paged 16-bit caches of head dimension 128 go to v2 in layout TND (tokens of all requests one after the other, causal by
the compressed mask): its documentation names that case, that of v1 excludes it. INT8 caches in FRACTAL_NZ blocks, which
npu_qkv_rms_norm_rope_cache writes, go to v2 in BSND, for up to 16 query tokens of a request. All else goes to v1 in
BSND, queries padded to the longest: other head dimensions, contiguous caches, INT8 caches in a decode step, and all of
a wheel that hands no new lengths to a captured v2. INT8 caches
of a step with several query tokens (more than 16 in NZ blocks) are dequantised first; nothing takes those as they lie.
Windows are the band of either version, counted from the last key; learned sinks are taken by v2 over blocks alone.

The lengths are lists of Python numbers, so a captured graph must be reported the new ones of each step.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from device.operators.attention import (
    by_request,
    by_token,
    heads_of,
    keys_and_values,
    operand_by_request,
    scale_of,
    sinks_of,
)
from device.operators.attention import scores_or_values as makes_scores
from device.operators.kernel import Inputs, Kernel, Outputs
from device.operators.npu.call import call
from device.operators.npu.rules_attention import MASK_SIDE
from device.step.step import Layout, Step
from scenarios.ops.program import Op

#: Head dimension that v2 documents for TND.
TND_DIM = 128
#: INT8 values side by side in an NZ block, and the query tokens of a request that its reader takes at most.
NZ_WIDTH, MAX_QUERIES_NZ = 32, 16
#: The same next to sinks, as vLLM-Ascend calls it for gpt-oss (64).
SINK_DIMS = (64, 128)
#: sparse_mode: no mask, the triangle that ends at the last key, and a band of it.
NO_MASK, CAUSAL, BAND = 0, 3, 4


#: The mask of each device that has been asked for; a compiled graph finds it here, and so makes none of its own.
_MASKS: dict[tuple[str, int | None], torch.Tensor] = {}


def causal_mask(device: torch.device) -> torch.Tensor:
    """The compressed mask [2048, 2048] int8: 1 hides, above the diagonal."""
    key = device.type, device.index
    if key not in _MASKS:
        _MASKS[key] = torch.ones((MASK_SIDE, MASK_SIDE), dtype=torch.int8, device=device).triu(1)
    return _MASKS[key]


def takes_nz(op: Op) -> bool:
    """Whether the cache of an attention op lies in FRACTAL_NZ blocks: INT8 alone, since no call reads 16-bit ones."""
    return op.inputs[1].format == "nz" and op.inputs[1].dtype == "int8"


def reads_nz(op: Op, layout: Layout) -> bool:
    """Whether such blocks are read as they lie: not by long queries."""
    return takes_nz(op) and layout.longest_query <= MAX_QUERIES_NZ


def takes_tnd(op: Op, v2: bool = True) -> bool:
    """Whether an attention op goes to v2: a paged 16-bit cache of head dimension 128, where v2 is asked for at all."""
    dims = SINK_DIMS if has_sinks(op) else (TND_DIM,)
    return v2 and bool(op.attr("block_size")) and op.attr("head_dim") in dims and op.inputs[1].dtype != "int8"


def has_sinks(op: Op) -> bool:
    """Whether an attention op has a learned score of each head in its softmax."""
    return any(t.role == "weight" for t in op.inputs)


def _seen(op: Op, query: torch.Tensor, one_query: bool) -> dict[str, Any]:
    """What a query sees, as arguments: the keys of its window, all before it, or all there are."""
    window = op.attr("window", 0)
    assert isinstance(window, int)
    if window:  # its own key and those before it
        band = {"sparse_mode": BAND, "pre_tokens": window - 1, "next_tokens": 0}
        return {**band, "atten_mask": causal_mask(query.device)}
    return {"sparse_mode": NO_MASK} if one_query else {"sparse_mode": CAUSAL, "atten_mask": causal_mask(query.device)}


def lengths(op: Op, layout: Layout, v2: bool = True) -> dict[str, list[int]]:
    """The arguments of `op`'s call that follow the step, by name."""
    keys = list(layout.keys)
    if reads_nz(op, layout):
        return {"actual_seq_qlen": list(layout.queries), "actual_seq_kvlen": keys}
    if takes_tnd(op, v2) or op.attr("latent", False):
        return {"actual_seq_qlen": list(layout.ends), "actual_seq_kvlen": keys}
    if layout.longest_query == 1:
        return {"actual_seq_lengths_kv": keys}
    return {"actual_seq_lengths": list(layout.queries), "actual_seq_lengths_kv": keys}


def _attention(op: Op, inputs: Inputs, step: Step, v2: bool = True) -> Outputs:
    query, layout = heads_of(inputs[0], op), step.layout
    if takes_tnd(op, v2):
        y = _tnd(op, query[: layout.tokens].contiguous(), inputs, layout)
        if layout.rows > layout.tokens:
            y = torch.cat((y, y.new_zeros((layout.rows - layout.tokens, *y.shape[1:]))))
        return (y.reshape(op.out.shape),)
    rows = by_request(query, layout).transpose(1, 2).contiguous()
    y = _nz(op, rows, inputs, layout) if reads_nz(op, layout) else _bsnd(op, rows, inputs, step)
    y = y.transpose(1, 2)
    return (by_token(y, layout).reshape(op.out.shape),)


def _tnd(op: Op, query: torch.Tensor, inputs: Inputs, layout: Layout) -> torch.Tensor:
    key, value, *_, table = inputs[1:]
    sinks = sinks_of(op, inputs)
    y, _ = call(
        "npu_fused_infer_attention_score_v2",
        query,
        blocks(op, key),
        blocks(op, value),
        **lengths(op, layout),
        block_table=table,
        block_size=op.attr("block_size"),
        input_layout="TND",
        **_seen(op, query, one_query=False),
        **({} if sinks is None else {"learnable_sink": sinks}),
        **_heads(op, "num_query_heads", "softmax_scale"),
    )
    return _tensor(y)


def _nz(op: Op, query: torch.Tensor, inputs: Inputs, layout: Layout) -> torch.Tensor:
    """INT8 keys and values in NZ blocks, scales a channel [heads, 1, dim]; its high-performance mode alone."""
    key, value, table, *scales = inputs[1:]
    one_query = layout.longest_query == 1
    more: dict[str, Any] = {} if one_query else {"atten_mask": causal_mask(query.device)}
    k_scale, v_scale = (scale.squeeze(1) for scale in scales)
    y, _ = call(
        "npu_fused_infer_attention_score_v2",
        query,
        nz_blocks(op, key),
        nz_blocks(op, value),
        **lengths(op, layout),
        block_table=table,
        block_size=op.attr("block_size"),
        input_layout="BSND",
        dequant_scale_key=k_scale,
        dequant_scale_value=v_scale,
        key_quant_mode=0,
        value_quant_mode=0,
        inner_precise=1,
        sparse_mode=NO_MASK if one_query else CAUSAL,
        **_heads(op, "num_query_heads", "softmax_scale"),
        **more,
    )
    return _tensor(y)


def _block_of(op: Op) -> tuple[int, int, int]:
    """(tokens of a block, KV heads, elements of a head) of a paged cache."""
    size, heads, dim = op.attr("block_size"), op.attr("kv_heads"), op.attr("head_dim")
    assert isinstance(size, int)
    assert isinstance(heads, int)
    assert isinstance(dim, int)
    return size, heads, dim


def nz_blocks(op: Op, store: torch.Tensor) -> torch.Tensor:
    """INT8 blocks as they lie in FRACTAL_NZ: [blocks, heads, dim / 32, block size, 32], over the same memory."""
    size, heads, dim = _block_of(op)
    return store.view(-1, heads, dim // NZ_WIDTH, size, NZ_WIDTH)


def _from_nz(op: Op, store: torch.Tensor, scale: torch.Tensor, layout: Layout, table: torch.Tensor) -> torch.Tensor:
    """What the requests have in NZ blocks, dequantised: [requests, longest keys, heads, dim] in the scale's type."""
    blocks = nz_blocks(op, store)
    of_requests = table[:, : -(-layout.longest_keys // blocks.shape[3])].long()
    rows = blocks[of_requests].permute(0, 1, 4, 2, 3, 5).flatten(4).flatten(1, 2)[:, : layout.longest_keys]
    return (rows.float() * scale.float().squeeze(1)).to(scale.dtype).contiguous()


def _bsnd(op: Op, query: torch.Tensor, inputs: Inputs, step: Step) -> torch.Tensor:
    layout, one_query = step.layout, step.layout.longest_query == 1
    rest = list(inputs[3:])
    table = rest.pop(0) if op.attr("block_size") else None
    more = _seen(op, query, one_query)
    if table is not None and takes_nz(op):
        key, value = (_from_nz(op, x, s, layout, table) for x, s in zip(inputs[1:3], rest, strict=True))
        table, rest = None, []
    elif rest and not one_query:
        key, value = (x.transpose(1, 2).contiguous() for x in keys_and_values(op, inputs, step, query.dtype))
        table = None
    elif table is not None:
        key, value = blocks(op, inputs[1]), blocks(op, inputs[2])
    else:
        key, value = rows_of_requests(inputs[1], layout), rows_of_requests(inputs[2], layout)
    if table is not None:
        more |= {"block_table": table, "block_size": op.attr("block_size")}
    if rest and one_query:
        mode, scales = _scales(op, rest, inputs[1] if table is None else key, layout)
        more |= {"key_antiquant_scale": scales[0], "value_antiquant_scale": scales[1]}
        more |= {"key_antiquant_mode": mode, "value_antiquant_mode": mode}
    y, _ = call(
        "npu_fused_infer_attention_score",
        query,
        key,
        value,
        **lengths(op, layout, False),
        input_layout="BSND",
        **_heads(op, "num_heads", "scale"),
        **more,
    )
    return _tensor(y)


def blocks(op: Op, store: torch.Tensor) -> torch.Tensor:
    """A paged cache as [blocks, block size, heads x dim]; it is kept by head, or flat for a compiled graph."""
    size, heads, dim = _block_of(op)
    return store.view(-1, size, heads * dim)


def rows_of_requests(store: torch.Tensor, layout: Layout) -> torch.Tensor:
    """The rows of a contiguous cache that the requests have, whole: a view where they lie one after the other."""
    rows = layout.cache_rows
    if rows == tuple(range(rows[0], rows[0] + len(rows))):
        return store[rows[0] : rows[0] + len(rows)]
    return store[torch.tensor(rows, device=store.device)]


def _scales(op: Op, scales: Inputs, store: torch.Tensor, layout: Layout) -> tuple[int, list[torch.Tensor]]:
    """(antiquant mode, scales of keys and values as that mode has them).

    Scales a head are kept token by token, the call wants them head by head: they are turned round for it.
    """
    if scales[0].ndim == 3:
        return 0, [scale.reshape(1, *scale.shape[::2]) for scale in scales]
    paged, by_head = bool(op.attr("block_size")), scales[0].shape[-1] > 1
    result = []
    for scale in scales:
        by_place = scale.view(*store.shape[:2], scale.shape[-1])
        by_place = by_place if paged else rows_of_requests(by_place, layout)
        if by_head:
            result.append(by_place.transpose(1, 2).contiguous())
        else:
            result.append(by_place.squeeze(-1) if paged else by_place.squeeze(-1).unsqueeze(0))
    return (5 if paged else 3) if by_head else (4 if paged else 1), result


def _heads(op: Op, heads: str, scale: str) -> dict[str, Any]:
    return {heads: op.attr("heads"), "num_key_value_heads": op.attr("kv_heads"), scale: scale_of(op)}


def _tensor(x: Any) -> torch.Tensor:
    assert isinstance(x, torch.Tensor)
    return x


def _batch_matmul(op: Op, inputs: Inputs, step: Step) -> Outputs:
    """Scores and weighted values of unfused attention, by torch's own product."""
    a, b = inputs
    if makes_scores(op):
        return (operand_by_request(a, op.inputs[0], step) @ b.transpose(-1, -2),)
    return (by_token(a @ b, step.layout).reshape(op.out.shape),)


#: For a wheel that hands no new lengths to a captured v2.
BY_V1 = Kernel(partial(_attention, v2=False), "fused", raw=True)
KERNELS = {"attention": Kernel(_attention, "fused", raw=True), "batch_matmul": Kernel(_batch_matmul, raw=True)}
