"""What the commands write to files: answers as JSON, timelines as traces, both whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scenarios.errors import ScenarioError, did_you_mean, printable, quoted
from scenarios.exchange.measured import Measure
from scenarios.files.atomic import write_text
from scenarios.loader import Loaded, located
from sim.hardware.profile import HardwareProfile, hardware_names, load_hardware
from sim.predict.scenario_result import Answer, answer, kernel_args, predicted_of


def answered(
    scenario: str, sets: Sequence[str], json_file: Path | None, trace_file: Path | None, measure: Measure | None = None
) -> Answer:
    """The answer for a scenario, written to the files asked for.

    measure: runs the step on a device too; the document gets a part `measured`, the trace a second set of lanes.
    """
    found = answer(scenario, sets)
    if measure is not None:
        refuse_another_device(found.loaded, found.prediction.case.hardware, measure.device)
    refuse_overwriting(found.loaded.document.sources, {"--json": json_file, "--trace": trace_file})
    timelines, args = [found.prediction.timeline], [kernel_args(found.prediction)]
    if measure is not None:
        measured = measure.run(found.loaded, predicted_of(found.prediction))
        found.result["measured"] = measured.document
        timelines.append(measured.timeline)
        args.append({})
    if trace_file is not None:
        from scenarios.trace import write_trace

        write_trace(trace_file, timelines, args)
    if json_file is not None:
        write_text(json_file, to_json(found.result))
    return found


def refuse_another_device(loaded: Loaded, hardware: HardwareProfile, device: str) -> None:
    """Raise ScenarioError where the prediction is of one kind of device and the measurement would be of another."""
    if hardware.profile.device != device:
        known = [n for n in hardware_names() if load_hardware(n).profile.device == device]
        hint = f"; set it to {known[0]}" if known else ""
        what = f"{hardware.name} is a profile for {hardware.profile.device}, and --backend measures {device}{hint}"
        raise ScenarioError([f"{located(loaded, 'hardware')}: hardware: {what}"])


def compared(
    a: str, b: str, sets: Sequence[str], json_file: Path | None, plot_file: Path | None = None
) -> dict[str, Any]:
    """The comparison of two scenarios, results, traces or profiles, written and drawn where asked for.

    Raises ScenarioError, also for settings that would change nothing and for a picture of what has no timeline.
    """
    from sim.compare.result import compare_sides
    from sim.compare.sides import side

    _refuse_picture(plot_file)
    first, second = side(a, sets), side(b, sets)
    if sets and "scenario" not in (first.kind, second.kind):
        raise ScenarioError(["--set: neither A nor B is a scenario, so there is nothing to set"])
    refuse_overwriting((a, b, *first.sources, *second.sources), {"--json": json_file, "--plot": plot_file})
    result = compare_sides(first, second)
    if plot_file is not None:
        from sim.report.compare_svg import picture

        write_text(plot_file, picture(first, second, result))
    if json_file is not None:
        write_text(json_file, to_json(result))
    return result


def _refuse_picture(plot_file: Path | None) -> None:
    if plot_file is not None and plot_file.suffix.lower() != ".svg":
        name = printable(str(plot_file), 200)
        raise ScenarioError([f"--plot: {name}: the picture is SVG: name a file that ends in .svg"])


def to_json(document: dict[str, Any]) -> str:
    """Stable JSON text: keys in the document's order, no NaN."""
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def refuse_overwriting(inputs: Iterable[str], outputs: Mapping[str, Path | None]) -> None:
    """Raise ScenarioError where a result would replace the file it comes from, or another result."""
    taken = {os.path.realpath(name): f"the input {printable(name, 200)}" for name in inputs}
    problems: list[str] = []
    for option, path in outputs.items():
        if path is None:
            continue
        real = os.path.realpath(path)
        if real in taken:
            problems.append(f"{option} {printable(str(path), 200)}: would overwrite {taken[real]}")
        taken[real] = f"the output of {option}"
    if problems:
        raise ScenarioError(problems)


def unknown_list(what: str, known: Sequence[str]) -> ScenarioError:
    """The error for a list that does not exist."""
    return ScenarioError([f"list: {quoted(what)} is not one of {', '.join(known)}{did_you_mean(what, list(known))}"])
