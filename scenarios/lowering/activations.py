"""What stands between the projections of an MLP, as separate calls: `gate` and `up` -> `gated`."""

from __future__ import annotations

from dataclasses import replace

from scenarios.models.forms import CLAMPED_ALPHA, Activation
from scenarios.ops.program import Attr, Op, Tensor


def activated(out: Tensor, prefix: str, kind: Activation, limit: float) -> tuple[Op, ...]:
    """The values called `{prefix}gate` and `{prefix}up`, shaped as `out`, -> `out`. limit: of the clamped kind."""

    def named(name: str) -> Tensor:
        return replace(out, name=f"{prefix}{name}")

    def op(kind: str, name: str, inputs: tuple[str, ...], result: str, *attrs: tuple[str, Attr]) -> Op:
        return Op(kind, f"{prefix}{name}", tuple(map(named, inputs)), (named(result),), attrs)

    if kind == "relu2":
        return op("relu", "relu", ("up",), "relu_up"), op("pow", "square", ("relu_up",), "gated", ("exponent", 2))
    if kind == "clamped":  # vLLM-Ascend computes gpt-oss's SwiGLU with torch calls too (ops/activation.py)
        return (
            op("clamp", "clamp_gate", ("gate",), "gate_clamped", ("max", limit)),
            op("clamp", "clamp_up", ("up",), "up_clamped", ("min", -limit), ("max", limit)),
            op("muls", "steeper", ("gate_clamped",), "gate_steeper", ("value", CLAMPED_ALPHA)),
            op("sigmoid", "sigmoid", ("gate_steeper",), "gate_sigmoid"),
            op("mul", "glu", ("gate_clamped", "gate_sigmoid"), "glu"),
            op("adds", "up_plus_one", ("up_clamped",), "up_plus", ("value", 1.0)),
            op("mul", "mul_up", ("glu", "up_plus"), "gated"),
        )
    return (
        op(kind, kind, ("gate",), f"{kind}_gate"),
        op("mul", "mul_up", (f"{kind}_gate", "up"), "gated"),
    )
