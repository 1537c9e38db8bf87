"""From a scenario file to a report on disk: what `whatif experiment` does next to measuring."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scenarios.errors import ScenarioError, printable
from scenarios.exchange.bench import Bench
from scenarios.files.atomic import write_folder, write_text
from scenarios.loader import Loaded, load_scenario
from sim.experiment.protocol import Options, Say, experiment
from sim.experiment.result import experiment_result
from sim.experiment.rows import Experiment
from sim.predict.scenario_result import case_of, refuse_another_device
from sim.report.experiment_markdown import GAINS, WARM_UP, markdown
from sim.report.experiment_svg import gains_svg, warm_up_svg
from sim.report.files import refuse_overwriting, to_json

#: Seconds that a budget must have and may have.
MIN_BUDGET_S, MAX_BUDGET_S = 10.0, 86_400.0


def experiment_outputs(
    scenario: str,
    sets: Sequence[str],
    bench_for: Callable[[Loaded], Bench],
    options: Options,
    json_file: Path | None,
    folder: Path | None,
    say: Say,
) -> dict[str, Any]:
    """Carry the experiment out and write what was asked for, all of it or none.

    bench_for: opens the device for a scenario. Raises ScenarioError; for what the outputs are wrong with before
    anything is measured.
    """
    if not MIN_BUDGET_S <= options.budget_s <= MAX_BUDGET_S:
        what = f"must be {MIN_BUDGET_S:g} to {MAX_BUDGET_S:g} seconds, got {options.budget_s:g}"
        raise ScenarioError([f"--budget-s: {what}"])
    loaded = load_scenario(scenario, sets)
    refuse_overwriting(loaded.document.sources, {"--json": json_file, "--out": folder})
    _refuse_no_place(json_file, folder)
    case = case_of(loaded)
    bench = bench_for(loaded)
    refuse_another_device(loaded, case.hardware, bench.device)
    measured = experiment(loaded, case, bench, options, say)
    result = experiment_result(measured)
    texts = report(measured, result)
    if folder is not None:
        write_folder(folder, texts)
    if json_file is not None:
        write_text(json_file, texts["report.json"])
    return result


def report(measured: Experiment, result: dict[str, Any]) -> dict[str, str]:
    """The files of the report by name."""
    return {
        "report.md": markdown(result),
        "report.json": to_json(result),
        GAINS: gains_svg(measured),
        WARM_UP: warm_up_svg(measured),
    }


def _refuse_no_place(json_file: Path | None, folder: Path | None) -> None:
    """Raise ScenarioError now for what could only fail after minutes of measuring."""
    problems = []
    for option, path in (("--json", json_file), ("--out", folder)):
        if path is None or str(path).startswith("/dev/"):
            continue
        parent = path.parent
        if not os.path.isdir(parent):
            problems.append(f"{option} {printable(str(path), 200)}: cannot be written: its folder does not exist")
        elif not os.access(path if os.path.isdir(path) else parent, os.W_OK):
            problems.append(f"{option} {printable(str(path), 200)}: cannot be written: permission denied")
        elif option == "--json" and os.path.isdir(path):
            problems.append(f"{option} {printable(str(path), 200)}: cannot be written: is a folder")
        elif option == "--out" and os.path.lexists(path) and not os.path.isdir(path):
            problems.append(f"{option} {printable(str(path), 200)}: cannot be written: is a file, not a folder")
    if problems:
        raise ScenarioError(problems)
