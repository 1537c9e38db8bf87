"""Why a step takes as long as it does: the bottleneck by name, the kernels, what to try."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace

import pytest

from scenarios.batches import reported_batch
from scenarios.lowering.parallel import shard
from scenarios.models.hf_config import load_model
from scenarios.models.model import Model
from scenarios.ops.catalogue import op_type_of, work_of
from scenarios.schema import Scenario
from sim.hardware.profile import load_hardware
from sim.kernel.time import KernelTime
from sim.predict.explain import Diagnosis, advise, diagnose, kernel_rows
from sim.predict.gains import gains_of
from sim.predict.predict import Prediction, predict
from sim.predict.steps import Case, plans_of
from sim.step.plan import Launch
from sim.step.schedule import launches
from tests.scenarios.making import TINY, bare, scenario
from tests.sim.hardware_maker import hardware

HW = hardware()


def predicted(result: Scenario, model: Model = TINY, hw=HW) -> Prediction:
    return predict(Case(result, model, hw))


def diagnosed(result: Scenario, model: Model = TINY, hw=HW) -> Diagnosis:
    return diagnose(predicted(result, model, hw))


QWEN3_8B = load_model("Qwen3-8B")


# ---- the bottleneck ----


def test_a_small_model_in_eager_mode_waits_for_its_host() -> None:
    result = predicted(scenario(workload__batch=1))
    diagnosis = diagnose(result)
    assert diagnosis.name == "host-bound"
    free = result.step.free_ns / result.step.total_ns
    assert free > 0.5
    assert result.sensitivity.host > 0.9 > 0.1 > result.sensitivity.device
    assert f"idle for {free:.0%} of the step" in diagnosis.evidence
    assert f"for {diagnosis.host_launches:,} calls" in diagnosis.evidence


@pytest.mark.parametrize("graph", ["eager", "ge_graph"])
def test_the_bottleneck_is_the_largest_part_of_the_step(graph: str) -> None:
    result = predicted(scenario(model="Qwen3-8B", optimizations__graph=graph), QWEN3_8B)
    diagnosis = diagnose(result)
    assert sum(diagnosis.shares.values()) == pytest.approx(1)
    largest = max(diagnosis.shares, key=diagnosis.shares.__getitem__)
    assert (largest, diagnosis.name) in (("host late", "host-bound"), ("computing: HBM", "HBM-bound"))
    idle = sum(diagnosis.shares.get(part, 0.0) for part in ("host late", "queued"))
    assert idle == pytest.approx(result.step.free_ns / result.step.total_ns)


def test_a_decode_step_as_a_graph_reads_weights() -> None:
    result = scenario(model="Qwen3-8B", optimizations__graph="ge_graph")
    diagnosis = diagnosed(result, QWEN3_8B)
    assert diagnosis.name == "HBM-bound"
    assert "GB cross HBM" in diagnosis.evidence
    assert diagnosis.limits["HBM-bound"] > sum(diagnosis.limits.values()) / 2


def test_the_same_step_in_eager_mode_waits_for_its_host() -> None:
    # Unfused, a step of 2,500 calls: the kernels take less than the host needs to issue them.
    diagnosis = diagnosed(bare(model="Qwen3-8B"), QWEN3_8B)
    assert diagnosis.name == "host-bound"


def test_a_long_prefill_multiplies() -> None:
    result = scenario(workload__phase="prefill", workload__input_tokens=4096)
    # Cores that load as fast as they like leave the cube as the only limit.
    diagnosis = diagnosed(result, QWEN3_8B, hardware(memory__core_l2_gbps=2000.0))
    assert diagnosis.name == "cube-bound"
    assert "TFLOPS" in diagnosis.evidence


def test_cube_cores_that_wait_for_l2_are_no_work_of_the_vector_cores() -> None:
    result = scenario(workload__phase="prefill", workload__input_tokens=4096)
    diagnosis = diagnosed(result, load_model("Qwen3-0.6B"), hardware(memory__core_l2_gbps=20.0))
    waiting = [row for row in diagnosis.kernels if row.kind == "matmul" and row.bound == "l2"]
    assert diagnosis.limits["cube-bound"] >= sum(row.total_us for row in waiting) > 0
    assert diagnosis.name == "cube-bound"


def test_a_tiny_model_as_a_graph_is_made_of_small_kernels() -> None:
    # The host is made free: what is left are kernels that do nothing but start.
    hw = hardware(
        host__input_copy_us=0.0,
        host__model_execute_us=0.0,
        host__synchronize_us=0.0,
        host__aten_python_us=0.0,
        host__tiling_us=0.0,
        host__enqueue_us=0.0,
        host__launch_us=0.0,
        graph__start_us=0.0,
    )
    diagnosis = diagnosed(scenario(optimizations__graph="ge_graph"), hw=hw)
    assert diagnosis.name == "vector-bound"
    assert "small kernels" in diagnosis.evidence


@pytest.mark.parametrize("graph", ["eager", "aclgraph", "npugraph_ex", "ge_graph"])
def test_the_evidence_is_one_sentence_without_a_gap(graph: str) -> None:
    evidence = diagnosed(scenario(workload__batch=4, optimizations__graph=graph)).evidence
    assert 40 < len(evidence) < 450
    assert "\n" not in evidence
    assert not {"nan", "inf", "None"} & set(evidence.replace("-", " ").split())


# ---- who is waited for ----


def waiting(monkeypatch: pytest.MonkeyPatch, *late_us: int) -> Prediction:
    """A captured step of as many ranks as numbers, each of which starts that much later than it could. Its kernels are
    those of torch: layers of fewer kernels are shorter than an update of attention's parameters, for which the late
    rank would then be late again."""
    for room in ("host", "layout"):
        monkeypatch.setattr(f"sim.step.{room}.late_ns", lambda *_: tuple(1000 * us for us in late_us))
    # Nothing varies from rank to rank but when each starts. A chip of its own: steps of one are remembered.
    late = hardware("atlas_a3_die", kernel__jitter_sigma=0.0, host__rank_skew_us=1.0)
    ranks = len(late_us)
    result = scenario(
        model="Qwen3-8B", workload__batch=4, optimizations__graph="aclgraph", engine__tensor_parallel_size=ranks,
        engine__stack="torch",
    )  # fmt: skip
    return predicted(result, shard(QWEN3_8B, ranks), late)


def test_one_late_rank_is_named_with_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    result = waiting(monkeypatch, 0, 0, 0, 0, 0, 30_000, 0, 0)
    waited_ns = result.waits_ns[5]
    assert result.waits_ns == {5: pytest.approx(30_000_000, abs=2000)}  # kernels and host may end 2 us apart
    diagnosis = diagnose(result)
    assert diagnosis.name == "communication-bound"
    step = result.step
    assert step.communication_wait_ns == waited_ns
    transfer_ns = step.communication_ns - waited_ns
    share = waited_ns / step.communication_ns
    assert 0.5 < share < 1
    assert transfer_ns == sum(k.kernel.duration_ns for k in launches(result.plan) if k.rendezvous)
    assert diagnosis.evidence.endswith(f"; {share:.0%} of it is waiting for rank 5 (30.00 ms)")


def test_ranks_that_are_late_alike_are_counted_and_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    result = waiting(monkeypatch, 0, 0, 0, 30_000, 0, 30_000, 30_000, 0)
    assert result.waits_ns == dict.fromkeys((3, 5, 6), pytest.approx(10_000_000, abs=1000))
    share = 30_000_000 / result.step.communication_ns
    assert diagnose(result).evidence.endswith(
        f"; {share:.0%} of it is waiting for 3 ranks (30.00 ms), {share / 3:.0%} each"
    )


def test_the_last_rank_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    result = waiting(monkeypatch, 30_000, 0, 0, 0)
    assert (result.waits_ns, result.step.communication_wait_ns) == ({}, 0)


@pytest.mark.parametrize(
    ("waits_us", "hidden_us", "said"),
    [
        ({5: 7400}, 0, "74% of it is waiting for rank 5 (7.40 ms)"),
        ({1: 1000, 5: 6400}, 0, "64% of it is waiting for rank 5 (6.40 ms), 10% for others"),
        ({1: 30, 5: 6400}, 0, "64% of it is waiting for rank 5 (6.40 ms)"),
        ({1: 2000, 5: 3000, 7: 2000}, 0, "70% of it is waiting for 3 ranks (7.00 ms), most for rank 5 (30%)"),
        ({1: 3700, 5: 3700}, 0, "74% of it is waiting for 2 ranks (7.40 ms), 37% each"),
        ({1: 3000, 5: 2900, 7: 1500}, 0, "74% of it is waiting for 3 ranks (7.40 ms), 30% each for 2 of them"),
        ({5: 7400}, 1000, "74% of all time in collectives is waiting for rank 5 (7.40 ms)"),
        ({}, 0, "their transfers take all of it"),
    ],
)
def test_what_is_said_of_waits(
    monkeypatch: pytest.MonkeyPatch, waits_us: dict[int, int], hidden_us: int, said: str
) -> None:
    result = waiting(monkeypatch, 0, 0)
    step = replace(
        result.step,
        communication_ns=10_000_000,
        communication_not_overlapped_ns=10_000_000 - 1000 * hidden_us,
        communication_wait_ns=1000 * sum(waits_us.values()),
    )
    waits = {rank: 1000 * us for rank, us in waits_us.items()}
    vars(result).update(step=step, waits_ns=waits)
    diagnosis = diagnose(result)
    assert diagnosis.name == "communication-bound"
    assert diagnosis.evidence.endswith(f"in collectives that nothing hides; {said}")


# ---- kernels ----


@pytest.mark.parametrize("graph", ["eager", "ge_graph"])
def test_the_kernel_table_accounts_for_every_kernel(graph: str) -> None:
    result = predicted(scenario(workload__batch=4, optimizations__graph=graph))
    diagnosis = diagnose(result)
    names = Counter(op_type_of(issued.op) for issued in result.program)
    assert sum((Counter({row.op_type: row.count}) for row in diagnosis.kernels), Counter()) == names
    assert diagnosis.kernel_count == len(result.program) == sum(row.count for row in diagnosis.kernels)
    works = [work_of(issued.op) for issued in result.program]
    assert diagnosis.gm_bytes == sum(row.gm_bytes for row in diagnosis.kernels) == sum(w.gm_bytes for w in works)
    assert diagnosis.hbm_bytes == sum(row.hbm_bytes for row in diagnosis.kernels) <= diagnosis.gm_bytes
    assert sum(row.flops for row in diagnosis.kernels) == sum(w.cube_flops for w in works)
    # One stream and an AI CPU whose kernels stand in it: kernel times are the computing time.
    assert sum(row.total_us for row in diagnosis.kernels) == pytest.approx(result.step.computing_ns / 1000)
    assert sum(diagnosis.limits.values()) == pytest.approx(result.step.computing_ns / 1000)
    times = [row.total_us for row in diagnosis.kernels]
    assert times == sorted(times, reverse=True)
    for row in diagnosis.kernels:
        assert row.share == pytest.approx(row.total_us * 1000 / result.step.total_ns)
        assert 0 <= row.roofline_share <= 1


@pytest.mark.parametrize("name", ["atlas_a3_die", "atlas_a2_910b2"])
@pytest.mark.parametrize("phase", ["decode", "prefill"])
@pytest.mark.parametrize("make", [scenario, bare])
def test_no_kernel_is_faster_than_its_roofline(name: str, phase: str, make: Callable[..., Scenario]) -> None:
    result = make(workload__phase=phase, workload__batch=64, workload__input_tokens=1000)
    hw = load_hardware(name)
    kernels = [one.kernel for one in launches(plans_of(Case(result, QWEN3_8B, hw), reported_batch(result))[0])]
    assert all(kernel.roofline_ns <= kernel.duration_ns for kernel in kernels)
    # What lies in L2 does not cross HBM, so it is no bound; what does cross it is one.
    vector = [kernel for kernel in kernels if kernel.accelerator == "AI_VECTOR_CORE"]
    resident = [kernel for kernel in vector if not kernel.hbm_bytes]
    assert resident
    assert {kernel.roofline_ns for kernel in resident} == {0}
    for kernel in vector:
        assert kernel.roofline_ns == pytest.approx(kernel.hbm_bytes / hw.memory.hbm_peak_gbps, abs=1)


def test_launches_are_host_calls() -> None:
    eager = predicted(scenario(workload__batch=4))
    assert diagnose(eager).host_launches == len(eager.program)
    graph = predicted(scenario(workload__batch=4, optimizations__graph="ge_graph"))
    assert diagnose(graph).host_launches == 18 + 1  # the preamble, and one replay


def test_a_row_by_hand() -> None:
    def launch(name: str, ns: int, bound: str, flops: int, gm: int) -> Launch:
        kernel = KernelTime(ns, "AI_CORE", 4, bound, gm // 2, gm, flops, ns // 2)  # type: ignore[arg-type]
        return Launch(0, 0, name, "matmul", "MatMulV2", kernel)

    (row,) = kernel_rows([launch("a", 1000, "hbm", 6000, 400), launch("b", 3000, "cube", 2000, 800)], 8000)
    assert asdict(row) == {
        "kind": "matmul",
        "op_type": "MatMulV2",
        "count": 2,
        "total_us": 4.0,
        "share": 0.5,
        "bound": "cube",  # what limits most of the time
        "cores": 4,
        "hbm_bytes": 600,
        "gm_bytes": 1200,
        "flops": 8000,
        "roofline_share": 0.5,
        "gbps": 0.3,  # bytes a nanosecond
        "tflops": 0.002,
    }


@pytest.mark.parametrize("phase", ["decode", "prefill", "mixed"])
@pytest.mark.parametrize("graph", ["eager", "aclgraph", "ge_graph"])
def test_no_engine_is_busier_than_the_step_is_long(phase: str, graph: str) -> None:
    result = scenario(workload__phase=phase, workload__batch=4, workload__input_tokens=64, optimizations__graph=graph)
    for model in (TINY, QWEN3_8B):
        busy = asdict(diagnosed(result, model).busy)
        assert all(0 <= share <= 1 for share in busy.values()), busy
        assert busy["python_thread"] > 0
        assert busy["ai_cpu"] > 0


# ---- advice ----


def advised(result: Scenario, model: Model = TINY) -> list[tuple[tuple[str, ...], float]]:
    outcome = predicted(result, model)
    return [(advice.settings, advice.ratio) for advice in advise(outcome, gains_of(outcome.case))]


def applied(result: Scenario, advice: tuple[str, ...]) -> Scenario:
    """The scenario with an advice's `--set` pairs."""
    tree = result.model_dump(mode="json")
    for pair in advice:
        path, _, value = pair.partition("=")
        *parts, last = path.split(".")
        branch = tree
        for part in parts:
            branch = branch[part]
        branch[last] = {"true": True, "false": False}.get(value, int(value) if value.isdecimal() else value)
    return Scenario.model_validate(tree)


