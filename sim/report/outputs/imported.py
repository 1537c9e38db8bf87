"""What `whatif import` writes: the diagnosis as JSON, the step's timelines as a trace, both whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scenarios.errors import ScenarioError, printable
from scenarios.profile import timeline_of
from scenarios.profile.read import read_captures
from sim.hardware.profile import load_hardware
from sim.imported.chosen import chosen_steps
from sim.imported.replayed import replayed
from sim.imported.result import import_result
from sim.report.files import refuse_overwriting, write_json


def _files(source: str) -> list[str]:
    """The files that a profile was read from."""
    return [os.path.join(source, name) for name in os.listdir(source)] if os.path.isdir(source) else [source]


def import_outputs(
    name: str,
    hardware: str,
    step_id: str,
    json_file: Path | None,
    trace_file: Path | None,
    what_ifs: Sequence[str] = (),
    step_mark: str = "",
) -> dict[str, Any]:
    """The `import` result of the profile that the user calls `name`, written to the files asked for.

    hardware: a profile's name, "" for none. what_ifs: `NAME[:ARGS]`; the trace
    then holds the measured steps and behind them the changed ones. step_mark: what marks a step, "" for the marks that
    are there. Raises ScenarioError, one line.
    """
    captures = read_captures(name, step_mark, step_id)
    chip = load_hardware(hardware) if hardware else None
    inputs = [name, *(file for profile in captures.captures for file in _files(profile.source))]
    refuse_overwriting(inputs, {"--json": json_file, "--trace": trace_file})
    result = import_result(captures, chip, step_id, name)
    result["what_if"], both = replayed(captures, step_id, what_ifs, chip, result["advice_withheld"])
    if trace_file is not None:
        from scenarios.trace import write_trace

        try:
            chosen = chosen_steps(captures, step_id)
            write_trace(trace_file, both or [timeline_of(one.capture, one.step, tasks=True) for one in chosen])
        except ValueError as error:
            raise ScenarioError([f"--trace {printable(str(trace_file), 200)}: {error}"]) from None
    write_json(json_file, result)
    return result
