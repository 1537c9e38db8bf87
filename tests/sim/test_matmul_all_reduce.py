"""A product fused with its all-reduce: the pipeline of pieces worked out, when it pays, and how ranks meet in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scenarios.batches import reported_batch
from scenarios.lowering.parallel import shard
from scenarios.models.hf_config import load_model
from scenarios.ops.catalogue import work_of
from scenarios.ops.program import Op, Tensor
from scenarios.ops.work import MatmulCollectiveShape, Work
from scenarios.timeline import step_time
from sim.collective import price_collective
from sim.hardware.profile import HardwareProfile, load_hardware
from sim.kernel.matmul import matmul_cost
from sim.kernel.matmul_all_reduce import Fused, cut, cuts, fastest, piece_of, product_of
from sim.kernel.price import params_of, price
from sim.kernel.ranges import spreads
from sim.kernel.time import KernelTime
from sim.predict.predict import check, predict
from sim.predict.steps import Case, plans_of, sensitivity_of, step_ns
from sim.step import engine
from sim.step.host import make_plan
from sim.step.priced import Conditions
from sim.step.schedule import launches, timeline
from tests.scenarios.making import scenario, switched

A2 = load_hardware("atlas_a2_910b2")


def fused_work(rows: int, ranks: int = 8, k: int = 1536, n: int = 4096) -> Work:
    x, w, y = Tensor("x", (rows, k), "bf16"), Tensor("w", (n, k), "bf16", "weight"), Tensor("y", (rows, n), "bf16")
    return work_of(Op("matmul_all_reduce", "o", (x, w), (y,), (("ranks", ranks),)))


def parts(work: Work, hw: HardwareProfile = A2) -> tuple[Work, MatmulCollectiveShape]:
    assert isinstance(work.shape, MatmulCollectiveShape)
    return product_of(work, work.shape), work.shape


def cut_into(work: Work, sizes: tuple[int, ...], hw: HardwareProfile = A2) -> Fused:
    product, shape = parts(work)
    return cut(product, shape, hw, params_of(product, hw), sizes)


def apart_ns(rows: int, hw: HardwareProfile = A2, **shape: int) -> int:
    """Product and all-reduce one after the other, as HCCL does it in a network."""
    product, shape_ = parts(fused_work(rows, **shape))
    reduced = shape_.collective
    return (
        price(product, hw).duration_ns
        + price_collective("all_reduce", reduced.bytes, reduced.ranks, hw, busy=True).duration_ns
    )


# ---- the pipeline ----


def test_the_pipeline_of_two_pieces_is_their_sum_with_the_longer_in_the_middle() -> None:
    work = fused_work(2048)
    product, shape = parts(work)
    params = params_of(product, A2)
    first = matmul_cost(piece_of(product, 1024, True), A2, params, False, False)
    second = matmul_cost(piece_of(product, 1024, False), A2, params, True, False)
    start_ns, hand_over_ns = 1000 * A2.collective.ai_cpu_start_us, 1000 * A2.collective.step_us
    reduction = price_collective("all_reduce", shape.collective.bytes // 2, 8, A2, "AI_CPU").duration_ns - start_ns
    item = cut_into(work, (1024, 1024))
    start = max(first.total_ns + hand_over_ns, start_ns)
    again = max(first.total_ns + second.body_ns + hand_over_ns, start + reduction)
    assert (item.first_ns, item.total_ns) == (pytest.approx(start), pytest.approx(again + reduction))
    assert item.product_ns == pytest.approx(first.total_ns + second.body_ns)
    assert item.reduction_ns == pytest.approx(2 * reduction)


def test_uncut_it_is_one_after_the_other() -> None:
    item = cut_into(fused_work(2048), (2048,))
    assert item.total_ns == pytest.approx(item.product_ns + 1000 * A2.collective.step_us + item.reduction_ns)


def test_a_small_product_is_through_before_the_partner_has_started() -> None:
    item = cut_into(fused_work(16), (16,))
    assert item.product_ns < 1000 * A2.collective.ai_cpu_start_us
    assert item.first_ns == 1000 * A2.collective.ai_cpu_start_us


def test_pieces_after_the_first_find_their_weights_in_l2_and_no_byte_is_lost() -> None:
    product, _ = parts(fused_work(2048))
    first, second = piece_of(product, 1024, True), piece_of(product, 1024, False)
    assert (first.prefetched_bytes, second.prefetched_bytes) == (0, product.cold_read_bytes)
    assert first.cube_flops + second.cube_flops == product.cube_flops
    assert first.write_bytes + second.write_bytes == product.write_bytes
    assert first.warm_read_bytes + second.warm_read_bytes == product.warm_read_bytes


def test_hbm_that_both_want_slows_what_runs_side_by_side() -> None:
    slow = replace(A2, memory=replace(A2.memory, hbm_gbps=100.0))
    work, sizes = fused_work(8192), (1024,) * 8
    item = cut_into(work, sizes, slow)
    free = cut_into(work, sizes, replace(slow, memory=replace(slow.memory, hbm_gbps=1e9)))
    assert item.hbm_bytes == free.hbm_bytes
    # All bytes cross HBM, and only the first piece's go alone.
    assert item.total_ns >= item.hbm_bytes / 100.0 * 0.95


@pytest.mark.parametrize("rows", [1, 16, 300, 2048, 8192, 20_000])
@pytest.mark.parametrize("ranks", [2, 8])
def test_it_is_never_faster_than_its_longer_half_nor_slower_than_uncut(rows: int, ranks: int) -> None:
    product, shape = parts(fused_work(rows, ranks))
    item = fastest(product, shape, A2, params_of(product, A2))
    whole = cut_into(fused_work(rows, ranks), (rows,))
    assert max(item.product_ns, item.reduction_ns) < item.total_ns <= whole.total_ns
    assert item.total_ns >= max(whole.product_ns, whole.reduction_ns)
    assert 1 <= item.pieces <= 16
    assert item.pieces == 1 or rows >= 128 * (item.pieces - 1)


def test_cuts_are_even_or_have_a_short_piece_at_one_end() -> None:
    result = cuts(1024)
    assert {(1024,), (512, 512), (128, 896), (896, 128), (256, 384, 384), (384, 384, 256)} <= set(result)
    assert all(sum(sizes) == 1024 and len(sizes) <= 16 for sizes in result)
    assert cuts(100) == ((100,),)
    assert max(len(sizes) for sizes in cuts(20_000)) == 16


def test_the_short_piece_stands_where_it_uncovers_least() -> None:
    def sizes(k: int) -> tuple[int, ...]:
        product, shape = parts(fused_work(8192, 8, k))
        params = params_of(product, A2)
        return min(cuts(8192), key=lambda value: cut(product, shape, A2, params, value).total_ns)

    by_links, by_cube = sizes(1024), sizes(12288)
    assert by_links[0] < by_links[-1]  # reductions take longer: the first starts early
    assert by_cube[0] > by_cube[-1]  # products take longer: little is left to reduce


# ---- when it pays ----


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_it_gains_in_a_long_prefill_and_loses_in_a_small_decode(ranks: int) -> None:
    assert price(fused_work(8192, ranks), A2).duration_ns < 0.8 * apart_ns(8192, ranks=ranks)
    assert price(fused_work(1, ranks), A2).duration_ns > 1.2 * apart_ns(1, ranks=ranks)


@pytest.mark.parametrize(("phase", "batch", "gains"), [("prefill", 8, True), ("decode", 1, False)])
def test_so_does_a_step(phase: str, batch: int, gains: bool) -> None:
    model = shard(load_model("Qwen3-8B"), 8)
    result = scenario(workload__phase=phase, workload__batch=batch, engine__tensor_parallel_size=8)
    graph = "eager" if phase == "prefill" else "ge_graph"
    apart, fused = (
        Case(switched(result, graph=graph, fusion__matmul_all_reduce=on), model, A2) for on in (False, True)
    )
    batch_ = reported_batch(result)
    assert (step_ns(fused, batch_) < step_ns(apart, batch_)) == gains


# ---- the kernel and its ranks ----


def test_the_kernel_says_what_it_uses() -> None:
    item = price(fused_work(8192), A2)
    assert (item.accelerator, item.cores, item.flops) == ("MIX_AIC", 22, 2 * 8192 * 1536 * 4096)
    assert item.bound == "link"
    assert 0 < item.alone_ns < item.duration_ns
    assert (item.link_share, item.vector_share, item.holds_cores) == (1.0, 0.0, False)
    assert 0 < item.cube_share < 1  # the cube waits for the links
    assert item.ai_cpu_share == pytest.approx(1 / 6)


def case(**numbers: float) -> Case:
    result = scenario(
        workload__phase="prefill",
        workload__batch=4,
        engine__tensor_parallel_size=2,
        optimizations__fusion__matmul_all_reduce=True,
    )
    hw = replace(A2, host=replace(A2.host, **numbers))
    return Case(result, shard(load_model("Qwen3-0.6B"), 2), hw)


def test_ranks_meet_in_it_and_waiting_stays_apart_from_computing_and_transfer() -> None:
    late = case(rank_skew_us=5000.0)
    plans = plans_of(late, reported_batch(late.scenario))
    schedule = engine.times_of_ranks(plans)
    fused = [n for n, item in enumerate(launches(plans[0])) if item.kind == "matmul_all_reduce"]
    assert len(fused) == 2 * 28
    for number in fused:
        starts = {one.kernels[number][0] for one in schedule}
        assert starts == {max(one.arrivals[number] for one in schedule)}
        assert len({one.kernels[number][1] for one in schedule}) == 1
    spans = timeline(plans[0], schedule[0]).spans
    index = next(launch.index for launch in launches(plans[0]) if launch.kind == "matmul_all_reduce")
    (kernel,) = (s for s in spans if s.index == index and s.process == "Ascend Hardware")
    (transfer,) = (s for s in spans if s.index == index and s.kind == "transfer")
    priced: KernelTime = next(value.kernel for value in launches(plans[0]) if value.index == index)
    assert (transfer.start_ns, transfer.end_ns) == (kernel.start_ns + priced.alone_ns, kernel.end_ns)
    step = step_time(timeline(plans[0], schedule[0]))
    assert step.communication_wait_ns > 0
    assert step.total_ns == step.computing_ns + step.communication_not_overlapped_ns + step.free_ns


def test_the_kernel_has_no_luck_of_its_own_rank() -> None:
    program = predict(case()).program
    plans = [make_plan(program, A2, Conditions(rank=rank, ranks=2)) for rank in (0, 1)]
    times = [
        [launch.kernel.duration_ns for launch in launches(plan) if launch.kind == "matmul_all_reduce"] for plan in plans
    ]
    assert times[0] == times[1]


def test_ranks_that_roce_joins_are_refused() -> None:
    result = case().scenario
    wide = result.model_copy(update={"engine": result.engine.model_copy(update={"tensor_parallel_size": 16})})
    outcome = check(Case(wide, shard(load_model("Qwen3-0.6B"), 16), A2))
    assert [where for where, _ in outcome] == ["optimizations.fusion.matmul_all_reduce"]
    assert "16 of them are joined by RoCE" in outcome[0][1]
    assert check(Case(wide, shard(load_model("Qwen3-0.6B"), 16), load_hardware("atlas_a3_die"))) == []


def test_a_kernel_that_its_links_hold_up_is_as_uncertain_as_a_collective() -> None:
    parts_ = sensitivity_of(case(), reported_batch(case().scenario)).parts
    (fused,) = {sigma for key, (_, sigma) in parts_.items() if isinstance(key, tuple) and key[0] == "matmul_all_reduce"}
    # What collectives share is a part of its own.
    assert fused == pytest.approx((1 - spreads().shared) ** 0.5 * A2.collective.sigma)
