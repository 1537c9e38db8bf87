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
from sim.kernel.vector import vector_gbps, vector_program
from sim.kernel.vector_tiling import TILINGS

A3 = load_hardware("atlas_a3_die")


def device(**programs: KernelParams) -> HardwareProfile:
    """Four vector and two cube cores at 1 GHz.

    1 us to start and 0.1 us for each core; a core draws 1 byte/ns from HBM and 2 from L2, and writes 4.
    """
    chip = replace(A3.chip, cube_cores=2, vector_cores=4, clock_mhz=1000, ub_bytes=2000, l2_bytes=10_000)
    memory = replace(
        A3.memory, hbm_gbps=3, hbm_peak_gbps=4, core_hbm_gbps=1, core_l2_gbps=2, core_write_gbps=4, far_kv_gbps=1,
        core_random_gbps=0.5, l2_read_gbps=100, l2_resident_share=0.5, vector_l2_gbps=10,
        vector_hbm_share=0.5, nz_flat_share=0.5, nd_tall_share=0.5, nd_odd_share=0.5,
    )  # fmt: skip
    kernel = replace(
        A3.kernel,
        start_us=1,
        core_us=0.1,
        static_share=0.8,
        warm_share=0.6,
        twin_share=0.2,
        register_cycles=1,
        cube_efficiency=1,
        overlap_power=1,
    )
    plain = {name: KernelParams() for name in ("row_wise", "matmul", "quant_matmul", "attention", "attention_prefill")}
    for name in ("elementwise", "row_wise"):
        plain[name] = KernelParams(start_us=1, core_us=0.1, element_ns=1)
    return replace(A3, chip=chip, memory=memory, kernel=kernel, programs={**plain, **programs}, fixed_us={"ai_cpu": 70})


# -- vector kernels --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("elements", "cores", "ns"), [(1, 1, 1101), (1024, 1, 2124), (1025, 2, 2224), (9999, 4, 3960)])
def test_a_core_is_started_for_each_four_kilobytes(elements: int, cores: int, ns: int) -> None:
    # 1,000 to start, 100 a core, 1 ns an element of the fullest core; a core's share of 9,999 is 2,560.
    time = price(Work("vector", FlatShape(elements)), device())
    assert (time.cores, time.duration_ns) == (cores, ns)


def test_the_fewer_bytes_a_type_has_the_more_elements_fill_a_core() -> None:
    cores = [price(Work("vector", FlatShape(4096, 0, width)), device()).cores for width in (8, 4, 2)]
    assert cores == [4, 4, 2]


def test_a_program_has_its_own_numbers_and_code_that_is_near_costs_less() -> None:
    hw = device(rope=KernelParams(start_us=2, core_us=0.5, element_ns=1))
    work = Work("vector", RowsShape(3, 8), program="rope")
    # Three rows on three cores: 2,000 + 3 x 500 + 8; with 0.8, 0.6 and 0.2 of the cores' cost 3 x 400, 300 and 100.
    assert price(work, hw).duration_ns == 3508
    assert price(work, hw, code="first").duration_ns == 3208
    assert price(work, hw, code="near").duration_ns == 2908
    assert price(work, hw, code="twin").duration_ns == 2308


def test_a_kernel_compiled_for_its_shapes_stretches_while_it_computes() -> None:
    hw = device(broadcast=KernelParams(start_us=2, core_us=0.1, element_ns=3))
    work = Work("vector", FlatShape(4096, 1024, 4), program="broadcast")
    # Four rows on four cores: 2,000 to start, 100 or 60 a core, and 3 ns an element, or the 1 ns of plain ones.
    assert price(work, hw).duration_ns == 2400 + 3 * 1024
    assert price(work, hw, code="near").duration_ns == 2240 + 1024


def test_sums_of_two_bytes_count_half_and_casts_do_not() -> None:
    hw = device(cast=KernelParams(start_us=1, core_us=0.1, element_ns=1))
    # 4,096 elements of FP32 on 4 cores, of FP16 on 2: 1,400 + 1,024 and 1,200 + 2,048 / 2.
    assert price(Work("vector", FlatShape(4096, 0, 4)), hw).duration_ns == 2424
    assert price(Work("vector", FlatShape(4096, 0, 2)), hw).duration_ns == 2224
    assert price(Work("vector", FlatShape(4096, 0, 2), program="cast"), hw).duration_ns == 3248


def test_short_runs_of_memory_and_short_rows_count_more_than_their_elements() -> None:
    hw = device(split=KernelParams(element_ns=1), rms_norm_short=KernelParams(element_ns=1))
    # 64 runs of 64 bytes each way take as long as 64 of 256; 8 runs of 512 bytes take as long as their elements.
    short = Work("vector", FlatShape(2048, 2048), write_bytes=4096, program="split", pieces=128)
    long = Work("vector", FlatShape(2048, 2048), write_bytes=4096, program="split", pieces=16)
    assert price(short, hw).duration_ns == 4 * price(long, hw).duration_ns == 4 * 2048
    # Two rows of 128 on each of four cores, each row 384 elements more.
    assert price(Work("vector", RowsShape(8, 128), program="rms_norm"), hw).duration_ns == 2 * (128 + 384)


