"""Standard output: as wide as it is, in the characters that it has, written whole or with the reason why not."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from io import StringIO
from typing import TYPE_CHECKING

from scenarios.errors import ScenarioError

if TYPE_CHECKING:
    from rich.console import Console

#: Columns where the output is no terminal and COLUMNS does not say otherwise.
PIPE_WIDTH = 132
#: Columns that are drawn at most, whatever COLUMNS says: a table is padded to all of them.
MAX_WIDTH = 1_000

# What stands for the signs of bars and sentences where the output has no such characters.
_PLAIN = str.maketrans(
    {"█": "#", "▉": "#", "▊": "#", "▋": "#", "▌": "-", "▍": "-", "▎": "-", "▏": "-", "▓": "=", "░": "."}
    | {"·": "-", "…": "~"}
)


def show(draw: Callable[[Console], None]) -> None:
    """Draw on a console as wide as standard output, then write what it shows. Raises as `write`."""
    drawn = StringIO()
    draw(_console(drawn))
    # Tables are padded to their full width, which is of no use to a reader and of harm in a pipe.
    write(re.sub(r" +$", "", drawn.getvalue(), flags=re.MULTILINE))


def write(text: str) -> None:
    """Write `text` to standard output.

    Raises ScenarioError, one line, where it takes nothing (closed, the disk is full); a reader that has seen enough
    (`whatif run ... | head`) ends the process with status 0.
    """
    out = sys.stdout
    if out is None:  # what Python makes of `>&-`
        raise ScenarioError(["standard output: cannot be written: it is closed"])
    try:
        out.write(encodable(text, out.encoding or "utf-8"))
        out.flush()
    except BrokenPipeError:
        _discard()
        raise SystemExit(0) from None
    except OSError as error:
        _discard()
        raise ScenarioError([f"standard output: cannot be written: {error.strerror or error}"]) from None


def bound_columns() -> None:
    """Hold COLUMNS of this process to MAX_WIDTH, for our own tables and for the help's."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and (len(columns) > 9 or int(columns) > MAX_WIDTH):
        os.environ["COLUMNS"] = str(MAX_WIDTH)


def reason_of(error: OSError) -> str | None:
    """One line for what no command can help: the working folder is gone, or the help cannot be written. None for any
    other error."""
    try:
        os.getcwd()
    except OSError:
        return "the working folder no longer exists: change to another"
    if error.filename is not None:
        return None
    _discard()
    return f"standard output: cannot be written: {error.strerror or error}"


def progress(text: str) -> None:
    """Say on standard error what is going on: over the line before on a terminal, else a line each."""
    err = sys.stderr
    if err is None:
        return
    over = err.isatty()
    with suppress(OSError):
        err.write(f"\r\x1b[K{encodable(text, err.encoding or 'utf-8')}" if over else f"{text}\n")
        err.flush()


def encodable(text: str, encoding: str) -> str:
    """`text` where `encoding` has all of its characters; else with bars of plain signs, and `\\u0416` for the rest."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode(encoding, "backslashreplace").decode(encoding)
    return text


def _console(file: StringIO) -> Console:
    """A console that draws into `file` as for standard output. No markup and no emoji: a user's text stays as it is."""
    from rich.console import Console

    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    width = None if is_terminal or os.environ.get("COLUMNS", "").isdigit() else PIPE_WIDTH
    return Console(
        file=file, force_terminal=is_terminal or None, width=width, highlight=False, markup=False, emoji=False
    )


def _discard() -> None:
    """Send what is still buffered nowhere: the flush at exit would fail a second time, with a traceback."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
