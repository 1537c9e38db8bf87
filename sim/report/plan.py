"""A plan on a terminal: the choice, its command, what else was close, what would change it, and what was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from sim.report.formats import paragraph, plain
from sim.report.tables import Column, fitted

if TYPE_CHECKING:
    from rich.console import Console

#: Longest lists.
REFUSALS, UNSEARCHED = 6, 12


def print_plan(console: Console, result: dict[str, Any]) -> None:
    """The plan, the choice first."""
    shown, width = plain(result), console.width
    limits = ", ".join(f"{key} {value:g}" for key, value in shown["slo"].items() if value is not None) or "none"
    cards = f"{shown['cards']} card{'' if shown['cards'] == 1 else 's'}"
    title = f"{shown['scenario']}: {shown['model']} on {cards} of {shown['hardware']}, SLO {limits}"
    console.print(Text(title, style="bold"))
    counts = ", ".join(f"{count:,} {reason}" for reason, count in shown["skipped"].items())
    console.print(
        Text(f"{shown['considered']:,} configurations, {shown['played']:,} steps played; {counts}", style="dim")
    )
    if shown["best"] is None:
        console.print(Text("\nNo choice can run.", style="red"))
    else:
        _best(console, shown, width)
    if refused := shown["limits"]["refused"]:
        console.print(_lines("Refused", refused[:REFUSALS]))
    unsearched = shown["not_searched"]
    more = f" and {len(unsearched) - UNSEARCHED} more" if len(unsearched) > UNSEARCHED else ""
    console.print(_lines("Not searched, as the scenario has them", [", ".join(unsearched[:UNSEARCHED]) + more]))


def _best(console: Console, shown: dict[str, Any], width: int) -> None:
    best = shown["best"]
    metrics = best["metrics"]
    verdict = "meets the SLO" if best["meets_slo"] else "nothing meets the SLO; this is nearest"
    console.print(
        Text(
            f"\n{best['name']}, {best['batch']} requests a replica: "
            f"{metrics['tokens_per_second_per_card']:,.0f} tokens/s a card, "
            f"{metrics['tokens_per_second_per_user']:.1f} a user, TTFT {metrics['ttft_ms']:,.0f} ms, TPOT "
            f"{metrics['tpot_ms']:.1f} ms ({best['decided_by']}); {verdict}",
            style="green" if best["meets_slo"] else "yellow",
        )
    )
    for version, command in best["command"].items():
        console.print(
            _lines(f"vLLM-Ascend {version}", [command["text"], *(f"note: {note}" for note in command["notes"])])
        )
    console.print(_lines("To verify", best["verify"]))
    front = shown["pareto"]
    points = [point["recurrence"] for point in front]
    columns = [
        Column("choice", [point["name"] for point in front]),
        Column("requests", [str(point["batch"]) for point in front], right=True),
        Column("tokens/s/card", [f"{p['tokens_per_second_per_card']:,.0f}" for p in points], right=True),
        Column("tokens/s/user", [f"{p['tokens_per_second_per_user']:.1f}" for p in points], right=True),
        Column("TTFT ms", [f"{p['ttft_ms']:,.0f}" for p in points], right=True),
        Column("TPOT ms", [f"{p['tpot_ms']:.1f}" for p in points], right=True),
    ]
    console.print(fitted("Pareto front, by the recurrence", columns, width))
    ties = [f"{other['name']}, {other['batch']} requests: {other['why']}" for other in shown["near_ties"]]
    console.print(_lines("Near ties", ties or ["none"]))
    console.print(_lines("What would change the choice", _swings(shown)))
    split = shown["disaggregation"]
    if split is not None:
        text = (
            f"{split['prefill_instances']} x prefill {split['prefill']['name']}, {split['decode_instances']} x decode "
            f"{split['decode']['name']} with {split['decode']['batch']} requests: "
            f"{split['tokens_per_second_per_card']:,.0f} tokens/s a card, TTFT {split['ttft_ms']:,.0f} ms, TPOT "
            f"{split['tpot_ms']:.1f} ms by the {split['decided_by']}{_against(split)}"
        )
        console.print(_lines("Prefill and decode apart", [text]))
        if split["better"]:
            _split_commands(console, split["command"])


def _split_commands(console: Console, commands: dict[str, Any]) -> None:
    """How a split that is worth it is started; --json has the lines of every split."""
    for version, command in commands.items():
        notes = [f"note: {note}" for note in command["notes"]]
        console.print(_lines(f"vLLM-Ascend {version}, apart", [*command["instances"], command["proxy"], *notes]))


def _against(split: dict[str, Any]) -> str:
    """How a split is to the choice, and whether it may be taken."""
    ratio = f", {split['ratio']:.2f} times the choice's" if split["ratio"] else ""
    if not split["meets_slo"]:
        return f"{ratio}; it misses the SLO when it is served"
    return f"{ratio}: better, if the transfer holds what is assumed of it" if split["better"] else ratio


def _swings(shown: dict[str, Any]) -> list[str]:
    changing = [row for row in shown["sensitivity"] if row["changes"]]
    lines = [
        f"{row['number']}, a factor of {row['factor']:.2f} either way: best is then {row['low']} at the low end, "
        f"{row['high']} at the high; the choice loses up to {row['regret']:.1%}"
        for row in changing
    ]
    if not changing:
        return ["none of the profile's uncertain numbers, at either end of its 90 % interval"]
    return [*lines, f"measure first: {shown['deciding_measurement']}"]


def _lines(title: str, lines: list[str]) -> Group:
    return Group(Text(f"\n{title}", style="bold"), *(paragraph(line) for line in lines))
