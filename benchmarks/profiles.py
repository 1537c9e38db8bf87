"""How fast a large trace_view.json is imported, and in how much memory: `python benchmarks/profiles.py [MEGABYTES]`.

The trace is generated: eager steps of kernels as torch_npu profiles them at level 1 with call stacks, about 200 bytes
an event. The import runs in a process of its own, so that its peak is the whole command's.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

#: Bounds of the issue: a gigabyte at 200 MB/s in under 100 MB.
MIN_MB_PER_S, MAX_RSS_MB = 200.0, 100.0
KERNELS_A_STEP, KERNEL_US = 500, 40
PYTHON, CANN, DEVICE, HCCL = 4242, 4_344_032, 4_344_224, 4_344_288
EPOCH_US = 1_764_246_877_000_000
STACK = ";\\r\\n".join(f"/home/user/model/layer_{i}.py({i * 37}): forward" for i in range(8))
NAMES = ("MatMulV3", "RmsNorm", "Add", "SwiGlu", "RotaryPositionEmbedding", "FusedInferAttentionScore")


def write_trace(path: Path, megabytes: int) -> int:
    """Write a trace of at least this size; the number of steps in it."""
    step, size = 0, 0
    with path.open("w", encoding="utf-8") as file:
        file.write("[" + ", ".join(_names()))
        while size < megabytes * 1_000_000:
            text = "".join(f", {event}" for event in _step(step))
            size += len(text)
            file.write(text)
            step += 1
        file.write("]")
    return step


def _names() -> Iterator[str]:
    for pid, name in ((PYTHON, "Python"), (CANN, "CANN"), (DEVICE, "Ascend Hardware"), (HCCL, "Communication")):
        yield json.dumps({"name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}, "ph": "M"})
    for pid, tid, name in ((DEVICE, 2, "Stream 2"), (HCCL, 0, "Group 0 Communication")):
        yield json.dumps({"name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}, "ph": "M"})


def _step(step: int) -> Iterator[str]:
    start = EPOCH_US + step * (KERNELS_A_STEP + 2) * KERNEL_US
    length = KERNELS_A_STEP * KERNEL_US
    yield _slice(f"ProfilerStep#{step}", PYTHON, 1, start, length, '"cat": "cpu_op", "args": {}')
    for i in range(KERNELS_A_STEP):
        yield from _kernel(step * KERNELS_A_STEP + i, start + i * KERNEL_US, NAMES[i % len(NAMES)])


def _kernel(number: int, at: int, name: str) -> Iterator[str]:
    """The events of one kernel: operator, queue, launch, task, their arrows, and a counter."""
    op = f'"cat": "cpu_op", "args": {{"Sequence number": -1, "Input Dims": "16,4096", "Call stack": "{STACK}"}}'
    queued = f'"args": {{"correlation_id": {number}}}'
    task = f'"args": {{"Model Id": 4294967295, "Task Type": "AI_CORE", "Physic Stream Id": 2, "Task Id": {number}}}'
    launch = f'"args": {{"Thread Id": 2, "Mode": "launch", "level": "node", "connection_id": {number}}}'
    yield _slice(f"aten::{name.lower()}", PYTHON, 1, at, 30, op)
    yield _slice("Enqueue", PYTHON, 1, at + 10, 5, f'"cat": "enqueue", {queued}')
    yield _arrow("s", "async_task_queue", number, PYTHON, 1, at + 10)
    yield _slice(f"Dequeue@aclnn{name}", PYTHON, 2, at + 16, 12, f'"cat": "dequeue", {queued}')
    yield _arrow("f", "async_task_queue", number, PYTHON, 2, at + 16)
    yield _slice("Node@launch", CANN, 2, at + 18, 6, launch)
    yield _arrow("s", "HostToDevice", number << 32, CANN, 2, at + 18)
    yield _slice(f"aclnn{name}_{name}AiCore_{name}", DEVICE, 2, at + 25, 38, task)
    yield _arrow("f", "HostToDevice", number << 32, DEVICE, 2, at + 25)
    for counter in range(3):
        args = f'"args": {{"value": {number}, "acc_id": {counter}}}'
        yield f'{{"name": "read_bandwidth", "ts": "{at}.{counter:03d}", "pid": 4344500, "tid": 0, {args}, "ph": "C"}}'


def _slice(name: str, pid: int, tid: int, at: int, length: int, more: str) -> str:
    return f'{{"name": "{name}", "pid": {pid}, "tid": {tid}, "ts": "{at}.000", "dur": {length}.25, {more}, "ph": "X"}}'


def _arrow(phase: str, cat: str, number: int, pid: int, tid: int, at: int) -> str:
    where = f'"pid": {pid}, "tid": {tid}, "ts": "{at}.000"'
    return f'{{"name": "{cat}{number}", "ph": "{phase}", "bp": "e", "id": "{number}", "cat": "{cat}", {where}}}'


def imported(path: Path) -> tuple[float, float, float]:
    """Seconds of CPU and of the clock, and the peak in MB, of `whatif import path` as a process."""
    before, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "cli", "import", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - clock
    if done.returncode:
        raise SystemExit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, wall, after.ru_maxrss * 1024 / 1e6


def main() -> None:
    """Print speed and peak against their bounds."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace_view.json"
        steps = write_trace(path, megabytes)
        size = path.stat().st_size / 1e6
        cpu, wall, peak = imported(path)
    print(f"{size:,.0f} MB, {steps:,} steps of {KERNELS_A_STEP} kernels")
    print(f"{size / cpu:6.0f} MB a second of CPU ({size / wall:.0f} of the clock), bound {MIN_MB_PER_S:.0f}")
    print(f"{peak:6.0f} MB peak of the whole process, bound {MAX_RSS_MB:.0f}")


if __name__ == "__main__":
    main()
