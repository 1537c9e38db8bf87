"""Steps that share a frame are, column by column, those that are built and laid out one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from scenarios.batches import decode_batch, mixed_batch, prefill_batches
from scenarios.loader import load_scenario
from scenarios.ops.program import Batch
from sim.predict import frames
from sim.predict.predict import forbidden
from sim.predict.scenario_result import case_of
from sim.predict.steps import Case, program_of, rank_schedules
from sim.step.layout import Layout, layout
from tests.sim.step.test_lengths import what_ifs

#: Columns that are compared as they stand.
COLUMNS = (
    "ranks", "threaded", "depth", "host_ns", "host_classes", "late_ns", "entries", "launch_ns", "start_ns", "launched",
    "durations_ns", "gaps_ns", "streams", "kernels", "gates", "waits", "records", "meets",
)  # fmt: skip


def built(case: Case, batch: Batch) -> Layout | None:
    conditions = replace(case.conditions, ranks=rank_schedules(case))
    return layout(program_of(case.scenario, case.model, batch), case.hardware, conditions)


def framed(case: Case, batch: Batch) -> Layout | None:
    known = frames.frame_of(case.scenario, case.model, case.hardware, batch)
    return known[0].layout(known[1], lambda: built(case, batch)) if known else None


def resized(case: Case, random: Random) -> Case:
    """`case` with other requests."""
    sizes = {
        "batch": random.choice((1, 2, 3, 8, 17, 40)),
        "input_tokens": random.choice((1, 7, 500, 1024, 3000)),
        "output_tokens": random.randint(1, 300),
        "context_tokens": random.choice((None, random.randint(1, 4000))),
    }
    return case.with_scenario(
        case.scenario.model_copy(update={"workload": case.scenario.workload.model_copy(update=sizes)})
    )


def steps_of(case: Case, random: Random, count: int) -> Iterator[tuple[Case, Batch]]:
    """Steps of `case` at other sizes: decode, prefill chunks, a batch of both."""
    for _ in range(count):
        other = resized(case, random)
        scenario = other.scenario
        if forbidden(other):
            continue
        yield other, decode_batch(scenario)
        for chunk in dict.fromkeys(prefill_batches(scenario)[:3]):
            yield other, chunk
        if scenario.workload.batch > 1:
            yield other, mixed_batch(scenario)


def equal(one: Layout, other: Layout) -> bool:
    kernels = [
        [(row.item.op.name, row.item.kernel, row.item.nominal, row.first) for row in rows]
        for laid in (one, other)
        for rows in laid.blocks
    ]
    same = kernels[: len(one.blocks)] == kernels[len(one.blocks) :]
    for name in COLUMNS:
        same &= getattr(one, name) == getattr(other, name)
    if one.kernel_matrix is not None and other.kernel_matrix is not None:
        same &= bool(np.array_equal(one.kernel_matrix, other.kernel_matrix))
    return same and (one.kernel_matrix is None) == (other.kernel_matrix is None)


#: Scenarios, and the smallest number of steps of them that is filled in.
FRAMED = [
    ("qwen3_32b_tp16_decode", (), 50),
    ("qwen3_8b_decode", ("optimizations.graph=aclgraph",), 50),
    ("qwen3_8b_tp2_decode", ("optimizations.graph=npugraph_ex", "optimizations.kv.dtype=int8"), 30),
    ("llama_3_1_8b_decode", ("optimizations.graph=eager", "engine.tensor_parallel_size=4"), 50),
]


@pytest.mark.parametrize(("name", "sets", "smallest"), FRAMED)
def test_a_step_in_a_frame_is_the_one_that_is_built(name: str, sets: tuple[str, ...], smallest: int) -> None:
    case, random, filled = case_of(load_scenario(name, sets)), Random(0), 0
    case = replace(case, model=replace(case.model, layers=3))
    for state in what_ifs(case):
        for other, batch in steps_of(state, random, 4):
            laid, alone = framed(other, batch), built(other, batch)
            if laid is None or alone is None:
                continue
            filled += 1
            assert equal(laid, alone), (other.scenario.workload, batch, other.scenario.optimizations)
    assert filled > smallest


@pytest.mark.parametrize("name", ["qwen3_30b_a3b_decode", "deepseek_v3_ep16_decode", "qwen3_5_35b_tp2_long_context"])
def test_a_step_that_no_expression_says_is_built_alone(name: str) -> None:
    """Experts are chosen by counts, and prompts in windows are cut by them: some steps have a frame, all are right."""
    case, random = case_of(load_scenario(name)), Random(1)
    compared = 0
    for other, batch in steps_of(case, random, 3):
        laid = framed(other, batch)
        compared += 1
        assert laid is None or equal(laid, built(other, batch))  # type: ignore[arg-type]
    assert compared > 3


def test_one_question_makes_no_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[Batch] = []
    monkeypatch.setattr(frames, "traced", lambda scenario, model, batch: traced.append(batch))
    frames._known.cache_clear()
    case = case_of(load_scenario("qwen3_8b_910b2_eager"))
    for _ in range(frames.ALONE):
        assert framed(case, decode_batch(case.scenario)) is None
    assert not traced
    framed(case, decode_batch(case.scenario))
    assert len(traced) == 1
    frames._known.cache_clear()
