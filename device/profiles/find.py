"""What a path holds: which profilers' folders and files, one a rank."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from device.profiles.files import LIMITS, fail

OUTPUT = "ASCEND_PROFILER_OUTPUT"
Form = Literal["torch_npu"]
#: How many folders deep and how many entries wide a profile is looked for.
MAX_DEPTH, MAX_ENTRIES = 4, 20_000


@dataclass(frozen=True, slots=True)
class Source:
    """One rank's folder or file and the form it has."""

    path: Path
    form: Form


def sources(path: Path) -> list[Source]:
    """The profiles under `path`, in order of their names. Raises ProfileError where there is none."""
    if not path.exists():
        fail(path, "no such file or folder")
    found = list(_walk(path))
    if not found:
        fail(path, f"holds no profile: no {OUTPUT}")
    if len(found) > LIMITS.ranks:
        fail(path, f"holds more than {LIMITS.ranks} profiles")
    return found


def _walk(top: Path) -> Iterator[Source]:
    """Folders that are profiles; links between folders are not followed below `top`."""
    seen = 0
    queue = [(top, 0)]
    while queue:
        folder, depth = queue.pop(0)
        if folder.name == OUTPUT or (folder / OUTPUT).is_dir():
            yield Source(folder, "torch_npu")
            continue
        if depth == MAX_DEPTH:
            continue
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            fail(folder, f"cannot be read: {error.strerror or error}")
        seen += len(entries)
        if seen > MAX_ENTRIES:
            fail(top, f"holds more than {MAX_ENTRIES:,} files; name the folder of the profile itself")
        queue += [(Path(entry.path), depth + 1) for entry in entries if entry.is_dir(follow_symlinks=False)]
