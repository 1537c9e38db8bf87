"""Chrome traces of PyTorch's own profiler: CUDA streams next to the host's operators and runtime calls."""

from __future__ import annotations

import re
from pathlib import Path

from scenarios.profile.read.build import Texts, ordered
from scenarios.profile.read.files import fail, opened
from scenarios.profile.read.find import HEAD_BYTES
from scenarios.profile.read.join import with_types
from scenarios.profile.read.torch_npu_steps import steps_of_marks
from scenarios.profile.read.trace import Thread, Trace, placed, read_trace_events
from scenarios.profile.table import Capture, Kind, Lane

_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*"rank"\s*:\s*([0-9]{1,6})')
_WORLD = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*"world_size"\s*:\s*([0-9]{1,6})')
_STREAM = re.compile(r"stream ([0-9]{1,9})")
_COPIES = ("gpu_memcpy", "gpu_memset")
#: Categories of what runs on a device.
_DEVICE = ("kernel", *_COPIES)


def read_pytorch(path: Path) -> Capture:
    """The capture of one `*.pt.trace.json[.gz]`. Raises CaptureError, one line."""
    trace = read_trace_events(path, Texts(path))
    if "Ascend Hardware" in trace.process_names.values():
        fail(path, "is a trace of torch_npu in another form than torch_npu writes: an array of events is due")
    return capture_of_trace(path, trace)


def capture_of_trace(path: Path, trace: Trace) -> Capture:
    """The capture of a trace whose events were read."""
    texts, facts = trace.texts, trace.facts
    columns, lanes = placed(trace, _place, _classify)
    dropped = dict(trace.dropped)
    del trace
    events = with_types(ordered(columns, facts.facts()), texts, facts, op_type_of)
    if not len(events.rows(Kind.KERNEL)):
        fail(path, "holds no kernels of a device: profile with ProfilerActivity.CUDA (or of an NPU)")
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
        steps=steps_of_marks(events, texts.tuple()),
        reported=(),
        metadata={"world_size": world[1].decode()} if world else {},
        groups={},
        collective_waits_ns={},
        dropped=dropped,
        notes=("a trace of PyTorch: no reported step times, no shapes of kernels",),
    )


def _place(thread: Thread) -> Lane | None:
    source = f"{thread.process}/{thread.name or thread.tid}"
    match = _STREAM.match(thread.name)
    if thread.labels.startswith("GPU") or match:
        stream = int(match[1]) if match else thread.tid if isinstance(thread.tid, int) else -1
        return Lane("Device", f"Stream {stream}", stream, source)
    if isinstance(thread.pid, str):  # "Spans" and "Traces": what covers the whole file
        return None
    return Lane("Python", thread.name or f"Thread {thread.tid}", -1, source)


def _classify(lane: Lane, name: str, task_type: str, category: str) -> Kind:
    if lane.process == "Python":
        return Kind.STEP if name.startswith("ProfilerStep#") else Kind.HOST
    if category in _COPIES:
        return Kind.COPY
    if category not in _DEVICE:
        return Kind.TASK
    return Kind.COLLECTIVE if name.lower().startswith(("nccl", "void nccl", "rccl")) else Kind.KERNEL


def op_type_of(name: str) -> str:
    """The function in a kernel's name: `void at::native::vectorized_elementwise_kernel<4, ...>` is
    vectorized_elementwise_kernel."""
    plain = name.removeprefix("void ").replace("(anonymous namespace)", "")
    plain = re.split(r"[<(]", plain, maxsplit=1)[0]
    return plain.rsplit("::", 1)[-1].strip() or name
