"""What `whatif validate` does: read files, price their rows, hold the errors against bounds, write what was asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from scenarios.errors import ScenarioError
from scenarios.files.atomic import write_text
from sim.accuracy.ablations import ablations_result, price_ablations, read_ablations
from sim.accuracy.collectives import by_operation, price_collectives
from sim.accuracy.families import by_family
from sim.accuracy.overlaps import overlaps_result, price_overlaps, read_overlaps
from sim.accuracy.reference import FOLDER
from sim.accuracy.rows.files import read_collectives, read_kernels, read_steps
from sim.accuracy.score import NOMINAL, Scored, price_kernels, price_steps, rows_result, steps_result
from sim.predict.result import SCHEMA_VERSION
from sim.report.files import to_json
from sim.report.validate_svg import scatter_svg

#: The measurements that come with the package.
REFERENCE = FOLDER


@dataclass(frozen=True, slots=True)
class Bounds:
    """Greatest errors that a validation may show, fractions; None: no bound."""

    kernel_median: float | None = None
    kernel_p90: float | None = None
    step_median: float | None = None
    collective_median: float | None = None
    collective_p90: float | None = None


@dataclass(frozen=True, slots=True)
class Validation:
    """The document, the bounds that it broke, one line each, and the scored rows that it sums up, by family."""

    result: dict[str, Any]
    broken: tuple[str, ...]
    points: tuple[tuple[str, Scored], ...] = ()


def validated(
    kernels: Path | None,
    steps: Path | None,
    ablations: Path | None,
    hardware: str,
    bounds: Bounds,
    json_file: Path | None = None,
    plot_file: Path | None = None,
    collectives: Path | None = None,
    overlaps: Path | None = None,
) -> Validation:
    """Validate the files given; without any, the reference set that is shipped.

    Raises ScenarioError, before anything is written, for a file that cannot be read, a bound that is no share, and a
    plot that is not SVG.
    """
    _refuse(bounds, plot_file)
    files = {
        "kernels": kernels, "collectives": collectives, "steps": steps, "ladders": ablations, "overlaps": overlaps,
    }  # fmt: skip
    if not any(files.values()):
        files = {name: REFERENCE / f"{name}.csv" for name in files}
        kernels, collectives, steps, ablations, overlaps = files.values()
    priced_kernels = price_kernels(read_kernels(kernels), hardware) if kernels else ([], [])
    priced_collectives = price_collectives(read_collectives(collectives), hardware) if collectives else ([], [])
    priced_steps = price_steps(read_steps(steps), hardware) if steps else ([], [])
    parts: dict[str, dict[str, Any]] = {
        "kernels": rows_result(*priced_kernels),
        "collectives": rows_result(*priced_collectives, by_operation),
        "steps": steps_result(*priced_steps),
        "ladders": ablations_result(*(price_ablations(read_ablations(ablations)) if ablations else ([], []))),
        "overlaps": overlaps_result(*(price_overlaps(read_overlaps(overlaps), hardware) if overlaps else ([], []))),
    }
    covered = {name: parts[name].pop("coverage") for name in ("kernels", "collectives", "steps")}
    result = {
        "schema_version": SCHEMA_VERSION,
        "files": {name: str(path) if path else None for name, path in files.items()},
        **parts,
        "coverage": {"nominal": NOMINAL, **covered},
    }
    if json_file:
        write_text(json_file, to_json(result))
    scored = [_scored(rows) for rows, _ in (priced_kernels, priced_collectives, priced_steps)]
    if plot_file:
        write_text(plot_file, scatter_svg(*scored))
    return Validation(result, tuple(_broken(result, bounds)), tuple(by_family(*scored)))


def _refuse(bounds: Bounds, plot_file: Path | None) -> None:
    problems = [
        f"--max-{name.replace('_', '-')}: must be a share, 0 or more, such as 0.1, got {value}"
        for name, value in asdict(bounds).items()
        if value is not None and not (isfinite(value) and value >= 0)
    ]
    if plot_file and plot_file.suffix.lower() != ".svg":
        problems.append(f"--plot: {plot_file}: the picture is SVG: name a file that ends in .svg")
    if problems:
        raise ScenarioError(problems)


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
