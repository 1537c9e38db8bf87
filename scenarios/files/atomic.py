"""Result files are whole or absent: written next to the target under another name, synced, then renamed over it.

A reader never sees half a file, and an interrupted or failing run leaves what was there before.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from shutil import copy2, rmtree
from tempfile import mkdtemp
from typing import BinaryIO

from scenarios.errors import ScenarioError, printable

#: Names of the process's own channels: there is no file behind them to protect, and none to rename over.
_CHANNELS = ("/dev/stdout", "/dev/stderr", "/dev/fd/")


class OutputError(ScenarioError):
    """A result could not be written to where the user wants it; one line, exit status 2."""


class NoFolderError(OutputError):
    """The folder of the target does not exist, or something on the way to it is no folder."""


class TargetIsFolderError(OutputError):
    """The target names a folder."""


class NotAllowedError(OutputError):
    """The target or its folder may not be written to."""


class NoSpaceError(OutputError):
    """The disk or the quota is full."""


_KINDS: dict[int, tuple[type[OutputError], str]] = {
    errno.ENOENT: (NoFolderError, "its folder does not exist"),
    errno.ENOTDIR: (NoFolderError, "part of its path is a file, not a folder"),
    errno.EISDIR: (TargetIsFolderError, "is a folder"),
    errno.EACCES: (NotAllowedError, "permission denied"),
    errno.EPERM: (NotAllowedError, "operation not permitted"),
    errno.EROFS: (NotAllowedError, "the file system is read-only"),
    errno.ETXTBSY: (NotAllowedError, "is a running program"),
    errno.ENOSPC: (NoSpaceError, "no space left on the device"),
    errno.EDQUOT: (NoSpaceError, "disk quota exceeded"),
    errno.EFBIG: (NoSpaceError, "larger than the file system allows"),
}


def write_text(path: str | os.PathLike[str], text: str | Iterable[str]) -> None:
    """Write `text` (or its pieces, in order) to `path` as UTF-8, line ends as they are. Raises as `write_bytes`."""
    pieces = (text,) if isinstance(text, str) else text
    write_bytes(path, (piece.encode("utf-8") for piece in pieces))


def write_folder(folder: str | os.PathLike[str], files: Mapping[str, str]) -> None:
    """Write texts by name into `folder`, which is made where it is not there: all of them or, where one cannot be
    written, none. Raises OutputError or one of its kinds.

    They lie ready in a folder of their own before the first takes its place, and what was there comes back where one
    cannot take its place, so an interrupted run leaves no part.
    """
    target = os.fspath(folder)
    with _reported(target):
        real = os.path.realpath(target)
        is_new = not os.path.isdir(real)
        ready = mkdtemp(prefix=".whatif-", suffix=".tmp", dir=os.path.dirname(real) if is_new else real)
    try:
        for name, text in files.items():
            write_text(os.path.join(ready, name), text)
        with _reported(target):
            if is_new:
                os.chmod(ready, 0o777 & ~_umask())
                os.rename(ready, real)
            else:
                _replace_all(ready, real, files)
    finally:
        rmtree(ready, ignore_errors=True)


def _replace_all(ready: str, real: str, names: Iterable[str]) -> None:
    """Rename files of `ready` over those of `real`; where that is interrupted, the old ones are back."""
    moved: list[tuple[str, str]] = []
    try:
        for name in names:
            target, before = os.path.join(real, name), os.path.join(ready, f"{name}.before")
            if os.path.lexists(target):
                copy2(target, before, follow_symlinks=False)
            moved.append((target, before))
            os.replace(os.path.join(ready, name), target)
    except BaseException:
        for target, before in moved:
            with suppress(OSError):
                if os.path.lexists(before):
                    os.replace(before, target)
                else:
                    os.unlink(target)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_bytes(path: str | os.PathLike[str], data: bytes | Iterable[bytes]) -> None:
    """Write `data` (or its pieces, in order) to `path`, whole or not at all.

    A link is followed, an existing file keeps its permissions, and a pipe or a device is written to directly.
    Raises OutputError or one of its kinds, always one line that names `path`; an error of the iterable passes
    through. In both cases the target is as it was before, and no other file is left behind.
    """
    pieces = (data,) if isinstance(data, bytes) else data
    target = os.fspath(path)
    if _is_channel(target):
        with _reported(target):
            file = open(target, "wb")  # noqa: SIM115 (closed in _write_all)
        _write_all(file, pieces, target)
    else:
        _replace(target, pieces)


def _replace(target: str, pieces: Iterable[bytes]) -> None:
    """Write next to `target`, then rename over it."""
    with _reported(target):
        if target.endswith(os.sep):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        real = os.path.realpath(target)
        mode = _mode_of_existing(real)
        file, temporary = _open_beside(real)
    try:
        if mode is not None:
            with suppress(OSError):  # a file system without permissions keeps its own
                os.chmod(temporary, mode)
        _write_all(file, pieces, target, sync=True)
        with _reported(target):
            os.replace(temporary, real)
    except BaseException:  # an interrupt too must leave nothing behind
        with suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(os.path.dirname(real))


def _write_all(file: BinaryIO, pieces: Iterable[bytes], target: str, sync: bool = False) -> None:
    """Write the pieces and close. Errors of the file become OutputError; errors of the iterable stay themselves."""
    try:
        for piece in pieces:
            with _reported(target):
                file.write(piece)
        with _reported(target):
            file.flush()
            if sync:
                os.fsync(file.fileno())
    finally:
        with suppress(OSError):  # what could not be flushed has been reported above
            file.close()


def _is_channel(target: str) -> bool:
    """Whether `target` is a pipe, a device or one of the process's own channels."""
    if target.startswith(_CHANNELS):
        return True
    try:
        mode = os.stat(target).st_mode
    except (OSError, ValueError):  # absent, unreachable or impossible: opening it will say why
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _mode_of_existing(real: str) -> int | None:
    """Permissions of the file that will be replaced, None where there is none. Raises OSError where it must not be."""
    try:
        mode = os.stat(real).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    # Renaming needs no right to the file itself; one that its owner made read-only is still not ours to replace.
    if not os.access(real, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return stat.S_IMODE(mode)


def _open_beside(real: str) -> tuple[BinaryIO, str]:
    """A new file in the folder of `real`, so that the rename stays in one file system; short, so that any name fits."""
    folder = os.path.dirname(real)
    number = 0
    while True:
        name = os.path.join(folder, f".whatif-{os.getpid()}-{number}.tmp")
        try:
            return open(name, "xb"), name
        except FileExistsError:  # of another thread, or left by a process that was killed
            number += 1


def _sync_folder(folder: str) -> None:
    """Make the rename survive a power cut, where the platform can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _reported(target: str) -> Iterator[None]:
    """Turn what the operating system says into one line about the path that the user wrote."""
    try:
        yield
    except OSError as error:
        number = error.errno or 0
        kind, what = _KINDS.get(number, (OutputError, os.strerror(number) if number else str(error)))
        raise kind([f"{printable(target, 200) or 'the empty path'}: cannot be written: {what}"]) from None
    except ValueError:  # a NUL or a lone surrogate in the path
        raise OutputError([f"{printable(target, 200)}: cannot be written: not a possible file name"]) from None
