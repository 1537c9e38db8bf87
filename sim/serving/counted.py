"""The loop over a scheduler that counts blocks: the same steps, times and log as `Loop`, with less done for each.

Only where `CountingScheduler` may; all else, and each step that might lack blocks, is the loop's.
"""

from __future__ import annotations

from scenarios.serving.counting import CountingScheduler
from scenarios.serving.entry import Entry
from scenarios.serving.requests import Request
from sim.serving.loop import Loop
from sim.serving.outcome import Log
from sim.serving.prices import TICKS_PER_NS

#: Steps of the loop before blocks are counted again, next to one for each running request: blocks are taken back and
#: handed out one by one.
PATIENCE = 64


class CountedLoop(Loop):
    """A loop of one engine, whose blocks nobody else asks for."""

    scheduler: CountingScheduler

    def run(self) -> tuple[list[Entry], list[Request], Log]:
        patience = 0
        while True:
            if patience <= 0:
                if self.scheduler.count():
                    self._counted()
                    self.scheduler.hand_out()
                patience = PATIENCE + len(self.scheduler.running)
            if not self.advance():
                return self.done, self.rejected, self.log
            patience -= 1

    def _counted(self) -> None:
        """Step after step, until one might lack blocks or nothing is left."""
        scheduler, ahead = self.scheduler, self._ahead
        while True:
            following = self._next
            if following is not None:
                # `_seen`, and whether the request has come by then, in whole nanoseconds.
                now = self.now
                seen = self._began if ahead and now == self._ended and scheduler.running else now
                if following <= -(-seen // TICKS_PER_NS) * TICKS_PER_NS:
                    self._receive(seen)
            if not scheduler.plan_counted():
                return
            if scheduler.chunks:
                self._one_counted()
            elif scheduler.decoding:
                self._decodes_counted()
            elif self._next is None:
                return
            else:
                self.now, self._ended = max(self.now, self._next), -1

    def _one_counted(self) -> None:
        """As `_one`."""
        scheduler, now = self.scheduler, self.now
        chunks, decoding, context = scheduler.chunks, scheduler.decoding, scheduler.context_tokens
        tokens = pairs = 0
        for entry, count, start, _ in chunks:
            tokens += count
            pairs += count * start + count * (count + 1) // 2
            if entry.started < 0:
                entry.started = now
        alone = self._piece(decoding, context).ticks(context) if decoding else 0
        device = self.prices.mixed(decoding, context, tokens, pairs)
        visible, hidden = self._host(decoding + len(chunks), len(chunks))
        length = (device if device > hidden else hidden) + visible
        self.log.add((now, decoding, 1, length, 0, len(chunks), alone, device, scheduler.blocked))
        self._began = now
        self.now = self._ended = now = now + length
        ended = scheduler.commit_counted() if decoding else []
        also = scheduler.commit_chunks()
        for entry, _, _, is_last in chunks:
            if is_last and entry.first < 0:
                entry.first = now
        if ended or also:
            self._over([*ended, *also])

    def _decodes_counted(self) -> None:
        """As `_decodes`."""
        scheduler = self.scheduler
        repeats, length, more = self._log_decodes(
            scheduler.decoding, scheduler.context_tokens, scheduler.steady_counted(), None
        )
        if repeats == 1:
            self._began, now = self.now, self.now + length
        else:
            now = self.now + repeats * length + more * (repeats * (repeats - 1) // 2)
            self._began = now - length - more * (repeats - 1)
        self.now = self._ended = now
        ended = scheduler.commit_counted(repeats)
        if ended:
            self._over(ended)
