"""Files that commands write: stable JSON, and never over an input or over one another."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from scenarios.errors import ScenarioError, printable
from scenarios.files.atomic import write_text


def to_json(result: dict[str, Any]) -> str:
    """Stable JSON text: keys in the result's order, no NaN."""
    return json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(path: Path | None, result: dict[str, Any]) -> None:
    """Write `result` to `path`, whole or not at all; nothing where no path is given."""
    if path is not None:
        write_text(path, to_json(result))


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
