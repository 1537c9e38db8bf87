"""The documents are true: docs/scenario.md is the schema, links lead somewhere, and what is named exists."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from cli import app
from scenarios.files.yaml12 import load_document
from scenarios.schema import Scenario

FILES = ("README.md", "README.zh-CN.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*.md")
#: The top folders whose files a document names.
NAMED = re.compile(r"`((?:sim|scenarios|device|docs|tests|benchmarks|app_pages)/[\w./-]+)`")


def documents(root: Path) -> list[Path]:
    return sorted(path for pattern in FILES for path in root.glob(pattern))


def scenario_block(root: Path) -> str:
    text = (root / "docs" / "scenario.md").read_text(encoding="utf-8")
    return text.split("```yaml\n")[1].split("```")[0]


def words_of(annotation: Any) -> Iterator[str]:
    """The words of every Literal in a type."""
    if get_origin(annotation) is Literal:
        yield from (str(word) for word in get_args(annotation))
    for inner in get_args(annotation):
        yield from words_of(inner)


def fields(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, info in model.model_fields.items():
        yield f"{path}{name}", info.annotation
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from fields(info.annotation, f"{path}{name}.")


def test_the_page_of_the_scenario_file_has_every_field_with_its_default(root: Path) -> None:
    document = load_document(scenario_block(root), "docs/scenario.md").data
    assert isinstance(document, dict)
    assert document.pop("extends") == "base.yaml"
    assert document == Scenario().model_dump(mode="json")


def test_the_page_of_the_scenario_file_has_every_word_that_a_field_takes(root: Path) -> None:
    said = set(re.findall(r"\w+", scenario_block(root)))
    assert [(path, word) for path, kind in fields(Scenario) for word in words_of(kind) if word not in said] == []


def test_links_lead_to_files(root: Path) -> None:
    lost = [
        f"{path.relative_to(root)}: {target}"
        for path in documents(root)
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8"))
        if "://" not in target and not (path.parent / target).exists()
    ]
    assert lost == []


def test_named_files_exist(root: Path) -> None:
    named = {(path, name) for path in documents(root) for name in NAMED.findall(path.read_text(encoding="utf-8"))}
    assert len(named) > 50
    lost = [f"{path.relative_to(root)}: {name}" for path, name in named if "NAME" not in name]
    assert sorted(line for line in lost if not (root / line.split(": ")[1]).exists()) == []


def test_make_targets_of_the_first_screen_exist(root: Path) -> None:
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    for name in ("README.md", "README.zh-CN.md"):
        targets = re.findall(r"^    make (\w+)", (root / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert targets == ["run", "test"]
    named = {t for path in documents(root) for t in re.findall(r"`make (\w+)`", path.read_text(encoding="utf-8"))}
    assert sorted(t for t in {"run", "test", *named} if not re.search(rf"^{t}:", makefile, flags=re.MULTILINE)) == []


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_a_readme_names_the_commands(root: Path, name: str) -> None:
    named = set(re.findall(r"`whatif (\w+)", (root / name).read_text(encoding="utf-8")))
    assert named >= {"run", "compare", "import", "experiment", "calibrate", "app", "validate"}


def test_commands_that_documents_name_exist(root: Path) -> None:
    known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    named = {c for path in documents(root) for c in re.findall(r"`whatif (\w+)", path.read_text(encoding="utf-8"))}
    assert named - known == set()


def test_no_file_names_the_folders_of_this_machine(root: Path) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=False)
    tracked = listed.stdout.splitlines()
    if not tracked:
        pytest.skip("not a git checkout")
    mine = (str(root).encode(), str(root.parent / "shared").encode())
    assert [name for name in tracked if any(path in (root / name).read_bytes() for path in mine)] == []
