"""What running side by side gains: the sides alone, the ideal, what is predicted; and cores that collectives hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scenarios.loader import load_scenario
from scenarios.lowering.parallel import shard
from scenarios.lowering.stages import split_depth
from scenarios.models.hf_config import load_model
from scenarios.ops.catalogue import work_of
from scenarios.ops.program import Op, Tensor
from scenarios.schema import Scenario
from sim.hardware.profile import HardwareProfile, load_hardware
from sim.kernel.price import price
from sim.kernel.time import KernelTime
from sim.predict.explain import diagnose
from sim.predict.overlap import Overlap, overlaps
from sim.predict.predict import Prediction, predict
from sim.predict.scenario_result import case_of
from sim.predict.steps import Case, in_flight
from sim.step import engine
from sim.step.plan import Launch, Plan, Replay
from sim.step.schedule import launches
from tests.scenarios.making import scenario, switched

A2 = load_hardware("atlas_a2_910b2")
PREFILL = scenario(
    workload__phase="prefill",
    workload__batch=8,
    engine__tensor_parallel_size=8,
    model="Qwen3-8B",
)


def quiet(hw: HardwareProfile, rank_skew_us: float = 0.0) -> HardwareProfile:
    """Without jitter: ranks differ by when they start, or not at all."""
    return replace(
        hw,
        host=replace(hw.host, jitter_sigma=0.0, rank_skew_us=rank_skew_us),
        kernel=replace(hw.kernel, jitter_sigma=0.0),
    )


def predicted(result: Scenario, hw: HardwareProfile = A2) -> Prediction:
    return predict(Case(result, shard(load_model(result.model), result.engine.tensor_parallel_size), hw))


def only(result: Scenario, hw: HardwareProfile = A2) -> Overlap:
    (overlap,) = overlaps(predicted(result, hw))
    return overlap


def alone_us(result: Scenario, kind: str, hw: HardwareProfile = A2) -> float:
    """Time alone of the o and down products, or of their collectives, of all layers."""
    ops = predicted(result, hw).program.block("layers").ops
    names = ("o_proj", "down_proj")
    chosen = [op for op in ops if op.kind == kind and op.name.split(".")[0] in names]
    return 36 * sum(price(work_of(op), hw).duration_ns for op in chosen) / 1000


# ---- the numbers ----


def test_nothing_overlaps_where_nothing_is_on() -> None:
    assert overlaps(predicted(PREFILL)) == ()


def test_pieces_are_held_against_the_whole_product_and_collective() -> None:
    item = only(switched(PREFILL, overlap__comm_chunks=8), quiet(A2))
    assert (item.switch, item.places, item.first, item.second) == ("overlap.comm_chunks", 72, "matmul", "collective")
    assert item.first_us == pytest.approx(alone_us(PREFILL, "matmul"))
    assert item.second_us == pytest.approx(alone_us(PREFILL, "all_reduce"))
    # Collectives are the longer of the two in o, and in down.
    assert item.ideal_us == pytest.approx(item.second_us)
    assert item.ideal_us < item.predicted_us < item.first_us + item.second_us
    assert item.lost_us == item.predicted_us - item.ideal_us


def test_a_fused_kernel_is_held_against_its_own_halves() -> None:
    result = switched(PREFILL, fusion__matmul_all_reduce=True)
    item = only(result)
    kernels = [k.kernel for k in launches(predicted(result).plan) if k.kind == "matmul_all_reduce"]
    assert item.predicted_us == pytest.approx(sum(k.duration_ns for k in kernels) / 1000)
    assert item.first_us == pytest.approx(alone_us(PREFILL, "matmul"), rel=1e-4)  # each kernel is rounded to 1 ns
    assert max(item.first_us, item.second_us) <= item.ideal_us < item.predicted_us < item.first_us + item.second_us


def test_too_many_pieces_lose_more_than_they_hide() -> None:
    lost = {n: only(switched(PREFILL, overlap__comm_chunks=n), quiet(A2)).lost_us for n in (2, 8, 64)}
    assert lost[64] > lost[8]
    assert lost[2] > lost[8]


def test_waiting_for_ranks_that_begin_late_is_no_loss_of_the_overlap() -> None:
    result = switched(PREFILL, overlap__comm_chunks=4)
    together, late = quiet(A2), quiet(A2, rank_skew_us=5_000.0)
    assert predicted(result, late).step.communication_wait_ns > 1_000_000
    assert only(result, late).predicted_us == pytest.approx(only(result, together).predicted_us, rel=1e-3)


def test_a_step_that_stays_whole_has_no_overlap() -> None:
    decode = PREFILL.model_copy(update={"workload": PREFILL.workload.model_copy(update={"phase": "decode"})})
    result = overlaps(predicted(switched(decode, overlap__comm_chunks=8)))
    assert [item.places for item in result] == [72]  # 8 rows, 8 pieces
    graph = switched(PREFILL, overlap__prefetch=True)
    assert [overlap.switch for overlap in overlaps(predicted(graph))] == ["overlap.prefetch"]


def test_a_prefetch_is_held_against_the_kernels_beside_it() -> None:
    result = scenario(model="Qwen3-0.6B", optimizations__graph="ge_graph", optimizations__overlap__prefetch=True)
    item = only(result)
    fetched = [k.kernel for k in launches(predicted(result).plan) if k.kind == "prefetch"]
    assert item.second_us == pytest.approx(sum(k.duration_ns for k in fetched) / 1000)
    assert item.ideal_us >= max(item.first_us, item.second_us)
    assert item.ideal_us < item.predicted_us


# ---- the bottleneck ----


def test_kernels_that_wait_for_their_own_collective_count_as_communication() -> None:
    result = predicted(switched(PREFILL, fusion__matmul_all_reduce=True))
    diagnosis = diagnose(result)
    fused_us = sum(k.kernel.duration_ns for k in launches(result.plan) if k.kind == "matmul_all_reduce") / 1000
    exposed_us = result.step.communication_not_overlapped_ns / 1000
    assert diagnosis.limits["communication-bound"] == pytest.approx(fused_us + exposed_us)
    assert diagnosis.name == "communication-bound"
    assert "in kernels whose collective takes longer than their computing" in diagnosis.evidence


# ---- contention ----


def beside_an_all_reduce(kernel: KernelTime, op: str, hw: HardwareProfile) -> float:
    """How many times as long `kernel` takes next to a collective of two ranks that lasts longer than it."""
    tensor = Tensor("x", (65536, 4096), "bf16")
    share = replace(tensor, shape=(32768, 4096))
    sides = {"all_reduce": (tensor, tensor), "reduce_scatter": (tensor, share), "all_gather": (share, tensor)}[op]
    long = price(work_of(Op(op, op, sides[:1], sides[1:], (("ranks", 2),))), hw)
    pair = [Launch(i, 0, f"k{i}", "add", "Add", item, stream=i) for i, item in enumerate((long, kernel))]
    schedule = engine.times(Plan((Replay("graph", tuple(pair), 0, 0, 0),), False, 1))
    return (schedule.kernels[1][1] - schedule.kernels[1][0]) / kernel.duration_ns


def test_what_cores_a_collective_holds_slows_the_rest_by_mechanism() -> None:
    """910B3 has 40 vector cores; HCCL takes 24 of them to reduce and 16 to gather. Measured there, averages of a run in
    which not every kernel has a collective next to it: Add 2.73x, MatMulV3 1.83-1.99x."""
    hw = load_hardware("atlas_a2_910b3")
    x = Tensor("x", (8192, 4096), "bf16")
    add = price(work_of(Op("add", "add", (x, x), (x,))), hw)
    assert add.vector_share == 1.0
    assert beside_an_all_reduce(add, "all_reduce", hw) == pytest.approx(40 / 16, rel=0.01)
    assert beside_an_all_reduce(add, "reduce_scatter", hw) == pytest.approx(40 / 16, rel=0.01)
    assert beside_an_all_reduce(add, "all_gather", hw) == pytest.approx(40 / 24, rel=0.01)
    w, scale, rows = (
        Tensor("w", (4096, 4096), "int8", "weight"),
        Tensor("s", (4096,), "fp32"),
        Tensor("r", (8192,), "fp32"),
    )
    xq = replace(x, dtype="int8")
    mixed = price(work_of(Op("quant_matmul", "mm", (xq, w, scale, rows), (x,))), hw)
    assert beside_an_all_reduce(mixed, "all_reduce", hw) == pytest.approx(40 / 16, rel=0.01)
    # A product on cube cores alone shares nothing but HBM, which two ranks on one link hardly use.
    cube = price(work_of(Op("matmul", "mm", (x, replace(w, dtype="bf16")), (x,))), hw)
    assert beside_an_all_reduce(cube, "all_reduce", hw) == pytest.approx(1.0, rel=0.02)


def test_copies_take_no_core_from_what_runs_beside_them() -> None:
    hw = replace(A2, collective=replace(A2.collective, aiv_all_reduce_bytes=0))
    x = Tensor("x", (8192, 4096), "bf16")
    add = price(work_of(Op("add", "add", (x, x), (x,))), hw)
    assert beside_an_all_reduce(add, "all_reduce", hw) < 1.1


# ---- branches and parts ----

LITE = load_model("DeepSeek-V2-Lite")
DECODE = scenario(
    model="DeepSeek-V2-Lite",
    workload__batch=16,
    workload__input_tokens=512,
    optimizations__graph="aclgraph",
    engine__tensor_parallel_size=2,
    engine__enable_expert_parallel=True,
)


def lite(result: Scenario) -> Prediction:
    return predict(Case(result, shard(LITE, 2, expert_parallel=True), quiet(load_hardware("atlas_a3_die"))))


def test_a_shared_expert_beside_the_routed_ones_takes_no_longer_than_after_them() -> None:
    before, after = lite(DECODE), lite(switched(DECODE, overlap__shared_expert_stream=True))
    (item,) = overlaps(after)
    assert (item.switch, item.places) == ("overlap.shared_expert_stream", 26)
    assert 0 < item.second_us < item.first_us == item.ideal_us
    assert item.ideal_us < item.predicted_us < item.first_us + item.second_us
    assert before.step.total_ns - item.second_us * 1000 < after.step.total_ns < before.step.total_ns


def test_keys_beside_the_query_hide_the_shorter_branch() -> None:
    fused = switched(DECODE, fusion__qkv_norm_rope_cache=True)
    before, after = lite(fused), lite(switched(fused, overlap__streams=2))
    (item,) = overlaps(after)
    assert item.switch == "overlap.streams"
    assert item.predicted_us < item.first_us + item.second_us
    assert after.step.total_ns < before.step.total_ns


def test_parts_that_take_turns_gain_in_a_prefill_and_lose_in_a_small_decode() -> None:
    prefill = scenario(
        model="DeepSeek-V2-Lite",
        workload__phase="prefill",
        workload__batch=2,
        workload__input_tokens=4096,
        engine__tensor_parallel_size=2,
        engine__enable_expert_parallel=True,
    )
    for result, gains in ((prefill, True), (DECODE, False)):
        before, after = lite(result), lite(switched(result, overlap__micro_batches=2))
        (item,) = overlaps(after)
        assert item.switch == "overlap.micro_batches"
        assert item.ideal_us == max(item.first_us, item.second_us) <= item.predicted_us
        assert (after.step.total_ns < before.step.total_ns) == gains


# ---- pipelines ----


def test_a_stage_of_dense_layers_only_counts_their_overlaps() -> None:
    """DeepSeek-V3 in 16 stages: the first holds the 3 dense ones of 61 layers; in 31 stages 2 of them."""
    for stages, switch, value, places in (
        (16, "overlap.streams", 2, 3),
        (31, "overlap.streams", 2, 2),
    ):
        loaded = load_scenario(
            "deepseek_v3_ep16_decode",
            [
                f"engine.pipeline_parallel_size={stages}",
                f"optimizations.{switch}={str(value).lower()}",
                "workload.batch=1",
            ],
        )
        predicted_by_switch = {o.switch: o for o in overlaps(predict(case_of(loaded)))}
        overlap = predicted_by_switch.get(switch)
        assert (overlap.places if overlap else 0) == places
        if overlap:
            assert max(overlap.first_us, overlap.second_us) <= overlap.ideal_us <= overlap.first_us + overlap.second_us
            assert overlap.predicted_us > 0.9 * overlap.ideal_us


def test_each_micro_batch_of_a_pipeline_counts_its_own_places() -> None:
    asked = scenario(
        workload__phase="prefill",
        workload__batch=8,
        engine__tensor_parallel_size=8,
        model="Qwen3-8B",
        engine__pipeline_parallel_size=2,
        optimizations__overlap__comm_chunks=2,
    )
    split = split_depth(shard(load_model("Qwen3-8B"), 8), 2)
    prediction = predict(Case(asked, split, A2))
    (overlap,) = overlaps(prediction)
    batches = len(in_flight(prediction.case, prediction.batch))
    assert overlap.places == 2 * 18 * batches - overlap_left_to_the_next_stage(prediction)


def overlap_left_to_the_next_stage(prediction: Prediction) -> int:
    """Pairs of a stage's last layer that its cut leaves to the next stage: none, it cuts behind the last collective."""
    return sum(
        block.name == "layers" and not any("down" in op.name for op in block.ops) for block in prediction.program.blocks
    )
