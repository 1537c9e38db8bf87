"""A plan: what fits, what is chosen, how sure, and the command of a named version."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scenarios.batches import decode_batch, prefill_batches
from scenarios.errors import ScenarioError
from scenarios.finegrained_settings import FinegrainedTp
from scenarios.loader import load_scenario
from scenarios.models.hf_config import load_model
from sim.predict.predict import check
from sim.predict.scenario_result import case_of
from sim.predict.steps import Case, step_ns
from sim.report.outputs.plan import plan_outputs
from sim.serving.result import serve_scenario
from sim.sweep import plan as plan_module
from sim.sweep.candidates import (
    BATCHES,
    REFINEMENTS,
    Choice,
    Fixed,
    Models,
    choices,
    refined,
    refinements,
    scenario_of,
)
from sim.sweep.deploy_apart import split_commands
from sim.sweep.disaggregate import Split, best_splits
from sim.sweep.evaluate import Evaluator, Slo
from sim.sweep.finalists import Finalist
from sim.sweep.plan import NEAR, Plan, plan
from sim.sweep.plan_result import plan_result, settings_of
from sim.sweep.serve import ROUNDS, WARMUP
from tests.scenarios.making import scenario
from tests.sim.hardware_maker import hardware

HW = hardware("atlas_a3_die")
QWEN3_32B = load_model("Qwen3-32B")
SMALL = replace(load_model("Qwen3-0.6B"), layers=4)
NOTHING_FIXED = Fixed(frozenset())
WORKLOAD = {"workload__input_tokens": 512, "workload__output_tokens": 64, "optimizations__graph": "aclgraph"}


def base(**settings: object) -> Any:
    return scenario(**{"model": "Qwen3-0.6B", **WORKLOAD, **settings})


@pytest.fixture(scope="module")
def planned() -> Plan:
    return plan(Case(base(), SMALL, HW), SMALL, 2, Slo(ttft_ms=100.0, tpot_ms=10.0), NOTHING_FIXED)


def test_every_choice_takes_all_cards_and_what_is_set_is_not_searched() -> None:
    every = list(choices(base(), QWEN3_32B, 8, NOTHING_FIXED))
    assert {choice.cards * choice.data_parallel for choice in every} == {8}
    assert {choice.tensor_parallel for choice in every} == {1, 2, 4, 8}
    fixed = Fixed(frozenset({"optimizations.weights", "engine.tensor_parallel_size"}))
    fewer = list(choices(base(engine__tensor_parallel_size=2), QWEN3_32B, 8, fixed))
    assert {choice.tensor_parallel for choice in fewer} == {2}
    assert {choice.weights for choice in fewer} == {"bf16"}
    assert not any(choice.expert_parallel for choice in every)


def test_what_does_not_fit_is_refused_in_one_line_with_the_nearest_that_does() -> None:
    """Qwen3-32B in BF16 takes 61 GiB: no card of 55 holds it, two do."""
    case = Case(base(model="Qwen3-32B"), QWEN3_32B, HW)
    fixed = Fixed(frozenset({"optimizations.weights", "optimizations.graph", "optimizations.kv.dtype"}))
    result = plan(case, QWEN3_32B, 2, Slo(), Fixed(fixed.keys | {"engine.pipeline_parallel_size"}))
    assert result.skipped["weights do not fit"] == len(BATCHES)
    (line,) = result.refusals
    assert line.startswith("TP1 DP2 bf16 aclgraph: ")
    assert "weights 61.0" in line
    assert "nearest that fits: TP2 bf16 aclgraph with up to" in line
    assert result.best is not None
    assert result.best.point.choice.tensor_parallel == 2


def test_the_best_choice_meets_the_slo_and_can_run(planned: Plan) -> None:
    best = planned.best
    assert best is not None
    assert best.meets
    assert best.decided_by == "serving simulation"
    assert best.tpot_ms <= 10
    assert not check(best.point.case)
    meeting = [finalist for finalist in planned.finalists if finalist.meets]
    # Of near ties the one that has the smallest regret comes first.
    assert best.tokens_per_card >= (1 - NEAR) * max(f.tokens_per_card for f in meeting if f.served is not None)


def test_no_point_of_the_front_is_beaten_in_both(planned: Plan) -> None:
    front = planned.pareto
    assert len(front) > 3
    for one in front:
        assert not any(
            other.tokens_per_card >= one.tokens_per_card and other.per_user >= one.per_user
            for other in front
            if other is not one
        )


def test_the_bound_is_never_above_what_is_played() -> None:
    """The bound's TPOT is below the recurrence's, so nothing is pruned that could have been best."""
    evaluator = Evaluator(Models(SMALL, base(), HW))
    for choice in choices(base(), SMALL, 2, NOTHING_FIXED):
        for batch in (1, 16, 64):
            if not evaluator.refusal(choice, batch)[0]:
                point = evaluator.point(choice, batch)
                tpot_ms, per_card = evaluator.bound(choice, batch)
                assert tpot_ms <= point.decode_ms
                assert per_card >= point.tokens_per_card


def test_a_plan_is_the_same_twice(planned: Plan) -> None:
    again = plan(Case(base(), SMALL, HW), SMALL, 2, Slo(ttft_ms=100.0, tpot_ms=10.0), NOTHING_FIXED)
    assert json.dumps(plan_result(again, "x")) == json.dumps(plan_result(planned, "x"))


def test_the_document_has_the_keys_of_the_contract(planned: Plan) -> None:
    result = plan_result(planned, "x")
    assert {"best", "pareto", "limits", "sensitivity", "near_ties", "considered", "skipped"} <= set(result)
    assert {"settings", "metrics", "command"} <= set(result["best"])
    assert result["considered"] == len(BATCHES) * len(list(choices(base(), SMALL, 2, NOTHING_FIXED)))
    assert "engine.max_num_batched_tokens" in result["not_searched"]
    assert "optimizations.weights" not in result["not_searched"]
    for row in result["sensitivity"]:
        assert row["changes"] == (row["regret"] > 0)
        assert 0 <= row["regret"] < 1
    changing = [row["measure"] for row in result["sensitivity"] if row["changes"]]
    assert result["deciding_measurement"] == (changing[0] if changing else None)


def test_nothing_that_meets_the_slo_is_said_and_not_invented() -> None:
    """No weights cross HBM in 10 us: nothing was played, and "no choice can run" was said of choices that can."""
    result = plan(Case(base(), SMALL, HW), SMALL, 1, Slo(tpot_ms=0.01), NOTHING_FIXED)
    assert result.skipped["bound breaks the TPOT limit"] > 0
    assert result.best is not None
    assert (result.best.meets, result.best.point.batch) == (False, 1)
    assert result.best.tpot_ms > 0.01


def test_where_nothing_fits_the_cards_that_would_do_are_named() -> None:
    case = Case(base(model="Qwen3-32B"), QWEN3_32B, HW)
    fixed = Fixed(frozenset({"optimizations.weights", "optimizations.kv.dtype"}))
    result = plan(case, QWEN3_32B, 1, Slo(), fixed)
    assert result.best is None
    (line,) = result.refusals
    assert line.endswith("; nearest that fits: TP1 PP2 bf16 aclgraph on 2 cards")


@pytest.mark.parametrize(
    ("name", "sets", "cards"),
    [
        ("qwen3_8b_decode", ["workload.batch=8"], 1),
        ("llama_3_1_70b_tp4_pp2_decode", ["hardware=910b2", "workload.batch=8", "optimizations.kv.dtype=auto"], 8),
    ],
)
def test_the_scenario_that_is_written_is_the_one_that_was_chosen(
    name: str, sets: list[str], cards: int, tmp_path: Path
) -> None:
    """All of it: the file had lost what `--set` says (another chip) and the stack whose kernels were priced."""
    out = tmp_path / "plan.yaml"
    best = plan_outputs(name, cards, "", sets, None, out, lambda text: None)["best"]
    assert best["verify"][1] == f"whatif calibrate --bench bench.json --scenario {out} --out engine.yaml"
    case, alone = (case_of(load_scenario(out, [f"workload.batch={n}", f"engine.max_num_seqs={n}"])) for n in (8, 1))
    decode_ms = step_ns(case, decode_batch(case.scenario)) / 1e6
    prefill_ms = sum(step_ns(alone, chunk) for chunk in prefill_batches(alone.scenario)) / 1e6
    tpot_ms = decode_ms + best["batch"] * prefill_ms / case.scenario.workload.output_tokens
    assert tpot_ms == pytest.approx(best["recurrence"]["tpot_ms"], rel=1e-9)


def test_products_that_replicas_share_are_searched_under_expert_parallelism_of_replicas() -> None:
    moe, dense = load_model("DeepSeek-V3"), QWEN3_32B
    spread = Choice(1, 1, 12, True, "w8a8", "auto", "aclgraph", False)
    tried = [value for key, value in refinements(spread, moe) if key == "engine.finegrained_tp_config"]
    assert [getattr(value, "sizes", None) for value in tried] == [
        {"lmhead_tensor_parallel_size": 6},
        {"lmhead_tensor_parallel_size": 6, "mlp_tensor_parallel_size": 6},
        {"mlp_tensor_parallel_size": 6},
    ]
    for choice, model in (
        (replace(spread, expert_parallel=False), moe),
        (replace(spread, tensor_parallel=2), moe),
        (replace(spread, data_parallel=1), moe),
        (spread, dense),
    ):
        assert tuple(refinements(choice, model)) == REFINEMENTS
    named = refined(refined(spread, ("engine.finegrained_tp_config", tried[0])), ("weight_format", "nz"))
    assert named.name == "TP1 DP12 EP w8a8 aclgraph lmhead TP6 nz"
    made = scenario_of(base(model="DeepSeek-V3"), refined(named, ("engine.finegrained_tp_config", tried[1])), 4)
    assert made.engine.finegrained_tp_config == tried[1]


def test_the_settings_of_a_point_say_which_products_are_shared() -> None:
    model, shared = load_model("Qwen3-30B-A3B"), FinegrainedTp(lmhead_tensor_parallel_size=8)
    evaluator = Evaluator(Models(model, base(model="Qwen3-30B-A3B"), HW))
    plain = Choice(1, 1, 8, True, "w8a8", "auto", "aclgraph", False)
    sliced = refined(plain, ("engine.finegrained_tp_config", shared))
    assert "engine.finegrained_tp_config=null" in settings_of(evaluator.point(plain, 1))
    given = settings_of(evaluator.point(sliced, 1))
    assert "engine.finegrained_tp_config.lmhead_tensor_parallel_size=8" in given
    assert "engine.finegrained_tp_config=null" not in given


def test_a_split_serves_what_its_slower_side_does() -> None:
    evaluator = Evaluator(Models(SMALL, base(), HW))
    choice = Choice(1, 1, 4, False, "bf16", "auto", "aclgraph", False)
    points = [evaluator.point(choice, batch) for batch in (8, 32)]
    split = best_splits(points, 4, Slo(), 2)[0]
    assert split.cards <= 4
    assert split.prefill_instances + split.decode_instances <= 4
    prompts = split.prefill_instances * 1000 / split.prefill.prefill_ms
    done = split.decode_instances * 1000 * split.decode.batch / (64 * split.decode.decode_ms)
    assert split.tokens_per_card == pytest.approx(min(prompts, done) * 64 / 4)
    assert best_splits(points, 1, Slo(), 2) == []


def test_instances_of_a_split_stand_alone_and_share_their_numbers() -> None:
    evaluator = Evaluator(Models(SMALL, base(), HW))
    whole = Choice(1, 1, 4, False, "bf16", "auto", "aclgraph", False)
    points = [
        evaluator.point(replace(whole, **change), 8) for change in ({}, {"weights": "w8a8"}, {"kv_dtype": "int8"})
    ]
    for split in best_splits(points, 4, Slo(), 9):
        sides = split.prefill.choice, split.decode.choice
        assert len({(side.weights, side.kv_dtype) for side in sides}) == 1
    assert best_splits([evaluator.point(replace(whole, pipeline_parallel=2, data_parallel=2), 8)], 4, Slo(), 2) == []


def two_and_one(prefill: int = 4, decode: int = 2) -> Split:
    """One prefill instance and three decode instances of Qwen3-32B, TP4 and TP2."""
    evaluator = Evaluator(Models(QWEN3_32B, base(model="Qwen3-32B"), HW))
    whole = Choice(prefill, 1, 1, False, "w8a8", "auto", "aclgraph", False)
    front, back = evaluator.point(whole, 8), evaluator.point(replace(whole, tensor_parallel=decode), 8)
    return Split(front, back, 1, 3, tokens_per_card=1.0, ttft_ms=1.0, tpot_ms=1.0)


def test_a_prefill_instance_has_as_many_ranks_as_a_decode_instance_or_a_multiple() -> None:
    """vLLM-Ascend refuses the others when it starts: `Prefill TP size must be divisible by Decode TP size`."""
    evaluator = Evaluator(Models(QWEN3_32B, base(model="Qwen3-32B"), HW))
    points = [
        evaluator.point(Choice(ranks, 1, 8 // ranks, False, "w8a8", "auto", "aclgraph", False), 8) for ranks in (2, 4)
    ]
    pairs = {
        (s.prefill.choice.tensor_parallel, s.decode.choice.tensor_parallel) for s in best_splits(points, 8, Slo(), 9)
    }
    assert pairs == {(2, 2), (4, 2), (4, 4)}


def test_the_instances_of_a_split_are_started_one_by_one_on_dies_of_their_own() -> None:
    made = split_commands(two_and_one(), "0.18")
    lines = [shlex.split(text) for text in made.instances]
    assert len(lines) == 4
    assert [words[0] for words in lines] == [
        f"ASCEND_RT_VISIBLE_DEVICES={devices}" for devices in ("0,1,2,3", "4,5", "6,7", "8,9")
    ]
    given = [json.loads(words[words.index("--kv-transfer-config") + 1]) for words in lines]
    assert [sent["kv_role"] for sent in given] == ["kv_producer"] + ["kv_consumer"] * 3
    assert {sent["kv_connector"] for sent in given} == {"MooncakeConnectorV1"}
    sizes = {"prefill": {"dp_size": 1, "tp_size": 4}, "decode": {"dp_size": 1, "tp_size": 2}}
    assert all(sent["kv_connector_extra_config"] == sizes for sent in given)
    for distinct in ("kv_port", "engine_id"):
        assert len({sent[distinct] for sent in given}) == 4
    assert [words[words.index("--tensor-parallel-size") + 1] for words in lines] == ["4", "2", "2", "2"]
    assert "--enforce-eager" in lines[0]
    assert all("--compilation-config" in words for words in lines[1:])
    assert all("--data-parallel-size" not in words for words in lines)
    ports = [words[words.index("--port") + 1] for words in lines]
    proxy = shlex.split(made.proxy)
    assert proxy[proxy.index("--prefiller-ports") + 1 : proxy.index("--decoder-hosts")] == ports[:1]
    assert proxy[proxy.index("--decoder-ports") + 1 :] == ports[1:]
    new = [json.loads(shlex.split(text)[-1]) for text in split_commands(two_and_one(), "0.23").instances]
    assert all("engine_id" not in sent for sent in new)


def test_an_instance_that_a_server_has_no_room_for_starts_on_the_next() -> None:
    """16 dies a server: TP8 and three of TP4 leave none, so the proxy names two servers."""
    split = replace(two_and_one(8, 4), decode_instances=3)
    made = split_commands(split, "0.23")
    devices = [shlex.split(text)[0].split("=")[1] for text in made.instances]
    assert devices == ["0,1,2,3,4,5,6,7", "8,9,10,11", "12,13,14,15", "0,1,2,3"]
    proxy = shlex.split(made.proxy)
    hosts = proxy[proxy.index("--decoder-hosts") + 1 : proxy.index("--decoder-ports")]
    assert hosts == ["$SERVER0", "$SERVER0", "$SERVER1"]
    assert any("SERVER0, SERVER1" in note for note in made.notes)


def test_no_choice_that_was_not_served_promises_more_than_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serving may take more from the first choices than from others: here all but a tenth of two of them."""
    real = plan_module.by_serving
    seen: list[Choice] = []

    def by_serving(finalist: Finalist, slo: Slo, say: Any) -> Finalist:
        seen.append(finalist.point.choice)
        result = real(finalist, slo, say)
        slow = len(dict.fromkeys(seen)) <= 2
        return replace(result, tokens_per_card=result.tokens_per_card / 10) if slow else result

    monkeypatch.setattr(plan_module, "by_serving", by_serving)
    result = plan(Case(base(), SMALL, HW), SMALL, 2, Slo(ttft_ms=100.0, tpot_ms=10.0), NOTHING_FIXED)
    best = result.finalists[0]
    assert best.decided_by == "serving simulation"
    ties = [other for other, _ in result.near_ties]  # of these a loaded host decides
    others = [f for f in result.finalists if f.meets and f not in ties]
    assert all(f.score(result.slo) <= best.score(result.slo) for f in others)
    assert len(dict.fromkeys(seen)) > 2


