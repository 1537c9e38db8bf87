"""The bottleneck of a measured step by name, with its evidence: the words of `sim.predict.explain`, a capture's
numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from scenarios.profile import Capture, Kind, Step
from scenarios.timeline import StepTime
from sim.hardware.profile import HardwareProfile
from sim.imported.gaps import Gaps, gaps_of
from sim.imported.kernels import MeasuredKernel, in_step, kernels_of
from sim.imported.ranks import Waits
from sim.predict.explain import Bottleneck


@dataclass(frozen=True, slots=True)
class Found:
    """What one rank's step says. limits_us: time by what limits it: kernels by what bounds them, communication that
    nothing hides, and idle time that the host caused. launches: host calls that issued the step's kernels."""

    capture: Capture
    step: Step
    time: StepTime
    kernels: tuple[MeasuredKernel, ...]
    gaps: Gaps
    limits_us: dict[str, float]
    name: Bottleneck
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
    limits = _limits_us(time, kernels, gaps)
    name = cast(Bottleneck, max(limits, key=lambda limit: (limits[limit], limit))) if limits else "host-bound"
    rows = in_step(capture, step, Kind.KERNEL, Kind.COLLECTIVE)
    launched = capture.events.launched_by[rows]
    return Found(
        capture=capture,
        step=step,
        time=time,
        kernels=kernels,
        gaps=gaps,
        limits_us=limits,
        name=name,
        evidence=_evidence(name, capture, time, kernels, gaps, waits, hardware),
        launches=len(set(launched[launched >= 0].tolist())),
        kernel_count=sum(k.count for k in kernels),
        collective_count=len(in_step(capture, step, Kind.COLLECTIVE)),
    )


def _limits_us(time: StepTime, kernels: Sequence[MeasuredKernel], gaps: Gaps) -> dict[str, float]:
    limits: dict[str, float] = {}
    for kernel in kernels:
        limits[kernel.limit] = limits.get(kernel.limit, 0.0) + kernel.total_us
    if time.communication_ns:
        limits["communication-bound"] = time.communication_not_overlapped_ns / 1000
    # Without launches nobody can tell the host's part of the idle time; it is reported as if all of it were the host's.
    late = gaps.late_us if gaps.launches_known else gaps.total_us
    if late:
        limits["host-bound"] = late
    return limits


def _evidence(
    name: Bottleneck, capture: Capture, time: StepTime, kernels: Sequence[MeasuredKernel], gaps: Gaps, waits: Waits,
    hardware: HardwareProfile | None,
) -> str:  # fmt: skip
    total, free = max(1, time.total_ns), time.free_ns / max(1, time.total_ns)
    if name == "host-bound":
        return _host_evidence(capture, time, gaps, free)
    if name == "communication-bound":
        return _communication_evidence(capture, time, waits)
    mine = [kernel for kernel in kernels if kernel.limit == name]
    top, us = mine[0], sum(k.total_us for k in mine)
    share = us / max(1e-9, sum(k.total_us for k in kernels))
    sources = {k.bound_source for k in mine}
    said = (
        "by the profiler's pipe counters" if sources == {"measured"}
        else "by the model's price of their shapes" if sources == {"predicted"}
        else "by their op types alone, since the profile has no pipe counters" if sources == {"assumed"}
        else "by pipe counters, prices and op types"
    )  # fmt: skip
    detail = (
        f"most of it in {top.op_type} ({top.total_us / 1000:.2f} ms in {_times(top.count)}){_reached(top, hardware)}"
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


def _host_evidence(capture: Capture, time: StepTime, gaps: Gaps, free: float) -> str:
    total_ms, free_ms = time.total_ns / 1e6, time.free_ns / 1e6
    idle = f"the device is idle for {free:.0%} of the step ({free_ms:.2f} of {total_ms:.2f} ms)"
    busy = f"the kernels need only {time.computing_ns / 1e6:.2f} ms"
    if not gaps.launches_known:
        waits = [api for api in capture.host_apis if "Synchronize" in api.name][:1]
        waited = "".join(f"; the host waits {api.total_ns / 1e6:.2f} ms in {api.name}" for api in waits)
        return f"{idle}; {busy}{waited}. The profile has no launches, so that the host was late is inferred, not seen"
    longest = ", ".join(f"{call.name} ({call.late_us / 1000:.2f} ms)" for call in gaps.calls[:3])
    return f"{idle}; in {gaps.late_us / 1000:.2f} ms of it the host had not launched yet, most in {longest}; {busy}"


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
