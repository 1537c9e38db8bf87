"""Q and K norms over all heads of a layer (MiniMax-M2), whose ranks share the mean of the squares, and layer norms of
each head with weights of its own (Command R+)."""

from __future__ import annotations

from scenarios.lowering.primitives import activation, rms_norm, weight
from scenarios.lowering.step import Step
from scenarios.ops.program import Op, Tensor


def own_norm(step: Step, x: Tensor) -> Op:
    """`q` or `k` [tokens, heads, dim] -> normed, as one call: assumed. vLLM writes it in nine torch calls and leaves
    their fusion to a compiler."""
    gamma = weight(f"{x.name}_norm.weight", x.shape[1:], x.dtype)
    eps = (("eps", step.model.norm_eps),)
    return Op("layer_norm", f"{x.name}_norm", (x, gamma), (activation(f"{x.name}_normed", x.shape, x.dtype),), eps)


def layer_qk_norm(step: Step) -> tuple[Op, ...]:
    """`q` and `k`, [tokens, all their features on this rank] -> `q_normed`, `k_normed`.

    On one rank two plain norms. On several each rank has the mean over its own heads: both means go through one
    all-reduce of [tokens, 2] in float32, as vLLM's MiniMax norm does it, and no fused norm can take their place.
    """
    model, act, ranks = step.model, step.act, step.model.tensor_parallel
    parts = tuple(
        activation(name, (step.tokens, size), act) for name, size in (("q", model.q_size), ("k", model.kv_size))
    )
    if ranks == 1:
        return tuple(op for x in parts for op in rms_norm(f"{x.name}_norm", x, f"{x.name}_normed", model.norm_eps))
    narrow, both = (step.tokens, 1), (step.tokens, 2)
    means = tuple(activation(f"{x.name}_norm.mean", narrow, "fp32") for x in parts)
    joined, mean = activation("qk_norm.means", both, "fp32"), activation("qk_norm.mean", both, "fp32")
    return (
        *(op for x, own in zip(parts, means, strict=True) for op in _squares(x, own)),
        Op("concat", "qk_norm.join", means, (joined,)),
        Op("all_reduce", "qk_norm.all_reduce", (joined,), (joined,), (("ranks", ranks),)),
        Op("muls", "qk_norm.of_ranks", (joined,), (mean,), (("value", 1 / ranks),)),
        *(op for place, x in enumerate(parts) for op in _scaled(x, mean, place, model.norm_eps)),
    )


def _squares(x: Tensor, mean: Tensor) -> tuple[Op, ...]:
    """The mean of the squares of this rank's features."""
    x32 = activation(f"{x.name}_norm.x32", x.shape, "fp32")
    square = activation(f"{x.name}_norm.square", x.shape, "fp32")
    return (
        Op("cast", f"{x.name}_norm.cast", (x,), (x32,)),
        Op("pow", f"{x.name}_norm.pow", (x32,), (square,), (("exponent", 2),)),
        Op("reduce_mean", f"{x.name}_norm.mean", (square,), (mean,)),
    )


def _scaled(x: Tensor, mean: Tensor, place: int, eps: float) -> tuple[Op, ...]:
    """x / sqrt(mean + eps) times gamma; `place`: which of the two means is its own."""
    name, narrow = f"{x.name}_norm", (x.shape[0], 1)
    own, biased, rstd = (activation(f"{name}.{part}", narrow, "fp32") for part in ("own", "biased", "rstd"))
    normal, back = activation(f"{name}.normal", x.shape, "fp32"), activation(f"{name}.back", x.shape, x.dtype)
    gamma = weight(f"{name}.weight", (x.shape[1],), x.dtype)
    read = activation(mean.name, narrow, "fp32")
    return (
        Op("slice", f"{name}.own", (read,), (own,), (("start", place),)),
        Op("adds", f"{name}.add_eps", (own,), (biased,), (("value", eps),)),
        Op("rsqrt", f"{name}.rsqrt", (biased,), (rstd,)),
        Op("mul", f"{name}.mul", (activation(f"{name}.x32", x.shape, "fp32"), rstd), (normal,)),
        Op("cast", f"{name}.cast_back", (normal,), (back,)),
        Op("mul", f"{name}.mul_gamma", (back, gamma), (activation(f"{x.name}_normed", x.shape, x.dtype),)),
    )
