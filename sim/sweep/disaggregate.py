"""Prefill and decode on cards of their own, by what was played already: which split, and the ratio of instances.

A prefill instance takes one prompt after the other, a decode instance keeps b requests in flight that no prefill
interrupts. With p and d instances the deployment serves

    min(p / prefill, d x b / (output x decode))  requests/s,  TPOT = decode,  TTFT = prefill + transfer of the cache

The closed form leaves out queues and the engine's host; the best few splits are therefore served (`serve.py`), with the
links and the hand-over of `engine.disaggregated_prefill`. An instance stands alone, so experts that spread over the
replicas of a layout cannot be split this way.
"""

from __future__ import annotations

from scenarios.fleet_settings import DisaggregatedPrefill
from scenarios.records import dataclass
from scenarios.schema import Scenario
from sim.sweep.candidates import Choice
from sim.sweep.evaluate import Point, Slo

#: GB/s between two instances for one prompt's cache, as the serving simulation takes it (spec: a RoCE port).
LINK_GBPS = DisaggregatedPrefill().link_gbps


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

    @property
    def cards(self) -> int:
        """That instances use; some of those given may be left over."""
        return self.prefill_instances * self.prefill.choice.cards + self.decode_instances * self.decode.choice.cards

    def scenario(self) -> Scenario:
        """The decode instances' scenario, with the prefill instances that stand before them."""
        own = self.decode.case.scenario
        front = DisaggregatedPrefill(
            instances=self.prefill_instances, tensor_parallel_size=self.prefill.choice.tensor_parallel
        )
        more = {"data_parallel_size": self.decode_instances, "disaggregated_prefill": front}
        return own.model_copy(update={"engine": own.engine.model_copy(update=more)})


def best_splits(points: list[Point], cards: int, slo: Slo, most: int) -> list[Split]:
    """The splits with the most tokens/s a card that meet `slo`, the best of each pair of layouts, the best first."""
    best: dict[tuple[int, Choice], Split] = {}
    whole = [point for point in points if _stands_alone(point.choice)]
    prefills = _best_prefills(whole)
    for decode in whole:
        if slo.tpot_ms is not None and decode.decode_ms > slo.tpot_ms:
            continue
        for prefill in prefills:
            if not _fit(prefill.choice, decode.choice):
                continue
            split = _balanced(prefill, decode, cards)
            if split is None or not slo.met(split.ttft_ms, split.tpot_ms):
                continue
            key = prefill.choice.tensor_parallel, decode.choice
            if key not in best or split.tokens_per_card > best[key].tokens_per_card:
                best[key] = split
    return sorted(best.values(), key=lambda split: -split.tokens_per_card)[:most]


def _stands_alone(choice: Choice) -> bool:
    """Whether one replica can be an instance: no stages, and no experts on the cards of other replicas."""
    return choice.pipeline_parallel == 1 and not (choice.expert_parallel and choice.data_parallel > 1)


def _fit(prefill: Choice, decode: Choice) -> bool:
    """Whether the one can hand its cache to the other. vLLM-Ascend wants the prefill side's ranks divisible by the
    decode side's: a decode rank pulls its heads from whole prefill ranks (vllm_ascend/ascend_config.py of v0.18.0 and
    v0.23.0, pd_tp_ratio; MooncakeConnectorWorker)."""
    return _numbers(prefill) == _numbers(decode) and prefill.tensor_parallel % decode.tensor_parallel == 0


def _numbers(choice: Choice) -> tuple[str, str]:
    """What both sides of a split must share: the prompt's cache goes from one to the other as it is."""
    return choice.weights, choice.kv_dtype


def _best_prefills(points: list[Point]) -> list[Point]:
    """Of each layout the point with the fastest prefill."""
    best: dict[tuple[int, str, str], Point] = {}
    for point in points:
        key = point.choice.cards, *_numbers(point.choice)
        if key not in best or point.prefill_ms < best[key].prefill_ms:
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
