"""An imported profile on a terminal: the step next to what the profiler reports, why it takes so long, what to try."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from sim.imported.names import MAX_NAME, short_name
from sim.report.formats import STEP_BAR_WIDTH, bar, counted, ms, paragraph, plain
from sim.report.tables import Column, fitted
from sim.report.what_if import what_if_parts

if TYPE_CHECKING:
    from rich.console import Console

TOP_KERNELS, TOP_CALLS, TOP_COLLECTIVES, TOP_ADVICE, TOP_NOTES, TOP_REASONS = 15, 8, 8, 6, 12, 6

_PARTS = (
    ("computing_us", "computing", "green", "█"),
    ("communication_not_overlapped_us", "communication", "magenta", "▓"),
    ("free_us", "free", "yellow", "░"),
)
_ORIGIN = {
    "MEASURED": "measured, as the profiler wrote it",
    "SIMULATED": "PREDICTED by this tool: no device was measured",
}
_ROWS = (
    ("total_us", "step"), ("computing_us", "computing"), ("communication_us", "communication"),
    ("communication_not_overlapped_us", "communication not overlapped"), ("overlapped_us", "overlapped"),
    ("communication_wait_us", "waiting in collectives"), ("free_us", "free"),
)  # fmt: skip


def print_import(console: Console, result: dict[str, Any]) -> None:
    """The whole answer of `whatif import`."""
    shown, width = plain(result), console.width
    for part in (
        _head(shown),
        _step(shown),
        _times(shown, width),
        _bottleneck(shown),
        _next(shown),
        *_gaps(shown, width),
        *_ranks(shown, width),
        *_collectives(shown, width),
        *what_if_parts(shown, width),
        _kernels(shown, width),
        *_notes(shown),
    ):
        console.print(part)


def _head(result: dict[str, Any]) -> RenderableType:
    profile = result["profile"]
    versions = " · ".join(f"{key} {value}" for key, value in profile["metadata"].items())
    ranks = ", ".join(str(rank["rank"]) for rank in result["ranks"])
    facts = f"{profile['kind']} profile of {counted(len(result['ranks']), 'rank')} ({ranks}), {profile['device']}"
    step = f"step {result['step_id']}" if result["step_id"] else "the whole profile"
    # Steps may be called by any number: "step 8 of 2" would say nothing.
    steps = f", one of {result['step_count']:,}," if result["step_count"] > 1 else ""
    return Group(
        Text.assemble(("\n" + profile["name"], "bold")),
        Text(" · ".join(filter(None, (facts, f"{step}{steps} of rank {result['rank']}", versions))), style="dim"),
        Text(f"{_ORIGIN[profile['label']]}; rooflines and prices are the model's", style="dim"),
        Text(),
    )


def _step(result: dict[str, Any]) -> RenderableType:
    step = result["step"]
    total = step["total_us"] or 1.0
    line = Text.assemble((f"Step {ms(step['total_us'])} ms", "bold"), "  ")
    for key, _, style, glyph in _PARTS:
        line.append(bar(step[key] / total, STEP_BAR_WIDTH, glyph), style=style)
    parts = "  ".join(
        f"{label} {ms(step[key])} ms ({step[key] / total:.0%})" for key, label, _, _ in _PARTS if step[key]
    )
    counts = (
        f"{counted(result['kernel_count'], 'kernel')}, {counted(result['collective_count'], 'collective')}, "
        f"{counted(result['launches'], 'host launch', 'es')} seen"
    )
    return Group(line, paragraph(parts), paragraph(counts, "dim"), Text())


def _times(result: dict[str, Any], width: int) -> RenderableType:
    """The step recomputed from spans next to step_trace_time.csv."""
    step, reported, check = result["step"], result["reported_step"], result["reconciliation"]
    rows = [(key, label) for key, label in _ROWS if step[key] or (reported or {}).get(key)]
    columns = [
        Column("", [label for _, label in rows]),
        Column("from spans ms", [ms(step[key]) for key, _ in rows], right=True),
    ]
    notes = ["the profile reports no step times (no step_trace_time.csv)"]
    if reported is not None and check is not None:
        columns += [
            Column("reported ms", [ms(reported[key]) if key in reported else "" for key, _ in rows], right=True),
            Column("difference us", [_difference(check["parts"], key) for key, _ in rows], right=True),
            Column("share", [_share(check["parts"], key) for key, _ in rows], right=True, rank=1),
        ]
        verdict = "reconciled within 0.1 %" if check["reconciled"] else "not reconciled within 0.1 %"
        notes = [f"{verdict}: the largest difference is {check['worst_share']:.4%} of what is reported"]
    return fitted("Recomputed and reported", columns, width, notes)


def _difference(parts: dict[str, Any], key: str) -> str:
    return f"{parts[key]['us']:+,.3f}" if key in parts else ""


def _share(parts: dict[str, Any], key: str) -> str:
    return f"{parts[key]['share']:+.4%}" if key in parts else ""


def _bottleneck(result: dict[str, Any]) -> RenderableType:
    bottleneck = result["bottleneck"]
    return Group(
        Text.assemble("Bottleneck: ", (bottleneck["name"], "bold red")),
        paragraph(bottleneck["evidence"]),
        paragraph(" · ".join(f"{part} {share:.0%}" for part, share in bottleneck["shares"].items())),
        Text(),
    )


def _next(result: dict[str, Any]) -> RenderableType:
    if result["advice_withheld"]:
        reasons = result["completeness"]["reasons"]
        lines = [f"  {reason}\n" for reason in reasons[:TOP_REASONS]]
        return Text.assemble(("The profile is partial: nothing is advised\n", "bold yellow"), *lines)
    text = Text.assemble(("Try next", "bold"), ("  (at most: if all of that time vanished)", "dim"), "\n")
    for item in result["advice"][:TOP_ADVICE]:
        options = "".join(f"  --set {pair}" for pair in item["settings"])
        text.append(f"  {item['at_most_ratio']:5.2f}x  {item['why']}")
        text.append(f"{options}\n", style="cyan")
    if not result["advice"]:
        text.append("  nothing that could save half a percent was found\n")
    return text


def _gaps(result: dict[str, Any], width: int) -> Iterable[RenderableType]:
    gaps = result["host_gaps"]
    if not gaps["count"]:
        return
    calls = gaps["calls"][:TOP_CALLS]
    known = gaps["host_late_us"] + gaps["queued_us"]
    title = (
        f"Idle device: {counted(gaps['count'], 'gap')}, {ms(gaps['total_us'])} ms; "
        f"host late {ms(gaps['host_late_us'])}, already queued {ms(gaps['queued_us'])}, "
        f"unknown {ms(gaps['unknown_us'])}"
    )
    if not known:
        yield Text.assemble((title, "bold"), "\n")
        yield from _apis(result, width)
        return
    columns = [
        Column("the host was late with", [short_name(call["name"], _room(width)) for call in calls]),
        Column("gaps", [f"{call['gaps']:,}" for call in calls], right=True),
        Column("late ms", [ms(call["late_us"]) for call in calls], right=True),
    ]
    yield fitted(title, columns, width)


def _apis(result: dict[str, Any], width: int) -> Iterable[RenderableType]:
    """Where the host spent its time, where nobody knows what it launched."""
    apis = result["host_apis"][:TOP_CALLS]
    if not apis:
        return
    columns = [
        Column("host call", [f"{api['level']} {short_name(api['name'], _room(width))}" for api in apis]),
        Column("count", [f"{api['count']:,}" for api in apis], right=True),
        Column("total ms", [ms(api["total_us"]) for api in apis], right=True),
    ]
    yield fitted("Host calls by time, all threads (api_statistic.csv)", columns, width)


def _ranks(result: dict[str, Any], width: int) -> Iterable[RenderableType]:
    ranks = result["ranks"]
    if len(ranks) < 2:
        return
    columns = [
        Column("rank", [str(r["rank"]) for r in ranks], right=True),
        Column("step ms", [ms(r["step"]["total_us"]) for r in ranks], right=True),
        Column("computing", [ms(r["step"]["computing_us"]) for r in ranks], right=True),
        Column("communication", [ms(r["step"]["communication_us"]) for r in ranks], right=True, rank=1),
        Column("free", [ms(r["step"]["free_us"]) for r in ranks], right=True, rank=2),
        Column("transfer", [ms(r["transfer_us"]) for r in ranks], right=True, rank=1),
        Column("waited", [ms(r["wait_us"]) for r in ranks], right=True),
        Column("came last", [f"{r['came_last']} of {r['matched_collectives']}" for r in ranks], right=True),
        Column("bottleneck", [r["bottleneck"]["name"] for r in ranks], rank=3),
    ]
    notes = [f"rank {rank} was waited for: {ms(us)} ms" for rank, us in result["waited_for_us"].items() if us]
    if result["slowest_rank"] is not None:
        notes.insert(0, f"slowest rank: {result['slowest_rank']}, for which the others waited the longest")
    if result["clocks_differ_us"] > 1000:
        notes.append(f"the ranks' clocks differ by {ms(result['clocks_differ_us'])} ms: do not trust who came last")
    yield fitted("Ranks", columns, width, notes)


def _collectives(result: dict[str, Any], width: int) -> Iterable[RenderableType]:
    rows = result["collectives"][:TOP_COLLECTIVES]
    if not rows:
        return
    columns = [
        Column("collective", [short_name(r["name"], _room(width)) for r in rows]),
        Column("ranks", [",".join(map(str, r["ranks"])) for r in rows], rank=1),
        Column("last", [str(r["last_rank"]) for r in rows], right=True),
        Column("late ms", [ms(r["late_us"]) for r in rows], right=True),
        Column("from then on ms", [ms(r["transfer_us"]) for r in rows], right=True),
    ]
    yield fitted("Collectives by how late their last rank came", columns, width)


def _kernels(result: dict[str, Any], width: int) -> RenderableType:
    rows, rest = result["kernels"][:TOP_KERNELS], result["kernels"][TOP_KERNELS:]
    columns = [
        Column("op type", [short_name(r["op_type"], _room(width)) for r in rows]),
        Column("input shapes", [_short(r["shapes"]) for r in rows], rank=3),
        Column("count", [f"{r['count']:,}" for r in rows], right=True),
        Column("total us", [f"{r['total_us']:,.1f}" for r in rows], right=True),
        Column("each us", [f"{r['total_us'] / r['count']:,.2f}" for r in rows], right=True, rank=1),
        Column("of step", [f"{r['share']:.1%}" for r in rows], right=True),
        Column("bound", [f"{r['bound']}{_doubt(r['bound_source'])}" for r in rows]),
    ]
    if result["hardware"] is not None:
        columns += [
            Column("GB/s", [_number(r["gbps"], 0) for r in rows], right=True, rank=5),
            Column("TFLOPS", [_number(r["tflops"], 1) for r in rows], right=True, rank=6),
            Column("roofline", [_percent(r["roofline_share"]) for r in rows], right=True, rank=2),
            Column("model us", [_number(r["predicted_us"], 1) for r in rows], right=True, rank=4),
        ]
    notes = []
    if rest:
        count, us = sum(r["count"] for r in rest), sum(r["total_us"] for r in rest)
        notes.append(f"and {counted(len(rest), 'more shape')}: {counted(count, 'call')}, {us:,.1f} us")
    if any(r["bound_source"] != "measured" for r in rows):
        notes.append("bound: by pipe counters; ~ by the model's price, ? by the op type alone")
    if result["hardware"] is None:
        notes.append("--hardware NAME gives each kernel its roofline position")
    return fitted("Kernels by time", columns, width, notes)


def _room(width: int) -> int:
    """Characters that a name may take of a terminal of `width`, so that the numbers next to it stay."""
    return max(16, min(MAX_NAME, width // 3))


def _short(shapes: str) -> str:
    return shapes if len(shapes) <= 36 else f"{shapes[:33]}..."


def _doubt(source: str) -> str:
    return {"measured": "", "predicted": " ~", "assumed": " ?"}[source]


def _number(value: float | None, digits: int) -> str:
    return "" if value is None or value < 0.5 * 10**-digits else f"{value:,.{digits}f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _notes(result: dict[str, Any]) -> Iterable[RenderableType]:
    lines = result["notes"][:TOP_NOTES]
    dropped = ", ".join(f"{count:,} {what}" for what, count in result["dropped"].items())
    if dropped:
        lines = [*lines, f"left out: {dropped}"]
    if lines:
        yield Group(Text("Notes", style="bold"), *(paragraph(line, "dim") for line in lines))
