"""Requests served for real: every one gets the tokens that it gets alone, whatever the scheduler does to it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from device.backends import choose
from device.run.host_inputs import Requests
from device.run.session import Options, Session, batch_of, calibrated
from device.serving.clock import SteadyClock, WallClock
from device.serving.programs import Programs
from device.serving.serve import Task, run_of, session_for
from device.serving.texts import Texts
from device.weights.weights import RandomCheckpoint
from scenarios.exchange.served import ServedRun
from scenarios.models.model import Model
from scenarios.ops.program import Batch, Group
from scenarios.schema import Scenario
from scenarios.serving.deployment import cache_of
from scenarios.serving.requests import Request
from scenarios.serving.traffic import load_of
from sim.engines.costs import EngineCosts
from sim.hardware.profile import load_hardware
from sim.predict.steps import Case as SimulatedCase
from sim.serving.simulate import serving_capacity, simulate
from tests.device.making import DEEPSEEK, LLAMA, QWEN3, plain
from tests.even_clock import EvenClock

WIDE = Options(wide=True)
#: torch has no CPU kernels of the others without a compiler.
FUSED = {"fusion__rms_norm": True, "fusion__attention": True, "fusion__qkv": True}
PAGED = {"kv__layout": "paged", "kv__block_size": 16}
TRAFFIC: dict[str, Any] = {
    "arrival": "poisson", "rate": 100.0, "requests": 14,
    "input": {"distribution": "uniform", "low": 3, "high": 70},
    "output": {"distribution": "uniform", "low": 1, "high": 24},
}  # fmt: skip
ENGINE = {"max_num_seqs": 5, "max_num_batched_tokens": 40}


@dataclass(frozen=True)
class Case:
    """A way to serve. tokens: of the KV cache. preempts, hits: whether requests lose blocks, or find some."""

    switches: dict[str, object] = field(default_factory=lambda: {**FUSED, **PAGED})
    traffic: dict[str, Any] = field(default_factory=dict)
    engine: dict[str, Any] = field(default_factory=dict)
    tokens: int = 4096
    model: Model = QWEN3
    preempts: bool = False
    hits: bool = False


def scenario_of(case: Case) -> Scenario:
    scenario = plain(case.model, **case.switches)
    traffic = {**TRAFFIC, **case.traffic}
    workload = {"input_tokens": 40, "output_tokens": 8, "traffic": traffic}
    tree = scenario.model_dump(mode="json") | {"workload": workload, "engine": {**ENGINE, **case.engine}}
    return Scenario.model_validate(tree)


def serve(case: Case) -> tuple[ServedRun, Task]:
    scenario = scenario_of(case)
    task = Task(scenario, case.model, load_of(scenario.workload, 0))
    whole = cache_of(scenario, case.tokens, task.longest)
    session = session_for(choose("cpu"), task, RandomCheckpoint(case.model, 0), task.touched(whole), WIDE)
    return run_of(session, task, EvenClock(), whole), task


def alone(task: Task, answers: dict[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    """The tokens of each request in `answers`, served by itself: its whole prompt at once, then token by token."""
    steps = task.of_steps()
    workload = steps.workload.model_copy(update={"input_tokens": 70, "output_tokens": 24})
    kv = steps.optimizations.kv.model_copy(update={"prefix_sharing": False})
    engine = steps.engine.model_copy(update={"max_num_batched_tokens": 4096, "max_model_len": 256})
    scenario = steps.model_copy(
        update={
            "workload": workload,
            "engine": engine,
            "optimizations": steps.optimizations.model_copy(update={"kv": kv}),
        }
    )
    session = Session(scenario, task.model, choose("cpu"), RandomCheckpoint(task.model, 0), options=WIDE)
    texts, result = task.texts(), {}
    calibrated(session, [texts.prompt(request) for request in task.openings])
    for request in task.load.requests:
        if request.id in answers:
            prompt = texts.prompt(request)
            tokens, _ = session.prefill([prompt])
            output = list(tokens)
            while len(output) < request.output_tokens:
                tokens, _ = session.decode(tokens)
                output += tokens
            session.cache.allocator.free(0)
            texts.answered(request, [*prompt, *output])
            result[request.id] = tuple(output)
    return result


SHARED = {**FUSED, **PAGED, "kv__prefix_sharing": True}
INT8 = {"kv__dtype": "int8", "kv__scale": "token"}
BURST = {"arrival": "burst", "rate": None}
CASES = {
    "paged": Case(),
    "paged, unfused": Case(PAGED, {"requests": 6}),
    "contiguous": Case({**FUSED, "kv__layout": "contiguous"}),
    "contiguous, unfused": Case({"kv__layout": "contiguous"}, {"requests": 6}, model=LLAMA),
    "few blocks": Case(tokens=160, preempts=True),
    "few blocks, swapped": Case(tokens=160, engine={"preemption": "swap"}, preempts=True),
    "few rows": Case({**FUSED, "kv__layout": "contiguous"}, BURST, tokens=200),
    "by priority": Case(
        traffic={**BURST, "urgent_share": 0.3},
        engine={"scheduling_policy": "priority", "scheduler_reserve_full_isl": False}, tokens=160, preempts=True,
    ),
    "shared prefixes": Case(
        SHARED, {"prefix_tokens": 40, "prefix_groups": 2, "input": {"distribution": "uniform", "low": 20, "high": 70}},
        tokens=320, hits=True,
    ),
    "shared prefixes, computed and found in one step": Case(
        SHARED, {**BURST, "prefix_tokens": 32, "input": {"distribution": "uniform", "low": 40, "high": 60}},
        engine={"max_num_batched_tokens": 200}, hits=True,
    ),
    "conversations": Case(
        SHARED, {"turns": 3, "requests": 4, "input": {"distribution": "uniform", "low": 10, "high": 30}}, hits=True
    ),
    "closed": Case(traffic={"arrival": "closed", "concurrency": 3, "rate": None}),
    "latent attention": Case({**PAGED, "fusion__attention": True}, {"requests": 6}, model=DEEPSEEK),
    "int8, swapped": Case({**FUSED, **PAGED, **INT8}, tokens=160, engine={"preemption": "swap"}, preempts=True),
    "int8, scales of channels": Case({**FUSED, "kv__layout": "contiguous", "kv__dtype": "int8"}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_request_gets_the_tokens_that_it_gets_alone(case: Case) -> None:
    run, task = serve(case)
    outputs = {request.id: request.output for request in run.requests}
    assert {number: len(output) for number, output in outputs.items()} == {
        request.id: request.output_tokens for request in task.load.requests
    }
    assert outputs == alone(task, outputs)
    assert (run.preemptions > 0) == case.preempts
    assert (run.hit_tokens > 0) == case.hits


def test_steps_follow_each_other_and_tokens_are_conserved() -> None:
    run, task = serve(CASES["few blocks"])
    for before, after in itertools.pairwise(run.steps):
        assert before.start_ns < before.end_ns <= after.start_ns
    assert all(0 < step.device_ns < step.end_ns - step.start_ns for step in run.steps)
    for request, asked in zip(run.requests, task.load.requests, strict=True):
        assert asked.arrival_ns == request.arrived_ns <= request.started_ns < request.first_ns <= request.last_ns
    ended = {step.end_ns for step in run.steps}
    assert {request.first_ns for request in run.requests} <= ended
    generated = sum(request.output_tokens for request in task.load.requests)
    assert sum(step.decoding for step in run.steps) + len(run.requests) + run.preemptions >= generated
    assert max(step.decoding + step.prompt_tokens for step in run.steps) <= ENGINE["max_num_batched_tokens"]
    assert any(step.decoding and step.chunks for step in run.steps)  # chunks ride with decode steps


def test_a_client_waits_for_the_request_that_it_waits_for() -> None:
    run, _ = serve(CASES["closed"])
    times = sorted((request.arrived_ns, request.last_ns) for request in run.requests)
    for arrived, _ in times:
        assert sum(a <= arrived < last for a, last in times) <= 3
    turns, _ = serve(CASES["conversations"])
    by_number = {request.id: request for request in turns.requests}
    for number, request in by_number.items():
        if number % 3:
            assert request.arrived_ns >= by_number[number - 1].last_ns


def test_what_is_longer_than_allowed_is_sent_back_and_its_conversation_goes_on() -> None:
    conversations = CASES["conversations"]
    case = replace(conversations, engine={"max_model_len": 64}, hits=False)
    run, task = serve(case)
    kept = [r.id for r in task.load.requests if r.input_tokens + r.output_tokens <= 64]
    assert [request.id for request in run.requests] == kept
    assert run.rejected == len(task.load.requests) - len(kept) > 0


def test_prompts_are_equal_as_far_as_their_blocks_are_called_equal() -> None:
    texts = Texts(320, 3)
    a, b = Request(0, 0, 300, 4, segments=((7, 290),)), Request(1, 0, 400, 4, segments=((7, 350),))
    for block, (one, other) in enumerate(zip(a.block_names(16, 300), b.block_names(16, 300), strict=True)):
        here = slice(block * 16, block * 16 + 16)
        assert (one == other) == (texts.prompt(a)[here] == texts.prompt(b)[here])
    assert len(texts.prompt(b)) == 400
    assert texts.prompt(b) != Texts(320, 4).prompt(b)
    turn = Request(2, 0, 30, 4, content=5)
    texts.answered(Request(3, 0, 8, 2, content=5), list(range(10)))
    assert texts.prompt(turn)[:10] == list(range(10))


def test_the_steady_clock_leaps_over_waiting_and_counts_work_at_the_speed_of_the_profile() -> None:
    backend = choose("cpu")
    clock = SteadyClock(backend, 0)
    clock.start()
    clock.wait_until(10**12)
    assert clock.now_ns() >= 10**12
    fast, slow = SteadyClock(backend, 1e3), SteadyClock(backend, 1e9)
    for each in (fast, slow):
        each.start()
        while backend.own_ns() < each._own + 2_000_000:
            pass
    assert fast.now_ns() < slow.now_ns()
    assert slow.scaled_by > 1 > fast.scaled_by > 0


def test_the_wall_clock_sleeps_until_a_request_comes() -> None:
    clock = WallClock()
    clock.start()
    clock.wait_until(3_000_000)
    assert clock.now_ns() >= 3_000_000
    assert 0 < clock.slept_ns < 4_000_000


def test_a_program_serves_all_lengths_where_only_its_attention_op_says_them() -> None:
    scenario = scenario_of(Case())
    task = Task(scenario, QWEN3, load_of(scenario.workload, 0))
    session = session_for(choose("cpu"), task, RandomCheckpoint(QWEN3, 0), cache_of(scenario, 4096, task.longest), WIDE)
    programs = Programs(session)
    one = programs.batch("mixed", Requests((0, 1, 2), (9, 30, 16), ((1,), (2,), (3, 4))))
    other = programs.batch("mixed", Requests((0, 1, 2), (40, 2, 0), ((1,), (2,), (3, 4))))
    assert one == other == Batch("mixed", (Group(2, 1, 1), Group(1, 2, 0)))
    unfused = scenario_of(Case(PAGED))
    apart = session_for(choose("cpu"), replace(task, scenario=unfused), RandomCheckpoint(QWEN3, 0),
                        cache_of(unfused, 4096, task.longest), WIDE)  # fmt: skip
    requests = Requests((0,), (9,), ((1,),))
    assert Programs(apart).batch("decode", requests) == batch_of("decode", requests)


#: Requests of 90 tokens at most, where a row holds 128: bytes of a cache of 1,280 tokens in 16 bits.
CROWD = {
    **BURST, "requests": 60, "input": {"distribution": "uniform", "low": 30, "high": 66},
    "output": {"distribution": "uniform", "low": 8, "high": 24},
}  # fmt: skip
EQUAL_MEMORY = {
    "contiguous": {**FUSED, "kv__layout": "contiguous"},
    "paged": {**FUSED, **PAGED},
    "paged, int8": {**FUSED, **PAGED, "kv__dtype": "int8"},
}


def crowd(switches: dict[str, object]) -> tuple[list[tuple[int, int]], list[tuple[int, int]], int]:
    """(decoding requests, chunks) of each step served and of each predicted, and tokens of the cache."""
    engine = {"max_num_seqs": 64, "max_num_batched_tokens": 512, "max_model_len": 128}
    engine["kv_cache_memory_bytes"] = 1280 * QWEN3.kv_bytes_per_token(16)
    scenario = scenario_of(Case(switches, CROWD, engine))
    task = Task(scenario, QWEN3, load_of(scenario.workload, 0))
    deployment = SimulatedCase(scenario, QWEN3, load_hardware("cpu"))
    tokens = serving_capacity(deployment).kv_tokens
    whole = cache_of(scenario, tokens, task.longest)
    session = session_for(choose("cpu"), task, RandomCheckpoint(QWEN3, 0), task.touched(whole), WIDE)
    run = run_of(session, task, EvenClock(), whole)
    assert len(run.requests) == 60
    steps = simulate(deployment, EngineCosts(), task.load).steps
    predicted = list(zip(steps.decoding.repeat(steps.steps), steps.chunks.repeat(steps.steps), strict=True))
    return [(step.decoding, step.chunks) for step in run.steps], predicted, tokens


def test_concurrency_at_equal_memory_follows_the_arithmetic_predicted_and_served_alike() -> None:
    most = {}
    for name, switches in EQUAL_MEMORY.items():
        steps, predicted, tokens = crowd(switches)
        assert steps == predicted  # all at once: the scheduler decides the same, step by step
        most[name] = max(decoding + chunks for decoding, chunks in steps)
        assert tokens == (2560 if "int8" in name else 1280)
    assert most["contiguous"] == 1280 // 128
    # Requests take 38 to 90 tokens: at their start at least 30 of them, in blocks of 16.
    assert 1280 // 96 <= most["paged"] <= 1280 // 32
    assert most["paged, int8"] == pytest.approx(2 * most["paged"], abs=2)
    assert most["contiguous"] < most["paged"] < most["paged, int8"]
