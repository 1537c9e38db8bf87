"""The plain roofline by hand: a bound on flops, one on bytes, a static start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scenarios.ops.program import Block, Op, Program, Tensor
from scenarios.ops.work import CollectiveShape, FlatShape, MatmulShape, Work
from sim.accuracy.roofline import program_roofline_us, roofline_us
from tests.scenarios.making import program, scenario
from tests.sim.hardware_maker import hardware

#: 2 x 16 x 16 x 16 x 24 cores x 1.8 GHz = 353.9 TFLOPS; 1,800 GB/s.
HW = hardware(memory__hbm_peak_gbps=1800.0)
TALL = MatmulShape(1, 8192, 8192, 8192, "bf16", "bf16", "nd")


def product(shape: MatmulShape, **of) -> Work:
    return Work("cube", shape, cube_flops=2 * shape.m * shape.k * shape.n, **of)


def test_a_product_that_is_bound_by_flops() -> None:
    # 1.0995e12 flops at 0.7 x 353.9 TFLOPS are 4,438 us.
    assert roofline_us(product(TALL), HW) == pytest.approx(2 * 8192**3 / (0.7 * 353_894.4) / 1000 + 5)


def test_int8_multiplies_twice_as_fast() -> None:
    int8 = replace(TALL, dtype="int8", weight_dtype="int8")
    assert roofline_us(product(int8), HW) - 5 == pytest.approx((roofline_us(product(TALL), HW) - 5) / 2)


def test_a_vector_kernel_that_is_bound_by_bytes() -> None:
    # 60 MB read and 30 MB written at 0.6 x 1,800 GB/s: 83.3 us, and 2 us to start.
    work = Work("vector", FlatShape(1), warm_read_bytes=60_000_000, write_bytes=30_000_000)
    assert roofline_us(work, HW) == pytest.approx(90_000_000 / 1080 / 1000 + 2)


def test_the_start_of_nothing() -> None:
    assert [roofline_us(Work(unit, FlatShape(1)), HW) for unit in ("cube", "mix", "vector", "ai_cpu", "copy")] == [
        5.0,
        5.0,
        2.0,
        2.0,
        2.0,
    ]


def test_a_collective_is_its_bytes_on_one_link() -> None:
    work = Work("link", CollectiveShape("all_reduce", 6_000_000, 8), warm_read_bytes=6_000_000)
    hw = hardware(collective__hccs_peak_gbps=100.0)
    assert roofline_us(work, hw) == pytest.approx(6_000_000 / 60 / 1000 + 10)


def test_a_step_adds_up_and_repeats_its_layers() -> None:
    result = program(scenario())
    x = Tensor("x", (1_000_000,), "bf16")
    one = Block("layers", (Op("neg", "neg", (x,), (x,)),), repeat=3)
    each = 4_000_000 / 1080 / 1000 + 2
    assert program_roofline_us(Program((one,), result.batch), HW) == pytest.approx(3 * each)
