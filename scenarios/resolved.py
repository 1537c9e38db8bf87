"""A scenario written out: every field with its value, nothing left to `extends`, `--set` or a default."""

from __future__ import annotations

import yaml

from scenarios.schema import Scenario


def resolved_yaml(scenario: Scenario) -> str:
    """The scenario as a file that `load_scenario` reads back as the same scenario. Defaults that are computed from other
    fields (null in the schema) are left out."""
    document = scenario.model_dump(mode="json", exclude_none=True)
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)
    return text
