"""Profiles that the profile page shows: files that the reader uploads, or a folder below the one that the server names.

What was read is remembered by its content; of an upload nothing stays on the disk.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from app_pages.parts import own
from app_pages.parts.answers import Remembered
from app_pages.parts.dropped import inside, plain_of
from app_pages.parts.server import FOLDER
from scenarios.errors import ScenarioError, printable
from scenarios.loader import load_scenario
from scenarios.profile import CaptureSet
from scenarios.profile.read import read_captures
from scenarios.profile.read.find import sources
from scenarios.timeline import Timeline
from scenarios.trace import trace_text
from sim.hardware.profile import load_hardware
from sim.imported.replayed import replayed
from sim.imported.result import import_result
from sim.imported.timelines import timelines_of
from sim.predict.scenario_result import first_result, kernel_args

#: Endings of files that may be uploaded, all together at most MAX_MB; more goes through `whatif import`.
ENDINGS, MAX_MB, MAX_FILES = ("json", "gz", "csv", "db"), 200, 1000
#: Profiles that the page offers of it.
MAX_OFFERED = 200

#: The scenario and settings of the sample.
SAMPLE = ("qwen3_0_6b_decode", ("optimizations.graph=eager",))

_READ: Remembered[CaptureSet] = Remembered(3)
_SHOWN: Remembered[Shown] = Remembered(12)


@dataclass(frozen=True, slots=True)
class Shown:
    """One step of a profile. result: the `import` document with its what-ifs. timelines: of each rank; changed: of the
    first rank after the chosen what-if, None where none is chosen."""

    result: dict[str, Any]
    timelines: tuple[Timeline, ...]
    changed: Timeline | None


@dataclass(frozen=True, slots=True)
class Given:
    """A profile that can be read, under a key that changes with its content."""

    key: tuple[Any, ...]
    name: str
    files: tuple[tuple[str, bytes], ...] = ()
    path: Path | None = None


def uploaded(files: Sequence[tuple[str, bytes]]) -> Given:
    """The files of one rank's folder, one file, or a folder with those of several ranks, whose names say where in it
    they lie. Raises ScenarioError where they are too many, too large or alike."""
    if len(files) > MAX_FILES:
        raise ScenarioError([f"{len(files)} files: at most {MAX_FILES} make one profile"])
    if sum(len(data) for _, data in files) > MAX_MB * 1_000_000:
        raise ScenarioError(
            [f"more than {MAX_MB} MB: give the folder to whatif import, or start whatif app --profiles"]
        )
    named = tuple((str(inside(name) or "") or _plain(name), data) for name, data in files)
    names = [name for name, _ in named]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ScenarioError([f"{printable(twice)}: there are two files of that name; upload one rank's folder"])
    digest = sha256(b"".join(sha256(name.encode() + data).digest() for name, data in sorted(named))).hexdigest()
    tops = sorted({name.partition("/")[0] for name in names})
    return Given((digest,), ", ".join(tops), named)


def _plain(name: str) -> str:
    """The name alone: what is uploaded is never written elsewhere than where it is put."""
    return os.path.basename(name.replace("\\", "/")).replace("\0", "").lstrip(".") or "file"


def offered() -> dict[str, Path]:
    """The profiles below the server's folder, by their place in it; none where the server names no folder."""
    top = os.environ.get(FOLDER, "")
    if not top:
        return {}
    root = Path(top).resolve()
    try:
        known = sources(root)
    except ScenarioError:
        return {}
    folders: dict[str, Path] = {}
    for source in known[:MAX_OFFERED]:
        folder = source.path if source.path.is_file() else source.path.parent.parent
        # A job's ranks lie next to each other: they are read together.
        place = folder.resolve()
        if place.is_relative_to(root):
            folders.setdefault(str(place.relative_to(root)), place)
    return dict(sorted(folders.items()))


def placed(name: str) -> Given:
    """The profile at `name` below the server's folder. Raises ScenarioError where there is none."""
    path = offered().get(name)
    if path is None:
        raise ScenarioError([f"{printable(name)}: the server offers no such profile"])
    changed = [(f.name, f.stat().st_mtime_ns, f.stat().st_size) for f in sorted(path.rglob("*")) if f.is_file()]
    return Given((str(path), *changed), name, path=path)


@lru_cache(maxsize=1)
def sample() -> Given:
    """A profile to try the page with: a predicted step as a trace, which says of itself that it is no measurement."""
    prediction = first_result(load_scenario(*SAMPLE)).prediction
    text = trace_text([prediction.timeline], [kernel_args(prediction)])
    return uploaded([("sample.trace.json", text.encode())])


def read(given: Given) -> CaptureSet:
    """The profile's ranks. Raises ScenarioError in the file's own name."""
    return _READ.get(given.key, lambda: _read(given))


def _read(given: Given) -> CaptureSet:
    if given.path is not None:
        return read_captures(str(given.path))
    with TemporaryDirectory() as folder:
        for name, data in given.files:
            place = Path(folder) / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        path = folder if len(given.files) > 1 else os.path.join(folder, given.files[0][0])
        try:
            return read_captures(path)
        except ScenarioError as error:
            raise ScenarioError([plain_of(line, folder) for line in error.messages]) from None


def steps_of(given: Given) -> list[str]:
    """Names of the first rank's steps."""
    return [step.id for step in read(given).captures[0].steps]


def shown(given: Given, step: str, hardware: str, what_if: str) -> Shown:
    """One step with its diagnosis and what-ifs. step: "" for the one of median length; hardware: "" for none;
    what_if: "" for none, else as `whatif import --what-if` takes it. Raises ScenarioError."""
    return _SHOWN.get((given.key, step, hardware, what_if), lambda: _shown(given, step, hardware, what_if))


def _shown(given: Given, step: str, hardware: str, what_if: str) -> Shown:
    captures = read(given)
    chip = load_hardware(own.resolved(hardware)) if hardware else None
    result = import_result(captures, chip, step, given.name)
    result["what_if"], _ = replayed(captures, step, (), chip, result["advice_withheld"])
    timelines, notes = timelines_of(captures, step)
    result["notes"] += [note for note in notes if note not in result["notes"]]
    changed = None
    if what_if:
        document, both = replayed(captures, step, (what_if,), chip)
        result["chosen"] = document["rows"]
        changed = both[len(both) // 2] if both else None
    return Shown(result, tuple(timelines), changed)