def test_row_major_weights_whose_rows_are_no_power_of_two_stream_slower() -> None:
    hw = replace(device(), chip=replace(device().chip, cube_cores=24))
    even, odd = (price(matmul(1, k, 2**20 // k), hw).duration_ns for k in (1024, 1536))
    assert even == pytest.approx(2**21 / 3, rel=0.1)
    assert odd == pytest.approx(2**21 / 1.5, rel=0.1)
    assert price(matmul(1, 1536, 2**20 // 1536, "nz"), hw).duration_ns == pytest.approx(2**21 / 1.5, rel=0.1)


def test_rows_are_whole_on_a_core() -> None:
    hw = device(rope=KernelParams(start_us=1, core_us=0.1, element_ns=1))
    # Nine rows on four cores: three to each, so on three cores.
    assert price(Work("vector", RowsShape(9, 8), program="rope"), hw).duration_ns == 1300 + 24


def test_a_norm_is_the_program_of_its_rows() -> None:
    chip = A3.chip
    assert vector_program(Work("vector", RowsShape(4, 128), program="rms_norm"), chip) == "rms_norm_short"
    assert vector_program(Work("vector", RowsShape(4, 4096), program="rms_norm"), chip) == "rms_norm"
    assert vector_program(Work("vector", RowsShape(48, 4096), program="add_rms_norm"), chip) == "add_rms_norm"
    assert vector_program(Work("vector", RowsShape(49, 4096), program="add_rms_norm"), chip) == "add_rms_norm_rows"
    assert vector_program(Work("vector", RowsShape(4, 513), program="dynamic_quant"), chip) == "dynamic_quant_odd"
    assert vector_program(Work("vector", RowsShape(4, 5), program="unheard"), chip) == "row_wise"
    assert vector_program(Work("vector", FlatShape(5), program="unheard"), chip) == "elementwise"


def test_every_program_of_the_table_has_a_law_in_every_npu_profile() -> None:
    for name in ("atlas_a2_910b2", "atlas_a3_die", "950pr", "generic"):
        programs = load_hardware(name).programs
        assert {program for program in TILINGS if not programs[program].start_us} == set(), name


def test_cann_85_takes_eight_rows_at_once_for_the_largest() -> None:
    work = Work("vector", RowsShape(6, 151_936), program="argmax")
    old, new = price(work, A3), price(work, load_hardware("atlas_a2_910b2"))
    assert (old.cores, new.cores) == (1, 6)
    assert old.duration_ns > 4 * new.duration_ns  # 105 us measured, against 23


def test_bytes_come_from_l2_while_they_fit() -> None:
    hw = device()  # 5,000 of 10,000 bytes survive from kernel to kernel
    fits = traffic(Work("vector", FlatShape(1), 0, 0, 100, 2000, 3000), hw)
    assert (fits.hbm_read, fits.l2_read, fits.hbm_write, fits.l2_write) == (100, 2000, 0, 3000)
    # 1,000 bytes too many drive as many out: 2,000 of the 6,000 go to HBM.
    over = traffic(Work("vector", FlatShape(1), 0, 0, 0, 3000, 3000), hw)
    assert (over.hbm_read, over.l2_read, over.hbm_write, over.l2_write) == pytest.approx((1000, 2000, 1000, 2000))
    again = traffic(Work("vector", FlatShape(1), 0, 0, 4000, 0, 1000), hw, resident=True)
    assert (again.hbm, again.l2_read) == (0, 4000)


def test_moving_sets_the_pace_of_a_large_kernel() -> None:
    hw = device()  # from L2 at 10 bytes/ns up to 3,333 bytes, from HBM at half of 3 from 6,667 on
    assert vector_gbps(3333, hw, resident=False) == pytest.approx(10)
    assert vector_gbps(7000, hw, resident=False) == 1.5
    assert vector_gbps(10_000, hw, resident=True) == 3
    time = price(Work("vector", FlatShape(1), 0, 0, 0, 6000, 3000), hw)
    assert (time.duration_ns, time.bound) == (1100 + 6000, "hbm")


def test_few_cores_draw_their_own_rate_and_many_share_hbm() -> None:
    assert [hbm_rate(cores, device()) for cores in (1, 2, 3, 4)] == [1, 2, 3, 3]
    assert hbm_rate(4, device(), share=0.5) == 1.5


def test_rows_of_a_table_are_not_a_stream() -> None:
    hw = device(gather=KernelParams(start_us=1, core_us=0.1))
    # 100 rows of 40 bytes on four cores, each at 0.5 byte/ns.
    work = Work("vector", RowsShape(100, 20), 0, 0, 4000, program="embedding")
    assert price(work, hw).duration_ns == 1400 + 2000


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
        return price(work, A3).duration_ns - price(work, A3, code="twin").duration_ns

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


@pytest.mark.parametrize(("row", "elements"), [(576, 576 + 512), (512, 1024), (64, 128)])
def test_what_is_read_again_as_values_is_no_more_than_the_row(row: int, elements: int) -> None:
    # Latent rows of 576; rows that are keys and values alike; keys of an indexer of 128, half as wide here.
    hw = device(mla_attention=KernelParams(element_ns=4))
    shape = AttentionShape((Group(1, 1, 199),), 1, 1, row, "bf16", 0)
    time = price(Work("mix", shape, 0, 0, 0, 0, 0, "mla_attention"), hw)
    assert time.duration_ns == 100 * elements * 4


def test_a_static_cache_is_read_whole() -> None:
    short, full = (static(1, n) for n in (10, 1023))
    assert short == full
    # 16 requests x 2 KV heads: 32 tasks, two for the fullest cube; 64 requests: three waves of two.
    params = A3.programs["static_attention"]
    task = 1000 * params.row_us + 1024 * (512 / A3.memory.core_kv_gbps + 256 * params.element_ns)
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
    assert 0 < price(work, A3, code="twin").duration_ns <= price(work, A3).duration_ns


def test_prices_are_remembered() -> None:
    assert price(matmul(16, 512, 512), A3) is price(matmul(16, 512, 512), A3)
