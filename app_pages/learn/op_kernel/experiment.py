"""Lesson: an op is what the model says, a kernel is what the device runs. One op can be many kernels, many ops one
kernel, and the deepest fusion is not always the fastest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app_pages.learn.cases import ops_sensitivity, program, ratio_of, step_of_tokens
from app_pages.learn.rounding import relative_error
from app_pages.parts import own
from scenarios.ops.catalogue import op_type_of
from sim.hardware.profile import load_hardware
from sim.predict.ratios import StepRatio
from sim.predict.uncertainty import Sensitivity

#: The feed-forward block in three forms, as settings: three products and two vector kernels, packed and fused, and all
#: in one kernel.
FORMS = {
    "separate": ("optimizations.fusion.gate_up=false", "optimizations.fusion.swiglu=false"),
    "packed": ("optimizations.fusion.gate_up=true", "optimizations.fusion.swiglu=true"),
    "one": ("optimizations.fusion.gate_up=true", "optimizations.fusion.swiglu=true", "optimizations.fusion.ffn=true"),
}
#: float16: the type that npu_ffn takes.
FP16 = ("optimizations.weights=fp16",)
#: Names of the block's ops start so.
OPS = ("gate", "up_proj", "slice_gate", "slice_up", "silu", "mul_up", "swiglu", "down_proj", "ffn")
#: Arguments of torch_npu.npu_add_rms_norm in their order, and what it returns in its.
ARGUMENTS = ("x1", "x2", "gamma", "epsilon")
OUTPUTS = ("y", "rstd", "x")


@dataclass(frozen=True, slots=True)
class Form:
    """One form of the block: its kernels in order, the device time of all, us, and what that depends on."""

    name: str
    kernels: tuple[str, ...]
    device_us: float
    depends_on: Sensitivity


def forms(model: str, hardware: str, tokens: int) -> tuple[Form, ...]:
    """The block of one layer in every form. Raises ScenarioError where a form is refused."""
    return tuple(_form(name, model, hardware, tokens) for name in FORMS)


def _form(name: str, model: str, hardware: str, tokens: int) -> Form:
    case = step_of_tokens(model, hardware, tokens, *FP16, *FORMS[name])
    ops = [op for op in program(case).block("layers").ops if op.name.startswith(OPS)]
    kernels = tuple(op_type_of(op) for op in ops)
    depends_on = ops_sensitivity(ops, case.hardware)
    return Form(name, kernels, depends_on.step_ns / 1000, depends_on)


def ratio(form: Form, other: Form, hardware: str) -> StepRatio:
    """Device time of `form` over that of `other`, with its interval."""
    return ratio_of(form.depends_on, other.depends_on, load_hardware(own.resolved(hardware)))


@dataclass(frozen=True, slots=True)
class Mistake:
    """One wrong way to call the fused norm, and the largest relative error of what then goes on as its result."""

    name: str
    error: float


def mistakes(rows: int = 8, width: int = 64, seed: int = 0) -> tuple[Mistake, ...]:
    """The fused norm called right and in two wrong ways, computed: gamma and the residual exchanged (where shapes allow
    it), and the third output, the sum, taken for the first."""
    random = np.random.default_rng(seed)
    x, residual = random.normal(size=(rows, width)), random.normal(size=(rows, width))
    gamma = random.normal(1, 0.2, size=(rows, width))  # of the residual's shape, so that nothing refuses it

    def norm(a: np.ndarray, b: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        total = a + b
        return total / np.sqrt(np.mean(total * total, -1, keepdims=True) + 1e-6) * g, total

    right, total = norm(x, residual, gamma)
    exchanged, _ = norm(x, gamma, residual)
    errors = {"right": right, "exchanged": exchanged, "third": total}
    return tuple(Mistake(name, relative_error(value, right)) for name, value in errors.items())
