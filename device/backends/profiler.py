"""torch's own profiler, of a CPU or a GPU: a Chrome trace per rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.profiler import ProfilerActivity, profile, schedule


def torch_profiler(folder: Path, rank: int, steps: int, on_gpu: bool) -> Any:
    """One step passes to warm up, `steps` are recorded and written to `folder`/rankN.pt.trace.json."""

    def write(recorded: Any) -> None:
        recorded.export_chrome_trace(str(folder / f"rank{rank}.pt.trace.json"))

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    plan = schedule(wait=0, warmup=1, active=steps, repeat=1)
    return profile(activities=activities, schedule=plan, record_shapes=True, on_trace_ready=write)
