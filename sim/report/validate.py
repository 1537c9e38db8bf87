"""`whatif validate` on a terminal: errors next to the plain roofline's, and what was not priced."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from sim.report.formats import plain
from sim.report.serving_validation import SERVED, percent, serving_table
from sim.report.tables import Column, fitted

#: Reasons listed; the JSON has them all.
TOP_UNPRICED = 12


def print_validation(console: Console, result: dict[str, Any], broken: tuple[str, ...]) -> None:
    """Draw a `validate` document and the bounds it broke."""
    shown, width = plain(result), console.width
    if shown["files"]["kernels"]:
        console.print(_kernels(shown, width))
    if shown["unseen"]:
        console.print(_unseen(shown, width))
    if shown["files"]["collectives"]:
        console.print(_collectives(shown, width))
    if shown["files"]["steps"]:
        console.print(_steps(shown, width))
    if shown["files"]["ladders"]:
        console.print(_ablations(shown, width))
    if shown["files"]["overlaps"]:
        console.print(_overlaps(shown, width))
    for part in SERVED:
        if part in shown:
            console.print(serving_table(shown[part], SERVED[part], width))
    for part in ("kernels", "collectives", "steps", "ladders", "overlaps", *SERVED):
        unpriced = shown[part]["unpriced"] if part in shown else []
        if unpriced:
            console.print(Text(f"Not priced ({part}): {len(unpriced)}", style="bold"))
            for item in unpriced[:TOP_UNPRICED]:
                console.print(Text(f"  {item.get('row') or item['id']}: {item['reason']}"))
            if len(unpriced) > TOP_UNPRICED:
                console.print(Text(f"  and {len(unpriced) - TOP_UNPRICED} more", style="dim"))
            console.print()
    for line in broken:
        console.print(Text(line, style="bold red"))


def _kernels(result: dict[str, Any], width: int) -> Any:
    return _by_kind(result, "kernels", "Kernels: predicted against measured", "op type", width)


#: What was held out of the fits, in words.
_WAYS = {
    "seen": "nothing: fitted to them",
    "shape": "their shape",
    "model": "their model",
    "stack": "their stack",
    "kind": "their kind",
}


def _unseen(result: dict[str, Any], width: int) -> Any:
    """Kernels predicted by numbers that were fitted without their shape, model, stack or kind."""
    rows = result["unseen"]
    columns = [
        Column("held out", [_WAYS[r["way"]] for r in rows]),
        Column("stack", [r["stack"] for r in rows]),
        Column("family", [r["family"] for r in rows]),
        Column("rows", [str(r["rows"]) for r in rows], right=True),
        Column("median error", [percent(r["median"]) for r in rows], right=True),
        Column("P90", [percent(r["p90"]) for r in rows], right=True),
        Column("inside 90 %", [percent(r["coverage"]) for r in rows], right=True),
    ]
    notes = ["widths of the intervals from rows of other shapes; made by python -m sim.fitting.widths"]
    return fitted("Kernels of networks that no fit had seen", columns, width, notes)


def _collectives(result: dict[str, Any], width: int) -> Any:
    return _by_kind(result, "collectives", "Collectives: predicted against measured", "operation, ranks", width)


def _by_kind(result: dict[str, Any], part: str, title: str, kind: str, width: int) -> Any:
    """A table of the errors of one part by kind, and of all."""
    part_result = result[part]
    rows = [*part_result["by_kind"].items(), ("all", part_result)]
    columns = [
        Column(kind, [name for name, _ in rows]),
        Column("rows", [str(r["rows"]) for _, r in rows], right=True),
        Column("median error", [percent(r["median"]) for _, r in rows], right=True),
        Column("P90", [percent(r["p90"]) for _, r in rows], right=True),
        Column("worst", [percent(r["worst"]) for _, r in rows], right=True, rank=2),
        Column("bias", [percent(r["bias"], signed=True) for _, r in rows], right=True, rank=1),
        Column("roofline's median", [percent(r["roofline_median"]) for _, r in rows], right=True),
    ]
    if part_result["cores"]["rows"]:
        known = [r.get("cores", {"exact": 0, "rows": 0}) for _, r in rows]
        exact = [f"{cores['exact']} of {cores['rows']}" if cores["rows"] else "-" for cores in known]
        columns.append(Column("cores exact", exact, right=True, rank=1))
    inside = result["coverage"][part]
    unscored = f"{part_result['unscored']} more are listed unscored"
    note = f"{percent(inside)} of the rows lie inside their 90 % interval; {unscored}"
    notes = [note] if inside is not None else []
    if part_result["guessed"]:
        notes.append(f"not known, priced as plain elementwise kernels: {', '.join(part_result['guessed'])}")
    return fitted(title, columns, width, notes)


def _steps(result: dict[str, Any], width: int) -> Any:
    steps = result["steps"]
    rows = steps["rows"]
    columns = [
        Column("step", [r["id"] + ("" if r["scored"] else " (not scored)") for r in rows]),
        Column("measured ms", [f"{r['measured_ms']:.2f}" for r in rows], right=True),
        Column("predicted ms", [f"{r['predicted_ms']:.2f}" for r in rows], right=True),
        Column("interval", [f"{r['low_ms']:.1f}-{r['high_ms']:.1f}" for r in rows], rank=1),
        Column("error", [percent(r["error"], signed=True) for r in rows], right=True),
        Column("kernels inside off", [percent(r["kernel_error"]) for r in rows], right=True, rank=1),
        Column("roofline ms", [f"{r['roofline_ms']:.2f}" for r in rows], right=True, rank=2),
    ]
    roofline = percent(steps["roofline_median"])
    note = f"{steps['scored']} scored: median error {percent(steps['median'])}, the roofline's {roofline}"
    unseen = steps["not_fitted"]
    split = f"{unseen['rows']} of them fix no number: median {percent(unseen['median'])}, P90 {percent(unseen['p90'])}"
    split += f", {percent(unseen['coverage'])} inside their 90 % interval"
    notes = [note, split, *(line for r in rows for line in _inside(r))]
    return fitted("Steps: predicted against measured", columns, width, notes)


def _inside(row: dict[str, Any]) -> list[str]:
    """A line on the kernels inside one step, where they were timed."""
    parts = ", ".join(
        f"{p['name']} {p['predicted_us']:,.0f} for {p['measured_us']:,.0f} us ({percent(p['error'], signed=True)})"
        for p in row["kernels"]
    )
    return [f"inside {row['id']}: {parts}"] if parts else []


def _counts(kernels: list[int] | None) -> str:
    return " to ".join(str(n or "?") for n in kernels) if kernels else "-"


def _both_off(errors: list[float] | None) -> str:
    return ", ".join(f"{error:+.0%}" for error in errors) if errors else "-"


def _ablations(result: dict[str, Any], width: int) -> Any:
    ablations = result["ladders"]
    rows = ablations["rows"]
    columns = [
        Column("optimisation step", [r["id"] + ("" if r["scored"] else " (not scored)") for r in rows]),
        Column("measured", [f"{r['measured_gain']:.2f}x" for r in rows], right=True),
        Column("predicted", [f"{r['predicted_gain']:.2f}x" for r in rows], right=True),
        Column("interval", [f"{r['low']:.2f}-{r['high']:.2f}" for r in rows], rank=1),
        Column("points off", [f"{r['points']:+.1f}" for r in rows], right=True),
        Column("base, step off", [_both_off(r["errors"]) for r in rows], right=True),
        Column("kernels counted", [_counts(r["measured_kernels"]) for r in rows], right=True, rank=2),
        Column("kernels predicted", [_counts(r["predicted_kernels"]) for r in rows], right=True, rank=2),
    ]
    note = (
        f"{ablations['scored']} scored: median {ablations['median_points'] or 0:.1f} points off; direction right "
        f"in {ablations['signs_right']} of {ablations['signs_asked']} effects beyond 5 %; "
        f"the times themselves: median error {percent(ablations['median_time_error'])}"
    )
    notes = [note]
    if ablations["unfitted"]:
        notes.append(
            f"{ablations['unfitted']} of them fix no number: median {ablations['unfitted_median_points']:.1f} points "
            f"off, {percent(ablations['unfitted_coverage'])} inside their 90 % interval"
        )
    return fitted("Ladders: what one optimisation gained", columns, width, notes)


def _overlaps(result: dict[str, Any], width: int) -> Any:
    overlaps = result["overlaps"]
    rows = overlaps["rows"]

    def both(key: str) -> list[str]:
        return [f"{r['measured'][key]:,.0f} / {r['predicted'][key]:,.0f}" for r in rows]

    columns = [
        Column("measured / predicted, us", [r["id"] + ("" if r["scored"] else " (not scored)") for r in rows]),
        Column("product", both("product_us"), right=True, rank=2),
        Column("collective", both("collective_us"), right=True, rank=2),
        Column("in turn", both("sequential_us"), right=True),
        Column("overlapped", both("overlapped_us"), right=True),
        Column("error", [percent(r["error"], signed=True) for r in rows], right=True),
        Column("from measured parts", [f"{r['from_parts_us']:,.0f}" for r in rows], right=True),
        Column("error", [percent(r["from_parts_error"], signed=True) for r in rows], right=True),
        Column("pieces", [str(r["pieces"]) for r in rows], right=True, rank=1),
    ]
    note = "from measured parts: the overlap predicted for the measured times of product and collective alone"
    return fitted("Overlaps: a product and its all-reduce on two streams", columns, width, [note])
