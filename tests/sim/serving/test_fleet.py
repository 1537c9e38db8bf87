"""Several engines at once: times computed by hand, one clock for all, and what a router knows."""

from __future__ import annotations

import json

import numpy as np
import pytest

from scenarios.errors import ScenarioError
from scenarios.loader import load_scenario
from scenarios.serving.drafts import Drafts
from scenarios.serving.kv_cache import PagedCache
from scenarios.serving.kv_pool import KvPool
from scenarios.serving.prefix_cache import PrefixCache
from scenarios.serving.requests import Load, Request
from scenarios.serving.router import Load as InstanceLoad
from scenarios.serving.router import Router
from scenarios.serving.scheduler import Limits, Scheduler
from sim.engines.costs import EngineCosts
from sim.predict.scenario_result import case_of
from sim.serving.fleet import Fleet, Instance, Transfer
from sim.serving.loop import Loop, PooledKv
from sim.serving.outcome import ServingOutcome, merged
from sim.serving.prices import TICKS_PER_NS, FixedPrices
from sim.serving.result import serve_scenario, serving_block
from sim.serving.serve import serve
from sim.serving.simulate import shares, transfer_of
from sim.serving.trace import request_trace

FREE = EngineCosts()
PRICES = FixedPrices(1000, 5000)
LIMITS = Limits(8, 64)


def engines(count: int, cache=PagedCache, blocks: int = 400, limits: Limits = LIMITS) -> list[Instance]:
    return [Instance.of(Scheduler(limits, cache(blocks, 16)), PRICES, FREE, 0) for _ in range(count)]


def random_load(number: int, seed: int, gap_ns: int, concurrency: int | None = None) -> Load:
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.exponential(gap_ns, number)).astype(int)
    lengths = rng.integers(1, 60, (2, number))
    rows = zip(times.tolist(), *lengths.tolist(), strict=True)
    return Load(tuple(Request(n, *row) for n, row in enumerate(rows)), concurrency)


def same(one: ServingOutcome, other: ServingOutcome) -> bool:
    names = ("ids", "arrived_ns", "started_ns", "first_ns", "last_ns")
    return all((getattr(one, name) == getattr(other, name)).all() for name in names)


def test_replicas_in_turn_are_replicas_alone() -> None:
    load = random_load(300, 1, 4000)
    together = Fleet(load, engines(3), "round_robin", 1000).run()
    alone = merged([serve(part, LIMITS, PagedCache(400, 16), PRICES, FREE) for part in shares(load, 3)])
    assert same(together, alone)
    assert [use.requests for use in together.instances] == [100, 100, 100]


