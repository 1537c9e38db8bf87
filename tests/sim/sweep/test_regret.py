"""The side of a measured pair that the prediction chooses is never worse than the other by more than 5 %.

Of the 57 pairs 17 can be said as two scenarios (`tests.sim.sweep.measured_pairs`). Where the source of a short one
leaves something open, the choice must be the same on each chip that is tried. The rule that the host under load
decides between near ties was written after pair 1 had been missed: pair 1 holds it, and judges nothing.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from scenarios.batches import reported_batch
from scenarios.loader import load_text
from sim.predict.predict import predict
from sim.predict.scenario_result import case_of
from sim.predict.steps import Case, step_ns
from sim.serving.result import serve_scenario
from sim.sweep.robust import LOADED, preferred, regrets
from tests.sim.sweep.measured_pairs import NOT_STATED, STATED

MARGIN = 0.05
CHIPS = ("atlas_a2_910b2", "atlas_a2_910b3", "atlas_a3_die")
DRAFTED = "engine.speculative_config={{method: eagle3, num_speculative_tokens: {}, acceptance: {}}}"
#: By id: settings of both sides, and those of the one before and the one after.
PAIRS = {pair: (STATED[pair].both, STATED[pair].before, STATED[pair].after) for pair in ("1", "6", "7", "10")}
#: Two micro-batches of decoding on 320 dies: an engine whose kernels have fewer floors than those that are priced.
WRONG = ("45", "46")
#: Pairs that take seconds.
SLOW = ("3", "32", "33", "34", "45", "46", "47", "48")
#: The one metric here that is better where it is higher.
HIGHER_IS_BETTER = "output tok/s"


def measured(shared: Path) -> dict[str, dict[str, str]]:
    path = shared / "measured" / "pairs.csv"
    if not path.is_file():
        pytest.skip("no measured/pairs.csv in ../shared")
    with path.open(newline="", encoding="utf-8") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def case(chip: str, sets: tuple[str, ...]) -> Case:
    return case_of(load_text("{}", "pair", (f"hardware={chip}", *sets)))


def test_every_pair_is_stated_or_has_its_reason(shared: Path) -> None:
    others = [pair for pairs in NOT_STATED.values() for pair in pairs]
    assert sorted((*STATED, *others)) == sorted(measured(shared))


def documented() -> dict[str, list[str]]:
    """The cells of the table of pairs in docs/plan.md, by id."""
    lines = (Path(__file__).parents[3] / "docs" / "plan.md").read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| pair |"))
    rows: dict[str, list[str]] = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        pair, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        rows[pair] = cells
    return rows


def test_the_documented_pairs_are_those_that_are_stated() -> None:
    rows = documented()
    assert list(rows) == list(STATED)
    for pair, stated in STATED.items():
        assert rows[pair][1] == f"{stated.measured:.2f}x", pair
        assert (rows[pair][4] != "") == bool(stated.seen), pair


@pytest.mark.parametrize(
    "pair", [pytest.param(pair, marks=pytest.mark.slow if pair in SLOW else ()) for pair in STATED]
)
def test_the_regret_of_each_pair_is_the_documented_one(pair: str) -> None:
    """Two of the 17 are worse than the measured other by more than 5 %, and say so."""
    stated, (_, _, predicted, regret, _) = STATED[pair], documented()[pair]
    gain, chosen_after = stated.predicted()
    assert f"{gain:.2f}x" == predicted
    assert f"{stated.regret(chosen_after):.1%}" == regret
    assert (stated.regret(chosen_after) > MARGIN) == (pair in WRONG)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("pair", PAIRS)
def test_the_chosen_side_is_not_worse_than_the_measured_other(shared: Path, pair: str, chip: str) -> None:
    row = measured(shared)[pair]
    both, before, after = PAIRS[pair]
    choose_after = preferred([case(chip, (*both, *before)), case(chip, (*both, *after))]) == 1
    was, became = float(row["before"]), float(row["after"])
    gain = became / was if row["metric"] == HIGHER_IS_BETTER else was / became
    assert abs(gain - 1) > MARGIN, "a pair this close judges nothing"
    regret = max(0.0, 1 / gain - 1) if choose_after else max(0.0, gain - 1)
    assert regret <= MARGIN, f"pair {pair} on {chip}: {regret:.0%} worse than the measured other side"


def drafted(tokens: int, tokens_a_step: float) -> str:
    """Drafts of EAGLE-3 that yield so many tokens a step: each is accepted with one probability."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(middle**i for i in range(tokens + 1)) < tokens_a_step else (low, middle)
    return DRAFTED.format(tokens, round(low, 4))


@pytest.mark.parametrize("chip", CHIPS)
def test_more_drafts_than_pay_are_not_chosen(chip: str) -> None:
    """vllm-ascend #8118: Qwen3-8B, EAGLE-3, 16 requests of 3.5K + 1.5K tokens: 3 drafts (2.81 tokens a step) have 943.6
    tokens/s, 8 (3.60) have 795.3. #13819: 128 requests with DFlash: 5 drafts (3.04) 3,051 tokens/s, 9 (3.46) 2,649.
    Each is judged by the time of a token, not of a step, whose tokens differ. Nothing was fitted to them."""
    long = ("model=Qwen3-8B", "workload.batch=16", "workload.input_tokens=3500", "workload.output_tokens=1500")
    short = ("model=Qwen3-8B", "workload.batch=128", "workload.input_tokens=100", "workload.output_tokens=200")
    graph = "optimizations.graph=aclgraph"
    assert preferred([case(chip, (*long, graph, drafted(*k))) for k in ((8, 3.60), (3, 2.81))]) == 1
    assert preferred([case(chip, (*short, graph, drafted(*k))) for k in ((9, 3.46), (5, 3.04))]) == 1


