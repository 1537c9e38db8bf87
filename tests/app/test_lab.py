"""The lab without a browser: its numbers are the model's, each switch does what its `--set` does, refusals are
reported."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from app_pages.parts import answers, formats
from app_pages.parts.controls import CONTROLS, GROUPS, Control
from app_pages.parts.state import Question, question_of
from scenarios.errors import ScenarioError

Open = Callable[..., Any]

SMALL = "qwen3_0_6b_decode"
EAGER = "qwen3_8b_910b2_eager"


def html(at: Any) -> str:
    return "\n".join(item.value for item in at.get("html"))


def values(at: Any) -> list[str]:
    """The large numbers, as they are shown."""
    return re.findall(r'class="wi-value">([^<]*)<', html(at))


def shown(question: Question) -> list[str]:
    """The same numbers of the model's answer."""
    metrics = answers.first(question).result["metrics"]
    numbers = [formats.number(metrics[key]["value"]) for key in ("tpot_ms", "ttft_ms", "output_throughput")]
    return [*numbers, f"{metrics['peak_memory_bytes']['value'] / formats.GIB:,.1f}"]


def asked(at: Any) -> Question:
    """What the URL asks now."""
    result = {key: at.query_params[key] for key in at.query_params}
    return question_of({key: value[0] if isinstance(value, list) else value for key, value in result.items()})


def widget(at: Any, control: Control) -> Any:
    kinds = {"toggle": "toggle", "choice": "button_group", "list": "selectbox", "steps": "select_slider"}
    [result] = [item for item in at.get(kinds[control.widget]) if item.key == control.key]
    return result


def another(control: Control, value: object) -> object:
    """A value that the widget offers and does not have."""
    if control.widget == "toggle":
        return not value
    return next(option for option in reversed(control.options) if option != value)


def move(at: Any, control: Control, value: object) -> None:
    item = widget(at, control)
    item.set_value([value] if control.widget == "choice" and isinstance(item.value, list) else value)
    at.run()
    assert not at.exception, [e.value for e in at.exception]


def test_the_lab_opens_with_the_models_numbers(lab: Open) -> None:
    at = lab()
    assert values(at) == shown(Question())
    assert "no device was used" in html(at)
    assert "HBM-bound." in html(at)
    assert len(at.get("vega_lite_chart")) == 7


@pytest.mark.slow
def test_the_gains_are_the_models(lab: Open) -> None:
    at = lab(scenario=EAGER)
    gains = answers.gains(Question(EAGER), lambda share: None)
    tried = [item for item in gains["advice"] if item["ratio"] >= 1.005][:5]
    assert len([value for value in at.button if (value.key or "").startswith("try:")]) == len(tried) > 0
    first = tried[0]
    at.button(key="try:0").click().run()
    assert not at.exception
    sets = dict(pair.split("=") for pair in first["settings"])
    assert dict(asked(at).sets) == sets


@pytest.mark.usefixtures("quick_gains")
@pytest.mark.parametrize("group", GROUPS)
def test_every_switch_does_what_its_setting_does(lab: Open, group: str) -> None:
    at = lab(scenario=SMALL, expanded=group)
    before = values(at)
    for control in GROUPS[group]:
        value = widget(at, control).value
        value = value[0] if isinstance(value, list) else value
        move(at, control, another(control, value))
        question = asked(at)
        assert [field for field, _ in question.sets] == [control.field]
        if at.error:
            with pytest.raises(ScenarioError):
                answers.first(question)
            assert values(at) == before  # the last good ones stay, dimmed
            assert "The last that had an answer" in html(at)
            at.button(key="undo").click().run()
            assert values(at) == before
            continue
        assert values(at) == shown(question)
        move(at, control, value)
        assert values(at) == before
        assert list(at.query_params) == ["scenario"]


@pytest.mark.usefixtures("quick_gains")
def test_a_link_says_everything(lab: Open) -> None:
    at = lab(
        **{
            "scenario": SMALL,
            "workload.batch": "48",
            "optimizations.graph": "eager",
            "set.model": "Qwen3-1.7B",
            "protocol.seed": "7",
        }
    )
    question = Question(
        SMALL,
        (("model", "Qwen3-1.7B"), ("optimizations.graph", "eager"), ("protocol.seed", "7"), ("workload.batch", "48")),
    )
    assert values(at) == shown(question)
    by_field = {control.field: control for control in CONTROLS}
    assert widget(at, by_field["workload.batch"]).value == 48
    assert widget(at, by_field["model"]).value == "Qwen3-1.7B"
    # What has no widget stays when one is moved.
    move(at, by_field["workload.batch"], 8)
    assert "protocol.seed" in at.query_params


@pytest.mark.usefixtures("quick_gains")
def test_another_scenario_comes_as_it_ships(lab: Open) -> None:
    at = lab(**{"scenario": SMALL, "workload.batch": "8"})
    at.selectbox(key="lab:scenario").set_value("qwen3_8b_910b2_eager").run()
    assert values(at) == shown(Question("qwen3_8b_910b2_eager"))
    assert "workload.batch" not in at.query_params


@pytest.mark.usefixtures("quick_gains")
def test_a_pinned_baseline_is_held_against(lab: Open) -> None:
    at = lab(scenario=SMALL)
    at.button(key="pin").click().run()
    assert "as the baseline" in html(at)
    at.select_slider(key="lab:workload.batch").set_value(8).run()
    assert f"Baseline: {SMALL}" in html(at)
    one, two = (
        answers.first(Question(SMALL, sets)).result["metrics"]["tpot_ms"]["value"]
        for sets in ((), (("workload.batch", "8"),))
    )
    assert formats.percent(two / one - 1, signed=True) in html(at)
    at.button(key="unpin").click().run()
    assert "Baseline" not in html(at)


