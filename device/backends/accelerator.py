"""What a GPU and an NPU have in common: torch.cuda and torch.npu call the same things by the same names."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from math import ceil
from time import perf_counter_ns
from typing import Any

import torch

#: Side of the product that keeps a device busy while the host issues a step (0.2 to 0.5 ms, assumed); runs that it is
#: timed by; and most of them that are queued.
FILLER_SIDE, FILLER_TIMED, MAX_QUEUED = 4096, 8, 2048
#: No device multiplies these in less, ns: a clock that says so is none (the dry runtime's, say).
MIN_FILLER_NS = 20_000


class Accelerator:
    """Streams, events, time marks and memory of a device that works alongside the host.

    device: of this process. calls: torch.cuda or torch.npu.
    """

    device: torch.device
    calls: Any

    def __init__(self, device: torch.device, calls: Any) -> None:
        self.device, self.calls = device, calls
        self._side: dict[int, Any] = {}
        self._filler: tuple[torch.Tensor, float] | None = None

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

    def queue(self, ns: float) -> bool:
        square, each_ns = self._filler or self._timed_filler()
        if each_ns < MIN_FILLER_NS:
            return False
        for _ in range(min(MAX_QUEUED, ceil(ns / each_ns))):
            square @ square
        return True

    def _timed_filler(self) -> tuple[torch.Tensor, float]:
        """A product of matrices and what one takes, ns."""
        square = torch.zeros(FILLER_SIDE, FILLER_SIDE, dtype=torch.float16, device=self.device)
        for _ in range(2):
            square @ square
        self.synchronize()
        start = self.mark()
        for _ in range(FILLER_TIMED):
            square @ square
        end = self.mark()
        self.synchronize()
        self._filler = square, max(1.0, self.between_ns(start, end) / FILLER_TIMED)
        return self._filler

    def is_done(self, mark: Any) -> bool:
        return bool(mark.query())

    def between_ns(self, start: Any, end: Any) -> int:
        passed_ms: float = start.elapsed_time(end)
        return round(passed_ms * 1e6)

    def busy_ns(self, start: Any, end: Any) -> int:
        return self.between_ns(start, end)

    def own_ns(self) -> int:
        return perf_counter_ns()
