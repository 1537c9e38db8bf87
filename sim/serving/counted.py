"""The loop over a scheduler that counts blocks: the same steps, times and log as `Loop`, with less done for each.

Only where `CountingScheduler` may; all else, and each step that might lack blocks, is the loop's. What is done for each
run of steps is written out in one place, because here a call costs as much as the arithmetic that it does.
"""

from __future__ import annotations

from scenarios.serving.counting import CountedChunk, CountedSteps, CountingScheduler
from sim.serving.loop import Loop, steps_until
from sim.serving.outcome import REASON_NUMBERS
from sim.serving.prices import TICKS_PER_NS

#: Steps of the loop before blocks are counted again, next to one for each running request: blocks are taken back and
#: handed out one by one.
PATIENCE = 64

#: Of decode steps of a number of requests: (from how many tokens in their caches on, and below how many, ticks of none,
#: ticks of one more, by how much each next step is longer, visible and hidden ticks of the host).
_Line = tuple[int, int, int, int, int, int, int]
_NO_LINE: _Line = (0, 0, 0, 0, 0, 0, 0)


class CountedLoop(Loop):
    """A loop of one engine, whose blocks nobody else asks for."""

    scheduler: CountingScheduler

    def run(self) -> None:
        patience = 0
        while True:
            if patience <= 0:
                counted = self.scheduler.counted()
                if counted is not None:
                    self._counted(counted)
                patience = PATIENCE + len(self.scheduler.running)
            if not self.advance():
                return
            patience -= 1

    def _counted(self, steps: CountedSteps) -> None:
        """Step after step, until one might lack blocks or nothing is left."""
        scheduler, ahead, is_open = self.scheduler, self._ahead, self._is_open
        send, done, cells, pack = steps.send, self.done, self.log.cells, self.log.pack
        lines: dict[int, _Line] = {}  # the last of each number of requests
        numbers = REASON_NUMBERS
        now, began, before, following = self.now, self._began, self._ended, self._next
        while True:
            if following is not None and following < now + TICKS_PER_NS:
                # `_seen`, and whether the request has come by then, in whole nanoseconds.
                seen = began if ahead and now == before and not scheduler.is_idle else now
                if following < seen + TICKS_PER_NS:
                    self._receive(seen)
                    following = self._next
            try:
                decoding, context, chunks, tokens, repeats, may_admit = send(None)
            except StopIteration:
                break
            if decoding:
                start, end, base, slope, more, visible, hidden = lines.get(decoding, _NO_LINE)
                if not start <= context < end:
                    line = lines[decoding] = self._line(decoding, context)
                    start, end, base, slope, more, visible, hidden = line
                device = base + slope * context
            elif chunks:
                device = 0
            elif following is None:
                break
            else:
                now, before = max(now, following), -1
                continue
            if chunks:
                began = now
                now = before = self._prefills(now, decoding, context, device, tokens=tokens, chunks=chunks)
            else:  # as `_decodes` and `_log_decodes`
                if repeats > 1 and context + decoding * (repeats - 1) >= end:
                    repeats = (end - context - 1) // decoding + 1
                if device < hidden:  # the device ends first: as long as that is so, steps are alike
                    if more > 0 and hidden - device <= (repeats - 1) * more:
                        repeats = (hidden - device - 1) // more + 1
                    length, more = hidden + visible, 0
                else:
                    length = device + visible
                    if more < 0:
                        repeats = min(repeats, (device - hidden) // -more + 1)
                if repeats > 1 and may_admit and following is not None:
                    wait = following - now
                    most = steps_until(wait, length, more)
                    if ahead and wait > 0:
                        most += 1
                    if most < repeats:
                        repeats = most
                cells += pack(*(now, decoding, repeats, length, more, 0, device, device, numbers[scheduler.blocked]))
                if repeats > 1:
                    began = now + (repeats - 1) * length + more * ((repeats - 1) * (repeats - 2) // 2)
                    now = before = began + length + more * (repeats - 1)
                else:
                    began = now
                    now = before = now + length
            ended = send(repeats)
            if ended:
                for entry in ended:
                    entry.last = now
                done += ended
                if not is_open:
                    self.now = now
                    self._tell(ended)
                    following = self._next
        self.now, self._began, self._ended = now, began, before
        steps.close()

    def _line(self, decoding: int, context: int) -> _Line:
        piece = self.prices.decode(decoding, context)
        return piece.start, piece.end, piece.base, piece.slope, piece.slope * decoding, *self._host(decoding, 0, 0)

    def _prefills(
        self, now: int, decoding: int, context: int, alone: int, tokens: int, chunks: list[CountedChunk]
    ) -> int:
        """As `_one`: when the step that starts now ends."""
        number = len(chunks)
        pairs = 0
        for _, count, start, _ in chunks:
            pairs += count * start + count * (count + 1) // 2
        device = self.prices.mixed(decoding, context, tokens, pairs)
        visible, hidden = self._host(decoding, number, tokens)
        length = (device if device > hidden else hidden) + visible
        reason = REASON_NUMBERS[self.scheduler.blocked]
        self.log.add((now, decoding, 1, length, 0, number, alone, device, reason))
        end = now + length
        for entry, _, _, is_last in chunks:
            if entry.started < 0:
                entry.started = now
            if is_last:
                if entry.first < 0:
                    entry.first = end
                elif entry.paused >= 0:
                    self._resume(entry, end)
        return end
