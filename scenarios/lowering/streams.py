"""A residual of several streams (manifold-constrained hyper-connections, DeepSeek-V4).

Calls as vLLM-Ascend makes them: npu_hc_pre_v2 before attention and MLP, npu_hc_post behind them, torch calls for the
weighed sum behind the layers. The copies of the streams that its code asks for are taken to be left out, as nothing is
written to them (assumed).
"""

from __future__ import annotations

from scenarios.lowering.primitives import activation, linear, weight
from scenarios.models.forms import HyperConnections
from scenarios.models.model import Model
from scenarios.ops.program import DType, Op, Tensor


def streams_of(model: Model, tokens: int, act: DType) -> Tensor:
    """The residual, [tokens, streams x hidden]."""
    return activation("streams", (tokens, model.form.streams * model.hidden), act)


def repeated(model: Model, embedded: Tensor) -> Op:
    """Each stream starts as the embedding."""
    return Op("expand", "repeat_streams", (embedded,), (streams_of(model, embedded.shape[0], embedded.dtype),))


def read_streams(model: Model, hyper: HyperConnections, place: str, tokens: int, act: DType) -> Op:
    """The weighed sum that attention or MLP reads, `{place}_read`, and what weighs its result and mixes the streams."""
    streams, count = streams_of(model, tokens, act), hyper.streams
    outs = (
        activation(f"{place}_read", (tokens, model.hidden), act),
        activation(f"{place}_gain", (tokens, count), "fp32"),
        activation(f"{place}_mix", (tokens, count * count), "fp32"),
    )
    weights = (
        weight(f"hc_{place}.fn", (hyper.mixed, streams.shape[1]), "fp32"),
        weight(f"hc_{place}.base", (hyper.mixed,), "fp32"),
        weight(f"hc_{place}.factors", (3,), "fp32"),
    )
    attrs = (("mixed", hyper.mixed), ("iterations", hyper.iterations), ("eps", hyper.eps), ("norm_eps", model.norm_eps))
    return Op("hc_pre", f"hc_{place}_pre", (streams, *weights), outs, attrs)


def written_streams(model: Model, place: str, given: Tensor) -> Op:
    """What attention or MLP gives, added to each mixed stream."""
    streams, count = streams_of(model, given.shape[0], given.dtype), model.form.streams
    weights = (
        activation(f"{place}_gain", (given.shape[0], count), "fp32"),
        activation(f"{place}_mix", (given.shape[0], count * count), "fp32"),
    )
    return Op("hc_post", f"hc_{place}_post", (given, streams, *weights), (streams,))


def summed_streams(model: Model, hyper: HyperConnections, tokens: int, act: DType) -> tuple[Op, ...]:
    """The weighed sum behind the layers: `streams` -> `residual`, in 32 bits, as separate calls."""
    streams, count = streams_of(model, tokens, act), hyper.streams
    few, one, wide = (tokens, count), (tokens, 1), (tokens, count, model.hidden)

    def named(name: str, shape: tuple[int, ...]) -> Tensor:
        return activation(f"hc_head.{name}", shape, "fp32")

    x32 = named("x32", streams.shape)
    return (
        Op("cast", "hc_head.cast", (streams,), (x32,)),
        Op("pow", "hc_head.pow", (x32,), (named("square", streams.shape),), (("exponent", 2),)),
        Op("reduce_mean", "hc_head.mean", (named("square", streams.shape),), (named("mean", one),)),
        Op("adds", "hc_head.add_eps", (named("mean", one),), (named("biased", one),), (("value", model.norm_eps),)),
        Op("rsqrt", "hc_head.rsqrt", (named("biased", one),), (named("rstd", one),)),
        linear("hc_head_fn", x32, "hc_head.raw", count),
        Op("mul", "hc_head.mul", (named("raw", few), named("rstd", one)), (named("normed", few),)),
        Op(
            "mul",
            "hc_head.steeper",
            (named("normed", few), weight("hc_head.factors", (1,), "fp32")),
            (named("steeper", few),),
        ),
        Op(
            "add",
            "hc_head.add_base",
            (named("steeper", few), weight("hc_head.base", (count,), "fp32")),
            (named("shifted", few),),
        ),
        Op("sigmoid", "hc_head.sigmoid", (named("shifted", few),), (named("open", few),)),
        Op("adds", "hc_head.add_floor", (named("open", few),), (named("weights", few),), (("value", hyper.eps),)),
        Op("mul", "hc_head.weigh", (named("x32", wide), named("weights", (*few, 1))), (named("weighed", wide),)),
        Op(
            "reduce_mean",
            "hc_head.sum",
            (named("weighed", wide),),
            (named("sum", (tokens, model.hidden)),),
            op_type="ReduceSum",
        ),
        Op(
            "cast",
            "hc_head.cast_back",
            (named("sum", (tokens, model.hidden)),),
            (activation("residual", (tokens, model.hidden), act),),
        ),
    )
