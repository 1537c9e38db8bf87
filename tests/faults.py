"""Seed faults one by one in a copy of the code, run the nearest tests, and list the faults that no test notices.

    python tests/faults.py [--count 50] [--seed 0] [--only sim/predict]

A fault is one sign, comparison or count in a module of AREAS that is turned into its neighbour. What survives is
either a test that is missing or a line that does not matter; each is printed with its place. Ends with status 0.
"""

from __future__ import annotations

import argparse
import ast
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Modules, and the tests that are nearest to each.
AREAS: dict[str, tuple[str, ...]] = {
    "scenarios/batches.py": ("tests/scenarios/test_batches.py",),
    "scenarios/lowering/stages.py": ("tests/scenarios/test_stages.py",),
    "scenarios/ops/routing.py": ("tests/scenarios/ops/test_routing.py",),
    "scenarios/serving/kv_cache.py": ("tests/scenarios/serving",),
    "sim/collective/price.py": ("tests/sim/test_collective_price.py",),
    "sim/predict/gains.py": ("tests/sim/predict/test_gains.py",),
    "sim/predict/memory.py": ("tests/sim/predict/test_memory.py",),
    "sim/predict/predict.py": ("tests/sim/predict/test_predict.py",),
    "sim/predict/steps.py": ("tests/sim/predict/test_predict.py",),
    "sim/predict/ttft.py": ("tests/sim/predict/test_predict.py",),
    "sim/predict/uncertainty.py": ("tests/sim/predict/test_uncertainty.py",),
    "sim/step/pipeline.py": ("tests/sim/step/test_pipeline.py",),
    "sim/step/sharing.py": ("tests/sim/step/test_sharing.py",),
    "sim/step/recurrence.py": ("tests/sim/step/test_recurrence.py",),
}
#: Seconds for the tests of one fault; a fault that makes them hang is noticed.
LIMIT_S = 300
_SIGNS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.FloorDiv: ("//", "*"), ast.Div: ("/", "*"),
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="),
}  # fmt: skip
_WORDS = {"min": "max", "max": "min"}


@dataclass(frozen=True, order=True)
class Fault:
    """Characters `start` to `end` of a module that become `text`."""

    module: str
    line: int
    start: int
    end: int
    text: str
    before: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.before!r} -> {self.text!r}"


def faults_of(module: str, source: str) -> Iterator[Fault]:
    """Every fault that can be seeded in a module; ASCII source, so that columns count characters."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def at(line: int, column: int) -> int:
        return starts[line - 1] + column

    def sign_between(left: ast.expr, right: ast.expr, sign: ast.AST) -> Iterator[Fault]:
        if type(sign) not in _SIGNS:
            return
        old, new = _SIGNS[type(sign)]
        first, last = at(left.end_lineno or 0, left.end_col_offset or 0), at(right.lineno, right.col_offset)
        place = source.find(old, first, last)
        if place >= 0:
            yield Fault(module, left.end_lineno or 0, place, place + len(old), new, old)

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.BinOp):
            yield from sign_between(node.left, node.right, node.op)
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            yield from sign_between(node.left, node.comparators[0], node.ops[0])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _WORDS:
            start = at(node.lineno, node.col_offset)
            yield Fault(module, node.lineno, start, start + 3, _WORDS[node.func.id], node.func.id)
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            start, end = at(node.lineno, node.col_offset), at(node.lineno, node.end_col_offset or 0)
            yield Fault(module, node.lineno, start, end, str(node.value + 1), source[start:end])


def chosen(count: int, seed: int, only: str) -> list[Fault]:
    """`count` faults of the modules whose path starts with `only`, drawn evenly over the modules."""
    drawn = random.Random(seed)
    pools = []
    for module in AREAS:
        source = (ROOT / module).read_text(encoding="utf-8")
        if module.startswith(only) and source.isascii():
            pool = sorted(faults_of(module, source))
            drawn.shuffle(pool)
            pools.append(pool)
    rounds = max(map(len, pools), default=0)
    return [pool[i] for i in range(rounds) for pool in pools if i < len(pool)][:count]


def noticed(folder: Path, fault: Fault) -> bool:
    """Whether the nearest tests fail with `fault` in the copy in `folder`, which is then as before."""
    file = folder / fault.module
    source = file.read_text(encoding="utf-8")
    file.write_text(source[: fault.start] + fault.text + source[fault.end :], encoding="utf-8")
    try:
        return _fails(folder, fault.module)
    finally:
        file.write_text(source, encoding="utf-8")


def failing(folder: Path, modules: Iterable[str]) -> list[str]:
    """The modules whose nearest tests fail in the copy in `folder` as it is."""
    return [module for module in modules if _fails(folder, module)]


def _fails(folder: Path, module: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", *AREAS[module]]
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, timeout=LIMIT_S).returncode != 0
    except subprocess.TimeoutExpired:
        return True


def main() -> None:
    """Seed, test, list."""
    parser = argparse.ArgumentParser(description="Seed faults and list those that no test notices.")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    faults = chosen(asked.count, asked.seed, asked.only)
    survivors = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "copy"
        kept_out = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache", "node_modules", "*.egg-info")
        shutil.copytree(ROOT, folder, ignore=kept_out)
        if broken := failing(folder, sorted({fault.module for fault in faults})):
            raise SystemExit(f"tests fail without a fault, so they notice none: {', '.join(broken)}")
        for number, fault in enumerate(faults, 1):
            was_noticed = noticed(folder, fault)
            print(f"{number:3} of {len(faults)}  {'noticed ' if was_noticed else 'SURVIVED'}  {fault}", flush=True)
            survivors += [] if was_noticed else [fault]
    print(f"{len(faults) - len(survivors)} of {len(faults)} faults noticed; survived:")
    for fault in survivors:
        print(f"  {fault}")


if __name__ == "__main__":
    main()
