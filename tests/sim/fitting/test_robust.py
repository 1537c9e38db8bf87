"""The robust fit: where it starts does not decide whether it moves."""

from __future__ import annotations

from math import log

import pytest

from sim.fitting.robust import fit_logs

pytest.importorskip("scipy", reason="a fit needs the extra `fit`")


@pytest.mark.parametrize("start", [0.5, 1.0, 1.001, 30.0])
def test_a_number_moves_from_any_start_on_times_rounded_to_nanoseconds(start: float) -> None:
    def residuals(values: dict[str, float]) -> list[float]:
        return [log(round(1000 * values["task_us"] * tasks) / (3000 * tasks)) for tasks in (1, 2, 6)]

    assert fit_logs(residuals, {"task_us": start}, prior=0.0)["task_us"] == pytest.approx(3.0, rel=0.01)


def test_limits_hold_wherever_the_fit_starts() -> None:
    found = fit_logs(lambda v: [log(v["rate"] / 5)], {"rate": 1.0}, {"rate": (0.5, 2.0)}, prior=0.0)
    assert found["rate"] == pytest.approx(2.0, rel=0.01)
