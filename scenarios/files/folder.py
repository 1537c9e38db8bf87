"""Result folders are whole or absent: filled next to the target under another name, then renamed to it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from scenarios.errors import ScenarioError, printable
from scenarios.files.atomic import OutputError


def refuse_folder(option: str, path: Path) -> None:
    """Raise ScenarioError, one line, where `path` cannot become a new folder: it holds something already, is a file, or
    lies where nothing may be written."""
    name = printable(str(path), 200)
    with suppress(OSError):  # unreachable: making it will say why
        if path.is_dir() and any(path.iterdir()):
            raise ScenarioError([f"{option} {name}: is not empty; name a new folder"])
        if path.exists() and not path.is_dir():
            raise ScenarioError([f"{option} {name}: is a file; name a new folder"])
    parent = Path(os.path.abspath(path)).parent
    if not parent.is_dir():
        raise OutputError([f"{option} {name}: cannot be written: its folder does not exist"])
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OutputError([f"{option} {name}: cannot be written: permission denied"])


@contextmanager
def whole_folder(path: Path, named: str) -> Iterator[Path]:
    """A folder to fill, which becomes `path` when all inside has gone well; else nothing is left of it.

    named: tells it from those of other runs. Raises OutputError, one line, where it cannot be made or renamed.
    """
    target = Path(os.path.abspath(path))
    partial = target.with_name(f".whatif-{named}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
    except OSError as error:
        raise OutputError([f"{printable(str(path), 200)}: cannot be written: {error.strerror}"]) from None
    try:
        yield partial
        try:
            os.replace(partial, target)  # an empty folder gives way
        except OSError as error:
            raise OutputError([f"{printable(str(path), 200)}: cannot be written: {error.strerror}"]) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
