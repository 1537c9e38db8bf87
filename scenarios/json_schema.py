"""The JSON Schema of a scenario file, which editors complete from.

`scenarios/schema.json` is this text; a test holds the two equal. `python -m scenarios.json_schema` prints it.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from scenarios.schema import Scenario


class _WithoutFieldTitles(GenerateJsonSchema):
    """A title such as "Max Num Seqs" next to `max_num_seqs` tells an editor nothing."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schema_json() -> str:
    """The schema as text: two spaces, keys in the order of declaration, a line feed at the end."""
    generated = Scenario.model_json_schema(schema_generator=_WithoutFieldTitles)
    extends = {
        "type": "string",
        "minLength": 1,
        "description": "The scenario that this file changes: relative to this one, or a shipped scenario's name.",
    }
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Ascend What-If scenario",
        "description": "What to run, on what hardware, with which optimisations. Every field has a default.",
        "type": "object",
        "additionalProperties": False,
        "properties": {"extends": extends, **generated["properties"]},
        "$defs": generated["$defs"],
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(schema_json(), end="")
