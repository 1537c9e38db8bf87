"""What a path holds: which profilers' folders and files, one a rank."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from scenarios.profile.read.files import LIMITS, fail, opened
from scenarios.records import dataclass

OUTPUT = "ASCEND_PROFILER_OUTPUT"
Form = Literal["torch_npu", "trace_view", "database", "op_summary", "pytorch", "own"]
#: How many folders deep and how many entries wide a capture is looked for.
MAX_DEPTH, MAX_ENTRIES = 5, 20_000
HEAD_BYTES = 1 << 16

_DATABASE = re.compile(r"(ascend_pytorch_profiler|msprof)(_[0-9]{1,20})?\.db")
_OP_SUMMARY = re.compile(r"op_summary(_[0-9A-Za-z]{1,24}){0,4}\.csv")
_TASK_TIME = re.compile(r"task_time(_[0-9A-Za-z]{1,24}){0,4}\.csv")
_TRACE = re.compile(r".*\.(pt\.)?trace\.json(\.gz)?|trace(_[0-9A-Za-z]{1,24})?\.json(\.gz)?")
_OWN = re.compile(rb'"labels": "[A-Z]{1,8} (?:[0-9]{1,9} )?(?:SIMULATED|MEASURED)"')


@dataclass(frozen=True, slots=True)
class Source:
    """One rank's folder or file and the form it has."""

    path: Path
    form: Form


def sources(path: Path) -> list[Source]:
    """The captures under `path`, in order of their names. Raises CaptureError where there is none."""
    try:
        is_folder = path.is_dir()
    except (OSError, ValueError):
        is_folder = False
    sources = list(_walk(path)) if is_folder else [_file(path)]
    if not sources:
        what = f"{OUTPUT}, ascend_pytorch_profiler_*.db, op_summary_*.csv, task_time_*.csv or *.pt.trace.json"
        fail(path, f"holds no profile: there is no {what} in it")
    if len(sources) > LIMITS.ranks:
        fail(path, f"holds more than {LIMITS.ranks} profiles")
    return sources


def _walk(top: Path) -> Iterator[Source]:
    """Folders that are captures, from above; links between folders are not followed below `top`."""
    seen = 0
    queue = [(top, 0)]
    while queue:
        folder, depth = queue.pop(0)
        try:
            with os.scandir(folder) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError as error:
            fail(folder, f"cannot be read: {error.strerror or error}")
        seen += len(entries)
        if seen > MAX_ENTRIES:
            fail(top, f"holds more than {MAX_ENTRIES:,} files; name the folder of the profile itself")
        here = _folder(folder, [entry.name for entry in entries])
        if here is not None:
            yield from here
        elif depth < MAX_DEPTH:
            queue += [(Path(entry.path), depth + 1) for entry in entries if entry.is_dir(follow_symlinks=False)]


def _folder(folder: Path, names: list[str]) -> list[Source] | None:
    """The captures of a folder that is one; None for a folder to look into."""
    if OUTPUT in names:
        return [_output(folder / OUTPUT)]
    if folder.name == OUTPUT or "kernel_details.csv" in names or "trace_view.json" in names:
        return [_output(folder)]
    for pattern, form in ((_DATABASE, "database"), (_OP_SUMMARY, "op_summary"), (_TASK_TIME, "op_summary")):
        matching = [name for name in names if pattern.fullmatch(name)]
        if matching:
            return [Source(folder / name, form) for name in matching]  # type: ignore[arg-type]
    traces = [name for name in names if _TRACE.fullmatch(name)]
    return [_file(folder / name) for name in traces] or None


def _output(folder: Path) -> Source:
    """ASCEND_PROFILER_OUTPUT: its text files, or the database where it holds nothing else."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        fail(folder, f"cannot be read: {error.strerror or error}")
    databases = [name for name in names if _DATABASE.fullmatch(name)]
    if databases and "kernel_details.csv" not in names and "trace_view.json" not in names:
        if len(databases) > 1:
            fail(folder, f"holds {len(databases)} databases of one rank: {databases[0]} and {databases[1]}")
        return Source(folder / databases[0], "database")
    return Source(folder, "torch_npu")


def _file(path: Path) -> Source:
    """A file named by the user, by its name and its first bytes."""
    with opened(path) as file:
        head = file.read(HEAD_BYTES)
    if not head:
        fail(path, "is empty")
    if head.startswith(b"SQLite format 3\0") or path.suffix == ".db":
        return Source(path, "database")
    if head.lstrip()[:1] in (b"[", b"{"):
        if _OWN.search(head):
            return Source(path, "own")
        return Source(path, "trace_view" if head.lstrip()[:1] == b"[" else "pytorch")
    if path.suffix == ".csv":
        return Source(path, "op_summary")
    fail(path, "is no profile: neither a trace (JSON), nor a table (CSV), nor a database (SQLite)")
