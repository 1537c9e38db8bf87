"""What the compare page lays side by side: a scenario as asked, or a file that the reader uploads."""

from __future__ import annotations

import os
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from app_pages.parts import answers
from app_pages.parts.answers import Remembered
from app_pages.parts.state import Question
from scenarios.errors import ScenarioError, printable
from sim.compare.result import compare_sides
from sim.compare.side import Side
from sim.predict.ratios import StepRatio, step_ratio
from sim.predict.scenario_result import kernel_args
from sim.report.side_loads import loads_of_result
from sim.report.sides import side, with_args

#: Endings that a compared file may have, and the largest one, MB.
ENDINGS = ("json", "gz", "csv", "db")
MAX_MB = 200

_ASKED: Remembered[Side] = Remembered(16)
#: A timeline of an uploaded profile may have hundreds of thousands of spans.
_UPLOADED: Remembered[Side] = Remembered(4)
_RATIOS: Remembered[StepRatio] = Remembered(64)


def asked(question: Question) -> Side:
    """A scenario's step. Raises ScenarioError."""
    answer = answers.first(question)

    def make() -> Side:
        timeline = with_args(answer.prediction.timeline, kernel_args(answer.prediction))
        return Side(answer.result["scenario"]["name"], "scenario", answer.result, timeline, ())

    return _ASKED.get(answers.key_of(answer.loaded), make)


def served(given: Side, question: Question | None) -> Side:
    """A scenario's side with the load that it serves; any other as it is. Raises ScenarioError."""
    if question is None or given.result is None or answers.loaded(question).scenario.workload.traffic is None:
        return given
    from app_pages.parts.served import served as served_of  # a step alone needs no numpy
    from sim.serving.result import serving_block

    block = serving_block(served_of(question).result)
    return replace(given, loads=loads_of_result({**given.result, "serving": block}))


def uploaded(name: str, data: bytes) -> Side:
    """A result of `run --json`, a trace, a profile in one file, or a load test.

    Raises ScenarioError in the file's own name.
    """
    return _UPLOADED.get((name, sha256(data).hexdigest()), lambda: _read(printable(os.path.basename(name), 100), data))


def _read(name: str, data: bytes) -> Side:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name.replace("/", "_").lstrip(".")
        path.write_bytes(data)
        try:
            return side(str(path), ())
        except ScenarioError as error:
            raise ScenarioError([message.replace(f"{folder}{os.sep}", "") for message in error.messages]) from None


def ratio(a: Question, b: Question) -> StepRatio:
    """Step of A over step of B with its interval, where both are scenarios. Raises ScenarioError."""
    first, second = answers.first(a), answers.first(b)
    key = answers.key_of(first.loaded), answers.key_of(second.loaded)
    return _RATIOS.get(key, lambda: step_ratio(first.prediction.case, second.prediction.case))


def compared(a: Side, b: Side) -> dict[str, Any]:
    """The `compare` document of both."""
    return compare_sides(a, b)
