"""The order of the rooms inside `device`: each imports only rooms before it, and no two modules import each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

MAX_ROOMS = 12

#: From the foot to the top. A room is a folder or a file at the top level of `device`.
ORDER = (
    "step", "operators", "weights", "run", "backends", "ranks", "measure", "microbench", "experiment", "doctor", "open",
)  # fmt: skip


def module_name(file: Path) -> str:
    """The dotted name of a file given relative to the root: device/run/call.py is device.run.call."""
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(source: str, modules: Mapping[str, object] | set[str]) -> Iterator[tuple[int, str]]:
    """Line and name of each of `modules` that `source` imports, in functions and under TYPE_CHECKING too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [(f"{node.module}.{alias.name}", node.module) for alias in node.names]
        else:
            continue
        for name, package in names:
            if name in modules or package in modules:
                yield node.lineno, name if name in modules else package


def sources(root: Path) -> dict[str, str]:
    """The source of each module of `device` by dotted name."""
    files = sorted((root / "device").rglob("*.py"))
    return {module_name(file.relative_to(root)): file.read_text(encoding="utf-8") for file in files}


def offences(modules: Mapping[str, str]) -> list[str]:
    """Imports of a room that stands after the importing one."""
    return [
        f"{module}:{line}: imports {name}"
        for module, source in modules.items()
        for line, name in imported(source, modules)
        if module != "device" and name != "device"
        if ORDER.index(name.split(".")[1]) > ORDER.index(module.split(".")[1])
    ]


def circle(modules: Mapping[str, str]) -> list[str]:
    """The modules of one circle of imports, empty where there is none."""
    graph = {module: {name for _, name in imported(source, modules)} for module, source in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        names: list[str] = error.args[1]
        return names
    return []


def test_the_order_names_every_room(root: Path) -> None:
    rooms = {module.split(".")[1] for module in sources(root) if module != "device"}
    assert rooms == set(ORDER)
    assert len(ORDER) <= MAX_ROOMS


def test_each_room_imports_only_rooms_before_it(root: Path) -> None:
    assert offences(sources(root)) == []


def test_no_modules_import_each_other(root: Path) -> None:
    assert circle(sources(root)) == []


@pytest.mark.parametrize(
    "source",
    ["from device.run.call import Call", "def late():\n    from device.run import call", "import device.run.call"],
)
def test_an_import_of_a_later_room_is_seen(source: str) -> None:
    modules = {"device.run.call": "", "device.step.step": source}
    assert [line.partition(" ")[2] for line in offences(modules)] == ["imports device.run.call"]


def test_a_circle_is_seen() -> None:
    modules = {"device.run.a": "from device.run.b import x", "device.run.b": "def late():\n    import device.run.a"}
    assert set(circle(modules)) == {"device.run.a", "device.run.b"}
