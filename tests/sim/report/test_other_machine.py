"""A profile that is plainly of another machine is called so, with the command that makes one of this machine."""

from __future__ import annotations

import pytest

from sim.report.measured import other_machine


def of(times: float, backend: str = "cpu") -> str:
    """The line where the device takes `times` as long as is predicted."""
    return other_machine({"backend": backend, "errors": {"steady_step": 1 / times - 1}}, "cpu")


@pytest.mark.parametrize("times", [8.25, 0.25])
def test_a_step_far_from_its_prediction_names_the_command(times: float) -> None:
    line = of(times)
    assert line.startswith("profile cpu is of another machine")
    assert f"takes {times:.1f} times as long" in line
    assert "`whatif calibrate --backend cpu --out my_cpu.yaml`, then --set hardware=my_cpu.yaml" in line


@pytest.mark.parametrize(("times", "backend"), [(1.0, "cpu"), (1.4, "cpu"), (0.7, "cpu"), (8.0, "npu")])
def test_what_may_be_an_error_of_the_model_does_not(times: float, backend: str) -> None:
    assert of(times, backend) == ""
