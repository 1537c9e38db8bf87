"""Host costs from two measurements: the equations by hand, and the shipped numbers as their solution."""

from __future__ import annotations

from statistics import mean

import pytest

from sim.accuracy.ablations import measured_gain
from sim.accuracy.reference import reference_csv
from sim.accuracy.rows.files import read_steps
from sim.fitting.host import GAIN_ROW, _solve, fit_host
from sim.hardware.profile import load_hardware


def test_two_equations_are_solved() -> None:
    # 100 a + 10 f + 50 = 1550 and 20 a + 20 f + 30 = 630: a = 13.333, f = 16.667.
    a, f = _solve((100, 10, 50.0), 1550.0, (20, 20, 30.0), 630.0)
    assert 100 * a + 10 * f + 50 == pytest.approx(1550)
    assert 20 * a + 20 * f + 30 == pytest.approx(630)
    assert (a, f) == (pytest.approx(40 / 3), pytest.approx(50 / 3))


def test_the_shipped_numbers_are_the_fit() -> None:
    hw = load_hardware("atlas_a2_910b2")
    host = fit_host(hw)
    assert set(host) == {"host.aten_python_us", "host.matmul_python_us", "host.fused_op_python_us"}
    for name, value in host.items():
        assert hw.profile.numbers()[name].source == "fitted"
        assert getattr(hw.host, name.partition(".")[2]) == pytest.approx(value, rel=0.01)


def test_the_fit_does_not_hang_on_what_it_fits() -> None:
    """The numbers that it replaces may be anything: calibration starts from whatever stands in the profile."""
    from dataclasses import replace

    hw = load_hardware("atlas_a2_910b2")
    other = replace(hw, host=replace(hw.host, aten_python_us=1.0, matmul_python_us=2.0, fused_op_python_us=3.0))
    assert fit_host(other) == pytest.approx(fit_host(hw))


def test_the_fit_rests_on_the_eager_steps_and_one_gain() -> None:
    eager = [r for r in read_steps(reference_csv("steps")) if r.fitted and "optimizations.graph=eager" in r.settings]
    eager = [r for r in eager if r.cards == 1 and r.phase == "decode"]
    assert [(r.model, r.batch) for r in eager] == [("Qwen3-8B", batch) for batch in (1, 4, 16, 64, 256)]
    assert mean(r.step_ms for r in eager) == pytest.approx(66.0432)
    assert measured_gain(reference_csv("ladders"), GAIN_ROW) == pytest.approx((1.3 * 1.55) ** 0.5)