def test_drafts_are_judged_by_the_time_of_a_token() -> None:
    """A step that verifies three drafts is longer than one of a token, and yields 2.8: a token comes sooner."""
    sets = ("model=Qwen3-8B", "workload.batch=4", "workload.input_tokens=512", "optimizations.graph=aclgraph")
    plain, drafts = case(CHIPS[2], sets), case(CHIPS[2], (*sets, drafted(3, 2.81)))
    steps = [step_ns(one, reported_batch(one.scenario)) for one in (plain, drafts)]
    assert steps[0] < steps[1]
    assert preferred([plain, drafts]) == 1


def test_of_ties_the_one_that_loses_the_smallest_share_is_preferred() -> None:
    """By hand: 1 % faster and twice as slow on a loaded host loses half there; the other 1 %."""
    lost = regrets([0.99, 1.0], [2.0, 1.0])
    assert lost == pytest.approx([1 - 1 / 1.98, 0.01])
    assert pytest.approx(2.818, abs=1e-3) == LOADED


def test_what_the_interval_tells_apart_is_chosen_by_its_time() -> None:
    sets = ("model=Qwen3-8B", "workload.batch=1", "optimizations.graph=")
    eager, graph = (case("atlas_a2_910b2", (*sets[:2], sets[2] + mode)) for mode in ("eager", "aclgraph"))
    assert preferred([eager, graph]) == 1
    assert preferred([graph, eager]) == 0


@pytest.mark.slow
def test_drafts_gain_what_was_published() -> None:
    """Pair 49 (DeepSeek-R1 INT8 on 910C, one MTP token of which 70 % are accepted): 6 to 49 % more tokens/s, more at
    small batches. Nothing was fitted to it; its batches and lengths are not stated."""
    sets = (
        "model=DeepSeek-V3", "optimizations.weights=w8a8", "optimizations.graph=aclgraph",
        "engine.data_parallel_size=32", "engine.enable_expert_parallel=true", "workload.input_tokens=1024",
        "workload.output_tokens=512",
    )  # fmt: skip
    mtp = "engine.speculative_config={method: mtp, num_speculative_tokens: 1, acceptance: 0.7}"
    gains = []
    for batch in (8, 32):
        alone, drafted = (
            predict(case("atlas_a3_die", (*sets, f"workload.batch={batch}", *more))).metrics["tpot_ms"].value
            for more in ((), (mtp,))
        )
        gains.append(alone / drafted)
    assert 1.06 <= gains[1] < gains[0] <= 1.49


def test_a_shared_output_projection_loses_and_a_shared_head_gains(shared: Path) -> None:
    """Pairs 34 and 35: DeepSeek-R1 W8A8 on 32 cards, 24 requests each, slices in groups of 8. Both change a step by
    less than the margin; their sign is what can be held. Nothing was fitted to them; the lengths are not stated."""
    sets = (
        "model=DeepSeek-R1", "optimizations.weights=w8a8", "optimizations.graph=aclgraph", "workload.batch=24",
        "engine.data_parallel_size=32", "engine.enable_expert_parallel=true", "workload.input_tokens=2048",
        "workload.output_tokens=512", "engine.max_num_seqs=24",
    )  # fmt: skip
    rows = measured(shared)
    times = {}
    for name in ("", "oproj", "lmhead"):
        more = (f"engine.finegrained_tp_config.{name}_tensor_parallel_size=8",) if name else ()
        one = case("atlas_a2_910b2", (*sets, *more))
        times[name] = step_ns(one, reported_batch(one.scenario)) / 1e6
    for pair, name in (("34", "oproj"), ("35", "lmhead")):
        change = times[name] - times[""]
        assert (change > 0) == (float(rows[pair]["after"]) > 0), f"pair {pair}: {change:+.1f} ms"
        assert abs(change - float(rows[pair]["after"])) < 1.5


@pytest.mark.slow
def test_a_pool_of_kv_in_host_memory_gains_where_conversations_do_not_fit(shared: Path) -> None:
    """Pairs 62 and 63: Qwen3-14B on one card whose cache is small, 16 clients in conversations, TTFT 608 -> 348 ms with
    KV offloaded. Turns, lengths, chip and engine are not stated; those here are assumed."""
    base = (
        "model=Qwen3-14B", "optimizations.graph=aclgraph", "optimizations.kv.prefix_sharing=true",
        "engine.gpu_memory_utilization=0.56", "engine.profile=healthy", "workload.input_tokens=256",
        "workload.output_tokens=128", "engine.max_model_len=20000",
        "workload.traffic={arrival: closed, concurrency: 16, requests: 96, turns: 6}",
    )  # fmt: skip
    rows = measured(shared)
    loads = [
        load_text("{}", "pair", ("hardware=atlas_a2_910b3", *base, *more))
        for more in ((), ("engine.kv_pool={capacity_gib: 64.0}",))
    ]
    before, after = (serve_scenario(loaded, case_of(loaded)).metrics.ttft_ms.mean for loaded in loads)
    gain = float(rows["62"]["after"]) / float(rows["63"]["after"])
    assert gain > 1 + MARGIN
    assert before > (1 + MARGIN) * after
