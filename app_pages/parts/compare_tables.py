"""The tables of the compare page: settings, metrics, lanes, and kernels paired by op and shape."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app_pages.parts.texts import Say

BOTH = ("a", "b")
MAX_KERNELS = 200


def tables(result: dict[str, Any], say: Say) -> None:
    number = st.column_config.NumberColumn
    if result["settings"]:
        with st.expander(say("settings_differ")):
            settings = result["settings"]
            st.dataframe(
                {
                    say("setting"): [row["setting"] for row in settings],
                    **{side.upper(): [str(row[side]) for row in settings] for side in BOTH},
                },
                hide_index=True,
                alt=say("settings_differ"),
            )
    if result["metrics"]:
        with st.expander(say("metrics")):
            metrics = result["metrics"]
            st.dataframe(
                {
                    say("metric"): list(metrics),
                    **{side.upper(): [row[side] for row in metrics.values()] for side in BOTH},
                    say("col_ratio"): [row["ratio"] for row in metrics.values()],
                },
                hide_index=True,
                alt=say("metrics"),
                column_config=dict.fromkeys(("A", "B", say("col_ratio")), number(format="%.3f")),
            )
    if "timelines" in result:
        with st.expander(say("lanes")):
            _lanes(result["timelines"]["lanes"], say)
        with st.expander(say("kernels")):
            _kernels(result["timelines"]["kernels"], say)


def _lanes(lanes: list[dict[str, Any]], say: Say) -> None:
    columns: dict[str, list[Any]] = {say("lane"): [(row["a"] or row["b"])["lane"] for row in lanes]}
    for side in BOTH:
        columns[say("busy", side=side.upper())] = [row[side]["busy_us"] / 1000 if row[side] else None for row in lanes]
        columns[say("spans", side=side.upper())] = [row[side]["spans"] if row[side] else None for row in lanes]
    number = st.column_config.NumberColumn(format="%.3f")
    st.dataframe(
        columns,
        hide_index=True,
        alt=say("lanes"),
        column_config={say("busy", side=side.upper()): number for side in BOTH},
    )


def _kernels(kernels: dict[str, Any], say: Say) -> None:
    listed: list[tuple[str, str, str, int, float | None, float | None]] = [
        (say("both"), row["op_type"], row["shapes_a"], row["count"], row["a_us"], row["b_us"])
        for row in kernels["changed"]
    ]
    listed += [
        (say("both"), f"{row['a']} → {row['b']}", "", row["count"], row["a_us"], row["b_us"])
        for row in kernels["replaced"]
    ]
    for side in BOTH:
        listed += [
            (
                say("only", side=side.upper()),
                row["op_type"],
                row["shapes"],
                row["count"],
                row["total_us"] if side == "a" else None,
                row["total_us"] if side == "b" else None,
            )
            for row in kernels[f"only_in_{side}"]
        ]
    listed.sort(key=lambda row: -abs((row[5] or 0.0) - (row[4] or 0.0)))
    shown = listed[:MAX_KERNELS]
    heads = (say("where"), say("op_type"), say("shapes"), say("count"), "A, µs", "B, µs")
    columns: dict[str, list[Any]] = {head: [row[n] for row in shown] for n, head in enumerate(heads)}
    columns[say("difference")] = [(row[5] or 0.0) - (row[4] or 0.0) for row in shown]
    number = st.column_config.NumberColumn(format="%.2f")
    signed = st.column_config.NumberColumn(format="%+.2f")
    st.dataframe(
        columns,
        hide_index=True,
        alt=say("kernels"),
        column_config={"A, µs": number, "B, µs": number, say("difference"): signed},
    )
