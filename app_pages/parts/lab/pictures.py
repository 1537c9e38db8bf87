"""The pictures of the lab that follow from the step alone: timeline, composition, memory, roofline, kernels."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app_pages.parts import answers, formats, rows, state
from app_pages.parts.charts import Chart, bars
from app_pages.parts.charts import roofline as roofs
from app_pages.parts.charts.timeline import timeline
from app_pages.parts.lab.view import View
from app_pages.parts.page import disclosure, quiet, section, show
from app_pages.parts.palette import CLASSES, IDLE, class_of
from app_pages.parts.texts import Say
from sim.predict.scenario_result import kernel_args

MEMORY = ("weights", "kv_cache", "activations", "graph_pool", "hccl_buffers", "runtime")
MEMORY_COLOURS = ("#0072b2", "#cc79a7", "#56b4e9", "#7b6bb0", "#b59b00", "#8a939e")
ENGINES = ("python_thread", "launch_thread", "cube", "vector", "hbm", "ai_cpu")
#: The layer that is shown at first: neither the first nor the last, which are not like the others.
FIRST_LAYER = 1
#: The parameters of the URL for what is looked at.
LAYER, RANKS = "layer", "ranks"


def timelines(view: View) -> list[Chart]:
    """The whole step, and below it one layer kernel by kernel; the charts that were drawn."""
    say, predicted = view.say, view.answer.prediction.timeline
    section(say("timeline"), say("timeline_note"))
    layers = rows.layers_of(predicted)
    args = kernel_args(view.answer.prediction)
    slot = st.container()
    layer = _chosen_layer(len(layers), say)
    window_ns = None if layer is None else layers[layer]
    drawn = [_whole(view, window_ns, args)]
    with slot:
        show(drawn[0])
    if layer is not None and window_ns is not None:
        drawn.append(_layer(view, layer, window_ns, args))
        show(drawn[1])
    return drawn


def _chosen_layer(count: int, say: Say) -> int | None:
    """The layer that is looked at, which the URL keeps; None where no kernel says its layer."""
    if not count:
        return None
    asked = st.query_params.get(LAYER, "")
    layer = int(asked) if asked.isdecimal() and int(asked) < count else min(FIRST_LAYER, count - 1)
    if count == 1:
        return layer
    st.session_state["lab:layer"] = layer
    chosen = st.select_slider(say("layer_note"), range(count), key="lab:layer", on_change=_keep_layer)
    assert isinstance(chosen, int)
    return chosen


def _keep_layer() -> None:
    state.write({LAYER: str(st.session_state["lab:layer"])})


def _all_ranks(view: View) -> bool:
    """Whether the reader wants to see every rank's collectives, which the URL keeps."""
    prediction = view.answer.prediction
    if prediction.pipeline is not None or not prediction.step.communication_ns:
        return False
    st.session_state["lab:ranks"] = st.query_params.get(RANKS) == "all"
    return st.toggle(view.say("all_ranks"), key="lab:ranks", on_change=_keep_ranks)


def _keep_ranks() -> None:
    state.write({RANKS: "all" if st.session_state["lab:ranks"] else None})


def _whole(view: View, window_ns: tuple[int, int] | None, args: rows.Args) -> Chart:
    predicted, step = view.answer.prediction.timeline, view.result["step"]
    total = step["total_us"]
    shaded = None if window_ns is None else (window_ns[0] / 1000, window_ns[1] / 1000)
    lanes = rows.lanes_of(predicted.spans)
    alt = view.say(
        "timeline_alt",
        ms=formats.number(total / 1000),
        lanes=len(lanes),
        kernels=view.result["kernel_count"],
        computing=formats.percent(step["computing_us"] / total),
        comm=formats.percent(step["communication_not_overlapped_us"] / total),
        free=formats.percent(step["free_us"] / total),
    )
    return timeline(
        "timeline",
        rows.whole(predicted, args),
        lanes,
        view.classes,
        view.hovers,
        alt,
        span_us=(0.0, total),
        shaded_us=shaded,
    )


def _layer(view: View, layer: int, window_ns: tuple[int, int], args: rows.Args) -> Chart:
    predicted = view.answer.prediction.timeline
    start, end = window_ns
    drawn, lanes = rows.window(predicted, start, end, args), rows.lanes_of(predicted.spans)
    if _all_ranks(view):
        for other in answers.ranks(view.question)[1:]:
            lane = f"HCCL · {view.say('rank')} {other.rank}"
            drawn += [{**row, "lane": lane} for row in rows.transfers(other, start, end)]
            lanes.append(lane)
    alt = view.say("layer_alt", layer=layer, us=formats.number((end - start) / 1000))
    return timeline(
        "layer",
        drawn,
        lanes,
        view.classes,
        view.hovers,
        alt,
        span_us=(start / 1000, end / 1000),
        legend=False,
    )


