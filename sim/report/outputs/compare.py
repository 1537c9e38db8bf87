"""What `whatif compare` writes: the comparison as JSON, both timelines as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scenarios.errors import ScenarioError, printable
from scenarios.files.atomic import write_text
from sim.compare.result import compare_sides
from sim.report.files import refuse_overwriting, write_json
from sim.report.sides import side


def compare_outputs(
    a: str, b: str, sets: Sequence[str], json_file: Path | None, plot_file: Path | None = None
) -> dict[str, Any]:
    """The comparison of two scenarios, results, traces or profiles, written and drawn where asked for.

    Raises ScenarioError, also for settings that would change nothing and for a picture of what has no timeline.
    """
    if plot_file is not None and plot_file.suffix.lower() != ".svg":
        name = printable(str(plot_file), 200)
        raise ScenarioError([f"--plot: {name}: the picture is SVG: name a file that ends in .svg"])
    first, second = side(a, sets), side(b, sets)
    if sets and "scenario" not in (first.kind, second.kind):
        raise ScenarioError(["--set: neither A nor B is a scenario, so there is nothing to set"])
    refuse_overwriting((a, b, *first.sources, *second.sources), {"--json": json_file, "--plot": plot_file})
    result = compare_sides(first, second)
    if plot_file is not None:
        from sim.report.compare_svg import picture

        write_text(plot_file, picture(first, second, result))
    write_json(json_file, result)
    return result
