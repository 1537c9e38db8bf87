"""A dense grouped-query decoder as eager torch code issues it: nothing fused, packed, paged or quantised.

Blocks: `prepare` (host preamble), `embed`, `layers` (repeated; each ends with the next layer's input norm, the last one
with the final norm), `head`, `sample`. Activations are [tokens, features]; q, k, v are [tokens, heads, head_dim].
"""

from __future__ import annotations

from scenarios.lowering.prepare import prepare_contiguous
from scenarios.lowering.primitives import Cache, activation, linear, rms_norm, rotate, unfused_attention, weight
from scenarios.model import Model
from scenarios.program import Batch, Block, DType, Op, Program, Tensor


def lower_dense(
    model: Model, batch: Batch, act: DType, cache_tokens: int, tokens: int, sampling: str = "greedy"
) -> Program:
    """One forward step of `batch`.

    act: type of activations and (before quantisation) weights and cache. cache_tokens: tokens the cache of one request
    holds. tokens: rows of the matrix products (batch.tokens, or more where a captured graph pads).
    """
    blocks = (
        prepare_contiguous(batch),
        _embed(model, act, tokens),
        _layers(model, batch, act, cache_tokens, tokens),
        _head(model, batch, act, tokens),
        _sample(model, batch, act, sampling),
    )
    return Program(blocks, batch)


def groups_of(batch: Batch) -> tuple[tuple[int, int, int], ...]:
    """The batch's groups as an op attribute."""
    return tuple((g.count, g.query, g.context) for g in batch.groups)


