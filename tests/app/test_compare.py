"""The compare page without a browser: scenarios, results and traces side by side, and what is no file of ours."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app_pages.parts import answers, formats, sides
from app_pages.parts.state import Question
from app_pages.parts.texts.captures import translated
from app_pages.parts.texts.refusals import ORIGINAL
from scenarios.errors import ScenarioError
from sim.report.files import to_json

Open = Callable[..., Any]

SMALL, OTHER = "tiny_llama_cpu", "qwen3_0_6b_decode"


def html(at: Any) -> str:
    return "\n".join(item.value for item in at.get("html"))


def values(at: Any) -> list[str]:
    return re.findall(r'class="wi-value">([^<]*)<', html(at))


def step_ms(name: str, *sets: tuple[str, str]) -> float:
    return float(answers.first(Question(name, sets)).result["step"]["total_us"]) / 1000


def upload(at: Any, side: str, name: str, data: bytes) -> Any:
    kind = next(item for item in at.get("button_group") if item.key == f"compare:{side}_from")
    kind.set_value(["file"] if isinstance(kind.value, list) else "file").run()
    next(item for item in at.get("file_uploader") if item.key == f"compare:{side}_file").upload(name, data).run()
    assert not at.exception, [value.value for value in at.exception]
    return at


def test_two_scenarios_are_laid_side_by_side(lab: Open) -> None:
    at = lab("compare", a=OTHER, b=OTHER, b_set="optimizations.graph=eager workload.batch=2")
    a = step_ms(OTHER)
    b = step_ms(OTHER, ("optimizations.graph", "eager"), ("workload.batch", "2"))
    assert values(at) == [formats.number(a), formats.number(b), formats.ratio(max(a / b, b / a))]
    assert "slower" in html(at)
    assert len(at.get("vega_lite_chart")) == 2
    assert {item.label for item in at.expander} == {
        "What is set differently",
        "Metrics",
        "Time by lane",
        "Kernels, paired by op and shape",
    }


def test_a_folder_of_several_ranks_is_one_side_and_shows_no_path() -> None:
    trace = answers.trace(Question(OTHER)).encode()
    files = [(f"job/rank{n}_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json", trace) for n in range(2)]
    side = sides.uploaded_folder(files)
    assert side.timeline is not None
    notes = [translated(note, "zh") for note in side.notes]
    assert any("2 条时间线中的第一条" in note for note in notes), side.notes
    assert not any(ORIGINAL in note or "/tmp" in note or "tmp" in note for note in notes), notes
    with pytest.raises(ScenarioError):
        sides.uploaded_folder([("../x.json", trace)])


def test_what_is_chosen_goes_into_the_url(lab: Open) -> None:
    at = lab("compare")
    at.selectbox(key="compare:a").set_value(OTHER).run()
    at.text_input(key="compare:b_set").set_value("workload.batch=4").run()
    assert not at.exception
    result = {key: at.query_params[key] for key in at.query_params}
    assert {key: value[0] if isinstance(value, list) else value for key, value in result.items()} == {
        "a": OTHER,
        "b": "qwen3_8b_910b2_eager",
        "b_set": "workload.batch=4",
    }


def test_the_same_twice_differs_in_nothing(lab: Open) -> None:
    at = lab("compare", a=SMALL, b=SMALL, lang="zh")
    assert "一样快" in html(at)
    assert values(at)[2] == "1.00×"


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"a": "/etc/passwd"}, "does not ship"),
        ({"a": SMALL, "a_set": "workload.batch"}, "key=value"),
        ({"a": SMALL, "a_set": "workload.batch=0"}, "at least 1"),
        ({"a": SMALL, "a_set": "set.hardware=/tmp/x.yaml"}, "set"),
        ({"a": SMALL, "a_set": "hardware=/tmp/x.yaml"}, "does not ship"),
    ],
)
def test_what_is_refused_is_told_for_its_side(lab: Open, params: dict[str, str], told: str) -> None:
    at = lab("compare", b=OTHER, **params)
    assert [item.value for item in at.error if item.value.startswith("A is refused")]
    assert any(told in value.value for value in at.error), [entry.value for entry in at.error]


def test_a_result_is_compared_without_a_timeline(lab: Open) -> None:
    at = lab("compare", a=SMALL, b=SMALL)
    result = to_json(answers.first(Question(SMALL, (("workload.batch", "2"),))).result)
    upload(at, "b", "saved.json", result.encode())
    assert values(at)[:2] == [formats.number(step_ms(SMALL)), formats.number(step_ms(SMALL, ("workload.batch", "2")))]
    assert "no timeline to draw" in html(at)


def test_a_trace_is_compared_with_the_scenario_that_it_is_of(lab: Open) -> None:
    at = lab("compare", a=SMALL, b=SMALL)
    upload(at, "b", "step.trace.json", answers.trace(Question(SMALL)).encode())
    assert values(at)[2] == "1.00×"
    assert len(at.get("vega_lite_chart")) == 1  # nothing differs, so only the timelines


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("empty.json", b""),
        ("list.json", b"[1, 2]"),
        ("cut.json", b'[{"ph": "X", "ts": "1.0'),
        ("text.csv", b"a,b\n1,2\n"),
        ("no.db", b"not a database"),
        ("../../etc/escape.json", b"{}"),
    ],
)
def test_a_file_that_is_none_of_ours_is_told_in_its_own_name(lab: Open, name: str, data: bytes) -> None:
    at = upload(lab("compare", a=SMALL, b=SMALL), "b", name, data)
    [error] = at.error
    assert error.value.startswith("B is refused")
    assert Path(name).name in error.value
    assert "/tmp" not in error.value


def test_an_upload_is_read_once_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    data = answers.trace(Question(SMALL)).encode()
    assert sides.uploaded([("t.json", data)]) is sides.uploaded([("t.json", data)])
    with pytest.raises(ScenarioError):
        sides.uploaded([("u.json", json.dumps({"x": 1}).encode())])
    assert not list(tmp_path.iterdir())


def test_every_span_of_an_uploaded_trace_has_a_lane_and_a_class(lab: Open) -> None:
    side = sides.uploaded([("t.json", answers.trace(Question(OTHER)).encode())])
    assert side.timeline is not None
    assert side.timeline.label == "SIMULATED"


def load_test(per_step_ms: float) -> bytes:
    """A made-up result in the form of vllm bench."""
    values = {
        "model_id": "Qwen3-8B", "max_concurrency": 8, "request_rate": "inf", "completed": 100, "duration": 41.0,
        "total_input_tokens": 51200, "total_output_tokens": 25600, "mean_ttft_ms": 180.0, "mean_tpot_ms": per_step_ms,
        "output_throughput": 620.0,
    }  # fmt: skip
    return json.dumps(values).encode()


def test_two_load_tests_show_what_requests_met(lab: Open) -> None:
    at = upload(upload(lab("compare"), "a", "before.json", load_test(12.0)), "b", "after.json", load_test(16.0))
    assert values(at) == [formats.number(180 + 255 * 12), formats.number(180 + 255 * 16), formats.ratio(4260 / 3240)]
    assert "A token takes 12 ms in A and 16 in B." in html(at)
    assert "8 requests in flight" in html(at)
    assert len(at.get("vega_lite_chart")) == 1  # of one load test there is no timeline


def test_load_tests_are_compared_in_chinese(lab: Open) -> None:
    at = upload(upload(lab("compare", lang="zh"), "a", "a.json", load_test(12.0)), "b", "b.json", load_test(16.0))
    assert "8 个在途请求" in html(at)
    assert "in flight" not in html(at)


def test_a_load_test_beside_a_step_is_refused_in_a_line(lab: Open) -> None:
    at = upload(lab("compare", a=OTHER), "b", "after.json", load_test(16.0))
    assert any("compare it with another load test" in item.value for item in at.error)
