"""The command as its users meet it: called in this process (fast), or as a process of its own (real)."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import cli

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Done:
    """How a call of the command ended."""

    status: int
    out: str
    err: str

    @property
    def problems(self) -> list[str]:
        """The lines of the error output."""
        return self.err.splitlines()


def call(*arguments: object) -> Done:
    """`whatif arguments...` in this process."""
    out, err = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = ["whatif", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    finally:
        sys.argv = before
    return Done(status, out.getvalue(), err.getvalue())


def no_constant(name: str) -> float:
    raise AssertionError(f"{name} is no JSON")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that is asked of one scenario in one worker: each worker would predict it again."""
    for item in items:
        scenario = item.callspec.params.get("scenario") if hasattr(item, "callspec") else None
        if isinstance(scenario, str) and "tests/cli/" in item.path.as_posix():
            item.add_marker(pytest.mark.xdist_group(f"scenario {scenario}"))


@pytest.fixture(autouse=True)
def _no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """What pytest-xdist or a terminal set for themselves must not decide what the command shows."""
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "PYTHONIOENCODING"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a module one that is not installed. The backends, which may have imported it, are imported again;
    afterwards the old ones are back, in sys.modules and in their package: who patches one later must meet the one in
    use."""

    def without(module: str) -> None:
        import device.backends

        for name in [name for name in sys.modules if name.startswith("device.backends.")]:
            short = name.rpartition(".")[2]
            monkeypatch.setattr(device.backends, short, getattr(device.backends, short))
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, module, None)

    return without


@pytest.fixture(scope="session")
def whatif() -> Callable[..., Done]:
    """`whatif(*arguments)` in this process."""
    return call


def kept(folder: Path, option: str) -> Callable[..., Path]:
    """`get(scenario, *settings)`: what `whatif run` writes with `option`; predicted once, and not to be changed."""
    known: dict[tuple[str, ...], Path] = {}

    def get(scenario: str, *settings: str) -> Path:
        key = (scenario, *settings)
        if key not in known:
            known[key] = folder / f"{len(known)}.json"
            options = [part for pair in settings for part in ("--set", pair)]
            done = call("run", scenario, option, known[key], *options)
            assert (done.status, done.err) == (0, "")
        return known[key]

    return get


@pytest.fixture(scope="session")
def answer_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`answer_file(scenario, *settings)`: the file that `--json` writes."""
    return kept(tmp_path_factory.mktemp("answers"), "--json")


@pytest.fixture(scope="session")
def trace_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`trace_file(scenario, *settings)`: the file that `--trace` writes."""
    return kept(tmp_path_factory.mktemp("traces"), "--trace")


@pytest.fixture(scope="session")
def answer(answer_file: Callable[..., Path]) -> Callable[..., dict[str, Any]]:
    """`answer(scenario, *settings)`: that document; a number that is none in JSON fails."""

    def get(scenario: str, *settings: str) -> dict[str, Any]:
        text = answer_file(scenario, *settings).read_text(encoding="utf-8")
        document: dict[str, Any] = json.loads(text, parse_constant=no_constant)
        return document

    return get


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """`process(*arguments, **options of subprocess.run)`: the command as its own process, in an empty folder."""

    def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("env", {})}
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": tmp_path, **options}
        command = [sys.executable, "-m", "cli", *map(str, arguments)]
        return subprocess.run(command, env=environment, check=False, timeout=60, **options)

    return run


def snapshot(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


def write(file: Path, text: str | bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


@pytest.fixture
def refused(whatif: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """`refused(*arguments)`: the problem lines of a call that must be refused; the folder is left as it was."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> list[str]:
        before = snapshot(tmp_path)
        done = whatif(*arguments)
        assert (done.status, done.out) == (2, "")
        assert "Traceback" not in done.err
        assert done.problems
        assert snapshot(tmp_path) == before
        return list(done.problems)

    return run
