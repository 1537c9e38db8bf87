"""An imported capture as plain data, with the keys of the command contract: what `import --json` writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from scenarios.errors import printable
from scenarios.profile import Capture, CaptureSet, HostApi, ReportedStep, Step, step_times_of
from scenarios.timeline import StepTime
from sim import __version__
from sim.hardware.profile import HardwareProfile
from sim.imported.advice import advise_step
from sim.imported.chosen import Chosen, chosen_steps
from sim.imported.completeness import Completeness, completeness_of, withheld
from sim.imported.diagnosis import Found, diagnose_step
from sim.imported.ranks import RankWaits, Waits, slowest_rank, waits_of
from sim.predict.result import SCHEMA_VERSION
from sim.predict.shares import LEAD, MARGIN, MIN_SHARE

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
    chosen = chosen_steps(captures, step_id)
    first, step, views = chosen[0].whole, chosen[0].step, chosen[0].views
    waits = waits_of([one.capture for one in chosen], [one.step for one in chosen])
    diagnoses = [diagnose_step(one.capture, one.step, one.time, waits, hardware) for one in chosen]
    main = diagnoses[0]
    reported = reported_of(first, step)
    recomputed = _recomputed(chosen[0])
    complete = _complete(chosen)
    return {
        "schema_version": SCHEMA_VERSION,
        "profile": _capture(first, name),
        "hardware": hardware.name if hardware is not None else None,
        "provenance": _provenance(hardware, main),
        "rank": first.rank,
        "step_id": step.id,
        "steps": [
            {"id": s.id, "kernels": kernels, **step_us(time)}
            for s, kernels, time in zip(first.steps, views.kernels, views.times, strict=True)
        ][:MAX_STEPS],
        "step_count": len(first.steps),
        "step": step_us(main.time),
        "reported_step": _reported_us(reported),
        "recomputed_step": step_us(recomputed),
        "reconciliation": reconciliation(recomputed, reported),
        "bottleneck": _bottleneck(main),
        "kernels": [asdict(kernel) for kernel in main.kernels[:MAX_KERNELS]],
        "kernel_count": main.kernel_count,
        "collective_count": main.collective_count,
        "launches": main.launches,
        "host_gaps": _gaps(main),
        "host_apis": [_api(api) for api in first.host_apis[:MAX_CALLS]],
        "ranks": [_rank(f, one, waits) for f, one in zip(diagnoses, chosen, strict=True)],
        "collectives": [asdict(c) for c in waits.collectives[:MAX_COLLECTIVES]],
        "slowest_rank": slowest_rank(waits),
        "waited_for_us": {str(rank): us for rank, us in waits.waited_for_us.items()},
        "clocks_differ_us": waits.clocks_differ_us,
        "completeness": asdict(complete),
        "advice": [] if withheld(complete) else [asdict(item) for item in advise_step(main, waits)],
        "advice_withheld": withheld(complete),
        "notes": list(dict.fromkeys([*chosen[0].notes, *captures.notes, *first.notes, *_notes_of_ranks(chosen)])),
        "dropped": dict(sorted(first.dropped.items())),
    }


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


def _bottleneck(diagnosis: Found) -> dict[str, Any]:
    return {
        "name": diagnosis.name,
        "evidence": diagnosis.evidence,
        "shares": diagnosis.shares,
        "limits_us": diagnosis.limits_us,
        "mixed_margin": MARGIN,
        "mixed_below": MIN_SHARE,
        "mixed_lead": LEAD,
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


def _recomputed(chosen: Chosen) -> StepTime:
    """The step as torch_npu's rule has it, which is what it reports: its device window, whatever launched what."""
    return step_times_of(chosen.whole)[chosen.number] if chosen.views.own else chosen.time


def _wait_us(diagnosis: Found, mine: RankWaits, waits: Waits) -> float:
    """What a rank waited in collectives: until the last rank came, where others are here on one clock; else as its own
    profile says it. No more than it was in collectives."""
    matched = mine.matched and waits.same_clock
    us = mine.wait_us if matched else diagnosis.time.communication_wait_ns / 1000
    return min(us, diagnosis.time.communication_ns / 1000)


def _complete(chosen: Sequence[Chosen]) -> Completeness:
    """The verdict on all ranks: what one of them lacks, all of it lacks."""
    reasons = []
    for one in chosen:
        reported = reported_of(one.whole, one.step)
        said = completeness_of(one, _recomputed(one), reported.time if reported is not None else None).reasons
        reasons += [reason if one is chosen[0] else f"rank {one.whole.rank}: {reason}" for reason in said]
    return Completeness("partial" if reasons else "complete", tuple(reasons))


def _rank(diagnosis: Found, chosen: Chosen, waits: Waits) -> dict[str, Any]:
    mine = next(rank for rank in waits.by_rank if rank.rank == diagnosis.capture.rank)
    reported = reported_of(diagnosis.capture, diagnosis.step)
    return {
        "rank": diagnosis.capture.rank,
        "source": printable(diagnosis.capture.source, 200),
        "step_id": diagnosis.step.id,
        "step": step_us(diagnosis.time),
        "reported_step": _reported_us(reported),
        "reconciliation": reconciliation(_recomputed(chosen), reported),
        "bottleneck": _bottleneck(diagnosis),
        "kernel_count": diagnosis.kernel_count,
        "collectives": mine.collectives,
        "matched_collectives": mine.matched,
        "wait_us": _wait_us(diagnosis, mine, waits),
        "transfer_us": diagnosis.time.communication_ns / 1000 - _wait_us(diagnosis, mine, waits),
        "came_last": mine.last,
        "notes": list(diagnosis.capture.notes),
    }


def _notes_of_ranks(chosen: Sequence[Chosen]) -> list[str]:
    said = []
    known = (*chosen[0].notes, *chosen[0].whole.notes)
    for one in chosen[1:]:
        said += [f"rank {one.whole.rank}: {note}" for note in (*one.notes, *one.whole.notes) if note not in known]
    return said
