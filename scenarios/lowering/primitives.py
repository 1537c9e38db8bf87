"""The primitive calls that eager torch code makes for the compound operations of a decoder."""

from __future__ import annotations

from dataclasses import replace

from scenarios.lowering.activations import activated
from scenarios.models.forms import PROJECTED, Activation, AttentionForm
from scenarios.models.model import Model
from scenarios.ops.program import Attr, Batch, DType, Op, Tensor
from scenarios.ops.traced import remembered
from scenarios.records import dataclass


def activation(name: str, shape: tuple[int, ...], dtype: DType) -> Tensor:
    return Tensor(name, shape, dtype)


def weight(name: str, shape: tuple[int, ...], dtype: DType) -> Tensor:
    return Tensor(name, shape, dtype, "weight")


def linear(name: str, x: Tensor, out: str, n: int, bias: bool = False) -> Op:
    """y = x w^T (+ b): x [tokens, k], weight [n, k]."""
    inputs = [x, weight(f"{name}.weight", (n, x.shape[-1]), x.dtype)]
    if bias:
        inputs.append(weight(f"{name}.bias", (n,), x.dtype))
    return Op("matmul", name, tuple(inputs), (activation(out, (*x.shape[:-1], n), x.dtype),))


@remembered(maxsize=256)  # steps that differ in contexts alone have the same
def rms_norm(name: str, x: Tensor, out: str, eps: float, weightless: bool = False) -> tuple[Op, ...]:
    """RMSNorm as a Hugging Face model writes it: eight calls, the middle ones in float32.

    cast, pow, mean, add eps, rsqrt, mul, cast back, mul gamma (the fused form is one call). weightless: gamma is ones,
    as engines call the fused form for a norm that has no weight.
    """
    wide = (*x.shape,)
    narrow = (*x.shape[:-1], 1)
    x32 = activation(f"{name}.x32", wide, "fp32")
    square = activation(f"{name}.square", wide, "fp32")
    mean = activation(f"{name}.mean", narrow, "fp32")
    biased = activation(f"{name}.biased", narrow, "fp32")
    rstd = activation(f"{name}.rstd", narrow, "fp32")
    normal = activation(f"{name}.normal", wide, "fp32")
    back = activation(f"{name}.back", wide, x.dtype)
    gamma = weight(f"{name}.{'ones' if weightless else 'weight'}", (x.shape[-1],), x.dtype)
    return (
        Op("cast", f"{name}.cast", (x,), (x32,)),
        Op("pow", f"{name}.pow", (x32,), (square,), (("exponent", 2),)),
        Op("reduce_mean", f"{name}.mean", (square,), (mean,)),
        Op("adds", f"{name}.add_eps", (mean,), (biased,), (("value", eps),)),
        Op("rsqrt", f"{name}.rsqrt", (biased,), (rstd,)),
        Op("mul", f"{name}.mul", (x32, rstd), (normal,)),
        Op("cast", f"{name}.cast_back", (normal,), (back,)),
        Op("mul", f"{name}.mul_gamma", (back, gamma), (activation(out, x.shape, x.dtype),)),
    )


def hidden_norm(name: str, x: Tensor, out: str, model: Model) -> tuple[Op, ...]:
    """A norm over the hidden size as the model has it: an RMSNorm, or one call of a layer norm."""
    if not model.form.layer_norm:
        return rms_norm(name, x, out, model.norm_eps)
    parts = ("weight", "bias") if model.form.norm_bias else ("weight",)
    weights = (weight(f"{name}.{part}", (x.shape[-1],), x.dtype) for part in parts)
    return (Op("layer_norm", name, (x, *weights), (activation(out, x.shape, x.dtype),), (("eps", model.norm_eps),)),)