@pytest.mark.usefixtures("quick_gains")
@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"workload.batch": "abc"}, "must be a whole number"),
        ({"workload.batch": "8192"}, "more than engine.max_num_seqs"),
        ({"engine.tensor_parallel_size": "3"}, "3"),
        ({"workload.bach": "2"}, "Did you mean 'batch'"),
        ({"scenario": "/etc/passwd"}, "does not ship"),
        ({"optimizations.kv.scale": "token"}, "no effect"),
        ({"set.model": "DeepSeek-V3"}, "does not fit"),
    ],
)
def test_what_is_refused_is_told_and_the_page_stays(lab: Open, params: dict[str, str], told: str) -> None:
    at = lab(**params)
    assert values(at) == []
    assert any(told in item.value for item in at.error)
    assert at.selectbox(key="lab:scenario").value == "qwen3_8b_decode"


@pytest.mark.usefixtures("quick_gains")
def test_what_a_scenarios_own_file_sets_can_be_put_back(lab: Open) -> None:
    at = lab(**{"scenario": "qwen3_8b_long_context_int8_kv", "optimizations.kv.dtype": "auto"})
    while at.error:
        [first, *_] = [item for item in at.button if (item.key or "").startswith("back:")]
        first.click().run()
        assert not at.exception
    assert values(at)


@pytest.mark.usefixtures("quick_gains")
@pytest.mark.parametrize(
    "scenario",
    [
        "qwen3_8b_910b2_eager",
        "qwen3_8b_tp2_decode",
        "tiny_llama_cpu",
    ],
)
def test_the_lab_speaks_chinese(lab: Open, scenario: str) -> None:
    at = lab(lang="zh", scenario=scenario)
    text = html(at)
    assert "受限。" in text
    assert "预测值" in text
    assert values(at) == shown(Question(scenario))


@pytest.mark.usefixtures("quick_gains")
def test_the_language_goes_into_the_url_and_stays(lab: Open) -> None:
    at = lab()
    choose = next(item for item in at.get("button_group") if item.key == "lang")
    choose.set_value(["zh"] if isinstance(choose.value, list) else "zh").run()
    assert "时间线" in html(at)
    at.select_slider(key="lab:workload.batch").set_value(8).run()
    assert "时间线" in html(at)
    assert "lang" in at.query_params


@pytest.mark.usefixtures("quick_gains")
def test_the_layer_and_the_ranks_that_are_looked_at_are_in_the_url(lab: Open) -> None:
    at = lab(scenario="qwen3_8b_tp2_decode", layer="7")
    assert at.select_slider(key="lab:layer").value == 7
    at.toggle(key="lab:ranks").set_value(True).run()
    at.select_slider(key="lab:layer").set_value(3).run()
    assert not at.exception
    params = {key: str(at.query_params[key]) for key in ("layer", "ranks")}
    assert "3" in params["layer"]
    assert "all" in params["ranks"]
    assert asked(at) == Question("qwen3_8b_tp2_decode")


@pytest.mark.usefixtures("quick_gains")
@pytest.mark.parametrize("layer", ["-1", "999", "x", "1e9", "²"])
def test_a_layer_that_is_none_is_the_first_choice(lab: Open, layer: str) -> None:
    assert lab(scenario=SMALL, layer=layer).select_slider(key="lab:layer").value == 1


@pytest.mark.usefixtures("quick_gains")
def test_a_group_that_is_folded_away_keeps_what_was_set_in_it(lab: Open) -> None:
    at = lab(**{"scenario": SMALL, "optimizations.fusion.rope": "false"})
    assert "lab:optimizations.fusion.rope" not in [item.key for item in at.toggle]
    at.select_slider(key="lab:workload.batch").set_value(8).run()
    assert dict(asked(at).sets)["optimizations.fusion.rope"] == "false"
    at.session_state["group:fusion"] = True
    at.run()
    assert at.toggle(key="lab:optimizations.fusion.rope").value is False
    assert at.toggle(key="lab:optimizations.fusion.qkv").value is True


@pytest.mark.usefixtures("quick_gains")
def test_a_group_with_something_refused_in_it_is_unfolded(lab: Open) -> None:
    at = lab(**{"engine.tensor_parallel_size": "3"})
    assert "lab:engine.tensor_parallel_size" in [item.key for item in at.select_slider]


@pytest.mark.usefixtures("quick_gains")
@pytest.mark.parametrize("part", ["gains", "kernels", "download", "perfetto"])
def test_every_part_that_is_folded_away_opens(lab: Open, part: str) -> None:
    at = lab(scenario=SMALL, expanded=part, **{"workload.batch": "8"})
    result = {
        "gains": lambda: at.dataframe[0].value["switch"],
        "kernels": lambda: at.dataframe[0].value["op type"],
        "download": lambda: [at.code[0].value] * (at.code[0].value == asked(at).command),
        "perfetto": lambda: at.get("iframe"),
    }[part]()
    assert len(result) > 0


@pytest.mark.usefixtures("quick_gains")
def test_the_numbers_are_sent_before_the_widgets_of_the_side_bar(lab: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    from app_pages.parts import sidebar
    from app_pages.parts.lab import head

    sent: list[str] = []
    for part, name in ((head, "numbers"), (sidebar, "settings")):

        def told(*args: Any, draw: Any, name: str) -> None:
            sent.append(name)
            draw(*args)

        monkeypatch.setattr(part, name, partial(told, draw=getattr(part, name), name=name))
    lab("lab", lang="en")
    assert sent[-2:] == ["numbers", "settings"]
