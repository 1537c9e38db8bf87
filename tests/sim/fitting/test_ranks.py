"""The fit of rank skew, and what it leaves of the steps that it was fitted to and of those that it was not."""

from __future__ import annotations

from math import exp, log, sqrt

import pytest

from sim.accuracy.reference import reference_csv
from sim.accuracy.rows.files import read_steps
from sim.accuracy.steps import case_of_row
from sim.fitting.ranks import FITTED_ROWS, SPREAD_ROWS, fit_rank_skew
from sim.hardware.profile import load_hardware
from sim.predict.predict import Prediction, predict
from sim.predict.steps import Case
from sim.predict.uncertainty import step_interval


@pytest.fixture(scope="module")
def steps() -> dict[str, tuple[Prediction, float]]:
    """Each many-card row with its prediction."""
    predictions = {}
    for row in read_steps(reference_csv("steps")):
        if row.tp > 1:
            case = case_of_row(row)
            assert isinstance(case, Case), case
            predictions[row.id] = predict(case), row.step_ms
    return predictions


def test_the_profiles_numbers_are_what_the_fit_gives() -> None:
    hw = load_hardware("atlas_a3_die")
    fitted = fit_rank_skew(hw)
    assert fitted["host.rank_skew_us"] == pytest.approx(hw.host.rank_skew_us, rel=0.02)
    assert fitted["residual.rank_skew_sigma"] == pytest.approx(hw.residual.rank_skew_sigma, rel=0.02)


def test_the_errors_of_the_fitted_steps_cancel(steps: dict[str, tuple[Prediction, float]]) -> None:
    errors = [log(p.step.total_ns / 1e6 / ms) for p, ms in (steps[name] for name in FITTED_ROWS)]
    assert sum(errors) == pytest.approx(0, abs=0.01)


def test_total_and_communication_of_the_steps_that_state_their_concurrency(
    steps: dict[str, tuple[Prediction, float]],
) -> None:
    # Measured: total, computing, communication, free.
    stated = {
        "qwen3_32b_decode_a3_tp16_c4": (15.38, 10.55, 3.88, 0.97),
        "qwen3_32b_decode_a3_tp16_c16": (19.39, 12.92, 5.19, 1.28),
    }
    for name, (total, computing, communication, free) in stated.items():
        step = steps[name][0].step
        assert step.total_ns / 1e6 == pytest.approx(total, rel=0.12)
        assert step.computing_ns / 1e6 == pytest.approx(computing, rel=0.12)
        assert step.communication_ns / 1e6 == pytest.approx(communication, rel=0.25)
        assert step.free_ns / 1e6 == pytest.approx(free, abs=0.5)


def test_prefills_that_no_fit_has_seen(steps: dict[str, tuple[Prediction, float]]) -> None:
    for name in ("qwen3_32b_prefill_a3_tp16_4112", "qwen3_32b_prefill_a3_tp16_41040"):
        prediction, ms = steps[name]
        assert prediction.step.total_ns / 1e6 == pytest.approx(ms, rel=0.12)


def test_the_intervals_cover_the_decode_steps(steps: dict[str, tuple[Prediction, float]]) -> None:
    for name in SPREAD_ROWS:
        prediction, ms = steps[name]
        low, high = step_interval(prediction.sensitivity, prediction.case.hardware)
        assert low <= ms * 1e6 <= high


def test_the_spread_is_that_of_the_waiting(steps: dict[str, tuple[Prediction, float]]) -> None:
    logs = []
    for name in SPREAD_ROWS:
        prediction, ms = steps[name]
        waiting = prediction.sensitivity.late * prediction.sensitivity.step_ns
        logs.append(log((1e6 * ms - prediction.sensitivity.step_ns + waiting) / waiting))
    sigma = sqrt(sum(x * x for x in logs) / len(logs))
    assert sigma == pytest.approx(load_hardware("atlas_a3_die").residual.rank_skew_sigma, rel=0.02)
    assert exp(sigma) > 2