def composition(view: View) -> list[Chart]:
    """Computing, communication and free time of the step."""
    say, step = view.say, view.result["step"]
    section(say("composition"))
    wait = min(step["communication_wait_us"], step["communication_not_overlapped_us"])
    shares = (
        ("computing", step["computing_us"] - step["overlapped_us"], CLASSES["matmul"]),
        ("hidden", step["overlapped_us"], CLASSES["norm"]),
        ("communication", step["communication_not_overlapped_us"] - wait, CLASSES["communication"]),
        ("wait", wait, CLASSES["wait"]),
        ("free", step["free_us"], IDLE),
    )
    total = step["total_us"]
    parts = [
        {
            "part": f"{say(f'part_{name}')} {formats.ms(us)}",
            "value": us / 1000,
            "colour": colour,
            "shown": f"{formats.ms(us)}, {formats.percent(us / total)}",
        }
        for name, us, colour in shares
        if us > 0
    ]
    alt = say("composition_alt", ms=formats.number(total / 1000), parts=", ".join(p["part"] for p in parts))
    chart = bars.stacked("composition", parts, "ms", alt)
    show(chart)
    busy = view.result["busy"]
    quiet(f"{say('busy')}: " + " · ".join(f"{say(f'busy_{e}')} {formats.percent(busy[e])}" for e in ENGINES if busy[e]))
    return [chart]


def memory(view: View) -> list[Chart]:
    """What the step holds of the memory, part by part, against what it may use."""
    say, held, capacity = view.say, view.result["memory"], view.result["capacity"]
    section(say("memory_bar"))
    drawn: list[dict[str, Any]] = [
        {
            "part": f"{say(f'mem_{name}')} {formats.size(held[f'{name}_bytes'])}",
            "colour": colour,
            "value": held[f"{name}_bytes"] / formats.GIB,
            "shown": formats.size(held[f"{name}_bytes"]),
        }
        for name, colour in zip(MEMORY, MEMORY_COLOURS, strict=True)
        if held[f"{name}_bytes"]
    ]
    free = max(0, held["capacity_bytes"] - held["total_bytes"])
    parts = ", ".join(p["part"] for p in drawn)
    drawn.append(
        {
            "part": f"{say('mem_free')} {formats.size(free)}",
            "value": free / formats.GIB,
            "colour": IDLE,
            "shown": formats.size(free),
        }
    )
    usable = say("memory_limit", usable=formats.size(held["usable_bytes"]))
    alt = say("memory_alt", total=formats.size(held["total_bytes"]), parts=parts, free=formats.size(free))
    chart = bars.stacked("memory", drawn, "GiB", alt, (held["usable_bytes"] / formats.GIB, usable))
    show(chart)
    quiet(
        say(
            "memory_note",
            tokens=formats.whole(capacity["kv_tokens"]),
            requests=formats.whole(capacity["max_concurrent_requests"]),
        )
    )
    return [chart]


def roofline(view: View) -> list[Chart]:
    """Each kind of kernel under what memory and cores allow."""
    say, roof, kernels = view.say, view.result["roofs"], view.result["kernels"]
    section(say("roofline"), say("roofline_note"))
    points = [
        {
            "name": row["op_type"],
            "kind": class_of(row["kind"]),
            "count": row["count"],
            "us": row["total_us"],
            "share": row["share"],
            "intensity": row["flops"] / row["hbm_bytes"],
            "tflops": row["tflops"],
            "roofline": row["roofline_share"],
        }
        for row in kernels
        if row["flops"] and row["hbm_bytes"] and row["tflops"]
    ]
    words = {key: say(f"roof_{key}") for key in ("intensity", "rate", "name", "count", "time", "share", "roofline")}
    words["peak"] = say("roof_peak", hbm=f"{roof['hbm_peak_gbps'] / 1000:.2f}{formats.THIN}TB/s")
    words["cube"] = say("roof_cube", cube=f"{roof['cube_tflops']:.0f}{formats.THIN}TFLOPS")
    words["sustained"] = say("roof_sustained", hbm=f"{roof['hbm_sustained_gbps'] / 1000:.2f}{formats.THIN}TB/s")
    top = max(points, key=lambda p: p["us"], default=None)
    if top is None:
        return []
    alt = say(
        "roofline_alt",
        count=len(points),
        top=top["name"],
        share=formats.percent(top["share"]),
        roofline=formats.percent(top["roofline"]),
    )
    chart = roofs.roofline("roofline", points, roof, view.classes, words, alt)
    show(chart)
    return [chart]


def kernels(view: View) -> None:
    """The table behind the pictures."""
    say = view.say
    with disclosure(say("kernels"), "kernels") as open_:
        if not open_:
            return
        listed = view.result["kernels"]
        columns = {
            say("kernel_type"): [row["op_type"] for row in listed],
            say("kernel_count"): [row["count"] for row in listed],
            say("kernel_total"): [row["total_us"] for row in listed],
            say("kernel_each"): [row["total_us"] / row["count"] for row in listed],
            say("kernel_share"): [100 * row["share"] for row in listed],
            say("kernel_bound"): [row["bound"] for row in listed],
            say("kernel_rate"): [row["gbps"] for row in listed],
            say("kernel_tflops"): [row["tflops"] for row in listed],
            say("kernel_roofline"): [100 * row["roofline_share"] for row in listed],
        }
        number = st.column_config.NumberColumn
        st.dataframe(
            columns,
            hide_index=True,
            alt=say("kernels"),
            column_config={
                say("kernel_total"): number(format="%.1f"),
                say("kernel_each"): number(format="%.2f"),
                say("kernel_share"): number(format="%.1f %%"),
                say("kernel_rate"): number(format="%.0f"),
                say("kernel_tflops"): number(format="%.1f"),
                say("kernel_roofline"): number(format="%.0f %%"),
            },
        )
