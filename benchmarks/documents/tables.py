"""The README's tables, computed: `python -m benchmarks.documents.tables` prints them, a test compares.

Accuracy comes from the reference set, gains from the shipped eager scenario with the measured ones next to them.
"""

from __future__ import annotations

from typing import Any

from scenarios.loader import load_scenario
from scenarios.ops.families import family_of_type
from sim.accuracy.ablations import ablations_result, price_ablations, read_ablations
from sim.accuracy.collectives import price_collectives
from sim.accuracy.reference import reference_csv
from sim.accuracy.rows.files import read_collectives, read_kernels, read_steps
from sim.accuracy.score import Scored, errors, price_kernels, price_steps
from sim.predict.predict import predict
from sim.predict.scenario_result import case_of, scenario_result

HEAD = (
    "| compared | source | rows | median error | P90 | plain roofline's median |",
    "|---|---|---:|---:|---:|---:|",
)
_FAMILIES = (("matmul", "matrix products"), ("attention", "attention"), ("vector", "vector, cache, sampling"))
GAIN_SCENARIO = "qwen3_8b_910b2_eager"
DIES_SCENARIO = "qwen3_8b_tp2_decode"
_SOURCE = "profiles of Qwen3-32B, DeepSeek-V3 (A3 die) and Qwen3-8B (910B2, A3 die)"

_ABLATIONS = "Qwen3-8B, 0.6B and Reranker on 910B2, an MLP on an A3 die, two MoE models on 910B3 pairs"
_LINKS = "8 and 16 dies of A3, two cards of a 910B4-class chip"


def accuracy_rows() -> list[str]:
    """The accuracy table's lines."""
    kernels = [r for r in price_kernels(read_kernels(reference_csv("kernels")))[0] if r.scored]
    steps = read_steps(reference_csv("steps"))
    families: dict[str, list[Scored]] = {"matmul": [], "attention": [], "vector": []}
    for row in kernels:
        families[family_of_type(row.kind)].append(row)
    lines = [_line(f"kernels: {name}", _SOURCE, errors(families[key])) for key, name in _FAMILIES]
    lines.append(_line("kernels: all", _SOURCE, errors(kernels)))
    collectives = price_collectives(read_collectives(reference_csv("collectives")))[0]
    lines.append(_line("collectives alone", _LINKS, errors([r for r in collectives if r.scored])))
    for name, where, rows in (
        (
            "whole single-card steps",
            "Qwen3-8B on 910B2 (eager and graph) and on an A3 die",
            [r.cards == 1 for r in steps],
        ),
        (
            "whole steps of several cards",
            "Qwen3-32B and DeepSeek-V3 on 16 dies of A3, Qwen3-8B on two 910B2 cards",
            [r.cards > 1 for r in steps],
        ),
    ):
        priced = price_steps(r for r, taken in zip(steps, rows, strict=True) if taken)[0]
        if scored := [r for r in priced if r.scored]:
            lines.append(_line(name, where, errors(scored)))
    ablations = ablations_result(*price_ablations(read_ablations(reference_csv("ladders"))))
    lines.append(
        f"| gains of single optimisations | {_ABLATIONS} | {ablations['scored']} | "
        f"{ablations['median_points']:.1f} points; direction right in {ablations['signs_right']} of "
        f"{ablations['signs_asked']} beyond 5 % | | |"
    )
    return [*HEAD, *lines]


def gain_rows() -> list[str]:
    """What each optimisation gains alone, eager and in a graph, at batch 1: a factor on the step, with its interval."""
    eager = scenario_result(GAIN_SCENARIO).result["gains"]
    graph = scenario_result(GAIN_SCENARIO, ("optimizations.graph=ge_graph",)).result["gains"]
    lines = ["| optimisation, alone | op by op (eager) | in a graph (ge_graph) |", "|---|---|---|"]
    for a, b in zip(eager, graph, strict=True):
        if a["verdict"] == b["verdict"] == "not applicable":
            continue  # what needs several ranks
        lines.append(f"| `{a['pass']}: {a['value']}` | {_gain(a)} | {_gain(b)} |")
    return lines


def dies_rows() -> list[str]:
    """A decode step of Qwen3-8B on 1, 2, 4 and 8 A3 dies, in BF16 and W8A8: what dies take off, and how they wait."""
    lines = [
        "| dies | BF16, ms | in collectives | of it waiting | W8A8, ms | in collectives | of it waiting |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for dies in (1, 2, 4, 8):
        cells = []
        for weights in ("bf16", "w8a8"):
            sets = (f"engine.tensor_parallel_size={dies}", f"optimizations.weights={weights}")
            prediction = predict(case_of(load_scenario(DIES_SCENARIO, sets)))
            tpot, step = prediction.metrics["tpot_ms"], prediction.step
            cells.append(f"{tpot.value:.1f} ({tpot.low:.1f}-{tpot.high:.1f})")
            cells += [f"{ns / 1e6:.1f}" for ns in (step.communication_ns, step.communication_wait_ns)]
        lines.append(f"| {dies} | {' | '.join(cells)} |")
    return lines


def _gain(gain: dict[str, Any]) -> str:
    if gain["verdict"] == "not applicable":
        return "-"
    if gain["verdict"] == "no effect":
        return "no effect"
    shown = f"{gain['alone_ratio']:.2f}x ({gain['low']:.2f}-{gain['high']:.2f})"
    return shown + (", not distinguishable" if gain["verdict"] == "not distinguishable" else "")


def _line(name: str, source: str, result: dict[str, Any]) -> str:
    return (
        f"| {name} | {source} | {result['rows']} | {result['median']:.1%} | {result['p90']:.1%} | "
        f"{result['roofline_median']:.0%} |"
    )


if __name__ == "__main__":
    print("\n".join([*accuracy_rows(), "", *gain_rows(), "", *dies_rows()]))
