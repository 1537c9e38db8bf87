"""Requests in time: what a user's benchmark would say, up to the rate at which the deployment gives way."""

from __future__ import annotations

import streamlit as st

from app_pages.parts import answers, bound, formats, own, served, state
from app_pages.parts.charts.plots import lines
from app_pages.parts.page import Figure, figures, quiet, refusal, section, sentence, show_with_data, title
from app_pages.parts.palette import ACCENT, CLASSES
from app_pages.parts.served import Cliff, Served
from app_pages.parts.state import Question
from app_pages.parts.texts import Say, speaker
from app_pages.parts.texts.serving import TEXTS
from scenarios.errors import ScenarioError
from scenarios.models.hf_config import model_names
from sim.engines.profile import engine_names
from sim.predict.scenario_result import case_of
from sim.serving.metrics import ServingMetrics
from sim.serving.rate import MEETING_SHARE, requests_at
from sim.serving.result import NEGLIGIBLE_GAIN

INPUTS = (32, 128, 520, 1024, 2048, 4096, 8192)
OUTPUTS = (16, 64, 128, 256, 512, 1024)
SEQS = (8, 16, 32, 64, 128, 256)
TTFTS = (200, 500, 1000, 2000, 5000, 10000)
TPOTS = (20, 30, 50, 75, 100, 150, 200)


def main() -> None:
    state.arrive("serving")
    say = speaker(TEXTS, state.language())
    title(say("title"), say("about"))
    rate = bound.steps("rate", say("rate"), served.RATES, 2.0)
    question = _asked(rate, say)
    try:
        shown = served.served(question)
    except ScenarioError as error:
        refusal(error.messages)
        return
    within = served.within(case_of(answers.loaded(question)), shown.result)
    _numbers(shown, within, rate, say)
    _verdict(shown, within, question, say)
    _over_time(shown, say)
    _cliff(question, rate, say)
    section(say("command"))
    st.code(question.command, language=None, wrap_lines=True)


def _asked(rate: float, say: Say) -> Question:
    """The question of the side bar's widgets."""
    with st.sidebar:
        settings: dict[str, object] = {
            "model": bound.picked("model", say("model"), [*model_names(), *own.refs("model")], "Qwen3-14B"),
            "hardware": bound.picked("hardware", say("hardware"), bound.npus(), "atlas_a2_910b3"),
            "engine.tensor_parallel_size": bound.steps("cards", say("cards"), (1, 2, 4, 8), 1),
            "engine.profile": bound.picked(
                "engine",
                say("engine"),
                [*engine_names(), *own.refs("engine")],
                "vllm_ascend_0_18",
                hint=say("engine_help"),
            ),
            "workload.input_tokens": bound.steps("input", say("input"), INPUTS, 520),
            "workload.output_tokens": bound.steps("output", say("output"), OUTPUTS, 256),
            "engine.max_num_seqs": bound.steps("seqs", say("seqs"), SEQS, 256),
            "slo.ttft_ms": bound.steps("ttft", say("slo_ttft"), TTFTS, 2000),
            "slo.tpot_ms": bound.steps("tpot", say("slo_tpot"), TPOTS, 100),
        }
    more = {
        served.RATE: rate,
        "workload.traffic.requests": requests_at(rate, served.MIN_REQUESTS),
        "workload.traffic.warmup_requests": served.WARMUP,
    }
    return served.question_of(
        {**settings, **more, "workload.batch": min(16, int(str(settings["engine.max_num_seqs"])))}
    )


def _numbers(shown: Served, within: ServingMetrics, rate: float, say: Say) -> None:
    metrics, ends = shown.result.metrics, shown.result.ends

    def interval(name: str) -> str:
        means = sorted(getattr(m, name).mean for m in (metrics, *ends))
        return say("interval", ends=formats.interval(formats.number(means[0]), formats.number(means[-1])))

    tpot, ttft = metrics.tpot_ms, metrics.ttft_ms
    figures(
        [
            Figure(say("tpot"), formats.number(tpot.mean), "ms", interval("tpot_ms"), say("p99", value=_ms(tpot.p99))),
            Figure(say("ttft"), formats.number(ttft.p99), "ms", "", say("p50", value=_ms(ttft.p50))),
            Figure(
                say("throughput"),
                formats.number(metrics.output_throughput),
                say("tokens_s"),
                "",
                say("running", n=formats.number(metrics.mean_running)),
            ),
            Figure(
                say("goodput"),
                formats.percent(within.request_goodput / (within.request_throughput or 1.0)),
                say("of_requests"),
                "",
                say("of_rate", rate=f"{rate:g}", done=formats.number(within.request_throughput)),
            ),
        ]
    )


def _ms(value: float) -> str:
    return formats.number(value)


