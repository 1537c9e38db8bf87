"""A long trace is read around one step, and that step is the same as in the whole of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.profiles import write_trace
from scenarios.profile import step_times_of
from scenarios.profile.read import choose, read_captures


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace_view.json"
    assert write_trace(path, 9) > 6
    return path


def test_a_step_of_a_long_trace_is_that_of_the_whole(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [whole] = read_captures(trace).captures
    monkeypatch.setattr(choose, "LONG_BYTES", 1_000_000)
    [part] = read_captures(trace, step="4").captures
    assert [step.id for step in part.steps] == ["3", "4", "5"]
    assert len(part.events) < len(whole.events) / 2
    by_id = dict(zip((step.id for step in whole.steps), step_times_of(whole), strict=True))
    assert step_times_of(part)[1] == by_id["4"]
    assert part.lost == ()
    assert any("read are step 4 and one on each side" in note for note in part.notes)
    assert (part.events.launched_by[part.events.kind == 1] >= 0).all()


def test_without_a_wish_a_step_between_the_others_is_read(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "LONG_BYTES", 1_000_000)
    [part] = read_captures(trace).captures
    assert len(part.steps) == 3
    assert part.steps[0].id != "0"


def test_braces_within_texts_do_not_mislead_what_is_passed_over(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [plain] = read_captures(trace, step="4").captures
    text = trace.read_text().replace("/home/user", '\\"}, {\\"a, /home/user')
    json.loads(text)
    trace.write_text(text)
    monkeypatch.setattr(choose, "LONG_BYTES", 1_000_000)
    [part] = read_captures(trace, step="4").captures
    assert [step.id for step in part.steps] == ["3", "4", "5"]
    at = [step.id for step in plain.steps].index("4")
    assert step_times_of(part)[1] == step_times_of(plain)[at]


def test_a_long_trace_without_marks_is_read_whole(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace.write_text(trace.read_text().replace("ProfilerStep#", "forward pass"))
    monkeypatch.setattr(choose, "LONG_BYTES", 1_000_000)
    [capture] = read_captures(trace).captures
    assert [step.id for step in capture.steps] == [""]
    assert len(np.unique(capture.events.start_ns)) > 10_000
