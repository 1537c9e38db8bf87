"""A profile that somebody measured: where its time goes, who is waited for, and what a change would do to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st

from app_pages.parts import formats, own, profiles, rows, state
from app_pages.parts.charts import bars
from app_pages.parts.charts.timeline import timeline
from app_pages.parts.lab.view import class_words, hover_words
from app_pages.parts.page import Figure, figures, literal, quiet, refusal, section, sentence, show_with_data, title
from app_pages.parts.palette import CLASSES, IDLE
from app_pages.parts.profiles import Given, Shown
from app_pages.parts.texts import Language, Say, speaker
from app_pages.parts.texts import verdicts as verdict_texts
from app_pages.parts.texts.captures import evidence, translated
from app_pages.parts.texts.profile import TEXTS
from app_pages.parts.verdict import in_parts
from scenarios.errors import ScenarioError
from scenarios.timeline import Timeline
from sim.hardware.profile import hardware_names
from sim.report.files import to_json

#: Rows of the tables.
MOST = 30
#: Whether the reader asked for the sample.
SAMPLE = "kept:sample"


def main() -> None:
    state.arrive("profile")
    language = state.language()
    say = speaker(TEXTS, language)
    title(say("title"), say("about"))
    try:
        given = _given(say)
        if given is None:
            quiet(say("waiting"))
            return
        capture = _chosen(given, say)
    except ScenarioError as error:
        refusal(error.messages)
        return
    _numbers(capture, say)
    _bottleneck(capture, language, say)
    if capture.result["notes"]:
        quiet(" · ".join(translated(note, language) for note in capture.result["notes"]))
    _timelines(capture, language, say)
    left, right = st.columns([3, 2], gap="large")
    with left:
        _what_ifs(capture, language, say)
    with right:
        _composition(capture, say)
        _gaps(capture, say)
    _ranks(capture, say)
    _kernels(capture, say)
    st.download_button(
        say("json"),
        lambda: to_json(capture.result),
        "import.json",
        "application/json",
        on_click="ignore",
        icon=":material/download:",
    )


def _given(say: Say) -> Given | None:
    """The profile that the reader names, None where there is none yet."""
    offered = list(profiles.offered())
    if offered:
        chosen = st.selectbox(
            say("place"), offered, index=None, key="profile", bind="query-params", help=say("place_help")
        )
        if chosen:
            return profiles.placed(chosen)
    one, all_ranks = st.columns(2, gap="large")
    files = one.file_uploader(
        say("files"),
        list(profiles.ENDINGS),
        accept_multiple_files=True,
        key="profile:files",
        help=say("files_help"),
        max_upload_size=profiles.MAX_MB,
    ) or all_ranks.file_uploader(
        say("folder"),
        list(profiles.ENDINGS),
        accept_multiple_files="directory",
        key="profile:folder",
        help=say("folder_help"),
        max_upload_size=profiles.MAX_MB,
    )
    if files:
        st.session_state[SAMPLE] = False
        return profiles.uploaded([(file.name, file.getvalue()) for file in files])
    st.button(say("sample"), icon=":material/science:", key="profile:sample", help=say("sample_help"), on_click=_sample)
    return profiles.sample() if st.session_state.get(SAMPLE) else None


def _sample() -> None:
    st.session_state[SAMPLE] = True


def _chosen(given: Given, say: Say) -> Shown:
    """The step as the widgets ask for it."""
    steps = profiles.steps_of(given)
    with st.container(horizontal=True):
        step = ""
        if len(steps) > 1:
            step = st.selectbox(
                say("step"),
                ["", *steps],
                key="step",
                bind="query-params",
                format_func=lambda name: name or say("median"),
            )
        hardware = st.selectbox(
            say("hardware"),
            ["", *hardware_names(), *own.refs("hardware")],
            key="hardware",
            bind="query-params",
            format_func=lambda name: own.plain(name) or say("none"),
            help=say("hardware_help"),
        )
        plain = profiles.shown(given, step or "", hardware or "", "")
        names = [row["what_if"] for row in plain.result["what_if"]["rows"]]
        what_if = st.selectbox(
            say("what_if"),
            ["", *names],
            key="what_if",
            bind="query-params",
            format_func=lambda name: name or say("none"),
            help=say("what_if_help"),
        )
    return profiles.shown(given, step or "", hardware or "", what_if or "") if what_if else plain


def _numbers(capture: Shown, say: Say) -> None:
    step, reported = capture.result["step"], capture.result["reported_step"]
    shown = []
    for key in ("total", "computing", "communication_not_overlapped", "free"):
        us = step[f"{key}_us"]
        share = "" if key == "total" else formats.percent(us / step["total_us"])
        said = "" if reported is None else say("reported", ms=formats.number(reported[f"{key}_us"] / 1000))
        if key == "total" and capture.changed is not None:
            said = f"{say('after')} {formats.time((capture.changed.end_ns - capture.changed.start_ns) / 1000)}"
        shown.append(Figure(say(key), formats.number(us / 1000), "ms", share, said))
    figures(shown)
    profile = capture.result["profile"]
    kind = say("measured") if profile["label"] == "MEASURED" else say("predicted")
    told = [
        kind,
        profile["kind"],
        f"{say('ranks')} {len(capture.result['ranks'])}",
        f"{say('step')} {capture.result['step_id']}",
    ]
    check = capture.result["reconciliation"]
    if check is not None:
        told.append(
            say(
                "reconciled" if check["reconciled"] else "not_reconciled",
                share=f"{100 * check['worst_share']:.4f}{formats.THIN}%",
            )
        )
    quiet(" · ".join(told))


def _bottleneck(capture: Shown, language: Language, say: Say) -> None:
    verdict = capture.result["bottleneck"]
    words = speaker(verdict_texts.TEXTS, language)
    lead = words(verdict["name"]) if verdict["name"] in verdict_texts.TEXTS else verdict["name"]
    sentence(lead, evidence(capture.result, language))
    quiet(in_parts(verdict, language))
    if capture.result["advice_withheld"]:
        reasons = capture.result["completeness"]["reasons"]
        quiet(" · ".join([say("partial"), *(translated(reason, language) for reason in reasons)]))
        return
    tries = [_tried(item, capture, language, say) for item in capture.result["advice"][:3]]
    if tries:
        quiet(f"{say('try')}: " + " · ".join(tries))


def _tried(item: dict[str, Any], capture: Shown, language: Language, say: Say) -> str:
    """One thing to try with what its replay gains; where nothing replays it, the time that it is about."""
    replayed = {row["what_if"]: row for row in capture.result["what_if"]["rows"]}
    row, why = replayed.get(item["what_if"]), translated(item["why"], language)
    if row is None:
        return why
    ends = formats.ends(row["low"], row["high"])
    return f"{why} ({say('replay_gives')} {formats.ratio(row['alone_ratio'])}{f', {ends}' if ends else ''})"


def _timelines(capture: Shown, language: Language, say: Say) -> None:
    section(say("timeline"), say("timeline_note"))
    drawn: list[tuple[str, Timeline]] = [(f"{say('rank')} {shown.rank}", shown) for shown in capture.timelines]
    if capture.changed is not None:
        drawn.insert(1, (say("after"), _alike(capture.changed, capture.timelines[0])))
    several = len(drawn) > 1
    marks: list[dict[str, Any]] = []
    lanes: list[str] = []
    for name, shown in drawn[:9]:
        begin_us = shown.start_ns / 1000
        for row in rows.whole(shown, {}):
            lane = f"{name} · {row['lane']}" if several else row["lane"]
            marks.append({**row, "lane": lane, "start": row["start"] - begin_us, "end": row["end"] - begin_us})
        lanes += [""] * bool(lanes) + [f"{name} · {lane}" if several else lane for lane in rows.lanes_of(shown.spans)]
    longest = max((shown.end_ns - shown.start_ns) / 1000 for _, shown in drawn)
    alt = say("timeline_alt", ranks=len(capture.timelines), ms=formats.number(longest / 1000))
    words = class_words(language), hover_words(language)
    show_with_data(timeline("profile", marks, lanes, *words, alt, span_us=(0.0, longest)))


def _alike(changed: Timeline, measured: Timeline) -> Timeline:
    """The lanes that the measured step is drawn with: a replay also knows the parts of collectives."""
    lanes = {(span.process, span.thread) for span in measured.spans}
    return replace(changed, spans=tuple(span for span in changed.spans if (span.process, span.thread) in lanes))


def _what_ifs(capture: Shown, language: Language, say: Say) -> None:
    section(say("what_ifs"), say("what_ifs_note"))
    replay = capture.result["what_if"]["replay"]
    told = [translated(note, language) for note in capture.result["what_if"]["notes"]]
    rows = capture.result["what_if"]["rows"]
    if replay is None or not rows:
        quiet(" · ".join([*told, say("no_what_ifs")]))
        return
    error = formats.percent(replay["error"], signed=True)
    quiet(" · ".join([say("replayed", error=error, tasks=formats.whole(replay["tasks"])), *told]))
    st.table(
        {
            say("what_if"): [literal(row["what_if"]) for row in rows],
            say("what"): [translated(row["title"], language) for row in rows],
            say("places"): [row["made"] for row in rows],
            say("gain"): [formats.ratio(row["alone_ratio"]) for row in rows],
            say("interval"): [formats.ends(row["low"], row["high"]) or say("none") for row in rows],
            say("after"): [formats.time(row["predicted_us"]) for row in rows],
        }
    )
    chosen = capture.result.get("chosen", [])
    with st.expander(say("assumed"), expanded=bool(chosen)):
        for row in chosen or rows:
            quiet(f"{row['what_if']}: {'; '.join(translated(line, language) for line in row['assumed'])}")


def _composition(capture: Shown, say: Say) -> None:
    section(say("composition"))
    step = capture.result["step"]
    wait = min(capture.result["ranks"][0]["wait_us"], step["communication_not_overlapped_us"])
    parts = (
        ("computing", step["computing_us"] - step["overlapped_us"], CLASSES["matmul"]),
        ("overlapped", step["overlapped_us"], CLASSES["norm"]),
        ("communication", step["communication_not_overlapped_us"] - wait, CLASSES["communication"]),
        ("wait", wait, CLASSES["wait"]),
        ("free", step["free_us"], IDLE),
    )
    marks = [
        {"part": f"{say(name)} {formats.time(us)}", "value": us / 1000, "colour": colour, "shown": formats.time(us)}
        for name, us, colour in parts
        if us > 0
    ]
    alt = say("composition_alt", parts=", ".join(mark["part"] for mark in marks))
    show_with_data(bars.stacked("profile-composition", marks, "ms", alt))


def _gaps(capture: Shown, say: Say) -> None:
    gaps = capture.result["host_gaps"]
    section(say("gaps"))
    quiet(
        say(
            "gaps_note",
            count=formats.whole(gaps["count"]),
            late=formats.time(gaps["host_late_us"]),
            queued=formats.time(gaps["queued_us"]),
            unknown=formats.time(gaps["unknown_us"]),
        )
    )
    if gaps["calls"]:
        calls = gaps["calls"][:8]
        st.table(
            {
                say("call"): [literal(c["name"][:60]) for c in calls],
                say("gap_count"): [c["gaps"] for c in calls],
                say("late"): [formats.time(c["late_us"]) for c in calls],
            }
        )


def _ranks(capture: Shown, say: Say) -> None:
    ranks = capture.result["ranks"]
    if len(ranks) < 2:
        return
    section(say("ranks_title"), say("ranks_note"))
    st.table(
        {
            say("rank"): [str(r["rank"]) for r in ranks],
            say("total"): [formats.time(r["step"]["total_us"]) for r in ranks],
            say("computing"): [formats.time(r["step"]["computing_us"]) for r in ranks],
            say("communication_not_overlapped"): [
                formats.time(r["step"]["communication_not_overlapped_us"]) for r in ranks
            ],
            say("wait"): [formats.time(r["wait_us"]) for r in ranks],
            say("last"): [f"{r['came_last']} / {r['matched_collectives']}" for r in ranks],
        }
    )


def _kernels(capture: Shown, say: Say) -> None:
    kernels = capture.result["kernels"][:MOST]
    section(say("kernels"))
    number = st.column_config.NumberColumn
    columns = {
        say("op_type"): [k["op_type"] for k in kernels],
        say("shapes"): [k["shapes"][:80] for k in kernels],
        say("count"): [k["count"] for k in kernels],
        say("time"): [k["total_us"] for k in kernels],
        say("share"): [100 * k["share"] for k in kernels],
        say("bound"): [f"{k['bound']} ({k['bound_source']})" for k in kernels],
    }
    roofs = [k["roofline_share"] for k in kernels]
    if any(share is not None for share in roofs):
        columns[say("roofline")] = [None if share is None else 100 * share for share in roofs]
    st.dataframe(
        columns,
        hide_index=True,
        alt=say("kernels"),
        column_config={
            say("time"): number(format="%.1f"),
            say("share"): number(format="%.1f %%"),
            say("roofline"): number(format="%.0f %%"),
        },
    )


main()
