"""Blocks counted against blocks handed out: every time, every step and every count of the two must be the same."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.loader import load_scenario
from scenarios.serving.admission import KvCache
from scenarios.serving.counting import CountingScheduler, Counts
from scenarios.serving.drafts import Drafts
from scenarios.serving.kv_cache import ContiguousCache, PagedCache
from scenarios.serving.prefix_cache import PrefixCache
from scenarios.serving.requests import Load, Request
from scenarios.serving.scheduler import Limits
from scenarios.speculation_settings import SpeculativeConfig
from sim.engines.costs import EngineCosts
from sim.predict.scenario_result import case_of
from sim.serving import counted
from sim.serving.counted import CountedLoop
from sim.serving.outcome import ServingOutcome
from sim.serving.prices import TICKS_PER_NS, Piece
from sim.serving.result import serve_scenario, serving_block
from sim.serving.serve import serve

CACHE_TOKENS = (128, 320, 1280, 20_000)


class Captured:
    """Decode steps of sizes captured for every fourth request, whose times bend with the context; some get cheaper."""

    def decode(self, requests: int, context_tokens: int) -> Piece:
        size = 256 * ((requests + 3) // 4)
        place = context_tokens // size
        slope = (3 - 2 * (place % 3)) * TICKS_PER_NS + 5
        base = (3000 + 17 * requests + 40 * place) * TICKS_PER_NS + 12_345 * requests
        return Piece(base - slope * place * size, slope, place * size, (place + 1) * size)

    def mixed(self, requests: int, context_tokens: int, tokens: int, pairs: int) -> int:
        return (1000 + 3 * context_tokens + 50 * tokens + pairs) * TICKS_PER_NS + 77


@st.composite
def loads(draw: st.DrawFn) -> Load:
    gap_ns = draw(st.sampled_from((400, 5000, 40_000)))
    prompts = st.integers(draw(st.sampled_from((0, 1, 1, 1, 1))), 90)  # with one of 0 tokens none is counted
    rows = draw(st.lists(st.tuples(st.integers(0, 2 * gap_ns), prompts, st.integers(1, 70)), min_size=1, max_size=60))
    at, requests = 0, []
    for number, (gap, prompt, output) in enumerate(rows):
        at += gap
        requests.append(Request(number, at, prompt, output, priority=number % 2))
    return Load(tuple(requests), draw(st.sampled_from((None, None, 1, 5))))


@st.composite
def limits(draw: st.DrawFn) -> Limits:
    flags = {name: draw(st.booleans()) for name in ("swap", "reserves_all", "prefill_first")}
    by_priority = draw(st.integers(0, 5)) == 0
    return Limits(draw(st.sampled_from((1, 4, 12))), draw(st.sampled_from((40, 64, 512))), by_priority, **flags)


engines = st.builds(
    EngineCosts,
    per_step_ns=st.sampled_from((0, 700, 20_000)),
    per_request_ns=st.sampled_from((0, 30)),
    per_chunk_ns=st.just(11),
    hidden_share=st.sampled_from((0.0, 0.4, 0.5, 1.0)),
    admission_ns=st.sampled_from((0, 90)),
    issue_decode_ns=st.sampled_from((0, 900)),
)


def caches(kind: str, tokens: int, size: int) -> KvCache:
    if kind == "contiguous":
        return ContiguousCache(tokens // 128, 128)
    return (PrefixCache if kind == "prefix" else PagedCache)(tokens // size, size)


def both(
    load: Load, limits: Limits, cache: Any, engine: EngineCosts, drafted: bool = False, patience: int = 64
) -> list[ServingOutcome]:
    """Served with blocks counted where they may be, and with none counted. patience: steps before they are again."""
    config = SpeculativeConfig(method="ngram", num_speculative_tokens=2, acceptance=0.6)
    outcomes = []
    for counts in (True, False):
        kept_counts = CountingScheduler.counts if counts else lambda self, requests: None
        with patch.object(CountingScheduler, "counts", kept_counts), patch.object(counted, "PATIENCE", patience):
            drafts = Drafts(config, 0) if drafted else None
            kept = cache()
            outcomes.append(serve(load, limits, kept, Captured(), engine, 150, 1000, drafts))
            if isinstance(kept, PagedCache):
                assert kept.free_blocks == kept.blocks
    return outcomes


def columns(outcome: ServingOutcome) -> dict[str, Any]:
    """All of an outcome, arrays as lists."""
    rows = {f.name: getattr(outcome, f.name) for f in fields(outcome) if f.name != "steps"}
    rows |= {f"steps.{f.name}": getattr(outcome.steps, f.name) for f in fields(outcome.steps)}
    return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in rows.items()}


@settings(max_examples=150)
@given(
    load=loads(),
    limits=limits(),
    kind=st.sampled_from(("paged", "paged", "paged", "contiguous", "prefix")),
    tokens=st.sampled_from(CACHE_TOKENS),
    size=st.sampled_from((4, 16, 128)),
    engine=engines,
    drafted=st.sampled_from((False, False, False, True)),
    patience=st.sampled_from((-50, 0, 64)),
)
def test_counting_blocks_gives_each_time_and_step_that_handing_them_out_gives(
    load: Load,
    limits: Limits,
    kind: str,
    tokens: int,
    size: int,
    engine: EngineCosts,
    drafted: bool,
    patience: int,
) -> None:
    with_counts, without = both(load, limits, lambda: caches(kind, tokens, size), engine, drafted, patience=patience)
    assert columns(with_counts) == columns(without)


@pytest.mark.parametrize(("blocks", "preempts"), [(400, False), (24, True)])
def test_blocks_are_counted_and_a_step_that_lacks_some_is_the_schedulers(
    monkeypatch: pytest.MonkeyPatch, blocks: int, preempts: bool
) -> None:
    load = Load(tuple(Request(n, 3000 * n, 10 + 7 * n % 50, 20 + 11 * n % 60) for n in range(120)))
    limits = Limits(8, 64)
    rows, counts = [], CountedLoop._counted

    def watched(self: CountedLoop, state: Counts) -> None:
        before = len(self.log.steps().steps)
        counts(self, state)
        rows.append(len(self.log.steps().steps) - before)

    monkeypatch.setattr(CountedLoop, "_counted", watched)
    with_counts, without = both(load, limits, lambda: PagedCache(blocks, 16), EngineCosts(per_step_ns=700))
    assert columns(with_counts) == columns(without)
    assert (with_counts.preemptions > 0) == preempts
    assert sum(rows) > 20
    assert (len(rows) > 1) == preempts


@pytest.mark.parametrize(
    ("sets", "is_counted"),
    [
        ((), True),
        (("arrival=closed", "concurrency=5"), True),
        (("arrival=burst",), True),
        (("arrival=poisson", "rate=40", "turns=3", "think_time_s=0.2"), True),
        (("arrival=poisson", "rate=40", "urgent_share=0.3", "engine.scheduling_policy=priority"), False),
        (("arrival=poisson", "rate=40", "prefix_tokens=16", "optimizations.kv.prefix_sharing=true"), False),
        (("arrival=burst", "engine.kv_cache_memory_bytes=1800000"), True),
    ],
)
def test_a_scenario_is_answered_in_the_same_bytes_with_blocks_counted_or_not(
    sets: tuple[str, ...], is_counted: bool
) -> None:
    traffic = tuple(s if s.startswith(("engine.", "optimizations.")) else f"workload.traffic.{s}" for s in sets)
    plain = ("workload.traffic.trace=null", "workload.traffic.requests=60") if sets else ()
    loaded = load_scenario("serve_tiny_cpu", [*plain, *traffic])
    blocks = []
    for counts in (True, False):
        kept_counts = CountingScheduler.counts if counts else lambda self, requests: None
        with (
            patch.object(CountingScheduler, "counts", kept_counts),
            patch.object(CountedLoop, "_counted", autospec=True, side_effect=CountedLoop._counted) as called,
        ):
            blocks.append(json.dumps(serving_block(serve_scenario(loaded, case_of(loaded)))))
        assert called.called == (counts and is_counted)
    assert blocks[0] == blocks[1]
