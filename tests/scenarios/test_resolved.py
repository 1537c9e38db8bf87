"""A scenario written out is the same scenario, whatever it was composed of."""

from __future__ import annotations

import pytest

from scenarios.loader import load_scenario, load_text, shipped_names
from scenarios.resolved import resolved_yaml


@pytest.mark.parametrize("name", shipped_names())
def test_a_shipped_scenario_comes_back(name: str) -> None:
    scenario = load_scenario(name).scenario
    assert load_text(resolved_yaml(scenario), "resolved.yaml").scenario == scenario


def test_settings_are_in_the_file_and_not_lost() -> None:
    sets = ["optimizations.kv.dtype=int8", "engine.cudagraph_capture_sizes=[1, 2, 8]", "description='1e3: on'"]
    scenario = load_scenario("qwen3_0_6b_decode", sets).scenario
    text = resolved_yaml(scenario)
    assert "dtype: int8" in text
    assert "extends" not in text
    assert load_text(text, "resolved.yaml").scenario == scenario
