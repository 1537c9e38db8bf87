"""The calibration page without a browser: its numbers are `whatif validate`'s, and every number has its origin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from app_pages.parts import answers
from sim.hardware.profile import load_hardware

Open = Callable[..., Any]


def html(at: Any) -> str:
    return "\n".join(item.value for item in at.get("html"))


def test_the_page_shows_the_validation_and_the_origin_of_every_number(lab: Open) -> None:
    at = lab("calibration")
    result = answers.validation().result
    text = html(at)
    assert f">{100 * result['kernels']['median']:.1f}<small>" in text
    assert f"{result['kernels']['rows']} rows" in text
    assert len(at.get("vega_lite_chart")) == 2
    by_kind, provenance = (table.value for table in at.dataframe)
    kinds = {**result["kernels"]["by_kind"], **result["collectives"]["by_kind"]}
    assert set(by_kind["kind"]) == set(kinds)
    numbers = load_hardware("atlas_a3_die_20").profile.numbers()
    assert list(provenance["number"]) == list(numbers)
    assert all(provenance["origin"])

    at.selectbox(key="calibration:profile").set_value("cpu").run()
    only = next(item for item in at.get("button_group") if item.key == "calibration:only")
    only.set_value(["assumed"]).run()
    assert not at.exception
    shown = at.dataframe[1].value
    assumed = [key for key, n in load_hardware("cpu").profile.numbers().items() if n.source == "assumed"]
    assert list(shown["number"]) == assumed


def test_the_page_speaks_chinese(lab: Open) -> None:
    at = lab("calibration", lang="zh")
    assert "预测与实测" in html(at)
