"""Published optimisation ablations: one step of one optimisation, its measured gain, and the gain predicted for it.

A row gives the settings of the base and the settings that the step adds, and either both times or the range of the
gain; times are of the step, or of the kernels of one part of it. Gains are base / step: above 1 the step helps. Where
the source counted kernels, the Program's count stands next to it. A step that no switch expresses says why and is
listed.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from math import sqrt
from pathlib import Path
from statistics import median
from typing import Any

from scenarios.batches import reported_batch
from scenarios.errors import ScenarioError, quoted
from scenarios.records import dataclass
from sim.accuracy.rows.files import StepRow, positive, rows_of_csv, whole
from sim.accuracy.steps import case_of_row
from sim.predict.steps import Case, plans_of, program_of, queued_interval_ns, sensitivity_of
from sim.predict.uncertainty import Sensitivity, kernels_sensitivity, ratio_interval
from sim.step.schedule import launches

#: Parts of a step that a source may have timed alone, and the names of their kernels.
PARTS = {
    "mlp": frozenset(
        (
            "gate_proj",
            "up_proj",
            "gate_up_proj",
            "slice_gate",
            "slice_up",
            "concat_gate_up",
            "silu",
            "mul_up",
            "swiglu",
            "down_proj",
            "ffn",
        )
    ),
}

#: An effect smaller than this may have either sign.
CLEAR_EFFECT = 0.05


@dataclass(frozen=True, slots=True)
class AblationStep:
    """One step of a ablation; gains above 1 help. kernels: those of base and step that the source counted, 0 where it
    did not. not_modelled: why no switch expresses it, or empty. part: the part of the step whose kernels were timed, or
    empty for the whole step. times_ms: of base and step, None where the source gives the gain alone."""

    base: StepRow
    step: tuple[str, ...]
    measured_gain: float
    kernels: tuple[int, int] = (0, 0)
    not_modelled: str = ""
    part: str = ""
    times_ms: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class ScoredStep:
    """A step with its predicted gain and the interval that the profile's residuals imply.

    kernels, predicted_kernels: of base and step, as measured (0: not stated) and as in the Programs. times_ms,
    predicted_ms: of base and step; a right ratio may be one of two wrong times. fitted: a shipped profile was fitted to
    the base or the step.
    """

    id: str
    measured_gain: float
    predicted_gain: float
    low: float
    high: float
    scored: bool
    kernels: tuple[int, int] = (0, 0)
    predicted_kernels: tuple[int, int] = (0, 0)
    times_ms: tuple[float, float] | None = None
    predicted_ms: tuple[float, float] = (0.0, 0.0)
    fitted: bool = False

    @property
    def errors(self) -> tuple[float, float] | None:
        """predicted / measured - 1 of the base's and the step's time; None where the source gives the gain alone."""
        if self.times_ms is None:
            return None
        base, step = (p / m - 1 for p, m in zip(self.predicted_ms, self.times_ms, strict=True))
        return base, step

    @property
    def points(self) -> float:
        """Predicted minus measured change of the step time, percentage points of the base."""
        return 100 * (1 / self.measured_gain - 1 / self.predicted_gain)

    @property
    def covered(self) -> bool:
        """Whether the measured gain lies inside the interval."""
        return self.low <= self.measured_gain <= self.high

    @property
    def sign_right(self) -> bool | None:
        """Whether both point the same way; None where the measured effect is too small to ask."""
        if abs(self.measured_gain - 1) < CLEAR_EFFECT:
            return None
        return (self.measured_gain > 1) == (self.predicted_gain > 1)


def read_ablations(path: Path) -> Iterator[AblationStep]:
    """The steps of a file of ablations. Raises ScenarioError with file:line for what is missing or no number."""
    needed = ("id", "hardware", "model", "phase", "batch", "query_len", "context", "base", "step")
    for line, row in rows_of_csv(path, needed):
        where = f"{path}:{line}"
        base = StepRow(
            id=row["id"],
            hardware=row["hardware"],
            model=row["model"],
            phase=row["phase"],
            batch=whole(row["batch"], where, "batch"),
            query_len=whole(row["query_len"], where, "query_len"),
            context=whole(row["context"], where, "context"),
            tp=1,
            dp=1,
            ep=1,
            cards=1,
            step_ms=1.0,
            settings=tuple(s for s in row["base"].split(";") if s),
            scored=row["scored"] != "no",
            fitted=(row.get("fit") or "no") != "no",
            queued=(row.get("issued") or "") == "queued",
        )
        reason = row.get("not_modelled") or ""
        yield AblationStep(
            base,
            tuple(s for s in row["step"].split(";") if s),
            measured_gain=1.0 if reason else gain_of(row, where),
            kernels=(
                whole(row.get("base_kernels") or "0", where, "base_kernels"),
                whole(row.get("step_kernels") or "0", where, "step_kernels"),
            ),
            not_modelled=reason,
            part=_part(row, where),
            times_ms=None if reason else times_of(row, where),
        )


def _part(row: dict[str, str], where: str) -> str:
    """The part that a row's times are of. Raises ScenarioError at `where` for one that is not known."""
    part = row.get("part") or ""
    if part and part not in PARTS:
        raise ScenarioError([f"{where}: part: must be empty or one of {', '.join(PARTS)}, got {quoted(part)}"])
    return part


