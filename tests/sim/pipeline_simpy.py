"""The pipeline in SimPy: hosts, devices, announcements and rendezvous as processes. What `sim.pipeline` must equal."""

from __future__ import annotations

from collections.abc import Sequence

from simpy import Environment, Event, Store

from sim.pipeline import StageTime


def tokens_ns(times: Sequence[Sequence[StageTime]], rounds: int, in_flight: int = 0) -> list[int]:
    """When the tokens of each micro-batch are there, in order, over `rounds` rounds.

    A micro-batch of a later round is scheduled when its tokens of the round before are there; with `in_flight`, when
    as many micro-batches before it are done (a series that is run once).
    """
    env = Environment()
    stages, count = len(times[0]), len(times) * rounds
    done = [env.event() for _ in range(count)]
    inbox = [Store(env) for _ in range(stages)]  # announcements from the host of the stage before
    posted = [[env.event() for _ in range(count)] for _ in range(stages)]
    ready = [[env.event() for _ in range(count)] for _ in range(stages)]
    gone = [[env.event() for _ in range(count)] for _ in range(stages)]
    queue = [Store(env) for _ in range(stages)]  # what the host has begun, for its device
    found: list[int] = []

    def scheduler():
        lag = in_flight or len(times)
        for number in range(count):
            if number >= lag:
                yield done[number - lag]
            inbox[0].put(number)

    def host(stage: int):
        last = stage == stages - 1
        for _ in range(count):
            number = yield inbox[stage].get()
            it = times[number % len(times)][stage]
            queue[stage].put((number, env.now))
            if it.rigid:
                yield ready[stage][number]
            else:
                yield env.timeout(it.host_ns)
            if last:
                yield ready[stage][number]
                found.append(env.now)
                done[number].succeed()
                continue
            inbox[stage + 1].put(number)
            if it.rigid:
                yield gone[stage][number]

    def at(moment: int) -> Event:
        return env.timeout(max(0, moment - env.now))

    def device(stage: int):
        for _ in range(count):
            number, begun = yield queue[stage].get()
            it = times[number % len(times)][stage]
            start = env.now  # the device is free, and waits for its host from here on
            if stage:
                yield at(begun + it.post_ns)
                posted[stage][number].succeed()
                yield ready[stage - 1][number]
                yield env.timeout(it.transfer_ns)
                gone[stage - 1][number].succeed()
                start = env.now
            yield at(max(begun + it.alone_ns, start + it.queued_ns))
            ready[stage][number].succeed()
            if stage < stages - 1:
                yield posted[stage + 1][number]
                yield gone[stage][number]

    env.process(scheduler())
    for stage in range(stages):
        env.process(host(stage))
        env.process(device(stage))
    env.run()
    return found
