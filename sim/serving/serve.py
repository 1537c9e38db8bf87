"""A load on one engine, from its first arrival to its last token."""

from __future__ import annotations

import gc

from scenarios.serving.admission import KvCache
from scenarios.serving.client import Client
from scenarios.serving.counting import CountingScheduler
from scenarios.serving.drafts import Drafts
from scenarios.serving.requests import Load
from scenarios.serving.scheduler import Limits
from sim.engines.costs import EngineCosts
from sim.serving.counted import CountedLoop
from sim.serving.loop import PooledKv
from sim.serving.outcome import ServingOutcome, outcome_of
from sim.serving.prices import StepPrices


def serve(
    load: Load,
    limits: Limits,
    cache: KvCache,
    prices: StepPrices,
    engine: EngineCosts,
    max_model_len: int | None = None,
    kv_bytes_per_token: int = 0,
    drafts: Drafts | None = None,
    pool: PooledKv | None = None,
) -> ServingOutcome:
    """Serve all requests of `load` and return what became of each.

    max_model_len: longer requests are rejected. kv_bytes_per_token: what a swapped token copies. drafts: of speculative
    decoding; contexts then grow by what a step yields on average. pool: of KV beyond the cache.
    """
    scheduler = CountingScheduler(limits, cache, drafts, pool.pool if pool else None)
    loop = CountedLoop(Client(load), scheduler, prices, engine, max_model_len, kv_bytes_per_token)
    if pool:
        loop.load_ticks, loop.loads_by_layer = pool.ticks_per_token, pool.by_layer
    collects = gc.isenabled()
    gc.disable()  # nothing here is a circle, and looking for some in a million objects takes a third of the time
    try:
        loop.run()
        return outcome_of(load, loop.completed(), len(loop.rejected), loop.log, scheduler, pauses=loop.pauses)
    finally:
        if collects:
            gc.enable()
