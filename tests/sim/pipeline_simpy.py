"""The pipeline in SimPy: hosts, devices, announcements and rendezvous as processes. What `sim.step.pipeline` must
equal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from simpy import Environment, Event, Store

from sim.step.pipeline import StageTime


def tokens_ns(times: Sequence[Sequence[StageTime]], rounds: int, in_flight: int = 0) -> list[int]:
    """When the tokens of each micro-batch are there, in order, over `rounds` rounds.

    A micro-batch of a later round is scheduled when its tokens of the round before are there; with `in_flight`, when
    as many micro-batches before it are done (a series that is run once).
    """
    pipeline = _Pipeline(times, len(times) * rounds)
    pipeline.run(in_flight or len(times))
    return pipeline.found


class _Pipeline:
    """`count` micro-batches through the stages of `times`, [micro-batch][stage]; found: when each is done."""

    def __init__(self, times: Sequence[Sequence[StageTime]], count: int) -> None:
        self.times, self.count, self.stages = times, count, len(times[0])
        self.env = Environment()
        self.found: list[int] = []
        self.done = self._events()
        self.inbox = [Store(self.env) for _ in range(self.stages)]  # announcements from the host of the stage before
        self.queue = [Store(self.env) for _ in range(self.stages)]  # what the host has started, for its device
        self.posted = [self._events() for _ in range(self.stages)]
        self.ready = [self._events() for _ in range(self.stages)]
        self.left = [self._events() for _ in range(self.stages)]

    def run(self, lag: int) -> None:
        self.env.process(self._scheduler(lag))
        for stage in range(self.stages):
            self.env.process(self._host(stage))
            self.env.process(self._device(stage))
        self.env.run()

    def _events(self) -> list[Event]:
        return [self.env.event() for _ in range(self.count)]

    def _at(self, moment: int) -> Event:
        return self.env.timeout(max(0, moment - self.env.now))

    def _scheduler(self, lag: int) -> Iterator[Any]:
        for number in range(self.count):
            if number >= lag:
                yield self.done[number - lag]
            self.inbox[0].put(number)

    def _host(self, stage: int) -> Iterator[Any]:
        for _ in range(self.count):
            number = yield self.inbox[stage].get()
            time = self.times[number % len(self.times)][stage]
            self.queue[stage].put((number, self.env.now))
            yield self.ready[stage][number] if time.rigid else self.env.timeout(time.host_ns)
            if stage == self.stages - 1:
                yield self.ready[stage][number]
                self.found.append(self.env.now)
                self.done[number].succeed()
                continue
            self.inbox[stage + 1].put(number)
            if time.rigid:
                yield self.left[stage][number]

    def _device(self, stage: int) -> Iterator[Any]:
        for _ in range(self.count):
            number, begun = yield self.queue[stage].get()
            time = self.times[number % len(self.times)][stage]
            start = self.env.now  # the device is free, and waits for its host from here on
            if stage:
                yield self._at(begun + time.post_ns)
                self.posted[stage][number].succeed()
                yield self.ready[stage - 1][number]
                yield self.env.timeout(time.transfer_ns)
                self.left[stage - 1][number].succeed()
                start = self.env.now
            yield self._at(max(begun + time.alone_ns, start + time.queued_ns))
            self.ready[stage][number].succeed()
            if stage < self.stages - 1:
                yield self.posted[stage + 1][number]
                yield self.left[stage][number]