def test_a_split_is_served_as_its_settings_say() -> None:
    """`whatif run` with the settings that the plan gives serves the same requests in the same time."""
    asked = [f"workload.{name}_tokens={tokens}" for name, tokens in (("input", 512), ("output", 64))]
    loaded = load_scenario("qwen3_0_6b_decode", asked)
    case = case_of(loaded)
    fixed = Fixed(frozenset({"workload.batch", "optimizations.weights", "optimizations.kv.dtype"}))
    decided = plan(replace(case, scenario=base(workload__batch=8)), load_model("Qwen3-0.6B"), 4, Slo(), fixed)
    assert decided.split is not None
    split, run = decided.split
    clients = split.decode_instances * split.decode.batch
    traffic = {
        "arrival": "closed",
        "concurrency": clients,
        "requests": ROUNDS * clients,
        "warmup_requests": WARMUP * clients,
    }
    result = plan_result(decided, "x")["disaggregation"]
    sets = [*result["settings"], *(f"workload.traffic.{key}={value}" for key, value in traffic.items())]
    again = load_scenario("qwen3_0_6b_decode", [*asked, f"hardware={HW.name}", *sets])
    served = serve_scenario(again, case_of(again)).metrics
    assert served.completed == run.requests
    assert served.output_throughput / 4 == pytest.approx(run.tokens_per_card)
    assert served.tpot_ms.mean == pytest.approx(run.tpot_ms)
    assert result["ratio"] == pytest.approx(run.tokens_per_card / decided.finalists[0].tokens_per_card)
    assert result["better"] is (result["meets_slo"] and result["ratio"] > 1 + NEAR)
    assert set(result["command"]) == {"0.18", "0.23"}


