"""What `whatif compare` is given: a scenario, a result of `run --json`, a trace, a profile or a load test.

Each becomes a `Side`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from scenarios.errors import ScenarioError, printable
from scenarios.exchange.load_tests import is_load_test, read_load_tests
from scenarios.timeline import Timeline
from scenarios.trace import TraceError, read_trace
from scenarios.trace.layout import HOST, KernelArgs, merged_args
from sim.compare.side import Kind, Side
from sim.report.side_loads import loads_of_result, loads_of_tests

#: As much of a JSON file as tells a trace from a result, bytes.
_SNIFFED = 1 << 16
_TRACE_ARRAY = re.compile(rb"\s*\[\s*\{")
_TRACE_KEYS = (b'"traceEvents"', b'"schemaVersion"')
_NUMBERED = re.compile(r"(?P<file>.+)#(?P<number>[0-9]{1,9})")


def side(given: str, sets: Sequence[str]) -> Side:
    """`FILE#2` is the second timeline of a trace or profile that holds several. Raises ScenarioError."""
    file, number = _split(given)
    if is_load_test(Path(file)):
        return _load_test(file, number)
    if os.path.isdir(file) and not file.endswith(".json"):
        return _capture(file, number)
    if file.endswith((".json.gz", ".db", ".csv")):
        return _capture(file, number)
    if not file.endswith(".json"):
        return _scenario(given, sets)
    if _is_trace(file):
        return _trace(file, number)
    from sim.compare.result_file import read_result

    if number:
        raise ScenarioError([f"{printable(given, 200)}: a result holds no timelines to choose from"])
    result = read_result(file)
    return Side(result["scenario"]["name"], "result", result, None, (file,), loads=loads_of_result(result))


def _split(given: str) -> tuple[str, int]:
    """The file, and the number of a timeline in it, 0 where none is given; a file of the whole name comes first."""
    match = _NUMBERED.fullmatch(given)
    if match is None or os.path.exists(given) or not os.path.exists(match["file"]):
        return given, 0
    if int(match["number"]) == 0:
        raise ScenarioError([f"{printable(given, 200)}: timelines count from 1"])
    return match["file"], int(match["number"])


def _is_trace(file: str) -> bool:
    if not os.path.isfile(file):  # whoever reads results says what is wrong with it
        return False
    try:
        with open(file, "rb") as opened:
            head = opened.read(_SNIFFED)
    except OSError:
        return False
    return bool(_TRACE_ARRAY.match(head)) or any(key in head for key in _TRACE_KEYS)


def _scenario(given: str, sets: Sequence[str]) -> Side:
    from sim.predict.scenario_result import kernel_args, scenario_result

    run = scenario_result(given, sets)
    timeline = with_args(run.prediction.timeline, kernel_args(run.prediction))
    sources = tuple(map(str, run.loaded.document.sources))
    name = run.result["scenario"]["name"]
    if run.loaded.scenario.workload.traffic is not None:
        from sim.serving.result import serve_scenario, serving_block  # a step alone needs no numpy

        run.result["serving"] = serving_block(serve_scenario(run.loaded, run.prediction.case))
    return Side(name, "scenario", run.result, timeline, sources, loads=loads_of_result(run.result))


def _load_test(file: str, number: int) -> Side:
    if number:
        raise ScenarioError([f"{printable(file, 200)}#{number}: a load test holds no timelines to choose from"])
    loads, notes = loads_of_tests(read_load_tests(Path(file)))
    if not loads:
        raise ScenarioError([f"{printable(file, 200)}: holds no load test with both TTFT and TPOT"])
    return Side(printable(Path(file).name, 100), "load test", None, None, (file,), notes=notes, loads=loads)


def with_args(timeline: Timeline, args: KernelArgs) -> Timeline:
    """`timeline` whose spans hold the arguments of their kernels themselves, as one that was read from a trace."""
    spans = tuple(
        span if span.process in HOST or span.index < 0 else replace(span, args=tuple(merged_args(span, args).items()))
        for span in timeline.spans
    )
    return replace(timeline, spans=spans)


def _trace(file: str, number: int) -> Side:
    try:
        timelines: Sequence[Timeline] = read_trace(file)
    except TraceError:
        return _capture(file, number, "trace")  # of another tool, perhaps
    return _chosen(file, number, timelines, (), "trace")


def _capture(file: str, number: int, kind: Kind = "profile") -> Side:
    from scenarios.profile.read import read_captures
    from sim.imported.timelines import timelines_of

    timelines, notes = timelines_of(read_captures(file))
    return _chosen(file, number, timelines, notes, kind)


def _chosen(file: str, number: int, timelines: Sequence[Timeline], notes: Sequence[str], kind: Kind) -> Side:
    """The timeline of that number; without one the first, with a note of what else there is."""
    shown = printable(file, 200)
    if number > len(timelines):
        raise ScenarioError([f"{shown}#{number}: there is no such timeline, only {_listed(timelines)}"])
    chosen = timelines[max(0, number - 1)]
    if not number and len(timelines) > 1:
        notes = [
            *notes,
            f"{shown}: the first of {len(timelines)} timelines; name another as {shown}#2: {_listed(timelines)}",
        ]
    name = Path(file).name or shown
    if len(timelines) > 1:
        name += f"#{max(1, number)}"
    return Side(name, kind, None, chosen, (file,), tuple(notes))


def _listed(timelines: Sequence[Timeline], most: int = 8) -> str:
    names = [f"#{n} {t.label.lower()}, rank {t.rank}" for n, t in enumerate(timelines[:most], 1)]
    return ", ".join(names) + (", ..." if len(timelines) > most else "")
