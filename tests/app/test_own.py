"""The reader's own files: chosen like shipped ones, refused as the command line refuses them, gone with the process."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import streamlit as st

from app_pages.parts import answers, dropped, own
from app_pages.parts.formats import number
from app_pages.parts.state import Question
from scenarios.errors import ScenarioError
from scenarios.models.hf_config import SHIPPED
from sim.hardware.profile import SHIPPED as CHIPS

Open = Callable[..., Any]
SCENARIO = b"model: Qwen3-0.6B\nhardware: atlas_a3_die\nworkload:\n  batch: 3\n"


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(st, "session_state", {})


def config() -> bytes:
    """A model that does not ship: Qwen3-0.6B with fewer layers, under its own name."""
    values = json.loads((SHIPPED / "Qwen3-0.6B" / "config.json").read_text())
    return json.dumps({**values, "num_hidden_layers": 4, "_name_or_path": "me/My-Model"}).encode()


def test_a_scenario_is_asked_like_a_shipped_one() -> None:
    kept = own.add("mine.yaml", SCENARIO)
    assert (kept.kind, kept.name) == ("scenario", "mine.yaml")
    result = answers.first(Question(kept.ref, (("workload.batch", "5"),))).result
    assert result["batch"]["requests"] == 5
    assert result["scenario"]["model"] == "Qwen3-0.6B"


def test_a_models_config_is_a_model() -> None:
    kept = own.add("config.json", config())
    assert (kept.kind, kept.name) == ("model", "My-Model")
    question = Question("qwen3_0_6b_decode", (("model", kept.ref),))
    answer = answers.first(question)
    assert answer.prediction.case.model.layers == 4
    assert answer.prediction.case.model.name == "My-Model"
    assert question.command == "whatif run qwen3_0_6b_decode --set model=My-Model"
    assert str(own._root()) not in own.plain(json.dumps(answer.result))


def test_a_models_folder_says_how_its_weights_are_stored() -> None:
    values = {**json.loads(config()), "quantization_config": {"quant_method": "modelslim"}}
    files = [
        ("W8-Model/config.json", json.dumps(values).encode()),
        ("W8-Model/quant_model_description.json", b'{"model_quant_type": "W8A8_DYNAMIC"}'),
        ("W8-Model/tokenizer.json", b"{}"),
    ]
    alone = dropped.add_all(files[:1])
    assert "quant_model_description.json next to it" in alone[0]
    assert dropped.add_all(files) == []
    [kept] = own.mine()
    assert (kept.kind, kept.name) == ("model", "W8-Model")
    answer = answers.first(Question("qwen3_0_6b_decode", (("model", kept.ref),)))
    assert answer.prediction.case.model.stored_as == "w8a8"


def test_profiles_and_scenarios_of_a_folder_name_one_another() -> None:
    files = [
        ("lab/chips/board.yaml", b"name: board\nextends: base.yaml\n"),
        ("lab/chips/base.yaml", (CHIPS / "generic.yaml").read_bytes()),
        ("lab/mine.yaml", SCENARIO.replace(b"atlas_a3_die", b"chips/board.yaml")),
    ]
    assert dropped.add_all(files) == []
    assert [kept.kind for kept in own.mine()] == ["hardware", "hardware", "scenario"]
    assert answers.first(Question(own.mine()[-1].ref)).result["hardware"] == "board"
    assert dropped.add_all([("lab/readme.json", b"{}")]) == [
        "lab: no config.json, and no YAML file of a scenario or a profile"
    ]


@pytest.mark.parametrize("name", ["../x.yaml", "/etc/x.yaml", "a/../../x.yaml", "", "a/.ssh/x.yaml", "\\..\\x.yaml"])
def test_nothing_is_kept_outside_its_folder(name: str) -> None:
    assert dropped.inside(name) is None
    assert list(dropped.parts_of([(name, SCENARIO)])) == []


def test_a_setting_takes_the_name_of_an_own_file() -> None:
    kept = own.add("config.json", config())
    assert own.named("model", "My-Model") == kept.ref
    assert own.named("model", "Qwen3-8B") == "Qwen3-8B"
    assert own.named("hardware", "My-Model") == "My-Model"
    st.session_state.clear()
    assert own.named("model", "My-Model") == "My-Model"
    assert own.adopted("model", kept.ref) == "My-Model"
    assert own.named("model", "My-Model") == kept.ref
    assert own.adopted("workload.batch", "8") == "8"


def test_a_hardware_and_an_engine_profile_are_told_apart() -> None:
    text = (CHIPS / "generic.yaml").read_text()
    chip = own.add("board.yaml", text.replace("name: generic", "name: board").encode())
    assert chip.kind == "hardware"
    assert answers.first(Question("qwen3_0_6b_decode", (("hardware", chip.ref),))).result["hardware"] == "board"
    engine = (CHIPS.parent / "engines" / "healthy.yaml").read_bytes()
    assert own.add("engine.yaml", engine).kind == "engine"


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("s.yaml", b"model: Qwen3-8B\nworkload:\n  batch: many\n", r"s\.yaml:3:10: workload\.batch"),
        ("s.yaml", b"model: Qwen3-8B\nworklod: {}\n", r"s\.yaml:2:1: .*worklod"),
        ("s.yaml", b"a: [1\n", r"s\.yaml:"),
        ("c.json", b'{"model_type": ', r"c\.json:1:\d+: not JSON"),
        ("c.json", b'{"model_type": "no such"}', "config.json"),
        ("x.yaml", b"colour: red\n", "neither a scenario"),
        ("x.yaml", b"\xff\xfe", "UTF-8"),
        ("c.json", b'{"a":' * 20_000, r"c\.json: not JSON: nested too deep"),
        ("r.json", b'{"step": {}, "kernels": []}', "a result of whatif run"),
        ("s.yaml", b"model: /etc/hosts\n", r"s\.yaml: model: .* not dropped with it"),
        ("s.yaml", b"model: cli.py\n", r"s\.yaml: model: .* not dropped with it"),
        ("s.yaml", b"extends: ../../x.yaml\nworkload: {}\n", r"s\.yaml:1:10: extends: .* lies outside"),
        ("h.yaml", b"name: x\nextends: /etc/hosts\nchip: {}\n", r"h\.yaml: extends: .* not dropped with it"),
    ],
)
def test_what_is_wrong_is_said_as_the_command_line_says_it(name: str, data: bytes, said: str) -> None:
    with pytest.raises(ScenarioError) as error:
        own.add(name, data)
    assert re.search(said, "\n".join(error.value.messages)), error.value.messages
    assert not any(str(own._root()) in line for line in error.value.messages)


def test_a_link_names_no_other_file() -> None:
    for name in ("own:000000000000/x.yaml", "own:../../etc/passwd", f"own:{'0' * 12}/../x", str(Path(__file__))):
        with pytest.raises(ScenarioError):
            answers.loaded(Question(name))


def test_a_refused_question_about_an_own_file_shows_no_path() -> None:
    kept = own.add(
        "big.yaml",
        SCENARIO.replace(
            b"batch: 3",
            b"batch: 60000\n  input_tokens: 4000\nengine:\n  max_num_seqs: 60000\n  max_num_batched_tokens: 60000",
        ),
    )
    with pytest.raises(ScenarioError) as error:
        answers.first(Question(kept.ref))
    assert error.value.messages
    assert all(str(own._root()) not in line for line in error.value.messages)


def test_dropped_files_can_be_chosen_in_the_lab(lab: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    at = lab("lab", "files", lang="en")
    uploader = next(item for item in at.get("file_uploader") if item.key == "drop:files")
    uploader.upload("config.json", config()).run()
    assert not at.exception
    model = at.selectbox(key="lab:model")
    assert "My-Model" in model.options
    model.set_value(next(kept.ref for kept in at.session_state[own.MINE] if kept.kind == "model")).run()
    assert not at.exception
    said = unescape("\n".join(item.value for item in at.get("html")))
    assert "My-Model on" in said
    assert str(own._root()) not in said


def test_what_lies_below_the_button_is_drawn_once_it_is_open(lab: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert not lab("home", lang="en").get("file_uploader")
    keys = [item.key for item in lab("home", "files", lang="en").get("file_uploader")]
    assert keys == ["drop:files", "drop:folder"]


def test_a_dropped_scenario_can_be_compared(lab: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    at = lab("compare", lang="en", a="tiny_llama_cpu", b="tiny_llama_cpu")
    at.session_state[own.MINE] = [own.add("mine.yaml", SCENARIO)]
    at.run()
    assert "mine.yaml" in at.selectbox(key="compare:b").options
    at.selectbox(key="compare:b").set_value(at.session_state[own.MINE][0].ref).run()
    assert not at.exception
    assert not at.error
    said = unescape("\n".join(item.value for item in at.get("html")))
    step_us = answers.first(Question(at.session_state[own.MINE][0].ref)).result["step"]["total_us"]
    assert number(step_us / 1000) in said
    assert str(own._root()) not in said


def test_own_models_and_chips_are_compared_by_name(lab: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    ref = {"model": "", "hardware": ""}
    at = lab("compare", lang="en", a="qwen3_0_6b_decode", b="qwen3_0_6b_decode")
    board = (CHIPS / "generic.yaml").read_text().replace("name: generic", "name: board").encode()
    kept = [own.add("config.json", config()), own.add("board.yaml", board)]
    ref = {own.kind: own.ref for own in kept}
    at.session_state[own.MINE] = kept
    at.text_input(key="compare:b_set").set_value("model=My-Model hardware=board.yaml workload.batch=2").run()
    assert not at.exception
    assert not at.error
    link = {key: at.query_params[key] for key in at.query_params}
    assert f"model={ref['model']} hardware={ref['hardware']} workload.batch=2" in link["b_set"]
    sets = tuple(sorted({**ref, "workload.batch": "2"}.items()))
    step_us = answers.first(Question("qwen3_0_6b_decode", sets)).result["step"]["total_us"]
    said = unescape("\n".join(item.value for item in at.get("html")))
    assert number(step_us / 1000) in said

    other = lab("compare", **{key: value[0] if isinstance(value, list) else value for key, value in link.items()})
    assert other.text_input(key="compare:b_set").value == "model=My-Model hardware=board.yaml workload.batch=2"
    assert not other.error


def test_a_typed_number_is_any_that_the_schema_takes(lab: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    at = lab("lab", lang="en")
    at.number_input(key="typed:workload.batch").set_value(7).run()
    assert not at.exception
    params = {key: at.query_params[key] for key in at.query_params}
    assert "7" in params["workload.batch"]
    assert at.select_slider(key="lab:workload.batch").value == 7