def _embed(model: Model, act: DType, tokens: int) -> Block:
    ids = activation("input_ids", (tokens,), "int64")
    hidden = activation("residual", (tokens, model.hidden), act)
    positions = activation("positions", (tokens,), "int64")
    angles = activation("angles", (tokens, model.head_dim // 2), "fp32")
    wide = (tokens, model.head_dim)
    inv_freq = Tensor("inv_freq", (model.head_dim // 2,), "fp32", "table")
    doubled = activation("angles2", wide, "fp32")
    table = weight("embed_tokens.weight", (model.vocab, model.hidden), act)
    ops = (
        Op("embedding", "embed_tokens", (table, ids), (hidden,)),
        Op("mul", "rotary.angles", (positions, inv_freq), (angles,)),
        Op("concat", "rotary.double", (angles, angles), (doubled,)),
        Op("cos", "rotary.cos", (doubled,), (activation("cos32", wide, "fp32"),)),
        Op("sin", "rotary.sin", (doubled,), (activation("sin32", wide, "fp32"),)),
        Op("cast", "rotary.cos_cast", (activation("cos32", wide, "fp32"),), (activation("cos", wide, act),)),
        Op("cast", "rotary.sin_cast", (activation("sin32", wide, "fp32"),), (activation("sin", wide, act),)),
        *rms_norm("input_norm", hidden, "normed", model.norm_eps),
    )
    return Block("embed", ops)


def _layers(model: Model, batch: Batch, act: DType, cache_tokens: int, tokens: int) -> Block:
    hidden = (tokens, model.hidden)
    x = activation("normed", hidden, act)
    residual = activation("residual", hidden, act)
    cos, sin = activation("cos", (tokens, model.head_dim), act), activation("sin", (tokens, model.head_dim), act)
    after_attention = activation("residual_mid", hidden, act)
    q = activation("q", (tokens, model.heads, model.head_dim), act)
    ops: list[Op] = [
        *_projections(model, x),
        *_qk_norm(model, act, tokens),
        *rotate("rope_q", _after_norm(model, "q", q), "q_rotated", cos, sin),
        *rotate("rope_k", _after_norm(model, "k", _kv("k", model, act, tokens)), "k_rotated", cos, sin),
        *_write_cache(model, batch, act, cache_tokens, tokens),
        *unfused_attention(
            activation("q_rotated", q.shape, act), _cache(model, batch, act, cache_tokens), "attended",
            groups_of(batch), model.kv_heads,
        ),
        linear("o_proj", activation("attended", (tokens, model.q_size), act), "attention_out", model.hidden),
        Op("add", "add_attention", (activation("attention_out", hidden, act), residual), (after_attention,)),
        *rms_norm("post_attention_norm", after_attention, "mlp_in", model.norm_eps),
        *_mlp(model, act, tokens),
        Op("add", "add_mlp", (activation("mlp_out", hidden, act), after_attention), (residual,)),
        *rms_norm("next_norm", residual, "normed", model.norm_eps),
    ]  # fmt: skip
    return Block("layers", tuple(ops), repeat=model.layers)


def _kv(name: str, model: Model, act: DType, tokens: int) -> Tensor:
    return activation(name, (tokens, model.kv_heads, model.head_dim), act)


def _after_norm(model: Model, name: str, x: Tensor) -> Tensor:
    return activation(f"{name}_normed", x.shape, x.dtype) if model.qk_norm else x


def _projections(model: Model, x: Tensor) -> tuple[Op, ...]:
    return tuple(
        linear(f"{name}_proj", x, name, size, model.qkv_bias)
        for name, size in (("q", model.q_size), ("k", model.kv_size), ("v", model.kv_size))
    )


def _qk_norm(model: Model, act: DType, tokens: int) -> tuple[Op, ...]:
    if not model.qk_norm:
        return ()
    q = activation("q", (tokens, model.heads, model.head_dim), act)
    return (
        *rms_norm("q_norm", q, "q_normed", model.norm_eps),
        *rms_norm("k_norm", _kv("k", model, act, tokens), "k_normed", model.norm_eps),
    )


def _cache(model: Model, batch: Batch, act: DType, cache_tokens: int) -> Cache:
    shape = (batch.requests, cache_tokens, model.kv_heads, model.head_dim)
    return Cache(Tensor("k_cache", shape, act, "kv_cache"), Tensor("v_cache", shape, act, "kv_cache"))


def _write_cache(model: Model, batch: Batch, act: DType, cache_tokens: int, tokens: int) -> tuple[Op, ...]:
    """One write for K and one for V, each to the next position of its request (`Scatter` in a static cache)."""
    cache = _cache(model, batch, act, cache_tokens)
    slots = Tensor("slots", (tokens,), "int64", "table")
    k, v = activation("k_rotated", (tokens, model.kv_heads, model.head_dim), act), _kv("v", model, act, tokens)
    return (
        Op("kv_cache_write", "write_k", (k, cache.key, slots), (cache.key,), op_type="Scatter"),
        Op("kv_cache_write", "write_v", (v, cache.value, slots), (cache.value,), op_type="Scatter"),
    )


def _mlp(model: Model, act: DType, tokens: int) -> tuple[Op, ...]:
    x = activation("mlp_in", (tokens, model.hidden), act)
    wide = (tokens, model.intermediate)
    gated = activation("gated", wide, act)
    return (
        linear("gate_proj", x, "gate", model.intermediate),
        linear("up_proj", x, "up", model.intermediate),
        Op("silu", "silu", (activation("gate", wide, act),), (activation("silu_gate", wide, act),)),
        Op("mul", "mul_up", (activation("silu_gate", wide, act), activation("up", wide, act)), (gated,)),
        linear("down_proj", gated, "mlp_out", model.hidden),
    )


def _head(model: Model, batch: Batch, act: DType, tokens: int) -> Block:
    """LM head for the last token of each request; earlier tokens of a prefill are dropped first."""
    normed = activation("normed", (tokens, model.hidden), act)
    ops: list[Op] = []
    rows = batch.requests
    if batch.tokens > rows:
        last = activation("last", (rows, model.hidden), act)
        ops.append(Op("index_select", "last_token", (normed, activation("last_index", (rows,), "int64")), (last,)))
        normed = last
    else:
        rows = tokens
    ops.append(linear("lm_head", normed, "logits", model.vocab))
    return Block("head", tuple(ops))


def _sample(model: Model, batch: Batch, act: DType, sampling: str) -> Block:
    rows = batch.requests
    logits = activation("logits", (rows, model.whole_vocab), act)
    logits32 = activation("logits32", (rows, model.whole_vocab), "fp32")
    chosen = activation("chosen", (rows,), "int64")
    ops: list[Op] = [Op("cast", "logits_cast", (logits,), (logits32,))]
    best = logits32
    if sampling == "top_k_top_p":
        shape = (rows, model.whole_vocab)
        one = activation("temperature", (rows, 1), "fp32")
        ops += [
            Op("div", "temperature", (logits32, one), (activation("scaled_logits", shape, "fp32"),)),
            Op("sort", "sort", (activation("scaled_logits", shape, "fp32"),), (
                activation("sorted", shape, "fp32"), activation("order", shape, "int32"))),
            Op("top_k_top_p", "top_k_top_p", (activation("sorted", shape, "fp32"), activation("order", shape, "int32")),
               (activation("kept", shape, "fp32"),)),
            Op("softmax", "softmax", (activation("kept", shape, "fp32"),), (activation("probs", shape, "fp32"),)),
            Op("div", "exponential_race", (activation("probs", shape, "fp32"), activation("noise", shape, "fp32")),
               (activation("race", shape, "fp32"),)),
        ]  # fmt: skip
        best = activation("race", shape, "fp32")
    ops += [
        Op("argmax", "argmax", (best,), (chosen,)),
        Op("cast", "token_cast", (chosen,), (activation("next_ids", (rows,), "int64"),)),
    ]
    return Block("sample", tuple(ops))
