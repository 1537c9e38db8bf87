"""Predicted against measured: every row of a file of measured kernels or steps priced, and the error as a number.

Errors are signed fractions, predicted / measured - 1; medians and percentiles are of absolute ones (numpy's linear
percentiles). Rows that cannot be priced are listed with the reason; rows marked `scored` no are listed, not scored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from math import exp
from statistics import median
from typing import Any

from scenarios.batches import reported_batch
from scenarios.errors import ScenarioError
from scenarios.ops.program import Batch
from scenarios.ops.work import Work
from scenarios.records import dataclass
from sim.accuracy.inside import Part, parts_inside, weighted_error
from sim.accuracy.roofline import roofline_us
from sim.accuracy.rows.files import KernelRow, StepRow
from sim.accuracy.rows.op_types import Unpriced, plain_work, work_of_row
from sim.accuracy.steps import case_of_row, roofline_of
from sim.hardware.profile import HardwareError, load_hardware
from sim.kernel.price import price
from sim.predict.steps import Case, interval_ns, plans_of, queued_interval_ns, whole_interval_ns
from sim.predict.ttft import Interval
from sim.predict.uncertainty import kernel_width
from sim.step.schedule import launches

#: Coverage that the intervals claim.
NOMINAL = 0.9


@dataclass(frozen=True, slots=True)
class Scored:
    """One priced row. low_us, high_us: the interval that the profile claims. roofline_us: the plain roofline's time.
    cores, measured_cores: those that a kernel starts on, 0 where unknown. in_core_us: measured time inside its busier
    kind of core, 0 where unknown. fitted: something of the shipped profiles was fitted to the row. inside: parts of a
    step whose kernels were timed. guessed: a kernel of an unknown op type, priced as a plain elementwise one."""

    label: str
    kind: str
    measured_us: float
    predicted_us: float
    low_us: float
    high_us: float
    roofline_us: float
    scored: bool
    cores: int = 0
    measured_cores: int = 0
    in_core_us: float = 0.0
    fitted: bool = False
    inside: tuple[Part, ...] = ()
    guessed: bool = False

    @property
    def error(self) -> float:
        return self.predicted_us / self.measured_us - 1

    @property
    def roofline_error(self) -> float:
        return self.roofline_us / self.measured_us - 1

    @property
    def covered(self) -> bool:
        return self.low_us <= self.measured_us <= self.high_us


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that could not be priced, and why."""

    label: str
    reason: str


def price_kernels(rows: Iterable[KernelRow], hardware: str = "") -> tuple[list[Scored], list[Skipped]]:
    """Price measured kernels; `hardware` replaces the profile that the rows name."""
    scored: list[Scored] = []
    skipped: list[Skipped] = []
    for row in rows:
        try:
            hw = load_hardware(hardware or row.hardware)
            work, guessed = _work_of(row)
        except (Unpriced, HardwareError, ScenarioError) as error:
            skipped.append(Skipped(row.label, str(error)))
            continue
        time = price(work, hw, "near" if row.replayed else row.code, row.replayed)
        us = time.duration_ns / 1000
        width = kernel_width(work, hw)
        scored.append(
            Scored(
                row.label,
                row.op_type,
                measured_us=row.mean_us,
                predicted_us=us,
                low_us=us * exp(-width),
                high_us=us * exp(width),
                roofline_us=roofline_us(work, hw),
                scored=row.scored,
                cores=time.cores,
                measured_cores=row.cores,
                in_core_us=row.in_core_us,
                fitted=row.fitted,
                guessed=guessed,
            )
        )
    return scored, skipped


def _work_of(row: KernelRow) -> tuple[Work, bool]:
    """(work, whether its op type is unknown, so that it is taken for a plain elementwise kernel). Raises Unpriced."""
    try:
        return work_of_row(row.op_type, row.input_shapes, row.dtypes, row.kv_tokens, row.output_shapes), False
    except Unpriced as reason:
        try:
            return plain_work(row.op_type, row.input_shapes, row.dtypes, row.output_shapes), True
        except Unpriced:
            raise reason from None


def price_steps(rows: Iterable[StepRow], hardware: str = "") -> tuple[list[Scored], list[Skipped]]:
    """Price measured steps, each as the scenario that its columns and settings describe."""
    scored: list[Scored] = []
    skipped: list[Skipped] = []
    for row in rows:
        case = case_of_row(row, hardware)
        if isinstance(case, str):
            skipped.append(Skipped(row.id, case))
            continue
        batch = reported_batch(case.scenario)
        value, low, high = (ns / 1000 for ns in _step_ns(case, batch, row.queued))
        inside = parts_inside(row.kernels, launches(plans_of(case, batch)[0])) if row.kernels else ()
        scored.append(
            Scored(
                row.id,
                row.phase,
                measured_us=1000 * row.step_ms,
                predicted_us=value,
                low_us=low,
                high_us=high,
                roofline_us=roofline_of(case),
                scored=row.scored,
                fitted=row.fitted,
                inside=inside,
            )
        )
    return scored, skipped


