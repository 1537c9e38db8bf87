"""What a scenario says of its serving engine: the scheduler's limits and its KV cache."""

from __future__ import annotations

from scenarios.schema import Scenario
from scenarios.serving.admission import KvCache
from scenarios.serving.drafts import Drafts
from scenarios.serving.kv_cache import ContiguousCache, PagedCache
from scenarios.serving.kv_pool import KvPool
from scenarios.serving.prefix_cache import PrefixCache
from scenarios.serving.requests import Load
from scenarios.serving.scheduler import Limits


def limits_of(scenario: Scenario) -> Limits:
    """What the scheduler may do."""
    engine = scenario.engine
    return Limits(
        engine.max_num_seqs,
        engine.max_num_batched_tokens,
        by_priority=engine.scheduling_policy == "priority",
        swap=engine.preemption == "swap",
        reserves_all=engine.scheduler_reserve_full_isl is not False,
        prefill_first=bool(engine.prefill_first),
    )


def drafts_of(scenario: Scenario, replica: int = 0) -> Drafts | None:
    """The drafts of a replica, None without speculation."""
    config = scenario.engine.speculative_config
    return Drafts(config, scenario.protocol.seed + replica) if config else None


def pool_of(scenario: Scenario, bytes_per_token: int) -> KvPool | None:
    """The pool of KV of one replica, None where there is none. bytes_per_token: of one rank."""
    pool = scenario.engine.kv_pool
    if pool is None:
        return None
    block = bytes_per_token * scenario.engine.tensor_parallel_size * scenario.optimizations.kv.block_size
    return KvPool(int(pool.capacity_gib * (1 << 30) / block))


def cache_of(scenario: Scenario, kv_tokens: int, longest: int) -> KvCache:
    """An empty cache. kv_tokens: tokens that there is memory for. longest: tokens of a contiguous row."""
    kv = scenario.optimizations.kv
    if kv_tokens < 1:
        raise ValueError("no room for a KV cache beside the weights and the largest step")
    if kv.layout == "contiguous":
        return ContiguousCache(kv_tokens // longest, longest)
    cache = PrefixCache if kv.prefix_sharing else PagedCache
    return cache(kv_tokens // kv.block_size, kv.block_size)


def longest_tokens(load: Load) -> int:
    """Tokens of the longest request."""
    return max((r.input_tokens + r.output_tokens for r in load.requests), default=1)