def gain_of(row: dict[str, str], where: str) -> float:
    """The measured gain: base_ms / step_ms, or the geometric mean of a published range.

    Raises ScenarioError at `where` for what is no positive number.
    """
    times = ("base_ms", "step_ms") if row.get("base_ms") else ("gain_low", "gain_high")
    first, second = (positive(row.get(name) or "", where, name) for name in times)
    return first / second if row.get("base_ms") else sqrt(first * second)


def times_of(row: dict[str, str], where: str) -> tuple[float, float] | None:
    """base_ms and step_ms; None where the row gives a range of the gain, or times of something else than the step (a
    request under load, say), of which the ratio alone counts."""
    if not row.get("base_ms") or row.get("times_of"):
        return None
    return positive(row["base_ms"], where, "base_ms"), positive(row.get("step_ms") or "", where, "step_ms")


def price_ablations(steps: Iterator[AblationStep]) -> tuple[list[ScoredStep], list[tuple[str, str]]]:
    """(steps with predicted gains, (id, reason) of those that cannot be predicted)."""
    scored: list[ScoredStep] = []
    skipped: list[tuple[str, str]] = []
    for step in steps:
        row = step.base
        if step.not_modelled:
            skipped.append((row.id, step.not_modelled))
            continue
        before = case_of_row(row)
        after = case_of_row(_with(row, step.step))
        if isinstance(before, str) or isinstance(after, str):
            skipped.append((row.id, before if isinstance(before, str) else str(after)))
            continue
        a, b = (_sensitivity_of_part(case, step.part, row.queued) for case in (before, after))
        gain, low, high = ratio_interval(a, b, before.hardware)
        counts = _kernels(before), _kernels(after)
        scored.append(
            ScoredStep(
                row.id,
                step.measured_gain,
                predicted_gain=gain,
                low=low,
                high=high,
                scored=row.scored,
                kernels=step.kernels,
                predicted_kernels=counts,
                times_ms=step.times_ms,
                predicted_ms=(a.step_ns / 1e6, b.step_ns / 1e6),
                fitted=row.fitted,
            )
        )
    return scored, skipped


def _sensitivity_of_part(case: Case, part: str, queued: bool) -> Sensitivity:
    """The reported step, as one of many in a queue where it was measured so, or the kernels of one part of it."""
    batch = reported_batch(case.scenario)
    if not part:
        whole = sensitivity_of(case, batch)
        return replace(whole, step_ns=round(queued_interval_ns(case, batch)[0])) if queued else whole
    of_step = launches(plans_of(case, batch)[0])
    # The graph compiler joins the names of what it fuses.
    return kernels_sensitivity(
        (k for k in of_step if k.name.rsplit(".", 1)[-1].split("+")[0] in PARTS[part]), case.hardware
    )


def _kernels(case: Case) -> int:
    return len(program_of(case.scenario, case.model, reported_batch(case.scenario)))


def _with(row: StepRow, settings: tuple[str, ...]) -> StepRow:
    return replace(row, settings=(*row.settings, *settings))


def ablations_result(rows: list[ScoredStep], skipped: list[tuple[str, str]]) -> dict[str, Any]:
    """The `ablations` part of the `validate` document."""
    counted = [r for r in rows if r.scored]
    clear = [r for r in counted if r.sign_right is not None]
    absolute = [abs(error) for r in counted for error in r.errors or ()]
    unfitted = [r for r in counted if not r.fitted]
    return {
        "rows": [
            {
                "id": r.id, "measured_gain": r.measured_gain, "predicted_gain": r.predicted_gain, "low": r.low,
                "high": r.high, "points": r.points, "sign_right": r.sign_right, "scored": r.scored,
                "measured_kernels": list(r.kernels) if any(r.kernels) else None,
                "predicted_kernels": list(r.predicted_kernels),
                "measured_ms": list(r.times_ms) if r.times_ms else None, "predicted_ms": list(r.predicted_ms),
                "errors": list(r.errors) if r.errors else None, "fitted": r.fitted,
            }
            for r in rows
        ],
        "scored": len(counted),
        "signs_right": sum(bool(r.sign_right) for r in clear),
        "signs_asked": len(clear),
        "median_points": median(abs(r.points) for r in counted) if counted else None,
        "median_time_error": median(absolute) if absolute else None,
        "unfitted": len(unfitted),
        "unfitted_median_points": median(abs(r.points) for r in unfitted) if unfitted else None,
        "unfitted_coverage": sum(r.covered for r in unfitted) / len(unfitted) if unfitted else None,
        "unpriced": [{"row": name, "reason": reason} for name, reason in skipped],
    }  # fmt: skip


def measured_gain(path: Path, row_id: str) -> float:
    """The measured gain of one row of a ablations file; KeyError where there is none."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["id"] == row_id:
                return gain_of(row, path.name)
    raise KeyError(f"no ladder row {row_id!r} in {path.name}")
