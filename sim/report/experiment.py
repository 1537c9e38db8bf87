"""An experiment on a terminal: the verdicts, then the tables behind them."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from sim.report.experiment_markdown import NAMES, gain
from sim.report.formats import plain
from sim.report.tables import Column, fitted

STYLE = {"adopt": "green", "do not adopt": "red", "not distinguishable": "dim"}


def print_experiment(console: Console, result: dict[str, Any]) -> None:
    """What was found, the factors with both gains, other shapes, combinations, and what to set."""
    shown = plain(result)
    console.print(_head(shown))
    console.print(_factors(shown, console.width))
    if shown["shapes"]:
        console.print(_shapes(shown, console.width))
    if shown["combinations"]:
        console.print(_combinations(shown, console.width))
    for line in shown["left_out"]:
        console.print(Text(f"left out for time: {line}", style="dim"))
    if shown["left_out"]:
        more = (
            f"they take about {shown['left_out_s']:,.0f} s more: --budget-s {shown['budget_for_all_s']} takes them up"
        )
        console.print(Text(more, style="dim"))
    for line in shown["warnings"]:
        console.print(Text(f"in doubt: {line}", style="yellow"))
    if shown["recommended"]:
        console.print(Text.assemble(("Try: ", "bold"), " ".join(f"--set {s}" for s in shown["recommended"])))
    else:
        console.print(Text("No setting of the scenario need change.", style="bold"))


def _head(result: dict[str, Any]) -> Text:
    base, bottleneck, agreement = result["baseline"], result["profile"]["bottleneck"], result["agreement"]
    measured, predicted = result["metrics"]["measured"], result["metrics"]["predicted"]
    agree = "they agree" if bottleneck["agree"] else "they do not agree"
    warm = result["warm_up"]
    lines = [
        f"  {base['machine']['device']}; weights {base['weights']}; settings {base['scenario_sha256'][:12]}",
        f"  warm-up: first repeat {warm['first']:.2f} times the steady level, last third {warm['drift']:.3f} times the "
        f"middle one",
        f"  bottleneck: predicted {bottleneck['predicted']}, measured {bottleneck['measured']}: {agree}",
        f"  TTFT {measured['ttft_ms']:.2f} ms measured, {predicted['ttft_ms']['value']:.2f} predicted; "
        f"TPOT {measured['tpot_ms']:.2f} ms measured, {predicted['tpot_ms']['value']:.2f} predicted",
        f"  equal sides differ by {gain(result['control'].get(result['headline']))}; gains below "
        f"{result['smallest_gain_told']:.1%} are not told from none",
        f"  {agreement['covered']} of {agreement['factors']} gains inside their predicted interval, "
        f"{agreement['pairs_in_order']} of {agreement['pairs_apart']} distinguishable pairs in the predicted order",
    ]
    title = f"Experiment: {base['scenario']['name']} on {base['machine']['backend']}"
    return Text.assemble((title, "bold"), f"  {result['elapsed_s']:.0f} s\n", ("\n".join(lines) + "\n", "dim"))


def _factors(result: dict[str, Any], width: int) -> Any:
    head, rows = result["headline"], result["factors"]

    def call(row: dict[str, Any]) -> Text:
        said = row["verdict"]["call"] if row["verdict"] else row["status"]
        return Text(said, style=STYLE.get(said, "yellow"))

    def why(row: dict[str, Any]) -> str:
        return str(row["numerics"]["reason"] if row["status"] == "measured" else row["reason"])

    columns = [
        Column("factor", [row["factor"] for row in rows]),
        Column("is", [row["state"] for row in rows], rank=1),
        Column("predicted", [gain(row["predicted"].get(head)) for row in rows], right=True),
        Column("measured", [gain(row.get("measured", {}).get(head)) for row in rows], right=True),
        Column("verdict", [call(row) for row in rows]),
        Column("numbers, or why not", [why(row) for row in rows], rank=2, wraps=True),
    ]
    return fitted(f"Factors, one at a time: {NAMES[head]} without / with", columns, width)


def _shapes(result: dict[str, Any], width: int) -> Any:
    rows = result["shapes"]
    columns = [
        Column("factor", [row["factor"] for row in rows]),
        Column("shape", [row["shape"] for row in rows]),
        Column("predicted", [gain(row["predicted"]) for row in rows], right=True),
        Column("measured", [gain(row["measured"]) or row["status"] for row in rows], right=True),
    ]
    return fitted("Other shapes", columns, width)


def _combinations(result: dict[str, Any], width: int) -> Any:
    rows = result["combinations"]
    columns = [
        Column("together", [" + ".join(row["factors"]) for row in rows], wraps=True),
        Column("predicted", [gain(row["predicted"]) for row in rows], right=True, rank=1),
        Column("measured", [gain(row["together"]) or row["status"] for row in rows], right=True),
        Column("product of singles", [gain(row["product_of_singles"]) for row in rows], right=True),
        Column("excess", [gain(row["excess"]) for row in rows], right=True),
    ]
    return fitted("Interactions", columns, width)
