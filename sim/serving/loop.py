"""Requests in time: a plain loop over steps, from one event to the next.

The scheduler says what runs together, the prices how long the device takes for it, the engine what its host adds:

    step = max(device, hidden + issue) + visible,   host = per_step + per_request x requests + per_chunk x chunks,
    hidden = hidden_share x host,           visible = host - hidden

An engine that plans ahead (`EngineCosts.plans_ahead`) has decided on a step when the one before starts, so that a
request which comes in between waits for one step more.

Between two events (a request comes, is prefilled, ends, loses its blocks) nothing but the contexts' length changes, so
a run of decode steps is one piece of arithmetic, exact in integer ticks.
"""

from __future__ import annotations

from math import sqrt
from typing import Protocol

from scenarios.records import dataclass
from scenarios.serving.entry import Entry
from scenarios.serving.kv_pool import KvPool
from scenarios.serving.requests import Request
from scenarios.serving.scheduler import Scheduler, Step
from sim.engines.costs import EngineCosts
from sim.serving.outcome import REASON_NUMBERS, Completed, Log, Pause, completed_of
from sim.serving.prices import TICKS_PER_NS, Piece, StepPrices, whole_ns

#: As many steps at once as nothing stops.
UNLIMITED = 1 << 40


@dataclass(frozen=True, slots=True)
class PooledKv:
    """A pool of KV beyond the cache, and what a token from it takes; by_layer: behind the step."""

    pool: KvPool
    ticks_per_token: int
    by_layer: bool


class Sender(Protocol):
    """Where a loop's requests come from, and who hears that they ended. Times are ns. is_open: what is sent, and when,
    never depends on what ended, and `ended` need not be called."""

    is_open: bool

    def next_ns(self) -> int | None:
        """When the next request comes, as far as is known."""
        ...

    def send(self, now_ns: int) -> list[tuple[int, Request]]:
        """(time, request) of what has come up to now."""
        ...

    def ended(self, request: Request, now_ns: int) -> None:
        """The last token of a request was received, or it was sent back."""
        ...


