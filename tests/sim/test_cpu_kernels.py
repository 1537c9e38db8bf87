"""A CPU's calls: sums of effects that can be added up by hand, and nothing of it on an NPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scenarios.batches import decode_batch
from scenarios.ops.catalogue import work_of
from scenarios.ops.program import Group
from scenarios.ops.work import AttentionShape, FixedShape, FlatShape, MatmulShape, RowsShape, Work
from sim.hardware.profile import HardwareProfile, load_hardware
from sim.hardware.sections import KernelParams
from sim.kernel.cpu import COMPILED, effects, names_of, stream_ns
from sim.kernel.price import price
from sim.predict.predict import predict
from sim.predict.steps import Case, plans_of, program_of
from sim.step.schedule import launches
from tests.scenarios.making import TINY, scenario

PRODUCT = Work(
    "cube", MatmulShape(1, 4, 100, 50, "bf16", "bf16", "nd"), 2 * 4 * 100 * 50, 0, 10_000, 800, 400, "matmul"
)
NORM = Work("vector", RowsShape(8, 64), 0, 2048, 128, 1024, 1024, "rms_norm")
SLICE = Work("vector", FlatShape(600), 0, 0, 0, 2400, 1200, "slice", 24)


def attention(groups: tuple[Group, ...], dtype: str = "bf16", block: int = 0) -> Work:
    shape = AttentionShape(groups, 8, 2, 16, dtype, block)  # type: ignore[arg-type]
    return Work("mix", shape, 4 * 8 * 16 * 300, 0, 9000, 100, 100, "attention")


@pytest.fixture
def hw() -> HardwareProfile:
    base = load_hardware("cpu")
    programs = {
        **base.programs,
        "matmul": KernelParams(fixed_us=10, row_us=0.1, element_ns=2, mac_ns=0.5),
        "rms_norm": KernelParams(fixed_us=1, row_us=0.5, element_ns=3),
        "slice": KernelParams(fixed_us=2, row_us=0.25, element_ns=1),
        COMPILED: KernelParams(fixed_us=0.5, element_ns=1),
    }
    return replace(base, programs=programs, kernel=replace(base.kernel, start_us=4))


def test_a_product_is_a_call_its_columns_its_weight_and_its_multiplications(hw: HardwareProfile) -> None:
    assert effects(PRODUCT) == effects(PRODUCT).__class__(rows=50, elements=5000, macs=20_000)
    assert price(PRODUCT, hw).duration_ns == 4000 + 10_000 + 50 * 100 + 5000 * 2 + 20_000 * 0.5


def test_norms_by_row_and_copies_by_run(hw: HardwareProfile) -> None:
    assert price(NORM, hw).duration_ns == 4000 + 1000 + 8 * 500 + 512 * 3
    assert price(SLICE, hw).duration_ns == 4000 + 2000 + 12 * 250 + 600


def test_inside_compiled_code_calls_are_fused_away_but_products_are_not(hw: HardwareProfile) -> None:
    assert price(NORM, hw, captured=True).duration_ns == 500 + 512
    assert price(PRODUCT, hw, captured=True) == price(PRODUCT, hw)


def test_bytes_bound_a_call_where_they_take_longer(hw: HardwareProfile) -> None:
    large = Work("vector", FlatShape(10), 0, 0, 16 << 20, 0, 0, "add")
    call_ns = 4000 + 1000 * hw.programs["elementwise"].fixed_us
    for resident, rate, bound in ((False, hw.memory.hbm_gbps, "hbm"), (True, hw.memory.l2_read_gbps, "l2")):
        result = price(large, hw, resident=resident)
        assert result.duration_ns == pytest.approx(call_ns + (16 << 20) / rate, rel=1e-6)
        assert result.bound == bound


def test_caches_by_what_a_call_touches(hw: HardwareProfile) -> None:
    small, middle, great = (Work("vector", FlatShape(1), 0, 0, 0, size, 0, "add") for size in (1000, 4 << 20, 40 << 20))
    rates = [work.gm_bytes / stream_ns(work, hw, resident=True) for work in (small, middle, great)]
    assert rates == pytest.approx([hw.memory.core_l2_gbps, hw.memory.l2_read_gbps, hw.memory.hbm_gbps])


def test_which_program_prices_what() -> None:
    one, prefill = (Group(3, 1, 40),), (Group(1, 64, 0),)
    assert names_of(attention(one)) == ("attention",)
    assert names_of(attention(prefill)) == ("attention_prefill",)
    assert names_of(attention(one, "int8", 32)) == (
        "attention_paged_int8",
        "attention_paged",
        "attention_int8",
        "attention",
    )
    vector = replace(PRODUCT, shape=replace(PRODUCT.shape, m=1))  # type: ignore[type-var]
    assert names_of(vector)[:2] == ("matmul_vector", "matmul")
    assert names_of(NORM, captured=True)[0] == COMPILED


def test_attention_walks_over_requests_heads_and_what_they_see() -> None:
    result = effects(attention((Group(3, 1, 40), Group(1, 1, 9))))
    assert (result.rows, result.elements, result.macs) == (4 * 8, 2 * (3 * 41 + 10) * 2 * 16, 2 * 8 * 16 * 300)


def test_a_ragged_batch_is_a_call_for_each_run_of_requests_that_are_alike(hw: HardwareProfile) -> None:
    """300 pairs and 9,000 bytes are shared out by what each run sees; a prompt among them is priced as one."""
    programs = {
        "attention": KernelParams(fixed_us=20, row_us=0.5, element_ns=0.25, mac_ns=0.125),
        "attention_prefill": KernelParams(fixed_us=100, mac_ns=2),
    }
    hw = replace(hw, programs={**hw.programs, **programs})
    one = replace(attention((Group(1, 1, 49),)), cube_flops=4 * 8 * 16 * 50)
    alike = 4000 + 20_000 + 8 * 500 + 2 * 50 * 2 * 16 * 0.25 + 2 * 8 * 16 * 50 * 0.125
    assert price(one, hw).duration_ns == alike
    ragged = replace(attention((Group(1, 1, 49), Group(1, 1, 49), Group(1, 1, 49))), cube_flops=4 * 8 * 16 * 150)
    assert price(ragged, hw).duration_ns == 3 * alike
    mixed = replace(attention((Group(1, 1, 49), Group(1, 20, 0))), cube_flops=4 * 8 * 16 * (50 + 210))
    assert price(mixed, hw).duration_ns == alike + 4000 + 100_000 + 2 * 8 * 16 * 210 * 2


def test_small_preparations_take_their_own_time(hw: HardwareProfile) -> None:
    assert price(Work("vector", FixedShape("Add")), hw).duration_ns == 1000 * hw.fixed_us["ai_cpu"]


def test_an_npu_knows_no_compiled_code() -> None:
    npu = load_hardware("atlas_a3_die")
    assert price(NORM, npu, captured=True) == price(NORM, npu)


def step_us(hw: HardwareProfile, **settings: object) -> float:
    how = {"engine__task_queue_enable": 0, "protocol__synchronize": "op", **settings}
    result = scenario(workload__batch=2, workload__input_tokens=32, **how)
    return predict(Case(result, TINY, hw)).step.total_ns / 1000


def test_entering_compiled_code_is_paid_in_a_graph_only(hw: HardwareProfile) -> None:
    dear = replace(hw, graph=replace(hw.graph, mix_gap_ns=hw.graph.mix_gap_ns + 1e6))
    assert step_us(dear, optimizations__graph="eager") == step_us(hw, optimizations__graph="eager")
    # Into and out of attention, in each of two layers; the first follows the host's own call.
    paid = step_us(dear, optimizations__graph="ge_graph") - step_us(hw, optimizations__graph="ge_graph")
    assert paid == pytest.approx(2 * TINY.layers * 1000)


def test_weights_that_fit_the_last_cache_stay_there(hw: HardwareProfile) -> None:
    """Slow memory matters only to a model that does not fit."""
    slow = replace(hw, memory=replace(hw.memory, hbm_gbps=1e-3))
    assert step_us(slow) == step_us(hw)
    tiny_cache = replace(slow, chip=replace(slow.chip, l2_bytes=1000))
    assert step_us(tiny_cache) > 2 * step_us(hw)


def test_weights_stay_in_the_last_cache_as_long_as_a_step_reads_no_more_than_their_share(hw: HardwareProfile) -> None:
    case = Case(scenario(), TINY, hw)
    batch = decode_batch(case.scenario)
    cold = sum(
        block.repeat * work_of(op).cold_read_bytes
        for block in program_of(case.scenario, TINY, batch).blocks
        for op in block.ops
    )

    def from_memory(l2_bytes: int) -> int:
        small = replace(hw, chip=replace(hw.chip, l2_bytes=l2_bytes), memory=replace(hw.memory, l2_resident_share=0.25))
        return sum(launch.kernel.hbm_bytes for launch in launches(plans_of(replace(case, hardware=small), batch)[0]))

    # A quarter of the cache survives a step: just what the step reads, and one byte less.
    assert from_memory(4 * cold) == 0
    assert from_memory(4 * cold - 4) == cold
