"""Charts as data: what is drawn is what was given, nothing is lost, and every picture has its words."""

from __future__ import annotations

from typing import Any

import pytest

from app_pages.parts import palette, rows
from app_pages.parts.charts import csv_text, maps
from app_pages.parts.charts.bars import differences, stacked, waterfall
from app_pages.parts.charts.maps import MAX_COLUMNS, TITLE_ROWS, block_table, matrices
from app_pages.parts.charts.ratios import ratios
from app_pages.parts.charts.roofline import roofline
from app_pages.parts.charts.scatter import intervals, scatter
from app_pages.parts.charts.timeline import timeline
from app_pages.parts.lab.view import class_words, hover_words
from app_pages.parts.texts import common
from scenarios.loader import load_scenario
from scenarios.timeline import Span, Timeline
from sim.predict.scenario_result import first_result, kernel_args

WORDS = {word: word for word in ("none", "here", "all", "step", "change", "now")}


def step(spans: int, length_ns: int = 1_000_000) -> Timeline:
    """Kernels of 10 ns, evenly spread over a stream, and one of a tenth of the step."""
    every = length_ns // spans
    small = [
        Span(f"op{n}", "Ascend Hardware", "Stream 0", n * every, n * every + 10, "add", "Add", n, n % 4)
        for n in range(spans)
    ]
    large = Span("big", "Ascend Hardware", "Stream 1", 0, length_ns // 10, "matmul", "MatMulV2", spans, 0)
    return Timeline((*small, large), 0, length_ns)


def test_a_short_timeline_is_drawn_span_by_span() -> None:
    item = step(100)
    whole = rows.whole(item, {3: {"Input Shapes": "1,4096", "bytes": 8192, "flops": 7, "roofline_share": 0.5}})
    assert len(whole) == 101
    third = whole[3]
    assert (third["start"], third["end"], third["us"]) == (30.0, 30.01, 0.01)
    assert (third["shapes"], third["bytes"], third["flops"], third["roofline"]) == ("1,4096", 8192, 7, 0.5)


def test_a_long_timeline_is_merged_and_loses_no_time() -> None:
    item = step(20_000)
    whole = rows.whole(item, {})
    assert len(whole) <= rows.PIECES + 2
    assert sum(row["spans"] for row in whole) == 20_001
    assert sum(row["us"] for row in whole) == pytest.approx(20_000 * 0.01 + 100)
    assert all(0 < row["busy"] <= 1 for row in whole)
    assert max(row["end"] for row in whole) <= 1000


def test_a_window_holds_what_lies_in_it_and_is_bounded() -> None:
    item = step(100)
    window = rows.window(item, 100_000, 200_000, {})
    assert [row["op"] for row in window] == [f"op{n}" for n in range(10, 20)]
    assert len(rows.window(step(9000), 0, 1_000_000, {})) == rows.MAX_IN_WINDOW


def test_lanes_go_from_the_host_down_to_the_links() -> None:
    def span(process: Any, thread: str) -> Span:
        return Span("x", process, thread, 0, 1)

    spans = [
        span("Communication", "Plane 0"), span("AI CPU", "AI CPU"), span("Communication", "Group 0 Communication"),
        span("Ascend Hardware", "Stream 0"), span("CANN", "launch"), span("Python", "Python"),
        span("Device", "Stream 1"),
    ]  # fmt: skip
    assert rows.lanes_of(spans) == [
        "Host · Python", "CANN · launch", "Stream 0", "Stream 1", "AI CPU", "HCCL · group 0", "HCCL · plane 0",
    ]  # fmt: skip


def test_spans_of_other_profilers_get_the_class_of_their_name() -> None:
    def kind(name: str, process: Any = "Ascend Hardware") -> str:
        return str(rows.span_row(Span(name, process, "Stream 2", 0, 1, "", name), "", {})["kind"])

    assert kind("aclnnMatmul_MatMulV3") == "matmul"
    assert kind("FusedInferAttentionScore") == "attention"
    assert kind("SomethingNew") == "vector"
    assert kind("aten::add", "Python") == "host"


def test_layers_are_counted_on_where_their_numbers_begin_again() -> None:
    numbers = [0, 0, 1, 0, 1, 2, 0]  # two dense layers, three with experts, and what follows them
    spans = [
        Span("k", "Ascend Hardware", "Stream 0", 1200 * n, 1200 * n + 600, "add", "Add", n, layer)
        for n, layer in enumerate(numbers)
    ]
    layers = rows.layers_of(Timeline(tuple(reversed(spans)), 0, 9000))
    assert layers == [(0, 1950), (2350, 3050), (3550, 4250), (4750, 5450), (5950, 6650)]
    assert rows.layers_of(Timeline(tuple(spans[:1]), 0, 9000)) == [(0, 650)]
    assert rows.layers_of(Timeline((), 0, 9000)) == []


@pytest.mark.parametrize(
    ("name", "layers"), [("qwen3_8b_decode", 36), ("qwen3_8b_910b2_eager", 36), ("deepseek_v3_ep16_decode", 61)]
)
def test_a_model_has_its_layers(name: str, layers: int) -> None:
    assert len(rows.layers_of(first_result(load_scenario(name)).prediction.timeline)) == layers


@pytest.mark.parametrize("name", ["qwen3_8b_decode", "qwen3_8b_tp2_decode", "qwen3_8b_910b2_eager", "tiny_llama_cpu"])
def test_a_predicted_timeline_is_drawn_whole(name: str) -> None:
    prediction = first_result(load_scenario(name)).prediction
    drawn = rows.whole(prediction.timeline, kernel_args(prediction))
    lanes = rows.lanes_of(prediction.timeline.spans)
    total = (prediction.timeline.end_ns - prediction.timeline.start_ns) / 1000
    chart = timeline("t", drawn, lanes, class_words("en"), hover_words("en"), "alt", span_us=(0, total))
    assert len(chart.rows) <= max(rows.MAX_SPANS, len(lanes) * (rows.PIECES + 50))
    assert {row["lane"] for row in chart.rows} == set(lanes)
    assert sum(row["us"] for row in drawn) == pytest.approx(
        sum(s.duration_ns for s in prediction.timeline.spans) / 1000
    )
    bars = chart.spec["layer"][0]
    assert bars["encoding"]["y"]["sort"] == lanes
    assert set(hover_words("en")) == set(common.HOVERS)


def test_the_waterfall_walks_from_none_over_here_to_all() -> None:
    gains = [
        {"label": "a", "state": "on", "waterfall_us": 3000.0, "note": "", "differs": False},
        {"label": "b", "state": "off", "waterfall_us": -500.0, "note": "", "differs": True},
    ]
    chart = waterfall("g", gains, (10_000.0, 7_000.0, 7_500.0), WORDS, "alt")
    assert [(row["label"], row["low"], row["high"], row["sort"]) for row in chart.rows] == [
        ("none", 0.0, 10.0, "total"),
        ("a", 7.0, 10.0, "gain"),
        ("here", 0.0, 7.0, "total"),
        ("b", 7.0, 7.5, "loss"),
        ("all", 0.0, 7.5, "total"),
    ]


def test_the_waterfall_shows_here_where_all_is_on() -> None:
    chart = waterfall("g", [], (10.0, 10.0, 10.0), WORDS, "alt")
    assert [row["label"] for row in chart.rows] == ["none", "here", "all"]


def test_stacked_parts_keep_their_order_and_fill_the_axis() -> None:
    parts = [
        {"part": "a", "value": 3.0, "colour": "#000000", "shown": ""},
        {"part": "b", "value": 1.0, "colour": "#111111", "shown": ""},
    ]
    chart = stacked("s", parts, "ms", "alt", (2.0, "limit"))
    bar, rule = chart.spec["layer"]
    assert bar["encoding"]["x"]["scale"]["domain"] == [0, 4.0]
    assert [row["order"] for row in chart.rows] == [0, 1]
    assert rule["data"]["values"] == [{"at": 2.0, "label": "limit"}]


def test_differences_leave_room_on_the_side_that_has_bars() -> None:
    chart = differences("d", [{"label": "x", "change": -4.0, "a": 5.0, "b": 1.0}], "cause", "alt")
    scale = chart.spec["layer"][0]["encoding"]["x"]["scale"]
    assert scale["domain"] == [-4.0, 0.0]
    left, right = scale["range"]
    assert left >= 60
    assert right["expr"].endswith("width - 4)")


def test_the_roof_bends_where_memory_and_cores_meet() -> None:
    words = {
        w: w for w in ("intensity", "rate", "name", "count", "time", "share", "roofline", "peak", "sustained", "cube")
    }
    roofs = {"hbm_peak_gbps": 1800.0, "hbm_sustained_gbps": 1500.0, "cube_tflops": 300.0, "cube_int8_tflops": 600.0}
    point = {
        "name": "MatMulV2",
        "kind": "matmul",
        "count": 3,
        "us": 9.0,
        "share": 0.5,
        "intensity": 10.0,
        "tflops": 15.0,
        "roofline": 0.8,
    }
    chart = roofline("r", [point], roofs, class_words("zh"), words, "alt")
    corners = [row for row in chart.extra["roofs"] if row["tflops"] == 300.0]
    assert {round(row["intensity"], 1) for row in corners} == {166.7, 200.0, 2000.0}
    assert chart.rows[0]["class"] == "矩阵乘"


def test_scatter_and_intervals_say_the_interval_in_words() -> None:
    words = {w: w for w in ("measured", "predicted", "error", "interval", "row", "roofline")}
    point = {
        "family": "f",
        "label": "l",
        "measured_us": 10.0,
        "predicted_us": 11.0,
        "low_us": 9.0,
        "high_us": 13.5,
        "error": 0.1,
        "roofline_error": -0.2,
    }
    assert scatter("s", [point], {"f": "#000000"}, words, "alt").rows[0]["interval"] == "9.00–13.50"
    row = {"label": "l", "measured": 10.0, "predicted": 11.0, "low": 9.0, "high": 13.5, "scored": True}
    assert intervals("i", [row], words, "alt").rows[0]["error"] == pytest.approx(0.1)


def test_csv_has_every_column_and_runs_no_formula() -> None:
    text = csv_text([{"a": 1, "b": "=1+1"}, {"a": -2.5, "c": "x,y"}, {"b": "-risky"}])
    assert text == "a,b,c\n1,'=1+1,\n-2.5,,\"x,y\"\n,'-risky,\n"


def test_text_can_be_read_on_every_colour_and_ground() -> None:
    """A contrast of 4.5 and more (WCAG AA): names on bars and cells, plain text of charts on white and near-black."""
    pairs = [(colour, palette.ink(colour)) for colour in (*maps.OWNERS, maps.FREE, *palette.CLASSES.values())]
    pairs += [(palette.ink_of("light"), "#ffffff"), (palette.ink_of("dark"), "#12171c")]
    for colour, text in pairs:
        light, dark = sorted((palette.luminance(colour), palette.luminance(text)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, colour


def test_the_wheel_alone_scrolls_the_page() -> None:
    """Every picture that zooms asks for Ctrl: found in the specifications, whatever draws them."""
    for chart in (simple_timeline(), scatter("s", [], {}, dict.fromkeys(("measured", "predicted", "error", "interval",
                                                                         "row", "roofline"), ""), "alt")):  # fmt: skip
        selects = [part["select"] for part in parts_with(chart.spec, "select")]
        assert selects
        assert all("ctrlKey" in select["zoom"] for select in selects)


def test_waiting_and_free_have_colours_of_their_own() -> None:
    assert palette.CLASSES["wait"] != palette.IDLE
    assert len(set(palette.CLASSES.values())) == len(palette.CLASSES)


def test_numbers_of_ratios_stand_right_of_the_line_of_no_effect() -> None:
    rows = [
        {"label": name, "series": "x", "value": value, "low": value - 0.1, "high": value + 0.1, "shown": f"{value}"}
        for name, value in (("loss", 0.7), ("gain", 2.0))
    ]
    chart = ratios("r", rows, "", {"x": "#000000"}, title="")
    assert [row["at"] for row in chart.rows] == [1.0, 2.1]
    assert chart.spec["layer"][-1]["encoding"]["x"]["field"] == "at"


def test_matrices_go_on_below_where_a_phone_would_not_show_their_numbers() -> None:
    square = [[float(n) for n in range(8)]] * 2
    chart = matrices("m", [(name, square, [0] * 8) for name in "abc"], "")
    ends = {name: max(row["right"] for row in chart.rows if row["y"] < 2) for name in "a"}
    assert ends["a"] <= MAX_COLUMNS
    assert {row["y"] for row in chart.rows} == {0, 1, 2 + TITLE_ROWS, 3 + TITLE_ROWS}


def test_neighbours_of_a_block_table_have_one_label() -> None:
    words = {"logical": "logical", "physical": "physical"}
    chart = block_table("b", (34, 36, 35, 7), 64, "", words)
    labels = chart.spec["layer"][-1]["data"]["values"]
    assert [label["blocks"] for label in labels] == ["7", "34\u201336"]
    assert [label["x2"] for label in labels] == [7.5, 35.5]


def test_no_hover_says_null() -> None:
    """What a row does not know is an empty text."""
    for row in simple_timeline().rows:
        assert None not in row.values()
    fall = waterfall("g", [], (10.0, 10.0, 10.0), WORDS, "alt")
    shown = {tip["field"] for tip in fall.spec["layer"][0]["encoding"]["tooltip"]}
    assert all(row[field] is not None for row in fall.rows for field in shown)


def simple_timeline() -> Any:
    spans = rows.whole(step(10), {})
    return timeline(
        "t", spans, ["Stream 0", "Stream 1"], class_words("en"), hover_words("en"), "alt", span_us=(0, 1000)
    )


def parts_with(part: Any, key: str) -> list[dict[str, Any]]:
    """Every mapping in a specification that has the key."""
    if isinstance(part, list):
        return [found for entry in part for found in parts_with(entry, key)]
    if not isinstance(part, dict):
        return []
    return [*([part] if key in part else []), *(f for value in part.values() for f in parts_with(value, key))]
