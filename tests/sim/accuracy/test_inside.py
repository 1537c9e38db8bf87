"""Kernels inside a step, compared by the part they play."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scenarios.errors import ScenarioError
from sim.accuracy.inside import part_of, parts_inside, weighted_error
from sim.accuracy.rows.files import StepKernels, kernels_of
from tests.sim.plans import launch

MATMULS, NORMS = StepKernels("MatMul", 2, 50.0), StepKernels("InplaceAddRmsNorm", 4, 5.0)


def test_errors_that_cancel_in_the_total_show_inside() -> None:
    # Products 80 us for 100, norms 40 us for 20: 120 us both ways, and yet 40 of 120 us are wrong.
    predicted = [
        replace(launch("k", ns), op_type=op_type)
        for op_type, ns in (("MatMulV2", 40_000), ("MatMulV2", 40_000), ("RmsNorm", 40_000), ("Add", 9_000))
    ]
    products, norms = parts_inside((MATMULS, NORMS), predicted)
    assert (products.name, products.measured, products.predicted) == ("matrix products", 2, 2)
    assert (products.error, norms.error) == (pytest.approx(-0.2), pytest.approx(1.0))
    assert weighted_error((products, norms)) == pytest.approx(40 / 120)
    assert weighted_error(()) is None


def test_stacks_run_one_part_by_different_kernels() -> None:
    assert part_of("InplaceAddRmsNorm") == part_of("RmsNorm") == "norms"
    assert part_of("IncreFlashAttention") == part_of("FusedInferAttentionScore") == "attention"
    assert part_of("Scatter") == part_of("ReshapeAndCacheNdKernel") == "cache writes"
    assert part_of("Tril") == "Tril"


def test_the_column_of_a_steps_file() -> None:
    assert kernels_of("MatMul 2 50;InplaceAddRmsNorm 4 5.0", "f:2") == (MATMULS, NORMS)
    assert kernels_of("", "f:2") == ()
    with pytest.raises(ScenarioError, match="f:2: kernels: must be op type, count and mean us, got 'MatMul 2'"):
        kernels_of("MatMul 2", "f:2")
