"""What time it is for requests that are served: the wall clock, or work alone at one speed of the machine."""

from __future__ import annotations

from collections import deque
from statistics import median
from time import perf_counter_ns, sleep
from typing import Literal, Protocol

from device.measure.steady import WINDOW, Reference
from device.run.backend import Backend

Kind = Literal["wall", "steady"]
#: Work between two looks at how fast the machine is, ns; a look takes half a millisecond of a CPU.
LOOK_EVERY_NS = 20_000_000


class Clock(Protocol):
    """Nanoseconds since the first request may come. slept_ns: of the wall clock, in which nothing was to be done."""

    kind: Kind
    slept_ns: int

    def start(self) -> None:
        """It is 0 now."""

    def now_ns(self) -> int: ...

    def wait_until(self, ns: int) -> None:
        """Return when it is `ns` or later."""

    def look(self) -> None:
        """Between two steps: what must be done outside of the time that counts."""

    @property
    def scaled_by(self) -> float:
        """Time that counted over the time that the work took."""


class WallClock:
    """As a client's clock has it: other programs' time counts, and nothing happens until a request comes."""

    kind: Kind = "wall"
    scaled_by = 1.0

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self._zero, self.slept_ns = perf_counter_ns(), 0

    def now_ns(self) -> int:
        return perf_counter_ns() - self._zero

    def wait_until(self, ns: int) -> None:
        while (left := ns - self.now_ns()) > 0:
            sleep(left / 1e9)
            self.slept_ns += left

    def look(self) -> None:
        """Nothing: it never stands still."""


class SteadyClock:
    """Stands still while other programs have the processor, runs as fast as the machine did when its profile was
    measured (`device.measure.steady`), and leaps over waiting.

    reference_ns: what the reference kernel took then; 0 for its median at the start of this run.
    """

    kind: Kind = "steady"
    slept_ns = 0

    def __init__(self, backend: Backend, reference_ns: float = 0.0) -> None:
        self._backend, self._reference = backend, Reference(backend)
        first = [self._reference.timed().busy_ns for _ in range(3 * WINDOW)]
        self._at = reference_ns or float(median(first))
        self._recent = deque((float(ns) for ns in first[-WINDOW:]), WINDOW)
        self.start()

    def start(self) -> None:
        self._own = self._backend.own_ns()
        self._now = self._worked = self._counted = 0.0
        self._looked = 0.0

    def now_ns(self) -> int:
        own = self._backend.own_ns()
        taken = own - self._own
        counted = taken * self._at / median(self._recent)
        self._own, self._now = own, self._now + counted
        self._worked, self._counted = self._worked + taken, self._counted + counted
        return int(self._now)

    def wait_until(self, ns: int) -> None:
        self._now = max(self._now, float(ns))

    def look(self) -> None:
        self.now_ns()
        if self._worked - self._looked >= LOOK_EVERY_NS:
            self._looked = self._worked
            self._recent.append(float(self._reference.timed().busy_ns))
        self._own = self._backend.own_ns()

    @property
    def scaled_by(self) -> float:
        return self._counted / self._worked if self._worked else 1.0
