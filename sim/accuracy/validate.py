"""What `whatif validate` does: read measured rows, price them, hold the errors against bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, fields
from math import isfinite
from pathlib import Path
from typing import Any

from scenarios.records import dataclass
from sim.accuracy.ablations import ablations_result, price_ablations, read_ablations
from sim.accuracy.collectives import by_operation, price_collectives
from sim.accuracy.families import by_family
from sim.accuracy.overlaps import overlaps_result, price_overlaps, read_overlaps
from sim.accuracy.reference import reference_csv
from sim.accuracy.rows.files import read_collectives, read_kernels, read_steps
from sim.accuracy.score import NOMINAL, Scored, price_kernels, price_steps, rows_result, steps_result
from sim.accuracy.unseen import read_unseen
from sim.hardware.profile import load_hardware
from sim.predict.result import SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Measurements:
    """CSV files of measured rows by what they measure; None: no such file."""

    kernels: Path | None = None
    collectives: Path | None = None
    steps: Path | None = None
    ladders: Path | None = None
    overlaps: Path | None = None
    serving: Path | None = None


#: The measurements that come with the package.
REFERENCE = Measurements(
    **{part.name: reference_csv(part.name) for part in fields(Measurements) if part.name != "serving"}
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Largest errors that a validation may show, fractions; None: no bound."""

    kernel_median: float | None = None
    kernel_p90: float | None = None
    step_median: float | None = None
    collective_median: float | None = None
    collective_p90: float | None = None


@dataclass(frozen=True, slots=True)
class Validation:
    """The result, the bounds that it broke, one line each, and the scored rows that it sums up, by family."""

    result: dict[str, Any]
    broken: tuple[str, ...]
    points: tuple[tuple[str, Scored], ...] = ()


def validate(measurements: Measurements, hardware: str, bounds: Bounds) -> Validation:
    """Validate the files given; without any, the reference set that is shipped.

    hardware: a profile that all rows are priced on; "" for the one that each row names. Raises ScenarioError for a file
    that cannot be read or is no profile.
    """
    if hardware:
        load_hardware(hardware)
    files = measurements if any(astuple(measurements)) else REFERENCE
    kernels = price_kernels(read_kernels(files.kernels), hardware) if files.kernels else ([], [])
    collectives = price_collectives(read_collectives(files.collectives), hardware) if files.collectives else ([], [])
    steps = price_steps(read_steps(files.steps), hardware) if files.steps else ([], [])
    ablations = price_ablations(read_ablations(files.ladders)) if files.ladders else ([], [])
    overlaps = price_overlaps(read_overlaps(files.overlaps), hardware) if files.overlaps else ([], [])
    parts: dict[str, dict[str, Any]] = {
        "kernels": rows_result(*kernels),
        "collectives": rows_result(*collectives, by_operation),
        "steps": steps_result(*steps),
        "ladders": ablations_result(*ablations),
        "overlaps": overlaps_result(*overlaps),
    }
    covered = {name: parts[name].pop("coverage") for name in ("kernels", "collectives", "steps")}
    # A hardware profile of the user's own, or his rows, say nothing about the shipped fits.
    unseen = [asdict(line) for line in read_unseen()] if files is REFERENCE and not hardware else []
    result = {
        "schema_version": SCHEMA_VERSION,
        "files": {
            name: str(path) if path else None for name, path in asdict(files).items() if path or name != "serving"
        },
        **parts,
        "coverage": {"nominal": NOMINAL, **covered},
        "unseen": unseen,
    }
    scored = [_scored(rows) for rows, _ in (kernels, collectives, steps)]
    return Validation(result, tuple(_broken(result, bounds)), tuple(by_family(*scored)))


def bound_problems(bounds: Bounds) -> list[str]:
    """A line for each bound that is no share."""
    return [
        f"--max-{name.replace('_', '-')}: must be a share, 0 or more, such as 0.1, got {value}"
        for name, value in asdict(bounds).items()
        if value is not None and not (isfinite(value) and value >= 0)
    ]


def _scored(rows: Sequence[Scored]) -> list[Scored]:
    return [row for row in rows if row.scored]


def _broken(result: dict[str, Any], bounds: Bounds) -> list[str]:
    checks = (
        ("kernels: median error", result["kernels"]["median"], bounds.kernel_median),
        ("kernels: 90th percentile of the error", result["kernels"]["p90"], bounds.kernel_p90),
        ("collectives: median error", result["collectives"]["median"], bounds.collective_median),
        ("collectives: 90th percentile of the error", result["collectives"]["p90"], bounds.collective_p90),
        ("steps: median error", result["steps"]["median"], bounds.step_median),
    )
    lines = []
    for name, value, bound in checks:
        if bound is None:
            continue
        if value is None:
            lines.append(f"{name}: no row was scored, so the bound {bound:.1%} is not shown to hold")
        elif value > bound:
            lines.append(f"{name} {value:.1%} is over its bound {bound:.1%}")
    return lines
