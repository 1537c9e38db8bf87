"""Documents laid over one another, and paths into them."""

from __future__ import annotations

from scenarios.files.document import Node, dotted, merge, parse_path
from scenarios.files.yaml12 import load_document


def node(text: str, name: str) -> Node:
    return load_document(text, name).root


def test_a_merge_keeps_the_place_of_each_value() -> None:
    base = node("a: 1\nm: {x: 1, y: [1, 2]}\nz: 5\n", "base")
    over = node("m: {y: [3]}\nb: 2\n", "over")
    merged = merge(base, over)
    assert merged.data() == {"a": 1, "m": {"x": 1, "y": [3]}, "z": 5, "b": 2}
    assert base.data() == {"a": 1, "m": {"x": 1, "y": [1, 2]}, "z": 5}
    marks = {path: str(merged.child("m").child(path).mark) for path in ("x", "y")}  # type: ignore[union-attr]
    assert marks == {"x": "base:2:8", "y": "over:1:8"}


def test_a_null_takes_a_value_back_but_not_a_section() -> None:
    base = node("a: 1\nl: [1]\nm: {x: 1}\n", "base")
    assert merge(base, node("a: null\nl: ~\nnew: ~\n", "over")).data() == {"m": {"x": 1}, "new": None}
    assert merge(base, node("m:\n", "over")).data() == {"a": 1, "l": [1], "m": None}


def test_paths_read_and_print_alike() -> None:
    for where in ("a", "workload.batch", "engine.cudagraph_capture_sizes[2]", "a[0][1].b"):
        assert dotted(parse_path(where)) == where
    assert parse_path("a.b[3].c") == ("a", "b", 3, "c")
    assert dotted(("a", "", "b\n")) == "a.''.b\\n"
