"""What an experiment finds, as plain values: one row a factor, a shape, a combination."""

from __future__ import annotations

from dataclasses import field
from statistics import median
from typing import Any, Literal

from scenarios.exchange.bench import Pair, Part, Repeat, WarmUp
from scenarios.records import dataclass
from scenarios.schema import Scenario
from sim.experiment.factors import Factor, Ratio
from sim.experiment.record import Bottleneck
from sim.experiment.statistics import Interval, Warmth
from sim.experiment.verdict import Checked, Verdict

#: measured; refused: the backend or the scenario cannot have it, by name; failed: it was tried; left out: for time.
Status = Literal["measured", "refused", "failed", "left out"]
Metrics = dict[str, float]


@dataclass(frozen=True, slots=True)
class Compared:
    """What one pair of sides showed. gains: by part, without / with. Metrics are measured medians of each side."""

    pair: Pair
    gains: dict[Part, Interval]
    numbers: Checked
    without: Metrics
    with_it: Metrics


@dataclass(frozen=True, slots=True)
class Row:
    """One factor. predicted: by part. reason: why it was not measured. verdict: None where it was not."""

    factor: Factor
    status: Status
    predicted: dict[Part, Ratio] = field(default_factory=dict)
    predicted_metrics: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    reason: str = ""
    compared: Compared | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class ShapeRow:
    """A factor at another shape. shape: what is other."""

    switch: str
    shape: str
    status: Status
    predicted: Ratio | None = None
    gain: Interval | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Combination:
    """Several factors at once, from none of them to all. together: measured; product: of their single gains; excess:
    together / product, 1 where they do not touch each other. state: whether the scenario has them off or on."""

    names: tuple[str, ...]
    state: Literal["on", "off"]
    status: Status
    predicted: Ratio | None = None
    predicted_product: float | None = None
    together: Interval | None = None
    product: Interval | None = None
    excess: Interval | None = None
    numbers: Checked | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Experiment:
    """All that was measured. headline: the part that verdicts are of. by_reference: whether ratios are by the fixed
    kernel. floor: |ln| of the smallest gain that is distinguished from none. left_out: what there was no time for;
    left_out_s: about how long it would take."""

    baseline: dict[str, Any]
    scenario: Scenario
    headline: Part
    warm_up: WarmUp
    warmth: Warmth
    bottleneck: Bottleneck
    profile: dict[str, Any]
    predicted_metrics: dict[str, dict[str, float]]
    measured_metrics: Metrics
    cold_start: dict[str, float]
    control: dict[Part, Interval]
    by_reference: bool
    floor: float
    rows: tuple[Row, ...]
    shapes: tuple[ShapeRow, ...]
    combinations: tuple[Combination, ...]
    left_out: tuple[str, ...]
    warnings: tuple[str, ...]
    budget_s: float
    elapsed_s: float
    left_out_s: float = 0.0


def metrics_of(scenario: Scenario, pair: Pair, of_a: bool) -> Metrics:
    """TTFT, TPOT and throughput of one side, without what other programs had of the processor, and by the wall; bytes.

    output_throughput: requests x output tokens / (TTFT + (output tokens - 1) TPOT), tokens/s.
    """
    side = pair.a if of_a else pair.b
    metrics: Metrics = {}
    for part, turns in pair.repeats.items():
        metrics[f"{part}_ms"] = median(_ns(t, of_a) for t in turns) / 1e6
        metrics[f"{part}_wall_ms"] = median(t.a_wall_ns if of_a else t.b_wall_ns for t in turns) / 1e6
    workload = scenario.workload
    e2el_ms = metrics["ttft_ms"] + (workload.output_tokens - 1) * metrics["tpot_ms"]
    metrics["output_throughput"] = 1000 * workload.batch * workload.output_tokens / e2el_ms
    metrics["decode_throughput"] = 1000 * workload.batch / metrics["tpot_ms"]
    metrics |= {
        "weights_bytes": float(side.weights_bytes),
        "kv_cache_bytes": float(side.kv_cache_bytes),
        "values_bytes": float(side.values_bytes),
    }
    metrics["memory_bytes"] = metrics["weights_bytes"] + metrics["kv_cache_bytes"] + metrics["values_bytes"]
    metrics["load_ms"] = side.load_ms
    # What the first pass through everything took more than the second.
    metrics["cold_ms"] = sum(side.first_ms.values()) - sum(side.second_ms.values())
    return metrics


def _ns(turn: Repeat, of_a: bool) -> float:
    return turn.a_ns if of_a else turn.b_ns
