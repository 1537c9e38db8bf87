"""`whatif list` and `whatif schema`: what ships, by the names that scenarios use."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from scenarios.loader import shipped_names
from scenarios.models.families import FAMILIES
from scenarios.models.hf_config import model_names
from scenarios.passes import PASSES
from sim.hardware.profile import hardware_names

WhatIf = Callable[..., Any]

NAMES = {
    "scenarios": shipped_names(),
    "models": model_names(),
    "hardware": hardware_names(),
    "passes": [f"{item.switch}={str(item.on).lower()}" for item in PASSES],
}
MUST_SHIP = {
    "scenarios": {"qwen3_8b_decode", "qwen3_8b_910b2_eager"},
    "models": {"Qwen3-0.6B", "Qwen3-8B", "Qwen3-32B", "Qwen2.5-7B", "Llama-3.1-8B", "Llama-3.1-70B"},
    "hardware": {f"atlas_a2_910b{n}" for n in (1, 2, 3, 4)} | {"atlas_a3_die", "atlas_a3_die_20", "950pr", "generic"},
    "passes": {"graph=ge_graph", "fusion.rms_norm=true", "weights=w8a8", "kv.dtype=int8", "kv.layout=paged"},
}


@pytest.mark.parametrize("what", NAMES)
@pytest.mark.parametrize("columns", [80, 132, 200])
def test_a_list_names_all_that_ships_in_full(
    whatif: WhatIf, monkeypatch: pytest.MonkeyPatch, what: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    done = whatif("list", what)
    assert (done.status, done.err) == (0, "")
    first_words = [line.split()[0] for line in done.out.splitlines() if line and not line.startswith(" ")]
    assert [word for word in first_words if word in NAMES[what]] == NAMES[what]
    assert set(NAMES[what]) >= MUST_SHIP[what]
    assert max(len(line) for line in done.out.splitlines()) <= columns
    assert "…" not in done.out


def test_without_an_argument_everything_is_listed(whatif: WhatIf) -> None:
    done = whatif("list")
    assert done.status == 0
    for names in NAMES.values():
        assert all(name in done.out for name in names)


def test_an_unknown_list_is_refused_with_the_nearest(whatif: WhatIf) -> None:
    done = whatif("list", "modles")
    expected = "list: 'modles' is not one of scenarios, models, hardware, passes. Did you mean 'models'?"
    assert (done.status, done.out, done.problems) == (2, "", [expected])


def test_the_schema_is_json_and_knows_the_switches(whatif: WhatIf) -> None:
    done = whatif("schema")
    assert (done.status, done.err) == (0, "")
    schema = json.loads(done.out)
    assert {"model", "hardware", "workload", "engine", "optimizations", "protocol", "extends"} <= set(
        schema["properties"]
    )
    assert schema["additionalProperties"] is False


def test_the_families_that_a_config_may_be_of_are_listed(whatif: WhatIf) -> None:
    out = whatif("list", "models").out
    assert "Families: any config.json of these runs" in out
    assert all(f"  {name}" in out for name in FAMILIES)
