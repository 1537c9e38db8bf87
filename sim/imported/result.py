"""An imported capture as plain data, with the keys of the command contract: what `import --json` writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from scenarios.errors import ScenarioError, printable
from scenarios.profile import Capture, CaptureSet, HostApi, ReportedStep, Step, step_times_of
from scenarios.timeline import StepTime
from sim import __version__
from sim.hardware.profile import HardwareProfile
from sim.imported.advice import advise_step
from sim.imported.diagnosis import Found, diagnose_step
from sim.imported.ranks import Waits, waits_of
from sim.predict.result import SCHEMA_VERSION

#: Differences beyond this share of the reported step are reported as such.
RECONCILED = 0.001
#: Longest lists of the document.
MAX_CALLS, MAX_COLLECTIVES, MAX_KERNELS, MAX_STEPS = 50, 100, 1000, 1000


def import_result(
    captures: CaptureSet, hardware: HardwareProfile | None, step_id: str = "", name: str = ""
) -> dict[str, Any]:
    """The `import` document of the first rank's step and of all ranks next to it.

    step_id: which step; by default that of the median length of the first rank. Raises ScenarioError where the
    captures hold no such step.
    """
    first = captures.captures[0]
    times = [step_times_of(capture) for capture in captures.captures]
    at = [chosen_step(first, times[0], step_id)]
    step = first.steps[at[0]]
    at += [_same_step(p, t, step.id) for p, t in zip(captures.captures[1:], times[1:], strict=True)]
    steps = [capture.steps[i] for capture, i in zip(captures.captures, at, strict=True)]
    waits = waits_of(captures.captures, steps)
    diagnoses = [
        diagnose_step(capture, one, all_times[i], waits, hardware)
        for capture, one, all_times, i in zip(captures.captures, steps, times, at, strict=True)
    ]
    main = diagnoses[0]
    reported = reported_of(first, step)
    return {
        "schema_version": SCHEMA_VERSION,
        "profile": _capture(first, name),
        "hardware": hardware.name if hardware is not None else None,
        "provenance": _provenance(hardware, main),
        "rank": first.rank,
        "step_id": step.id,
        "steps": [{"id": s.id, **step_us(time)} for s, time in zip(first.steps, times[0], strict=True)][:MAX_STEPS],
        "step_count": len(first.steps),
        "step": step_us(main.time),
        "reported_step": _reported_us(reported),
        "reconciliation": reconciliation(main.time, reported),
        "bottleneck": {"name": main.name, "evidence": main.evidence, "limits_us": main.limits_us},
        "kernels": [asdict(kernel) for kernel in main.kernels[:MAX_KERNELS]],
        "kernel_count": main.kernel_count,
        "collective_count": main.collective_count,
        "launches": main.launches,
        "host_gaps": _gaps(main),
        "host_apis": [_api(api) for api in first.host_apis[:MAX_CALLS]],
        "ranks": [_rank(f, waits) for f in diagnoses],
        "collectives": [asdict(c) for c in waits.collectives[:MAX_COLLECTIVES]],
        "waited_for_us": {str(rank): us for rank, us in waits.waited_for_us.items()},
        "clocks_differ_us": waits.clocks_differ_us,
        "advice": [asdict(item) for item in advise_step(main, waits)],
        "notes": list(dict.fromkeys([*captures.notes, *first.notes, *_notes_of_ranks(captures)])),
        "dropped": dict(sorted(first.dropped.items())),
    }


def chosen_step(capture: Capture, times: Sequence[StepTime], step_id: str) -> int:
    """The place of the step called `step_id`, or of the one of median length. times: of the capture's steps.

    Raises ScenarioError where there is none.
    """
    if not capture.steps:
        raise ScenarioError([f"{printable(capture.source, 200)}: holds no kernels, so no step"])
    ids = [step.id for step in capture.steps]
    if step_id and step_id not in ids:
        known = ", ".join(printable(name, 20) or "(no name)" for name in ids[:20])
        raise ScenarioError([f"--step: '{printable(step_id, 40)}' is not a step of this profile; it has {known}"])
    if step_id:
        return ids.index(step_id)
    return sorted(range(len(times)), key=lambda i: times[i].total_ns)[(len(times) - 1) // 2]


def steps_of_ranks(captures: CaptureSet, step_id: str) -> list[Step]:
    """The step of each rank that `import_result` tells about: of the first as `chosen_step`, of the others the same."""
    first, *others = captures.captures
    step = first.steps[chosen_step(first, step_times_of(first), step_id)]
    return [step, *(p.steps[_same_step(p, step_times_of(p), step.id)] for p in others)]


def _same_step(capture: Capture, times: Sequence[StepTime], step_id: str) -> int:
    """The place of another rank's step with this id, else of its own median one."""
    ids = [step.id for step in capture.steps]
    return ids.index(step_id) if step_id in ids else chosen_step(capture, times, "")


