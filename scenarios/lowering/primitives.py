"""The primitive calls that eager torch code makes for the compound operations of a decoder."""

from __future__ import annotations

from dataclasses import dataclass

from scenarios.models.model import Model
from scenarios.ops.program import Batch, DType, Op, Tensor


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


def rms_norm(name: str, x: Tensor, out: str, eps: float) -> tuple[Op, ...]:
    """RMSNorm as a Hugging Face model writes it: eight calls, the middle ones in float32.

    cast, pow, mean, add eps, rsqrt, mul, cast back, mul gamma (the fused form is one call).
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
    gamma = weight(f"{name}.weight", (x.shape[-1],), x.dtype)
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
    q: Tensor, cache: Cache, out: str, groups: tuple[tuple[int, int, int], ...], kv_heads: int
) -> tuple[Op, ...]:
    """Attention as separate calls, for requests padded to the longest: repeat K and V over the group, QK, scale, mask,
    softmax, PV.

    q [tokens, heads, dim]. Scores are [requests x heads, queries, keys].
    """
    _, heads, dim = q.shape
    requests = sum(count for count, _, _ in groups)
    queries = max(query for _, query, _ in groups)
    keys = max(context + query for _, query, context in groups)
    dtype: DType = q.dtype
    repeated = (requests, heads, keys, dim)
    k_all, v_all = activation("k_repeated", repeated, dtype), activation("v_repeated", repeated, dtype)
    k_seen = Tensor(cache.key.name, (requests, kv_heads, keys, dim), cache.key.dtype, "kv_cache")
    v_seen = Tensor(cache.value.name, (requests, kv_heads, keys, dim), cache.value.dtype, "kv_cache")
    q_padded = activation(q.name, (requests, heads, queries, dim), dtype)
    scores_shape = (requests, heads, queries, keys)

    def scores(name: str, of: DType = dtype) -> Tensor:
        return activation(name, scores_shape, of)

    mask = Tensor("mask", (requests, 1, queries, keys), dtype)
    batched = (("batched", True),)
    return (
        Op("expand", "attn.repeat_k", (k_seen,), (k_all,)),
        Op("expand", "attn.repeat_v", (v_seen,), (v_all,)),
        Op("batch_matmul", "attn.qk", (q_padded, k_all), (scores("scores"),), batched),
        Op("muls", "attn.scale", (scores("scores"),), (scores("scaled"),), (("value", dim**-0.5),)),
        Op("add", "attn.mask", (scores("scaled"), mask), (scores("masked"),)),
        Op("cast", "attn.to_fp32", (scores("masked"),), (scores("masked32", "fp32"),)),
        Op("softmax", "attn.softmax", (scores("masked32", "fp32"),), (scores("weights32", "fp32"),)),
        Op("cast", "attn.cast_back", (scores("weights32", "fp32"),), (scores("weights"),)),
        Op("batch_matmul", "attn.pv", (scores("weights"), v_all), (activation(out, q.shape, dtype),), batched),
    )


def mlp(model: Model, act: DType, tokens: int) -> tuple[Op, ...]:
    """The plain MLP of a layer: `mlp_in` -> `mlp_out`."""
    x = activation("mlp_in", (tokens, model.hidden), act)
    return gated(x, "", model.intermediate, "mlp_out")


def gated(x: Tensor, prefix: str, width: int, out: str) -> tuple[Op, ...]:
    """down(silu(gate(x)) * up(x)), [rows, features]; `prefix` sets the names of one MLP apart from another's."""
    wide = (x.shape[0], width)

    def inner(name: str) -> Tensor:
        return activation(f"{prefix}{name}", wide, x.dtype)

    return (
        linear(f"{prefix}gate_proj", x, f"{prefix}gate", width),
        linear(f"{prefix}up_proj", x, f"{prefix}up", width),
        Op("silu", f"{prefix}silu", (inner("gate"),), (inner("silu_gate"),)),
        Op("mul", f"{prefix}mul_up", (inner("silu_gate"), inner("up")), (inner("gated"),)),
        linear(f"{prefix}down_proj", inner("gated"), out, x.shape[-1]),
    )


def groups_of(batch: Batch) -> tuple[tuple[int, int, int], ...]:
    """The batch's groups as an op attribute."""
    return tuple((g.count, g.query, g.context) for g in batch.groups)
