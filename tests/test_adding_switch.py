"""What is easy to add is easy: a made-up switch, chip, dense family and lesson, each by what its checklist names alone.

All of it happens to a copy of the packages, so that no table of this process is touched:

- a switch: its file in scenarios/passes, and its place in the table of scenarios/passes/__init__.py;
- a chip: a YAML file in sim/hardware;
- a dense model family: a line of FAMILIES in scenarios/models/families.py;
- a lesson: a folder in app_pages/learn.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

PAGED = "optimizations.kv.layout=paged"
PACKAGES = ("scenarios", "sim", "device", "app_pages", "cli.py", "app.py")

SWITCH = '''"""Made up: the host prepares a step with one call."""

from scenarios.ops.program import Program
from scenarios.passes.base import Context, Pass, in_block


def prepare_once(program: Program, _: Context) -> Program:
    return in_block(program, "prepare", "fusion.preamble", lambda ops: ops[:1])


PREAMBLE = Pass(
    switch="fusion.preamble",
    title="Preamble as one kernel",
    rewrite=prepare_once,
    rewrites="the small calls before a step -> one",
    saves="their launches",
    costs="nothing: it is made up",
    claim="fusion saves launches",
    name=("one preamble", "一个前导算子"),
    label=("Preamble", "前导"),
    help=("The small calls before a step become one.", "每步之前的小调用合为一个。"),
)
'''

CHIP = """name: made_up_910
description: "A made-up chip: a 910B2 with half of its HBM bandwidth"
extends: atlas_a2_910b2

memory:
  hbm_gbps: {value: 810, source: assumed, origin: "made up"}
"""

PAGE = '''"""Made up."""

from app_pages.learn.lesson import Lesson, conclude, show_lesson
from app_pages.learn.made_up.experiment import doubled
from app_pages.learn.made_up.texts import TEXTS


def body(lesson: Lesson) -> None:
    conclude(lesson.say("answer", number=doubled(21)))


show_lesson("made_up", TEXTS, body)
'''

TEXTS = '''"""Made up."""

from app_pages.parts.texts import Table

TEXTS: Table = {
    "title": ("A made-up lesson", "一堂虚构的课"),
    "claim": ("Twice a number is even.", "一个数的两倍是偶数。"),
    "question": ("Is it even?", "它是偶数吗？"),
    "try": ("Try 21.", "试试 21。"),
    "answer": ("It gives {number}.", "结果是 {number}。"),
}
'''

#: Runs a page of the lab in the copy and prints what is on it.
SHOWN = """
import json, sys
from streamlit.testing.v1 import AppTest
at = AppTest.from_file("app.py", default_timeout=100)
page, params = sys.argv[1], json.loads(sys.argv[2])
for key, value in params.items():
    at.query_params[key] = value
for group in ("fusion", "gains"):
    at.session_state[f"group:{group}"] = True
at.run()
if page:
    at.switch_page(page)
    at.run()