@pytest.mark.parametrize(
    "result",
    [
        bare(workload__batch=4),
        scenario(workload__batch=4),
        scenario(workload__batch=4, protocol__synchronize="op", engine__task_queue_enable=0),
        scenario(workload__batch=4, optimizations__weights="w8a8"),
        scenario(workload__phase="prefill", workload__input_tokens=64, optimizations__fusion__rope=False),
    ],
)
def test_following_an_advice_gives_what_it_promises(result: Scenario) -> None:
    before = predicted(result).step.total_ns
    outcome = advised(result)
    assert outcome
    for pairs, ratio in outcome:
        assert ratio > 1
        assert before / predicted(applied(result, pairs)).step.total_ns == pytest.approx(ratio), pairs
    assert [ratio for _, ratio in outcome] == sorted((ratio for _, ratio in outcome), reverse=True)


def test_a_host_bound_step_is_told_to_become_a_graph() -> None:
    pairs, ratio = advised(scenario(workload__batch=4))[0]
    assert pairs == ("optimizations.graph=ge_graph",)
    assert ratio > 2


def test_what_loses_is_told_to_be_left() -> None:
    # Quantised activations add calls, and a tiny model in eager mode has nothing but calls.
    result = dict(advised(scenario(workload__batch=4, optimizations__weights="w8a8")))
    assert ("optimizations.weights=bf16",) in result


def test_host_settings_that_cost_are_named() -> None:
    result = dict(advised(scenario(workload__batch=4, protocol__synchronize="op", engine__task_queue_enable=0)))
    assert ("protocol.synchronize=step",) in result
    result = dict(advised(scenario(workload__batch=4, engine__task_queue_enable=0)))
    assert ("engine.task_queue_enable=1",) in result


def test_the_seeds_case_is_told_to_read_less() -> None:
    result = scenario(model="Qwen3-8B", optimizations__graph="ge_graph")
    settings = [pair for pairs, _ in advised(result, QWEN3_8B) for pair in pairs]
    assert settings[0].startswith("optimizations.weights=")
