"""The scatter plot: well-formed SVG, a point where its times say, nothing of a label taken for markup."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from sim.accuracy.families import by_family
from sim.accuracy.score import Scored
from sim.report.validate_svg import COLOURS, MARGIN, SIZE, scatter_svg

SVG = "{http://www.w3.org/2000/svg}"


def row(measured_us: float, predicted_us: float, kind: str = "MatMulV2", label: str = "row") -> Scored:
    return Scored(label, kind, measured_us, predicted_us, 0.0, 1e9, 1.0, True)


def drawn(kernels: list[Scored], collectives: list[Scored], steps: list[Scored]) -> str:
    return scatter_svg(by_family(kernels, collectives, steps))


def points(svg: str) -> list[tuple[float, float, str, str]]:
    """(x, y, colour, title) of the points; the legend's have no title."""
    result = []
    for circle in ElementTree.fromstring(svg).iter(f"{SVG}circle"):
        title = circle.find(f"{SVG}title")
        if title is not None:
            result.append(
                (float(circle.get("cx", "")), float(circle.get("cy", "")), circle.get("fill", ""), title.text)
            )
    return result


def test_a_point_lies_where_its_times_say() -> None:
    ((x, y, _, title),) = points(drawn([row(10.0, 100.0)], [], []))
    # Axes from 10 to 100: measured at the left end, predicted at the upper one.
    assert (x, y) == (MARGIN, MARGIN)
    assert title == "row: measured 10 us, predicted 100 us (+900.0%)"


def test_a_right_prediction_lies_on_the_diagonal() -> None:
    for x, y, _, _ in points(drawn([row(us, us) for us in (1.5, 20.0, 3e4)], [], [])):
        assert x + y == pytest.approx(SIZE)


def test_families_have_their_colours() -> None:
    kernels = [row(5, 5, kind) for kind in ("QuantBatchMatmulV3", "FusedInferAttentionScore", "RmsNorm")]
    colours = [
        colour for _, _, colour, _ in points(drawn(kernels, [row(20, 20, "all_reduce 8")], [row(5000, 5000, "decode")]))
    ]
    assert colours == list(COLOURS.values())


def test_labels_are_text_and_not_markup() -> None:
    label = "<script>&\"'"
    ((_, _, _, title),) = points(drawn([row(5, 5, label=label)], [], []))
    assert title.startswith(label)


def test_no_points_are_a_picture_too() -> None:
    assert points(drawn([], [], [])) == []


def test_one_time_alone_has_room_around_it() -> None:
    ((x, y, _, _),) = points(drawn([row(10.0, 10.0)], [], []))
    assert MARGIN <= x <= SIZE - MARGIN
    assert MARGIN <= y <= SIZE - MARGIN


def test_every_tick_has_its_unit() -> None:
    texts = [t.text or "" for t in ElementTree.fromstring(drawn([row(3, 3e6)], [], [])).iter(f"{SVG}text")]
    ticks = ["1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s", "10 s"]
    assert [t for t in texts if t in ticks] == [t for tick in ticks for t in (tick, tick)]
