"""The report as plain data: what `--json` writes and what the Markdown and the terminal are made from."""

from __future__ import annotations

from dataclasses import asdict
from math import exp
from typing import Any

from scenarios.exchange.bench import Side, WarmUp
from sim.experiment.factors import Ratio
from sim.experiment.rows import Combination, Compared, Experiment, Row, ShapeRow
from sim.experiment.statistics import Interval

SCHEMA_VERSION = 1


def experiment_result(found: Experiment) -> dict[str, Any]:
    """The `experiment` result: the seven steps in their order. Gains are without / with, above 1 where it helps."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "experiment",
        "headline": found.headline,
        "baseline": found.baseline,
        "warm_up": {**asdict(found.warmth), **_warm_up(found.warm_up)},
        "profile": {
            "bottleneck": {**asdict(found.bottleneck), "agree": found.bottleneck.agree},
            "step": found.profile["step"], "errors": found.profile["errors"], "kernels": found.profile["kernels"],
            "scaled_by": found.profile["scaled_by"],
        },
        "control": {part: asdict(it) for part, it in found.control.items()},
        "ratios_by_reference_kernel": found.by_reference,
        "smallest_gain_told": exp(found.floor) - 1,
        "metrics": {"predicted": found.predicted_metrics, "measured": found.measured_metrics},
        "cold_start": found.cold_start,
        "factors": [_row(row, found) for row in found.rows],
        "agreement": agreement(found),
        "shapes": [_shape(row) for row in found.shapes],
        "combinations": [_combination(it) for it in found.combinations],
        "recommended": recommended(found),
        "left_out": list(found.left_out),
        "warnings": list(found.warnings),
        "budget_s": found.budget_s,
        "elapsed_s": found.elapsed_s,
    }  # fmt: skip


def recommended(found: Experiment) -> list[str]:
    """The `--set` pairs that follow from the verdicts: what is off and to be adopted, what is on and costs time."""
    best: dict[str, tuple[float, str]] = {}
    for row in found.rows:
        if row.verdict is None or row.compared is None:
            continue
        factor, gain = row.factor, row.compared.gains[found.headline]
        if factor.state == "off" and row.verdict.call == "adopt":
            best[factor.switch] = max(best.get(factor.switch, (0.0, "")), (gain.value, factor.setting))
        elif factor.state == "on" and row.verdict.call == "do not adopt" and not factor.for_capacity:
            off = _off(row)
            best[factor.switch] = (1 / gain.value, f"optimizations.{factor.switch}={off}")
    return [setting for _, setting in sorted(best.values(), key=lambda it: (-it[0], it[1]))]


def _off(row: Row) -> str:
    from scenarios.passes.base import switch_value

    return str(switch_value(row.factor.without, row.factor.switch)).lower()


def agreement(found: Experiment) -> dict[str, int]:
    """How predictions of gains fared. covered: measured medians inside the predicted interval; overlapping: intervals
    that meet; ordered: of pairs of factors whose measured intervals are apart, those that were predicted in the same
    order."""
    pairs = [
        (row.predicted[found.headline], row.compared.gains[found.headline]) for row in found.rows if row.compared
    ]  # fmt: skip
    apart = [
        (a, b) for n, a in enumerate(pairs) for b in pairs[n + 1 :]
        if a[1].low > b[1].high or b[1].low > a[1].high
    ]  # fmt: skip
    same = sum((a[0].value - b[0].value) * (a[1].value - b[1].value) > 0 for a, b in apart)
    return {
        "factors": len(pairs),
        "covered": sum(p.low <= m.value <= p.high for p, m in pairs),
        "overlapping": sum(p.low <= m.high and m.low <= p.high for p, m in pairs),
        "pairs_apart": len(apart),
        "pairs_in_order": same,
    }


def _warm_up(it: WarmUp) -> dict[str, Any]:
    return {
        "part": it.part,
        "repeats": [{"reference_us": r / 1000, "side_us": s / 1000} for r, s in it.repeats],
        "baseline": _side(it.side),
    }


def _row(row: Row, found: Experiment) -> dict[str, Any]:
    factor = row.factor
    made: dict[str, Any] = {
        "factor": factor.name, "switch": factor.switch, "title": factor.title, "value": factor.value,
        "state": factor.state, "given": list(factor.given), "status": row.status, "reason": row.reason,
        "predicted": {part: _ratio(it) for part, it in row.predicted.items()},
        "predicted_metrics": row.predicted_metrics,
        "verdict": asdict(row.verdict) if row.verdict else None,
    }  # fmt: skip
    if row.compared is not None:
        made |= _compared(row.compared)
        predicted, gain = row.predicted[found.headline], row.compared.gains[found.headline]
        made["covered"] = predicted.low <= gain.value <= predicted.high
    return made


def _compared(it: Compared) -> dict[str, Any]:
    return {
        "measured": {part: asdict(gain) for part, gain in it.gains.items()},
        "numerics": asdict(it.numbers),
        "metrics": {"without": it.without, "with": it.with_it},
        "sides": {"without": _side(it.pair.a), "with": _side(it.pair.b)},
        "decode_steps": it.pair.decode_steps,
        "first_context": it.pair.first_context,
        "turns": {part: [asdict(turn) for turn in turns] for part, turns in it.pair.repeats.items()},
    }


def _side(side: Side) -> dict[str, Any]:
    made = asdict(side)
    return {**made, "first_ms": dict(side.first_ms), "second_ms": dict(side.second_ms)}


def _ratio(it: Ratio | Interval | None) -> dict[str, Any] | None:
    return None if it is None else asdict(it)


def _shape(row: ShapeRow) -> dict[str, Any]:
    return {
        "factor": row.switch, "shape": row.shape, "status": row.status, "reason": row.reason,
        "predicted": _ratio(row.predicted), "measured": _ratio(row.gain),
    }  # fmt: skip


def _combination(it: Combination) -> dict[str, Any]:
    return {
        "factors": list(it.names), "state": it.state, "status": it.status, "reason": it.reason,
        "predicted": _ratio(it.predicted), "predicted_product": it.predicted_product,
        "together": _ratio(it.together), "product_of_singles": _ratio(it.product), "excess": _ratio(it.excess),
        "numerics": asdict(it.numbers) if it.numbers else None,
    }  # fmt: skip