def test_a_scenario_of_a_choice_runs_as_it_says() -> None:
    choice = Choice(2, 1, 1, False, "w8a8", "int8", "aclgraph", False, (("overlap.prefetch", True),))
    made = scenario_of(base(), choice, 8)
    assert (made.engine.tensor_parallel_size, made.engine.max_num_seqs, made.workload.batch) == (2, 8, 8)
    assert (made.optimizations.weights, made.optimizations.kv.dtype) == ("w8a8", "int8")
    assert made.optimizations.overlap.prefetch is True


def test_a_batch_and_replicas_that_are_set_are_not_searched() -> None:
    settings = base(workload__batch=5, engine__data_parallel_size=2)
    fixed = Fixed(frozenset({"workload.batch", "engine.data_parallel_size"}))
    assert {choice.data_parallel for choice in choices(settings, SMALL, 2, fixed)} == {2}
    result = plan(Case(settings, SMALL, HW), SMALL, 2, Slo(), fixed)
    assert {finalist.point.batch for finalist in result.finalists} == {5}
    assert (
        list(choices(base(engine__tensor_parallel_size=3), SMALL, 2, Fixed(frozenset({"engine.tensor_parallel_size"}))))
        == []
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("tpot=50", "--slo: no limit 'tpot'.*tpot_ms"),
        ("tpot_ms=fast", "--slo: tpot_ms must be milliseconds above 0, got 'fast'"),
        ("tpot_ms=0", "--slo: tpot_ms must be milliseconds above 0"),
    ],
)
def test_a_wrong_slo_is_one_line(text: str, what: str) -> None:
    from sim.report.outputs.plan import slo_of

    with pytest.raises(ScenarioError, match=what) as raised:
        slo_of(text)
    assert len(raised.value.messages) == 1