shown = {"html": [str(element.proto) for element in at.get("html")]}
shown["errors"] = [element.value for element in at.error]
shown["tables"] = [table.value.to_csv() for table in at.dataframe]
shown["toggles"] = {t.key: [t.label, t.help, t.value] for t in at.toggle}
shown["choices"] = {s.label: list(s.options) for s in at.selectbox}
shown["exceptions"] = [e.value for e in at.exception]
print(json.dumps(shown))
"""


class House:
    """A copy of the packages, and the command in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def python(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, capture_output=True, text=True, timeout=110, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def whatif(self, *arguments: str) -> str:
        return self.python("-m", "cli", *arguments)

    def result(self, command: str, scenario: str, *arguments: str) -> dict[str, Any]:
        """The JSON of a command; each argument with an equals sign is a setting."""
        sets = [part for text in arguments for part in (("--set", text) if "=" in text else (text,))]
        file = self.folder / "result.json"
        self.whatif(command, scenario, *sets, "--json", str(file))
        result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return result

    def measured(self, *settings: str) -> dict[str, Any]:
        """A tiny step that has run on this machine's CPU."""
        small = ("workload.batch=2", "workload.input_tokens=16", "workload.output_tokens=4")
        measured: dict[str, Any] = self.result("run", "tiny_llama_cpu", *small, *settings, "--backend", "cpu")[
            "measured"
        ]
        return measured

    def shown(self, page: str = "", **params: str) -> dict[str, Any]:
        """What a page of the lab shows."""
        pytest.importorskip("streamlit", reason="the lab needs streamlit: pip install 'ascend-whatif[app]'")
        shown: dict[str, Any] = json.loads(self.python("-c", SHOWN, page, json.dumps(params)))
        assert shown["exceptions"] == []
        return shown


@pytest.fixture(scope="module")
def house(root: Path, tmp_path_factory: pytest.TempPathFactory) -> House:
    """The packages with a made-up switch, chip, family and lesson."""
    folder = tmp_path_factory.mktemp("house")
    for name in PACKAGES:
        source = root / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    (folder / "scenarios" / "passes" / "preamble.py").write_text(SWITCH, encoding="utf-8")
    insert(folder / "scenarios" / "passes" / "__init__.py", "    prefetch,\n", "    preamble,\n")
    insert(folder / "scenarios" / "passes" / "__init__.py", "    graph.GRAPH,\n", "    preamble.PREAMBLE,\n")
    (folder / "sim" / "hardware" / "made_up_910.yaml").write_text(CHIP, encoding="utf-8")
    insert(
        folder / "scenarios" / "models" / "families.py",
        '    "qwen2": Family(',
        '    "made_up": Family(qk_norm=True),\n',
    )
    lesson = folder / "app_pages" / "learn" / "made_up"
    lesson.mkdir()
    (lesson / "__init__.py").write_text('PLACE, ICON = 12, ":material/star:"\n', encoding="utf-8")
    (lesson / "experiment.py").write_text("def doubled(n: int) -> int:\n    return 2 * n\n", encoding="utf-8")
    (lesson / "page.py").write_text(PAGE, encoding="utf-8")
    (lesson / "texts.py").write_text(TEXTS, encoding="utf-8")
    return House(folder)


def insert(file: Path, before: str, line: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count(before) == 1
    file.write_text(text.replace(before, line + before), encoding="utf-8")


# ---- a switch: one file ----


def test_a_switch_is_predicted_explained_and_gains(house: House) -> None:
    off = house.result("explain", "qwen3_8b_910b2_eager", PAGED)
    on = house.result("run", "qwen3_8b_910b2_eager", PAGED, "optimizations.fusion.preamble=true")
    assert on["launches"] == off["launches"] - 17  # of the 18 small calls
    [gain] = [gain for gain in off["gains"] if gain["pass"] == "fusion.preamble"]
    assert (gain["value"], gain["state"], gain["verdict"]) == ("true", "off", "gain")
    assert gain["alone_ratio"] == pytest.approx(off["step"]["total_us"] / on["step"]["total_us"], rel=0.01)
    assert ["optimizations.fusion.preamble=true"] in [advice["settings"] for advice in off["advice"]]


def test_a_switch_is_in_the_lists_and_in_the_schema(house: House) -> None:
    assert "fusion.preamble=true" in house.whatif("list", "passes")
    field = json.loads(house.whatif("schema"))["$defs"]["Fusion"]["properties"]["preamble"]
    assert field == {"default": False, "description": "The small calls before a step become one.", "type": "boolean"}


def test_a_switch_runs_on_the_cpu(house: House) -> None:
    pytest.importorskip("torch", reason="the CPU backend needs torch: pip install 'ascend-whatif[device]'")
    off, on = (house.measured(f"optimizations.fusion.preamble={value}") for value in ("false", "true"))
    assert off["next_ids"] == on["next_ids"]
    assert len(off["ops"]) == len(on["ops"]) + 1


def test_a_switch_and_a_chip_are_in_the_lab(house: House) -> None:
    asked = {"optimizations.fusion.preamble": "true", "optimizations.kv.layout": "paged"}
    shown = house.shown(scenario="qwen3_0_6b_decode", hardware="made_up_910", lang="zh", **asked)
    assert shown["errors"] == []
    assert "made_up_910" in shown["choices"]["芯片"]
    assert shown["toggles"]["lab:optimizations.fusion.preamble"] == ["前导", "每步之前的小调用合为一个。", True]
    assert any("一个前导算子" in table for table in shown["tables"])


# ---- a chip: one YAML ----


def test_a_chip_is_listed_and_predicted(house: House) -> None:
    assert "made_up_910" in house.whatif("list", "hardware")
    slow, fast = (
        house.result("run", "qwen3_8b_decode", f"hardware={chip}", "optimizations.graph=ge_graph")
        for chip in ("made_up_910", "atlas_a2_910b2")
    )
    assert slow["hardware"] == "made_up_910"
    assert slow["step"]["total_us"] > 1.4 * fast["step"]["total_us"]


# ---- a dense family: one line ----


def test_a_dense_family_is_predicted_and_runs(house: House, root: Path) -> None:
    config = json.loads((root / "scenarios" / "models" / "Tiny-Llama" / "config.json").read_text(encoding="utf-8"))
    model = house.folder / "Made-Up"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(config | {"model_type": "made_up"}), encoding="utf-8")
    result = house.result("explain", "qwen3_8b_decode", f"model={model}")
    [norms] = [kernel["count"] for kernel in result["kernels"] if kernel["kind"] == "rms_norm"]
    assert norms > 2 * 4  # Q and K norm of four layers, which Llama has not
    assert "fusion.qkv_norm_rope_cache" in {gain["pass"] for gain in result["gains"] if not gain["reason"]}
    pytest.importorskip("torch", reason="the CPU backend needs torch: pip install 'ascend-whatif[device]'")
    assert len(house.measured(f"model={model}")["next_ids"]) == 2


# ---- a lesson: one folder ----


def test_a_lesson_is_in_the_menu_and_is_drawn(house: House) -> None:
    names = house.python("-c", "from app_pages.learn.lessons import LESSONS; print(*LESSONS)").split()
    assert names[:3] == ["bottlenecks", "made_up", "op_kernel"]
    assert any("结果是 42。" in text for text in house.shown("app_pages/learn/made_up/page.py", lang="zh")["html"])
