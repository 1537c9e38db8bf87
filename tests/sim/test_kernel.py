"""The kernel cost model: each rule on a small device with round numbers, then laws for any kernel on any device."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.ops.program import Group
from scenarios.ops.work import AttentionShape, FixedShape, FlatShape, MatmulShape, RowsShape, Work
from sim.hardware import HardwareProfile, load_hardware
from sim.hardware.sections import KernelParams
from sim.kernel.busiest import busiest
from sim.kernel.matmul import overlapped
from sim.kernel.price import params_of, price, roofline_ns
from sim.kernel.traffic import hbm_rate, traffic
from sim.kernel.vector import Layout, flat_layout, row_layout

A3 = load_hardware("atlas_a3_die")


def device(**programs: KernelParams) -> HardwareProfile:
    """Four vector and two cube cores at 1 GHz.

    1 us to start and 0.1 us for each core; a core draws 1 byte/ns from HBM and 2 from L2, and writes 4.
    """
    chip = replace(A3.chip, cube_cores=2, vector_cores=4, clock_mhz=1000, ub_bytes=2000, l2_bytes=10_000)
    memory = replace(
        A3.memory, hbm_gbps=3, hbm_peak_gbps=4, core_hbm_gbps=1, core_l2_gbps=2, core_write_gbps=4, far_kv_gbps=1,
        core_random_gbps=0.5, l2_read_gbps=100, l2_write_gbps=100, l2_resident_share=0.5,
        nz_flat_share=0.5, nd_tall_share=0.5,
    )  # fmt: skip
    kernel = replace(
        A3.kernel, start_us=1, core_us=0.1, repeat_share=0.25, register_cycles=1, piece_ns=10, burst_ns=1,
        cube_efficiency=1, overlap_power=1,
    )  # fmt: skip
    plain = {name: KernelParams() for name in ("row_wise", "matmul", "quant_matmul", "attention", "attention_prefill")}
    plain["elementwise"] = KernelParams(grain=100)
    return replace(A3, chip=chip, memory=memory, kernel=kernel, programs={**plain, **programs}, fixed_us={"ai_cpu": 70})


# -- the start -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("elements", "cores", "ns"), [(1, 1, 1100), (100, 1, 1100), (101, 2, 1200), (400, 4, 1400), (9999, 4, 1400)]
)
def test_the_start_grows_with_the_cores(elements: int, cores: int, ns: int) -> None:
    time = price(Work("vector", FlatShape(elements)), device())
    assert (time.cores, time.duration_ns, time.bound) == (cores, ns, "launch")


def test_a_program_fetches_its_code_on_each_core_unless_it_just_ran() -> None:
    hw = device(swiglu=KernelParams(code_us=0.4, fixed_us=2, grain=100))
    work = Work("vector", FlatShape(300), program="swiglu")
    # Three cores: 1000 + 3 x (100 + 400) + 2000, and with a quarter of the fetch 1000 + 3 x (100 + 100) + 2000.
    assert price(work, hw).duration_ns == 4500
    assert price(work, hw, repeat=True).duration_ns == 3600


def test_rows_are_whole_on_a_core() -> None:
    hw = device(rope=KernelParams(row_us=0.5))
    # Nine rows on four cores: the fullest has three. 1000 + 4 x 100 + 3 x 500.
    assert price(Work("vector", RowsShape(9, 8), program="rope"), hw).duration_ns == 2900


# -- the work --------------------------------------------------------------------------------------------


def test_layouts_by_hand() -> None:
    assert flat_layout(1000, 300, 4) == Layout(4, 0, 250.0, 1.0)
    assert row_layout(9, 8, 0, 4) == Layout(4, 3, 24.0, 12 / 9)
    assert row_layout(3, 8, 2, 4) == Layout(4, 2, 8.0, 4 / 3)


def test_bytes_come_from_l2_while_they_fit() -> None:
    hw = device()  # 5,000 of 10,000 bytes survive from kernel to kernel
    fits = traffic(Work("vector", FlatShape(1), 0, 0, 100, 2000, 3000), hw)
    assert (fits.hbm_read, fits.l2_read, fits.hbm_write, fits.l2_write) == (100, 2000, 0, 3000)
    # 1,000 bytes too many drive as many out: 2,000 of the 6,000 go to HBM.
    over = traffic(Work("vector", FlatShape(1), 0, 0, 0, 3000, 3000), hw)
    assert (over.hbm_read, over.l2_read, over.hbm_write, over.l2_write) == pytest.approx((1000, 2000, 1000, 2000))
    again = traffic(Work("vector", FlatShape(1), 0, 0, 4000, 0, 1000), hw, resident=True)
    assert (again.hbm, again.l2_read) == (0, 4000)


def test_few_cores_draw_their_own_rate_and_many_share_hbm() -> None:
    assert [hbm_rate(cores, device()) for cores in (1, 2, 3, 4)] == [1, 2, 3, 3]
    assert hbm_rate(4, device(), share=0.5) == 1.5


def test_load_compute_and_store_overlap_over_tiles() -> None:
    # One core reads 4,000 bytes at 2/ns and writes 4,000 at 4/ns through a half of UB (1,000): 8 tiles of 250 and 125.
    # Computation: 64,000 operations on 64 lanes at 1 GHz, 125 a tile. 250 + 125 + 125 + 7 x 250, and 1,100 to start.
    hw = device(copy=KernelParams(grain=10_000))
    work = Work("vector", FlatShape(4000), 0, 64_000, 0, 4000, 4000, "copy")
    hw = replace(hw, chip=replace(hw.chip, l2_bytes=100_000))
    assert price(work, hw).duration_ns == 1100 + 2250


def test_one_buffer_adds_what_two_would_hide() -> None:
    hw = device(copy=KernelParams(grain=10_000, buffers=1))
    hw = replace(hw, chip=replace(hw.chip, l2_bytes=100_000))
    work = Work("vector", FlatShape(4000), 0, 64_000, 0, 4000, 4000, "copy")
    assert price(work, hw).duration_ns == 1100 + 250 + 125 + 125 + 7 * 375


def test_pieces_of_memory_cost_a_start_each() -> None:
    hw = device(slice=KernelParams(grain=10_000))
    # 8 pieces: 4 loads and 4 stores of 10 ns, each its own tile: 10 + 10 + 3 x 10.
    assert price(Work("vector", FlatShape(8), program="slice", pieces=8), hw).duration_ns == 1100 + 50


def test_rows_of_a_table_are_not_a_stream() -> None:
    hw = device(gather=KernelParams(grain=1000))
    # 100 bytes at the 1 byte/ns of a stream and again at the 0.5 of scattered rows.
    assert price(Work("vector", RowsShape(1, 50), 0, 0, 100, program="gather"), hw).duration_ns == 1100 + 300


def test_a_reduction_takes_the_better_of_two_layouts() -> None:
    hw = device(argmax=KernelParams(row_us=1, element_ns=1, grain=100))
    long_row, many_rows = RowsShape(1, 40_000), RowsShape(4, 400)
    # One row on four cores: 1,000 for joining and 10,000 elements each; alone it would take 40,000.
    assert price(Work("vector", long_row, program="argmax"), hw).duration_ns == 1400 + 1000 + 10_000
    assert price(Work("vector", many_rows, program="argmax"), hw).duration_ns == 1400 + 400


# -- matrix products -------------------------------------------------------------------------------------


def matmul(m: int, k: int, n: int, weights: str = "nd", dtype: str = "bf16", program: str = "matmul") -> Work:
    size = 1 if dtype == "int8" else 2
    shape = MatmulShape(1, m, k, n, dtype, dtype, weights)  # type: ignore[arg-type]
    return Work("cube", shape, 2 * m * k * n, 0, size * k * n, size * m * k, 2 * m * n, program)


def test_the_busiest_core_of_a_product() -> None:
    # 4,096 columns of one row over 24 cores: 176 each (11 blocks of 16), 256 blocks deep.
    flat = busiest(MatmulShape(1, 1, 4096, 4096, "bf16", "bf16", "nd"), A3.chip)
    assert (flat.cores, flat.blocks, flat.right, flat.left) == (24, 11 * 256, 176 * 8192, 8192)
    # Weights of k rows in FRACTAL_NZ: the seed's packed projection starts on 12 cores of 512 columns.
    packed = MatmulShape(1, 1, 4096, 6144, "bf16", "bf16", "nz", "k")
    assert busiest(packed, load_hardware("atlas_a3_die_20").chip).cores == 12
    # 2,048 x 4,096 outputs in 256 blocks of 128 x 256, dealt over 24 cores: eleven for the fullest.
    tall = busiest(MatmulShape(1, 2048, 1024, 4096, "bf16", "bf16", "nd"), A3.chip)
    assert (tall.cores, tall.blocks) == (24, 11 * 8 * 16 * 64)
    # Six products go to six groups of four cores.
    assert busiest(MatmulShape(6, 16, 128, 512, "bf16", "bf16", "nd"), A3.chip).cores == 24


def test_a_product_multiplies_and_streams() -> None:
    # Two cores, 16 columns each: k 64 is 4 blocks, 4 ns. Weights 4,096 B at 2/ns, 3,072 B more at 3/ns; then the left
    # side's 2,048 B at half of what a core reads from L2.
    time = price(matmul(16, 64, 32), device(matmul=KernelParams(fixed_us=3)))
    assert (time.cores, time.duration_ns) == (2, 3000 + 4 + 2048 + 1024 + 2048)
    assert (time.accelerator, time.flops) == ("AI_CORE", 2 * 16 * 64 * 32)


def test_two_times_that_overlap_in_part() -> None:
    assert overlapped(3, 4, 1) == 7
    assert overlapped(3, 4, 2) == pytest.approx(5)
    assert overlapped(3, 4, 100) == pytest.approx(4, rel=0.01)
    assert overlapped(0, 0, 1.4) == 0


def test_fractal_weights_stream_slower_under_few_rows_and_faster_under_many() -> None:
    assert price(matmul(16, 4096, 4096, "nz"), A3).duration_ns > price(matmul(16, 4096, 4096), A3).duration_ns
    assert price(matmul(1024, 4096, 512, "nz"), A3).duration_ns < price(matmul(1024, 4096, 512), A3).duration_ns


def test_int8_multiplies_at_twice_the_rate_and_starts_later() -> None:
    full, half = (price(matmul(4096, 4096, 4096, "nz", t), A3).duration_ns for t in ("bf16", "int8"))
    assert 1.4 < full / half < 2.1
    tiny, tiny8 = (
        price(matmul(1, 512, 512, "nz", t, p), A3).duration_ns
        for t, p in (("bf16", "matmul"), ("int8", "quant_matmul"))
    )
    assert tiny8 > tiny + 5000


def test_shares_quantise_over_the_cores() -> None:
    # 256 columns for each of 24 cores; of 24 more, the search gives 288 to each of 22.
    even, odd = (
        busiest(MatmulShape(1, 16, 4096, n, "bf16", "bf16", "nd"), A3.chip).right for n in (24 * 256, 24 * 257)
    )
    assert (even, odd) == (256 * 8192, 288 * 8192)


def test_a_twin_saves_its_fetch_only_where_its_program_is_long() -> None:
    def saved(m: int) -> int:
        work = matmul(m, 1024, 3072)
        return price(work, A3).duration_ns - price(work, A3, repeat=True).duration_ns

    assert saved(4) == 0
    assert saved(64) == 2000


# -- attention -------------------------------------------------------------------------------------------


def attention(groups: tuple[Group, ...], heads: int = 8, kv_heads: int = 2, dim: int = 128, kv: str = "bf16") -> Work:
    shape = AttentionShape(groups, heads, kv_heads, dim, kv, 128)  # type: ignore[arg-type]
    tokens = sum(g.count * g.kv_len for g in groups)
    size = 1 if kv == "int8" else 2
    return Work("mix", shape, 0, 0, 2 * size * kv_heads * dim * tokens, 0, 0, "attention")


def test_decode_attention_by_hand() -> None:
    # Start 2,000, one request 500; two KV heads x 101 keys on two cores, 256 elements of 0.1 ns each.
    hw = device(attention=KernelParams(fixed_us=2, row_us=0.5, element_ns=0.1))
    time = price(attention((Group(1, 1, 100),)), hw)
    # 2 x 101 x 512 B from HBM at 2/ns take longer than the keys.
    assert (time.cores, time.duration_ns) == (2, 2500 + 101 * 512)
    assert time.accelerator == "MIX_AIC"
    slow = device(attention=KernelParams(fixed_us=2, row_us=0.5, element_ns=4))
    assert price(attention((Group(1, 1, 100),)), slow).duration_ns == 2500 + 101 * 1024


def test_a_static_cache_is_read_whole() -> None:
    short, full = (static(1, n) for n in (10, 1023))
    assert short == full
    # 16 requests x 2 KV heads: 32 tasks, two for the fullest cube; 64 requests: three waves of two.
    key_ns = A3.programs["static_attention"].element_ns * 256 * 1024
    task = 1000 * A3.programs["static_attention"].row_us + key_ns
    assert static(64, 10) - static(16, 10) == pytest.approx(4 * task, abs=2)


def static(requests: int, context: int) -> int:
    """Nanoseconds of one decode over static caches of 1,024 rows."""
    shape = AttentionShape((Group(requests, 1, context),), 16, 2, 128, "bf16", 0, 1024)
    return price(Work("mix", shape, 0, 0, 1024 * requests * 2 * 512, 0, 0, "attention"), A3).duration_ns


def test_a_static_cache_beyond_l2_is_read_slower() -> None:
    def ns(tokens: int) -> int:
        shape = AttentionShape((Group(1, 1, 0),), 16, 8, 128, "bf16", 0, tokens)
        return price(Work("mix", shape, 0, 0, tokens * 8 * 512, 0, 0, "attention"), A3).duration_ns

    held, beyond = ns(32_768) - ns(16_384), ns(65_536) - ns(32_768)
    assert beyond > 1.3 * 2 * held


def test_prefill_takes_blocks_of_128_queries() -> None:
    hw = device(attention_prefill=KernelParams(fixed_us=5, element_ns=1))
    shape = AttentionShape((Group(1, 256, 0),), 1, 1, 128, "bf16", 128)
    work = Work("mix", shape, 0, 0, 0, 0, 0, "attention")
    # Two blocks on two cores: 128 queries see 128.5 keys on average.
    assert price(work, hw).duration_ns == 5000 + 128 * 128.5
    assert params_of(work, hw) is hw.programs["attention_prefill"]


def test_int8_cache_halves_the_bytes_but_is_unpacked() -> None:
    whole = price(attention((Group(64, 1, 8000),)), A3)
    half = price(attention((Group(64, 1, 8000),), kv="int8"), A3)
    assert half.hbm_bytes * 2 == whole.hbm_bytes
    assert 0.5 * whole.duration_ns < half.duration_ns < whole.duration_ns


# -- the rest --------------------------------------------------------------------------------------------


def test_kernels_without_a_shape() -> None:
    known = price(Work("ai_cpu", FixedShape("Cumsum")), A3)
    assert (known.duration_ns, known.accelerator, known.bound) == (53_200, "AI_CPU", "ai_cpu")
    assert price(Work("ai_cpu", FixedShape("Unheard")), A3).duration_ns == 70_000
    assert price(Work("vector", FixedShape("Unheard")), device()).duration_ns == 1100


def test_programs_are_found_by_kind_program_or_shape() -> None:
    assert params_of(Work("vector", FlatShape(1), program="mul"), A3) is A3.programs["elementwise"]
    assert params_of(Work("vector", FlatShape(1), program="swiglu"), A3) is A3.programs["swiglu"]
    assert params_of(Work("vector", RowsShape(1, 1)), A3) is A3.programs["row_wise"]
    assert params_of(matmul(1, 16, 16, dtype="int8", program=""), A3) is A3.programs["quant_matmul"]
    assert params_of(attention((Group(1, 1, 5),)), A3) is A3.programs["attention"]
    assert params_of(attention((Group(1, 1, 5), Group(1, 500, 0))), A3) is A3.programs["attention_prefill"]
    assert params_of(Work("vector", RowsShape(4, 128), program="rms_norm"), A3) is A3.programs["rms_norm_short"]
    assert params_of(Work("vector", RowsShape(4, 4096), program="rms_norm"), A3) is A3.programs["rms_norm"]


def test_shares_and_roofline() -> None:
    time = price(matmul(16, 5120, 3200, "nz"), A3)
    assert time.cube_share == pytest.approx(time.cores / 24)
    assert time.vector_share == 0
    assert time.hbm_share == pytest.approx(time.hbm_bytes / time.duration_ns / A3.memory.hbm_gbps)
    work = matmul(4096, 4096, 4096)
    assert roofline_ns(work, A3) == round(2 * 4096**3 / A3.chip.cube_flops_per_ns)


# -- laws ------------------------------------------------------------------------------------------------

ROWS = st.builds(RowsShape, st.integers(1, 5000), st.integers(1, 20_000))
FLATS = st.builds(FlatShape, st.integers(1, 50_000_000))
NAMES = st.sampled_from(
    sorted(
        set(A3.programs)
        - {"matmul", "quant_matmul", "attention", "attention_prefill", "mla_attention", "static_attention"}
    )
)
BYTES = st.integers(0, 300_000_000)
VECTOR = st.builds(
    Work,
    st.just("vector"),
    ROWS | FLATS,
    st.just(0),
    st.integers(0, 10**9),
    BYTES,
    BYTES,
    BYTES,
    NAMES,
    st.integers(0, 10_000),
)
SIZES = st.integers(1, 9000)
MATMULS = st.builds(matmul, SIZES, SIZES, SIZES, st.sampled_from(["nd", "nz"]), st.sampled_from(["bf16", "int8"]))
GROUPS = st.lists(
    st.builds(Group, st.integers(1, 100), st.sampled_from([1, 2, 64, 700]), st.integers(0, 9000)),
    min_size=1,
    max_size=3,
)
ATTENTIONS = st.builds(lambda groups, kv: attention(tuple(groups), 32, kv), GROUPS, st.sampled_from([1, 8, 32]))
WORKS = VECTOR | MATMULS | ATTENTIONS
RATES = (
    "hbm_gbps", "core_hbm_gbps", "core_l2_gbps", "core_write_gbps", "core_random_gbps", "far_kv_gbps", "l2_read_gbps",
    "l2_write_gbps",
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(WORKS, st.sampled_from(RATES), st.floats(1.0, 10.0))
def test_more_bandwidth_never_makes_a_kernel_slower(work: Work, rate: str, factor: float) -> None:
    faster = replace(A3, memory=replace(A3.memory, **{rate: getattr(A3.memory, rate) * factor}))
    # Tile times are whole nanoseconds, so equal times may differ by what rounding leaves over all tiles.
    slack = 2 + price(work, A3).duration_ns // 1000
    assert price(work, faster).duration_ns <= price(work, A3).duration_ns + slack


@settings(max_examples=200, deadline=None)
@given(WORKS, st.floats(1.0, 4.0))
def test_a_faster_clock_never_makes_a_kernel_slower(work: Work, factor: float) -> None:
    faster = replace(A3, chip=replace(A3.chip, clock_mhz=A3.chip.clock_mhz * factor))
    slack = 2 + price(work, A3).duration_ns // 1000
    assert price(work, faster).duration_ns <= price(work, A3).duration_ns + slack


@settings(max_examples=200, deadline=None)
@given(VECTOR, st.integers(0, 10**8))
def test_more_operations_never_make_a_kernel_faster(work: Work, more: int) -> None:
    slack = 2 + price(work, A3).duration_ns // 1000
    assert (
        price(replace(work, vector_ops=work.vector_ops + more), A3).duration_ns >= price(work, A3).duration_ns - slack
    )


@settings(max_examples=200, deadline=None)
@given(WORKS)
def test_no_kernel_beats_the_roofline(work: Work) -> None:
    time = price(work, A3)
    # Activations in L2 may outrun HBM, so the bound is on what comes from HBM and on the flops.
    assert time.duration_ns >= time.hbm_bytes / max(A3.memory.hbm_gbps, A3.memory.hbm_peak_gbps) * 0.99
    assert 1 <= time.cores <= 48
    assert all(0 <= share <= 1 for share in (time.hbm_share, time.cube_share, time.vector_share, time.ai_cpu_share))


@settings(max_examples=100, deadline=None)
@given(WORKS)
def test_a_repeated_program_is_never_slower_and_never_free(work: Work) -> None:
    assert 0 < price(work, A3, repeat=True).duration_ns <= price(work, A3).duration_ns


def test_prices_are_remembered() -> None:
    assert price(matmul(16, 512, 512), A3) is price(matmul(16, 512, 512), A3)
