"""A scenario written out: every field with its value, nothing left to `extends`, `--set` or a default."""

from __future__ import annotations

import json
from typing import Any

import yaml

from scenarios.checks import check
from scenarios.schema import Scenario


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
