"""Whatever stands in a file or on the command line, the loader gives a Scenario or located lines, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.errors import ScenarioError
from scenarios.loader import load_scenario
from scenarios.schema import Scenario
from tests.examples import examples

FILES = Path(__file__).parent / "files"
SEED_TEXT = (FILES / "base.yaml").read_text(encoding="utf-8") + "protocol: {seed: 1, synchronize: step}\n"
FRAGMENTS = [
    *("0", "-1", "1e400", "null", "yes", "4k", "[", "]", "{", "}", ": ", "\n", "  ", "- ", "&a ", "*a", "!!x ", "<<: "),
    *("workload", "batch: 2\n", "graph: aclgraph\n", '"', "'", "#", "\t", "é", "\0", "extends: base\n", "---\n"),
]


@examples(300)
@given(
    st.lists(
        st.tuples(st.integers(0, len(SEED_TEXT)), st.integers(0, 12), st.sampled_from(FRAGMENTS) | st.text(max_size=4)),
        min_size=1,
        max_size=4,
    )
)
def test_a_mutated_scenario_loads_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, int, str]]
) -> None:
    text = SEED_TEXT
    for start, length, new in edits:
        text = text[:start] + new + text[start + length :]
    path = tmp_path_factory.getbasetemp() / "mutated.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    loads_or_is_refused(path)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-10, 10**7)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["decode", "paged", "int8", "aclgraph", "w8a8", "4k", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["batch", "kv", "dtype", "x"]), inner),
    max_leaves=4,
)
KEYS = [
    f"{section}.{name}"
    for section, part in (("workload", "workload"), ("engine", "engine"), ("protocol", "protocol"))
    for name in type(getattr(Scenario(), part)).model_fields
]
KEYS += [
    f"optimizations.{part}.{name}"
    for part in ("fusion", "kv", "overlap")
    for name in type(getattr(Scenario().optimizations, part)).model_fields
]
KEYS += ["optimizations.graph", "optimizations.weights", "model", "workload", "optimizations", "x.y", "x"]


@examples(300)
@given(st.lists(st.tuples(st.sampled_from(KEYS), VALUES), max_size=4), st.text(max_size=12))
def test_any_setting_loads_or_is_refused(pairs: list[tuple[str, Any]], junk: str) -> None:
    loads_or_is_refused(FILES / "base.yaml", *(f"{key}={json.dumps(value)}" for key, value in pairs))
    loads_or_is_refused(FILES / "base.yaml", junk, f"workload.batch={junk}", f"{junk}=1")


def loads_or_is_refused(path: Path, *sets: str) -> None:
    try:
        loaded = load_scenario(path, sets, shipped=FILES)
    except ScenarioError as error:
        odd = [
            m for m in error.messages or ("",) if not m.isprintable() or not m.startswith((str(path.parent), "--set "))
        ]
        if odd:
            pytest.fail(f"not one located line each: {odd}")
    else:
        assert Scenario.model_validate(loaded.scenario.model_dump()) == loaded.scenario
