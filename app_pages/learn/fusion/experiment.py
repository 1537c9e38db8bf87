"""Lesson: fusing a residual add and its RMSNorm saves launches and round trips, not arithmetic.

Three forms of the same formula: primitive calls, Add and a fused RMSNorm, one AddRmsNorm. Their kernels are those of
the Program, priced by the simulator; their numerics are computed here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from app_pages.learn.cases import ops_sensitivity, program, ratio_of, step_of_tokens
from app_pages.learn.rounding import Precision, relative_error, rounded
from app_pages.parts import own
from scenarios.ops.catalogue import CATALOGUE, op_type_of, work_of
from scenarios.ops.program import Op
from sim.hardware.profile import HardwareProfile, load_hardware
from sim.kernel.price import params_of, price
from sim.kernel.tiles_simpy import LaneSpan, play
from sim.kernel.vector import vector_cost
from sim.predict.ratios import StepRatio
from sim.predict.uncertainty import Sensitivity, calls_sensitivity
from sim.step.priced import host_costs_ns

#: Switches of each form. Names of ops that belong to it start with one of OPS.
FORMS = {
    "primitives": ("optimizations.fusion.rms_norm=false", "optimizations.fusion.add_rms_norm=false"),
    "add, rms_norm": ("optimizations.fusion.add_rms_norm=false",),
    "add_rms_norm": (),
}
OPS = ("add_attention", "post_attention_norm")
#: Tiles drawn of one kernel; more would be one colour.
MAX_TILES = 64


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel: bytes it reads and writes in global memory, its time alone and what the host spends to issue it."""

    name: str
    op_type: str
    read_bytes: int
    write_bytes: int
    device_us: float
    host_us: float
    bound: str


@dataclass(frozen=True, slots=True)
class Form:
    """The kernels of one form. on_device, on_host: its times there, and what they depend on."""

    name: str
    kernels: tuple[Kernel, ...]
    on_device: Sensitivity
    on_host: Sensitivity

    @property
    def moved_bytes(self) -> int:
        return sum(k.read_bytes + k.write_bytes for k in self.kernels)

    @property
    def device_us(self) -> float:
        return sum(k.device_us for k in self.kernels)

    @property
    def host_us(self) -> float:
        return sum(k.host_us for k in self.kernels)

    @property
    def eager(self) -> Sensitivity:
        """Where the host issues op by op the slower of the two decides."""
        return self.on_host if self.host_us > self.device_us else self.on_device


@dataclass(frozen=True, slots=True)
class Lane:
    """Tiles of one kernel on the lanes of its fullest core. start_us: when the kernel starts, the form's first at 0."""

    kernel: str
    start_us: float
    head_us: float
    tiles: int
    spans: tuple[LaneSpan, ...]


def forms(model: str, hardware: str, tokens: int) -> tuple[Form, ...]:
    """The three forms for `tokens` rows of the model's hidden size. Raises ScenarioError for unknown names."""
    return tuple(_form(name, *_ops(name, model, hardware, tokens)) for name in FORMS)


def _ops(form: str, model: str, hardware: str, tokens: int) -> tuple[list[Op], HardwareProfile]:
    case = step_of_tokens(model, hardware, tokens, *FORMS[form])
    ops = [op for op in program(case).block("layers").ops if op.name.startswith(OPS)]
    return ops, case.hardware


def _form(name: str, ops: list[Op], hardware: HardwareProfile) -> Form:
    kernels, calls = [], []
    for op in ops:
        work = work_of(op)
        time = price(work, hardware)
        # With two host threads the slower of them sets the pace.
        host_ns = round(max(host_costs_ns(op, hardware, 1)))
        calls.append((CATALOGUE[op.kind].host, host_ns))
        kernels.append(
            Kernel(
                name=op.name,
                op_type=op_type_of(op),
                read_bytes=work.cold_read_bytes + work.warm_read_bytes,
                write_bytes=work.write_bytes,
                device_us=time.duration_ns / 1000,
                host_us=host_ns / 1000,
                bound=time.bound,
            )
        )
    return Form(name, tuple(kernels), ops_sensitivity(ops, hardware), calls_sensitivity(calls, hardware))


def ratio(first: Sensitivity, second: Sensitivity, hardware: str) -> StepRatio:
    """The time of one form over that of another, with its interval."""
    return ratio_of(first, second, load_hardware(own.resolved(hardware)))


def lanes(form: str, model: str, hardware: str, tokens: int) -> tuple[Lane, ...]:
    """Inside each kernel of `form`: load (MTE2), compute and store (MTE3) of the fullest core, kernels in turn."""
    ops, hw = _ops(form, model, hardware, tokens)
    drawn, start_us = [], 0.0
    for op in ops:
        work = work_of(op)
        cost = vector_cost(work, hw, params_of(work, hw), code="cold", resident=False)
        assert cost.tile is not None
        spans = play([[cost.tile] * min(cost.tiles, MAX_TILES)])
        drawn.append(Lane(op.name, start_us, cost.head_ns / 1000, cost.tiles, spans))
        start_us += cost.total_ns / 1000
    return tuple(drawn)


@dataclass(frozen=True, slots=True)
class Numerics:
    """Largest relative error of each form against float64, and between the last two."""

    errors: dict[str, float]
    apart: float


def numerics(rows: int, cols: int, precision: Precision, seed: int = 0, eps: float = 1e-6) -> Numerics:
    """The three forms computed on seeded random rows, each rounded where its kernels write to memory."""
    random = np.random.default_rng(seed)
    x, residual = (rounded(random.normal(size=(rows, cols)), precision) for _ in range(2))
    gamma = rounded(random.normal(1, 0.1, size=cols), precision)
    exact = _exact(x, residual, gamma, eps)
    total = rounded(x + residual, precision)
    inverse = 1 / np.sqrt(np.mean(total * total, -1, keepdims=True, dtype=np.float32) + np.float32(eps))
    by_primitives = rounded(rounded(total * inverse, precision) * gamma, precision)
    fused_norm = rounded(total * inverse * gamma, precision)
    wide = x + residual  # one kernel may keep the sum on chip in float32
    inverse = 1 / np.sqrt(np.mean(wide * wide, -1, keepdims=True, dtype=np.float32) + np.float32(eps))
    fused = rounded(wide * inverse * gamma, precision)
    outputs = dict(zip(FORMS, (by_primitives, fused_norm, fused), strict=True))
    errors = {name: relative_error(y, exact) for name, y in outputs.items()}
    return Numerics(errors, relative_error(fused, fused_norm.astype(np.float64)))


def _exact(
    x: npt.NDArray[np.float32], residual: npt.NDArray[np.float32], gamma: npt.NDArray[np.float32], eps: float
) -> npt.NDArray[np.float64]:
    total = x.astype(np.float64) + residual
    normed: npt.NDArray[np.float64] = total / np.sqrt(np.mean(total * total, -1, keepdims=True) + eps) * gamma
    return normed
