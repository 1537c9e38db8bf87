"""The machine under examination: its files, commands, packages, and what Python finds when it imports them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

#: Longest that an import, or a vendor's command, may take, seconds.
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Machine:
    """root: where its file system starts. environment: its variables."""

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def file(self, path: str) -> Path:
        """A file of the machine by its absolute path."""
        return self.root / path.lstrip("/")

    def text(self, path: str) -> str | None:
        """The text of a file, None where it cannot be read."""
        try:
            return self.file(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def devices(self, pattern: str) -> int:
        """How many files in /dev match."""
        return len(list(self.file("/dev").glob(pattern)))

    def command(self, name: str) -> str | None:
        """Where a command is, None where it is not."""
        return shutil.which(name, path=self.environment.get("PATH"))

    def package(self, name: str) -> str | None:
        """The version of an installed Python package, None where it is not installed."""
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    def python(self, code: str) -> tuple[bool, str]:
        """(whether it ended well, its last line) of a few lines of Python in a process of their own: a library that
        ends the process, or waits for ever, ends or stops that one."""
        environment = {**self.environment, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        try:
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, env=environment
            )
        except subprocess.TimeoutExpired:
            return False, f"no answer within {PATIENCE_S:g} s"
        lines = (done.stdout if done.returncode == 0 else done.stderr or done.stdout).strip().splitlines()
        return done.returncode == 0, lines[-1] if lines else f"ended with status {done.returncode}"
