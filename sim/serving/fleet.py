"""Several engines at once: a router in front of replicas, or prefill instances that send their KV to decode ones.

Engines run on clocks of their own. The one that is furthest behind goes on, and none runs past the next arrival or past
the others, because what they end may send it a request: only the step that is under way crosses that time, and an
engine looks at its queue between steps alone. So what is simulated is what one common clock would give.

A prompt that a prefill instance ends is sent to a decode instance over the links of their cards. Layer by layer, the
transfer runs behind the prefill and only its rest is waited for; an instance sends one prompt at a time:

    end = latency + max(prefill ended + transfer / layers, prefill started + prefill / layers + transfer,
                        link free + transfer)
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import field, replace

from scenarios.fleet_settings import Router as Policy
from scenarios.records import dataclass
from scenarios.serving.client import Client
from scenarios.serving.requests import Load, Request
from scenarios.serving.router import Load as InstanceLoad
from scenarios.serving.router import Router
from scenarios.serving.scheduler import Scheduler
from sim.engines.costs import EngineCosts
from sim.serving.loop import UNLIMITED, Loop, PooledKv
from sim.serving.outcome import InstanceUse, ServingOutcome, after_prefill, merged, outcome_of
from sim.serving.prices import TICKS_PER_NS, StepPrices


@dataclass(frozen=True, slots=True)
class Transfer:
    """KV on its way from a prefill to a decode instance. bytes_per_token and bytes_per_ns: of the link that is the
    busiest, of one card. layers: of which each is sent when it is computed; 1: all at the end."""

    bytes_per_token: float
    bytes_per_ns: float
    latency_ns: int = 0
    layers: int = 1

    def ns(self, tokens: int) -> int:
        """Time on the link."""
        return round(tokens * self.bytes_per_token / self.bytes_per_ns)

    def end_ns(self, tokens: int, started_ns: int, ended_ns: int, link_free_ns: int) -> int:
        """When the KV of a prompt has arrived that was computed from `started_ns` to `ended_ns`."""
        whole = self.ns(tokens)
        first_layer_ns = started_ns + (ended_ns - started_ns) // self.layers
        return self.latency_ns + max(ended_ns + whole // self.layers, first_layer_ns + whole, link_free_ns + whole)


class Inbox:
    """What a router has sent to an instance and the instance has not taken yet."""

    is_open = False

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Request]] = []
        self.ended_now: list[tuple[Request, int]] = []

    def put(self, at_ns: int, request: Request) -> None:
        heapq.heappush(self._waiting, (at_ns, request.id, request))

    def __len__(self) -> int:
        return len(self._waiting)

    def next_ns(self) -> int | None:
        return self._waiting[0][0] if self._waiting else None

    def send(self, now_ns: int) -> list[tuple[int, Request]]:
        sent = []
        while self._waiting and self._waiting[0][0] <= now_ns:
            at, _, request = heapq.heappop(self._waiting)
            sent.append((at, request))
        return sent

    def ended(self, request: Request, now_ns: int) -> None:
        self.ended_now.append((request, now_ns))


@dataclass(slots=True)
class Instance:
    """One engine of a fleet."""

    loop: Loop
    inbox: Inbox
    link_free_ns: int = 0
    sent: int = 0

    @staticmethod
    def of(
        scheduler: Scheduler,
        prices: StepPrices,
        engine: EngineCosts,
        kv_bytes_per_token: int,
        pool: PooledKv | None = None,
    ) -> Instance:
        """An idle engine. Its requests are refused by the fleet where they are too long."""
        inbox = Inbox()
        loop = Loop(inbox, scheduler, prices, engine, UNLIMITED, kv_bytes_per_token)
        if pool:
            loop.load_ticks, loop.loads_by_layer = pool.ticks_per_token, pool.by_layer
        return Instance(loop, inbox)

    def put(self, at_ns: int, request: Request) -> None:
        self.sent += 1
        self.inbox.put(at_ns, request)
        self.loop.look()

    @property
    def load(self) -> InstanceLoad:
        scheduler = self.loop.scheduler
        return InstanceLoad(len(scheduler.running), scheduler.waiting + len(self.inbox))


@dataclass(slots=True)
class Fleet:
    """Decode instances (or plain replicas, where there are no prefill ones) behind a router. longest: tokens of a
    request that is served."""

    load: Load
    replicas: list[Instance]
    policy: Policy
    longest: int
    prefill: list[Instance] = field(default_factory=list)
    transfer: Transfer | None = None
    rejected: list[Request] = field(default_factory=list)
    waits_ns: list[int] = field(default_factory=list)

    def run(self) -> ServingOutcome:
        """Serve the load."""
        client = Client(self.load)
        front, back = self.prefill or self.replicas, self.replicas if self.prefill else []
        routers = Router(self.policy, len(front)), Router(_behind(self.policy), max(1, len(back)))
        feeds_back = bool(back) or self.load.concurrency is not None or any(r.after >= 0 for r in self.load.requests)
        instances = [*front, *back]
        origin = {request.id: request for request in self.load.requests}
        while True:
            following = client.next_ns()
            arrival = None if following is None else following * TICKS_PER_NS
            due = [(at, n) for n, instance in enumerate(instances) if (at := instance.loop.due()) is not None]
            if arrival is not None and following is not None and (not due or arrival <= min(due)[0]):
                for at, request in client.send(following):
                    if not self._takes(request):
                        self.rejected.append(request)
                        client.ended(request, at)
                        continue
                    self._route(routers[0], front, request, at)
                continue
            if not due:
                break
            number = min(due)[1]
            others = [at for at, n in due if n != number] if feeds_back else []
            bounds = [*others, *([] if arrival is None else [arrival])]
            instance = instances[number]
            instance.loop.advance(min(bounds) if bounds else None)
            ended, instance.inbox.ended_now = instance.inbox.ended_now, []
            for request, at in ended:
                if back and number < len(front):
                    self._send_on(routers[1], instance, origin[request.id], at)
                else:
                    client.ended(origin[request.id], at)
        return self._outcome()

    def _takes(self, request: Request) -> bool:
        if request.input_tokens + request.output_tokens > self.longest:
            return False
        if self.prefill and not self.prefill[0].loop.scheduler.takes(request._replace(output_tokens=1)):
            return False
        return self.replicas[0].loop.scheduler.takes(request)

    def _route(self, router: Router, tier: Sequence[Instance], request: Request, at_ns: int) -> None:
        def known(number: int) -> int:
            return tier[number].loop.scheduler.kv.known_tokens(request)

        chosen = tier[router.choose(request, [instance.load for instance in tier], known)]
        chosen.put(at_ns, request._replace(output_tokens=1) if self.prefill else request)

    def _send_on(self, router: Router, source: Instance, request: Request, ended_ns: int) -> None:
        """The prompt is computed: its KV goes to a decode instance."""
        assert self.transfer is not None
        entry = next(entry for entry in reversed(source.loop.done) if entry.request.id == request.id)
        started_ns = entry.started // TICKS_PER_NS
        arrived_ns = self.transfer.end_ns(request.input_tokens, started_ns, ended_ns, source.link_free_ns)
        source.link_free_ns = arrived_ns - self.transfer.latency_ns
        self.waits_ns.append(arrived_ns - ended_ns)
        number = router.choose(request, [instance.load for instance in self.replicas], lambda _: 0)
        self.replicas[number].put(arrived_ns, request._replace(prefilled=True))

    def _outcome(self) -> ServingOutcome:
        decoded = merged([_outcome_of(self.load, instance) for instance in self.replicas])
        decoded = replace(decoded, rejected=len(self.rejected))
        uses = tuple(_use("decode" if self.prefill else "replica", instance) for instance in self.replicas)
        if not self.prefill:
            return replace(decoded, instances=uses)
        computed = merged([_outcome_of(self.load, instance) for instance in self.prefill])
        uses = (*(_use("prefill", instance) for instance in self.prefill), *uses)
        return replace(after_prefill(computed, decoded), instances=uses, transfer_wait_ns=_mean(self.waits_ns))


def _behind(policy: Policy) -> Policy:
    """How decode instances are chosen: their caches hold no prompt before it is sent."""
    return "least_loaded" if policy == "prefix_aware" else policy


def _outcome_of(load: Load, instance: Instance) -> ServingOutcome:
    loop = instance.loop
    return outcome_of(load, loop.completed(), len(loop.rejected), loop.log, loop.scheduler, pauses=loop.pauses)


def _use(role: str, instance: Instance) -> InstanceUse:
    loop = instance.loop
    tokens = sum(entry.request.output_tokens for entry in loop.done)
    prompts = sum(entry.request.input_tokens for entry in loop.done)
    return InstanceUse(role, instance.sent, prompts, tokens, loop.busy / TICKS_PER_NS)


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else 0.0