@pytest.mark.parametrize("concurrency", [None, 5])
@pytest.mark.parametrize("tiers", [False, True])
def test_engines_far_ahead_give_what_steps_in_lockstep_give(
    concurrency: int | None, tiers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = random_load(200, 2, 3000, concurrency)

    def run() -> ServingOutcome:
        front = engines(2) if tiers else []
        transfer = Transfer(40.0, 1.0, 100, 4) if tiers else None
        return Fleet(load, engines(3), "least_loaded", 1000, front, transfer).run()

    far = run()
    advance = Loop.advance
    monkeypatch.setattr(Loop, "advance", lambda loop, limit=None: advance(loop, 0))
    assert same(run(), far)
    assert far.step_count > 3 * len(far.steps.steps) / 4


@pytest.mark.parametrize(
    ("layers", "arrives"),
    [(1, 5000 + 100 + 20), (5, 5000 + 100 + 4)],  # all of 20 ns at the end, or a fifth of it
)
def test_a_prompt_is_computed_here_and_decoded_there(layers: int, arrives: int) -> None:
    load = Load((Request(0, 0, 10, 3),))
    outcome = Fleet(load, engines(1), "round_robin", 100, engines(1), Transfer(2.0, 1.0, 100, layers)).run()
    assert outcome.started_ns.tolist() == [0]
    assert outcome.first_ns.tolist() == [arrives + 1000]  # the step of the prompt's last token
    assert outcome.last_ns.tolist() == [arrives + 3000]
    assert outcome.transfer_wait_ns == arrives - 5000
    assert [(use.role, use.busy_ns) for use in outcome.instances] == [("prefill", 5000), ("decode", 3000)]


def test_a_transfer_longer_than_its_prefill_shows_and_a_link_sends_one_at_a_time() -> None:
    # 8,000 ns on the link against 5,000 of prefill: the first layer of four is there at 1,250 and the last at 9,250.
    load = Load((Request(0, 0, 10, 1), Request(1, 0, 10, 1)))
    outcome = Fleet(load, engines(1), "round_robin", 100, engines(1), Transfer(800.0, 1.0, 0, 4)).run()
    assert outcome.first_ns.tolist() == [9250 + 1000, 17250 + 1000]


def test_a_client_that_waits_sends_when_the_last_token_came_from_the_decode_instance() -> None:
    load = Load((Request(0, 0, 10, 3), Request(1, 0, 10, 3)), 1)
    outcome = Fleet(load, engines(1), "round_robin", 100, engines(1), Transfer(2.0, 1.0, 100, 1)).run()
    assert outcome.arrived_ns.tolist() == [0, 8120]
    assert outcome.last_ns.tolist() == [8120, 2 * 8120]


def test_the_step_of_a_first_token_is_no_gap() -> None:
    load = random_load(60, 5, 3000)
    outcome = Fleet(load, engines(2), "round_robin", 1000, engines(2), Transfer(2.0, 1.0, 100, 1)).run()
    steps = outcome.steps
    assert int((steps.steps * steps.gaps).sum()) == int((outcome.output_tokens - 1).sum())


def test_what_never_fits_is_sent_back_at_once() -> None:
    load = Load((Request(0, 0, 10, 3), Request(1, 0, 90, 20), Request(2, 0, 10, 2)))
    outcome = Fleet(load, engines(1, blocks=4), "round_robin", 100, engines(1), Transfer(2.0, 1.0)).run()
    assert outcome.rejected == 1
    assert outcome.ids.tolist() == [0, 2]


def test_the_least_loaded_has_fewest_under_way_and_waiting_ones_count_four_times() -> None:
    router = Router("least_loaded", 3)
    loads = [InstanceLoad(9, 0), InstanceLoad(2, 2), InstanceLoad(8, 0)]  # 9, 10, 8
    assert router.choose(Request(0, 0, 1, 1), loads, lambda _: 0) == 2


def test_a_prefix_is_followed_until_loads_are_uneven() -> None:
    router, held = Router("prefix_aware", 2), {0: 0, 1: 64}
    request = Request(0, 0, 100, 1)
    assert router.choose(request, [InstanceLoad(1, 0), InstanceLoad(16, 0)], held.__getitem__) == 1
    assert router.choose(request, [InstanceLoad(1, 0), InstanceLoad(18, 0)], held.__getitem__) == 0


def test_turns_of_a_conversation_stay_where_the_first_was() -> None:
    router, loads = Router("round_robin", 2), [InstanceLoad(0, 0)] * 2
    requests = [Request(0, 0, 1, 1), Request(1, 0, 1, 1, after=0), Request(2, 0, 1, 1), Request(3, 0, 1, 1, after=2)]
    assert [router.choose(request, loads, lambda _: 0) for request in requests] == [0, 0, 1, 1]


def test_a_router_that_knows_prefixes_computes_fewer_tokens() -> None:
    rng = np.random.default_rng(4)
    groups = rng.integers(0, 6, 240).tolist()
    requests = tuple(Request(n, 30_000 * n, 64, 4, segments=((group, 48),)) for n, group in enumerate(groups))
    # Each cache has room for a few of the six prefixes.
    hits = {
        policy: Fleet(Load(requests), engines(3, PrefixCache, 9), policy, 1000).run().hit_tokens  # type: ignore[arg-type]
        for policy in ("round_robin", "prefix_aware")
    }
    assert hits["prefix_aware"] > 1.3 * hits["round_robin"]


def test_a_pool_forgets_what_was_used_longest_ago_and_the_end_of_a_prefix_first() -> None:
    pool = KvPool(3)
    pool.keep(["a0", "a1"])
    pool.keep(["b0"])
    assert pool.hits(["a0", "a1", "a2"]) == 2  # used now
    pool.keep(["c0"])
    assert (pool.hits(["b0"]), pool.hits(["a0", "a1"]), pool.hits(["c0"])) == (0, 2, 1)
    pool.keep(["d0"])
    assert (pool.hits(["a0", "a1"]), len(pool)) == (1, 3)


@pytest.mark.parametrize(("by_layer", "step"), [(True, 5000), (False, 5000 + 64 * 10)])
def test_prompts_come_from_the_pool_in_time_that_layers_hide_or_not(by_layer: bool, step: int) -> None:
    """A cache of one request's size forgets; the pool beyond it does not."""
    shared = ((0, 64),)
    requests = (
        Request(0, 0, 70, 1, segments=shared),
        Request(1, 100_000, 70, 1),
        Request(2, 200_000, 70, 1, segments=shared),
    )
    pool = PooledKv(KvPool(100), 10 * TICKS_PER_NS, by_layer)
    outcome = serve(Load(requests), Limits(1, 128), PrefixCache(5, 16), PRICES, FREE, pool=pool)
    assert (outcome.first_ns - outcome.arrived_ns).tolist() == [5000, 5000, step]
    assert (outcome.hit_tokens, outcome.loaded_tokens) == (64, 64)


def test_drafts_and_instances_go_together() -> None:
    load = random_load(60, 5, 9000)
    config = load_scenario("qwen3_32b_eagle3_decode", ()).scenario.engine.speculative_config
    assert config is not None
    decode = [Instance.of(Scheduler(LIMITS, PagedCache(400, 16), Drafts(config, 0)), PRICES, FREE, 0)]
    outcome = Fleet(load, decode, "round_robin", 1000, engines(1), Transfer(2.0, 1.0)).run()
    assert len(outcome.ids) == 60
    assert (outcome.first_ns > outcome.arrived_ns).all()
    assert (outcome.last_ns >= outcome.first_ns).all()


def served(*sets: str) -> dict:
    given = ("workload.traffic.requests=60", "workload.traffic.warmup_requests=0", "slo=null", *sets)
    loaded = load_scenario("serve_qwen3_14b_910b3", given)
    return serving_block(serve_scenario(loaded, case_of(loaded)))


def test_decodes_without_prefills_between_them_have_no_gap_for_them() -> None:
    together, apart = served(), served("engine.disaggregated_prefill={instances: 1}")
    assert together["gap"]["prefill_ms"] > 1
    assert apart["gap"]["prefill_ms"] == 0
    assert apart["tpot_ms"]["p99"] < together["tpot_ms"]["p99"]
    assert apart["ttft_ms"]["mean"] > together["ttft_ms"]["mean"]  # twice through an engine's door, and one more step
    assert [use["role"] for use in apart["instances"]] == ["prefill", "decode"]


def test_unequal_tensor_parallelism_is_as_fast_as_its_busier_side() -> None:
    def sent(decode: int, prefill: int) -> float:
        sets = [f"engine.tensor_parallel_size={decode}"]
        case = case_of(load_scenario("serve_qwen3_14b_910b3", sets))
        other = case_of(load_scenario("serve_qwen3_14b_910b3", [f"engine.tensor_parallel_size={prefill}"]))
        return transfer_of(other, case).bytes_per_token

    whole = 40 * 2 * 8 * 128 * 2  # layers, K and V, KV heads, elements, bytes
    assert sent(1, 1) == whole
    assert sent(1, 2) == whole  # one card receives all
    assert sent(2, 1) == whole  # one card sends all
    assert sent(2, 2) == whole / 2


@pytest.mark.parametrize(
    ("sets", "what"),
    [
        (["engine.router=least_loaded"], "engine.router: has no effect with one instance"),
        (["engine.router=prefix_aware", "engine.data_parallel_size=2"], "prefix_aware needs"),
        (["engine.kv_pool={capacity_gib: 4}"], "engine.kv_pool: has no effect without"),
        (["engine.disaggregated_prefill={transfer: slow}"], "'slow' is not one of layerwise, whole"),
    ],
)
def test_what_changes_nothing_is_refused(sets: list[str], what: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        load_scenario("serve_qwen3_14b_910b3", sets)
    assert what in refused.value.messages[0]


def test_a_prefill_instance_that_cannot_be_is_named() -> None:
    loaded = load_scenario("serve_qwen3_14b_910b3", ["engine.disaggregated_prefill={tensor_parallel_size: 3}"])
    with pytest.raises(ScenarioError) as refused:
        serve_scenario(loaded, case_of(loaded))
    assert "engine.disaggregated_prefill: a prefill instance" in refused.value.messages[0]


def test_a_fleet_gives_the_same_twice() -> None:
    first, again = (served("engine.data_parallel_size=2", "engine.router=least_loaded") for _ in range(2))
    assert first == again


def test_what_comes_ready_has_its_first_token_where_prompts_go_first() -> None:
    limits = Limits(8, 64, prefill_first=True)
    load = random_load(60, 5, 3000)
    front, back = engines(1, limits=limits), engines(2, limits=limits)
    outcome = Fleet(load, back, "round_robin", 1000, front, Transfer(2.0, 1.0, 100, 1)).run()
    assert len(outcome.ids) == 60
    assert (outcome.arrived_ns < outcome.first_ns).all()
    assert (outcome.first_ns <= outcome.last_ns).all()
    assert int((outcome.steps.steps * outcome.steps.gaps).sum()) == int((outcome.output_tokens - 1).sum())


def test_the_trace_has_a_counter_for_each_instance_in_the_order_of_time() -> None:
    load = random_load(60, 5, 3000)
    together = Fleet(load, engines(2), "least_loaded", 1000, engines(1), Transfer(2.0, 1.0, 100, 1)).run()
    alike = merged([serve(part, LIMITS, PagedCache(400, 16), PRICES, FREE) for part in shares(load, 2)])
    for outcome, names in (
        (together, {"running, prefill 1", "running, decode 1", "running, decode 2"}),
        (alike, {"running, replica 1", "running, replica 2"}),
    ):
        counters = [event for event in json.loads(request_trace(outcome, "a fleet")) if event["ph"] == "C"]
        assert {event["name"] for event in counters} == names
        assert [event["ts"] for event in counters] == sorted(event["ts"] for event in counters)
        assert len(counters) == len(outcome.steps.start_ns)
        of_prefill = [event["args"] for event in counters if "prefill" in event["name"]]
        assert all(not args["decoding"] for args in of_prefill)
