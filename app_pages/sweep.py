"""Many deployments at once: curves over batch, context and cards, the limits, and the front that no point beats."""

from __future__ import annotations

from collections import Counter
from typing import get_args
from urllib.parse import urlencode

import streamlit as st

from app_pages.parts import bound, formats, own, state, sweeps
from app_pages.parts.charts.front import front as front_chart
from app_pages.parts.charts.maps import OWNERS
from app_pages.parts.charts.plots import lines
from app_pages.parts.lab.gains import Progress
from app_pages.parts.page import quiet, section, sentence, show_with_data, title
from app_pages.parts.sweeps import Axis, Spot
from app_pages.parts.texts import Language, Say, speaker, verdicts
from app_pages.parts.texts.refusals import in_words
from app_pages.parts.texts.sweep import TEXTS
from scenarios.models.hf_config import model_names

GRAPHS = ("ge_graph", "aclgraph", "npugraph_ex", "eager")
WEIGHTS = ("bf16", "w8a8", "w8a16", "w4a16")
#: The largest TPOT limit that can be typed, ms.
MAX_SLO_MS = 100_000.0
#: Values along the axis that can be typed.
MAX_STOPS = 12
#: What each of the three charts is of: key of its text, of the metric, and whether it is a sum over cards.
CHARTS = ("tpot", "throughput", "memory")


def main() -> None:
    state.arrive("sweep")
    language = state.language()
    say = speaker(TEXTS, language)
    title(say("title"), say("about"))
    fixed = _fixed(say)
    over: Axis = bound.choice("over", say("over"), get_args(Axis), say)  # type: ignore[assignment]
    other: Axis = "cards" if over != "cards" else "batch"
    rest: Axis = next(axis for axis in get_args(Axis) if axis not in (over, other))
    with st.container(horizontal=True):
        most = sweeps.LARGEST[over]
        along = bound.whole_numbers(f"along_{over}", say("along", name=say(over)), sweeps.VALUES[over], most, MAX_STOPS)
        held = bound.exact(f"at_{rest}", say("fixed", name=say(rest)), sweeps.VALUES[rest][1], 1, sweeps.LARGEST[rest])
        slo = bound.exact("slo", say("slo"), 50.0, 0.1, MAX_SLO_MS)
    if along is None:
        st.error(say("along_wrong", most=formats.whole(most), stops=MAX_STOPS))
        return
    axes = {over: along, other: sweeps.VALUES[other], rest: (held,)}
    count = len(axes[over]) * len(axes[other])
    progress = Progress(say("running", count=count))
    spots = sweeps.grid(fixed, axes, progress)
    progress.done()
    possible = [spot for spot in spots if not spot.why]
    quiet(say("source", hardware=fixed["hardware"]))
    _counted(spots, language, say)
    if not possible:
        return
    best = sweeps.front(possible)
    _sentence(possible, slo, say)
    for column, what in zip(st.columns(3, gap="large"), CHARTS, strict=True):
        with column:
            _curves(what, possible, (over, other), slo, say)
    _pareto(possible, best, slo, say)
    _table(best, language, say)


def _fixed(say: Say) -> dict[str, str]:
    with st.sidebar:
        return {
            "model": bound.picked("model", say("model"), [*model_names(), *own.refs("model")], "Qwen3-8B"),
            "hardware": bound.picked("hardware", say("hardware"), bound.npus(), "atlas_a3_die"),
            "optimizations.graph": bound.picked("graph", say("graph"), GRAPHS, "aclgraph"),
            "optimizations.weights": bound.picked("weights", say("weights"), WEIGHTS, "bf16"),
        }


def _counted(spots: list[Spot], language: Language, say: Say) -> None:
    reasons = Counter(spot.why for spot in spots if spot.why)
    if not reasons:
        quiet(say("counted_all", count=len(spots)))
        return
    skipped = sum(reasons.values())
    why = in_words(next(spot.why for spot in spots if spot.why), language)
    quiet(say("counted", done=len(spots) - skipped, count=len(spots), skipped=skipped, why=why))


def _point(spot: Spot, say: Say) -> str:
    return say("point", cards=spot.cards, batch=spot.batch, context=formats.whole(spot.context))


