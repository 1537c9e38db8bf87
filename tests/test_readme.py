"""The README is true: its tables are computed, its commands exist, its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

from sim.accuracy.table import accuracy_rows, dies_rows, gain_rows


def test_the_accuracy_table_is_what_the_reference_set_gives(root: Path) -> None:
    assert "\n".join(accuracy_rows()) in (root / "README.md").read_text(encoding="utf-8")


def test_the_gain_table_is_what_the_scenario_gives(root: Path) -> None:
    assert "\n".join(gain_rows()) in (root / "README.md").read_text(encoding="utf-8")


def test_the_table_of_dies_is_what_the_scenario_gives(root: Path) -> None:
    assert "\n".join(dies_rows()) in (root / "README.md").read_text(encoding="utf-8")


def test_links_lead_to_files(root: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", (root / "README.md").read_text(encoding="utf-8"))
    assert [t for t in targets if "://" not in t and not (root / t).exists()] == []


def test_named_files_and_scenarios_exist(root: Path) -> None:
    text = (root / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:sim|scenarios|docs)/[\w./-]+)`", text)
    assert named
    assert [n for n in named if not (root / n).exists()] == []


def test_make_targets_of_the_first_screen_exist(root: Path) -> None:
    targets = re.findall(r"^    make (\w+)", (root / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    assert targets == ["run", "test"]
    assert all(re.search(rf"^{t}:", makefile, flags=re.MULTILINE) for t in targets)