def _step_ns(case: Case, batch: Batch, queued: bool = False) -> Interval:
    """A step, with the drafts on the device that follow it; looking drafts up is the engine's time, not the step's.

    queued: as one of many that the host issues without waiting for the device."""
    config = case.scenario.engine.speculative_config
    if queued and config is None:
        return queued_interval_ns(case, batch)
    return whole_interval_ns(case, batch) if config and config.forward else interval_ns(case, batch)


def rows_result(
    rows: Sequence[Scored], skipped: Sequence[Skipped], order: Callable[[str], Any] | None = None
) -> dict[str, Any]:
    """A part of the `validate` document that is reported by kind: `kernels` and `collectives`. order: of the kinds.

    `listed` has every priced row; `cores` counts those whose cores were measured, and those predicted exactly.
    """
    counted = [r for r in rows if r.scored]
    kinds: dict[str, list[Scored]] = {}
    for row in counted:
        kinds.setdefault(row.kind, []).append(row)
    return {
        **errors(counted),
        "unpriced": [{"row": s.label, "reason": s.reason} for s in skipped],
        "unscored": len(rows) - len(counted),
        "by_kind": {kind: _of_kind(kinds[kind]) for kind in sorted(kinds, key=order)},
        "cores": cores_result(counted),
        "guessed": sorted({row.kind for row in rows if row.guessed}),
        **split_errors(counted),
        "listed": [_listed(row) for row in rows],
        "coverage": coverage(counted),
    }


def split_errors(rows: Sequence[Scored]) -> dict[str, Any]:
    """Errors and coverage of the rows that a shipped profile was fitted to, and of those that none was."""
    parts = {"fitted": [r for r in rows if r.fitted], "not_fitted": [r for r in rows if not r.fitted]}
    return {name: {**errors(part), "coverage": coverage(part)} for name, part in parts.items()}


def cores_result(rows: Sequence[Scored]) -> dict[str, int]:
    """Rows whose cores the profiler counted, and those of them whose cores are predicted exactly."""
    known = [row for row in rows if row.measured_cores]
    return {"rows": len(known), "exact": sum(row.cores == row.measured_cores for row in known)}


def _of_kind(rows: Sequence[Scored]) -> dict[str, Any]:
    """The errors of one kind, and its cores where any were measured."""
    cores = cores_result(rows)
    return {**errors(rows), **({"cores": cores} if cores["rows"] else {})}


def _listed(row: Scored) -> dict[str, Any]:
    """One row of the document; what was not measured is None. start_us: measured time outside the cores."""
    return {
        "row": row.label, "kind": row.kind, "measured_us": row.measured_us, "predicted_us": row.predicted_us,
        "low_us": row.low_us, "high_us": row.high_us, "error": row.error, "scored": row.scored,
        "fitted": row.fitted, "cores": row.cores or None, "measured_cores": row.measured_cores or None,
        "measured_start_us": row.measured_us - row.in_core_us if row.in_core_us else None,
    }  # fmt: skip


def steps_result(rows: Sequence[Scored], skipped: Sequence[Skipped]) -> dict[str, Any]:
    """The `steps` part of the `validate` document."""
    counted = [r for r in rows if r.scored]
    listed = [
        {
            "id": r.label,
            "measured_ms": r.measured_us / 1000,
            "predicted_ms": r.predicted_us / 1000,
            "low_ms": r.low_us / 1000,
            "high_ms": r.high_us / 1000,
            "error": r.error,
            "roofline_ms": r.roofline_us / 1000,
            "scored": r.scored,
            "fitted": r.fitted,
            "kernel_error": weighted_error(r.inside),
            "kernels": [{**asdict(part), "error": part.error} for part in r.inside],
        }
        for r in rows
    ]
    totals = errors(counted)
    return {
        "rows": listed,
        **{key: value for key, value in totals.items() if key != "rows"},
        "scored": totals["rows"],
        **split_errors(counted),
        "unpriced": [{"row": s.label, "reason": s.reason} for s in skipped],
        "coverage": coverage(counted),
    }


def errors(rows: Sequence[Scored]) -> dict[str, Any]:
    """Median, 90th percentile and worst of the absolute errors, bias (median signed error), the roofline's median."""
    if not rows:
        return {"rows": 0, "median": None, "p90": None, "worst": None, "bias": None, "roofline_median": None}
    absolute = sorted(abs(r.error) for r in rows)
    return {
        "rows": len(rows),
        "median": median(absolute),
        "p90": percentile(absolute, 0.9),
        "worst": absolute[-1],
        "bias": median(r.error for r in rows),
        "roofline_median": median(abs(r.roofline_error) for r in rows),
    }


def coverage(rows: Sequence[Scored]) -> float | None:
    """Share of the rows whose measurement lies inside the claimed 90 % interval."""
    return sum(r.covered for r in rows) / len(rows) if rows else None


def percentile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation between order statistics, as numpy's default."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
