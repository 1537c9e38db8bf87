"""The measured step that is nearest to a scenario's: the same, or one that differs in what is said.

A row is near where it measures the same model on a chip of the same family in the same phase; of those, the one that
differs in the fewest settings, then in batch and lengths by the smallest factor.
"""

from __future__ import annotations

from functools import lru_cache
from math import log2

from scenarios.batches import reported_batch
from scenarios.records import dataclass
from scenarios.schema import Scenario
from sim.accuracy.rows.files import StepRow, read_steps
from sim.accuracy.steps import case_of_row
from sim.accuracy.validate import REFERENCE
from sim.predict.steps import Case

#: A context or a prompt that differs by less than this factor (as log2) is the same for what a step takes.
SAME_LENGTH = 0.2
#: Settings that a row states and that decide how long a step takes.
COMPARED = (
    "optimizations", "engine.tensor_parallel_size", "engine.pipeline_parallel_size", "engine.data_parallel_size",
    "engine.enable_expert_parallel", "engine.sequence_parallel",
)  # fmt: skip
#: A row that lies further away than this tells nothing of the scenario.
FAR = 8.0
#: What a difference of chip, and of one setting, weighs next to a doubling of batch or length.
CHIP, SETTING = 3.0, 1.0


@dataclass(frozen=True, slots=True)
class Measured:
    """A measured step. differs: `field: its value` of what is set otherwise than in the scenario; none for the same."""

    id: str
    step_ms: float
    differs: tuple[str, ...]
    fitted: bool
    conditions: str
    source: str


def nearest_measured(case: Case) -> Measured | None:
    """The nearest row of the shipped reference set; None where none that measures this model in this phase is near."""
    best: tuple[float, Measured] | None = None
    for row, other in _shipped():
        if other.model.name != case.model.name or row.phase != reported_batch(case.scenario).phase:
            continue
        distance, differs = _apart(case, other)
        if distance <= FAR and (best is None or distance < best[0]):
            best = distance, Measured(row.id, row.step_ms, differs, row.fitted, row.conditions, row.source)
    return best[1] if best is not None else None


@lru_cache(maxsize=1)
def _shipped() -> tuple[tuple[StepRow, Case], ...]:
    assert REFERENCE.steps is not None
    cases = ((row, case_of_row(row)) for row in read_steps(REFERENCE.steps))
    return tuple((row, case) for row, case in cases if isinstance(case, Case))


def _apart(case: Case, other: Case) -> tuple[float, tuple[str, ...]]:
    """How far the two lie apart, and in what: as values of the other."""
    distance, differs = 0.0, []
    if other.hardware.name != case.hardware.name:
        distance += CHIP
        differs.append(f"hardware: {other.hardware.name}")
    mine, theirs = reported_batch(case.scenario), reported_batch(other.scenario)
    sizes = (
        ("batch", mine.requests, theirs.requests, 0.0),
        ("context_tokens", _context(case.scenario), _context(other.scenario), SAME_LENGTH),
    )
    for name, a, b, same in sizes:
        apart = abs(log2((a + 1) / (b + 1)))
        if apart > same:
            distance += apart
            differs.append(f"{name}: {b}")
    for field, a_value, b_value in _settings(case.scenario, other.scenario):
        if a_value != b_value:
            distance += SETTING
            differs.append(f"{field}: {str(b_value).lower() if isinstance(b_value, bool) else b_value}")
    return distance, tuple(differs)


def _context(scenario: Scenario) -> int:
    batch = reported_batch(scenario)
    return max((group.context + group.query for group in batch.groups), default=0)


def _settings(a: Scenario, b: Scenario) -> list[tuple[str, object, object]]:
    first, second = (_flat(s.model_dump()) for s in (a, b))
    for flat in (first, second):
        if flat["optimizations.kv.dtype"] == "auto":  # the model's own 16 bits
            flat["optimizations.kv.dtype"] = "fp16" if flat["optimizations.weights"] == "fp16" else "bf16"
    return [(key, first[key], second.get(key)) for key in first if key.startswith(COMPARED)]


def _flat(values: dict[str, object], prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
