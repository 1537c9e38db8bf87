"""Whether a name that a user wrote is a file or a folder: one that the system cannot even look up is neither. What a
folder of the package holds."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

#: When a file was last written, its bytes and its number on the disk.
Stamp = tuple[int, int, int]


def is_file(path: Path) -> bool:
    """Whether `path` is a regular file; False for a name that is too long, or that may not be looked at."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_dir(path: Path) -> bool:
    """Whether `path` is a folder, likewise."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def expanded(path: Path) -> Path:
    """`path` with the user's home for `~`; as it stands where there is no such user."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def stamp_of(path: Path) -> Stamp:
    """What tells a file from what it was before it was written again."""
    state = path.stat()
    return state.st_mtime_ns, state.st_size, state.st_ino


def listed(folder: Path, pattern: str) -> tuple[Path, ...]:
    """What `folder` holds of a pattern, sorted by name; looked up again where an entry came or went."""
    return _listed(folder, pattern, folder.stat().st_mtime_ns) if is_dir(folder) else ()


@lru_cache(maxsize=16)
def _listed(folder: Path, pattern: str, _: int) -> tuple[Path, ...]:
    return tuple(sorted(folder.glob(pattern)))
