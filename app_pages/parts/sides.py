"""What the compare page lays side by side: a scenario as asked, or a file that the reader uploads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from app_pages.parts import answers
from app_pages.parts.answers import Remembered
from app_pages.parts.dropped import inside, one_of, plain_of
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


def uploaded(files: Sequence[tuple[str, bytes]]) -> Side:
    """A result of `run --json`, a trace, a profile in one file, or a load test in one or two.

    Raises ScenarioError in the file's own name.
    """
    return _remembered([(printable(os.path.basename(name), 100), data) for name, data in files], "")


def uploaded_folder(files: Sequence[tuple[str, bytes]]) -> Side:
    """A profile in a folder: what its profiler wrote of one rank or of several. Raises ScenarioError."""
    placed = [(str(path), data) for name, data in files if (path := inside(name)) is not None]
    if sum(len(data) for _, data in placed) > MAX_MB * 1_000_000 or not placed:
        raise ScenarioError([f"a folder of at least one file and at most {MAX_MB} MB is due"])
    tops = {name.partition("/")[0] for name, _ in placed}
    return _remembered(placed, tops.pop() if len(tops) == 1 else ".")


def _remembered(files: Sequence[tuple[str, bytes]], chosen: str) -> Side:
    digest = sha256(b"".join(sha256(name.encode() + b"\0" + data).digest() for name, data in sorted(files))).hexdigest()
    return _UPLOADED.get((chosen, digest), lambda: _read(files, chosen))


def _read(files: Sequence[tuple[str, bytes]], chosen: str) -> Side:
    """chosen: the folder of the files that is read; "" for the one file."""
    with TemporaryDirectory() as folder:
        try:
            path = Path(folder, chosen) if chosen else one_of(files, Path(folder))
            for name, data in files if chosen else ():
                place = Path(folder) / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(data)
            read = side(str(path), ())
        except ScenarioError as error:
            raise ScenarioError([plain_of(message, folder) for message in error.messages]) from None
        return replace(read, notes=tuple(plain_of(note, folder) for note in read.notes))


def ratio(a: Question, b: Question) -> StepRatio:
    """Step of A over step of B with its interval, where both are scenarios. Raises ScenarioError."""
    first, second = answers.first(a), answers.first(b)
    key = answers.key_of(first.loaded), answers.key_of(second.loaded)
    return _RATIOS.get(key, lambda: step_ratio(first.prediction.case, second.prediction.case))


def compared(a: Side, b: Side) -> dict[str, Any]:
    """The `compare` document of both."""
    return compare_sides(a, b)
