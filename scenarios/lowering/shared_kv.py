"""Attention of DeepSeek-V4: one row of a token is key and value of all heads, next to compressed rows.

From the normed input of a layer to what its output projection reads, as vLLM-Ascend calls it on A2 and A3
(vllm_ascend/attention/dsa_v1.py, models/deepseek_v4, on one stream): a low-rank query that is normed by head without
weights, one row, both rotated in their last dimensions by one call each; a compressor that is given all tokens and
leaves a row for each finished window; in layers that choose an indexer, whose keys are compressed in the same way,
rotated by Hadamard's matrix and quantised to INT8; one call of attention over the window and those rows, with sinks;
the result turned back, since values turned with their position; and a projection of each group of heads.
"""

from __future__ import annotations

from scenarios.lowering.primitives import activation, groups_of, linear, rms_norm, weight
from scenarios.lowering.step import Step
from scenarios.models.parts import Index, SharedKv
from scenarios.ops.program import Attr, DType, Op, Tensor


def shared_kv_attention(step: Step, x: Tensor) -> tuple[Op, ...]:
    """`x` -> `attended`, [tokens, groups x rank]."""
    model, shared = step.model, step.model.shared_kv
    assert shared is not None
    tokens, act = step.tokens, step.act
    query = activation("q", (tokens, model.heads, model.head_dim), act)
    row = activation("kv", (tokens, 1, model.head_dim), act)
    low = activation("q_a", (tokens, shared.q_rank), act)
    return (
        linear("q_a_proj", x, "q_a", shared.q_rank),
        *rms_norm("q_a_norm", low, "q_a_normed", model.norm_eps),
        linear("q_b_proj", activation("q_a_normed", low.shape, act), "q", model.q_size),
        *rms_norm("q_norm", query, "q_normed", model.norm_eps, weightless=True),
        _turned(step, "rope_q", activation("q_normed", query.shape, act), "q_rotated"),
        linear("kv_proj", x, "kv", model.head_dim),
        *rms_norm("kv_norm", row, "kv_normed", model.norm_eps),
        _turned(step, "rope_kv", activation("kv_normed", row.shape, act), "kv_rotated"),
        _write_window(step),
        *(_choice(step, x, shared, shared.index) if shared.index else ()),
        *(_compressed(step, x, shared, "compressed", model.head_dim, "compressed_cache") if shared.ratio else ()),
        _attend(step, shared),
        _turned(step, "rope_out", activation("mixed", query.shape, act), "mixed_back", back=True),
        _by_group(step, shared),
    )


def _turned(step: Step, name: str, x: Tensor, out: str, back: bool = False) -> Op:
    """The last dimensions of each head turned by the token's position, or back."""
    which, wide = step.model.angles, (step.tokens, step.model.rotated)
    cos, sin = (activation(f"{part}{which}", wide, step.act) for part in ("cos", "sin"))
    attrs: tuple[tuple[str, Attr], ...] = (("back", True),) if back else ()
    return Op("partial_rotary_mul", name, (x, cos, sin), (activation(out, x.shape, x.dtype),), attrs)


def _window(step: Step) -> Tensor:
    return Tensor(
        "window_cache", (step.batch.requests, step.cache_tokens, 1, step.model.head_dim), step.act, "kv_cache"
    )


def _write_window(step: Step) -> Op:
    cache, slots = _window(step), Tensor("slots", (step.tokens,), "int64", "table")
    row = activation("kv_rotated", (step.tokens, 1, step.model.head_dim), step.act)
    return Op("kv_cache_write", "write_window", (row, cache, slots), (cache,), op_type="Scatter")


def _cache(step: Step, shared: SharedKv, name: str, width: int, dtype: DType) -> Tensor:
    """Compressed rows of all requests, which lie by request: three dimensions."""
    return Tensor(name, (step.batch.requests, max(1, shared.rows(step.cache_tokens)), width), dtype, "kv_cache")


