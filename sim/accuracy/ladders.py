"""Published optimisation ladders: one step of one optimisation, its measured gain, and the gain predicted for it.

A row gives the settings of the base and the settings that the step adds, and either both times or the range of the
gain. Gains are base / step: above 1 the step helps.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import median
from typing import Any

from scenarios.batches import reported_batch
from sim.accuracy.steps import case_of_row
from sim.measured.files import StepRow, rows_of_csv
from sim.predict import exposure_of
from sim.uncertainty import ratio_interval

#: An effect smaller than this may have either sign.
CLEAR_EFFECT = 0.05


@dataclass(frozen=True, slots=True)
class Rung:
    """One step of a ladder; gains above 1 help."""

    base: StepRow
    step: tuple[str, ...]
    measured_gain: float


@dataclass(frozen=True, slots=True)
class ScoredRung:
    """A rung with its predicted gain and the interval that the profile's residuals imply."""

    id: str
    measured_gain: float
    predicted_gain: float
    low: float
    high: float
    scored: bool

    @property
    def points(self) -> float:
        """Predicted minus measured change of the step time, percentage points of the base."""
        return 100 * (1 / self.measured_gain - 1 / self.predicted_gain)

    @property
    def sign_right(self) -> bool | None:
        """Whether both point the same way; None where the measured effect is too small to ask."""
        if abs(self.measured_gain - 1) < CLEAR_EFFECT:
            return None
        return (self.measured_gain > 1) == (self.predicted_gain > 1)


def read_ladders(path: Path) -> Iterator[Rung]:
    """The rungs of a ladders file. Raises ScenarioError with file:line for what is missing or no number."""
    needed = ("id", "hardware", "model", "phase", "batch", "query_len", "context", "base", "step")
    for _, row in rows_of_csv(path, needed):
        base = StepRow(
            id=row["id"],
            hardware=row["hardware"],
            model=row["model"],
            phase=row["phase"],
            batch=int(row["batch"]),
            query_len=int(row["query_len"]),
            context=int(row["context"]),
            cards=1,
            step_ms=1.0,
            settings=tuple(s for s in row["base"].split(";") if s),
            scored=row["scored"] != "no",
        )
        yield Rung(base, tuple(s for s in row["step"].split(";") if s), gain_of(row))


def gain_of(row: dict[str, str]) -> float:
    """The measured gain: base_ms / step_ms, or the geometric mean of a published range."""
    if row["base_ms"]:
        return float(row["base_ms"]) / float(row["step_ms"])
    return sqrt(float(row["gain_low"]) * float(row["gain_high"]))


def price_ladders(rungs: Iterator[Rung]) -> tuple[list[ScoredRung], list[tuple[str, str]]]:
    """(rungs with predicted gains, (id, reason) of those that cannot be predicted)."""
    scored: list[ScoredRung] = []
    skipped: list[tuple[str, str]] = []
    for rung in rungs:
        row = rung.base
        before = case_of_row(row)
        after = case_of_row(_with(row, rung.step))
        if isinstance(before, str) or isinstance(after, str):
            skipped.append((row.id, before if isinstance(before, str) else str(after)))
            continue
        a, b = (exposure_of(case, reported_batch(case.scenario)) for case in (before, after))
        gain, low, high = ratio_interval(a, b, before.hardware)
        scored.append(ScoredRung(row.id, rung.measured_gain, gain, low, high, row.scored))
    return scored, skipped


def _with(row: StepRow, settings: tuple[str, ...]) -> StepRow:
    return StepRow(
        row.id, row.hardware, row.model, row.phase, row.batch, row.query_len, row.context, row.cards, row.step_ms,
        (*row.settings, *settings), row.scored,
    )  # fmt: skip


def ladders_result(rungs: list[ScoredRung], skipped: list[tuple[str, str]]) -> dict[str, Any]:
    """The `ladders` part of the `validate` document."""
    counted = [r for r in rungs if r.scored]
    clear = [r for r in counted if r.sign_right is not None]
    return {
        "rows": [
            {
                "id": r.id, "measured_gain": r.measured_gain, "predicted_gain": r.predicted_gain, "low": r.low,
                "high": r.high, "points": r.points, "sign_right": r.sign_right, "scored": r.scored,
            }
            for r in rungs
        ],
        "scored": len(counted),
        "signs_right": sum(bool(r.sign_right) for r in clear),
        "signs_asked": len(clear),
        "median_points": median(abs(r.points) for r in counted) if counted else None,
        "unpriced": [{"row": name, "reason": reason} for name, reason in skipped],
    }  # fmt: skip


def measured_gain(path: Path, row_id: str) -> float:
    """The measured gain of one row of a ladders file; KeyError where there is none."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["id"] == row_id:
                return gain_of(row)
    raise KeyError(f"no ladder row {row_id!r} in {path.name}")
