"""A text file, read with suspicion: regular, small, UTF-8, and free of characters that no editor shows."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from scenarios.errors import ScenarioError
from scenarios.files.document import Mark

MAX_BYTES = 1 << 20

# What YAML allows, less the byte-order mark and what starts a line for some programs only (NEL, U+2028, U+2029).
FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_LINE_BREAK = re.compile(r"\r\n|\r|\n")


def read_bytes(path: Path, name: str, most: int = MAX_BYTES) -> bytes:
    """The bytes of a regular file of at most `most`. Raises ScenarioError where there is no such thing."""
    where = Mark(name)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ScenarioError([f"{where}: is a folder, not a YAML file"])
        if not stat.S_ISREG(mode):  # a pipe or a device may never end
            raise ScenarioError([f"{where}: is not a regular file"])
        with path.open("rb") as file:
            data = file.read(most + 1)
    except FileNotFoundError:
        raise ScenarioError([f"{where}: no such file"]) from None
    except OSError as error:
        raise ScenarioError([f"{where}: cannot be read: {error.strerror or os.strerror(error.errno or 0)}"]) from None
    except ValueError:  # a NUL or a lone surrogate in the path
        raise ScenarioError([f"{where}: is not a possible file name"]) from None
    if len(data) > most:
        raise ScenarioError([f"{where}: larger than {most} bytes"])
    return data


def decode(data: bytes, name: str) -> str:
    """UTF-8 bytes as text. Raises ScenarioError with the place of the first byte that is not."""
    where = Mark(name)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ScenarioError([f"{where}: is UTF-16; save it as UTF-8"])
    if b"\0" in data:
        raise ScenarioError([f"{where}: is binary (byte {data.index(0)} is zero), not YAML text"])
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = line_column(data[: error.start].decode("utf-8", "replace"))
        raise ScenarioError([f"{Mark(name, line, column)}: byte 0x{data[error.start]:02x} is not UTF-8"]) from None


def check_text(text: str, name: str) -> None:
    """Raises ScenarioError where the text is over MAX_BYTES or holds a control character or a byte-order mark."""
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise ScenarioError([f"{Mark(name)}: larger than {MAX_BYTES} bytes"])
    match = FORBIDDEN.search(text)
    if match:
        line, column = line_column(text[: match.start()])
        what = f"character U+{ord(match[0]):04X} is not allowed"
        if match[0] == "\ufeff":
            what = "byte-order mark (U+FEFF) is not allowed; save the file as UTF-8 without BOM"
        raise ScenarioError([f"{Mark(name, line, column)}: {what}"])


def line_column(before: str) -> tuple[int, int]:
    """1-based line and column of what follows `before`."""
    breaks = list(_LINE_BREAK.finditer(before))
    return len(breaks) + 1, len(before) - (breaks[-1].end() if breaks else 0) + 1
