"""The host's side of a step, with every cost worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from math import exp
from random import Random
from statistics import fmean, stdev
from zlib import crc32

import pytest

from scenarios.ops.program import Batch, Block, Group, Op, Program, Tensor
from scenarios.ops.work import Work
from sim.hardware.profile import HardwareProfile
from sim.kernel.time import Code, KernelTime
from sim.step import engine
from sim.step.host import make_plan
from sim.step.jitter import jitter, named
from sim.step.plan import HostWork, Issue, Launch, Plan, Replay, Synchronize, Update
from sim.step.priced import Conditions, host_costs_ns, scaled
from sim.step.schedule import check, launches
from tests.scenarios.making import bare, program, scenario, switched
from tests.sim.hardware_maker import flat_price, hardware

X = Tensor("x", (4, 8), "bf16")
W = Tensor("w", (8, 8), "bf16", "weight")
ADD = Op("add", "plus", (X, X), (X,))
MATMUL = Op("matmul", "proj", (X, W), (X,))
NORM = Op("rms_norm", "norm", (X, W), (X,))
SLICE = Op("slice", "cut", (X,), (X,))
CPU = Op("prepare_cpu", "prepare.sum", (X,), (X,), op_type="Cumsum")
ATTENTION = Op(
    "attention",
    "attention",
    (X, X, X),
    (X,),
    (("groups", ((1, 1, 3),)), ("heads", 2), ("kv_heads", 2), ("head_dim", 4), ("block_size", 0)),
)
BATCH = Batch("decode", (Group(1, 1, 3),))


@pytest.fixture(autouse=True)
def flat_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels take the round times of the stub: what is tested here is the host."""
    monkeypatch.setattr("sim.step.priced.price", flat_price)


def eager(*ops: Op, repeat: int = 1, name: str = "layers") -> Program:
    return Program((Block(name, ops, repeat),), BATCH)


def captured(*ops: Op, repeat: int = 1, graph: str = "aclgraph") -> Program:
    return Program((Block("layers", ops, repeat, captured=True),), BATCH, graph)


def plan(outcome: Program, queue: int = 1, **conditions: object) -> Plan:
    hw = conditions.pop("hw", None) or hardware()
    result = make_plan(outcome, hw, Conditions(task_queue_enable=queue, **conditions))  # type: ignore[arg-type]
    check(result)
    return result


def costs(result: Program, queue: int) -> list[tuple[int, int]]:
    return [(one.host_ns, one.launch_ns) for one in launches(plan(result, queue))]


# ---- eager ----


def test_who_pays_for_a_call_with_each_task_queue() -> None:
    # dispatch 20, 30 or 40 us by class of call; tiling 6, enqueue 5, launch 10.
    calls = eager(ADD, MATMUL, NORM)
    assert costs(calls, 0) == [(36_000, 0), (46_000, 0), (56_000, 0)]
    assert costs(calls, 1) == [(31_000, 10_000), (41_000, 10_000), (51_000, 10_000)]
    assert costs(calls, 2) == [(25_000, 16_000), (35_000, 16_000), (45_000, 16_000)]


def test_an_eager_collective_is_more_than_a_launch() -> None:
    x = Tensor("x", (1, 64), "bf16")
    reduce = Op("all_reduce", "sum", (x,), (x,), (("ranks", 2),))
    hw = hardware(host__collective_python_us=160.0)
    # Python 160, tiling 6, hand-over 5; the launch of 10 is the second thread's.
    assert host_costs_ns(reduce, hw, 1) == (171_000, 10_000)
    assert host_costs_ns(ADD, hw, 1) == host_costs_ns(ADD, hardware(), 1)


def test_a_view_that_another_call_copies_has_no_dispatch_of_its_own() -> None:
    assert [costs(eager(SLICE), queue)[0] for queue in (0, 1, 2)] == [(16_000, 0), (0, 10_000), (0, 10_000)]


def test_the_launch_thread_exists_with_the_task_queue() -> None:
    assert [plan(eager(ADD), queue).launch_thread for queue in (0, 1, 2)] == [False, True, True]
    assert plan(eager(ADD), hw=hardware(host__queue_depth=7)).queue_depth == 7


