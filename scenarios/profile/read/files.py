"""Files of a capture, opened with suspicion: regular, bounded, and unpacked only as far as the bounds allow."""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NoReturn, Protocol

from scenarios.errors import ScenarioError, printable
from scenarios.records import dataclass

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """What a capture may be at most. Beyond it a file is refused, never cut.

    events: kept of one rank; all_events: of all ranks together. ratio: unpacked over packed bytes of a .gz; JSON of a
    profiler packs 10 to 20 times.
    """

    events: int = 3_000_000
    file_bytes: int = 10 * GIB
    unpacked_bytes: int = 4 * GIB
    ratio: int = 200
    text_bytes: int = 48 * 2**20
    facts: int = 200_000
    all_events: int = 20_000_000
    csv_rows: int = 5_000_000
    cell_chars: int = 1 << 20
    ranks: int = 1024


LIMITS = Limits()


class CaptureError(ScenarioError):
    """A capture that cannot be read; one line, exit status 2."""


def fail(where: str | Path, what: str) -> NoReturn:
    """Raise CaptureError: `where: what`, one line."""
    raise CaptureError([f"{printable(str(where), 200)}: {what}"])


def regular(path: Path) -> os.stat_result:
    """The state of a regular file within the limits. Raises CaptureError for anything else."""
    try:
        state = path.stat()
    except FileNotFoundError:
        fail(path, "no such file")
    except OSError as error:
        fail(path, f"cannot be read: {error.strerror or error}")
    except ValueError:  # a NUL or a lone surrogate in the path
        fail(path, "is not a possible file name")
    if not stat.S_ISREG(state.st_mode):  # a pipe or a device may never open, or never end
        fail(path, "is a folder" if stat.S_ISDIR(state.st_mode) else "is not a regular file")
    if state.st_size > LIMITS.file_bytes:
        fail(path, f"is larger than {LIMITS.file_bytes // GIB} GiB")
    return state


class Readable(Protocol):
    """What a reader needs of a file."""

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes; b"" at the end."""


@contextmanager
def opened(path: Path) -> Iterator[Readable]:
    """The bytes of a file, unpacked where it is gzip. Raises CaptureError, also for what reading meets."""
    size = regular(path).st_size
    try:
        with path.open("rb") as file:
            packed = file.peek(2)[:2] == b"\x1f\x8b"
            yield _Unpacked(file, path, size) if packed else file
    except (gzip.BadGzipFile, zlib.error) as error:
        fail(path, f"is not gzip: {error}")
    except EOFError:
        fail(path, "is cut off: the gzip stream does not end")
    except OSError as error:
        fail(path, f"cannot be read: {error.strerror or error}")


class _Unpacked:
    """A gzip stream that ends with an error where it grows beyond the limits."""

    def __init__(self, file: BinaryIO, path: Path, size: int) -> None:
        self._inner = gzip.GzipFile(fileobj=file)
        self._path, self._given = path, 0
        self._most = min(LIMITS.unpacked_bytes, max(size, 1) * LIMITS.ratio)

    def read(self, size: int = -1, /) -> bytes:
        data = self._inner.read(size if size >= 0 else self._most - self._given + 1)
        self._given += len(data)
        if self._given > self._most:
            fail(self._path, f"unpacks to more than {self._most:,} bytes: refused as a bomb")
        return data


def read_all(path: Path, most: int) -> bytes:
    """The whole of a small file. Raises CaptureError where it has more than `most` bytes."""
    with opened(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        fail(path, f"is larger than {most // 2**20} MiB")
    return data
