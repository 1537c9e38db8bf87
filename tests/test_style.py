"""How the code is written, where no formatter or linter looks: kinds are not compared by name, long calls name their
arguments, and the formatter is switched off for tables only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("scenarios", "sim", "device", "app_pages", "cli.py", "app.py")
CHECKED = (*PRODUCT, "benchmarks")

#: Comparisons of a kind with a name that may stand in the product code. What rooms ask of a kind belongs to its entry
#: in the catalogue, to the record of the layer or to a table.
MAX_COMPARED = 12
#: Arguments of one call that go by place.
MAX_BY_PLACE = 6
#: Callees that take any number of arguments, which have no names.
VARIADIC = frozenset({"Batch", "Group", "_table", "call", "case", "child", "row", "same_type", "zip"})
#: Cells of the smallest table that is laid out by hand.
MIN_CELLS = 6
_ALONE = re.compile(r"\s*[)\]}]  # fmt: skip")


@cache
def _files() -> dict[Path, str]:
    places = [ROOT / name for name in CHECKED]
    files = [file for place in places for file in ([place] if place.is_file() else sorted(place.rglob("*.py")))]
    return {file.relative_to(ROOT): file.read_text(encoding="utf-8") for file in files}


def _nodes(having: str) -> Iterator[tuple[Path, ast.AST]]:
    """(file, node) of the files that have a word."""
    for file, text in _files().items():
        if having in text:
            for node in ast.walk(ast.parse(text)):
                yield file, node


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


@cache
def _long_calls() -> list[tuple[str, str]]:
    """(place, callee) of each call with more arguments by place than may be."""
    return [
        (f"{file}:{node.lineno}", _name(node.func))
        for file, node in _nodes("(")
        if isinstance(node, ast.Call)
        and len([value for value in node.args if not isinstance(value, ast.Starred)]) > MAX_BY_PLACE
    ]


def _compares_kind(node: ast.Compare) -> bool:
    """Whether something called `kind` is held against a text."""
    sides = (node.left, *node.comparators)
    texts = [side for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, str)]
    return isinstance(node.ops[0], ast.Eq) and "kind" in map(_name, sides) and bool(texts)


def _cells(value: ast.expr | None) -> int:
    """Entries of a table, a dict, tuple, list or set, with those of its rows; 0 of anything else, and of calls."""
    if isinstance(value, ast.Dict):
        entries = value.values
    elif isinstance(value, ast.Tuple | ast.List | ast.Set) and not any(isinstance(x, ast.Call) for x in value.elts):
        entries = value.elts
    else:
        return 0
    return sum(len(entry.elts) if isinstance(entry, ast.Tuple | ast.List) else 1 for entry in entries)


def test_the_finders_find() -> None:
    compared = ast.parse('op.kind == "rms_norm"', mode="eval").body
    other = ast.parse('op.kind == kind or op.name == "rms_norm"', mode="eval").body
    assert isinstance(compared, ast.Compare)
    assert _compares_kind(compared)
    assert isinstance(other, ast.BoolOp)
    assert not any(isinstance(part, ast.Compare) and _compares_kind(part) for part in other.values)
    sizes = {"{1: 2, 3: (4, 5)}": 3, "(1, 2, [3, 4])": 4, "f(1, 2, 3)": 0, "(f(1), 2)": 0}
    assert {text: _cells(ast.parse(text, mode="eval").body) for text in sizes} == sizes


def test_kinds_are_asked_of_their_entry() -> None:
    compared = [
        f"{file}:{node.lineno}"
        for file, node in _nodes("kind == ")
        if isinstance(node, ast.Compare) and file.parts[0] in PRODUCT and _compares_kind(node)
    ]
    assert len(compared) <= MAX_COMPARED, "ask the catalogue, the layer or a table: " + ", ".join(compared)


def test_long_calls_name_their_arguments() -> None:
    long = [f"{place}: {callee}" for place, callee in _long_calls() if callee not in VARIADIC]
    assert not long, f"more than {MAX_BY_PLACE} arguments by place: " + ", ".join(long)


def test_no_variadic_callee_is_listed_in_vain() -> None:
    assert {callee for _, callee in _long_calls()} >= VARIADIC


def test_the_formatter_is_off_for_tables_only() -> None:
    """A switch-off stands alone behind the bracket that closes a table."""
    tables = {
        (file, node.end_lineno)
        for file, node in _nodes("# fmt: skip")
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.Return) and _cells(node.value) >= MIN_CELLS
    }
    astray = [
        f"{file}:{number}"
        for file, text in _files().items()
        for number, line in enumerate(text.splitlines(), 1)
        if line.endswith("# fmt: skip") and not (_ALONE.fullmatch(line) and (file, number) in tables)
    ]
    assert not astray, "let the formatter lay out: " + ", ".join(astray)
