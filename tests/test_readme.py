"""The README's tables are what the model gives, in both languages; what else it says: tests/test_docs.py."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.documents.tables import accuracy_rows, dies_rows, gain_rows
from benchmarks.documents.tables_zh import in_chinese


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
