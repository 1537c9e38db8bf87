"""Which batch sizes to capture: those that lose the smallest time to padding, as many as the device's streams allow.

A captured graph of FULL_DECODE_ONLY is one graph; in pieces it is one for each layer and one more, and each holds
streams, of which a process has 2,048 (vLLM-Ascend plans with 1,920: vllm_ascend/utils.py, `update_aclgraph_sizes`):

    sizes <= 1920 / (layers + 1) / (1 + one for each kind of parallelism in use)

What is chosen from are the batches that the served load had; the sum over them of the time of the next captured size is
made as small as can be (dynamic programming over the sizes in order).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import fsum

import numpy as np

from scenarios.batches import capture_sizes
from scenarios.records import dataclass
from sim.predict.steps import Case
from sim.serving.outcome import ServingOutcome
from sim.serving.prices import GridPrices

#: Graphs that vLLM-Ascend plans with (streams, less a reserve).
MAX_GRAPHS = 1920
#: Sizes that are worth their capture time at most, where streams do not limit them.
MAX_SIZES = 64
#: Fewest sizes that lose no more than this share against MAX_SIZES of them are proposed.
WORTH = 0.005


@dataclass(frozen=True, slots=True)
class Captures:
    """budget: sizes that may be captured. sizes: proposed, in tokens. padding_share: of the decode steps' device time,
    lost to padding with the scenario's sizes and with the proposed ones. eager_share: of decode steps larger than the
    scenario's largest size, which run op by op."""

    budget: int
    given: int
    sizes: tuple[int, ...]
    padding_share: float
    proposed_padding_share: float
    eager_share: float


def size_budget(case: Case) -> int:
    """Sizes that may be captured."""
    engine, model = case.scenario.engine, case.model
    if engine.cudagraph_mode not in ("PIECEWISE", "FULL_AND_PIECEWISE"):
        return MAX_SIZES
    parallel = 1 + (model.data_parallel > 1) + (model.tensor_parallel > 1)
    return max(2, min(MAX_SIZES, MAX_GRAPHS // (model.layers + 1) // parallel))


def chosen_sizes(
    batches: Sequence[int], steps: Sequence[int], cost: Callable[[int], float], most: int
) -> tuple[tuple[int, ...], float]:
    """(sizes, total time): `most` sizes or fewer with the smallest sum over steps of the cost of the next size up.

    batches: ascending; steps: how many steps had each. The largest batch is always a size.
    """
    count = len(batches)
    weights = np.concatenate(([0.0], np.cumsum(steps)))
    costs = np.array([cost(batch) for batch in batches])
    best = weights[1:] * costs  # one size for all batches up to this one
    froms = [np.zeros(count, np.int64)]
    for _ in range(1, min(most, count)):
        # The size before covers all batches up to i; this one those from i + 1 to j.
        added = best[:, None] + (weights[None, 1:] - weights[1:, None]) * costs[None, :]
        added[np.tril_indices(count)] = np.inf
        place = added.argmin(axis=0)
        extended = added[place, np.arange(count)]
        better = extended < best
        froms.append(np.where(better, place + 1, 0))
        best = np.where(better, extended, best)
        if not better.any():
            break
    sizes, at = [], count - 1
    for level in range(len(froms) - 1, -1, -1):
        if level and not froms[level][at]:
            continue
        sizes.append(batches[at])
        if not level:
            break
        at = int(froms[level][at]) - 1
    return tuple(sorted(sizes)), float(best[-1])


def captures_of(case: Case, outcome: ServingOutcome, prices: GridPrices) -> Captures | None:
    """Sizes for the load that was served; None where nothing is captured or nothing decodes."""
    scenario = case.scenario
    if scenario.optimizations.graph not in ("aclgraph", "npugraph_ex") or scenario.engine.cudagraph_mode == "NONE":
        return None
    steps = outcome.steps
    decoding = (steps.decoding > 0) & (steps.chunks == 0)
    if not decoding.any():
        return None
    counts = np.bincount(steps.decoding[decoding], steps.steps[decoding])
    batches = np.flatnonzero(counts).tolist()
    context = int((outcome.input_tokens + outcome.output_tokens // 2).mean())
    query = scenario.engine.query_tokens
    known = {batch: prices.unpadded_ns(batch, context) for batch in batches}

    def total(sizes: Sequence[int]) -> float:
        return fsum(counts[batch] * prices.unpadded_ns(_next(sizes, batch), context) for batch in batches)

    unpadded = fsum(counts[batch] * known[batch] for batch in batches)
    given = sorted({size // query for size in capture_sizes(scenario.engine)})
    budget = size_budget(case)
    weights = [int(counts[batch]) for batch in batches]
    enough, _ = chosen_sizes(batches, weights, known.__getitem__, budget)
    for most in _fewer(budget):
        sizes, time = chosen_sizes(batches, weights, known.__getitem__, most)
        if time > (1 + WORTH) * total(enough):
            break
        enough = sizes
    eager = float(counts[[batch for batch in batches if batch > given[-1]]].sum() / counts.sum())
    return Captures(
        budget=budget,
        given=len(given),
        sizes=tuple(query * size for size in enough),
        padding_share=total(given) / unpadded - 1,
        proposed_padding_share=total(enough) / unpadded - 1,
        eager_share=eager,
    )


def _fewer(budget: int) -> list[int]:
    """Numbers of sizes to try, ever fewer."""
    steps = [budget * 3 // 4, budget // 2, budget // 4, budget // 8, 4, 2]
    return [most for before, most in pairwise([budget, *steps]) if 2 <= most < before]


def _next(sizes: Sequence[int], batch: int) -> int:
    """The size that serves a batch; one above the largest is not padded."""
    return next((size for size in sizes if size >= batch), batch)
