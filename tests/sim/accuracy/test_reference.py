"""The reference set: pinned, sourced, and never changed together with the model that it judges."""

from __future__ import annotations

import csv
import subprocess
from pathlib import Path

import pytest

from benchmarks.documents import checksums
from sim.accuracy.reference import FOLDER

#: What a reference value must not change together with: the cost model and its numbers.
MODEL = (
    "sim/hardware/",
    "sim/kernel/",
    "sim/collective/",
    "sim/step/host.py",
    "sim/step/priced.py",
    "scenarios/ops/catalogue.py",
)


def test_the_files_are_what_their_checksums_say() -> None:
    assert checksums.differing() == []


def test_a_changed_value_is_seen(tmp_path: Path) -> None:
    for path in FOLDER.glob("*"):
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    assert checksums.differing(tmp_path) == []
    steps = tmp_path / "steps.csv"
    steps.write_text(steps.read_text().replace("14.74", "14.75"))
    assert checksums.differing(tmp_path) == ["steps.csv"]


@pytest.mark.parametrize("name", ["kernels.csv", "steps.csv", "ladders.csv", "overlaps.csv", "serving.csv"])
def test_each_row_names_its_source(name: str) -> None:
    with (FOLDER / name).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert [row for row in rows if len(row["source"]) < 8] == []


def test_no_commit_changes_reference_values_and_the_model(root: Path) -> None:
    """Past the commit that laid the set down: values there and numbers here change apart."""
    if not (root / ".git").exists():
        pytest.skip("not a git checkout, so there is no history to look at")
    log = subprocess.run(
        ["git", "log", "--format=%x00%H", "--name-status", "--", "sim"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    guilty = []
    for commit in log.split("\0")[1:]:
        head, *lines = commit.strip().splitlines()
        changed = [line.split("\t") for line in lines if line]
        values = [
            p
            for status, *p in changed
            if status == "M" and p[-1].startswith("sim/accuracy/reference/") and p[-1].endswith(".csv")
        ]
        model = [p for status, *p in changed if status == "M" and p[-1].startswith(MODEL)]
        if values and model:
            guilty.append(head)
    assert guilty == []
