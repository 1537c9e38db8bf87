"""One scenario ready to be timed again and again: a prefill, and decode steps of a cache that grows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from device.experiment.text import Span
from device.measure.steady import Timed, timed
from device.run.call import Call
from device.run.host_inputs import Requests
from device.run.runner import Bound
from device.run.session import Phase, Session, batch_of, calibrated, chunks, logits_of
from device.run.workload import placed
from device.step.step import Step
from scenarios.batches import mixed_batch
from scenarios.exchange.bench import Part

Texts = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Ready:
    """One step that can be run now. ends: requests whose prefill it finishes."""

    bound: Bound
    step: Step
    ends: int = 0


@dataclass(frozen=True, slots=True)
class FirstPass:
    """first_ms, second_ms: all steps of each part, cold and once more. logits: [1 + decode steps, requests, vocab] of
    the end of the prefill and of each decode step, in float32 on the host."""

    first_ms: dict[Part, float]
    second_ms: dict[Part, float]
    logits: torch.Tensor


class Prepared:
    """`session` with its tokens placed and its steps bound: [chunks of the prefill], [decode steps], [the mixed step].

    Nothing has run yet but what an INT8 cache of channels is calibrated by. Raises ScenarioError with all that the
    backend lacks for these steps.
    """

    def __init__(self, session: Session, texts: Texts, span: Span) -> None:
        self.session, self.texts, self.span = session, texts, span
        workload = session.scenario.workload
        _refuse_early(session, span)
        calibrated(session, [text[: span.prompt] for text in texts])
        starts = placed(session, texts)
        self._before = list(self._chunks(span.before, starts))
        self._between = list(self._chunks(span.start, [span.prompt] * len(texts)))
        first = [max(start, span.before) for start in starts]
        self.parts: dict[Part, list[Ready]] = {"ttft": [self._ready("prefill", r) for r in self._prefill(first)]}
        self.parts["tpot"] = [self._ready("decode", self._decode(number)) for number in range(span.steps)]
        if workload.phase == "mixed":
            self.parts["step"] = [self._ready("mixed", self._mixed())]

    def _prefill(self, starts: Sequence[int]) -> Iterator[Requests]:
        return self._chunks(self.span.prompt, starts)

    def _chunks(self, end: int, starts: Sequence[int]) -> Iterator[Requests]:
        """The prefill steps up to `end` tokens of each request."""
        part = [text[:end] for text in self.texts]
        return chunks(part, [min(s, end) for s in starts], self.session.scenario.engine.max_num_batched_tokens)

    def _decode(self, number: int) -> Requests:
        """The decode step `number`: one token of every request, on one more token each time."""
        at, count = self.span.start + number, len(self.texts)
        return Requests(tuple(range(count)), (at,) * count, tuple((text[at],) for text in self.texts))

    def _mixed(self) -> Requests:
        """All requests but the last decode, while the last one is prefilled."""
        decoding, prefill = mixed_batch(self.session.scenario).groups
        at, count = min(decoding.context, self.span.tokens - 1), len(self.texts)
        tokens = [(text[at],) for text in self.texts[:-1]]
        last = tuple(self.texts[-1][: prefill.query])
        return Requests(tuple(range(count)), (*([at] * (count - 1)), 0), (*tokens, last))

    def _ready(self, phase: Phase, requests: Requests) -> Ready:
        bound, step = self.session.prepared(phase, requests)
        done = zip(requests.contexts, requests.queries, strict=True)
        return Ready(bound, step, sum(c + q >= self.span.prompt for c, q in done))

    def first_pass(self) -> FirstPass:
        """Fill the cache and run every step twice: cold, its logits kept, and once more."""
        scores = torch.zeros((1 + self.span.steps, len(self.texts), self.session.model.vocab))
        with torch.inference_mode():
            first: dict[Part, float] = {"ttft": self._fill(scores[0])}
            first["tpot"] = self._pass("tpot", lambda number, step: self._keep(step, scores[1 + number]))
            if "step" in self.parts:
                first["step"] = self._pass("step", _nothing)
            second = {part: self._pass(part, _nothing) for part in self.parts}
        return FirstPass(first, second, scores)

    def _fill(self, scores: torch.Tensor) -> float:
        """Fill the cache up to the first decode step; the milliseconds of the prefill that is timed. scores: room for
        its logits, [requests, vocab]."""
        for requests in self._before:
            self.session.run("prefill", requests)
        took = self._pass("ttft", lambda _, step: self._keep(step, scores))
        for requests in self._between:
            self.session.run("prefill", requests)
        return took

    def prefill_once(self) -> torch.Tensor:
        """Fill the cache up to the first decode step; the logits of the prompts' ends, [requests, vocab] on the
        host."""
        scores = torch.zeros((len(self.texts), self.session.model.vocab))
        self._fill(scores)
        return scores

    def _keep(self, step: Step, scores: torch.Tensor) -> None:
        """Put the logits of each request into its row; one whose prefill comes in chunks keeps its last."""
        logits = logits_of(step, self.session.model).cpu()
        for row, number in enumerate(step.layout.requests):
            scores[number] = logits[row]

    def _pass(self, part: Part, after: Callable[[int, Step], None]) -> float:
        """Milliseconds of all steps of a part; what is done `after` each is not counted."""
        total = 0
        for number, ready in enumerate(self.parts[part]):
            total += self._timed(ready).wall_ns
            after(number, ready.step)
        return total / 1e6

    def time(self, part: Part) -> Timed:
        """The mean end of the requests' prefill, the mean decode step, or the mixed step. The host waits for the device
        after each step, as it must for the token."""
        lengths = [self._timed(ready) for ready in self.parts[part]]
        if part != "ttft":
            return Timed(*(round(sum(all_ns) / len(lengths)) for all_ns in _both(lengths)))
        ends = [ready.ends for ready in self.parts[part]]
        return Timed(*(_mean_end(all_ns, ends) for all_ns in _both(lengths)))

    def _timed(self, ready: Ready) -> Timed:
        """One step, the device's work included."""
        return timed(self.session.backend, lambda: ready.bound.run(ready.step))

    @property
    def weights_bytes(self) -> int:
        """Bytes of the weights that the steps read, each counted once."""
        caches = {x.data_ptr() for tensors in self.session.cache.tensors.values() for x in tensors}
        bounds = [ready.bound for steps in self.parts.values() for ready in steps]
        held = (x for bound in bounds for x in _constants(bound.calls) if x.data_ptr() not in caches)
        return _bytes(held)

    @property
    def values_bytes(self) -> int:
        """Bytes of the values that the largest step leaves behind."""
        return max(_bytes(ready.step.values.values()) for steps in self.parts.values() for ready in steps)


def _refuse_early(session: Session, span: Span) -> None:
    """Raise ScenarioError for what a decode step lacks before a long prefill is made ready."""
    count = session.scenario.workload.batch
    session.bound(batch_of("decode", Requests(tuple(range(count)), (span.start,) * count, ((0,),) * count)))


def _constants(calls: Iterable[Call]) -> Iterator[torch.Tensor]:
    for call in calls:
        yield from (x for x, _ in call.operands if not isinstance(x, str))
        yield from _constants(call.parts)


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the storages behind `tensors`: views of one are counted once."""
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors}
    return sum(storages.values())


def _nothing(_: int, __: Step) -> None:
    """What is done after a step whose values nobody wants."""


def _both(lengths: Sequence[Timed]) -> tuple[list[int], list[int]]:
    """(wall, busy) of all."""
    return [length.wall_ns for length in lengths], [length.busy_ns for length in lengths]


def _mean_end(lengths: Sequence[int], ends: Sequence[int]) -> int:
    """Mean of when requests are done: `ends` of them after each of steps that take `lengths`, ns."""
    return round(sum(now * count for now, count in zip(accumulate(lengths), ends, strict=True)) / max(1, sum(ends)))