def reported_of(capture: Capture, step: Step) -> ReportedStep | None:
    """What step_trace_time.csv reports for a step, None where it does not."""
    return next((r for r in capture.reported if r.step == step.id), None)


def step_us(time: StepTime) -> dict[str, float]:
    """The keys of the contract, us."""
    return {key.removesuffix("_ns") + "_us": value / 1000 for key, value in asdict(time).items()}


def _reported_us(reported: ReportedStep | None) -> dict[str, float] | None:
    if reported is None:
        return None
    # The file does not report waiting, and total is the sum of its parts.
    times = {key: value for key, value in step_us(reported.time).items() if key != "communication_wait_us"}
    extra = {"stage_us": reported.stage_ns, "bubble_us": reported.bubble_ns, "preparing_us": reported.preparing_ns}
    return {**times, **{key: ns / 1000 for key, ns in extra.items()}}


def reconciliation(time: StepTime, reported: ReportedStep | None) -> dict[str, Any] | None:
    """How far the recomputed step is from the reported one: each part's difference in us and as a share of the reported
    part (of the step, where the file reports none of it)."""
    if reported is None:
        return None
    total = max(1, reported.time.total_ns)
    parts = {}
    for key, mine in asdict(time).items():
        if key != "communication_wait_ns":
            theirs = getattr(reported.time, key)
            parts[key.removesuffix("_ns") + "_us"] = {
                "us": (mine - theirs) / 1000,
                "share": (mine - theirs) / (theirs or total),
            }
    worst = max(abs(part["share"]) for part in parts.values())
    return {"parts": parts, "worst_share": worst, "reconciled": worst <= RECONCILED}


def _capture(capture: Capture, name: str) -> dict[str, Any]:
    return {
        "name": printable(name or capture.source, 200),
        "kind": capture.kind,
        "device": capture.device,
        "label": capture.label,
        "events": len(capture.events),
        "metadata": dict(capture.metadata),
    }


def _provenance(hardware: HardwareProfile | None, diagnosis: Found) -> dict[str, Any]:
    """Times are measured; what the model adds to them (rooflines, prices) is predicted, and says so by its key."""
    sources: dict[str, int] = {}
    for kernel in diagnosis.kernels:
        sources[kernel.bound_source] = sources.get(kernel.bound_source, 0) + kernel.count
    return {
        "kind": "measured" if diagnosis.capture.label == "MEASURED" else "predicted",
        "bounds": dict(sorted(sources.items())),
        "roofline": None if hardware is None else hardware.profile.worst_source(),
        "tool_version": __version__,
    }


def _gaps(diagnosis: Found) -> dict[str, Any]:
    gaps = diagnosis.gaps
    return {
        "count": gaps.count,
        "total_us": gaps.total_us,
        "host_late_us": gaps.late_us,
        "queued_us": gaps.queued_us,
        "unknown_us": gaps.unknown_us,
        "calls": [asdict(call) for call in gaps.calls[:MAX_CALLS]],
    }


def _api(api: HostApi) -> dict[str, Any]:
    return {"level": api.level, "name": api.name, "count": api.count, "total_us": api.total_ns / 1000}


def _rank(diagnosis: Found, waits: Waits) -> dict[str, Any]:
    mine = next(rank for rank in waits.by_rank if rank.rank == diagnosis.capture.rank)
    reported = reported_of(diagnosis.capture, diagnosis.step)
    return {
        "rank": diagnosis.capture.rank,
        "source": printable(diagnosis.capture.source, 200),
        "step_id": diagnosis.step.id,
        "step": step_us(diagnosis.time),
        "reported_step": _reported_us(reported),
        "reconciliation": reconciliation(diagnosis.time, reported),
        "bottleneck": {"name": diagnosis.name, "evidence": diagnosis.evidence},
        "kernel_count": diagnosis.kernel_count,
        "collectives": mine.collectives,
        "matched_collectives": mine.matched,
        "wait_us": mine.wait_us if mine.matched else diagnosis.time.communication_wait_ns / 1000,
        "came_last": mine.last,
        "notes": list(diagnosis.capture.notes),
    }


def _notes_of_ranks(captures: CaptureSet) -> list[str]:
    said = []
    for capture in captures.captures[1:]:
        said += [f"rank {capture.rank}: {note}" for note in capture.notes if note not in captures.captures[0].notes]
    return said