def test_a_second_thread_hides_the_cheaper_half() -> None:
    # 10 adds of 2 us: 36 us each on one thread; 31 us each and the last launch of 10 us on two; then 7 us of sync.
    def total_ns(queue: int) -> int:
        return engine.play(plan(eager(ADD, repeat=10), queue)).end_ns

    assert total_ns(0) == 10 * 36_000 + 2_000 + 7_000
    assert total_ns(1) == 10 * 31_000 + 10_000 + 2_000 + 7_000
    assert total_ns(2) == 10 * 25_000 + 16_000 + 2_000 + 7_000


def test_launches_carry_what_the_program_says() -> None:
    result = Program((Block("embed", (CPU,)), Block("layers", (MATMUL, NORM), repeat=2)), BATCH)
    outcome = list(launches(plan(result)))
    assert [(one.index, one.layer, one.name, one.op_type) for one in outcome] == [
        (0, 0, "prepare.sum", "Cumsum"),
        (1, 0, "proj", "MatMulV2"),
        (2, 0, "norm", "RmsNorm"),
        (3, 1, "proj", "MatMulV2"),
        (4, 1, "norm", "RmsNorm"),
    ]
    assert [one.kernel.accelerator for one in outcome[:3]] == ["AI_CPU", "AI_CORE", "AI_VECTOR_CORE"]


def test_a_step_ends_when_the_host_has_seen_the_device_finish() -> None:
    steps = plan(eager(ADD)).steps
    assert steps[-1] == Synchronize("synchronize", 7_000)
    assert [type(step) for step in steps] == [Issue, Synchronize]


@pytest.mark.parametrize(("where", "waits"), [("step", 1), ("layer", 1 + 3), ("op", 1 + 1 + 3 * 2)])
def test_where_the_host_waits(where: str, waits: int) -> None:
    result = Program((Block("embed", (ADD,)), Block("layers", (ADD, MATMUL), repeat=3)), BATCH)
    steps = plan(result, synchronize=where).steps
    assert sum(isinstance(step, Synchronize) for step in steps) == waits


def test_each_wait_drains_what_could_have_run_ahead() -> None:
    def total_ns(where: str) -> int:
        return engine.play(plan(eager(MATMUL, NORM, repeat=3), synchronize=where)).end_ns

    # Two threads, three layers of 41 + 51 us, launch 10 us, norm 2 us, wait 7 us; draining exposes all but the calls.
    assert total_ns("step") == 3 * 92_000 + 10_000 + 2_000 + 7_000
    assert total_ns("layer") == 3 * (92_000 + 10_000 + 2_000 + 7_000) + 7_000
    assert total_ns("op") == 3 * (41_000 + 10_000 + 10_000 + 7_000 + 51_000 + 10_000 + 2_000 + 7_000) + 7_000


def test_host_and_device_can_be_scaled_apart() -> None:
    base, slow_host, slow_device = (
        list(launches(plan(eager(MATMUL), **scale)))[0]  # noqa: RUF015
        for scale in ({}, {"host_scale": 1.5}, {"device_scale": 2.0})
    )
    assert (base.host_ns, base.launch_ns, base.kernel.duration_ns) == (41_000, 10_000, 10_000)
    assert (slow_host.host_ns, slow_host.launch_ns, slow_host.kernel.duration_ns) == (61_500, 15_000, 10_000)
    assert (slow_device.host_ns, slow_device.launch_ns, slow_device.kernel.duration_ns) == (41_000, 10_000, 20_000)
    assert scaled(base.kernel, 1e-9).duration_ns == 1  # no kernel takes no time


def test_a_norm_right_after_a_norm_finds_its_program_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def recording(work: Work, hw: HardwareProfile, code: Code = "cold", *_: bool) -> KernelTime:
        asked.append((work.program, code))
        return flat_price(work, hw, code)

    monkeypatch.setattr("sim.step.priced.price", recording)
    # Q's norm, K's norm; two adds in a row; a norm after another kernel, and the first of a block.
    ops = [replace(op, name=f"{op.name} {n}") for n, op in enumerate((NORM, NORM, ADD, ADD, NORM, MATMUL, NORM))]
    plan(Program((Block("layers", tuple(ops[:-1]), repeat=2), Block("head", tuple(ops[-1:]))), BATCH))
    assert asked == [
        ("rms_norm", "cold"), ("rms_norm", "twin"), ("add", "cold"), ("add", "cold"), ("rms_norm", "cold"),
        ("matmul", "cold"), ("rms_norm", "cold"),
    ]  # fmt: skip


