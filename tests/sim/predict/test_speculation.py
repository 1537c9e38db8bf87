"""Speculative decoding: what a step yields in closed form, what its draft costs, and that it can lose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scenarios.batches import capture_sizes, decode_batch
from scenarios.build import build, effective_graph
from scenarios.errors import ScenarioError
from scenarios.loader import load_scenario, load_text
from scenarios.models.hf_config import load_model
from scenarios.ops.program import Batch, Group
from scenarios.schema import Scenario
from scenarios.serving.drafts import Drafts
from scenarios.speculation import draft_model, draft_passes, without_speculation
from scenarios.speculation_settings import SpeculativeConfig
from sim.predict.memory import kv_bytes_per_token, weight_bytes
from sim.predict.predict import predict
from sim.predict.scenario_result import case_of
from sim.predict.steps import Case, step_ns, whole_interval_ns
from tests.scenarios.making import EXPERTS, TINY, scenario
from tests.sim.hardware_maker import hardware


def config(method: str = "ngram", drafted: int = 3, **more: object) -> SpeculativeConfig:
    return SpeculativeConfig.model_validate({"method": method, "num_speculative_tokens": drafted, **more})


def speculating(**settings: object) -> Scenario:
    given = {"method": "ngram", "num_speculative_tokens": 3, **settings}
    return scenario(engine__speculative_config=given, workload__batch=4, workload__context_tokens=100)


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.8])
def test_tokens_of_a_step_are_the_geometric_sum(chance: float) -> None:
    expected = (1 - chance**4) / (1 - chance)
    assert config(acceptance=chance).tokens_per_step == pytest.approx(expected)


def test_shares_by_position_are_added_up() -> None:
    # PARD with eight tokens on Llama-3.1-8B (vLLM-Ascend PR 6766): 3.62 tokens a step.
    shares = (0.79, 0.57, 0.40, 0.28, 0.20, 0.14, 0.11, 0.08)
    assert config(drafted=8, acceptance=shares).tokens_per_step == pytest.approx(3.57)


def test_drawn_steps_yield_the_mean_and_never_more_than_the_draft() -> None:
    drafts = Drafts(config(acceptance=(0.7, 0.5, 0.2)), seed=5)
    tokens = 200_000
    assert tokens / drafts.steps(tokens) == pytest.approx(2.4, rel=0.01)
    assert all(n / 4 <= drafts.steps(n) <= n for n in range(1, 50))
    assert Drafts(config(acceptance=1.0), 0).steps(401) == 101
    assert Drafts(config(acceptance=0.0), 0).steps(401) == 401


def test_a_verifying_step_has_a_row_for_every_token_and_chooses_for_each() -> None:
    batch = decode_batch(speculating())
    assert batch == Batch("decode", (Group(4, 4, 100),))
    program = build(speculating(), TINY, batch)
    head = next(op for op in program.block("head").ops if op.name == "lm_head")
    assert head.inputs[0].shape == (16, 16)
    assert program.block("sample").ops[-1].out.shape == (16,)


def test_drafts_run_over_all_tokens_and_then_over_one_a_request() -> None:
    given = speculating(method="eagle3")
    first, later = draft_passes(given, TINY, decode_batch(given))
    assert first.batch == decode_batch(given)
    assert first.count == 1
    assert later.batch == Batch("decode", (Group(4, 1, 104),))
    assert later.count == 2
    program = build(first.scenario, first.model, first.batch)
    join = next(op for op in program.block("embed").ops if op.name == "eh_proj")
    assert join.inputs[1].shape == (16, 3 * 16)
    assert program.block("layers").repeat == 1
    head = next(op for op in program.block("head").ops if op.name == "lm_head")
    assert head.inputs[0].shape[0] == 4  # a draft chooses one token a request
    assert draft_passes(speculating(), TINY, decode_batch(given)) == ()


def test_a_prediction_layer_is_a_layer_of_the_model() -> None:
    model = replace(EXPERTS, mtp_layers=1)
    draft = draft_model(speculating(method="mtp").engine, model)
    assert draft is not None
    assert draft.layers == 1
    assert draft.joined == 2
    assert draft.experts == replace(EXPERTS.experts, dense_layers=0)  # type: ignore[type-var]


@pytest.mark.parametrize(("name", "layers"), [("DeepSeek-V3", 1), ("GLM-4.5-Air", 1), ("Kimi-K2", 0), ("Qwen3-8B", 0)])
def test_prediction_layers_are_read_from_the_config(name: str, layers: int) -> None:
    assert load_model(name).mtp_layers == layers


def test_a_draft_takes_memory() -> None:
    given, model = speculating(method="mtp"), replace(TINY, mtp_layers=1)
    plain = without_speculation(given)
    # One layer of K and V next to two, in 16 bits: 2 x 8 elements.
    assert kv_bytes_per_token(given, model, "bf16") - kv_bytes_per_token(plain, model, "bf16") == 2 * 2 * 8
    layer = 16 * (16 + 16) + 16 * 16 + 3 * 16 * 24  # attention and MLP
    norms = 2 * 16 + 2 * 4
    join = 2 * 16 * (16 + 1)
    assert weight_bytes(given, model) - weight_bytes(plain, model) == 2 * (layer + norms + join)


def test_captured_sizes_are_of_whole_requests() -> None:
    given = speculating(num_speculative_tokens=2).model_copy(deep=True)
    engine = given.engine.model_copy(update={"max_num_seqs": 8})
    assert capture_sizes(engine) == (3, 6, 9, 18, 24)  # 1, 2, 4, 8, 16, 24 rounded up to threes
    graph = given.model_copy(
        update={"engine": engine, "optimizations": given.optimizations.model_copy(update={"graph": "aclgraph"})}
    )
    assert effective_graph(graph, Batch("decode", (Group(4, 3, 100),))) == ("aclgraph", 18)
    assert effective_graph(graph, Batch("decode", (Group(9, 3, 100),)))[0] == "eager"


def test_tpot_is_the_step_and_its_draft_over_what_they_yield() -> None:
    item = Case(speculating(method="eagle3", acceptance=(0.6, 0.3, 0.1)), TINY, hardware())
    prediction = predict(item)
    batch = decode_batch(item.scenario)
    drafts = [
        drafted.count * step_ns(Case(drafted.scenario, drafted.model, item.hardware), drafted.batch)
        for drafted in draft_passes(item.scenario, TINY, batch)
    ]
    whole = step_ns(item, batch) + sum(drafts)
    assert whole_interval_ns(item, batch)[0] == whole
    assert prediction.metrics["tpot_ms"].value == pytest.approx(whole / 1e6 / 2.0)
    assert prediction.speculation is not None
    assert prediction.speculation.draft_us == pytest.approx(sum(drafts) / 1000)


def gain(batch: int) -> float:
    loaded = load_scenario("qwen3_32b_eagle3_decode", [f"workload.batch={batch}"])
    found = predict(case_of(loaded)).speculation
    assert found is not None
    assert found.gain == pytest.approx(found.tokens_per_step * found.plain_us / (found.verify_us + found.draft_us))
    return found.gain


def test_it_pays_at_a_small_batch_and_loses_at_a_large_one() -> None:
    few, some, many = (gain(batch) for batch in (1, 32, 256))
    assert few > 1.4
    assert few > some > many
    assert many < 1


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ("{method: mtp, num_speculative_tokens: 1}", "has no multi-token prediction layers"),
        (
            "{method: ngram, num_speculative_tokens: 2, acceptance: [0.5]}",
            "one share for each of 2",
        ),
        ("{method: ngram, num_speculative_tokens: 2, acceptance: [0.3, 0.4]}", "must not rise"),
        ("{method: ngram, num_speculative_tokens: 16}", "num_speculative_tokens"),
        (
            "{method: suffix, num_speculative_tokens: 2, enforce_eager: true}}, optimizations: {graph: aclgraph",
            "runs no draft model",
        ),
        ("{method: medusa, num_speculative_tokens: 2}", "'medusa' is not one of"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(given: str, what: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        case_of(load_text(f"{{engine: {{speculative_config: {given}}}}}", "speculation.yaml", ()))
    assert len(refused.value.messages) == 1
    assert what in refused.value.messages[0]


def test_nothing_drawn_depends_on_numpys_global_state() -> None:
    np.random.seed(1)
    first = Drafts(config(), 7).steps(1000)
    np.random.seed(2)
    assert Drafts(config(), 7).steps(1000) == first