def _verdict(shown: Served, within: ServingMetrics, question: Question, say: Say) -> None:
    metrics, outcome, settings = shown.result.metrics, shown.result.outcome, dict(question.sets)
    if metrics.saturated:
        key = f"why_{metrics.limit}" if f"why_{metrics.limit}" in TEXTS else "why_other"
        why = say(key, seqs=settings["engine.max_num_seqs"])
        sentence(say("lead_saturated"), say("saturated", why=why, queue=formats.whole(metrics.queue_ms.mean)))
    else:
        gap = metrics.itl_ms.mean / outcome.tokens_per_step
        parts = {"device": metrics.gap_device_ms, "prefill": metrics.gap_prefill_ms, "engine": metrics.gap_engine_ms}
        told = say("held", gap=formats.number(gap), **{key: formats.number(ms) for key, ms in parts.items()})
        if metrics.gap_preempted_ms:
            told += say("held_lost", ms=formats.number(metrics.gap_preempted_ms))
        little = say("little") if metrics.faster_device_gain < NEGLIGIBLE_GAIN else ""
        gain = formats.percent(metrics.faster_device_gain)
        sentence(say("lead_held"), f"{told} {say('second_card', gain=gain, little=little)}")
    if outcome.preemptions:
        quiet(say("preempted", n=formats.whole(outcome.preemptions)))
    if outcome.rejected:
        quiet(say("rejected", n=formats.whole(outcome.rejected)))
    source = say(f"source_{shown.result.engine.profile.worst_source()}")
    engine, hardware = settings["engine.profile"], settings["hardware"]
    quiet(
        say("source", hardware=hardware, engine=engine, source=source, requests=settings["workload.traffic.requests"])
    )


def _over_time(shown: Served, say: Say) -> None:
    section(say("time"))
    history = shown.history
    length = formats.number(float(history.at_s[-1]))
    left, right = st.columns(2, gap="large")
    run, wait, filled = say("run"), say("wait"), say("filled")
    counts = [
        {"x": float(at), "series": series, "value": int(count), "shown": f"{int(count)}"}
        for series, values in ((run, history.running), (wait, history.waiting))
        for at, count in zip(history.at_s, values, strict=True)
    ]
    alt = say("queue_alt", s=length, running=int(history.running.max()), waiting=int(history.waiting.max()))
    with left:
        section(say("queue_chart"))
        colours = {run: CLASSES["matmul"], wait: CLASSES["wait"]}
        show_with_data(
            lines("serving-queue", counts, alt, colours, x_title=say("seconds"), y_title=None, dots=False, height=220)
        )
    shares = [
        {"x": float(at), "series": filled, "value": 100 * float(share), "shown": formats.percent(float(share))}
        for at, share in zip(history.at_s, history.kv_share, strict=True)
    ]
    alt = say("kv_alt", s=length, peak=formats.percent(float(history.kv_share.max())))
    with right:
        section(say("kv_chart"))
        colours = {filled: CLASSES["cache"]}
        show_with_data(
            lines("serving-kv", shares, alt, colours, x_title=say("seconds"), y_title=None, dots=False, height=220)
        )


@st.fragment
def _cliff(question: Question, rate: float, say: Say) -> None:
    """Drawn last: it serves the deployment at every rate."""
    section(say("cliff"))
    with st.spinner(say("trying")):
        results = served.cliff(question)
    highest = results.highest
    if highest is None or not highest.rate:
        quiet(say("cliff_none"))
    else:
        missed = {"ttft_ms": "TTFT", "tpot_ms": "TPOT"}.get(highest.missed, highest.missed)
        limit = say(f"limit_{highest.limit}") if f"limit_{highest.limit}" in TEXTS else highest.limit
        quiet(
            say(
                "cliff_note",
                share=formats.percent(MEETING_SHARE),
                rate=formats.number(highest.rate),
                missed=missed,
                limit=limit,
            )
        )
    limits = {key: float(dict(question.sets)[f"slo.{key}"]) for key in ("tpot_ms", "ttft_ms")}
    for column, (key, limit_ms) in zip(st.columns(2, gap="large"), limits.items(), strict=True):
        with column:
            _curve(results, key, limit_ms, rate, say)


def _curve(results: Cliff, key: str, limit_ms: float, rate: float, say: Say) -> None:
    marks = [
        {"x": at, "series": name.upper(), "value": value, "shown": f"{formats.number(value)} ms"}
        for at, metrics in results.points
        for name in ("p50", "p99")
        for value in [getattr(getattr(metrics, key), name)]
    ]
    limit = say("limit_line")
    edges = (results.points[0][0], results.points[-1][0])
    marks += [{"x": at, "series": limit, "value": limit_ms, "shown": f"{limit_ms:g} ms"} for at in edges]
    word = key.removesuffix("_ms")
    nearest = min(results.points, key=lambda point: abs(point[0] - rate))
    p99 = formats.number(getattr(nearest[1], key).p99)
    alt = say("curve_alt", first=f"{edges[0]:g}", last=f"{edges[1]:g}", now=f"{nearest[0]:g}", value=p99)
    section(say(f"{word}_curve"))
    colours = {"P50": CLASSES["matmul"], "P99": CLASSES["attention"], limit: ACCENT}
    chart = lines(
        f"serving-{word}",
        marks,
        alt,
        colours,
        x_title=say("requests_s"),
        y_title="ms",
        x_log=True,
        y_log=key == "ttft_ms",
        now=min(rate, edges[1]),
    )
    show_with_data(chart)


main()
