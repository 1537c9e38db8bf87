"""The tower: inside a package no room imports one above it, and no modules import one another in a circle.

A room is a folder or a module directly below a package. Imports count wherever they stand: in functions, and under
TYPE_CHECKING too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

#: The rooms of each package, bottom to top.
ORDER: dict[str, tuple[str, ...]] = {
    "scenarios": (
        "records",
        "errors",
        "ops",
        "field_texts",
        "traffic_settings",
        "speculation_settings",
        "fleet_settings",
        "finegrained_settings",
        "settings",
        "timeline",
        "batches",
        "files",
        "models",
        "lowering",
        "trace",
        "passes",
        "profile",
        "schema",
        "speculation",
        "build",
        "traffic_checks",
        "checks",
        "json_schema",
        "loader",
        "resolved",
        "exchange",
        "serving",
    ),
    "sim": (
        "hardware",
        "engines",
        "collective",
        "kernel",
        "step",
        "predict",
        "serving",
        "accuracy",
        "fitting",
        "compare",
        "imported",
        "experiment",
        "sweep",
        "report",
    ),
    "device": (
        "step",
        "operators",
        "weights",
        "run",
        "backends",
        "ranks",
        "measure",
        "serving",
        "microbench",
        "experiment",
        "doctor",
        "open",
    ),
}

#: Most rooms that a package may have.
MAX_ROOMS = {"sim": 14, "device": 12}


def modules_of(package: Path) -> dict[str, Path]:
    """The modules of a package by dotted name; a folder has the name of its `__init__`."""
    top = package.parent
    names = {file: ".".join(file.relative_to(top).with_suffix("").parts) for file in package.rglob("*.py")}
    return {name.removesuffix(".__init__"): file for file, name in names.items()}


def imports_of(source: str, modules: Mapping[str, object]) -> Iterator[tuple[int, str]]:
    """(line, module) of each import of one of `modules`: `from a import b` is of module a.b where there is one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            named = [(f"{node.module}.{alias.name}", node.module) for alias in node.names]
        elif isinstance(node, ast.Import):
            named = [(alias.name, alias.name) for alias in node.names]
        else:
            continue
        for inner, outer in named:
            if inner in modules or outer in modules:
                yield node.lineno, inner if inner in modules else outer


def room_of(module: str) -> str:
    """`sim.step.engine` -> step; "" for the package itself."""
    return module.split(".")[1] if "." in module else ""


def circle_in(imports: Mapping[str, set[str]]) -> list[str]:
    """Modules that import one another in a circle, in its order, or nothing."""
    try:
        TopologicalSorter({name: others - {name} for name, others in imports.items()}).prepare()
    except CycleError as circle:
        return sorted(set(circle.args[1]))
    return []


@pytest.mark.parametrize("package", sorted(ORDER))
def test_no_room_imports_one_above_it(package: str, root: Path) -> None:
    modules, order = modules_of(root / package), ORDER[package]
    assert {room_of(name) for name in modules} - {""} == set(order)
    above = [
        f"{file.relative_to(root)}:{line}: {room_of(name)} imports {room_of(imported)}, which is above it"
        for name, file in modules.items()
        for line, imported in imports_of(file.read_text(encoding="utf-8"), modules)
        if room_of(name) and room_of(imported) and order.index(room_of(imported)) > order.index(room_of(name))
    ]
    assert not above, "\n".join(above)


@pytest.mark.parametrize("package", ["app_pages", "device", "scenarios", "sim"])
def test_no_modules_import_one_another_in_a_circle(package: str, root: Path) -> None:
    modules = modules_of(root / package)
    imports = {
        name: {imported for _, imported in imports_of(file.read_text(encoding="utf-8"), modules)}
        for name, file in modules.items()
    }
    assert circle_in(imports) == []


@pytest.mark.parametrize("package", sorted(MAX_ROOMS.keys() & ORDER.keys()))
def test_the_rooms_of_a_package_are_few(package: str) -> None:
    assert len(ORDER[package]) <= MAX_ROOMS[package]


def test_an_import_is_found_in_every_form() -> None:
    modules = {"sim": None, "sim.step": None, "sim.step.engine": None}
    source = "import sim.step\ndef f():\n    from sim.step import engine\n    from sim.step.engine import play\n"
    assert list(imports_of(source, modules)) == [(1, "sim.step"), (3, "sim.step.engine"), (4, "sim.step.engine")]


def test_a_circle_is_found() -> None:
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["b", "c"]
    assert circle_in({"a": {"b"}, "b": set()}) == []
