"""How sure a prediction is: the profile's residuals, carried into steps and into ratios of steps.

The kernel model's error is one number per kernel signature: the 36 equal matmuls of a step are wrong together, two
different kernels are wrong independently. Host calls are wrong by class of call (aten, matmul, fused op). Next to these
a step has an error common to its device (another board, another clock) and one common to its host.

With elasticities E (relative change of the step per relative change of all device times) and H (of all host times), and
weights w of the parts (E times a kernel's share of the device time, H times a class's share of the host time),

    var ln(step)  = sum_i (w_i s_i)^2 + (E s_device)^2 + (H s_host)^2
    var ln(a / b) = sum_i ((w_ai - w_bi) s_i)^2 + ((E_a - E_b) s_device)^2 + ((H_a - H_b) s_host)^2

to first order: what two variants share cancels in their ratio. Intervals are the central 90 % of a log-normal.

Waiting for rank skew varies by a factor of three from one measurement to the next, too much for a first
order: its share of the step is stretched and shrunk by exp(1.6449 s), and the change of the step's logarithm joins the
rest's as the root of the sum of squares, upwards and downwards each on its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from math import exp, expm1, hypot, log1p, sqrt

from scenarios.ops.catalogue import CATALOGUE, family_of
from sim.hardware.profile import HardwareProfile
from sim.step.plan import Issue, Launch, Plan
from sim.step.schedule import launches

#: Half-width of the central 90 % of a normal distribution, in standard deviations.
Z90 = 1.6449
#: Step of the finite differences that give the elasticities.
PROBE = 0.05


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """A step's length and what it depends on.

    device, host: elasticities. parts: weight and standard deviation of the log error of each independent part. late:
    share of the step that is waiting for rank skew.
    """

    step_ns: int
    device: float
    host: float
    parts: dict[Hashable, tuple[float, float]]
    late: float = 0.0


def sensitivity(
    step_ns: int,
    device_probe_ns: int,
    host_probe_ns: int,
    plan: Plan,
    hw: HardwareProfile,
    in_time_ns: int | None = None,
) -> Sensitivity:
    """The exposure of a step played at nominal times, with device times and with host times longer by PROBE.

    in_time_ns: its length if all ranks started together.
    """
    device = (device_probe_ns / step_ns - 1) / PROBE
    host = (host_probe_ns / step_ns - 1) / PROBE
    parts = {**_kernel_parts(launches(plan), hw, device), **_call_parts(plan, hw, host)}
    late = 0.0 if in_time_ns is None else max(0.0, 1 - in_time_ns / step_ns)
    return Sensitivity(step_ns, device, host, parts, late)


def kernels_sensitivity(kernels: Iterable[Launch], hw: HardwareProfile) -> Sensitivity:
    """The exposure of some kernels of a step: their times, one after the other, and no host."""
    kernels = tuple(kernels)
    total = sum(launch.kernel.duration_ns for launch in kernels)
    return Sensitivity(total, 1.0, 0.0, _kernel_parts(kernels, hw, 1.0))


def _kernel_parts(
    kernels: Iterable[Launch], hw: HardwareProfile, elasticity: float
) -> dict[Hashable, tuple[float, float]]:
    times: dict[Hashable, int] = {}
    sigmas: dict[Hashable, float] = {}
    for launch in kernels:
        kernel = launch.kernel
        key = (launch.kind, kernel.gm_bytes, kernel.flops, kernel.cores)
        times[key] = times.get(key, 0) + kernel.duration_ns
        sigmas[key] = hw.collective.sigma if kernel.bound == "link" else sigma_of(launch.kind, hw)
    total = sum(times.values()) or 1
    return {key: (elasticity * time / total, sigmas[key]) for key, time in times.items()}


def _call_parts(plan: Plan, hw: HardwareProfile, elasticity: float) -> dict[Hashable, tuple[float, float]]:
    times: dict[str, int] = {}
    for step in plan.steps:
        host_class = CATALOGUE[step.launch.kind].host if isinstance(step, Issue) else "graph"
        host_ns = step.launch.host_ns if isinstance(step, Issue) else step.host_ns
        times[host_class] = times.get(host_class, 0) + host_ns
    total = sum(times.values()) or 1
    sigma = hw.residual.host_class_sigma
    return {("host", name): (elasticity * time / total, sigma) for name, time in times.items()}


def sigma_of(kind: str, hw: HardwareProfile) -> float:
    """Standard deviation of the log error of one kernel signature of `kind`."""
    return float(getattr(hw.residual, f"{family_of(kind)}_sigma"))


def step_interval(sensitivity: Sensitivity, hw: HardwareProfile) -> tuple[float, float]:
    """(low, high) of a step, ns."""
    residual = hw.residual
    variance = sum((weight * sigma) ** 2 for weight, sigma in sensitivity.parts.values())
    variance += (sensitivity.device * residual.device_sigma) ** 2 + (sensitivity.host * residual.host_sigma) ** 2
    down, up = _with_late(Z90 * sqrt(variance), sensitivity.late, 0.0, hw)
    return sensitivity.step_ns * exp(-down), sensitivity.step_ns * exp(up)


def _with_late(width: float, late_a: float, late_b: float, hw: HardwareProfile) -> tuple[float, float]:
    """(down, up): widths of ln(a / b) with what waiting for rank skew adds to `width`."""
    spread = Z90 * hw.residual.rank_skew_sigma
    moves = [log1p(late_a * expm1(z)) - log1p(late_b * expm1(z)) for z in (-spread, spread)]
    return hypot(width, min(0.0, *moves)), hypot(width, max(0.0, *moves))


def ratio_interval(a: Sensitivity, b: Sensitivity, hw: HardwareProfile) -> tuple[float, float, float]:
    """(value, low, high) of step a / step b, which share the errors of what they share."""
    residual = hw.residual
    variance = 0.0
    for key in dict.fromkeys((*a.parts, *b.parts)):
        weight_a, sigma_a = a.parts.get(key, (0.0, 0.0))
        weight_b, sigma_b = b.parts.get(key, (0.0, 0.0))
        variance += ((weight_a - weight_b) * max(sigma_a, sigma_b)) ** 2
    variance += ((a.device - b.device) * residual.device_sigma) ** 2
    variance += ((a.host - b.host) * residual.host_sigma) ** 2
    down, up = _with_late(Z90 * sqrt(variance), a.late, b.late, hw)
    value = a.step_ns / b.step_ns
    return value, value * exp(-down), value * exp(up)