def _new_rows(step: Step, shared: SharedKv) -> int:
    """Rows that a step may finish: engines make room for one more of each request."""
    return min(step.tokens, step.tokens // shared.ratio + step.batch.requests)


def _rows(step: Step, x: Tensor, shared: SharedKv, name: str, width: int) -> tuple[Op, ...]:
    """Where finished rows go and the angles that they turn by, then the rows themselves: `{name}_rows`."""
    model, rows, parts = step.model, _new_rows(step, shared), shared.parts
    turns = (rows, model.rotated)
    cos, sin = (activation(f"{name}_{part}", turns, step.act) for part in ("cos", "sin"))
    slots = activation(f"{name}_slots", (rows, 2), "int32")
    lengths = activation("lengths", (step.batch.requests,), "int64")
    where: tuple[tuple[str, Attr], ...] = (("ratio", shared.ratio), ("angles", model.angles))
    state = Tensor(f"{name}_state", (step.batch.requests, shared.depth, 2 * parts * width), "fp32", "kv_cache")
    weights = (
        weight(f"{name}.kv_proj", (parts * width, model.hidden), step.act),
        weight(f"{name}.gate_proj", (parts * width, model.hidden), step.act),
        weight(f"{name}.position_bias", (shared.ratio, parts * width), "fp32"),
        weight(f"{name}.kv_norm", (width,), step.act),
    )
    out = activation(f"{name}_rows", (rows, width), step.act)
    attrs: tuple[tuple[str, Attr], ...] = (("ratio", shared.ratio), ("parts", parts), ("eps", model.norm_eps))
    return (
        Op("compressor_metadata", f"{name}_places", (lengths,), (cos, sin, slots), where),
        Op("compressor", f"{name}_compressor", (x, *weights, cos, sin, state), (out, state), attrs),
    )


def _compressed(step: Step, x: Tensor, shared: SharedKv, name: str, width: int, cache: str) -> tuple[Op, ...]:
    """Rows, and their way into the cache."""
    rows = _new_rows(step, shared)
    return (
        *_rows(step, x, shared, name, width),
        _write(name, activation(f"{name}_rows", (rows, width), step.act), _cache(step, shared, cache, width, step.act)),
    )


def _write(name: str, new: Tensor, cache: Tensor) -> Op:
    slots = activation(f"{name}_slots", (new.shape[0], 2), "int32")
    return Op("compressed_write", f"write_{cache.name}", (new, cache, slots), (cache,))


def _choice(step: Step, x: Tensor, shared: SharedKv, index: Index) -> tuple[Op, ...]:
    """`q_a_normed` and `x` -> `selected`, [tokens, top_k]: compressed rows that each token attends to, -1 for none."""
    act, rows, tokens = step.act, _new_rows(step, shared), step.tokens
    query = (tokens, index.heads, index.dim)
    low = activation("q_a_normed", (tokens, shared.q_rank), act)
    keys, scales = (
        _cache(step, shared, "index_keys", index.dim, "int8"),
        _cache(step, shared, "index_scales", 1, "fp16"),
    )
    wide = (tokens, index.heads)
    weights = [activation(name, wide, act) for name in ("index_raw_weights", "index_scaled_weights")]
    weighed = activation("index_weights", wide, "fp16")
    attrs = (("groups", groups_of(step.batch)), ("heads", index.heads), ("head_dim", index.dim), ("top_k", index.top_k))
    return (
        linear("index_q_proj", low, "index_q", index.heads * index.dim),
        _turned(step, "index_rope_q", activation("index_q", query, act), "index_q_turned"),
        *_hadamard("index_q", activation("index_q_turned", query, act)),
        *_rows(step, x, shared, "index", index.dim),
        *_hadamard("index_k", activation("index_rows", (rows, 1, index.dim), act)),
        linear("index_heads_proj", x, "index_raw_weights", index.heads),
        Op(
            "muls", "index_weights.scale", (weights[0],), (weights[1],), (("value", (index.dim * index.heads) ** -0.5),)
        ),
        *_quantised("index_q", activation("index_q_mixed", query, act)),
        *_quantised("index_k", activation("index_k_mixed", (rows, 1, index.dim), act)),
        _write("index", activation("index_k_int8", (rows, 1, index.dim), "int8"), keys),
        _write("index", activation("index_k_scale", (rows, 1), "fp16"), scales),
        Op("cast", "index_weights.cast", (weights[1],), (weighed,)),
        Op(
            "lightning_indexer_quant",
            "index",
            (
                activation("index_q_int8", query, "int8"),
                activation("index_q_scale", wide, "fp16"),
                weighed,
                keys,
                scales,
            ),
            (activation("selected", (tokens, index.top_k), "int32"),),
            (*attrs, ("ratio", shared.ratio)),
        ),
    )


def _hadamard(name: str, x: Tensor) -> tuple[Op, ...]:
    """Each head times Hadamard's matrix, whose rows have the length 1."""
    dim = x.shape[-1]
    table = Tensor("hadamard", (dim, dim), x.dtype, "table")
    raw, mixed = (activation(f"{name}_{part}", x.shape, x.dtype) for part in ("signed", "mixed"))
    return (
        Op("matmul", f"{name}_hadamard", (x, table), (raw,)),
        Op("muls", f"{name}_hadamard.scale", (raw,), (mixed,), (("value", dim**-0.5),)),
    )


def _quantised(name: str, x: Tensor) -> tuple[Op, ...]:
    """Each head in INT8, and its scale in 16 bits."""
    scale = x.shape[:-1]
    whole, scale32 = activation(f"{name}_int8", x.shape, "int8"), activation(f"{name}_scale32", scale, "fp32")
    return (
        Op("dynamic_quant", f"{name}.quant", (x,), (whole, scale32)),
        Op("cast", f"{name}.cast_scale", (scale32,), (activation(f"{name}_scale", scale, "fp16"),)),
    )


def _attend(step: Step, shared: SharedKv) -> Op:
    model, act = step.model, step.act
    shape = (step.tokens, model.heads, model.head_dim)
    inputs = [activation("q_rotated", shape, act), _window(step), weight("sinks.weight", (model.heads,), act)]
    attrs: list[tuple[str, Attr]] = [
        ("groups", groups_of(step.batch)), ("heads", model.heads), ("head_dim", model.head_dim), ("block_size", 0),
        ("window", model.attention.window),
    ]  # fmt: skip
    if shared.ratio:
        inputs.append(_cache(step, shared, "compressed_cache", model.head_dim, act))
        attrs.append(("ratio", shared.ratio))
    if shared.index:
        inputs.append(activation("selected", (step.tokens, shared.index.top_k), "int32"))
        attrs.append(("top_k", shared.index.top_k))
    return Op("sparse_attn_sharedkv", "attention", tuple(inputs), (activation("mixed", shape, act),), tuple(attrs))


def _by_group(step: Step, shared: SharedKv) -> Op:
    """The heads of each group to its rank."""
    model, act = step.model, step.act
    width = model.heads * model.head_dim // shared.groups
    return Op(
        "transpose_batch_matmul",
        "o_a_proj",
        (
            activation("mixed_back", (shared.groups, step.tokens, width), act),
            weight("o_a_proj.weight", (shared.groups, width, shared.out_rank), act),
        ),
        (activation("attended", (step.tokens, shared.groups, shared.out_rank), act),),
        (("batched", True),),
    )
