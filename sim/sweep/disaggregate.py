"""Prefill and decode on cards of their own, by what was played already: which split, and the ratio of instances.

A prefill instance takes one prompt after the other, a decode instance keeps b requests in flight that no prefill
interrupts. With p and d instances the deployment serves

    min(p / prefill, d x b / (output x decode))  requests/s,  TPOT = decode,  TTFT = prefill + transfer of the cache

Not simulated: queueing before prefill, and the links between instances, whose time for one prompt's cache is taken at
LINK_GBPS.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.sweep.evaluate import Point, Slo

#: GB/s between two instances for one prompt's cache. Assumed: one RoCE port of 200 Gbit/s at 80 %.
LINK_GBPS = 20.0


@dataclass(frozen=True, slots=True)
class Split:
    """prefill, decode: the points that instances run; prefill_instances, decode_instances: how many of them."""

    prefill: Point
    decode: Point
    prefill_instances: int
    decode_instances: int
    tokens_per_card: float
    ttft_ms: float
    tpot_ms: float


def best_split(points: list[Point], cards: int, slo: Slo) -> Split | None:
    """The split with the most tokens/s a card that meets `slo`; None where there is none on `cards` cards."""
    best: Split | None = None
    prefills = _best_prefills(points)
    for decode in points:
        if decode.choice.pipeline_parallel > 1 or (slo.tpot_ms is not None and decode.decode_ms > slo.tpot_ms):
            continue
        for prefill in prefills:
            if prefill.choice.weights != decode.choice.weights:
                continue
            split = _balanced(prefill, decode, cards)
            if split is None or not slo.met(split.ttft_ms, split.tpot_ms):
                continue
            if best is None or split.tokens_per_card > best.tokens_per_card:
                best = split
    return best


def _best_prefills(points: list[Point]) -> list[Point]:
    """Of each layout the point with the fastest prefill."""
    best: dict[tuple[int, str], Point] = {}
    for point in points:
        key = point.choice.cards, point.choice.weights
        if point.choice.pipeline_parallel == 1 and (key not in best or point.prefill_ms < best[key].prefill_ms):
            best[key] = point
    return list(best.values())


def _balanced(prefill: Point, decode: Point, cards: int) -> Split | None:
    """As many instances of each as give the most requests/s on `cards` cards."""
    tokens = decode.case.scenario.workload
    one = 1000 / prefill.prefill_ms
    each = 1000 * decode.batch / (tokens.output_tokens * decode.decode_ms)
    best: tuple[float, int, int] = (0.0, 0, 0)
    for number in range(1, cards // prefill.choice.cards + 1):
        decoders = (cards - number * prefill.choice.cards) // decode.choice.cards
        if decoders:
            best = max(best, (min(number * one, decoders * each), number, decoders))
    rate, number, decoders = best
    if not rate:
        return None
    moved_ms = tokens.input_tokens * decode.memory.capacity.bytes_per_token * decode.choice.cards / LINK_GBPS / 1e6
    return Split(
        prefill=prefill,
        decode=decode,
        prefill_instances=number,
        decode_instances=decoders,
        tokens_per_card=rate * tokens.output_tokens / cards,
        ttft_ms=prefill.prefill_ms + moved_ms,
        tpot_ms=decode.decode_ms,
    )
