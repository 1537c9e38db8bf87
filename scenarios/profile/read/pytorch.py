"""Chrome traces of PyTorch's own profiler: CUDA streams next to the host's operators and runtime calls."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import numpy as np

from scenarios.profile.families import function_of, is_collective_kernel
from scenarios.profile.read.build import Texts, ordered
from scenarios.profile.read.choose import WHATEVER, Only
from scenarios.profile.read.files import fail, opened
from scenarios.profile.read.find import HEAD_BYTES
from scenarios.profile.read.join import with_types
from scenarios.profile.read.marks import is_mark
from scenarios.profile.read.streams import fifo
from scenarios.profile.read.torch_npu_steps import steps_of_marks
from scenarios.profile.read.trace import Thread, Trace, placed, read_trace_events
from scenarios.profile.table import Capture, Events, Kind, Lane

_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*"rank"\s*:\s*([0-9]{1,6})')
_WORLD = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*"world_size"\s*:\s*([0-9]{1,6})')
_STREAM = re.compile(r"stream ([0-9]{1,9})")
_COPIES = ("gpu_memcpy", "gpu_memset")
#: Categories of what runs on a device.
_DEVICE = ("kernel", *_COPIES)
#: Calls of the runtime and the driver, which are no marks whatever they are called.
_CALLS = ("cuda_runtime", "cuda_driver")
#: Categories that only a thread of the host has.
_HOST = frozenset({"cpu_op", "user_annotation", *_CALLS})
_LAUNCH = re.compile(r"launch", re.I)


def read_pytorch(path: Path, only: Only = WHATEVER) -> Capture:
    """The capture of one `*.pt.trace.json[.gz]`. only: the marks and the step that are wished for.

    Raises CaptureError, one line.
    """
    trace = read_trace_events(path, Texts(path), only)
    if "Ascend Hardware" in trace.process_names.values():
        fail(path, "is a trace of torch_npu in another form than torch_npu writes: an array of events is due")
    return capture_of_trace(path, trace, only)


def capture_of_trace(path: Path, trace: Trace, only: Only = WHATEVER) -> Capture:
    """The capture of a trace whose events were read."""
    texts, facts = trace.texts, trace.facts
    columns, lanes = placed(trace, _place, partial(_classify, mark=only.mark))
    dropped, lost_launches = dict(trace.dropped), trace.flows.lost
    noted = [trace.part.note] if trace.part is not None else []
    del trace
    events = with_types(ordered(columns, facts.facts()), texts, facts, function_of)
    if not len(events.rows(Kind.KERNEL, Kind.COLLECTIVE)):
        fail(path, _no_kernels(events, texts.tuple()))
    events, notes = fifo(events, lanes)
    events, steps = steps_of_marks(events, texts.tuple())
    with opened(path) as file:
        head = file.read(HEAD_BYTES)
    rank, world = _RANK.search(head), _WORLD.search(head)
    named = re.search(r"rank_?([0-9]{1,6})(?![0-9])", path.name)
    return Capture(
        source=str(path),
        kind="pytorch",
        rank=int(rank[1]) if rank else int(named[1]) if named else 0,
        device="CUDA",
        texts=texts.tuple(),
        lanes=lanes,
        events=events,
        steps=steps,
        reported=(),
        metadata={"world_size": world[1].decode()} if world else {},
        groups={},
        collective_waits_ns={},
        dropped=dropped,
        lost_launches=lost_launches,
        notes=("a trace of PyTorch: no reported step times, no shapes of kernels", *noted, *notes),
    )


def _no_kernels(events: Events, texts: tuple[str, ...]) -> str:
    """What to say of a trace without kernels: whether the host launched any."""
    names, counts = np.unique(events.name[events.rows(Kind.HOST)], return_counts=True)
    launched = sum(int(n) for name, n in zip(names, counts, strict=True) if _LAUNCH.search(texts[int(name)]))
    if launched:
        return (
            f"holds no kernels of a device, though the host launched {launched:,} times: the device's events were lost "
            "or not recorded (ProfilerActivity.CUDA, permissions, or a profiler that ended before the device did)"
        )
    return "holds no kernels of a device: profile with ProfilerActivity.CUDA (or of an NPU)"


def _place(thread: Thread) -> Lane | None:
    source = f"{thread.process}/{thread.name or thread.tid}"
    match = _STREAM.match(thread.name)
    # What a thread is follows from its rows first: names and labels are lost where a trace was trimmed or split.
    if thread.categories & set(_DEVICE) or match or (thread.labels.startswith("GPU") and not thread.categories & _HOST):
        stream = int(match[1]) if match else thread.tid if isinstance(thread.tid, int) else -1
        return Lane("Device", f"Stream {stream}", stream, source)
    if isinstance(thread.pid, str):  # "Spans" and "Traces": what covers the whole file
        return None
    return Lane("Python", thread.name or f"Thread {thread.tid}", -1, source)


def _classify(lane: Lane, name: str, task_type: str, category: str, mark: str = "") -> Kind:
    if lane.process == "Python":
        return Kind.STEP if (mark or category not in _CALLS) and is_mark(name, mark) else Kind.HOST
    if category in _COPIES:
        return Kind.COPY
    if category not in _DEVICE:
        return Kind.TASK
    return Kind.COLLECTIVE if is_collective_kernel(name) else Kind.KERNEL
