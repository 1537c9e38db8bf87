"""The loop of a serving engine on a device: what the scheduler plans is run, its tokens are real.

    receive what has come -> plan -> inputs of the step -> run -> tokens -> commit

One thread does it all, so that a step takes host and device one after the other (`engine.profile: plain` prices such an
engine). Nothing is timed but by the clock that is given: a token is received when its step has been committed.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass, field

import torch

from device.run.host_inputs import Requests
from device.run.session import Phase, Session
from device.serving.clock import Clock
from device.serving.programs import Programs
from device.serving.swap import HostBlocks
from device.serving.texts import Texts
from scenarios.exchange.served import ServedRequest, ServedStep
from scenarios.serving.client import Client
from scenarios.serving.entry import Entry
from scenarios.serving.requests import Load
from scenarios.serving.scheduler import Scheduler, Step


@dataclass(slots=True)
class Served:
    """What became of a load, in the order in which it happened."""

    requests: list[ServedRequest] = field(default_factory=list)
    steps: list[ServedStep] = field(default_factory=list)
    rejected: int = 0


class Engine:
    """One replica. session: its cache is that of the scheduler. longest: tokens of the longest request it takes."""

    def __init__(self, session: Session, scheduler: Scheduler, texts: Texts, clock: Clock, longest: int) -> None:
        self._session, self._scheduler, self._clock = session, scheduler, clock
        self._texts, self._longest = texts, longest
        self._programs = Programs(session)
        self._uncounted: set[int] = set()
        self._tokens: dict[int, list[int]] = {}  # of each request that is in the system, prompt and output
        self._received: dict[int, list[int]] = {}  # when its tokens were received
        self._swap = HostBlocks(session.cache) if scheduler.limits.swap else None

    def serve(self, load: Load) -> Served:
        """Serve all requests of `load`. Raises RuntimeError where requests wait that nothing will ever serve."""
        client, served = Client(load), Served()
        self._uncounted = {request.id for request in load.requests[: load.warmup]}
        collects = gc.isenabled()
        gc.disable()  # a collection in the middle of a step would be counted as its time
        try:
            with torch.inference_mode():
                self._run(client, served)
        finally:
            if collects:
                gc.enable()
        return served

    def _run(self, client: Client, served: Served) -> None:
        self._clock.start()
        start = 0
        while True:
            self._receive(client, served)
            step = self._plan()
            if not step.is_empty:
                start = self._step(step, start, client, served)
                self._clock.look()
                continue
            coming = client.next_ns()
            if coming is None:
                if self._scheduler.waiting:
                    raise RuntimeError(f"{self._scheduler.waiting} requests wait for KV blocks that nobody holds")
                return
            self._clock.wait_until(coming)
            start = self._clock.now_ns()

    def _receive(self, client: Client, served: Served) -> None:
        """Hand what has come to the scheduler; what can never be served is sent back."""
        for at, request in client.send(self._clock.now_ns()):
            entry = self._scheduler.entry(request)
            if entry is None or request.input_tokens + request.output_tokens > self._longest:
                served.rejected += 1
                client.ended(request, at)
                continue
            entry.arrived = at
            self._tokens[request.id], self._received[request.id] = self._texts.prompt(request), []
            self._scheduler.add(entry)

    def _plan(self) -> Step:
        """The next step, with KV that crosses between host and device for it where it is due."""
        if self._swap is None:
            return self._scheduler.plan()
        running = self._scheduler.running
        self._swap.before_plan(running.values())
        step = self._scheduler.plan()
        self._swap.after_plan(running.values())
        return step

    def _step(self, step: Step, start: int, client: Client, served: Served) -> int:
        """Run one step; returns when it ended, ns."""
        clock, session = self._clock, self._session
        decoding = [entry for entry in self._scheduler.running.values() if entry.decoding]
        stalled = 0
        if not step.decoding:  # prompts go first
            stalled, decoding = len(decoding), []
        for chunk in step.chunks:
            if chunk.entry.started < 0:
                chunk.entry.started = max(start, chunk.entry.arrived)  # it came while the step before was committed
        phase, requests = self._requests(step, decoding)
        bound, inputs = session.prepared(phase, requests, self._programs.batch(phase, requests))
        session.backend.synchronize()
        issued = clock.now_ns()
        bound.run(inputs)
        chosen = bound.next_ids(inputs)
        device_ns = clock.now_ns() - issued
        producing = [*decoding, *(chunk.entry if chunk.is_last else None for chunk in step.chunks)]
        numbers = [entry.request.id if entry is not None else None for entry in producing]
        for number, token in zip(numbers, chosen, strict=False):  # a captured graph pads the batch
            if number is not None:
                self._tokens[number].append(token)
        _, ended = self._scheduler.commit(step)
        end = clock.now_ns()
        for number in numbers:
            if number is not None:
                self._received[number].append(end)
        for entry in ended:
            served.requests.append(self._ended(entry))
            client.ended(entry.request, end)
        served.steps.append(
            ServedStep(
                start,
                end,
                device_ns,
                len(decoding),
                chunks=len(step.chunks),
                prompt_tokens=sum(chunk.tokens for chunk in step.chunks),
                blocked=self._scheduler.blocked,
                stalled=stalled,
                context_tokens=sum(requests.contexts[: len(decoding)]),
                pairs=sum(c.tokens * c.start + c.tokens * (c.tokens + 1) // 2 for c in step.chunks),
            )
        )
        return end

    def _requests(self, step: Step, decoding: list[Entry]) -> tuple[Phase, Requests]:
        """What the step computes: the last token of those that decode, then chunks of prompts."""
        numbers: list[int] = []
        contexts: list[int] = []
        tokens: list[tuple[int, ...]] = []
        for entry in decoding:
            held = self._tokens[entry.request.id]
            numbers.append(entry.request.id)
            contexts.append(len(held) - 1)
            tokens.append((held[-1],))
        for chunk in step.chunks:
            numbers.append(chunk.entry.request.id)
            contexts.append(chunk.start)
            tokens.append(tuple(self._tokens[chunk.entry.request.id][chunk.start : chunk.start + chunk.tokens]))
        phase: Phase = "decode" if not step.chunks else "mixed" if decoding else "prefill"
        return phase, Requests(tuple(numbers), tuple(contexts), tuple(tokens))

    def _ended(self, entry: Entry) -> ServedRequest:
        request = entry.request
        tokens = self._tokens.pop(request.id)
        self._texts.answered(request, tokens)
        return ServedRequest(
            id=request.id,
            arrived_ns=entry.arrived,
            started_ns=entry.started,
            token_ns=tuple(self._received.pop(request.id)),
            input_tokens=request.input_tokens,
            output=tuple(tokens[request.input_tokens :]),
            counted=request.id not in self._uncounted,
        )
