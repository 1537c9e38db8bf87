"""The captures of a path, whatever wrote them: one rank or all ranks of a run."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from scenarios.profile.read.choose import Only
from scenarios.profile.read.database import read_database
from scenarios.profile.read.files import LIMITS, fail
from scenarios.profile.read.find import Form, Source, sources
from scenarios.profile.read.marks import require_marks
from scenarios.profile.read.own import read_own
from scenarios.profile.read.pytorch import read_pytorch
from scenarios.profile.read.torch_npu import read_op_summary, read_torch_npu, read_trace_view
from scenarios.profile.table import Capture, CaptureSet, Kind

_READERS: dict[Form, Callable[[Path, Only], list[Capture]]] = {
    "torch_npu": lambda path, only: [read_torch_npu(path, only)],
    "trace_view": lambda path, only: [read_trace_view(path, only)],
    "database": read_database,
    "op_summary": lambda path, only: [read_op_summary(path, only)],
    "pytorch": lambda path, only: [read_pytorch(path, only)],
    "own": lambda path, only: read_own(path),
}


def read_captures(path: str | Path, mark: str = "", step: str = "") -> CaptureSet:
    """The captures of `path`: a folder of one rank, a folder of several ranks, or a file.

    mark: the name of the host's calls that mark the steps (one of them; others with other numbers are steps too); ""
    takes the marks that are there. step: the id of the step that is looked at, which decides which part of a long trace
    is read; "" for any.

    Raises CaptureError, one line, for a path that holds no capture, for ranks that are there twice, and for ranks that
    are not of one run: different profilers, or different sizes of the world.
    """
    captures: list[Capture] = []
    events = 0
    only = Only(mark, step)
    for source in sources(Path(path)):
        for capture in _read(source, only):
            events += len(capture.events)
            if events > LIMITS.all_events:
                fail(path, f"its ranks hold more than {LIMITS.all_events:,} events; import fewer of them")
            captures.append(capture)
    captures.sort(key=lambda capture: capture.rank)
    for one, other in pairwise(captures):
        _same_run(Path(path), one, other)
    return CaptureSet(tuple(captures))


def _read(source: Source, only: Only) -> list[Capture]:
    captures = []
    for capture in _READERS[source.form](source.path, only):
        if not capture.steps or not len(capture.events.rows(Kind.KERNEL, Kind.COLLECTIVE)):
            fail(source.path, "holds no kernels of a device")
        require_marks(capture, only.mark)
        captures.append(capture)
    return captures


def _same_run(path: Path, one: Capture, other: Capture) -> None:
    """Raise CaptureError where two captures cannot be two ranks of one run."""
    if one.rank == other.rank:
        fail(path, f"rank {one.rank} is there twice: {one.source} and {other.source}; name one of them")
    if one.kind != other.kind or one.label != other.label:
        fail(path, f"mixes a profile of {one.kind} ({one.source}) with one of {other.kind} ({other.source})")
    sizes = [capture.metadata.get("world_size", "") for capture in (one, other)]
    if all(sizes) and sizes[0] != sizes[1]:
        what = f"{one.source} has {sizes[0]} ranks, {other.source} {sizes[1]}"
        fail(path, f"mixes the ranks of two runs: {what}")