class Loop:
    """The state of one engine's run. Times are ticks; busy: in steps (not counted where `CountedLoop` counts blocks).
    kv: bytes that a swapped token copies. load_ticks: of a token that comes from the pool of KV; loads_by_layer: they
    run behind the step, not before it."""

    def __init__(
        self,
        client: Sender,
        scheduler: Scheduler,
        prices: StepPrices,
        engine: EngineCosts,
        longest: int | None = None,
        kv: int = 0,
    ) -> None:
        self.client, self.scheduler, self.prices, self.engine = client, scheduler, prices, engine
        self.longest = longest or UNLIMITED
        self._ahead = engine.plans_ahead
        self.swap_ticks = round(kv * TICKS_PER_NS / engine.swap_bytes_per_ns)
        self.load_ticks, self.loads_by_layer = 0, False
        self.now = self.busy = 0
        self._began = self._ended = -1  # of the step before
        self.log = Log()
        #: (request, from its last token before it lost its blocks, to the next one).
        self.pauses: list[Pause] = []
        self.done: list[Entry] = []
        self.rejected: list[Request] = []
        self._next: int | None = None  # when the next request is with the scheduler
        self._is_open = client.is_open
        self._grows = scheduler.drafts.tokens_per_step if scheduler.drafts else 1
        self._hosts: dict[tuple[int, int, bool], tuple[int, int]] = {}
        self._pieces: dict[int, Piece] = {}  # the last of each number of decoding requests
        self.look()

    def run(self) -> None:
        """Serve until nothing is left. Raises RuntimeError where requests wait that nothing will ever serve."""
        while self.advance():
            pass

    def completed(self) -> Completed:
        """What became of the requests that ended."""
        return completed_of(self.done)

    def serves(self, request: Request) -> bool:
        """Whether a request may be as long as it is, and an empty cache holds it."""
        return request.input_tokens + request.output_tokens <= self.longest and self.scheduler.takes(request)

    def look(self) -> None:
        """The client may have more to send."""
        self._next = self._next_arrival()

    def due(self) -> int | None:
        """When the engine has something to do next; None where it has nothing."""
        if self.scheduler.running or self.scheduler.waiting:
            return self.now
        return None if self._next is None else max(self.now, self._next)

    def advance(self, limit: int | None = None) -> bool:
        """A run of equal steps, of which only the first may start at `limit` or later; or wait for the next arrival.
        False where nothing is left."""
        seen = self._seen()
        if self._next is not None and self._next < seen + TICKS_PER_NS:
            self._receive(seen)
        step = self.scheduler.plan()
        for entry in step.lost:
            if entry.first >= 0 > entry.paused:
                entry.paused = self.now
        if step.is_empty:
            if self._next is None:
                if self.scheduler.waiting:
                    raise RuntimeError(f"{self.scheduler.waiting} requests wait for KV blocks that nobody holds")
                return False
            self.now, self._ended = max(self.now, self._next), -1
        elif step.chunks or step.swapped_tokens or step.ready or step.resumed:
            self._one(step)
        else:
            self._decodes(step, limit)
        return True

    @property
    def _now_ns(self) -> int:
        """The client's clock, of whole nanoseconds: what it sends when a request ends must not miss the next step by
        less than one."""
        return whole_ns(self.now)

    def _next_arrival(self) -> int | None:
        following = self.client.next_ns()
        return None if following is None else (following + self.engine.admission_ns) * TICKS_PER_NS

    def _seen(self) -> int:
        """Up to when requests must have come for the step that starts now."""
        if self._ahead and self.now == self._ended and self.scheduler.running:
            return self._began
        return self.now

    def _receive(self, seen: int) -> None:
        """Hand what has come up to `seen` to the scheduler; what can never be served is sent back."""
        client = self.client
        for at, request in client.send(whole_ns(seen) - self.engine.admission_ns):
            entry = self.scheduler.entry(request) if self.serves(request) else None
            if entry is None:
                self.rejected.append(request)
                client.ended(request, at)
                continue
            entry.arrived = at
            self.scheduler.add(entry)
        self._next = self._next_arrival()

    def _one(self, step: Step) -> None:
        """A step with prefills, or with blocks that come back from the host."""
        tokens = pairs = 0
        for chunk in step.chunks:
            tokens += chunk.tokens
            pairs += chunk.tokens * chunk.start + chunk.tokens * (chunk.tokens + 1) // 2
            if chunk.entry.started < 0:
                chunk.entry.started = self.now
        for entry in step.ready:
            entry.started = self.now
        decoding, context = step.decoding, step.context_tokens
        alone = self._piece(decoding, context).ticks(context) if decoding else 0
        device = self.prices.mixed(decoding, context, tokens, pairs) if step.chunks else alone
        device += step.swapped_tokens * self.swap_ticks
        if step.loaded_tokens:
            loading = step.loaded_tokens * self.load_ticks
            device = max(device, loading) if self.loads_by_layer else device + loading
        visible, hidden = self._host(decoding, len(step.chunks), tokens)
        length = max(device, hidden) + visible
        reason = REASON_NUMBERS[self.scheduler.blocked]
        self.log.add((self.now, decoding, 1, length, 0, len(step.chunks), alone, device, reason))
        if step.chunks and not decoding and self.scheduler.decoding:
            self.log.stall(self.scheduler.decoding)
        self._commit(step, 1, length, length)
        for entry in step.ready:
            if entry.first < 0:
                entry.first = self.now
        for entry in step.resumed:
            self._resume(entry, self.now)

    def _host(self, decoding: int, chunks: int, prompt_tokens: int) -> tuple[int, int]:
        """(visible, hidden) ticks of the engine's host in a step of `decoding` requests and `chunks` of prompts."""
        engine = self.engine
        key = decoding, chunks, decoding * engine.query_tokens + prompt_tokens <= engine.pieces_tokens
        known = self._hosts.get(key)
        if known is None:
            host = engine.host_ns(decoding + chunks, chunks) * TICKS_PER_NS
            hidden = int(engine.hidden_share * host)
            issue = engine.issue_ns(decoding, chunks, prompt_tokens) * TICKS_PER_NS
            known = self._hosts[key] = host - hidden, hidden + issue
        return known

    def _piece(self, decoding: int, context: int) -> Piece:
        """The piece of the prices in which a decode step lies."""
        piece = self._pieces.get(decoding)
        if piece is None or not piece.start <= context < piece.end:
            piece = self._pieces[decoding] = self.prices.decode(decoding, context)
        return piece

    def _decodes(self, step: Step, limit: int | None) -> None:
        """As many equal decode steps as nothing stops: each is longer than the one before by `grows`."""
        repeats, length, more = self._log_decodes(step.decoding, step.context_tokens, self.scheduler.steady(), limit)
        ticks = repeats * length + more * (repeats * (repeats - 1) // 2)
        self._commit(step, repeats, ticks, length + more * (repeats - 1))

    def _log_decodes(self, decoding: int, context: int, repeats: int, limit: int | None) -> tuple[int, int, int]:
        """(steps, ticks of the first, by how much each next one is longer) of a run of `repeats` decode steps or fewer,
        up to where their price bends, a request comes that may be let in, or `limit`; they are logged."""
        piece = self._piece(decoding, context)
        visible, hidden = self._host(decoding, 0, 0)
        more_tokens = decoding * self._grows
        slope = piece.slope
        device, grows = piece.base + slope * context, round(slope * more_tokens)
        if context + more_tokens * (repeats - 1) > piece.end - 1:
            repeats = int((piece.end - context - 1) // more_tokens) + 1
        if device < hidden:  # the device ends first: as long as that is so, steps are alike
            if grows > 0 and hidden - device <= (repeats - 1) * grows:
                repeats = (hidden - device - 1) // grows + 1
            length, more = hidden + visible, 0
        else:
            if grows < 0:
                repeats = min(repeats, (device - hidden) // -grows + 1)
            length, more = device + visible, grows
        if repeats > 1 and self._next is not None and self.scheduler.may_admit:
            wait = self._next - self.now
            repeats = min(repeats, steps_until(wait, length, more) + (self._ahead and wait > 0))
        if repeats > 1 and limit is not None:
            repeats = min(repeats, steps_until(limit - self.now, length, more))
        reason = REASON_NUMBERS[self.scheduler.blocked]
        self.log.add((self.now, decoding, repeats, length, more, 0, device, device, reason))
        return repeats, length, more

    def _commit(self, step: Step, repeats: int, ticks: int, last: int) -> None:
        """After `repeats` steps that took `ticks`, the last of them `last`."""
        self.now += ticks
        self.busy += ticks
        self._began, self._ended = self.now - last, self.now
        prefilled, ended = self.scheduler.commit(step, repeats)
        for entry in prefilled:
            if entry.first < 0:
                entry.first = self.now
            self._resume(entry, self.now)
        if ended:
            self._over(ended)

    def _resume(self, entry: Entry, now: int) -> None:
        """A token of a request comes now, perhaps the first since it lost its blocks."""
        if entry.paused >= 0:
            self.pauses.append((entry.id, entry.paused, now))
            entry.paused = -1

    def _over(self, ended: list[Entry]) -> None:
        """The requests' last tokens came with the step that ends now."""
        now = self.now
        for entry in ended:
            entry.last = now
        self.done += ended
        if not self._is_open:
            self._tell(ended)

    def _tell(self, ended: list[Entry]) -> None:
        """The client hears what ended, and may send more."""
        now_ns = self._now_ns
        for entry in ended:
            self.client.ended(entry.request, now_ns)
        self._next = self._next_arrival()


def steps_until(ticks: int, length: int, more: int) -> int:
    """The smallest number of steps, 1 or more, that last `ticks` or longer; the first lasts `length`, each next one
    `more` longer."""
    if ticks <= length:
        return 1
    steps = -(-ticks // length)
    if more == 0:
        return steps
    if more > 0 and (steps - 1) * length + more * ((steps - 1) * (steps - 2) // 2) < ticks:
        return steps
    half = length - more / 2
    steps = max(1, int((sqrt(max(0.0, half * half + 2.0 * more * ticks)) - half) / more))
    while steps > 1 and (steps - 1) * length + more * ((steps - 1) * (steps - 2) // 2) >= ticks:
        steps -= 1
    while steps * length + more * (steps * (steps - 1) // 2) < ticks:
        steps += 1
    return steps
