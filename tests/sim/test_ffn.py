"""A feed-forward layer in one kernel: its grid as the operator lays it, its time by hand, when it pays and when not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.ops.catalogue import work_of
from scenarios.ops.program import Op, Tensor
from scenarios.ops.work import FfnShape, Work
from sim.hardware import HardwareProfile, load_hardware
from sim.hardware.sections import KernelParams
from sim.kernel.ffn import Layout, first_layout, second_layout
from sim.kernel.price import price, roofline_ns
from tests.sim.test_kernel import device

A3 = load_hardware("atlas_a3_die")
#: Qwen2.5-0.5B and Qwen3-8B: (hidden, intermediate).
SMALL, LARGE = (896, 4864), (4096, 12288)


def tensor(name: str, *shape: int) -> Tensor:
    return Tensor(name, shape, "fp16", "weight" if name.startswith("w") else "activation")


def fused(m: int, hidden: int, intermediate: int) -> Work:
    inputs = tensor("x", m, hidden), tensor("w1", 2 * intermediate, hidden), tensor("w2", hidden, intermediate)
    return work_of(Op("ffn", "ffn", inputs, (tensor("y", m, hidden),)))


def apart(m: int, hidden: int, intermediate: int) -> list[Work]:
    """Packed projection, SwiGLU, down projection."""
    packed, gated = tensor("p", m, 2 * intermediate), tensor("g", m, intermediate)
    return [
        work_of(Op("matmul", "gate_up", (tensor("x", m, hidden), tensor("w", 2 * intermediate, hidden)), (packed,))),
        work_of(Op("swiglu", "swiglu", (packed,), (gated,))),
        work_of(Op("matmul", "down", (gated, tensor("w", hidden, intermediate)), (tensor("y", m, hidden),))),
    ]


def gain(m: int, hidden: int, intermediate: int, hw: HardwareProfile = A3) -> float:
    """Three kernels / one, above 1 where the one is faster."""
    three = sum(price(work, hw).duration_ns for work in apart(m, hidden, intermediate))
    return three / price(fused(m, hidden, intermediate), hw).duration_ns


# -- the grid --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("m", "layer", "first", "second"),
    [
        # 19 blocks of 256 columns, so two rows of shares over 48 vector cores; 7 of 128, three over 24 cube cores.
        (2080, SMALL, Layout(38, 1040, 256, 128, 256), Layout(21, 704, 128, 128, 128)),
        # Few rows: one share of rows, and blocks of 16 rows.
        (10, SMALL, Layout(19, 16, 256, 16, 256), Layout(7, 16, 128, 16, 128)),
        (100, SMALL, Layout(38, 64, 256, 64, 256), Layout(21, 48, 128, 32, 128)),
        # Columns for all cores; 32 blocks of 128 are more than 24 cores, which take 176 columns each.
        (2048, LARGE, Layout(48, 2048, 256, 128, 256), Layout(24, 2048, 176, 128, 128)),
        # A narrow shard halves the block.
        (256, (1024, 200), Layout(32, 16, 128, 16, 128), Layout(24, 96, 128, 64, 128)),
    ],
)
def test_the_grid_is_laid_down(m: int, layer: tuple[int, int], first: Layout, second: Layout) -> None:
    shape = FfnShape(m, *layer, "fp16")
    assert (first_layout(shape, A3), second_layout(shape, A3)) == (first, second)


@settings(max_examples=200)
@given(st.integers(1, 9000), st.integers(1, 600), st.integers(1, 1200))
def test_shares_cover_the_products_and_fit_the_cores(m: int, hidden16: int, intermediate16: int) -> None:
    shape = FfnShape(m, 16 * hidden16, 16 * intermediate16, "fp16")
    for grid, n, cores in (
        (first_layout(shape, A3), shape.intermediate, A3.chip.vector_cores),
        (second_layout(shape, A3), shape.hidden, A3.chip.cube_cores),
    ):
        assert grid.shares <= cores
        assert grid.shares * grid.rows * grid.cols >= m * n
        assert 4 * grid.height * grid.width <= A3.chip.l0c_bytes


# -- the time --------------------------------------------------------------------------------------------


def test_a_layer_by_hand() -> None:
    # [16, 16] x [16, 2 x 64], x [64, 16] on one of two cube cores: a share of one block of gate and one of up.
    #   start 1000
    #   first 2 x 4 cycles + weights 4096 B at 1 B/ns + 512 in + 4096 out at 1 B/ns
    #   activation 1,024 elements at 1 ns, then 6,144 B of which L2 holds 16 %: at 1.73 B/ns
    #   meeting as a start on two cores; second 4 cycles + weights 2048 + 2048 in + 512 out
    time = price(fused(16, 16, 64), device())
    assert time.duration_ns == 1000 + (8 + 4096 + 4608) + (1024 + 3550) + 1200 + (4 + 2048 + 2560)
    assert (time.accelerator, time.cores, time.flops) == ("MIX_AIC", 2, 6 * 16 * 16 * 64)


def test_the_cube_waits_for_each_block_but_those_that_wait_for_weights_anyway() -> None:
    # 512 rows on the small device are shares of 128 and more: with an L1 of 64 bytes nothing is waited for to speak of.
    work, hw = fused(512, 64, 256), device(swiglu=KernelParams())
    hw = replace(hw, memory=replace(hw.memory, vector_hbm_share=1e6, vector_l2_gbps=1e6))  # the cube sets the pace
    shape = work.shape
    assert isinstance(shape, FfnShape)
    grid = first_layout(shape, hw)
    assert (grid.shares, grid.rows, grid.cols, grid.height) == (4, 512 // 4, 256, 128)
    longer = fused(1024, 64, 256)
    assert first_layout(FfnShape(1024, 64, 256, "fp16"), hw).rows == 256
    small_l1 = replace(hw, chip=replace(hw.chip, l1_bytes=64))
    # Rows of 128 B are no whole lines, so L1 fills at half of 2 B/ns.
    # One block in a share: no wait. Two blocks: the second one of gate and of up, for both vector cores of a cube core.
    assert price(work, hw).duration_ns == price(work, small_l1).duration_ns
    block_bytes = 2 * 64 * (128 + 256)
    assert price(longer, hw).duration_ns - price(longer, small_l1).duration_ns == 4 * (block_bytes - 32)


def test_cores_that_the_grid_leaves_out_make_it_slower() -> None:
    # 19 blocks of 256 columns keep 19 of 24 cube cores busy, 24 keep all; the work grows by 24 / 19 all the same.
    few, all_of_them = (price(fused(2080, 896, 256 * blocks), A3).duration_ns for blocks in (19, 24))
    assert all_of_them / few < 1.1 < 24 / 19


@settings(max_examples=100)
@given(st.integers(1, 5000), st.integers(1, 400), st.integers(1, 1000))
def test_no_layer_beats_the_roofline_or_its_own_start(m: int, hidden16: int, intermediate16: int) -> None:
    work = fused(m, 16 * hidden16, 16 * intermediate16)
    time = price(work, A3)
    assert time.duration_ns >= roofline_ns(work, A3, time.hbm_bytes)
    assert time.duration_ns >= price(fused(1, 16, 16), A3).duration_ns / 2
    assert 0 <= time.hbm_bytes <= 2 * work.gm_bytes


@pytest.mark.parametrize("layer", [SMALL, LARGE])
def test_more_tokens_never_take_less(layer: tuple[int, int]) -> None:
    times = [price(fused(m, *layer), A3).duration_ns for m in (1, 16, 64, 256, 512, 1024, 2048, 4096)]
    assert times == sorted(times)


# -- when it pays ----------------------------------------------------------------------------------------


def test_it_lost_where_it_was_measured_to_lose() -> None:
    # A3 die, 2,080 tokens of Qwen2.5-0.5B: 386.5 us fused against 323.1 us (fengz72/qwen2.5-varlen-npu).
    assert gain(2080, *SMALL) < 0.97
    assert price(fused(2080, *SMALL), A3).duration_ns / 1000 == pytest.approx(386.5, rel=0.05)
    assert sum(price(work, A3).duration_ns for work in apart(2080, *SMALL)) / 1000 == pytest.approx(323.1, rel=0.12)


def test_the_cube_multiplies_for_less_than_half_of_it() -> None:
    # Measured: 43.5 % of the cube's cycles are multiplications. Not fitted, as nothing here is.
    time = price(fused(2080, *SMALL), A3)
    assert time.flops / A3.chip.cube_flops_per_ns / time.duration_ns == pytest.approx(0.435, abs=0.05)


@pytest.mark.parametrize("m", [1, 16, 64])
def test_a_decode_step_of_a_large_model_hardly_gains(m: int) -> None:
    assert 0.95 < gain(m, *LARGE) < 1.15


def test_a_decode_step_of_a_small_model_loses_the_cores_that_draw_its_weights() -> None:
    assert gain(10, *SMALL) < 1.0 < gain(10, *LARGE)


def test_without_cores_left_out_and_waits_it_would_not_have_lost() -> None:
    # 24 blocks of columns on 24 cube cores, and blocks that are there when they are asked for.
    at_once = replace(A3, chip=replace(A3.chip, l1_bytes=0))
    assert gain(2080, 896, 24 * 256, at_once) > 1.1 * gain(2080, 896, 24 * 256)
