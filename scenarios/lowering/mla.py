"""Multi-head latent attention (MLA), from the normed input of a layer to what its heads attended.

The cache holds one latent row per token (kv_rank) and its rotated part (rope_dim), for all heads. Tokens of a decode
step attend to it as it lies: W_UK is absorbed into the query and W_UV into the output, so nothing is unpacked. Tokens
of a prefill chunk are many: K and V of all tokens that they see are unpacked first, and attention is that of full
heads.
"""

from __future__ import annotations

from scenarios.lowering.primitives import activation, linear, rms_norm, rotate, weight
from scenarios.lowering.sparse import select_keys, selected
from scenarios.lowering.step import Step
from scenarios.models.model import Latent, Model
from scenarios.ops.program import Attr, Group, Op, Tensor

#: Requests with at most this many new tokens are decoded with absorbed weights.
DECODE_QUERY = 16


def latent_attention(step: Step, x: Tensor) -> tuple[Op, ...]:
    """Projections, low-rank norms, RoPE, cache write and attention; `attended` is [tokens, heads v_dim]."""
    model, item = step.model, step.model.latent
    assert item is not None
    tokens = step.tokens
    turn = (tokens, item.rope_dim)
    cos, sin = activation("cos", turn, step.act), activation("sin", turn, step.act)
    q_pe = activation("q_pe", (tokens, model.heads, item.rope_dim), step.act)
    k_pe = activation("k_pe", (tokens, 1, item.rope_dim), step.act)
    return (
        *_projections(step, x, item),
        *rms_norm("kv_a_norm", activation("kv_c", (tokens, item.kv_rank), step.act), "kv_normed", model.norm_eps),
        *(rotate("rope_q", q_pe, "q_rotated", cos, sin) if model.attention.rotates else ()),
        *(rotate("rope_k", k_pe, "k_rotated", cos, sin) if model.attention.rotates else ()),
        *_write_cache(step, item),
        *(select_keys(step, x, item, item.own_index) if item.own_index else ()),
        *_attend(step, item),
    )


def _turned(model: Model, name: str) -> str:
    """What the rotated part of `q` or `k` is called; it stays as it is where the layer does not turn."""
    return f"{name}_rotated" if model.attention.rotates else f"{name}_pe"


def _projections(step: Step, x: Tensor, latent: Latent) -> tuple[Op, ...]:
    """The query (through its own low rank, if it has one) and the latent row with its rotated part."""
    model, tokens, act = step.model, step.tokens, step.act
    query = activation("q", (tokens, model.q_size), act)
    kv = activation("kv_a", (tokens, latent.row), act)
    heads = (tokens, model.heads)
    ops = [linear("q_a_proj", x, "q_a", latent.q_rank)] if latent.q_rank else [linear("q_proj", x, "q", model.q_size)]
    ops.append(linear("kv_a_proj", x, "kv_a", latent.row))
    if latent.q_rank:
        low = activation("q_a", (tokens, latent.q_rank), act)
        ops += rms_norm("q_a_norm", low, "q_a_normed", model.norm_eps)
        ops.append(linear("q_b_proj", activation("q_a_normed", low.shape, act), "q", model.q_size))
    return (
        *ops,
        _cut("slice_q_nope", query, "q_nope", (*heads, latent.nope_dim), 0),
        _cut("slice_q_pe", query, "q_pe", (*heads, latent.rope_dim), latent.nope_dim),
        _cut("slice_kv_c", kv, "kv_c", (tokens, latent.kv_rank), -latent.row),
        _cut("slice_k_pe", kv, "k_pe", (tokens, 1, latent.rope_dim), -latent.rope_dim),
    )


def _cut(name: str, source: Tensor, out: str, shape: tuple[int, ...], start: int) -> Op:
    """A strided part of `source`, copied; reads only what it keeps. start: of each row, from its end where negative
    (the latent row is the last part of a packed product)."""
    read, kept = activation(source.name, shape, source.dtype), activation(out, shape, source.dtype)
    return Op("slice", name, (read,), (kept,), (("start", start),))


def _caches(step: Step, latent: Latent) -> tuple[Tensor, Tensor]:
    """The latent rows and their rotated parts."""
    slots = (step.batch.requests, step.cache_tokens, 1)
    return (
        Tensor("latent_cache", (*slots, latent.kv_rank), step.act, "kv_cache"),
        Tensor("rope_cache", (*slots, latent.rope_dim), step.act, "kv_cache"),
    )


def _write_cache(step: Step, item: Latent) -> tuple[Op, ...]:
    latent, rotary = _caches(step, item)
    slots = Tensor("slots", (step.tokens,), "int64", "table")
    row = activation("kv_normed", (step.tokens, 1, item.kv_rank), step.act)
    part = activation(_turned(step.model, "k"), (step.tokens, 1, item.rope_dim), step.act)
    return (
        Op("kv_cache_write", "write_latent", (row, latent, slots), (latent,), op_type="Scatter"),
        Op("kv_cache_write", "write_rope", (part, rotary, slots), (rotary,), op_type="Scatter"),
    )


def _attend(step: Step, latent: Latent) -> tuple[Op, ...]:
    """Decode and prefill requests of the batch, each in their own way; both write their tokens of `attended`."""
    if latent.index:  # each token has its own keys: none is unpacked
        return _absorbed(step, latent, step.batch.groups, step.tokens)
    decoding = tuple(g for g in step.batch.groups if g.query <= DECODE_QUERY)
    prefilling = tuple(g for g in step.batch.groups if g.query > DECODE_QUERY)
    ops: tuple[Op, ...] = ()
    if decoding:
        tokens = step.tokens - sum(g.count * g.query for g in prefilling)
        ops += _absorbed(step, latent, decoding, tokens)
    if prefilling:
        ops += _unpacked(step, latent, prefilling)
    return ops


