"""How sure a prediction is: the profile's residuals, carried into steps and into ratios of steps.

The kernel model's error is one number per kernel signature: the 36 equal matmuls of a step are wrong together. Kernels
of a step are wrong together in part (S of the variance, `spreads.csv`: the correlation of programs on a stack that no
fit had seen, within a family and across families alike): they share a stack, a board and the kernel variants that are
issued. What lies outside of the fitted shapes is less
sure (`sim.kernel.ranges`). Host calls are wrong by class of call (aten, matmul, fused op). Next to these a step has an
error common to its device (another board, another clock) and one common to its host.

With elasticities E (relative change of the step per relative change of all device times) and H (of all host times), and
weights w of the parts (E times a kernel's share of the device time, H times a class's share of the host time),

    var ln(step)  = (1 - S) sum_i (w_i s_i)^2 + S (sum_i w_i s_i)^2 + (E s_device)^2 + (H s_host)^2
    var ln(a / b) = the same with the differences of a's and b's weights

to first order: what two variants share cancels in their ratio; a product of NZ weights and one of row-major weights are
two programs, and so is one that finds them in L2. Errors have heavy tails (on unseen rows the median error
is a quarter of the 90th percentile; a normal distribution's is 1 / 2.4), so intervals are the central 90 % of Student's
t with four degrees of freedom around the logarithm, whose scale is this root.

Kernels are less sure than the steps that are made of them: part of a kernel's spread is scatter between rows of one
shape, which averages out over layers. What is left of a step's width is fitted to measured steps, each model judged by
the steps of the others (`sim.fitting.steps`). Ratios of steps have no such share.

Waiting for rank skew varies by a factor of three from one measurement to the next, too much for a first
order: its share of the step is stretched and shrunk by exp(1.6449 s), and the change of the step's logarithm joins the
rest's as the root of the sum of squares, upwards and downwards each on its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import chain
from math import exp, expm1, fsum, hypot, log1p, sqrt

from scenarios.ops.catalogue import CATALOGUE, family_of
from scenarios.ops.work import Work
from scenarios.records import dataclass
from sim.hardware.profile import HardwareProfile
from sim.kernel.ranges import extra_sigma, share_of, spreads, step_share
from sim.kernel.time import KernelTime
from sim.step.layout import Layout, Row
from sim.step.plan import Issue, Launch, Plan
from sim.step.schedule import launches

#: Half-width of the central 90 % of a normal distribution, in standard deviations.
Z90 = 1.6449
#: The same of Student's t with four degrees of freedom, in units of its scale.
T90 = 2.1318
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
    step: Plan | Layout | tuple[Layout, ...],
    hw: HardwareProfile,
    in_time_ns: int | None = None,
) -> Sensitivity:
    """The exposure of a step played at nominal times, with device times and with host times longer by PROBE.

    step: its plan, or the columns of each of its stages. in_time_ns: its length if all ranks started together.
    """
    device = (device_probe_ns / step_ns - 1) / PROBE
    host = (host_probe_ns / step_ns - 1) / PROBE
    kernels, calls = (_timed(launches(step)), _calls(step)) if isinstance(step, Plan) else _of_stages(step)
    parts = {**_kernel_parts(kernels, hw, device), **_call_parts(calls, hw, host)}
    late = 0.0 if in_time_ns is None else max(0.0, 1 - in_time_ns / step_ns)
    return Sensitivity(step_ns, device, host, parts, late)


def kernels_sensitivity(kernels: Iterable[Launch], hw: HardwareProfile) -> Sensitivity:
    """The exposure of some kernels of a step: their times, one after the other, and no host."""
    kernels = tuple(kernels)
    total = sum(launch.kernel.duration_ns for launch in kernels)
    return Sensitivity(total, 1.0, 0.0, _kernel_parts(_timed(kernels), hw, 1.0))


def calls_sensitivity(calls: Iterable[tuple[str, int]], hw: HardwareProfile) -> Sensitivity:
    """The exposure of some calls of the host, each with its class and time in ns, one after the other."""
    calls = tuple(calls)
    return Sensitivity(sum(ns for _, ns in calls), 0.0, 1.0, _call_parts(calls, hw, 1.0))


#: A kernel of some kind, and how long it takes or several like it, ns.
Timed = tuple[str, KernelTime, int]


def _timed(kernels: Iterable[Launch]) -> Iterable[Timed]:
    return ((launch.kind, launch.kernel, launch.kernel.duration_ns) for launch in kernels)


def _calls(plan: Plan) -> Iterable[tuple[str, int]]:
    """Host class and time of each host step, ns."""
    for step in plan.steps:
        if isinstance(step, Issue):
            yield CATALOGUE[step.launch.kind].host, step.launch.host_ns
        else:
            yield "graph", step.host_ns


def _of_stages(laid: Layout | tuple[Layout, ...]) -> tuple[Iterable[Timed], Iterable[tuple[str, int]]]:
    """`_of_columns` of a step without stages, or of all its stages."""
    if isinstance(laid, Layout):
        return _of_columns(laid)
    kernels, calls = zip(*map(_of_columns, laid), strict=True)
    return chain.from_iterable(kernels), chain.from_iterable(calls)


def _of_columns(laid: Layout) -> tuple[Iterable[Timed], Iterable[tuple[str, int]]]:
    """The kernels of a step in columns, in the order of its plan, and its host steps by class."""
    kernels: list[Timed] = []
    for block in laid.blocks:
        if any(CATALOGUE[row.item.op.kind].routed for row in block):
            kernels += [_one(laid, row, layer) for layer in range(block[0].block.repeat) for row in block]
        else:
            kernels += [(row.item.op.kind, row.item.kernel, sum(laid.durations_ns[row.places])) for row in block]
    return kernels, laid.call_times().items()


def _one(laid: Layout, row: Row, layer: int) -> Timed:
    return row.item.op.kind, row.item.nominal[layer], laid.durations_ns[row.first + layer * row.apart]


def _kernel_parts(
    kernels: Iterable[Timed], hw: HardwareProfile, elasticity: float
) -> dict[Hashable, tuple[float, float]]:
    times: dict[Hashable, int] = {}
    sigmas: dict[Hashable, float] = {}
    sources: dict[Hashable, str] = {}
    families: dict[str, float] = {}
    for kind, kernel, duration_ns in kernels:
        key = (kind, kernel.gm_bytes, kernel.flops, kernel.cores, kernel.variant)
        times[key] = times.get(key, 0) + duration_ns
        links = kernel.bound == "link"
        if kind not in families:
            families[kind] = sigma_of(kind, hw)
        sigmas[key] = hw.collective.sigma if links else hypot(families[kind], kernel.extra_sigma)
        sources[key] = "links" if links else "kernels"
    total = sum(times.values()) or 1
    weights = {key: elasticity * time / total for key, time in times.items()}
    shared = spreads().shared
    own = {key: (weight, sqrt(1 - shared) * sigmas[key]) for key, weight in weights.items()}
    common: dict[Hashable, tuple[float, float]] = {}
    for source in dict.fromkeys(sources.values()):
        members = [key for key in weights if sources[key] == source]
        weight = sum(weights[key] for key in members)
        exposure = sum(weights[key] * sigmas[key] for key in members)
        common["common", source] = weight, sqrt(shared) * exposure / weight if weight else 0.0
    return {**own, **common}


def _call_parts(
    calls: Iterable[tuple[str, int]], hw: HardwareProfile, elasticity: float
) -> dict[Hashable, tuple[float, float]]:
    times: dict[str, int] = {}
    for host_class, host_ns in calls:
        times[host_class] = times.get(host_class, 0) + host_ns
    total = sum(times.values()) or 1
    sigma = hw.residual.host_class_sigma
    return {("host", name): (elasticity * time / total, sigma) for name, time in times.items()}


def sigma_of(kind: str, hw: HardwareProfile) -> float:
    """Scale of the log error of one kernel signature of `kind`: its family's, times its program's share of that."""
    share = share_of(kind) if hw.profile.device == "npu" else 1.0
    return share * float(getattr(hw.residual, f"{family_of(kind)}_sigma"))


def kernel_width(work: Work, hw: HardwareProfile) -> float:
    """Half-width of the 90 % interval of one kernel's time alone, of its logarithm."""
    extra = 0.0 if hw.profile.device == "cpu" else extra_sigma(work, hw.profile.name)
    return T90 * hypot(sigma_of(work.program, hw), extra, hw.residual.device_sigma)


def implied_width(sensitivity: Sensitivity, hw: HardwareProfile) -> float:
    """Half-width of the 90 % interval of a step's logarithm that its kernels and calls imply, rank skew apart."""
    residual = hw.residual
    variance = fsum((weight * sigma) ** 2 for weight, sigma in sensitivity.parts.values())
    variance += (sensitivity.device * residual.device_sigma) ** 2 + (sensitivity.host * residual.host_sigma) ** 2
    return T90 * sqrt(variance)


def step_interval(sensitivity: Sensitivity, hw: HardwareProfile) -> tuple[float, float]:
    """(low, high) of a step, ns."""
    width = step_share(hw.profile.name) * implied_width(sensitivity, hw)
    down, up = _with_late(width, sensitivity.late, 0.0, hw)
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
    down, up = _with_late(T90 * sqrt(variance), a.late, b.late, hw)
    value = a.step_ns / b.step_ns
    return value, value * exp(-down), value * exp(up)
