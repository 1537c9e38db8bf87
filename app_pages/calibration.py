"""How far predictions are off, row by row, and where every number of a hardware profile comes from."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app_pages.parts import answers, formats, own, state
from app_pages.parts.charts import Chart
from app_pages.parts.charts.scatter import intervals, scatter
from app_pages.parts.page import Figure, figures, quiet, section, show_with_data, title
from app_pages.parts.palette import FAMILIES
from app_pages.parts.texts import Say, speaker
from app_pages.parts.texts.calibration import TEXTS
from sim.accuracy.rows.files import read_steps
from sim.accuracy.validate import REFERENCE, Validation
from sim.hardware.profile import SOURCES, hardware_names, load_hardware

#: The profile of the scenario that the lab opens with.
FIRST_PROFILE = "atlas_a3_die_20"
WORDS = ("measured", "predicted", "error", "interval", "row", "roofline")


def main() -> None:
    state.arrive("calibration")
    say = speaker(TEXTS, state.language())
    title(say("title"), say("about"))
    with st.spinner(say("running")):
        validation = answers.validation()
    _summary(validation.result, say)
    words = {word: say(f"word_{word}") for word in WORDS}
    section(say("scatter"), say("scatter_note"))
    show_with_data(_scatter(validation, words, say))
    section(say("steps_title"), say("steps_note"))
    show_with_data(_steps(validation, words, say))
    _not_scored(validation, say)
    section(say("by_kind"))
    _by_kind(validation.result, say)
    _provenance(say)


def _summary(result: dict[str, Any], say: Say) -> None:
    shown = [
        Figure(
            say(name),
            f"{100 * result[name]['median']:.1f}",
            "%",
            say("rows_p90", rows=_scored(result, name), p90=formats.percent(result[name]["p90"])),
            say("roofline_median", share=formats.percent(result[name]["roofline_median"])),
        )
        for name in ("kernels", "collectives", "steps")
    ]
    ladders = result["ladders"]
    signs = say("signs", right=ladders["signs_right"], asked=ladders["signs_asked"])
    shown.append(Figure(say("gains"), f"{ladders['median_points']:.1f}", say("points"), signs))
    figures(shown)
    quiet(_split(result["steps"], say))
    covered = result["coverage"]
    quiet(say("coverage", **{name: formats.percent(covered[name]) for name in ("kernels", "collectives", "steps")}))


def _split(steps: dict[str, Any], say: Say) -> str:
    """Which errors are of rows that something was fitted to."""
    fitted, free = steps["fitted"], steps["not_fitted"]
    medians = {"fitted_median": fitted["median"], "free_median": free["median"]}
    told = {key: "–" if share is None else formats.percent(share) for key, share in medians.items()}
    return say("split", fitted=fitted["rows"], free=free["rows"], **told)


def _scored(result: dict[str, Any], name: str) -> int:
    return int(result[name]["scored"] if name == "steps" else result[name]["rows"])


def _scatter(validation: Validation, words: dict[str, str], say: Say) -> Chart:
    points = [
        {
            "family": say(f"family_{family}"),
            "label": row.label,
            "measured_us": row.measured_us,
            "predicted_us": row.predicted_us,
            "low_us": row.low_us,
            "high_us": row.high_us,
            "error": row.error,
            "roofline_error": row.roofline_error,
        }
        for family, row in validation.points
    ]
    colours = {say(f"family_{family}"): colour for family, colour in FAMILIES.items()}
    alt = say("scatter_alt", count=len(points), median=formats.percent(validation.result["kernels"]["median"]))
    return scatter("scatter", points, colours, words, alt)


def _steps(validation: Validation, words: dict[str, str], say: Say) -> Chart:
    rows = [
        {
            "label": row["id"],
            "measured": row["measured_ms"],
            "predicted": row["predicted_ms"],
            "low": row["low_ms"],
            "high": row["high_ms"],
            "scored": row["scored"],
        }
        for row in sorted(validation.result["steps"]["rows"], key=lambda row: row["measured_ms"])
    ]
    scored = sum(row["scored"] for row in rows)
    return intervals("steps", rows, words, say("steps_alt", count=scored, drawn=len(rows)))


def _not_scored(validation: Validation, say: Say) -> None:
    """The rows that are drawn and not scored, with the conditions that they were measured under."""
    assert REFERENCE.steps is not None
    known = {row.id: row.conditions for row in read_steps(REFERENCE.steps)}
    for row in validation.result["steps"]["rows"]:
        if not row["scored"]:
            quiet(say("not_scored", row=row["id"], why=known.get(row["id"], "")))


def _by_kind(result: dict[str, Any], say: Say) -> None:
    ordered = sorted(
        [*result["kernels"]["by_kind"].items(), *result["collectives"]["by_kind"].items()],
        key=lambda item: (-item[1]["rows"], item[0]),
    )
    columns: dict[str, list[Any]] = {
        say("kind"): [kind for kind, _ in ordered],
        say("rows"): [v["rows"] for _, v in ordered],
    }
    shares = {"median": "median", "p90": "p90", "worst": "worst", "bias": "bias", "roofline": "roofline_median"}
    columns |= {say(word): [100 * v[key] for _, v in ordered] for word, key in shares.items()}
    percent = st.column_config.NumberColumn(format="%.1f %%")
    st.dataframe(columns, hide_index=True, column_config={say(word): percent for word in shares}, alt=say("by_kind"))


def _ends(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:,g}{formats.DASH}{high:,g}"


@st.fragment
def _provenance(say: Say) -> None:
    section(say("provenance"))
    left, right = st.columns([2, 3], vertical_alignment="bottom")
    offered = [*hardware_names(), *own.refs("hardware")]
    name = left.selectbox(
        say("profile"), offered, offered.index(FIRST_PROFILE), key="calibration:profile", format_func=own.plain
    )
    only = right.pills(
        say("only"),
        SOURCES,
        selection_mode="multi",
        key="calibration:only",
        format_func=lambda origin: say(f"source_{origin}"),
    )
    if name not in offered:
        return
    numbers = load_hardware(own.resolved(name)).profile.numbers()
    counts = {source: sum(n.source == source for n in numbers.values()) for source in SOURCES}
    sources = ", ".join(f"{say(f'source_{source}')} {count}" for source, count in counts.items() if count)
    quiet(say("provenance_note", n=len(numbers), name=own.plain(name), sources=sources))
    shown = {key: number for key, number in numbers.items() if not only or number.source in only}
    st.dataframe(
        {
            say("number"): list(shown),
            say("value"): [float(n.value) for n in shown.values()],
            say("interval"): [_ends(n.low, n.high) for n in shown.values()],
            say("source"): [say(f"source_{n.source}") for n in shown.values()],
            say("origin"): [n.origin for n in shown.values()],
        },
        hide_index=True,
        height=520,
        alt=say("provenance"),
        # Without widths of its own a table on a phone cuts long numbers at their left.
        column_config={say("number"): st.column_config.TextColumn(width=260)}
        | {say("value"): st.column_config.NumberColumn(width=120)}
        | {say("origin"): st.column_config.TextColumn(width="large")},
    )


main()
