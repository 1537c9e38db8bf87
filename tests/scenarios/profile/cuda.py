"""Small traces of PyTorch on a CUDA device, written by hand; times in microseconds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HOST_PID, DEVICE_PID, THREAD = 100, 0, 100


def row(
    cat: str, name: str, tid: int, ts: float, dur: float, correlation: int = 0, pid: int = HOST_PID
) -> dict[str, Any]:
    args = {"correlation": correlation} if correlation else {}
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def mark(name: str, ts: float, dur: float) -> dict[str, Any]:
    return row("user_annotation", name, THREAD, ts, dur)


def op(name: str, ts: float, dur: float) -> dict[str, Any]:
    return row("cpu_op", name, THREAD, ts, dur)


def kernel(
    number: int, launched: float, ts: float, dur: float, name: str = "gemm_kernel", stream: int = 7, cat: str = "kernel"
) -> list[dict[str, Any]]:
    """A kernel and the call that launched it, known to belong together by their correlation number."""
    call = "cudaLaunchKernel" if cat == "kernel" else "cudaMemcpyAsync"
    return [
        row("cuda_runtime", call, THREAD, launched, 5, number),
        row(cat, name, stream, ts, dur, number, DEVICE_PID),
    ]


def write(folder: Path, *events: dict[str, Any] | Iterable[dict[str, Any]], name: str = "t.pt.trace.json") -> Path:
    """A trace without any naming events, as a trimmed one."""
    listed: list[dict[str, Any]] = []
    for event in events:
        listed += [event] if isinstance(event, dict) else list(event)
    path = folder / name
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": listed}))
    return path


def ahead(steps: int, tail_after: float = 1900, tail: float = 60) -> list[dict[str, Any]]:
    """A host one step ahead: each step launches four kernels on stream 7, 200 apart, and a tail on stream 8 that runs
    `tail_after` behind the step's start. A step starts every 1000."""
    events: list[dict[str, Any]] = []
    for n in range(steps):
        start = 1000 * (n + 1)
        events.append(mark(f"ProfilerStep#{n + 1}", start, 1000))
        for i in range(4):
            events += kernel(10 * n + i + 1, start + 20 + 20 * i, start + 100 + 200 * i, 100)
        events += kernel(10 * n + 9, start + 150, start + tail_after, tail, "tail_kernel", 8)
    return events
