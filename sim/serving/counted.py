"""The loop over a scheduler whose blocks are counted: the same steps, times and log as `Loop`, with less done for each.

Only where `Counts` may be kept; all else, and each step that might lack blocks, is the loop's. A request is its place
in some columns here, and an `Entry` only while the loop has it. Between two prefills `_decodes` goes from end to end.
"""

from __future__ import annotations

from functools import cached_property

from scenarios.serving.client import Client
from scenarios.serving.counting import CountedChunk, CountingScheduler, Counts
from scenarios.serving.entry import Entry
from sim.engines.costs import EngineCosts
from sim.serving.loop import Loop, steps_until
from sim.serving.outcome import REASON_NUMBERS, Completed, in_order
from sim.serving.prices import TICKS_PER_NS, StepPrices, whole_ns

#: Steps of the loop before blocks are counted again, next to one for each running request: blocks are taken back and
#: handed out one by one.
PATIENCE = 64
#: When a request comes that never does, ticks.
NEVER = 1 << 200

#: Of decode steps of a number of requests: (from how many tokens in their caches on, and below how many, ticks of none,
#: ticks of one more, by how much each next step is longer, visible and hidden ticks of the host).
_Line = tuple[int, int, int, int, int, int, int]
_NO_LINE: _Line = (0, 0, 0, 0, 0, 0, 0)


