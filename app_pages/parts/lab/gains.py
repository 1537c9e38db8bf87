"""What each optimisation gains: drawn after all else, since it asks the model some fifty times."""

from __future__ import annotations

from math import log
from time import monotonic
from typing import Any

import streamlit as st

from app_pages.parts import answers, formats, sidebar
from app_pages.parts.charts import Chart, bars
from app_pages.parts.charts.ratios import ratios
from app_pages.parts.lab.files import chart_file
from app_pages.parts.lab.view import View
from app_pages.parts.page import disclosure, quiet, section, show
from app_pages.parts.palette import BAD, GOOD, NEUTRAL
from app_pages.parts.state import Question
from app_pages.parts.texts import speaker
from app_pages.parts.texts.fields import LABELS, SWITCHES
from sim.predict.gains import NO_RATIO

#: Verdicts with a ratio that is drawn, in the order of the picture.
SEEN: tuple[str, ...] = ("gain", "loss", "not distinguishable")
SEEN_COLOURS = dict(zip(SEEN, (GOOD, BAD, NEUTRAL), strict=True))
#: Advice that is rounded away is none; and no more than a reader takes in.
WORTH_TRYING, MAX_ADVICE = 1.005, 5


@st.fragment
def gains(view: View) -> None:
    """Every switch alone as the scenario stands, what to try, and the waterfall that sums to the whole."""
    say = view.say
    section(say("gains_here"), say("gains_here_note"))
    # Each telling is a place where the reader's next change stops the search.
    progress = Progress(say("gains_wait"))
    result = answers.gains(view.question, progress)
    progress.done()
    alone = alone_chart(view, result)
    if alone.rows:
        show(alone)
    _advice(view, result)
    section(say("gains"), say("gains_note"))
    picture = waterfall(view, result)
    show(picture)
    with disclosure(say("shares"), "shares") as open_:
        if open_:
            _shares(view)
    with disclosure(say("gains_table"), "gains") as open_:
        if open_:
            _table(view, result)
            chart_file(view, picture)


def _shares(view: View) -> None:
    """First, last and Shapley of each switch of the best set, and the pairs that are no sum."""
    say = view.say
    quiet(say("shares_note"))
    progress = Progress(say("gains_wait"))
    attribution = answers.attribution(view.question, progress)
    progress.done()
    shares = sorted(attribution.shares, key=lambda share: -share.shapley_us)
    st.table(
        {
            say("col_switch"): [switch_label(view, share.switch, share.value) for share in shares],
            say("share_first"): [formats.ms(share.first_us) for share in shares],
            say("share_last"): [formats.ms(share.last_us) for share in shares],
            say("share_shapley"): [formats.ms(share.shapley_us) for share in shares],
        }
    )
    values = {share.switch: share.value for share in shares}
    for pair in attribution.interactions:
        a, b = (switch_label(view, switch, values.get(switch, "")) for switch in pair.pair)
        quiet(say(f"{pair.kind}_pair", a=a, b=b, ms=formats.number(abs(pair.overlap_us) / 1000)))


class Progress:
    """Tells how far the what-ifs are: a few times a second, since each telling redraws a part of the page."""

    EVERY_S = 0.25

    def __init__(self, text: str) -> None:
        self._slot = st.empty()
        self._text = text
        self._told_s = monotonic()

    def __call__(self, share: float) -> None:
        if monotonic() - self._told_s >= self.EVERY_S:
            self._slot.progress(share, self._text)
            self._told_s = monotonic()

    def done(self) -> None:
        """Leave nothing behind."""
        self._slot.empty()


def switch_label(view: View, switch: str, value: str) -> str:
    """An optimisation by name, with the value meant where it is no plain on."""
    return speaker(SWITCHES, view.language)(switch, value=value)


def alone_chart(view: View, result: dict[str, Any]) -> Chart:
    """Step without / step with each optimisation, all else as the scenario has it, with its interval: what a reader who
    flips the switch will see. Those without effect are left out."""
    shown = [g for g in result["gains"] if g["verdict"] in SEEN]
    shown.sort(key=lambda g: (SEEN.index(g["verdict"]), -abs(log(g["alone_ratio"]))))
    rows = [
        {
            "label": switch_label(view, g["pass"], g["value"]) + ("" if g["state"] == "on" else view.say("off_here")),
            "series": _verdict(view, g),
            "value": g["alone_ratio"],
            "low": g["low"],
            "high": g["high"],
            "shown": f"{g['alone_ratio']:.3f}× ({g['low']:.3f}–{g['high']:.3f})",
        }
        for g in shown
    ]
    colours = {
        view.say("verdict_" + verdict.replace(" ", "_")): colour
        for verdict, colour in SEEN_COLOURS.items()
        if any(g["verdict"] == verdict for g in shown)
    }
    alt = view.say("gains_here_alt", count=len(rows))
    return ratios("gains-alone", rows, alt, colours, title=view.say("alone_axis"))


