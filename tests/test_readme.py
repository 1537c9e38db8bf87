"""The README is true: its tables are computed, its commands exist, its links lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.documents.tables import accuracy_rows, dies_rows, gain_rows
from benchmarks.documents.tables_zh import in_chinese
from cli import app

READMES = ("README.md", "README.zh-CN.md")


@pytest.mark.parametrize("rows", [accuracy_rows, gain_rows, dies_rows])
def test_the_tables_are_what_the_model_gives(root: Path, rows: Callable[[], list[str]]) -> None:
    lines = rows()
    assert "\n".join(lines) in (root / "README.md").read_text(encoding="utf-8")
    assert "\n".join(in_chinese(lines)) in (root / "README.zh-CN.md").read_text(encoding="utf-8")


def test_the_tables_in_chinese_leave_no_english_phrase() -> None:
    text = "\n".join(in_chinese([*accuracy_rows(), *gain_rows(), *dies_rows()]))
    assert set(re.findall(r"\b[a-z]{4,}\b", re.sub(r"`[^`]*`", "", text))) <= {
        "kernel",
        "attention",
        "eager",
        "profile",
        "graph",
    }


@pytest.mark.parametrize("name", READMES)
def test_links_lead_to_files(root: Path, name: str) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", (root / name).read_text(encoding="utf-8"))
    assert [t for t in targets if "://" not in t and not (root / t).exists()] == []


@pytest.mark.parametrize("name", READMES)
def test_named_files_and_scenarios_exist(root: Path, name: str) -> None:
    named = re.findall(r"`((?:sim|scenarios|docs|tests)/[\w./-]+)`", (root / name).read_text(encoding="utf-8"))
    assert named
    assert [n for n in named if not (root / n).exists()] == []


@pytest.mark.parametrize("name", READMES)
def test_make_targets_of_the_first_screen_exist(root: Path, name: str) -> None:
    targets = re.findall(r"^    make (\w+)", (root / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    assert targets == ["run", "test"]
    assert all(re.search(rf"^{t}:", makefile, flags=re.MULTILINE) for t in [*targets, "app"])


@pytest.mark.parametrize("name", READMES)
def test_commands_of_the_readme_exist(root: Path, name: str) -> None:
    named = set(re.findall(r"`whatif (\w+)", (root / name).read_text(encoding="utf-8")))
    known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert named >= {"run", "compare", "import", "experiment", "calibrate", "app", "validate"}
    assert named - known == set()
