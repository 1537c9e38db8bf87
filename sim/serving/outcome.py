"""What became of a load: the time points of each request, the steps, and what is counted over both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, fields, replace
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scenarios.records import dataclass
from scenarios.serving.entry import Entry
from scenarios.serving.requests import Load, Request
from scenarios.serving.scheduler import Scheduler
from sim.serving.prices import TICKS_PER_NS, whole_ns

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: Why a request that waits was not let in, as numbers of the log.
REASONS = ("", "slots", "kv", "prefill")
REASON_NUMBERS = {reason: number for number, reason in enumerate(REASONS)}

#: (request, ticks at which it had the last token before it lost its blocks, and the next one).
Pause = tuple[int, int, int]


class Log:
    """Runs of steps, in order: of each, as `pack` has them, start, decoding requests, steps, ticks of the first step,
    by how much each next one is longer, prefill chunks, ticks that the first step's decodes would take alone, ticks of
    the device in the first step, and the number of why requests wait. Numbers beyond 2^53 are rounded."""

    _row = Struct("d8q")
    pack = staticmethod(_row.pack)

    def __init__(self) -> None:
        self.cells = bytearray()
        self._stalls: list[tuple[int, int]] = []  # (run, requests that stand still in it)

    def add(self, run: tuple[int, ...]) -> None:
        self.cells += self.pack(*run)

    def stall(self, requests: int) -> None:
        """In the step that was logged last, so many requests that decode stand still."""
        self._stalls.append((len(self.cells) // self._row.size - 1, requests))

    def steps(self) -> Steps:
        """As columns; `gaps` are all that decode."""
        rows = np.frombuffer(self.cells, np.dtype([("start", np.float64), ("rest", np.int64, 8)]))
        decoding, steps, first, more, chunks, alone, device, blocked = np.ascontiguousarray(rows["rest"].T)
        stalled = np.zeros(len(rows), np.int64)
        for run, requests in self._stalls:
            stalled[run] = requests
        return Steps(
            rows["start"] / TICKS_PER_NS,
            decoding,
            steps=steps,
            first_ns=first / TICKS_PER_NS,
            more_ns=more / TICKS_PER_NS,
            chunks=chunks,
            alone_ns=alone / TICKS_PER_NS,
            device_ns=device / TICKS_PER_NS,
            blocked=blocked,
            stalled=stalled,
            gaps=decoding.copy(),
            instance=np.zeros(len(rows), np.int64),
        )


@dataclass(frozen=True, slots=True)
class Steps:
    """The log as columns, ns (floats, below a nanosecond exact): one row a run of equal steps. stalled: requests that
    decode but stand still while prompts go first. gaps: of requests past the warm-up, those for which each step is a
    gap between two of their tokens, or part of one where nothing decodes. instance: of several engines the one."""

    start_ns: Floats
    decoding: Ints
    steps: Ints
    first_ns: Floats
    more_ns: Floats
    chunks: Ints
    alone_ns: Floats
    device_ns: Floats
    blocked: Ints
    stalled: Ints
    gaps: Ints
    instance: Ints

    @property
    def total_ns(self) -> Floats:
        """Of each run."""
        return self.steps * self.first_ns + self.more_ns * (self.steps * (self.steps - 1) / 2)

    @property
    def total_device_ns(self) -> Floats:
        """Of each run: device time, without what the host adds."""
        return self.steps * self.device_ns + self.more_ns * (self.steps * (self.steps - 1) / 2)

    def each_ns(self) -> tuple[Floats, Ints]:
        """(length, requests for which it is a gap) of every single step."""
        number = np.arange(int(self.steps.sum())) - np.repeat(np.cumsum(self.steps) - self.steps, self.steps)
        lengths = np.repeat(self.first_ns, self.steps) + number * np.repeat(self.more_ns, self.steps)
        return lengths, np.repeat(self.gaps, self.steps)

    def gaps_ns(self) -> tuple[Floats, Ints]:
        """(from token to token, how many requests) of every step in which some decode: its length, and for those that
        stood still before it, that of the steps with prompts in between."""
        lengths, gaps = self.each_ns()
        kept = np.repeat(self.decoding > 0, self.steps)
        values, weights = lengths[kept], gaps[kept]
        stalled = np.where(self.decoding > 0, 0, self.gaps)
        if not stalled.any():
            return values, weights
        before = np.cumsum(np.where(self.decoding > 0, self.steps, 0))  # decode steps up to each run's end
        waits: dict[int, list[tuple[float, int]]] = {}  # by decode step: how long who waited, the last to come first
        for run in np.flatnonzero(stalled):
            group = waits.setdefault(int(before[run]), [])
            known, ns = sum(count for _, count in group), float(self.first_ns[run])
            group[:] = [(wait + ns, count) for wait, count in group]
            group.append((ns, int(stalled[run]) - known))
        added = [(step, wait, count) for step, group in waits.items() for wait, count in group if step < len(values)]
        at = np.array([step for step, _, _ in added], np.int64)
        late = np.array([count for _, _, count in added], np.int64)
        np.subtract.at(weights, at, late)
        longer = values[at] + np.array([wait for _, wait, _ in added])
        return np.concatenate((values, longer)), np.concatenate((weights, late))


@dataclass(frozen=True, slots=True)
class InstanceUse:
    """What one of several engines did. role: replica, prefill, decode. requests: sent to it. input_tokens and
    output_tokens: of those that ended there. busy_ns: in steps."""

    role: str
    requests: int
    input_tokens: int
    output_tokens: int
    busy_ns: float


@dataclass(frozen=True, slots=True)
class Completed:
    """Requests that ended, in the order of their ids; times in ns from the first arrival on. started: when it was first
    let in."""

    ids: Ints
    arrived_ns: Ints
    started_ns: Ints
    first_ns: Ints
    last_ns: Ints
    input_tokens: Ints
    output_tokens: Ints


@dataclass(frozen=True, slots=True)
class ServingOutcome(Completed):
    """Completed requests, and what was counted.

    counted: whether a request is past the warm-up. rejected: requests that are longer than allowed or than the cache
    holds. tokens_per_step: that a decode step yields for one request. instances: of a fleet behind a router. pauses_ns:
    gaps between tokens, of requests past the warm-up, in which they lost their blocks. transfer_wait_ns: from the end
    of a prefill to its KV at the decode instance, mean.
    """

    counted: NDArray[np.bool_]
    rejected: int
    preemptions: int
    usage_peak: float
    hit_tokens: int
    asked_tokens: int
    steps: Steps
    loaded_tokens: int = 0
    tokens_per_step: float = 1.0
    instances: tuple[InstanceUse, ...] = ()
    transfer_wait_ns: float = 0.0
    pauses_ns: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def step_count(self) -> int:
        return int(self.steps.steps.sum())

    @property
    def mean_in_system(self) -> float:
        """Requests in the system on average from the first arrival to the last token, counted over time."""
        times = np.concatenate((self.arrived_ns, self.last_ns))
        changes = np.concatenate((np.ones(len(self.arrived_ns)), -np.ones(len(self.last_ns))))
        order = np.argsort(times, kind="stable")
        inside = np.cumsum(changes[order])[:-1]
        gaps = np.diff(times[order])
        return float((inside * gaps).sum() / gaps.sum()) if gaps.sum() else 0.0


def completed_of(done: list[Entry]) -> Completed:
    """What a loop has of them, whose times are ticks."""
    arrived = [entry.arrived for entry in done]
    ticks = ([getattr(entry, name) for entry in done] for name in ("started", "first", "last"))
    return in_order([entry.request for entry in done], (arrived, *([whole_ns(at) for at in times] for times in ticks)))


def in_order(requests: Sequence[Request], times_ns: Sequence[Sequence[int]]) -> Completed:
    """Those of `requests` that ended. times_ns: of each when it arrived, started, had its first and its last token, the
    last of these below 0 where it did not end."""
    arrived, started, first, last = (np.array(column, np.int64) for column in times_ns)
    ids = np.array([request.id for request in requests], np.int64)
    inputs = np.array([request.input_tokens for request in requests], np.int64)
    outputs = np.array([request.output_tokens for request in requests], np.int64)
    order = np.argsort(ids)
    order = order[last[order] >= 0]
    times = arrived[order], started[order], first[order], last[order]
    return Completed(ids[order], *times, input_tokens=inputs[order], output_tokens=outputs[order])


def outcome_of(
    load: Load, completed: Completed, rejected: int, log: Log, scheduler: Scheduler, pauses: Sequence[Pause] = ()
) -> ServingOutcome:
    """The outcome of a run that is over."""
    warmup = {request.id for request in load.requests[: load.warmup]}
    counted = ~np.isin(completed.ids, list(warmup))
    kept = [pause for pause in pauses if pause[0] not in warmup]
    lost_ns, back_ns = (np.array([whole_ns(pause[at]) for pause in kept], np.int64) for at in (1, 2))
    steps = log.steps()
    gaps = _inside(completed.first_ns[counted], completed.last_ns[counted], steps) - _inside(lost_ns, back_ns, steps)
    return ServingOutcome(
        **{f.name: getattr(completed, f.name) for f in fields(Completed)},
        counted=counted,
        rejected=rejected,
        preemptions=scheduler.preemptions,
        usage_peak=scheduler.kv.usage_peak,
        hit_tokens=scheduler.kv.hit_tokens,
        asked_tokens=scheduler.kv.asked_tokens,
        loaded_tokens=scheduler.kv.loaded_tokens,
        steps=replace(steps, gaps=gaps),
        tokens_per_step=scheduler.drafts.tokens_per_step if scheduler.drafts else 1.0,
        pauses_ns=back_ns - lost_ns,
    )


def _inside(from_ns: Ints, to_ns: Ints, steps: Steps) -> Ints:
    """How many of the times, each rounded up to a nanosecond, hold the start of each run of steps."""
    started, over = (np.searchsorted(np.sort(ns), steps.start_ns + 1, side="left") for ns in (from_ns, to_ns))
    return (started - over).astype(np.int64)


def merged(outcomes: list[ServingOutcome]) -> ServingOutcome:
    """The outcomes of replicas as one."""
    if len(outcomes) == 1:
        return outcomes[0]
    order = np.argsort(np.concatenate([o.ids for o in outcomes]), kind="stable")
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(o, name) for o in outcomes])[order]
        for name in (
            "ids",
            "arrived_ns",
            "started_ns",
            "first_ns",
            "last_ns",
            "input_tokens",
            "output_tokens",
            "counted",
        )
    }
    pauses = np.concatenate([o.pauses_ns for o in outcomes])
    sums = {name: sum(getattr(o, name) for o in outcomes) for name in _COUNTS}
    steps = _joined([o.steps for o in outcomes])
    peak = max(o.usage_peak for o in outcomes)
    yielded = outcomes[0].tokens_per_step
    return ServingOutcome(**columns, **sums, usage_peak=peak, steps=steps, tokens_per_step=yielded, pauses_ns=pauses)


def after_prefill(prefill: ServingOutcome, decode: ServingOutcome) -> ServingOutcome:
    """Requests that were prefilled in one place and decoded in another: they arrived and were let in at the first, and
    their tokens came from the second."""
    place = np.searchsorted(prefill.ids, decode.ids)
    return replace(
        decode,
        arrived_ns=prefill.arrived_ns[place],
        started_ns=prefill.started_ns[place],
        preemptions=prefill.preemptions + decode.preemptions,
        hit_tokens=prefill.hit_tokens,
        asked_tokens=prefill.asked_tokens,
        loaded_tokens=prefill.loaded_tokens,
        steps=_joined([prefill.steps, decode.steps]),
    )


def _joined(parts: Sequence[Steps]) -> Steps:
    """Steps one part after the other, their instances numbered on."""
    columns = {f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Steps)}
    before = np.cumsum([0, *(int(part.instance.max(initial=0)) + 1 for part in parts)])[:-1]
    columns["instance"] += np.repeat(before, [len(part.instance) for part in parts])
    return Steps(**columns)


_COUNTS = ("rejected", "preemptions", "hit_tokens", "asked_tokens", "loaded_tokens")
