"""What `whatif validate` writes: the errors as JSON, predicted against measured as a picture."""

from __future__ import annotations

from pathlib import Path

from scenarios.errors import ScenarioError, printable
from scenarios.files.atomic import write_text
from sim.accuracy.rows.serving import read_serving
from sim.accuracy.validate import Bounds, Measurements, Validation, bound_problems, validate
from sim.fitting.served import served_results
from sim.report.files import write_json
from sim.report.validate_svg import scatter_svg


def validate_outputs(
    measurements: Measurements,
    hardware: str,
    bounds: Bounds,
    json_file: Path | None = None,
    plot_file: Path | None = None,
    calibrated: bool = False,
) -> Validation:
    """The validation, written and drawn where asked for.

    calibrated: served benchmarks are also predicted with engines fitted on a row of their deployment.

    Raises ScenarioError, before anything is written, for a file that cannot be read, a bound that is no share, and a
    plot that is not SVG.
    """
    problems = bound_problems(bounds)
    if plot_file and plot_file.suffix.lower() != ".svg":
        problems.append(f"--plot: {printable(str(plot_file), 200)}: the picture is SVG: name a file that ends in .svg")
    if calibrated and not measurements.serving:
        problems.append("--calibrated: needs --serving CSV: engines are calibrated on served benchmarks")
    if problems:
        raise ScenarioError(problems)
    served = read_serving(measurements.serving) if measurements.serving else None
    validation = validate(measurements, hardware, bounds)
    if served is not None:
        validation.result.update(served_results(*served, calibrated))
    write_json(json_file, validation.result)
    if plot_file:
        write_text(plot_file, scatter_svg(validation.points))
    return validation
