"""The report as plain data: what `--json` writes and what the Markdown and the terminal are made from."""

from __future__ import annotations

from dataclasses import asdict
from math import ceil, exp
from typing import Any

from scenarios.exchange.bench import Side, WarmUp
from scenarios.resolved import settings_of
from sim.experiment.factors import Ratio
from sim.experiment.regression import effects
from sim.experiment.rows import Combination, Compared, Experiment, Row, ShapeRow
from sim.experiment.statistics import Interval

SCHEMA_VERSION = 1


def experiment_result(measured: Experiment) -> dict[str, Any]:
    """The `experiment` result: the seven steps in their order. Gains are without / with, above 1 where it helps."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "experiment",
        "headline": measured.headline,
        "baseline": measured.baseline,
        "warm_up": {**asdict(measured.warmth), **_warm_up(measured.warm_up)},
        "profile": {
            "bottleneck": {**asdict(measured.bottleneck), "agree": measured.bottleneck.agree},
            "step": measured.profile["step"],
            "errors": measured.profile["errors"],
            "kernels": measured.profile["kernels"],
            "scaled_by": measured.profile["scaled_by"],
        },
        "control": {part: asdict(part_of) for part, part_of in measured.control.items()},
        "ratios_by_reference_kernel": measured.by_reference,
        "smallest_gain_told": exp(measured.floor) - 1,
        "metrics": {"predicted": measured.predicted_metrics, "measured": measured.measured_metrics},
        "cold_start": measured.cold_start,
        "factors": [_row(row, measured) for row in measured.rows],
        "effects": _effects(measured),
        "agreement": agreement(measured),
        "shapes": [_shape(row) for row in measured.shapes],
        "combinations": [_combination(part_of) for part_of in measured.combinations],
        "recommended": recommended(measured),
        "left_out": list(measured.left_out),
        "left_out_s": measured.left_out_s,
        "budget_for_all_s": _rounded_up(max(measured.budget_s, measured.elapsed_s + measured.left_out_s)),
        "warnings": list(measured.warnings),
        "budget_s": measured.budget_s,
        "elapsed_s": measured.elapsed_s,
    }


def _effects(measured: Experiment) -> dict[str, Any]:
    """Gains of single factors from all comparisons at the reported shape."""
    singles = [((r.factor.name,), r.compared.gains[measured.headline]) for r in measured.rows if r.compared]
    together = [(part.names, part.together) for part in measured.combinations if part.together]
    return {name: asdict(gain) for name, gain in effects([*singles, *together]).items()}


def _rounded_up(seconds: float) -> int:
    return 10 * ceil(seconds / 10)


def recommended(measured: Experiment) -> list[str]:
    """The `--set` pairs that follow from the verdicts: what is off and to be adopted, what is on and costs time."""
    best: dict[str, tuple[float, str]] = {}
    for row in measured.rows:
        if row.verdict is None or row.compared is None:
            continue
        factor, gain = row.factor, row.compared.gains[measured.headline]
        if factor.state == "off" and row.verdict.call == "adopt":
            best[factor.switch] = max(best.get(factor.switch, (0.0, "")), (gain.value, factor.setting))
        elif factor.state == "on" and row.verdict.call == "do not adopt" and not factor.for_capacity:
            off = _off(row)
            best[factor.switch] = (1 / gain.value, f"optimizations.{factor.switch}={off}")
    return [setting for _, setting in sorted(best.values(), key=lambda pair: (-pair[0], pair[1]))]


def _off(row: Row) -> str:
    from scenarios.passes.base import switch_value

    return str(switch_value(row.factor.without, row.factor.switch)).lower()


def agreement(measured: Experiment) -> dict[str, int]:
    """How predictions of gains fared. covered: measured medians inside the predicted interval; overlapping: intervals
    that meet; ordered: of pairs of factors whose measured intervals are apart, those that were predicted in the same
    order."""
    pairs = [
        (row.predicted[measured.headline], row.compared.gains[measured.headline])
        for row in measured.rows
        if row.compared
    ]
    apart = [
        (a, b) for n, a in enumerate(pairs) for b in pairs[n + 1 :] if a[1].low > b[1].high or b[1].low > a[1].high
    ]
    same = sum((a[0].value - b[0].value) * (a[1].value - b[1].value) > 0 for a, b in apart)
    return {
        "factors": len(pairs),
        "covered": sum(p.low <= m.value <= p.high for p, m in pairs),
        "overlapping": sum(p.low <= m.high and m.low <= p.high for p, m in pairs),
        "pairs_apart": len(apart),
        "pairs_in_order": same,
    }


def _warm_up(warm_up: WarmUp) -> dict[str, Any]:
    return {
        "part": warm_up.part,
        "repeats": [{"reference_us": r / 1000, "side_us": s / 1000} for r, s in warm_up.repeats],
        "baseline": _side(warm_up.side),
    }


def _row(row: Row, measured: Experiment) -> dict[str, Any]:
    factor = row.factor
    entry: dict[str, Any] = {
        "factor": factor.name,
        "switch": factor.switch,
        "title": factor.title,
        "value": factor.value,
        "state": factor.state,
        "given": list(factor.given),
        "settings": {"without": settings_of(factor.without), "with": settings_of(factor.with_it)},
        "status": row.status,
        "reason": row.reason,
        "predicted": {part: _ratio(ratio) for part, ratio in row.predicted.items()},
        "predicted_metrics": row.predicted_metrics,
        "verdict": asdict(row.verdict) if row.verdict else None,
    }
    if row.compared is not None:
        entry |= _compared(row.compared)
        predicted, gain = row.predicted[measured.headline], row.compared.gains[measured.headline]
        entry["covered"] = predicted.low <= gain.value <= predicted.high
    return entry


def _compared(compared: Compared) -> dict[str, Any]:
    return {
        "measured": {part: asdict(gain) for part, gain in compared.gains.items()},
        "numerics": asdict(compared.numbers),
        "metrics": {"without": compared.without, "with": compared.with_it},
        "sides": {"without": _side(compared.pair.a), "with": _side(compared.pair.b)},
        "decode_steps": compared.pair.decode_steps,
        "first_context": compared.pair.first_context,
        "turns": {part: [asdict(turn) for turn in turns] for part, turns in compared.pair.repeats.items()},
    }


def _side(side: Side) -> dict[str, Any]:
    entry = asdict(side)
    return {**entry, "first_ms": dict(side.first_ms), "second_ms": dict(side.second_ms)}


def _ratio(ratio: Ratio | Interval | None) -> dict[str, Any] | None:
    return None if ratio is None else asdict(ratio)


def _shape(row: ShapeRow) -> dict[str, Any]:
    return {
        "factor": row.switch,
        "shape": row.shape,
        "status": row.status,
        "reason": row.reason,
        "predicted": _ratio(row.predicted),
        "measured": _ratio(row.gain),
    }


def _combination(combination: Combination) -> dict[str, Any]:
    return {
        "factors": list(combination.names),
        "state": combination.state,
        "status": combination.status,
        "reason": combination.reason,
        "predicted": _ratio(combination.predicted),
        "predicted_product": combination.predicted_product,
        "together": _ratio(combination.together),
        "product_of_singles": _ratio(combination.product),
        "excess": _ratio(combination.excess),
        "numerics": asdict(combination.numbers) if combination.numbers else None,
    }
