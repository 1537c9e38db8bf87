"""Microbenchmarks: small Programs timed for real, saved as they go, gone on with where they were cut short."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from device.backends import choose
from device.microbench import bench
from device.microbench.bench import Task, benched, tasks_of
from device.microbench.memory import timed_memory
from device.microbench.ops import timed_trial
from device.microbench.plan import FAR_DECODES, FAR_PREFILLS, Trial, link_bytes, trials
from device.microbench.refusals import refusals
from scenarios.batches import reported_batch
from scenarios.build import build
from scenarios.errors import ScenarioError
from scenarios.exchange.timings import COPY, EVENT, STEP, SYNCHRONIZE, Timing, read_timings
from scenarios.ops.catalogue import CATALOGUE, kind_of

pytestmark = [pytest.mark.cpu, pytest.mark.xdist_group("torch")]


def quiet(_: str) -> None:
    """Tell nobody."""


def named(start: str) -> Trial:
    return next(trial for trial in trials() if trial.name.startswith(start))


def a_row(name: str) -> Timing:
    return Timing(STEP, name, "eager", (), 10.0, 9.0, 12.0, 20.0, 500.0, 5, values={"units": 1.0})


def tasks(*names: str, ran: list[str] | None = None, dies: str = "") -> tuple[Task, ...]:
    def run(name: str) -> list[Timing]:
        if ran is not None:
            ran.append(name)
        if name == dies:
            raise KeyboardInterrupt
        return [a_row(name)]

    return tuple(Task(name, lambda name=name: run(name)) for name in names)  # type: ignore[misc]


def test_the_plan_shares_no_size_with_a_shipped_model_and_repeats_no_trial() -> None:
    plan = trials()
    assert len({trial.name for trial in plan}) == len(plan)
    assert {trial.model.hidden for trial in plan}.isdisjoint({256, 384, 640, 1024, 2048, 4096, 5120, 8192})
    assert all(trial.scenario.engine.task_queue_enable == 0 for trial in plan)


@pytest.mark.slow
def test_a_ragged_trial_has_requests_of_unlike_lengths() -> None:
    trial = named("decode ragged paged 96 6x330")
    rows = timed_trial(choose("cpu"), trial)
    (attention,) = (row.op for row in rows if row.ops and kind_of(row.op).family == "attention")
    assert attention.attr("groups") == tuple((1, 1, 330 - n) for n in range(6))


@pytest.mark.parametrize("device", ["cuda", "npu"])
def test_the_plan_of_an_accelerator_times_the_path_that_matters(device: str) -> None:
    """Heads of 128, blocks of 128, captured steps, products beyond the L2, prefills; every Program can be built."""
    plan = trials(device)
    assert len({trial.name for trial in plan}) == len(plan)
    assert {trial.model.hidden for trial in plan}.isdisjoint({256, 384, 640, 1024, 2048, 4096, 5120, 8192})
    assert {trial.model.head_dim for trial in plan} == {128}
    first = plan[: len(FAR_DECODES) + len(FAR_PREFILLS)]
    assert {trial.scenario.optimizations.kv.block_size for trial in first} == {128}
    graphs = {trial.scenario.optimizations.graph for trial in plan}
    assert graphs == {"eager", "aclgraph"}
    prompts = [trial.scenario.workload.input_tokens for trial in plan if trial.scenario.workload.phase == "prefill"]
    assert min(prompts) < 512 < 2000 <= max(prompts)
    largest = max(2 * trial.model.hidden * trial.model.intermediate * 2 for trial in plan)
    assert largest > 192 << 20  # gate and up together are more than the L2 of a 910B2
    for trial in plan:
        program = build(trial.scenario, trial.model, reported_batch(trial.scenario))
        assert program.blocks


def test_sizes_reach_as_far_as_a_device_does() -> None:
    assert max(link_bytes("npu")) > 64 << 20 > max(link_bytes("cpu"))


@pytest.mark.parametrize("start", ["decode fused 96 6x330", "prefill w8a8 96", "decode paged.int8.token 96"])
def test_a_trial_times_every_op_of_its_program(start: str) -> None:
    result = timed_trial(choose("cpu"), named(start))
    ops, (step,) = [row for row in result if row.ops], [row for row in result if row.kind == STEP]
    assert all(row.kind in CATALOGUE and row.low_us <= row.median_us <= row.high_us for row in ops)
    assert sum(row.count for row in ops) == step.values["units"]
    assert {row.trial for row in result} == {named(start).name}
    assert step.values["host_us"] > 0 < step.values["mark_us"]
    assert all(row.reference_us > 0 and row.repeats >= 5 for row in result)


def test_memory_wait_and_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("device.microbench.memory.COPY_BYTES", (1 << 12, 1 << 16))
    result = list(timed_memory(choose("cpu")))
    assert [row.kind for row in result] == [COPY, COPY, SYNCHRONIZE, EVENT]
    assert [row.values["bytes"] for row in result[:2]] == [1 << 12, 1 << 16]


def test_each_refusal_has_its_name_and_its_reason() -> None:
    told = dict(refusals(choose("cpu")))
    assert {"weight_format", "fusion.ffn", "overlap.prefetch"} <= set(told)
    assert all(line.startswith(f"optimizations.{name}:") for name, line in told.items())


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, ran = tmp_path / "p.rows.json", []
    monkeypatch.setattr(bench, "SAVE_EVERY_S", 0.0)
    monkeypatch.setattr(bench, "tasks_of", lambda *_: tasks("a", "b", "c", ran=ran, dies="c"))
    with pytest.raises(KeyboardInterrupt):
        benched(choose("cpu"), rows, 60, False, quiet)
    left = read_timings(rows)
    assert (left.complete, left.done, [row.trial for row in left.rows]) == (False, ("a", "b"), ["a", "b"])

    monkeypatch.setattr(bench, "tasks_of", lambda *_: tasks("a", "b", "c", ran=ran))
    heard: list[str] = []
    whole = benched(choose("cpu"), rows, 60, False, heard.append)
    assert ran == ["a", "b", "c", "c"]
    assert (whole.complete, [row.trial for row in whole.rows]) == (True, ["a", "b", "c"])
    assert read_timings(rows).rows == whole.rows
    assert heard[0] == f"2 benchmarks are in {rows} already"
    assert heard[1].startswith("3/3 ")


def test_a_whole_file_is_taken_only_if_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, ran = tmp_path / "p.rows.json", []
    monkeypatch.setattr(bench, "tasks_of", lambda *_: tasks("a", ran=ran))
    benched(choose("cpu"), rows, 60, False, quiet)
    benched(choose("cpu"), rows, 60, True, quiet)
    assert ran == ["a"]
    benched(choose("cpu"), rows, 60, False, quiet)
    assert ran == ["a", "a"]


def test_a_budget_leaves_out_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()
    monkeypatch.setattr(bench, "monotonic", lambda: float(next(ticks)))  # a second passes whenever it is read
    monkeypatch.setattr(bench, "tasks_of", lambda *_: tasks("a", "b", "c"))
    result = benched(choose("cpu"), tmp_path / "p.rows.json", 2, False, quiet)
    assert (result.complete, result.done) == (True, ("a",))
    assert result.refused[:2] == (("b", "left out: over the budget of 2 s"), ("c", "left out: over the budget of 2 s"))


def test_what_a_trial_is_refused_for_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses() -> list[Timing]:
        raise ScenarioError(["--backend cpu: optimizations.graph: there is no compiler"])

    monkeypatch.setattr(bench, "tasks_of", lambda *_: (Task("compiled", refuses), *tasks("a")))
    result = benched(choose("cpu"), tmp_path / "p.rows.json", 60, False, quiet)
    assert ("compiled", "--backend cpu: optimizations.graph: there is no compiler") in result.refused
    assert [row.trial for row in result.rows] == ["a"]


def test_a_part_of_another_calibration_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tmp_path / "p.rows.json"
    monkeypatch.setattr(bench, "SAVE_EVERY_S", 0.0)
    monkeypatch.setattr(bench, "tasks_of", lambda *_: tasks("a", "b", dies="b"))
    with pytest.raises(KeyboardInterrupt):
        benched(choose("cpu"), rows, 60, False, quiet)
    whole = rows.read_text()
    rows.write_text(whole.replace('"threads": 1', '"threads": 8'))
    with pytest.raises(ScenarioError, match=r"holds a part of another calibration \(threads 8, here 1\); delete it"):
        benched(choose("cpu"), rows, 60, False, quiet)
    rows.write_text(whole)
    monkeypatch.setattr(bench, "tasks_of", lambda *_: tasks("a", "x"))
    with pytest.raises(ScenarioError, match="holds a part of another version's plan; delete it"):
        benched(choose("cpu"), rows, 60, False, quiet)
    rows.write_text(whole[:40])
    with pytest.raises(ScenarioError, match="not a whole file of microbenchmarks"):
        benched(choose("cpu"), rows, 60, False, quiet)


def test_what_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    monkeypatch.setattr(bench, "tasks_of", lambda *_: tasks("a", ran=ran))
    with pytest.raises(ScenarioError, match="its folder does not exist"):
        benched(choose("cpu"), tmp_path / "none" / "p.rows.json", 60, False, quiet)
    assert not ran


def test_second_turns_come_last() -> None:
    names = [task.name for task in tasks_of(choose("cpu"), trials())]
    again = [name for name in names if name.endswith(bench.AGAIN)]
    assert names[-len(again) :] == again
    assert names[0].startswith("memory")