# ---- gaps and events ----


def test_gaps_between_kernels() -> None:
    # 30 ns between kernels, 1000 before and after one that mixes cube and vector cores, 500 at least in a replay.
    ops = (MATMUL, ATTENTION, NORM, ADD)

    def gaps(result: Program) -> list[int]:
        return [one.gap_ns for one in launches(plan(result))]

    assert gaps(eager(*ops)) == [30, 1000, 1000, 30]
    assert gaps(captured(*ops, graph="ge_graph")) == [30, 1000, 1000, 30]
    assert gaps(captured(*ops, graph="aclgraph")) == [500, 1000, 1000, 500]
    assert gaps(captured(*ops, graph="npugraph_ex")) == [500, 1000, 1000, 500]


def test_a_wait_refers_to_the_latest_record_of_its_name() -> None:
    producer = Op("add", "a", (X, X), (X,), records=("ready",))
    consumer = Op("add", "b", (X, X), (X,), stream=1, waits=("ready", "never recorded"))
    result = list(launches(plan(eager(producer, consumer, repeat=2))))
    assert [(one.stream, one.waits, one.records) for one in result] == [
        (0, (), ("ready#0",)),
        (1, ("ready#0",), ()),
        (0, (), ("ready#1",)),
        (1, ("ready#1",), ()),
    ]


# ---- jitter ----


def test_jitter_hangs_on_the_name_and_the_seed() -> None:
    assert jitter(1, "q_proj", 3, 0.05) == jitter(1, "q_proj", 3, 0.05)
    assert jitter(1, "q_proj", 3, 0.05) != jitter(2, "q_proj", 3, 0.05)
    assert jitter(1, "q_proj", 3, 0.05) != jitter(1, "k_proj", 3, 0.05)
    assert jitter(1, "q_proj", 2, 0.05) == jitter(1, "q_proj", 3, 0.05)[:2]
    assert jitter(1, "q_proj", 3, 0.0) == (1.0, 1.0, 1.0)


def test_jitter_has_mean_one_and_the_spread_it_is_given() -> None:
    noise = jitter(0, "q_proj", 20_000, 0.2)
    assert min(noise) > 0
    # A log-normal of sigma 0.2 has mean 1 and standard deviation sqrt(exp(0.04) - 1) = 0.202.
    assert fmean(noise) == pytest.approx(1.0, abs=4 * 0.202 / 20_000**0.5)
    assert stdev(noise) == pytest.approx(0.202, rel=0.03)


def test_an_op_that_survives_a_rewrite_keeps_its_luck() -> None:
    noisy = hardware(host__jitter_sigma=0.1)
    off = bare(workload__batch=2)
    before, after = (
        {(one.name, one.layer): one.host_ns for one in launches(plan(program(s), hw=noisy, seed=3))}
        for s in (off, switched(off, fusion__rms_norm=True, fusion__rope=True))
    )
    kept = before.keys() & after.keys()
    assert {name for name, _ in kept} >= {"q_proj", "write_k", "attn.softmax", "gate_proj", "silu", "lm_head"}
    assert all(before[key] == after[key] for key in kept)
    assert len({before[key] for key in kept}) > len(kept) / 2  # and it is jitter, not a constant


def test_layers_of_one_op_have_luck_of_their_own() -> None:
    noisy = hardware(host__jitter_sigma=0.1)
    times = [one.host_ns for one in launches(plan(eager(ADD, repeat=5), hw=noisy))]
    assert len(set(times)) == 5


# ---- graphs ----


def test_a_replay_is_one_call_that_costs_its_kernels_nothing() -> None:
    steps = plan(captured(ADD, MATMUL, repeat=2, graph="ge_graph")).steps
    assert [type(step) for step in steps] == [HostWork, Replay, Synchronize]
    copy, replay = steps[0], steps[1]
    assert isinstance(copy, HostWork)
    assert isinstance(replay, Replay)
    assert (copy.host_ns, replay.host_ns, replay.launch_ns, replay.start_ns) == (100_000, 50_000, 0, 25_000)
    assert [(one.host_ns, one.launch_ns) for one in replay.launches] == [(0, 0)] * 4


def test_a_replayed_step_in_time() -> None:
    # 100 us copy, 50 us call, 25 us start, 2 + 10 + 2 + 10 us of kernels with three gaps of 30 ns, 7 us of sync.
    timeline = engine.play(plan(captured(ADD, MATMUL, repeat=2, graph="ge_graph")))
    assert timeline.end_ns == 175_000 + 24_000 + 3 * 30 + 7_000


