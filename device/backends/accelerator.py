"""What a GPU and an NPU have in common: torch.cuda and torch.npu call the same things by the same names."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from time import perf_counter_ns
from typing import Any

import torch


class Accelerator:
    """Streams, events, time marks and memory of a device that works alongside the host.

    device: of this process. calls: torch.cuda or torch.npu.
    """

    device: torch.device
    calls: Any

    def __init__(self, device: torch.device, calls: Any) -> None:
        self.device, self.calls = device, calls
        self._side: dict[int, Any] = {}

    def free_bytes(self) -> int:
        free: int = self.calls.mem_get_info(self.device)[0]
        return free

    def synchronize(self) -> None:
        self.calls.synchronize()

    def stream(self, number: int) -> AbstractContextManager[None]:
        if not number:  # the current one: in a capture that is the captured one
            return nullcontext()
        if number not in self._side:
            self._side[number] = self.calls.Stream(self.device)
        entered: AbstractContextManager[None] = self.calls.stream(self._side[number])
        return entered

    def record(self) -> Any:
        event = self.calls.Event()
        event.record()
        return event

    def wait(self, event: Any) -> None:
        event.wait()

    def keep(self, x: torch.Tensor) -> None:
        x.record_stream(self.calls.current_stream())

    def mark(self) -> Any:
        event = self.calls.Event(enable_timing=True)
        event.record()
        return event

    def between_ns(self, start: Any, end: Any) -> int:
        passed_ms: float = start.elapsed_time(end)
        return round(passed_ms * 1e6)

    def busy_ns(self, start: Any, end: Any) -> int:
        return self.between_ns(start, end)

    def own_ns(self) -> int:
        return perf_counter_ns()
