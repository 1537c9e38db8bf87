"""Predicted and measured side by side: a run op by op, a load test, and a small run on this machine."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app_pages.parts import formats, measuring, own, state
from app_pages.parts.charts.scatter import scatter
from app_pages.parts.page import Figure, figures, literal, quiet, refusal, section, sentence, show_with_data, title
from app_pages.parts.palette import CLASSES, class_of
from app_pages.parts.texts import Language, Say, common, speaker
from app_pages.parts.texts.measure import TEXTS
from scenarios.errors import ScenarioError
from scenarios.loader import load_scenario, shipped_names

COMMANDS = """whatif doctor --backend npu
whatif run qwen3_8b_decode --backend npu --json result.json
whatif calibrate --backend npu --out my_npu.yaml
whatif calibrate --bench bench.json --scenario serve_qwen3_14b_910b3 --out my_engine.yaml"""
WORDS = ("measured", "predicted", "error", "interval", "row")
HERE = "kept:measured"


def main() -> None:
    state.arrive("measure")
    language = state.language()
    say = speaker(TEXTS, language)
    title(say("title"), say("about"))
    left, right = st.columns(2, gap="large")
    with left:
        given = st.file_uploader(say("file"), ["json"], key="measure:file", max_upload_size=measuring.MAX_MB)
        _here(say)
    with right:
        bench = st.file_uploader(
            say("bench"),
            ["json", "csv"],
            accept_multiple_files=True,
            key="measure:bench",
            help=say("bench_help"),
            max_upload_size=measuring.MAX_MB,
        )
        _how(say)
    try:
        result = measuring.result_of(given.name, given.getvalue()) if given else st.session_state.get(HERE)
        if result is not None:
            _run(result, language, say)
        if bench:
            _bench([(file.name, file.getvalue()) for file in bench], say)
    except ScenarioError as error:
        refusal(error.messages)


def _here(say: Say) -> None:
    section(say("here"), say("here_about"))
    if not measuring.can_measure():
        quiet(say("no_torch"))
        return
    what, on = st.columns(2)
    scenario = what.selectbox(say("here_what"), measuring.offered(), key="measure:what", format_func=own.plain)
    chip = on.selectbox(
        say("here_chip"), measuring.chips(), key="measure:chip", format_func=own.plain, help=say("here_chip_help")
    )
    if st.button(say("here"), icon=":material/speed:", key="measure:here"):
        with st.spinner(say("here_running")):
            try:
                st.session_state[HERE] = measuring.measure_here(scenario, chip)
            except ScenarioError as error:
                refusal(error.messages, say("here_failed"))


def _how(say: Say) -> None:
    section(say("how"), say("how_about"))
    st.code(COMMANDS, language=None, wrap_lines=True)


def _run(result: dict[str, Any], language: Language, say: Say) -> None:
    measured = result["measured"]
    predicted_us, step_us = result["step"]["total_us"], measured["step"]["total_us"]
    steady = measured.get("steady_step") or {}
    shown = [
        Figure(say("predicted"), formats.number(predicted_us / 1000), "ms"),
        Figure(
            say("measured"),
            formats.number(step_us / 1000),
            "ms",
            say("over", error=formats.percent(predicted_us / step_us - 1, signed=True)),
        ),
    ]
    if steady:
        ends = formats.interval(*(formats.number(steady[f"{end}_us"] / 1000) for end in ("low", "high")))
        note = f"{ends} · {say('steady_note')}"
        shown.append(Figure(say("steady"), formats.number(steady["median_us"] / 1000), "ms", note))
    shown.append(Figure(say("op_error"), formats.percent(measured["errors"]["op_median"]), ""))
    figures(shown)
    device = say("device", device=measured["device"], backend=measured["backend"])
    quiet(f"{own.plain(result['scenario']['name'])} · {device} · {say('repeats', n=measured['repeats'])}")
    _largest(measured["kernels"], say)
    _scatter(measured["ops"], language, say)
    _kinds(measured["kernels"], say)
    _ops(measured["ops"], say)


def _largest(kernels: list[dict[str, Any]], say: Say) -> None:
    most = max(kernels, key=lambda row: abs(row["total_us"] - row["predicted_us"]))
    told = {"predicted": formats.time(most["predicted_us"]), "measured": formats.time(most["total_us"])}
    sentence(say("verdict", kind=most["op_type"], count=formats.whole(most["count"]), **told), "")


def _scatter(ops: list[dict[str, Any]], language: Language, say: Say) -> None:
    section(say("scatter"), say("scatter_note"))
    names = speaker(common.TEXTS, language)
    points = [
        {
            "family": names(f"class_{class_of(op['kind'])}"),
            "label": f"{op['name']} ({op['layer']})",
            "measured_us": op["measured_us"],
            "predicted_us": op["predicted_us"],
            "low_us": op["low_us"],
            "high_us": op["high_us"],
            "error": op["predicted_us"] / op["measured_us"] - 1,
        }
        for op in ops
        if op["measured_us"] and op["predicted_us"]
    ]
    if not points:
        quiet(say("scatter_none"))
        return
    present = {point["family"] for point in points}
    words = {names(f"class_{name}"): colour for name, colour in CLASSES.items()}
    colours = {word: colour for word, colour in words.items() if word in present}
    median = sorted(abs(point["error"]) for point in points)[len(points) // 2]
    alt = say("scatter_alt", count=len(points), median=formats.percent(median))
    show_with_data(scatter("measured-ops", points, colours, {word: say(f"word_{word}") for word in WORDS}, alt))


def _kinds(kernels: list[dict[str, Any]], say: Say) -> None:
    section(say("kinds"))
    listed = sorted(kernels, key=lambda row: -row["total_us"])
    columns = {
        say("col_kind"): [row["op_type"] for row in listed],
        say("col_form"): [row["form"] for row in listed],
        say("col_count"): [row["count"] for row in listed],
        say("col_predicted"): [row["predicted_us"] for row in listed],
        say("col_measured"): [row["total_us"] for row in listed],
    }
    _table(columns, [(row["predicted_us"], row["total_us"]) for row in listed], say("kinds"), say)


def _ops(ops: list[dict[str, Any]], say: Say) -> None:
    section(say("ops"))
    columns = {
        say("col_op"): [op["name"] for op in ops],
        say("col_layer"): [op["layer"] for op in ops],
        say("col_form"): [op["form"] for op in ops],
        say("col_predicted"): [op["predicted_us"] for op in ops],
        say("col_measured"): [op["measured_us"] for op in ops],
    }
    _table(columns, [(op["predicted_us"], op["measured_us"]) for op in ops], say("ops"), say)


def _table(columns: dict[str, list[Any]], pairs: list[tuple[float, float]], alt: str, say: Say) -> None:
    errors = [100 * (predicted / measured - 1) if measured else None for predicted, measured in pairs]
    number, percent = (st.column_config.NumberColumn(format=form) for form in ("%.1f", "%+.0f %%"))
    config = {say("col_predicted"): number, say("col_measured"): number, say("col_error"): percent}
    st.dataframe({**columns, say("col_error"): errors}, hide_index=True, alt=alt, column_config=config)


def _bench(files: list[tuple[str, bytes]], say: Say) -> None:
    serving = [n for n in shipped_names() if load_scenario(n).scenario.workload.traffic is not None]
    names = [*serving, *own.refs("scenario")]
    chosen = st.selectbox(say("bench_scenario"), names, key="measure:scenario", format_func=own.plain)
    fitted = measuring.fitted(files, own.resolved(str(chosen)))
    section(say("bench_title"), say("bench_note"))
    compared = fitted.calibration.compared
    loads = [
        say("clients", n=row.test.concurrency) if row.test.concurrency else say("rate", n=f"{row.test.rate or 0:g}")
        for row in compared
    ]
    st.table(
        {
            say("bench_load"): [literal(load) for load in loads],
            say("bench_measured"): [_ms(row.test.tpot_ms) for row in compared],
            say("bench_before"): [_ms(row.before.tpot_ms) for row in compared],
            say("bench_after"): [_ms(row.after.tpot_ms) for row in compared],
            say("bench_fit"): [say("yes" if row.fitted else "no") for row in compared],
        }
    )
    st.download_button(
        say("bench_file"), fitted.text, "engine.yaml", "text/yaml", on_click="ignore", icon=":material/download:"
    )


def _ms(value: float | None) -> str:
    return "–" if value is None else formats.number(value)


main()
