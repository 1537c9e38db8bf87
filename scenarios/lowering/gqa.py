"""Grouped-query attention, from the normed input of a layer to what its heads attended: `normed` -> `attended`."""

from __future__ import annotations

from scenarios.lowering.layer_norms import layer_qk_norm, own_norm
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
from scenarios.ops.program import Op, Tensor


def grouped_query_attention(step: Step, x: Tensor) -> tuple[Op, ...]:
    """Projections, Q and K norm, RoPE, cache write and attention as separate calls, and a gate behind them where the
    layer has one."""
    model, form = step.model, step.model.attention
    query = activation("q", (step.tokens, model.heads, model.head_dim), step.act)
    new, last = _queries_and_keys(step, query)
    attended = "attended_ungated" if form.gate else "attended"
    groups = groups_of(step.batch)
    return (
        *_projections(step, x),
        *new,
        *_write_cache(step, last),
        *unfused_attention(activation(last[0], query.shape, step.act), _cache(step), attended, groups, form),
        *(_gate(step) if form.gate else ()),
    )


def _projections(step: Step, x: Tensor) -> tuple[Op, ...]:
    model = step.model
    if model.attention.gate != "packed":
        plain = [linear(f"{name}_proj", x, name, size, model.qkv_bias) for name, size in model.projections]
        plain += _low_rank(step) if model.attention.q_rank else ()
        own_gate = (linear("attention_gate_proj", x, "attention_gate", model.gate_width),) if model.gate_width else ()
        return (*plain, *own_gate)
    # Each head of the query has its gate behind it.
    wide = (step.tokens, model.heads, 2 * model.head_dim)
    half = (step.tokens, model.heads, model.head_dim)
    products = [
        linear(f"{name}_proj", x, "q_and_gate" if name == "q" else name, size, model.qkv_bias)
        for name, size in model.projections
    ]
    both = activation("q_and_gate", (*wide[:-1], model.head_dim), step.act)
    return (
        *products,
        Op("slice", "slice_q", (both,), (activation("q", half, step.act),), (("start", 0),)),
        Op("slice", "slice_gate", (both,), (activation("attention_gate", half, step.act),), (("start", half[-1]),)),
    )


def _low_rank(step: Step) -> tuple[Op, ...]:
    """The second half of a low-rank query (Step-3): `q_a` -> `q`."""
    model, low = step.model, (step.tokens, step.model.attention.q_rank)
    return (
        *rms_norm("q_a_norm", activation("q_a", low, step.act), "q_a_normed", model.norm_eps),
        linear("q_b_proj", activation("q_a_normed", low, step.act), "q", model.q_size),
    )


def _gate(step: Step) -> tuple[Op, ...]:
    """What is attended times the sigmoid of the gate, which is as wide, or one number for each head."""
    model = step.model
    wide: tuple[int, ...] = (step.tokens, model.attended)
    narrow = wide
    if model.attention.gate == "head":
        wide, narrow = (step.tokens, model.heads, model.value_dim), (step.tokens, model.heads, 1)
    gate, open_ = (activation(name, narrow, step.act) for name in ("attention_gate", "gate_open"))
    out, result = (activation(name, wide, step.act) for name in ("attended_ungated", "attended"))
    return (
        Op("sigmoid", "attention_gate.sigmoid", (gate,), (open_,)),
        Op("mul", "attention_gate.mul", (out, open_), (result,)),
    )