def _sentence(possible: list[Spot], slo: float, say: Say) -> None:
    within = [spot for spot in possible if spot.tpot_ms <= slo]
    if not within:
        sentence(say("none_within", slo=f"{slo:g}", tpot=formats.number(min(spot.tpot_ms for spot in possible))), "")
        return
    best = max(within, key=lambda spot: spot.per_card)
    told = {"name": _point(best, say), "throughput": formats.whole(best.per_card), "ends": _ends(best)}
    close = say("close") if float(best.metrics["tpot_ms_high"]) > slo else ""
    sentence(say("best", slo=f"{slo:g}", tpot=formats.number(best.tpot_ms), **told), close)


def _ends(spot: Spot) -> str:
    low, high = (formats.number(float(spot.metrics[f"tpot_ms_{end}"])) for end in ("low", "high"))
    return formats.interval(low, high)


def _value(what: str, spot: Spot) -> float:
    if what == "memory":
        return float(spot.metrics["memory_bytes"]) / formats.GIB
    return spot.tpot_ms if what == "tpot" else spot.per_card


def _curves(what: str, possible: list[Spot], axes: tuple[Axis, Axis], slo: float, say: Say) -> None:
    over, other = axes
    names = [f"{getattr(spot, other):,}" for spot in possible]
    colours = dict(zip(dict.fromkeys(sorted(names, key=lambda n: int(n.replace(",", "")))), OWNERS, strict=False))
    marks = [
        {"x": getattr(spot, over), "series": name, "value": value, "shown": formats.number(value)}
        for spot, name in zip(possible, names, strict=True)
        for value in [_value(what, spot)]
    ]
    section(say(what), f"{say(other)}:")
    values = [mark["value"] for mark in marks]
    alt = say(
        "chart_alt",
        what=say(what),
        axis=say(over),
        count=len(colours),
        low=formats.number(min(values)),
        high=formats.number(max(values)),
    )
    if what == "tpot":
        places = sorted({mark["x"] for mark in marks})
        limit = say("limit")
        marks += [{"x": at, "series": limit, "value": slo, "shown": f"{slo:g}"} for at in (places[0], places[-1])]
        colours[limit] = "#6b7784"
    chart = lines(f"sweep-{what}", marks, alt, colours, x_title=say(over), y_title=None, x_log=True, height=240)
    show_with_data(chart)


def _pareto(possible: list[Spot], best: list[Spot], slo: float, say: Say) -> None:
    section(say("pareto"), say("pareto_note"))
    rows = [
        {
            "x": spot.tpot_ms,
            "y": spot.per_card,
            "label": _point(spot, say),
            "shown": f"{formats.number(spot.tpot_ms)} ms, {formats.whole(spot.per_card)} {say('throughput').lower()}",
            "front": spot in best,
        }
        for spot in possible
    ]
    alt = say(
        "pareto_alt",
        count=len(possible),
        front=len(best),
        fastest=formats.number(best[0].tpot_ms),
        most=formats.whole(best[-1].per_card),
    )
    titles = (say("tpot"), say("throughput"))
    words = (say("front"), say("beaten"))
    show_with_data(front_chart("sweep-front", rows, alt, titles=titles, words=words, limit=slo))


def _table(best: list[Spot], language: Language, say: Say) -> None:
    section(say("open"))
    names = speaker(verdicts.TEXTS, language)
    st.table(
        {
            say("col_point"): [_point(spot, say) for spot in best],
            say("col_tpot"): [f"{formats.number(spot.tpot_ms)} ({_ends(spot)})" for spot in best],
            say("col_throughput"): [formats.whole(spot.per_card) for spot in best],
            say("col_memory"): [formats.size(float(spot.metrics["memory_bytes"])) for spot in best],
            say("col_bottleneck"): [names(str(spot.metrics["bottleneck"])).rstrip(".。") for spot in best],
            say("col_lab"): [f"[{say('open_in_lab')}]({link_of(spot, language)})" for spot in best],
        }
    )


def link_of(spot: Spot, language: Language) -> str:
    """Where a point opens in the Lab."""
    return f"/?{urlencode({'scenario': spot.question.scenario, **spot.question.params, 'lang': language})}"


main()
