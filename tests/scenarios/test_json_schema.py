"""The committed JSON Schema is the generated one, and knows what editors need."""

from __future__ import annotations

import json
from pathlib import Path

from scenarios.json_schema import schema_json


def test_the_committed_schema_is_the_generated_one(root: Path) -> None:
    committed = (root / "scenarios" / "schema.json").read_text(encoding="utf-8")
    assert committed == schema_json(), "run: python -m scenarios.json_schema > scenarios/schema.json"


def test_the_schema_has_what_editors_complete_from() -> None:
    schema = json.loads(schema_json())
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert list(schema["properties"])[:4] == ["extends", "description", "model", "hardware"]
    assert schema["additionalProperties"] is False
    batch = schema["$defs"]["Workload"]["properties"]["batch"]
    assert (batch["minimum"], batch["default"], batch["unit"]) == (1, 1, "requests")
    assert batch["description"] == "Requests that run together, per data-parallel replica."
    assert schema["$defs"]["Optimizations"]["properties"]["graph"]["enum"] == [
        "eager",
        "aclgraph",
        "npugraph_ex",
        "ge_graph",
    ]
    assert schema["$defs"]["KvCache"]["additionalProperties"] is False


def test_every_field_is_described() -> None:
    schema = json.loads(schema_json())
    parts = {"Scenario": schema, **schema["$defs"]}
    bare = [
        f"{part}.{name}"
        for part, body in parts.items()
        for name, field in body["properties"].items()
        if not _said(field)
    ]
    assert bare == []


def _said(field: dict[str, str]) -> bool:
    """A section needs no words next to those of its class."""
    return bool(field.get("description")) or "$ref" in field
