"""The bottleneck of a measured step by name, with its evidence: the words of `sim.predict.explain`, a capture's
numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

from scenarios.profile import Capture, Kind, Step
from scenarios.records import dataclass
from scenarios.timeline import StepTime
from sim.hardware.profile import HardwareProfile
from sim.imported.gaps import Gaps, gaps_of
from sim.imported.kernels import MeasuredKernel, in_step, kernels_of
from sim.imported.names import short_name
from sim.imported.parts import parts_of
from sim.imported.ranks import Waits
from sim.predict.shares import Name, bottleneck_of, by_name, mixed_evidence, shares_of


@dataclass(frozen=True, slots=True)
class Found:
    """What one rank's step says. limits_us: time by what limits it: kernels by what bounds them, communication that
    nothing hides, idle time by its cause. shares: the parts of the step, which sum to 1. launches: host calls that
    issued the step's kernels."""

    capture: Capture
    step: Step
    time: StepTime
    kernels: tuple[MeasuredKernel, ...]
    gaps: Gaps
    limits_us: dict[str, float]
    shares: dict[str, float]
    name: Name
    evidence: str
    launches: int
    kernel_count: int
    collective_count: int


def diagnose_step(
    capture: Capture, step: Step, time: StepTime, waits: Waits, hardware: HardwareProfile | None
) -> Found:
    """Name the bottleneck of one rank's step, whose time is `time`."""
    kernels = kernels_of(capture, step, time.total_ns, hardware)
    gaps = gaps_of(capture, step)
    parts = parts_of(capture, step, time, kernels, gaps, waits)
    name, made_of = bottleneck_of(parts, time.total_ns)
    rows = in_step(capture, step, Kind.KERNEL, Kind.COLLECTIVE)
    launched = capture.events.launched_by[rows]
    evidence = [
        _evidence(one, capture, time=time, kernels=kernels, gaps=gaps, waits=waits, hardware=hardware)
        for one in made_of
    ]
    return Found(
        capture=capture,
        step=step,
        time=time,
        kernels=kernels,
        gaps=gaps,
        limits_us={limit: ns / 1000 for limit, ns in by_name(parts).items()},
        shares=shares_of(parts, time.total_ns),
        name=name,
        evidence=evidence[0] if name != "mixed" else mixed_evidence(evidence[:2], parts, time.total_ns),
        launches=len(set(launched[launched >= 0].tolist())),
        kernel_count=sum(k.count for k in kernels),
        collective_count=len(in_step(capture, step, Kind.COLLECTIVE)),
    )


def _evidence(
    name: Name,
    capture: Capture,
    time: StepTime,
    kernels: Sequence[MeasuredKernel],
    gaps: Gaps,
    waits: Waits,
    hardware: HardwareProfile | None,
) -> str:
    total, free = max(1, time.total_ns), time.free_ns / max(1, time.total_ns)
    if name == "host-bound":
        return _host_evidence(time, gaps, free)
    if name == "idle-bound":
        return _idle_evidence(capture, time, gaps, free)
    if name == "communication-bound":
        return _communication_evidence(capture, time, waits)
    mine = [kernel for kernel in kernels if kernel.limit == name]
    top, us = mine[0], fsum(k.total_us for k in mine)
    share = us / max(1e-9, fsum(k.total_us for k in kernels))
    sources = {k.bound_source for k in mine}
    said = (
        "by the profiler's pipe counters"
        if sources == {"measured"}
        else "by the model's price of their shapes"
        if sources == {"predicted"}
        else "by their names alone, since the profile has no pipe counters"
        if sources == {"assumed"}
        else "by pipe counters, prices and names"
    )
    detail = (
        f"most of it in {short_name(top.op_type)} ({top.total_us / 1000:.2f} ms in {_times(top.count)})"
        f"{_reached(top, hardware)}"
    )
    return (
        f"{share:.0%} of kernel time ({us / 1000:.2f} ms of {total / 1e6:.2f} ms step) is {name}, {said}: {detail}; "
        f"the device is idle for {free:.0%} of the step"
    )


def _times(count: int) -> str:
    return f"{count:,} call{'' if count == 1 else 's'}"


def _reached(kernel: MeasuredKernel, hardware: HardwareProfile | None) -> str:
    if kernel.roofline_share is None or kernel.gbps is None or kernel.tflops is None or hardware is None:
        return ""
    if kernel.tflops >= 0.05:
        return f", at {kernel.tflops:.0f} of {hardware.chip.cube_flops_per_ns / 1000:.0f} TFLOPS"
    return f", at {kernel.gbps / 1000:.2f} of {hardware.memory.hbm_peak_gbps / 1000:.2f} TB/s"


def _host_evidence(time: StepTime, gaps: Gaps, free: float) -> str:
    longest = ", ".join(f"{short_name(call.name)} ({call.late_us / 1000:.2f} ms)" for call in gaps.calls[:3])
    return (
        f"the device is idle for {free:.0%} of the step ({time.free_ns / 1e6:.2f} of {time.total_ns / 1e6:.2f} ms); in "
        f"{gaps.late_us / 1000:.2f} ms of it the host had not launched yet, most in {longest}; the kernels need only "
        f"{time.computing_ns / 1e6:.2f} ms"
    )


def _idle_evidence(capture: Capture, time: StepTime, gaps: Gaps, free: float) -> str:
    """Idle time that is not known to be the host's: the next kernel lay queued, or its launch is unknown."""
    idle = f"the device is idle for {free:.0%} of the step ({time.free_ns / 1e6:.2f} of {time.total_ns / 1e6:.2f} ms)"
    busy = f"the kernels need only {time.computing_ns / 1e6:.2f} ms"
    if not gaps.launches_known:
        waits = [api for api in capture.host_apis if "Synchronize" in api.name][:1]
        waited = "".join(f"; the host waits {api.total_ns / 1e6:.2f} ms in {short_name(api.name)}" for api in waits)
        return f"{idle}; {busy}{waited}. The profile has no launches, so whether the host was late is not seen"
    return (
        f"{idle}; in {gaps.queued_us / 1000:.2f} ms of it the next kernel was launched and waited for something else: "
        f"another stream, a copy, its own start; the host was late in {gaps.late_us / 1000:.2f} ms; {busy}"
    )


def _communication_evidence(capture: Capture, time: StepTime, waits: Waits) -> str:
    exposed = time.communication_not_overlapped_ns
    text = (
        f"{exposed / max(1, time.total_ns):.0%} of the step ({exposed / 1e6:.2f} of {time.total_ns / 1e6:.2f} ms) is "
        "in collectives that nothing hides"
    )
    mine = next((rank for rank in waits.by_rank if rank.rank == capture.rank), None)
    if mine is not None and mine.matched and waits.same_clock:
        waited = mine.wait_us / max(1e-9, mine.communication_us)
        whom = max(
            (rank for rank in waits.waited_for_us if rank != capture.rank),
            key=lambda r: waits.waited_for_us[r],
            default=None,
        )
        for_whom = "" if whom is None else f", most of it for rank {whom}"
        return f"{text}; in {waited:.0%} of the time in collectives another rank had not come yet{for_whom}"
    if time.communication_wait_ns:
        waited = time.communication_wait_ns / max(1, time.communication_ns)
        return (
            f"{text}; {waited:.0%} of the time in collectives is waiting and no transfer; other ranks' profiles would "
            "say for whom"
        )
    return f"{text}; the profile does not say how much of it is waiting"
