"""The README's tables, computed: `python -m benchmarks.documents.tables` prints them, a test compares.

Accuracy comes from the reference set, gains from the shipped eager scenario with the measured ones next to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from scenarios.loader import load_scenario
from scenarios.ops.families import family_of_type
from sim.accuracy.ablations import ablations_result, price_ablations, read_ablations
from sim.accuracy.collectives import price_collectives
from sim.accuracy.reference import FOLDER, reference_csv
from sim.accuracy.rows.files import read_collectives, read_kernels, read_steps
from sim.accuracy.score import Scored, errors, percentile, price_kernels, price_steps, split_errors
from sim.predict.predict import predict
from sim.predict.scenario_result import case_of, scenario_result

HEAD = (
    "| compared | source | fitted: rows | median error | P90 | not fitted: rows | median error | P90 | "
    "plain roofline's median |",
    "|---|---|---:|---:|---:|---:|---:|---:|---:|",
)
_FAMILIES = (("matmul", "matrix products"), ("attention", "attention"), ("vector", "vector, cache, sampling"))
GAIN_SCENARIO = "qwen3_8b_910b2_eager"
DIES_SCENARIO = "qwen3_8b_tp2_decode"
_SOURCE = "profiles of Qwen3-32B, DeepSeek-V3 (A3 die), Qwen3-8B (910B2, A3 die) and TorchAir models (910B2)"

_ABLATIONS = "Qwen3-8B, 0.6B and Reranker on 910B2, an MLP on an A3 die, two MoE models on 910B3 pairs"
_LINKS = "8 and 16 dies of A3, two cards of a 910B4-class chip"


def kernels_of_reference() -> list[Scored]:
    """The scored kernels of all stacks."""
    files = sorted(FOLDER.glob("kernels*.csv"))
    rows = [row for path in files for row in read_kernels(path)]
    return [r for r in price_kernels(rows)[0] if r.scored]


def accuracy_rows() -> list[str]:
    """The accuracy table's lines: rows that a shipped profile was fitted to apart from those that none was."""
    steps = read_steps(reference_csv("steps"))
    families: dict[str, list[Scored]] = {"matmul": [], "attention": [], "vector": []}
    kernels = kernels_of_reference()
    for row in kernels:
        families[family_of_type(row.kind)].append(row)
    lines = [_line(f"kernels: {name}", _SOURCE, families[key]) for key, name in _FAMILIES]
    lines.append(_line("kernels: all", _SOURCE, kernels))
    collectives = price_collectives(read_collectives(reference_csv("collectives")))[0]
    links = [replace(r, fitted=True) for r in collectives if r.scored]  # the links' numbers are fitted to all of them
    lines.append(_line("collectives alone", _LINKS, links))
    for name, where, rows in (
        (
            "whole single-card steps",
            "Qwen3-8B and 0.6B on 910B2 (eager and graph), Qwen3-8B on an A3 die",
            [r.cards == 1 for r in steps],
        ),
        (
            "whole steps of several cards",
            "Qwen3-32B and DeepSeek-V3 on 16 dies of A3, Qwen3-8B and 30B-A3B on two 910B2 cards",
            [r.cards > 1 for r in steps],
        ),
    ):
        priced = price_steps(r for r, taken in zip(steps, rows, strict=True) if taken)[0]
        if scored := [r for r in priced if r.scored]:
            lines.append(_line(name, where, scored))
    return [*HEAD, *lines, *_gain_lines()]


def _gain_lines() -> list[str]:
    """The ablations: points of the gains, and the errors of their times."""
    rows = [r for r in price_ablations(read_ablations(reference_csv("ladders")))[0] if r.scored]
    parts = [[r for r in rows if r.fitted], [r for r in rows if not r.fitted]]
    gains, times = [], []
    for part in parts:
        result = ablations_result(part, [])
        right = f"direction right in {result['signs_right']} of {result['signs_asked']} beyond 5 %"
        gains.append(f"{result['scored']} | {result['median_points']:.1f} points; {right} | -")
        absolute = sorted(abs(error) for r in part for error in r.errors or ())
        times.append(f"{len(absolute)} | {median(absolute):.1%} | {percentile(absolute, 0.9):.1%}")
    return [
        f"| gains of single optimisations | {_ABLATIONS} | {' | '.join(gains)} | |",
        f"| times before and after them | {_ABLATIONS} | {' | '.join(times)} | |",
    ]


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


def _line(name: str, source: str, rows: Sequence[Scored]) -> str:
    parts = split_errors(rows)
    cells = [_cells(parts[key]) for key in ("fitted", "not_fitted")]
    return f"| {name} | {source} | {' | '.join(cells)} | {errors(rows)['roofline_median']:.0%} |"


def _cells(result: dict[str, Any]) -> str:
    if not result["rows"]:
        return "- | - | -"
    return f"{result['rows']} | {result['median']:.1%} | {result['p90']:.1%}"


if __name__ == "__main__":
    print("\n".join([*accuracy_rows(), "", *gain_rows(), "", *dies_rows()]))
