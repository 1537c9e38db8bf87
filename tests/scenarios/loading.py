"""Scenario files written into an empty folder, loaded and refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.errors import ScenarioError
from scenarios.files.yaml12 import load_document
from scenarios.loader import Loaded, load_scenario

FILES = Path(__file__).parent / "files"


def write(folder: Path, **files: str) -> None:
    """`write(folder, a="...", sub__b="...")` makes a.yaml and sub/b.yaml."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def load(path: str | Path, *sets: str, shipped: Path = FILES) -> Loaded:
    return load_scenario(path, sets, shipped=shipped)


def refused(path: str | Path, *sets: str, shipped: Path = FILES) -> list[str]:
    with pytest.raises(ScenarioError) as error:
        load_scenario(path, sets, shipped=shipped)
    return list(error.value.messages)


def refused_document(text: str) -> list[str]:
    """What is said of a document that is refused."""
    with pytest.raises(ScenarioError) as error:
        load_document(text, "f.yaml")
    return list(error.value.messages)
