"""Stages and micro-batches in time: who waits for whom in a pipeline, and how much of it is bubble.

Each stage has a host and a device; micro-batches go through the stages in order. With b the moment when a stage's host
starts with a micro-batch, r the end of the receive (on the first stage: when the device is free), a pass through stage
s is

    host free   b + host_ns                             device done   max(b + alone_ns, r + queued_ns)

Both terms are longest paths through the stage's own step, so this is what the step's players compute, shortened to what
others see of it. A stage's host starts when it is through with the micro-batch before and the host of the stage before
has announced the tensors (vLLM sends their shapes from host to host before the data). A transfer is a rendezvous: it
starts when the sender's device is done and the receiver's has come to its receive, and holds both until it ends. The
host of the last stage waits for its device, as it reads the sampled tokens; the next step of the same requests is
scheduled when it has them. `tests/sim/pipeline_simpy.py` says the same in SimPy, and a property test holds them equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from scenarios.records import dataclass

#: Rounds that are played at most before the pipeline must have settled.
MAX_ROUNDS = 200


@dataclass(frozen=True, slots=True)
class StageTime:
    """What one micro-batch takes on one stage, ns.

    host_ns: until the host is through with issuing. post_ns: until the device has come to the receive, had it been
    idle. alone_ns: until the device is done, had the tensors been there. queued_ns: from the end of the receive until
    the device is done, had all been issued long before. transfer_ns: the receive itself. On the last stage the done are
    the host's, which waits for the tokens. rigid: the host waits for its device on every stage.
    """

    host_ns: int
    post_ns: int
    alone_ns: int
    queued_ns: int
    transfer_ns: int = 0
    rigid: bool = False

    @property
    def durations_ns(self) -> tuple[int, ...]:
        """All times, in order."""
        return self.host_ns, self.post_ns, self.alone_ns, self.queued_ns, self.transfer_ns

    @classmethod
    def of(cls, durations_ns: Sequence[float], rigid: bool) -> StageTime:
        """The stage time with these `durations_ns`, rounded to whole nanoseconds."""
        host, post, alone, queued, transfer = (round(ns) for ns in durations_ns)
        return cls(host, post, alone, queued, transfer, rigid)


@dataclass(frozen=True, slots=True)
class Pass:
    """One micro-batch on one stage, ns on the pipeline's clock.

    start: of the host. device_free: when the device was through with what came before. post: the receive has been
    posted, transfer: it starts, arrived: it has ended (all on the first stage: the device is free). ready: the device
    is done (on the last stage: the host has the tokens). idle: neither host nor device had anything to do before.
    """

    start_of: int
    device_free: int
    post: int
    transfer: int
    arrived: int
    ready: int
    idle: int


@dataclass(slots=True)
class Clocks:
    """When the host and the device of each stage are free, ns."""

    host: list[int]
    device: list[int]

    @classmethod
    def at_rest(cls, stages: int) -> Clocks:
        return cls([0] * stages, [0] * stages)

    def through(self, times: Sequence[StageTime], scheduled_ns: int) -> tuple[Pass, ...]:
        """Send one micro-batch, scheduled at `scheduled_ns`, through all stages."""
        host, device = self.host, self.device
        last = len(times) - 1
        announced, ready = scheduled_ns, 0
        passes: list[Pass] = []
        for stage, stage_times in enumerate(times):
            start = max(host[stage], announced)
            idle = max(0, start - max(host[stage], device[stage]))
            free = post = transfer = arrived = device[stage]
            if stage:
                post = max(start + stage_times.post_ns, free)
                transfer = max(post, ready)
                arrived = transfer + stage_times.transfer_ns
                device[stage - 1] = arrived
                if times[stage - 1].rigid:
                    host[stage - 1] = arrived
            ready = max(start + stage_times.alone_ns, arrived + stage_times.queued_ns)
            device[stage] = ready
            announced = ready if stage_times.rigid else start + stage_times.host_ns
            host[stage] = ready if stage == last else announced
            passes.append(
                Pass(
                    start_of=start,
                    device_free=free,
                    post=post,
                    transfer=transfer,
                    arrived=arrived,
                    ready=ready,
                    idle=idle,
                )
            )
        return tuple(passes)


@dataclass(frozen=True, slots=True)
class Bubble:
    """Time of one stage without work of its own, ns: its device waited to receive, or to send, or nothing was there."""

    receive_ns: int = 0
    send_ns: int = 0
    idle_ns: int = 0

    @property
    def total_ns(self) -> int:
        return self.receive_ns + self.send_ns + self.idle_ns


@dataclass(frozen=True, slots=True)
class Round:
    """All micro-batches once through the pipeline.

    total_ns: in a steady state, from the start of one round to the start of the next; of a series that is run once,
    from the first start to the last end. passes: by micro-batch and stage. bubbles: by stage.
    """

    total_ns: int
    passes: tuple[tuple[Pass, ...], ...]
    bubbles: tuple[Bubble, ...] = field(default=())

    @property
    def share(self) -> float:
        """Share of the stages' time that is bubble."""
        return sum(b.total_ns for b in self.bubbles) / (len(self.bubbles) * self.total_ns)


def once(times: Sequence[Sequence[StageTime]]) -> Round:
    """A series of micro-batches (prefill chunks), from an empty pipeline to an empty one.

    times: by micro-batch and stage. As many micro-batches are in flight as there are stages, as in vLLM.
    """
    stages = len(times[0])
    clocks = Clocks.at_rest(stages)
    passes: list[tuple[Pass, ...]] = []
    for number, row in enumerate(times):
        scheduled = passes[number - stages][-1].ready if number >= stages else 0
        passes.append(clocks.through(row, scheduled))
    total = passes[-1][-1].ready
    bubbles = _bubbles(passes, [total - max(clocks.host[s], clocks.device[s]) for s in range(stages)])
    return Round(total, tuple(passes), bubbles)


def steady(times: Sequence[Sequence[StageTime]]) -> Round:
    """The round that repeats: each micro-batch comes back when its tokens are there.

    Rounds are played until each clock is later than in the round before by one and the same time.
    """
    stages = len(times[0])
    clocks = Clocks.at_rest(stages)
    done = [0] * len(times)
    states: list[list[int]] = []
    passes: list[tuple[Pass, ...]] = []
    while len(states) < MAX_ROUNDS:
        passes = [clocks.through(row, scheduled) for row, scheduled in zip(times, done, strict=True)]
        done = [row[-1].ready for row in passes]
        states.append([*clocks.host, *clocks.device, *done])
        if len(states) > 1 and len({b - a for a, b in zip(states[-2], states[-1], strict=True)}) == 1:
            break
    half = len(states) // 2 if len(states) == MAX_ROUNDS else len(states) - 2
    total = round((states[-1][-1] - states[half][-1]) / (len(states) - 1 - half))
    return Round(total, tuple(passes), _bubbles(passes, [0] * stages))


def _bubbles(passes: Sequence[Sequence[Pass]], after: Sequence[int]) -> tuple[Bubble, ...]:
    """Waiting by stage. after: what each stage idles behind its last micro-batch."""
    bubbles: list[Bubble] = []
    for stage, idle in enumerate(after):
        receive = sum(row[stage].transfer - row[stage].post for row in passes)
        send = sum(row[stage + 1].transfer - row[stage].ready for row in passes) if stage + 1 < len(after) else 0
        bubbles.append(Bubble(receive, send, idle + sum(row[stage].idle for row in passes)))
    return tuple(bubbles)