class CountedLoop(Loop):
    """A loop of one engine, whose blocks nobody else asks for.

    arrived, started, first, last: of the request at each place of `client.requests`, ns, -1 where unknown.
    """

    scheduler: CountingScheduler
    client: Client

    def __init__(
        self,
        client: Client,
        scheduler: CountingScheduler,
        prices: StepPrices,
        engine: EngineCosts,
        longest: int | None = None,
        kv: int = 0,
    ) -> None:
        super().__init__(client, scheduler, prices, engine, longest, kv)
        requests = client.requests
        self._counts = scheduler.counts(requests)
        if self._counts is None:
            return
        self._entries: dict[int, Entry] = {}  # of those that the loop had, by their place
        # When each is with the scheduler, if the client is open; and then never.
        self._due = [(at + engine.admission_ns) * TICKS_PER_NS for at in (r.arrival_ns for r in requests)] + [NEVER]
        self._lines = [_NO_LINE] * (scheduler.limits.max_num_seqs + 1)  # the last of each number of requests
        self.arrived = [request.arrival_ns for request in requests]
        self.started, self.first, self.last = ([-1] * len(requests) for _ in range(3))
        #: Whether requests come in the order of their places, and all are served.
        self._is_plain = client.is_open and all(map(self.serves, requests))

    def run(self) -> None:
        counts = self._counts
        if counts is None:
            return super().run()
        while True:
            if self.scheduler.count(counts, self._place_of):
                self._counted(counts)
                self.scheduler.hand_out(counts, self._entry)
            for _ in range(max(1, PATIENCE + len(self.scheduler.running))):
                if not self.advance():
                    return

    @cached_property
    def _places(self) -> dict[int, int]:
        """Of each request by its id."""
        return {request.id: place for place, request in enumerate(self.client.requests)}

    def _place_of(self, entry: Entry) -> int:
        """The place of a request that the loop has had; what it knows of it is written down."""
        place = self._places[entry.id]
        self._entries[place] = entry
        self.arrived[place] = entry.arrived
        self.started[place], self.first[place] = (
            whole_ns(at) if at >= 0 else -1 for at in (entry.started, entry.first)
        )
        return place

    def _entry(self, place: int) -> Entry:
        """The request at a place as the loop keeps it."""
        entry = self._entries.get(place)
        if entry is None:
            entry = self._entries[place] = Entry(self.client.requests[place])
            entry.arrived = self.arrived[place]
        if self.started[place] >= 0:
            entry.started = self.started[place] * TICKS_PER_NS
        if self.first[place] >= 0:
            entry.first = self.first[place] * TICKS_PER_NS
        return entry

    def completed(self) -> Completed:
        """What became of those that ended here and in the loop."""
        if self._counts is None:
            return super().completed()
        for entry in self.done:
            self.last[self._place_of(entry)] = whole_ns(entry.last)
        times = self.arrived, self.started, self.first, self.last
        return in_order(self.client.requests, times)

    def _counted(self, counts: Counts) -> None:
        """Step after step, until one might lack blocks or nothing is left."""
        while True:
            if self._next is not None:
                runs = counts.decoding or counts.cut >= 0
                seen = self._began if self._ahead and self.now == self._ended and runs else self.now
                if self._next < seen + TICKS_PER_NS:
                    if self._is_plain and not counts.waiting and counts.cut < 0 and self._whole(counts, seen):
                        continue
                    self._come(counts, seen)
            counts.blocked = ""
            if counts.waiting or counts.cut >= 0:
                chunks = counts.let_in()
                if chunks is None:
                    return
                if chunks:
                    self._prefills(counts, chunks)
                    continue
            if counts.decoding:
                if not self._decode(counts):
                    return
            elif self._next is None:
                return
            else:
                self.now, self._ended = max(self.now, self._next), -1

    def _come(self, counts: Counts, seen: int) -> None:
        """As `_receive`: who has come up to `seen` waits."""
        client, until_ns = self.client, whole_ns(seen) - self.engine.admission_ns
        for at, request in client.send(until_ns):
            place = self._places[request.id]
            if self.serves(request):
                self.arrived[place] = at
                counts.waiting.append(place)
            else:
                self.rejected.append(request)
                client.ended(request, at)
        self._next = self._next_arrival()

    def _whole(self, counts: Counts, seen: int) -> bool:
        """As `_come`, `let_in` and `_prefills` where nobody waits and all that have come are prefilled whole in one
        step. False, and nothing is done, where slots, tokens or blocks might not do for that."""
        due, target, decoding = self._due, counts.target, counts.decoding
        first = place = self.client.sent
        limit = seen + TICKS_PER_NS
        tokens = pairs = 0
        while due[place] < limit:
            count = target[place]
            tokens += count
            pairs += count * (count + 1)
            place += 1
        number = place - first
        limits = counts.limits
        used = counts.whole + decoding * (counts.clock // counts.size + 1) + tokens // counts.size + number
        if (
            used > counts.peak
            or tokens + decoding > limits.max_num_batched_tokens
            or number + decoding > limits.max_num_seqs
        ):
            return False
        self.client.sent = place
        self._next = due[place] if place < len(target) else None
        counts.asked_tokens += tokens
        now = self.now
        self.started[first:place] = [whole_ns(now)] * number
        self._mixed(counts, number, tokens, pairs // 2)
        ended = counts.prefilled(range(first, place))
        now = self.now
        self.first[first:place] = [whole_ns(now)] * number
        if ended:
            self._end(ended, now)
        return True

    def _line(self, decoding: int, context: int) -> _Line:
        """The line of the decode steps in whose piece `context` lies."""
        line = self._lines[decoding]
        if not line[0] <= context < line[1]:
            piece = self.prices.decode(decoding, context)
            host = self._host(decoding, 0, 0)
            line = piece.start, piece.end, piece.base, piece.slope, piece.slope * decoding, *host
            self._lines[decoding] = line
        return line

    def _decode(self, counts: Counts) -> bool:
        """As `_decodes` and `_log_decodes`: runs of decode steps, until a request comes or may be let in, or none
        decodes. False where the next step might lack blocks."""
        lines, ends, shift, size = self._lines, counts.ends, counts.shift, counts.size
        cells, pack, ahead, reason = self.log.cells, self.log.pack, self._ahead, REASON_NUMBERS[counts.blocked]
        following = NEVER if self._next is None else self._next
        waits, slots = bool(counts.waiting), counts.limits.max_num_seqs
        now = self.now
        began, ended = self._began, self._ended
        while True:
            decoding, clock = counts.decoding, counts.clock
            context = counts.base + decoding * clock
            start, end, first, slope, more, visible, hidden = lines[decoding]
            if not start <= context < end:
                _, end, first, slope, more, visible, hidden = self._line(decoding, context)
            device = first + slope * context
            repeats = (ends[0] >> shift) - clock
            if context + decoding * (repeats - 1) >= end:
                repeats = (end - context - 1) // decoding + 1
            if device < hidden:  # the device ends first: as long as that is so, steps are alike
                if more > 0 and hidden - device <= (repeats - 1) * more:
                    repeats = (hidden - device - 1) // more + 1
                length, more = hidden + visible, 0
            else:
                length = device + visible
                if more < 0:
                    repeats = min(repeats, (device - hidden) // -more + 1)
            ticks = repeats * length + more * (repeats * (repeats - 1) // 2)
            wait = following - now
            if ticks > wait and repeats > 1 and decoding < slots and not waits:
                repeats = min(repeats, steps_until(wait, length, more) + (ahead and wait > 0))
                ticks = repeats * length + more * (repeats * (repeats - 1) // 2)
            if counts.whole + decoding * ((clock + repeats - 1) // size + 1) > counts.peak:
                repeats = counts.steps_within(repeats)
                if not repeats:
                    break
                ticks = repeats * length + more * (repeats * (repeats - 1) // 2)
            cells += pack(*(now, decoding, repeats, length, more, 0, device, device, reason))
            ended = now = now + ticks
            began = now - length - more * (repeats - 1)
            counts.clock = clock = clock + repeats
            if ends[0] >> shift == clock:
                self._end(counts.ended(), now)
                if waits or not counts.decoding or not self._is_open:
                    break
            if following < (began if ahead else now) + TICKS_PER_NS:
                break
        self.now, self._began, self._ended = now, began, ended
        return repeats > 0

    def _prefills(self, counts: Counts, chunks: list[CountedChunk]) -> None:
        """As `_one`: a step with these chunks."""
        started, first = self.started, self.first
        now_ns = whole_ns(self.now)
        tokens = pairs = 0
        for place, count, start in chunks:
            tokens += count
            pairs += count * start + count * (count + 1) // 2
            if started[place] < 0:
                started[place] = now_ns
        self._mixed(counts, len(chunks), tokens, pairs)
        prefilled = counts.computed_of(chunks)
        now_ns = whole_ns(self.now)
        for place in prefilled:
            if first[place] < 0:
                first[place] = now_ns
            else:  # it had lost its blocks
                self._resume(self._entries[place], self.now)
        ended = counts.prefilled(prefilled)
        if ended:
            self._end(ended, self.now)

    def _mixed(self, counts: Counts, chunks: int, tokens: int, pairs: int) -> None:
        """A step with so many chunks of prompts next to the requests that decode."""
        decoding, now, alone = counts.decoding, self.now, 0
        context = counts.base + decoding * counts.clock
        if decoding:
            start, end, first, slope, _, _, _ = self._lines[decoding]
            if not start <= context < end:
                _, _, first, slope, _, _, _ = self._line(decoding, context)
            alone = first + slope * context
        device = self.prices.mixed(decoding, context, tokens, pairs)
        visible, hidden = self._host(decoding, chunks, tokens)
        length = (device if device > hidden else hidden) + visible
        reason = REASON_NUMBERS[counts.blocked]
        self.log.cells += self.log.pack(*(now, decoding, 1, length, 0, chunks, alone, device, reason))
        self._began = now
        self.now = self._ended = now + length

    def _end(self, places: list[int], now: int) -> None:
        """As `_over`: the requests' last tokens came."""
        now_ns, last = whole_ns(now), self.last
        for place in places:
            last[place] = now_ns
        if not self._is_open:
            for place in places:
                self.client.ended(self.client.requests[place], now_ns)
            self._next = self._next_arrival()
