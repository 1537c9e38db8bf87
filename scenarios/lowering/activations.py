"""What stands between the projections of an MLP, as separate calls: `gate` and `up` -> `gated`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from scenarios.models.forms import CLAMPED_ALPHA, XIELU_BETA, XIELU_EPS, Activation
from scenarios.ops.program import Attr, Op, Tensor
from scenarios.records import dataclass


def activated(out: Tensor, prefix: str, kind: Activation, limit: float) -> tuple[Op, ...]:
    """The values called `{prefix}gate` and `{prefix}up`, shaped as `out`, -> `out`. limit: of the clamped kind."""
    return _CALLS[kind](_Calls(out, prefix), limit)


@dataclass(frozen=True, slots=True)
class _Calls:
    """Makes the calls of one MLP, whose values are shaped as `out` and named behind `prefix`."""

    out: Tensor
    prefix: str

    def op(self, kind: str, name: str, inputs: tuple[str, ...], result: str, *attrs: tuple[str, Attr]) -> Op:
        return Op(kind, f"{self.prefix}{name}", tuple(map(self._named, inputs)), (self._named(result),), attrs)

    def _named(self, name: str) -> Tensor:
        return replace(self.out, name=f"{self.prefix}{name}")


def _gated_by(kind: str) -> Callable[[_Calls, float], tuple[Op, ...]]:
    def gate_and_mul(mlp: _Calls, _: float) -> tuple[Op, ...]:
        gate = f"{kind}_gate"
        return mlp.op(kind, kind, ("gate",), gate), mlp.op("mul", "mul_up", (gate, "up"), "gated")

    return gate_and_mul


def _squared(mlp: _Calls, _: float) -> tuple[Op, ...]:
    relu = mlp.op("relu", "relu", ("up",), "relu_up")
    return relu, mlp.op("pow", "square", ("relu_up",), "gated", ("exponent", 2))


def _gelu_alone(mlp: _Calls, _: float) -> tuple[Op, ...]:
    return (mlp.op("gelu", "gelu", ("up",), "gated"),)


def _clamped(mlp: _Calls, limit: float) -> tuple[Op, ...]:
    """vLLM-Ascend computes gpt-oss's SwiGLU with torch calls too (ops/activation.py)."""
    return (
        mlp.op("clamp", "clamp_gate", ("gate",), "gate_clamped", ("max", limit)),
        mlp.op("clamp", "clamp_up", ("up",), "up_clamped", ("min", -limit), ("max", limit)),
        mlp.op("muls", "steeper", ("gate_clamped",), "gate_steeper", ("value", CLAMPED_ALPHA)),
        mlp.op("sigmoid", "sigmoid", ("gate_steeper",), "gate_sigmoid"),
        mlp.op("mul", "glu", ("gate_clamped", "gate_sigmoid"), "glu"),
        mlp.op("adds", "up_plus_one", ("up_clamped",), "up_plus", ("value", 1.0)),
        mlp.op("mul", "mul_up", ("glu", "up_plus"), "gated"),
    )


def _capped(mlp: _Calls, limit: float) -> tuple[Op, ...]:
    """Step-3.5's SwiGLU (vLLM's SwigluStepAndMul): both halves limited, the gate behind its SiLU."""
    return (
        mlp.op("silu", "silu", ("gate",), "silu_gate"),
        mlp.op("clamp", "clamp_gate", ("silu_gate",), "gate_clamped", ("max", limit)),
        mlp.op("clamp", "clamp_up", ("up",), "up_clamped", ("min", -limit), ("max", limit)),
        mlp.op("mul", "mul_up", ("gate_clamped", "up_clamped"), "gated"),
    )


def _limited(mlp: _Calls, limit: float) -> tuple[Op, ...]:
    """DeepSeek-V4's SwiGLU (vLLM's SiluAndMulWithClamp): both halves limited, the gate before its SiLU."""
    return (
        mlp.op("clamp", "clamp_gate", ("gate",), "gate_clamped", ("max", limit)),
        mlp.op("clamp", "clamp_up", ("up",), "up_clamped", ("min", -limit), ("max", limit)),
        mlp.op("silu", "silu", ("gate_clamped",), "silu_gate"),
        mlp.op("mul", "mul_up", ("silu_gate", "up_clamped"), "gated"),
    )


def _xielu(mlp: _Calls, _: float) -> tuple[Op, ...]:
    """alpha_p x^2 + beta x above zero, alpha_n (e^x - 1 - x) + beta x below, as transformers' torch code; its two
    learned numbers are made positive once, where weights are loaded."""
    above, below = (Tensor(f"{mlp.prefix}xielu_{part}.weight", (1,), mlp.out.dtype, "weight") for part in "pn")
    square = mlp.op("pow", "square", ("up",), "up_squared", ("exponent", 2))
    kept = mlp.op("mul", "xielu_above", ("up_squared",), "xielu_high")
    limited = mlp.op("clamp", "xielu_limit", ("up",), "up_limited", ("max", XIELU_EPS))
    power = mlp.op("expm1", "xielu_exp", ("up_limited",), "up_exp")
    rest = mlp.op("add", "xielu_sub", ("up_exp", "up"), "up_rest", ("alpha", -1))
    lower = mlp.op("mul", "xielu_below", ("up_rest",), "xielu_low")
    return (
        square,
        replace(kept, inputs=(*kept.inputs, above)),
        limited,
        power,
        replace(rest, op_type="Sub"),
        replace(lower, inputs=(*lower.inputs, below)),
        mlp.op("where", "xielu_where", ("up", "xielu_high", "xielu_low"), "xielu_curve"),
        mlp.op("muls", "xielu_slope", ("up",), "xielu_line", ("value", XIELU_BETA)),
        mlp.op("add", "xielu_add", ("xielu_curve", "xielu_line"), "gated"),
    )


#: (calls, limit) -> the calls of each activation.
_CALLS: dict[Activation, Callable[[_Calls, float], tuple[Op, ...]]] = {
    "silu": _gated_by("silu"),
    "gelu": _gated_by("gelu"),
    "clamped": _clamped,
    "capped": _capped,
    "limited": _limited,
    "relu2": _squared,
    "gelu_alone": _gelu_alone,
    "xielu": _xielu,
}
