"""How sure a prediction is: the profile's residuals, carried into steps and into ratios of steps.

The kernel model's error is one number per kernel signature: the 36 equal matmuls of a step are wrong together, two
different kernels are wrong independently. Host calls are wrong by class of call (aten, matmul, fused op). Beside these
a step has an error common to its device (another board, another clock) and one common to its host.

With elasticities E (relative change of the step per relative change of all device times) and H (of all host times), and
weights w of the parts (E times a kernel's share of the device time, H times a class's share of the host time),

    var ln(step)  = sum_i (w_i s_i)^2 + (E s_device)^2 + (H s_host)^2
    var ln(a / b) = sum_i ((w_ai - w_bi) s_i)^2 + ((E_a - E_b) s_device)^2 + ((H_a - H_b) s_host)^2

to first order: what two variants share cancels in their ratio. Intervals are the central 90 % of a log-normal.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from math import exp, sqrt

from scenarios.catalogue import CATALOGUE
from sim.hardware.profile import Hardware
from sim.plan import Issue, Plan
from sim.played import launches

#: Half-width of the central 90 % of a normal distribution, in standard deviations.
Z90 = 1.6449
#: Step of the finite differences that give the elasticities.
PROBE = 0.05


@dataclass(frozen=True, slots=True)
class Exposure:
    """A step's length and what it hangs on.

    device, host: elasticities. parts: weight and standard deviation of the log error of each independent part.
    """

    step_ns: int
    device: float
    host: float
    parts: dict[Hashable, tuple[float, float]]


def exposure(step_ns: int, device_probe_ns: int, host_probe_ns: int, plan: Plan, hw: Hardware) -> Exposure:
    """The exposure of a step played at nominal times, with device times and with host times longer by PROBE."""
    device = (device_probe_ns / step_ns - 1) / PROBE
    host = (host_probe_ns / step_ns - 1) / PROBE
    parts = {**_kernel_parts(plan, hw, device), **_call_parts(plan, hw, host)}
    return Exposure(step_ns, device, host, parts)


def _kernel_parts(plan: Plan, hw: Hardware, elasticity: float) -> dict[Hashable, tuple[float, float]]:
    times: dict[Hashable, int] = {}
    kinds: dict[Hashable, str] = {}
    for launch in launches(plan):
        kernel = launch.kernel
        key = (launch.kind, kernel.gm_bytes, kernel.flops, kernel.cores)
        times[key] = times.get(key, 0) + kernel.duration_ns
        kinds[key] = launch.kind
    total = sum(times.values()) or 1
    return {key: (elasticity * time / total, sigma_of(kinds[key], hw)) for key, time in times.items()}


def _call_parts(plan: Plan, hw: Hardware, elasticity: float) -> dict[Hashable, tuple[float, float]]:
    times: dict[str, int] = {}
    for step in plan.steps:
        host_class = CATALOGUE[step.launch.kind].host if isinstance(step, Issue) else "graph"
        host_ns = step.launch.host_ns if isinstance(step, Issue) else step.host_ns
        times[host_class] = times.get(host_class, 0) + host_ns
    total = sum(times.values()) or 1
    sigma = hw.residual.host_class_sigma
    return {("host", name): (elasticity * time / total, sigma) for name, time in times.items()}


def family_of(kind: str) -> str:
    """matmul, attention or vector: the families of kernels that the model's residuals are known for."""
    return "matmul" if "matmul" in kind else "attention" if "attention" in kind else "vector"


def sigma_of(kind: str, hw: Hardware) -> float:
    """Standard deviation of the log error of one kernel signature of `kind`."""
    return float(getattr(hw.residual, f"{family_of(kind)}_sigma"))


def step_interval(it: Exposure, hw: Hardware) -> tuple[float, float]:
    """(low, high) of a step, ns."""
    residual = hw.residual
    variance = sum((weight * sigma) ** 2 for weight, sigma in it.parts.values())
    variance += (it.device * residual.device_sigma) ** 2 + (it.host * residual.host_sigma) ** 2
    width = Z90 * sqrt(variance)
    return it.step_ns * exp(-width), it.step_ns * exp(width)


def ratio_interval(a: Exposure, b: Exposure, hw: Hardware) -> tuple[float, float, float]:
    """(value, low, high) of step a / step b, which share the errors of what they share."""
    residual = hw.residual
    variance = 0.0
    for key in dict.fromkeys((*a.parts, *b.parts)):
        weight_a, sigma_a = a.parts.get(key, (0.0, 0.0))
        weight_b, sigma_b = b.parts.get(key, (0.0, 0.0))
        variance += ((weight_a - weight_b) * max(sigma_a, sigma_b)) ** 2
    variance += ((a.device - b.device) * residual.device_sigma) ** 2
    variance += ((a.host - b.host) * residual.host_sigma) ** 2
    width = Z90 * sqrt(variance)
    value = a.step_ns / b.step_ns
    return value, value * exp(-width), value * exp(width)