@remembered(maxsize=256)  # steps that differ in contexts alone have the same
def rotate(name: str, x: Tensor, out: str, cos: Tensor, sin: Tensor) -> tuple[Op, ...]:
    """x cos + rotate_half(x) sin: five calls, two of which first copy the half of x that they read."""
    half = (*x.shape[:-1], x.shape[-1] // 2)
    whole = activation(x.name, half, x.dtype)
    upper, lower = activation(f"{name}.upper", half, x.dtype), activation(f"{name}.lower", half, x.dtype)
    negative = activation(f"{name}.neg", half, x.dtype)
    rotated = activation(f"{name}.rotated", x.shape, x.dtype)
    by_cos = activation(f"{name}.by_cos", x.shape, x.dtype)
    by_sin = activation(f"{name}.by_sin", x.shape, x.dtype)
    return (
        Op("mul", f"{name}.mul_cos", (x, cos), (by_cos,)),
        Op("slice", f"{name}.slice_upper", (whole,), (upper,), (("start", x.shape[-1] // 2),)),
        Op("neg", f"{name}.negate", (upper,), (negative,)),
        Op("slice", f"{name}.slice_lower", (whole,), (lower,), (("start", 0),)),
        Op("concat", f"{name}.rotate_half", (negative, lower), (rotated,)),
        Op("mul", f"{name}.mul_sin", (rotated, sin), (by_sin,)),
        Op("add", f"{name}.add", (by_cos, by_sin), (activation(out, x.shape, x.dtype),)),
    )


@dataclass(frozen=True, slots=True)
class Cache:
    """The two cache tensors of a layer and what one request holds of them."""

    key: Tensor
    value: Tensor


def unfused_attention(
    q: Tensor, cache: Cache, out: str, groups: tuple[tuple[int, int, int], ...], form: AttentionForm
) -> tuple[Op, ...]:
    """Attention as separate calls, for requests padded to the longest: repeat K and V over the group, QK, scale, (cap,)
    mask, (sinks,) softmax, PV.

    q [tokens, heads, dim], `out` [tokens, heads, elements of a value]. Scores are [requests x heads, queries, keys].
    """
    _, heads, dim = q.shape
    kv_heads, value_dim = cache.value.shape[2:]
    requests = sum(count for count, _, _ in groups)
    queries = max(query for _, query, _ in groups)
    keys = max(context + query for _, query, context in groups)
    dtype: DType = q.dtype
    repeated = (requests, heads, keys)
    k_all = activation("k_repeated", (*repeated, dim), dtype)
    v_all = activation("v_repeated", (*repeated, value_dim), dtype)
    k_seen = Tensor(cache.key.name, (requests, kv_heads, keys, dim), cache.key.dtype, "kv_cache")
    v_seen = Tensor(cache.value.name, (requests, kv_heads, keys, value_dim), cache.value.dtype, "kv_cache")
    q_padded = activation(q.name, (requests, heads, queries, dim), dtype)

    def scores(name: str, of: DType = dtype, more: int = 0) -> Tensor:
        return activation(name, (requests, heads, queries, keys + more), of)

    # Biases by distance are added with the mask, which then has a row of each head.
    mask = Tensor(f"mask{_of_mask(form)}", (requests, heads if form.alibi else 1, queries, keys), dtype)
    batched = (("batched", True),)
    attended = activation(out, (*q.shape[:2], value_dim), dtype)
    capped = _capped(scores("scaled"), form.soft_cap)
    masked, kept = scores("masked"), scores("weights")
    joined: tuple[Op, ...] = ()
    dropped: tuple[Op, ...] = ()
    if form.sinks:
        masked, kept = scores("masked_sinks", more=1), scores("weights_sinks", more=1)
        sinks = weight("sinks.weight", (heads,), dtype)
        joined = (Op("concat", "attn.join_sinks", (scores("masked"), sinks), (masked,)),)
        dropped = (Op("slice", "attn.drop_sinks", (scores("weights_sinks"),), (scores("weights"),), (("start", 0),)),)
    more = int(form.sinks)
    return (
        Op("expand", "attn.repeat_k", (k_seen,), (k_all,)),
        Op("expand", "attn.repeat_v", (v_seen,), (v_all,)),
        Op("batch_matmul", "attn.qk", (q_padded, k_all), (scores("scores"),), batched),
        Op("muls", "attn.scale", (scores("scores"),), (scores("scaled"),), (("value", form.scale or dim**-0.5),)),
        *capped,
        Op("add", "attn.mask", (scores("capped" if capped else "scaled"), mask), (scores("masked"),), sees(form)),
        *joined,
        Op("cast", "attn.to_fp32", (masked,), (scores("masked32", "fp32", more),)),
        Op("softmax", "attn.softmax", (scores("masked32", "fp32", more),), (scores("weights32", "fp32", more),)),
        Op("cast", "attn.cast_back", (scores("weights32", "fp32", more),), (kept,)),
        *dropped,
        Op("batch_matmul", "attn.pv", (scores("weights"), v_all), (attended,), batched),
    )


def sees(form: AttentionForm) -> tuple[tuple[str, Attr], ...]:
    """What a query sees, as op attributes: nothing where it is all keys before it, as they are."""
    limits = (("window", form.window), ("chunk", form.chunk), ("alibi", form.alibi))
    return tuple((name, size) for name, size in limits if size)


def _of_mask(form: AttentionForm) -> str:
    return "".join(f"_{name}{size}" for name, size in sees(form))


def _capped(scores: Tensor, cap: float) -> tuple[Op, ...]:
    """cap x tanh(scores / cap) in three calls; nothing where there is no cap."""
    if not cap:
        return ()
    small, flat, out = (activation(name, scores.shape, scores.dtype) for name in ("uncapped", "flattened", "capped"))
    return (
        Op("muls", "attn.cap_down", (scores,), (small,), (("value", 1 / cap),)),
        Op("tanh", "attn.cap_tanh", (small,), (flat,)),
        Op("muls", "attn.cap_up", (flat,), (out,), (("value", cap),)),
    )


def mlp(model: Model, act: DType, tokens: int, source: str = "mlp_in") -> tuple[Op, ...]:
    """The plain MLP of a layer: `source` -> `mlp_out`."""
    x, form = activation(source, (tokens, model.hidden), act), model.form
    *before, down = gated(x, "", model.intermediate, "mlp_out", form.activation, limit=form.limit, bias=form.mlp_bias)
    if form.down_bias and not form.mlp_bias:
        bias = weight("down_proj.bias", (model.hidden,), act)
        down = replace(down, inputs=(*down.inputs, bias))
    return (*before, down)


def gated(
    x: Tensor, prefix: str, width: int, out: str, kind: Activation = "silu", limit: float = 0.0, bias: bool = False
) -> tuple[Op, ...]:
    """down(act(gate(x)) * up(x)), [rows, features]; `prefix` sets the names of one MLP apart from another's. kind,
    limit: of the activation; one without a gate has no such projection."""
    products = tuple(linear(f"{prefix}{name}_proj", x, f"{prefix}{name}", width, bias) for name in PROJECTED[kind])
    wide = activation(f"{prefix}gated", (x.shape[0], width), x.dtype)
    return (
        *products,
        *activated(wide, prefix, kind, limit),
        linear(f"{prefix}down_proj", wide, out, x.shape[-1], bias),
    )


def groups_of(batch: Batch) -> tuple[tuple[int, int, int], ...]:
    """The batch's groups as an op attribute."""
    return tuple((g.count, g.query, g.context) for g in batch.groups)