def waterfall(view: View, result: dict[str, Any]) -> Chart:
    """The picture of the gains; those that move nothing are left out."""
    say, fall = view.say, result["waterfall"]
    gains_of = {g["pass"]: g for g in result["gains"]}
    order = [gains_of[switch] for switch in fall["order"]]
    bare = 1e-4 * fall["baseline_us"]
    shown = [
        {
            "label": switch_label(view, g["pass"], g["value"]),
            "state": "on",  # the step as it is stands next to the best one, at the end
            "waterfall_us": g["waterfall_us"],
            "note": _ratio(g) + _verdict(view, g),
            "differs": _differs(g),
        }
        for g in order
        if abs(g["waterfall_us"]) > bare
    ]
    totals = (fall["baseline_us"], fall["scenario_us"], fall["target_us"])
    words = {key: say(f"gain_{key}") for key in ("none", "here", "all", "step", "change", "now")}
    alt = say(
        "gains_alt", **{k: formats.number(us / 1000) for k, us in zip(("none", "here", "all"), totals, strict=True)}
    )
    return bars.waterfall("gains", shown, totals, words, alt)


def _differs(gain: dict[str, Any]) -> bool:
    """Whether a bar of the waterfall says otherwise than the switch alone does: the bar is drawn pale."""
    bar = "gain" if gain["waterfall_us"] > 0 else "loss"
    return bool(gain["verdict"] != bar)


def _ratio(gain: dict[str, Any]) -> str:
    """The ratio with its interval, nothing where there is none."""
    if gain["verdict"] in NO_RATIO:
        return ""
    return f"{gain['alone_ratio']:.3f}× ({gain['low']:.3f}–{gain['high']:.3f}), "


def _verdict(view: View, gain: dict[str, Any]) -> str:
    return view.say("verdict_" + gain["verdict"].replace(" ", "_"))


def _advice(view: View, result: dict[str, Any]) -> None:
    say = view.say
    st.markdown(f"**{say('try')}**")
    worth = [item for item in result["advice"] if item["ratio"] >= WORTH_TRYING][:MAX_ADVICE]
    if not worth:
        ends = {key: result["waterfall"][f"{of}_us"] / 1000 for key, of in (("here", "scenario"), ("all", "target"))}
        quiet(say("try_nothing", **{key: formats.number(ms) for key, ms in ends.items()}))
    for n, item in enumerate(worth):
        factor, words, button = st.columns([4, 7, 3], vertical_alignment="center")
        interval = formats.ends(item["low"], item["high"])
        factor.markdown(f"**{formats.ratio(item['ratio'])}** {f'({interval})' if interval else ''}")
        words.markdown(_in_words(view, item["settings"]))
        button.button(
            say("try_do"),
            key=f"try:{n}",
            on_click=_apply,
            args=(view.question, tuple(item["settings"])),
            width="stretch",
        )


def _in_words(view: View, settings: list[str]) -> str:
    words = []
    for field, _, value in (pair.partition("=") for pair in settings):
        switch = field.removeprefix("optimizations.")
        if switch in SWITCHES:
            name = switch_label(view, switch, value)
            words.append(view.say("try_without", name=name) if value == "false" else name)
        else:
            words.append(f"{speaker(LABELS, view.language)(field)}: {value}")
    return ", ".join(words)


def _apply(question: Question, settings: tuple[str, ...]) -> None:
    pairs = {key: value for key, _, value in (pair.partition("=") for pair in settings)}
    sidebar.ask(Question(question.scenario, tuple(sorted({**dict(question.sets), **pairs}.items()))))


def _table(view: View, result: dict[str, Any]) -> None:
    say, all_gains = view.say, result["gains"]
    applies = [g["verdict"] not in NO_RATIO for g in all_gains]
    columns = {
        say("col_switch"): [switch_label(view, g["pass"], g["value"]) for g in all_gains],
        say("col_now"): [say(f"state_{g['state']}") for g in all_gains],
        say("col_alone"): [g["alone_ratio"] if ok else None for g, ok in zip(all_gains, applies, strict=True)],
        say("col_low"): [g["low"] if ok else None for g, ok in zip(all_gains, applies, strict=True)],
        say("col_high"): [g["high"] if ok else None for g, ok in zip(all_gains, applies, strict=True)],
        say("col_verdict"): [_verdict(view, g) for g in all_gains],
        say("col_change"): [-g["waterfall_us"] / 1000 for g in all_gains],
        say("col_why"): [g["reason"] for g in all_gains],
    }
    number = st.column_config.NumberColumn
    st.dataframe(
        columns,
        hide_index=True,
        alt=say("gains_table"),
        column_config={
            **{say(key): number(format="%.3f×") for key in ("col_alone", "col_low", "col_high")},
            say("col_change"): number(format="%+.3f"),
        },
    )