def _groups(groups: tuple[Group, ...]) -> tuple[tuple[int, int, int], ...]:
    return tuple((g.count, g.query, g.context) for g in groups)


def _absorbed(step: Step, latent: Latent, groups: tuple[Group, ...], tokens: int) -> tuple[Op, ...]:
    """q W_UK against the latent rows; what comes out is a latent row per head, and W_UV makes values of it."""
    model, act = step.model, step.act
    heads = model.heads
    q_nope = activation("q_nope", (heads, tokens, latent.nope_dim), act)
    by_head = activation("q_by_head", (heads, tokens, latent.kv_rank), act)
    q_latent = activation("q_latent", (tokens, heads, latent.kv_rank), act)
    mixed = activation("latent_out", (tokens, heads, latent.kv_rank), act)
    batched = (("batched", True),)
    attrs: tuple[tuple[str, Attr], ...] = (
        ("groups", _groups(groups)), ("heads", heads), ("kv_heads", 1), ("head_dim", latent.row), ("block_size", 0),
        ("latent", True),
    )  # fmt: skip
    w_uk = weight("kv_b_proj.k", (heads, latent.nope_dim, latent.kv_rank), act)
    w_uv = weight("kv_b_proj.v", (heads, latent.kv_rank, latent.v_dim), act)
    query = (q_latent, activation(_turned(model, "q"), (tokens, heads, latent.rope_dim), act))
    keys: tuple[Tensor, ...] = ()
    name = "sparse_attention" if latent.index else "attention"
    if latent.index:
        keys, attrs = (selected(step, latent.index),), (*attrs, ("top_k", latent.index.top_k))
    return (
        Op("batch_matmul", "absorb_k", (q_nope, w_uk), (by_head,), batched),
        Op("transpose", "absorb_k.by_token", (by_head,), (q_latent,)),
        Op("attention", name, (*query, *_caches(step, latent), *keys), (mixed,), attrs),
        Op(
            "transpose_batch_matmul",
            "absorb_v",
            (activation("latent_out", (heads, tokens, latent.kv_rank), act), w_uv),
            (activation("attended", (tokens, heads, latent.v_dim), act),),
            batched,
        ),
    )


def _unpacked(step: Step, item: Latent, groups: tuple[Group, ...]) -> tuple[Op, ...]:
    """K and V of all heads for every token that is seen, from rows just made or read back from the cache.

    Heads attend over nope_dim + rope_dim dimensions and give v_dim; the work counts their mean for both products.
    """
    model, act = step.model, step.act
    seen = sum(g.count * g.kv_len for g in groups)
    cached = sum(g.count * g.context for g in groups)
    tokens = sum(g.count * g.query for g in groups)
    ops: list[Op] = []
    latent, part = (
        activation("kv_normed", (tokens, item.kv_rank), act),
        activation(_turned(model, "k"), (tokens, 1, item.rope_dim), act),
    )
    if cached:
        before = (
            activation("latent_read", (cached, item.kv_rank), act),
            activation("rope_read", (cached, 1, item.rope_dim), act),
        )
        ops.append(Op("cache_read", "read_latent", _caches(step, item), before, (("block_size", 0),)))
        whole = (
            activation("latent_seen", (seen, item.kv_rank), act),
            activation("rope_seen", (seen, 1, item.rope_dim), act),
        )
        for name, old, new, both in zip(("latent", "rope"), before, (latent, part), whole, strict=True):
            ops.append(Op("concat", f"join_{name}", (old, new), (both,)))
        latent, part = whole
    key = activation("k_unpacked", (seen, model.heads, item.nope_dim + item.rope_dim), act)
    value = activation("v_unpacked", (seen, model.heads, item.v_dim), act)
    nope = activation("k_nope", (seen, model.heads, item.nope_dim), act)
    rotary = activation("k_pe_all", (seen, model.heads, item.rope_dim), act)
    ops.append(linear("kv_b_proj", latent, "kv_b", model.heads * (item.nope_dim + item.v_dim)))
    ops += [
        _cut("slice_k_nope", activation("kv_b", nope.shape, act), "k_nope", nope.shape, 0),
        _cut("slice_v", activation("kv_b", value.shape, act), "v_unpacked", value.shape, item.nope_dim),
        Op("expand", "k_pe.repeat", (part,), (rotary,)),
        Op("concat", "k_join", (nope, rotary), (key,)),
        Op(
            "concat",
            "q_join",
            (
                activation("q_nope", (tokens, model.heads, item.nope_dim), act),
                activation(_turned(model, "q"), (tokens, model.heads, item.rope_dim), act),
            ),
            (activation("q_whole", (tokens, model.heads, item.nope_dim + item.rope_dim), act),),
        ),
        _attention_of_heads(model, item, groups, tokens, key, value),
    ]
    return tuple(ops)


def _attention_of_heads(
    model: Model, latent: Latent, groups: tuple[Group, ...], tokens: int, key: Tensor, value: Tensor
) -> Op:
    query = activation("q_whole", (tokens, model.heads, latent.nope_dim + latent.rope_dim), key.dtype)
    out = activation("attended", (tokens, model.heads, latent.v_dim), key.dtype)
    attrs = (
        ("groups", _groups(groups)),
        ("heads", model.heads),
        ("kv_heads", model.heads),
        ("head_dim", (latent.nope_dim + latent.rope_dim + latent.v_dim) // 2),
        ("block_size", 0),
    )
    return Op("attention", "prefill_attention", (query, key, value), (out,), attrs, op_type="RINGMLAPrefillBF16Kernel")
