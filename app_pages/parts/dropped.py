"""Files that the reader drops together, one by one or as a folder: which of them are questions' files, and what each
of those needs of the others."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from app_pages.parts import own
from scenarios.errors import ScenarioError, printable
from scenarios.models.hf_config import CONFIG_NAMES
from scenarios.models.quantization import DESCRIPTION

YAML = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Part:
    """One file to keep. next_to: what it needs, by its place below the file's folder. folder: what that is called."""

    path: PurePosixPath
    data: bytes
    next_to: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        return self.path.parent.name


def add_all(files: Sequence[tuple[str, bytes]]) -> list[str]:
    """Keep what was dropped together; gives what is wrong with it, each line in its file's own name."""
    said: list[str] = []
    parts = list(parts_of(files))
    for part in parts:
        try:
            own.add(part.path.name, part.data, part.next_to, part.folder)
        except ScenarioError as error:
            said += error.messages
    if files and not parts:
        name = printable(PurePosixPath(files[0][0]).parts[0], 80)
        said.append(f"{name}: no config.json, and no YAML file of a scenario or a profile")
    return said


def parts_of(files: Sequence[tuple[str, bytes]]) -> Iterator[Part]:
    """The files that a question can name: YAML, and the config of a model. Of a folder other JSON files are left out:
    a checkpoint has many that say nothing of its time."""
    known = {path: data for name, data in files if (path := inside(name)) is not None}
    for path, data in known.items():
        if path.suffix in YAML:
            yield Part(path, data, _named_by(path, known))
        elif _is_config(path, known):
            description = path.parent / DESCRIPTION
            yield Part(path, data, {DESCRIPTION: known[description]} if description in known else {})


def inside(name: str) -> PurePosixPath | None:
    """Where a file lies in what was dropped; None for what lies nowhere in it."""
    path = PurePosixPath(name.replace("\\", "/").replace("\0", ""))
    hidden = any(part.startswith(".") for part in path.parts)
    return None if path.is_absolute() or hidden or not path.name else path


def _is_config(path: PurePosixPath, known: Mapping[PurePosixPath, bytes]) -> bool:
    configs = [path.parent / name for name in CONFIG_NAMES if path.parent / name in known]
    if len(path.parts) > 1 or path.name in CONFIG_NAMES:
        return path in configs[:1]
    return path.name != DESCRIPTION or not configs


def _named_by(path: PurePosixPath, known: Mapping[PurePosixPath, bytes]) -> dict[str, bytes]:
    """The files at or below a file's folder that its text names, or the text of one of these: what it extends, and its
    model, chip and engine."""
    below = {other.relative_to(path.parent): data for other, data in known.items() if path.parent in other.parents}
    wanted = [below.pop(PurePosixPath(path.name))]
    companions: dict[str, bytes] = {}
    while wanted:
        text = wanted.pop()
        for other in [other for other in below if any(str(p).encode() in text for p in _names(other))]:
            companions[str(other)] = below.pop(other)
            wanted.append(companions[str(other)])
    return companions


def _names(path: PurePosixPath) -> list[PurePosixPath]:
    """What names a file: its path, and each folder that it lies in."""
    return [path, *path.parents[:-1]]


def one_of(files: Sequence[tuple[str, bytes]], folder: Path) -> Path:
    """Write a file, or the two that AISBench makes of one load test, into an empty folder; gives the one to read.
    Raises ScenarioError where they are others than that."""
    names = [PurePosixPath(name.replace("\\", "/").replace("\0", "")).name.lstrip(".") or "file" for name, _ in files]
    pair = sorted((PurePosixPath(name).stem, PurePosixPath(name).suffix.lower()) for name in names)
    if len(files) > 1 and (len(files) > 2 or pair[0][0] != pair[1][0] or [end for _, end in pair] != [".csv", ".json"]):
        raise ScenarioError(["one file is due, or the .json and the .csv of one name that AISBench writes"])
    for name, (_, data) in zip(names, files, strict=True):
        (folder / name).write_bytes(data)
    return folder / next((name for name in names if len(files) > 1 and name.lower().endswith(".json")), names[0])


def plain_of(message: str, folder: str) -> str:
    """A message without the place on this machine where its file lay."""
    return message.replace(f"{folder}{os.sep}", "").replace(folder, "")
