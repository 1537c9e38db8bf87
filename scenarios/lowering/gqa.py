"""Grouped-query attention, from the normed input of a layer to what its heads attended: `normed` -> `attended`."""

from __future__ import annotations

from scenarios.lowering.layer_norms import layer_qk_norm
from scenarios.lowering.primitives import (
    Cache,
    activation,
    groups_of,
    linear,
    rms_norm,
    rotate,
    unfused_attention,
)
from scenarios.lowering.step import Step
from scenarios.models.model import Model
from scenarios.ops.program import DType, Op, Tensor


def grouped_query_attention(step: Step, x: Tensor) -> tuple[Op, ...]:
    """Projections, Q and K norm, RoPE, cache write and attention as separate calls."""
    model, act, tokens = step.model, step.act, step.tokens
    q = activation("q", (tokens, model.heads, model.head_dim), act)
    k = activation("k", (tokens, model.kv_heads, model.head_dim), act)
    turn = (tokens, model.rotated)
    cos, sin = activation("cos", turn, act), activation("sin", turn, act)
    cache = _cache(step)
    return (
        *_projections(model, x),
        *(layer_qk_norm(step) if model.qk_norm and model.qk_norm_of == "layer" else _qk_norm(model, q, k)),
        *_turned(_after_norm(model, q), _after_norm(model, k), cos, sin),
        *_write_cache(model, cache, act, tokens),
        *unfused_attention(
            activation("q_rotated", q.shape, act), cache, "attended", groups_of(step.batch), model.kv_heads
        ),
    )


def _projections(model: Model, x: Tensor) -> tuple[Op, ...]:
    return tuple(
        linear(f"{name}_proj", x, name, size, model.qkv_bias)
        for name, size in (("q", model.q_size), ("k", model.kv_size), ("v", model.kv_size))
    )


def _after_norm(model: Model, x: Tensor) -> Tensor:
    return activation(f"{x.name}_normed", x.shape, x.dtype) if model.qk_norm else x


def _qk_norm(model: Model, q: Tensor, k: Tensor) -> tuple[Op, ...]:
    if not model.qk_norm:
        return ()
    return (
        *rms_norm("q_norm", q, "q_normed", model.norm_eps),
        *rms_norm("k_norm", k, "k_normed", model.norm_eps),
    )


def _turned(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Op, ...]:
    """RoPE on the part of each head that turns (all of it, in most models)."""
    turning = cos.shape[-1]
    if turning == q.shape[-1]:
        return (*rotate("rope_q", q, "q_rotated", cos, sin), *rotate("rope_k", k, "k_rotated", cos, sin))
    parts = [
        (name, _part(x, f"{name}_turning", turning), _part(x, f"{name}_still", x.shape[-1] - turning), x)
        for name, x in (("q", q), ("k", k))
    ]
    ops: list[Op] = []
    for name, part, rest, x in parts:
        ops.append(Op("slice", f"split_{name}.turning", (_part(x, x.name, turning),), (part,), (("start", 0),)))
        ops.append(
            Op("slice", f"split_{name}.still", (_part(x, x.name, rest.shape[-1]),), (rest,), (("start", turning),))
        )
    for name, part, _, _ in parts:
        ops += rotate(f"rope_{name}", part, f"{name}_turned", cos, sin)
    for name, part, rest, x in parts:
        whole = (activation(f"{name}_turned", part.shape, x.dtype), rest)
        ops.append(Op("concat", f"join_{name}", whole, (activation(f"{name}_rotated", x.shape, x.dtype),)))
    return tuple(ops)


def _part(x: Tensor, name: str, width: int) -> Tensor:
    """The first `width` of each row of `x`."""
    return activation(name, (*x.shape[:-1], width), x.dtype)


def _cache(step: Step) -> Cache:
    model = step.model
    shape = (step.batch.requests, step.cache_tokens, model.kv_heads, model.head_dim)
    return Cache(Tensor("k_cache", shape, step.act, "kv_cache"), Tensor("v_cache", shape, step.act, "kv_cache"))


def _write_cache(model: Model, cache: Cache, act: DType, tokens: int) -> tuple[Op, ...]:
    """One write for K and one for V, each to the next position of its request (`Scatter` in a static cache)."""
    slots = Tensor("slots", (tokens,), "int64", "table")
    shape = (tokens, model.kv_heads, model.head_dim)
    k, v = activation("k_rotated", shape, act), activation("v", shape, act)
    return (
        Op("kv_cache_write", "write_k", (k, cache.key, slots), (cache.key,), op_type="Scatter"),
        Op("kv_cache_write", "write_v", (v, cache.value, slots), (cache.value,), op_type="Scatter"),
    )
