"""Capacity predicted is capacity measured: the simulator's count of requests, tokens and bytes against real tensors."""

from __future__ import annotations

import pytest

from device.run.session import Session, calibrated
from device.run.workload import reported_step
from scenarios.schema import Scenario
from scenarios.serving.kv_cache import ContiguousCache, OutOfCache, PagedCache
from sim.predict.memory import memory_of
from tests.device.making import ALL_FUSED, QWEN3, REFERENCE, session
from tests.scenarios.making import bare, switched
from tests.sim.hardware_maker import hardware

SHARED = {"kv__prefix_sharing": True, "kv__shared_prefix_tokens": 37}
LAYOUTS: dict[str, dict[str, object]] = {
    "contiguous": {},
    "paged": {"kv__layout": "paged", "kv__block_size": 16},
    "shared": {"kv__layout": "paged", "kv__block_size": 16, **SHARED},
    "int8 token": {"kv__dtype": "int8", "kv__scale": "token"},
    "int8 head paged": {"kv__layout": "paged", "kv__block_size": 32, "kv__dtype": "int8", "kv__scale": "head"},
}


def small(batch: int, **switches: object) -> Scenario:
    """Requests of 53 tokens at their end, of which the cache holds at most 64."""
    scenario = bare(
        workload__batch=batch, workload__input_tokens=45, workload__output_tokens=8, engine__max_model_len=64
    )
    return switched(scenario, **{**ALL_FUSED, **switches})


def admit(cache: PagedCache | ContiguousCache, number: int, sharing: bool) -> None:
    """A request of 53 tokens, of which 37 are those of the first one."""
    if isinstance(cache, PagedCache) and sharing and number:
        cache.allocate(number, 53, like=0, common_tokens=37)
    else:
        cache.allocate(number, 53)


@pytest.mark.parametrize("switches", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("room_bytes", [200_000, 1_000_000])
def test_as_many_requests_are_admitted_as_are_predicted(switches: dict[str, object], room_bytes: int) -> None:
    scenario = small(2, **switches)
    other = memory_of(scenario, QWEN3, hardware(chip__hbm_visible_bytes=1 << 32))
    fixed = other.total - other.kv_cache
    whole = scenario.model_copy(update={"engine": scenario.engine.model_copy(update={"gpu_memory_utilization": 1.0})})
    capacity = memory_of(whole, QWEN3, hardware(chip__hbm_visible_bytes=fixed + room_bytes)).capacity
    kv = scenario.optimizations.kv
    cache: PagedCache | ContiguousCache
    if kv.layout == "paged":
        cache = PagedCache(capacity.kv_tokens // kv.block_size, kv.block_size)
    else:
        cache = ContiguousCache(capacity.kv_tokens // 64, 64)
    for number in range(capacity.max_concurrent_requests):
        admit(cache, number, kv.prefix_sharing)
    with pytest.raises(OutOfCache):
        admit(cache, capacity.max_concurrent_requests, kv.prefix_sharing)
    assert capacity.max_concurrent_requests > 0


@pytest.mark.parametrize("switches", LAYOUTS.values(), ids=LAYOUTS)
def test_full_requests_take_the_bytes_that_are_predicted(switches: dict[str, object]) -> None:
    scenario = small(3, **switches)
    at_work: Session = session(scenario, QWEN3, REFERENCE)
    common = [7] * 37
    prompts = [[*common, *[number] * 8] for number in range(3)]
    calibrated(at_work, prompts)
    tokens, _ = at_work.prefill(prompts)
    for _ in range(8):
        tokens, _ = at_work.decode(tokens)
    cache = at_work.cache
    predicted = memory_of(scenario, QWEN3, hardware())
    assert cache.taken_tokens * predicted.capacity.bytes_per_token == predicted.kv_cache
    held = sum(cache.allocator.tokens(number) for number in range(3))
    shared = 2 * 32 if scenario.optimizations.kv.prefix_sharing else 0
    assert cache.wasted_tokens == cache.taken_tokens + shared - held
    places = cache.tensors["k_cache"][0].shape[0] * cache.tensors["k_cache"][0].shape[1]
    assert cache.bytes == places * predicted.capacity.bytes_per_token  # every byte of the tensors is a token's


def test_the_reported_step_starts_on_the_context_that_the_scenario_says() -> None:
    at_work = session(small(3, **LAYOUTS["shared"]), QWEN3, REFERENCE)
    phase, requests = reported_step(at_work)
    assert (phase, requests.contexts, requests.queries) == ("decode", (49,) * 3, (1,) * 3)
    assert [at_work.cache.allocator.tokens(n) for n in requests.numbers] == [50] * 3
    assert at_work.cache.taken_tokens == (2 + 3 * 2) * 16  # two blocks are common