def _queries_and_keys(step: Step, q: Tensor) -> tuple[tuple[Op, ...], tuple[str, str, str]]:
    """Norms and rotary angles, in the order of the layer, and the names of Q, K and V behind them."""
    model, form = step.model, step.model.attention
    names = ["q"] if form.borrows else ["q", "k"]
    shapes = {"q": q.shape, "k": (step.tokens, model.kv_heads, model.head_dim)}
    ops: list[Op] = []
    stages = ("norm", "turn") if not form.norm_last else ("turn", "norm")
    now = {name: name for name in names}
    for stage in stages:
        if stage == "norm" and model.qk_norm:
            if model.qk_norm_of == "own":
                ops += [own_norm(step, activation(now[name], shapes[name], step.act)) for name in names]
            elif model.qk_norm_of == "layer" and not form.norm_last:
                ops += layer_qk_norm(step)
            else:
                for name in names:
                    x = activation(now[name], shapes[name], step.act)
                    ops += rms_norm(f"{name}_norm", x, f"{name}_normed", model.norm_eps, form.weightless)
            now = {name: f"{name}_normed" for name in names}
        if stage == "turn" and form.rotates:
            ops += _turned(step, [(name, activation(now[name], shapes[name], step.act)) for name in names])
            now = {name: f"{name}_rotated" for name in names}
    value = "k" if form.keys_are_values else "v"
    if form.value_norm and not form.borrows:
        ops += rms_norm("v_norm", activation(value, shapes["k"], step.act), "v_normed", model.norm_eps, weightless=True)
        value = "v_normed"
    if form.value_scale != 1 and not form.borrows:
        shape = (step.tokens, model.kv_heads, model.value_dim)
        x, scaled = activation(value, shape, step.act), activation("v_scaled", shape, step.act)
        ops.append(Op("muls", "scale_v", (x,), (scaled,), (("value", form.value_scale),)))
        value = "v_scaled"
    return tuple(ops), (now["q"], now.get("k", ""), value)


def _turned(step: Step, parts: list[tuple[str, Tensor]]) -> tuple[Op, ...]:
    """RoPE on the part of each head that turns (all of it, in most models)."""
    turning, which = step.model.rotated, step.model.angles
    cos, sin = (activation(f"{name}{which}", (step.tokens, turning), step.act) for name in ("cos", "sin"))
    if turning == parts[0][1].shape[-1]:
        return tuple(op for name, x in parts for op in rotate(f"rope_{name}", x, f"{name}_rotated", cos, sin))
    ops: list[Op] = []
    for name, x in parts:
        for part, start, width in (("turning", 0, turning), ("still", turning, x.shape[-1] - turning)):
            kept = _part(x, f"{name}_{part}", width)
            ops.append(Op("slice", f"split_{name}.{part}", (_part(x, x.name, width),), (kept,), (("start", start),)))
    for name, x in parts:
        ops += rotate(f"rope_{name}", _part(x, f"{name}_turning", turning), f"{name}_turned", cos, sin)
    for name, x in parts:
        whole = (_part(x, f"{name}_turned", turning), _part(x, f"{name}_still", x.shape[-1] - turning))
        ops.append(Op("concat", f"join_{name}", whole, (activation(f"{name}_rotated", x.shape, x.dtype),)))
    return tuple(ops)


def _part(x: Tensor, name: str, width: int) -> Tensor:
    """The first `width` of each row of `x`."""
    return activation(name, (*x.shape[:-1], width), x.dtype)


def _cache(step: Step) -> Cache:
    model = step.model
    slots = (step.batch.requests, step.cache_tokens, model.kv_heads)
    keys, values = (*slots, model.head_dim), (*slots, model.value_dim)
    return Cache(Tensor("k_cache", keys, step.act, "kv_cache"), Tensor("v_cache", values, step.act, "kv_cache"))


def _write_cache(step: Step, names: tuple[str, str, str]) -> tuple[Op, ...]:
    """One write for K and one for V, each to the next position of its request (`Scatter` in a static cache)."""
    model, cache = step.model, _cache(step)
    if model.attention.borrows:
        return ()
    slots = Tensor("slots", (step.tokens,), "int64", "table")
    dims = (model.head_dim, model.value_dim)
    k, v = (
        activation(name, (step.tokens, model.kv_heads, dim), step.act)
        for name, dim in zip(names[1:], dims, strict=True)
    )
    return (
        Op("kv_cache_write", "write_k", (k, cache.key, slots), (cache.key,), op_type="Scatter"),
        Op("kv_cache_write", "write_v", (v, cache.value, slots), (cache.value,), op_type="Scatter"),
    )