def test_blocks_outside_the_graph_stay_eager_before_and_after() -> None:
    result = Program(
        (
            Block("prepare", (CPU,)),
            Block("embed", (ADD,), captured=True),
            Block("layers", (NORM,), 2, captured=True),
            Block("head", (MATMUL,)),
        ),
        BATCH,
        "aclgraph",
    )
    steps = plan(result).steps
    assert [type(step) for step in steps] == [Issue, HostWork, Replay, Issue, Synchronize]
    assert isinstance(steps[2], Replay)
    assert [(one.name, one.layer, one.index) for one in steps[2].launches] == [
        ("plus", 0, 1),
        ("norm", 0, 2),
        ("norm", 1, 3),
    ]


@pytest.mark.parametrize("graph", ["aclgraph", "npugraph_ex"])
def test_every_captured_attention_waits_for_the_update_of_its_lengths(graph: str) -> None:
    steps = plan(captured(NORM, ATTENTION, repeat=3, graph=graph)).steps
    assert [type(step) for step in steps] == [HostWork, Replay, Update, Update, Update, Synchronize]
    replay, updates = steps[1], [step for step in steps if isinstance(step, Update)]
    assert isinstance(replay, Replay)
    gates = [one.waits for one in replay.launches if one.kind == "attention"]
    assert gates == [(update.records,) for update in updates]
    assert len(set(gates)) == 3
    assert [update.host_ns for update in updates] == [90_000] * 3
    assert all(one.waits == () for one in replay.launches if one.kind != "attention")


def test_updates_of_90_us_set_the_pace_of_a_layer_that_is_shorter() -> None:
    timeline = engine.play(plan(captured(NORM, ATTENTION, repeat=3)))
    attention = [(s.start_ns, s.end_ns) for s in timeline.device_spans if s.kind == "attention"]
    # The updates end at 150 + 90 us, + 180, + 270; a layer of 2 + 20 us waits for each.
    assert attention == [(240_000, 260_000), (330_000, 350_000), (420_000, 440_000)]
    free = engine.play(plan(captured(NORM, ATTENTION, repeat=3, graph="ge_graph")))
    assert free.end_ns < timeline.end_ns


def test_ge_graph_takes_its_lengths_as_inputs() -> None:
    steps = plan(captured(NORM, ATTENTION, repeat=3, graph="ge_graph")).steps
    assert not any(isinstance(step, Update) for step in steps)
    assert all(one.waits == () for one in launches(plan(captured(ATTENTION, graph="ge_graph"))))


@pytest.mark.parametrize("graph", ["aclgraph", "npugraph_ex", "ge_graph"])
def test_a_prefill_is_issued_op_by_op_in_every_mode(graph: str) -> None:
    result = scenario(workload__phase="prefill", workload__input_tokens=8, optimizations__graph=graph)
    steps = plan(program(result)).steps
    assert {type(step) for step in steps} == {Issue, Synchronize}


def test_plans_of_the_real_lowering_have_a_launch_for_each_op() -> None:
    for graph in ("eager", "aclgraph", "npugraph_ex", "ge_graph"):
        result = program(scenario(workload__batch=3, optimizations__graph=graph))
        launchs: list[Launch] = list(launches(plan(result)))
        assert [(one.index, one.name, one.layer) for one in launchs] == [(i.index, i.op.name, i.layer) for i in result]
        assert sum(isinstance(step, Replay) for step in plan(result).steps) == (graph != "eager")


def test_host_costs_of_a_kind_do_not_depend_on_its_shape() -> None:
    hw = hardware()
    large = Op("add", "other", (Tensor("x", (4096, 4096), "bf16"),) * 2, (Tensor("y", (4096, 4096), "bf16"),))
    assert host_costs_ns(ADD, hw, 1) == host_costs_ns(large, hw, 1) == (31_000, 10_000)


def test_jitter_is_what_random_gauss_draws() -> None:
    for repeat in (1, 2, 7):
        random = Random(crc32(b"3/rank 2 qkv"))
        drawn = tuple(exp(random.gauss(-0.2 * 0.2 / 2, 0.2)) for _ in range(repeat))
        assert jitter(3, named("qkv", 2), repeat, 0.2) == drawn
