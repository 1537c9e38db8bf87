"""Experts in time: grouped products, the exchange of tokens, ranks that wait for the one with most work."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import pytest

from scenarios.batches import decode_batch
from scenarios.lowering.parallel import shard
from scenarios.models.hf_config import load_model
from scenarios.ops.work import ExchangeShape, GroupedShape, Work
from scenarios.schema import Scenario
from sim.fitting.exchange import residuals, rows
from sim.hardware.profile import NEEDED_PROGRAMS, HardwareProfile, load_hardware
from sim.kernel.exchange import exchange_ns
from sim.kernel.price import price
from sim.predict.overlap import overlaps
from sim.predict.predict import Prediction, predict
from sim.predict.steps import Case, plans_of
from sim.step import engine, ranks
from sim.step.schedule import launches
from tests.scenarios.making import EXPERTS, LATENT, scenario

A3 = load_hardware("atlas_a3_die")


def grouped(loads: tuple[int, ...], k: int = 7168, n: int = 4096) -> Work:
    total = sum(loads)
    shape = GroupedShape(loads, k, n, "int8", "int8", "nz")
    return Work(
        "mix", shape, 2 * total * k * n, 0, len(loads) * k * n, total * k, 2 * total * n, "quant_grouped_matmul"
    )


def us(work: Work) -> float:
    return price(work, A3).duration_ns / 1000


def test_a_decode_of_experts_takes_the_time_of_their_weights() -> None:
    # Sixteen experts of 29.4 MB each from HBM at the rate of FRACTAL_NZ weights in a flat product: 343 us.
    stream = 16 * 7168 * 4096 / (A3.memory.hbm_gbps * A3.memory.nz_flat_share) / 1000
    assert stream < us(grouped((1,) * 16)) < 1.15 * stream
    # Rows cost little next to them, and experts without rows nothing.
    assert us(grouped((8,) * 16)) < 1.02 * us(grouped((1,) * 16))
    assert abs(us(grouped((1,) * 8)) / us(grouped((1,) * 16)) - 0.5) < 0.05


def test_many_rows_take_the_time_of_their_multiplications() -> None:
    flops = 2 * 8 * 512 * 7168 * 4096
    cube_us = flops / (2 * A3.chip.cube_flops_per_ns) / 1000
    assert cube_us < us(grouped((512,) * 8)) < 2 * cube_us
    assert price(grouped((512,) * 8), A3).bound == "cube"


def test_an_exchange_takes_what_was_measured_on_8_to_32_dies() -> None:
    assert len(rows()) == 6
    assert max(abs(exp(r) - 1) for r in residuals({}, rows(), A3)) < 0.05


def test_an_exchange_grows_with_tokens_and_ranks_and_shrinks_with_int8() -> None:
    def dispatch(tokens: int, ranks: int, dtype: str = "int8") -> float:
        return exchange_ns(ExchangeShape("moe_dispatch", tokens, 8, 7168, dtype, ranks), A3)  # type: ignore[arg-type]

    assert dispatch(1, 16) < dispatch(16, 16) < dispatch(128, 16)
    assert dispatch(16, 8) < dispatch(16, 16) < dispatch(16, 64)
    assert dispatch(512, 16) < dispatch(512, 16, "bf16")  # the links have half the bytes


@pytest.mark.parametrize("op", ["moe_dispatch", "moe_combine"])
def test_an_exchange_on_a_third_of_the_cores_is_slower_and_leaves_the_others(op: str) -> None:
    whole, third = (
        price(Work("link", ExchangeShape(op, 128, 8, 7168, "int8", 16, core_share=share)), A3)  # type: ignore[arg-type]
        for share in (1.0, 1 / 3)
    )
    assert whole.duration_ns < third.duration_ns < 3 * whole.duration_ns
    assert (whole.cores, third.cores) == (48, 16)
    assert third.holds_cores
    assert third.vector_share == pytest.approx(1 / 3)


def spread(model: str = "DeepSeek-V3", tp: int = 8, dp: int = 2, hw: HardwareProfile = A3, **settings: object) -> Case:
    how = {"workload__batch": 8, "optimizations__graph": "aclgraph", "optimizations__weights": "w8a8", **settings}
    result = scenario(
        model=model,
        workload__input_tokens=4096,
        workload__output_tokens=1,
        engine__tensor_parallel_size=tp,
        engine__data_parallel_size=dp,
        engine__enable_expert_parallel=True,
        **how,
    )
    return Case(result, shard(load_model(model), tp, dp, expert_parallel=True), hw)


def test_groups_of_ranks_meet_beside_each_other() -> None:
    case = spread()
    plans = plans_of(case, decode_batch(case.scenario))
    group_ranks = {launch.kind: launch.group_ranks for launch in launches(plans[0]) if launch.rendezvous}
    assert len(plans) == 16
    assert group_ranks == {"all_reduce": 8, "all_gather": 8, "moe_dispatch": 0, "moe_combine": 0}
    schedule = engine.times_of_ranks(plans)
    assert ranks.total_ns(plans) == schedule[0].end_ns
    first = next(n for n, launch in enumerate(launches(plans[0])) if launch.kind == "all_reduce")
    starts = [item.kernels[first][0] for item in schedule]
    assert len(set(starts[:8])) == len(set(starts[8:])) == 1
    assert starts[0] != starts[8]  # the other replica has its own rank skew


def calm(hw: HardwareProfile) -> HardwareProfile:
    """`hw` without any jitter."""
    return replace(
        hw,
        host=replace(hw.host, jitter_sigma=0.0, rank_skew_us=0.0),
        kernel=replace(hw.kernel, jitter_sigma=0.0),
    )


def test_ranks_with_fewer_chosen_experts_wait_even_without_luck() -> None:
    # 16 tokens that choose 8 of 256 experts do not choose evenly, popular or not.
    assert sum(predict(spread(hw=calm(A3))).waits_ns.values()) > 0


def test_skew_costs_a_prefill_and_spares_a_small_decode() -> None:
    def found(skew: float, **settings: object) -> Prediction:
        return predict(spread(hw=calm(A3), workload__expert_skew=skew, **settings))

    prefill = {"workload__phase": "prefill", "workload__batch": 1}
    even, uneven = (found(skew, **prefill).step.total_ns for skew in (0.0, 1.0))
    assert uneven > 1.04 * even  # the rank with the popular experts has most rows
    even, uneven = (sum(launch.kernel.hbm_bytes for launch in launches(found(skew).plan)) for skew in (0.0, 1.0))
    assert uneven < even  # few tokens meet at the same experts: fewer weights


def test_experts_of_each_layer_take_their_own_time() -> None:
    case = spread()
    (plan, *_) = plans_of(case, decode_batch(case.scenario))
    times = [launch.kernel.hbm_bytes for launch in launches(plan) if launch.name == "experts.gate_up_proj"]
    assert len(times) == 58
    assert len(set(times)) > 4


def test_replicas_multiply_throughput_and_share_nothing_without_experts() -> None:
    def metrics(replicas: int) -> dict[str, float]:
        result = scenario(model="Qwen3-8B", workload__batch=4, engine__data_parallel_size=replicas)
        case = Case(result, shard(load_model("Qwen3-8B"), 1, replicas), A3)
        return {name: metric.value for name, metric in predict(case).metrics.items()}

    one, two = metrics(1), metrics(2)
    assert two["tpot_ms"] == one["tpot_ms"]
    assert two["output_throughput"] == pytest.approx(2 * one["output_throughput"])
    assert two["output_throughput_per_card"] == pytest.approx(one["output_throughput_per_card"])
    assert two["peak_memory_bytes"] == one["peak_memory_bytes"]


@pytest.mark.parametrize("model", [EXPERTS, LATENT], ids=lambda m: m.name)
@pytest.mark.parametrize("parts", [2, 3])
def test_micro_batches_send_their_tokens_on_a_stream_of_their_own(model: object, parts: int) -> None:
    result: Scenario = scenario(
        workload__batch=6,
        workload__input_tokens=64,
        workload__output_tokens=4,
        engine__tensor_parallel_size=2,
        engine__enable_expert_parallel=True,
        optimizations__overlap__micro_batches=parts,
    )
    case = Case(result, shard(model, 2, expert_parallel=True), A3)  # type: ignore[arg-type]
    prediction = predict(case)
    sent = [launch for launch in launches(prediction.plan) if launch.kind == "moe_dispatch"]
    assert [launch.stream for launch in sent] == [2] * 2 * parts  # two layers with experts
    assert {launch.stream for launch in launches(prediction.plan)} == {0, 2}


@pytest.mark.slow
def test_experts_of_one_part_run_beside_attention_of_another() -> None:
    """Without tensor parallelism; 64 dies. Parts lose less where there are more requests, whose work the floors of
    kernels are shared out over."""
    lost = {}
    for batch in (8, 64):
        alone, parts = (
            predict(
                spread(
                    tp=1, dp=64, hw=calm(A3), workload__batch=batch, engine__stack="vllm_ascend",
                    optimizations__overlap__micro_batches=n,
                )
            )
            for n in (1, 2)
        )  # fmt: skip
        (item,) = overlaps(parts)
        assert item.ideal_us <= item.predicted_us < 0.85 * (item.first_us + item.second_us)
        lost[batch] = parts.step.total_ns / alone.step.total_ns
    assert lost[64] < lost[8]


@pytest.mark.parametrize("op", ["moe_dispatch", "moe_combine"])
def test_an_exchange_has_a_time_where_a_profile_names_the_general_programs_alone(op: str) -> None:
    """As the shipped profile of a CPU does: rows are copied and quantised at the rate of all rows."""
    bare = replace(A3, programs={key: A3.programs[key] for key in NEEDED_PROGRAMS})
    for hw in (bare, load_hardware("cpu")):
        for dtype in ("bf16", "int8"):
            assert exchange_ns(ExchangeShape(op, 16, 2, 256, dtype, 8), hw) > 0  # type: ignore[arg-type]
