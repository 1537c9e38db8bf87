"""A scenario written out: every field with its value, nothing left to `extends`, `--set` or a default."""

from __future__ import annotations

import json
from typing import Any

import yaml

from scenarios.checks import check
from scenarios.schema import Scenario
from scenarios.traffic_checks import ONLY_WITH_TRAFFIC


def resolved_yaml(scenario: Scenario) -> str:
    """The scenario as a file that `load_scenario` reads back as the same scenario.

    Left out are values that follow from other fields (null in the schema), and those without effect here, which a file
    must not set.
    """
    document = scenario.model_dump(mode="json", exclude_none=True)
    while problems := check(Scenario.model_validate_json(json.dumps(document))):
        for problem in problems:
            _remove(document, problem.where.split("."))
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)
    return text


def _remove(document: dict[str, Any], path: list[str]) -> None:
    for key in path[:-1]:
        document = document[key]
    del document[path[-1]]


#: What a row of the reference says in columns of its own, and what only decides whether a deployment fits.
_NOT_IN_ROWS = (
    "tensor_parallel_size", "data_parallel_size", "enable_expert_parallel", "max_num_seqs", "max_num_batched_tokens",
    "max_model_len", "allow_long_max_model_len", "gpu_memory_utilization", "profile", "async_scheduling",
    *ONLY_WITH_TRAFFIC,
)  # fmt: skip


def settings_of(scenario: Scenario) -> list[str]:
    """The `--set` pairs that a row of measurements needs next to its columns: optimisations, and what of the engine
    moves a step, where they are not the defaults."""
    plain = Scenario().model_dump(mode="json")
    given = scenario.model_dump(mode="json", exclude_none=True)
    engine = {key: value for key, value in given["engine"].items() if key not in _NOT_IN_ROWS}
    pairs = [
        *_pairs("engine", engine, plain["engine"]),
        *_pairs("optimizations", given["optimizations"], plain["optimizations"]),
    ]
    for part, key in (("workload", "sampling"), ("protocol", "synchronize")):
        if given[part][key] != plain[part][key]:
            pairs.append(f"{part}.{key}={given[part][key]}")
    return pairs


def _pairs(where: str, values: dict[str, Any], plain: dict[str, Any]) -> list[str]:
    pairs: list[str] = []
    for key, value in values.items():
        if isinstance(value, dict):
            pairs += _pairs(f"{where}.{key}", value, plain.get(key) or {})
        elif value != plain.get(key):
            pairs.append(f"{where}.{key}={json.dumps(value) if not isinstance(value, str) else value}")
    return pairs
