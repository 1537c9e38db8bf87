"""What marks a step: torch.profiler's, the engines' and whatever the user names."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.profile.read import CaptureError, read_captures
from scenarios.profile.read.marks import family_of, is_mark, step_ids
from tests.scenarios.profile import cuda


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("ProfilerStep#12", "ProfilerStep"),
        ("execute_context_0(0)_generation_8(16)", "execute"),
        ("execute_77_context_9(sq4sk4)_generation_2(sq1sk300)", "execute"),
        ("execute_new_2_cached_14", "execute"),
        ("step[DECODE bs=32]", "step[...]"),
        ("step[EXTEND bs=1 toks=107]", "step[...]"),
        ("decode step 5", "decode step #"),
        ("iteration_17", "iteration_#"),
    ],
)
def test_marks_and_their_families(name: str, family: str) -> None:
    assert is_mark(name)
    assert family_of(name) == family


@pytest.mark.parametrize(
    "name",
    [
        "Optimizer.step#Adam.step",
        "aten::add",
        "DistributedDataParallel.forward",
        "cudaLaunchKernel",
        "step",
        "nccl:all_reduce",
    ],
)
def test_other_calls_are_no_marks(name: str) -> None:
    assert not is_mark(name)


def test_steps_of_one_name_are_told_apart() -> None:
    assert step_ids(["ProfilerStep#3", "ProfilerStep#4"]) == ["3", "4"]
    assert step_ids(["step[DECODE bs=2]", "step[DECODE bs=2]"]) == ["step[DECODE bs=2]", "step[DECODE bs=2] (2)"]


def engine(path: Path, names: list[str], sampled: bool = False) -> Path:
    events = []
    for n, name in enumerate(names):
        start = 1000 * (n + 1)
        events += [cuda.mark(name, start, 500), *cuda.kernel(2 * n + 1, start + 20, start + 40, 90)]
        if sampled:
            events += cuda.kernel(2 * n + 2, start + 600, start + 620, 30, "sample_kernel")
    return cuda.write(path, events)


def test_an_engines_marks_are_steps(tmp_path: Path) -> None:
    names = [f"execute_context_0(0)_generation_8({8 * n})" for n in range(4)]
    [capture] = read_captures(engine(tmp_path, names)).captures
    assert [step.id for step in capture.steps] == names


def test_what_an_engine_launches_behind_its_mark_belongs_to_the_step(tmp_path: Path) -> None:
    [capture] = read_captures(engine(tmp_path, ["step[DECODE bs=8]"] * 3, sampled=True)).captures
    assert [(step.host_start_ns, step.host_end_ns) for step in capture.steps] == [
        (1_000_000, 1_999_999),
        (2_000_000, 2_999_999),
        (3_000_000, 3_500_000),
    ]


def test_the_profilers_own_marks_come_before_an_engines(tmp_path: Path) -> None:
    events = [cuda.mark("ProfilerStep#1", 900, 1200), cuda.mark("ProfilerStep#2", 2100, 1200)]
    for n in range(4):
        events += [cuda.mark("step[DECODE bs=8]", 1000 + 500 * n, 400)]
        events += cuda.kernel(n + 1, 1010 + 500 * n, 1030 + 500 * n, 90)
    [capture] = read_captures(cuda.write(tmp_path, events)).captures
    assert [step.id for step in capture.steps] == ["1", "2"]


def test_a_mark_of_the_users_own(tmp_path: Path) -> None:
    events = []
    for n in range(3):
        events += [
            cuda.op(f"my_model.forward pass {n}", 1000 * n, 800),
            *cuda.kernel(n + 1, 1000 * n + 5, 1000 * n + 50, 9),
        ]
    path = cuda.write(tmp_path, events)
    [capture] = read_captures(path).captures
    assert [step.id for step in capture.steps] == [""]
    [capture] = read_captures(path, "my_model.forward pass 1").captures
    assert len(capture.steps) == 3
    with pytest.raises(CaptureError, match=r"Did you mean 'my_model\.forward pass 0'"):
        read_captures(path, "my_modl.forward pass 0")
