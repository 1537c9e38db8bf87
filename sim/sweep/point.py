"""One point of a sweep: its scenario predicted, as one flat row; what cannot run is a row too, with the reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache, lru_cache, partial
from hashlib import sha256
from typing import Any, Literal

from scenarios.errors import ScenarioError, printable
from scenarios.loader import Base, Loaded, folder_of, read_base, with_settings
from scenarios.models.model import Model
from scenarios.serving.traces import FILE_KEY, trace_path
from scenarios.timeline import StepTime
from sim import __version__
from sim.engines.profile import engine_of
from sim.hardware.profile import HardwareProfile
from sim.predict.brief import brief
from sim.predict.memory import DoesNotFit
from sim.predict.scenario_result import case_of
from sim.predict.steps import Case
from sim.serving.result import serve_scenario, serving_columns
from sim.sweep.space import Point

#: done: predicted. skipped: not a scenario that can run, and why. failed: a fault of this program, and which.
Status = Literal["done", "skipped", "failed"]
#: Longest reason that is kept, characters.
MAX_REASON = 300

#: A result: hash, status, reason, metrics by column.
Result = tuple[str, Status, str, dict[str, float | int | str]]


def results_of(scenario: str, points: Sequence[Point]) -> list[tuple[int, Result]]:
    """The rows of some points of the grid over `scenario`, whose file is read once, each with its place."""
    base = cache(partial(read_base, scenario))
    return [(point.place, _result_of(scenario, base, point)) for point in points]


def result_of(scenario: str, point: Point) -> Result:
    """The row of one point of the grid over `scenario`."""
    return results_of(scenario, (point,))[0][1]


def hash_at(scenario: str, point: Point) -> str:
    """The hash of one point's resolved scenario; "" where it cannot run."""
    try:
        loaded = with_settings(read_base(scenario), point.sets)
        return hash_of(case_of(loaded), *_traffic_texts(loaded))
    except (ScenarioError, DoesNotFit):
        return ""


def _result_of(scenario: str, base: Callable[[], Base], point: Point) -> Result:
    """The row of one point; never raises but for what stops the process."""
    key = _hash([scenario, *point.sets])
    try:
        loaded = with_settings(base(), point.sets)
        case = case_of(loaded)
        key = hash_of(case, *_traffic_texts(loaded))
        return key, "done", "", metrics_of(case) | _served(loaded, case)
    except ScenarioError as error:
        return key, "skipped", _line(error.messages[0]), {}
    except DoesNotFit as error:
        return key, "skipped", _line(str(error)), {}
    except Exception as error:  # a point that fails is a row, and the sweep goes on
        return key, "failed", _line(f"{type(error).__name__}: {error}"), {}


def hash_of(case: Case, *more: str) -> str:
    """What tells one point from another: the resolved scenario, the numbers of its hardware, the tool's version. more:
    JSON texts of what else it depends on."""
    scenario = case.scenario.model_dump(mode="json")
    scenario.pop("description", None)
    return _hash_of_texts(
        _text(scenario), _text(case.model.name), _model_text(case.model), _hardware_text(case.hardware), *more
    )


def _traffic_texts(loaded: Loaded) -> tuple[str, ...]:
    """What requests in time depend on beyond the scenario: the numbers of its engine, and the trace's bytes."""
    traffic = loaded.scenario.workload.traffic
    if traffic is None:
        return ()
    numbers = sorted((name, number.value) for name, number in engine_of(loaded).profile.numbers().items())
    if traffic.trace is None:
        return (_text(numbers),)
    try:
        trace = trace_path(traffic.trace.file, folder_of(loaded, FILE_KEY)).read_bytes()
    except (OSError, ValueError):
        trace = b""  # serving says why it cannot be read
    return _text(numbers), _text(sha256(trace).hexdigest())


def _served(loaded: Loaded, case: Case) -> dict[str, float | int | str]:
    """The columns of a point whose requests come in time; none without. Raises ScenarioError."""
    if loaded.scenario.workload.traffic is None:
        return {}
    row = serving_columns(serve_scenario(loaded, case, search=False))
    apart = loaded.scenario.engine.disaggregated_prefill
    ranks = loaded.scenario.engine.pipeline_parallel_size
    ranks *= (apart and apart.tensor_parallel_size) or case.model.tensor_parallel
    cards = case.model.cards + (apart.instances * ranks if apart else 0)
    return row | {"serving_output_throughput_per_card": float(row["serving_output_throughput"]) / cards}


@lru_cache(maxsize=64)
def _model_text(model: Model) -> str:
    return _text(repr(model))


@lru_cache(maxsize=64)
def _hardware_text(hardware: HardwareProfile) -> str:
    return _text(sorted((name, number.value) for name, number in hardware.profile.numbers().items()))


def _hash(parts: list[Any]) -> str:
    return _hash_of_texts(*map(_text, parts))


def _hash_of_texts(*parts: str) -> str:
    """The hash of a JSON list: this version, and parts that are JSON already."""
    text = f"[{', '.join((_text(__version__), *parts))}]"
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _text(part: Any) -> str:
    return json.dumps(part, sort_keys=True, ensure_ascii=False)


#: Each part of a step in ns, and its column in microseconds.
_STEP_COLUMNS = tuple((part.name, f"step_{part.name.removesuffix('_ns')}_us") for part in fields(StepTime))


def metrics_of(case: Case) -> dict[str, float | int | str]:
    """The columns of a prediction: each metric with its interval, the parts of the step, memory, capacity, bottleneck.
    Raises DoesNotFit."""
    short = brief(case)
    row: dict[str, float | int | str] = {}
    for name, metric in short.metrics.items():
        row |= {name: metric.value, f"{name}_low": metric.low, f"{name}_high": metric.high}
    for name, column in _STEP_COLUMNS:
        row[column] = getattr(short.step, name) / 1000
    memory = short.memory
    row |= {
        "memory_bytes": memory.total,
        "kv_tokens": memory.capacity.kv_tokens,
        "max_concurrent_requests": memory.capacity.max_concurrent_requests,
        "cards": case.model.cards,
        "bottleneck": short.bottleneck,
    }
    return row


def _line(text: str) -> str:
    return printable(text.partition("\n")[0], MAX_REASON)
