"""Streams in turn: where each op is issued, what it waits for, and whose memory it may not lose.

A step starts and ends on the main stream. A side stream starts behind what was on the main one when the step started,
and the main one ends behind all of them: so a captured step forks and joins as a capture must, and the end of a step is
the end of all its work. An event that was recorded inside a captured graph is over when that graph is, which the main
stream is behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from device.run.backend import Backend
    from device.run.call import Unit


class Turns:
    """The streams and events of one step."""

    def __init__(self, backend: Backend, units: Sequence[Unit]) -> None:
        self._backend = backend
        self._several = backend.streams > 1 and any(unit.issued.op.stream for unit in units)
        self._events: dict[str, Any] = {}
        self._begin = backend.record() if self._several else None
        self._begun = {0}
        self._made_on: dict[str, int] = {}

    def of(self, unit: Unit) -> AbstractContextManager[None]:
        """What is issued inside goes to the unit's stream, behind the events that it waits for. One stream is in turn
        by itself."""
        return self._ordered(unit) if self._several else nullcontext()

    @contextmanager
    def _ordered(self, unit: Unit) -> Iterator[None]:
        backend, number = self._backend, unit.issued.op.stream
        waits, records = unit.calls[0].issued.op.waits, unit.calls[-1].issued.op.records
        inside = None if all(name in self._events for name in waits) else backend.record()
        with backend.stream(number):
            if number not in self._begun:
                backend.wait(self._begin)
                self._begun.add(number)
            for name in waits:
                backend.wait(self._events.get(name, inside))
            yield
            for name in records:
                self._events[name] = backend.record()

    def read(self, unit: Unit, values: dict[str, torch.Tensor]) -> None:
        """Call inside `of`, after what `unit` does was issued: the memory of what it has read on another stream than
        that which made it is not given away before it is done."""
        if not self._several:
            return
        number = unit.issued.op.stream
        for call in unit.calls:
            for name, _ in call.operands:
                if isinstance(name, str) and self._made_on.get(name, 0) != number and name in values:
                    self._backend.keep(values[name])

    def wrote(self, unit: Unit) -> None:
        """Note which stream has made the results of `unit`."""
        if self._several:
            for call in unit.calls:
                self._made_on |= dict.fromkeys((name for name in call.results if name), unit.issued.op.stream)

    def end(self) -> None:
        """The main stream waits for all others."""
        for number in sorted(self._begun - {0}):
            with self._backend.stream(number):
                event = self._backend.record()
            self._backend.wait(event)
