"""Predictions as steps to replay, as `--trace` writes them: with the shapes of kernels and nothing of the Program."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scenarios.loader import load_scenario
from scenarios.timeline import Timeline
from sim.predict.predict import predict
from sim.predict.scenario_result import case_of, kernel_args
from sim.report.sides import with_args


@pytest.fixture(scope="session")
def predicted() -> Callable[..., Timeline]:
    """`predicted(scenario, *settings)`: its timeline, predicted once."""
    known: dict[tuple[str, ...], Timeline] = {}

    def get(scenario: str, *settings: str) -> Timeline:
        key = (scenario, *settings)
        if key not in known:
            prediction = predict(case_of(load_scenario(scenario, settings)))
            known[key] = with_args(prediction.timeline, kernel_args(prediction))
        return known[key]

    return get
