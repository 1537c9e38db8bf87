"""The import rule: `scenarios` knows nobody, `sim` and `device` know only `scenarios`, cli and app know all three."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.scenarios.profile.making import torch_npu

SURFACES = {"cli", "app", "app_pages"}
TORCH = {"torch", "torch_npu", "torchair"}
FORBIDDEN = {
    "scenarios": {"sim", "device", "simpy", "streamlit"} | TORCH | SURFACES,
    "sim": {"device", "streamlit"} | TORCH | SURFACES,
    "device": {"sim", "simpy", "streamlit"} | SURFACES,
}

#: Packages that are slow to import or optional; nobody pays for them who did not ask for them.
HEAVY = TORCH | {"pandas", "scipy", "streamlit", "altair", "pyarrow", "dask", "distributed", "sklearn"}

WATCH_IMPORTS = """
import json, sys

class Recorder:
    heavy, asked = set(sys.argv[1].split(",")), set()

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.heavy:
            self.asked.add(name)
        return None  # the usual finders go on from here

sys.meta_path.insert(0, Recorder())
try:
    exec(sys.argv[2])
except SystemExit as stop:
    assert not stop.code, stop.code
print("asked for:", json.dumps(sorted(Recorder.asked)))
"""


def named_modules(node: ast.AST) -> list[str]:
    """The modules that one node imports by absolute name."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return [node.module]
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called = ast.unparse(node.func).rpartition(".")[2]
        if called in {"import_module", "__import__"} and isinstance(node.args[0].value, str):
            return [node.args[0].value]
    return []


def imported_modules(source: str) -> Iterator[tuple[int, str]]:
    """Line and top-level name of each absolute import, wherever it stands: in functions, under TYPE_CHECKING too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt | ast.expr):
            for module in named_modules(node):
                yield node.lineno, module.partition(".")[0]


def heavy_imports(code: str, root: Path, heavy: Iterable[str] = HEAVY) -> list[str]:
    """The heavy modules that `code` asks for when it runs in a fresh interpreter, installed or not."""
    done = subprocess.run(
        [sys.executable, "-c", WATCH_IMPORTS, ",".join(sorted(heavy)), code],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    asked: list[str] = json.loads(done.stdout.rpartition("asked for:")[2])
    return asked


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_package_keeps_the_import_rule(package: str, root: Path) -> None:
    files = sorted((root / package).rglob("*.py"))
    assert files, f"no Python file in {package}/"
    offences = [
        f"{file.relative_to(root)}:{line}: {package} imports {name}"
        for file in files
        for line, name in imported_modules(file.read_text(encoding="utf-8"))
        if name in FORBIDDEN[package]
    ]
    assert not offences, "\n".join(offences)


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("import torch.nn as nn", [(1, "torch")]),
        ("from sim.step.engine import play", [(1, "sim")]),
        ("def late():\n    import simpy", [(2, "simpy")]),
        ("if TYPE_CHECKING:\n    from device import runner", [(2, "device")]),
        ("importlib.import_module('torch_npu')", [(1, "torch_npu")]),
        ("__import__('sim')", [(1, "sim")]),
        ("from . import sim", []),
        ("text = 'import torch'", []),
    ],
)
def test_imports_are_found_in_every_form(source: str, result: list[tuple[int, str]]) -> None:
    assert list(imported_modules(source)) == result


@pytest.mark.parametrize("module", ["scenarios", "sim", "device", "device.backends", "scenarios.profile.read", "cli"])
def test_importing_asks_for_nothing_heavy(module: str, root: Path) -> None:
    assert heavy_imports(f"import {module}", root) == []


def test_predicting_a_scenario_asks_for_nothing_heavy(root: Path) -> None:
    run = "import cli; sys.argv = ['whatif', 'run', 'scenarios/qwen3_8b_decode.yaml']; cli.main()"
    assert heavy_imports(run, root) == []


def test_importing_a_profile_asks_for_nothing_heavy(root: Path, tmp_path: Path) -> None:
    top = torch_npu(tmp_path)
    run = f"import cli; sys.argv = ['whatif', 'import', {str(top)!r}, '--hardware', '910b2']; cli.main()"
    assert heavy_imports(run, root) == []


@pytest.mark.parametrize("needed", ["msgspec", "ijson"])
def test_only_importing_a_profile_needs_the_readers_of_traces(needed: str, root: Path) -> None:
    run = "import cli; sys.argv = ['whatif', 'run', 'scenarios/qwen3_8b_decode.yaml']; cli.main()"
    assert heavy_imports(run, root, [needed]) == []


@pytest.mark.parametrize(("scenario", "needed"), [("qwen3_8b_decode", False), ("qwen3_8b_tp2_decode", True)])
def test_only_ranks_that_wait_for_each_other_need_numpy(scenario: str, needed: bool, root: Path) -> None:
    run = f"import cli; sys.argv = ['whatif', 'run', '{scenario}']; cli.main()"
    assert ("numpy" in heavy_imports(run, root, ["numpy"])) == needed


def test_a_heavy_import_is_seen_even_where_it_is_not_installed(root: Path) -> None:
    guarded = "try:\n    import torch_npu\nexcept Exception:\n    pass"
    assert "torch_npu" in heavy_imports(guarded, root)


def test_the_folders_of_the_tests_are_no_packages(root: Path) -> None:
    """tests/sim with an __init__.py could be imported as `sim`, and the tests would test themselves."""
    assert not sorted((root / "tests").rglob("__init__.py"))
