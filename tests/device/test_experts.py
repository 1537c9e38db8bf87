"""Models with experts and latent attention: the plain program against the architecture, each switch against it."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from device.backends import choose
from device.backends.cpu import compiler
from device.measure.document import document
from device.measure.measure import measure
from device.operators import experts, one_by_one
from device.run.host_inputs import Requests
from device.run.session import Options, Session, logits_of
from device.run.workload import reported_step
from device.step.step import Step
from device.weights.weights import RandomCheckpoint
from scenarios.exchange.measured import Predicted
from scenarios.models.model import Experts, Model
from scenarios.ops.program import Batch, Group
from tests.device.architecture import best, forward
from tests.device.making import (
    DEEPSEEK,
    GLM,
    LITE,
    QWEN3_MOE,
    WIDE_REFERENCE,
    WITH_EXPERTS,
    Run,
    plain,
    prompts,
    run,
    session,
)
from tests.scenarios.making import switched

DECODE = (Group(2, 1, 40), Group(1, 1, 33))
FUSED: dict[str, object] = dict.fromkeys(
    (
        "fusion__rms_norm",
        "fusion__add_rms_norm",
        "fusion__rope",
        "fusion__swiglu",
        "fusion__qkv",
        "fusion__gate_up",
        "fusion__moe_routing",
        "fusion__grouped_matmul",
    ),
    True,
)
DEEP = {**FUSED, "kv__layout": "paged", "kv__block_size": 16, "fusion__qkv_norm_rope_cache": True}


@cache
def reference_run(model: Model) -> Run:
    """The plain program in float32 by the reference operators."""
    return run(plain(model), model, WIDE_REFERENCE)


def relative(tensor: torch.Tensor, true: torch.Tensor) -> float:
    return ((tensor - true).norm() / true.norm()).item()


SWITCHES: dict[str, dict[str, object]] = {
    "moe_routing": {"fusion__moe_routing": True},
    "grouped": {"fusion__grouped_matmul": True},
    "qkv": {"fusion__qkv": True},
    "gate_up": {"fusion__gate_up": True},
    "swiglu": {"fusion__swiglu": True},
    "rope": {"fusion__rope": True},
    "paged": {"kv__layout": "paged", "kv__block_size": 16},
    "all fused": FUSED,
    "all fused but one by one": {**FUSED, "fusion__grouped_matmul": False},
    "ge_graph": {**FUSED, "graph": "ge_graph"},
    "ge_graph one by one": {**FUSED, "graph": "ge_graph", "fusion__grouped_matmul": False},
    "shared expert apart": {"overlap__shared_expert_stream": True},
    "keys apart": {"overlap__streams": 2},
}


@pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES)
@pytest.mark.parametrize("model", WITH_EXPERTS.values(), ids=WITH_EXPERTS)
def test_a_switch_changes_nothing_but_rounding(model: Model, switches: dict[str, object]) -> None:
    if "overlap__shared_expert_stream" in switches and not (model.experts and model.experts.shared):
        pytest.skip("no shared expert")
    true = reference_run(model)
    done = run(plain(model, **switches), model, WIDE_REFERENCE, forced=true)
    assert relative(done.logits, true.logits) < 1e-6
    assert done.tokens == true.tokens


#: Switches that fuse what one expert does, and the weights that they want.
OF_ONE_EXPERT = {"ffn": "fp16", "swiglu_quant": "w8a8"}


@pytest.mark.parametrize("grouped", [False, True], ids=["one by one", "grouped"])
@pytest.mark.parametrize("switch", OF_ONE_EXPERT)
def test_what_is_fused_within_an_expert_takes_its_own_weights(switch: str, grouped: bool) -> None:
    around = {"fusion__gate_up": True, "fusion__swiglu": True, "fusion__grouped_matmul": grouped}
    apart = plain(GLM, **around, weights=OF_ONE_EXPERT[switch])
    true = run(apart, GLM, WIDE_REFERENCE)
    fused = switched(apart, **{f"fusion__{switch}": True})
    assert relative(run(fused, GLM, WIDE_REFERENCE, forced=true).logits, true.logits) < 1e-3


@pytest.mark.study
@pytest.mark.skipif(compiler() is None, reason="no C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses what torch deprecates
def test_gate_and_quantise_is_one_kernel_for_any_number_of_rows() -> None:
    around = {"fusion__gate_up": True, "fusion__swiglu": True, "weights": "w8a8"}
    true = run(plain(GLM, **around), GLM, WIDE_REFERENCE, steps=1)
    done = run(plain(GLM, **around, fusion__swiglu_quant=True), GLM, Options(wide=True), steps=1, forced=true)
    assert relative(done.logits, true.logits) < 0.05


@pytest.mark.parametrize("model", [QWEN3_MOE, DEEPSEEK, LITE], ids=lambda m: m.name)
def test_norm_rotation_and_cache_write_in_one(model: Model) -> None:
    attention = {} if model.latent else {"fusion__attention": True}
    true = reference_run(model)
    done = run(plain(model, **DEEP, **attention), model, WIDE_REFERENCE, forced=true)
    assert relative(done.logits, true.logits) < 1e-6
    assert done.tokens == true.tokens


#: A near choice may go the other way, and then a token has another expert: more than in a dense model.
@pytest.mark.parametrize(("weights", "most"), [("w8a16", 0.05), ("w8a8", 0.05), ("w4a16", 0.6), ("w4a8", 0.6)])
@pytest.mark.parametrize("model", [QWEN3_MOE, LITE], ids=lambda m: m.name)
def test_quantised_experts_cost_what_their_bits_say(model: Model, weights: str, most: float) -> None:
    true = reference_run(model)
    done = run(plain(model, **FUSED, weights=weights), model, WIDE_REFERENCE, forced=true)
    assert most / 20 < relative(done.logits, true.logits) < most


@pytest.mark.parametrize(
    ("model", "switches"),
    [(DEEPSEEK, {}), (DEEPSEEK, {"kv__layout": "paged"}), (DEEPSEEK, DEEP), (LITE, DEEP), (GLM, {})],
    ids=["deepseek plain", "deepseek paged", "deepseek fused", "lite fused", "glm plain"],
)
def test_a_mixed_step_serves_decodes_and_chunks_in_any_order(model: Model, switches: dict[str, object]) -> None:
    """Requests of one, three, 20 and 24 new tokens, some with a cache behind them, as one step and one by one."""
    scenario = plain(model, **{**switches, "kv__block_size": 16})
    scenario = scenario.model_copy(update={"workload": scenario.workload.model_copy(update={"batch": 5})})
    given = prompts(lengths=(30, 24, 12, 40, 3))
    contexts, numbers = (10, 0, 11, 17, 0), tuple(range(5))
    checkpoint = RandomCheckpoint(model, 0)
    at_work = Session(scenario, model, choose("cpu"), checkpoint, None, WIDE_REFERENCE)
    for number, prompt in enumerate(given):
        at_work.cache.allocator.allocate(number, len(prompt))
    before = [n for n in numbers if contexts[n]]
    at_work.run(
        "prefill",
        Requests(tuple(before), (0,) * len(before), tuple(tuple(given[n][: contexts[n]]) for n in before)),
    )
    new = tuple(tuple(prompt[context:]) for prompt, context in zip(given, contexts, strict=True))
    step = at_work.run("mixed", Requests(numbers, contexts, new))
    logits = logits_of(step, model)
    true = torch.stack([forward(model, checkpoint, prompt)[-1] for prompt in given])
    assert relative(logits, true) < 1e-5


@pytest.mark.parametrize("together", [True, False], ids=["grouped", "one by one"])
@pytest.mark.parametrize("weights", ["bf16", "w8a16", "w8a8", "w4a8"])
@pytest.mark.parametrize("model", WITH_EXPERTS.values(), ids=WITH_EXPERTS)
def test_the_forms_of_the_cpu_equal_the_reference_in_float32(model: Model, weights: str, together: bool) -> None:
    switches = {"fusion__grouped_matmul": together, "weights": weights}
    scenario = plain(model, fusion__moe_routing=True, fusion__gate_up=True, **switches)
    true = run(scenario, model, WIDE_REFERENCE, steps=1)
    done = run(scenario, model, Options(wide=True), steps=1, forced=true)
    # A last bit may move an integer of the activations.
    assert relative(done.logits, true.logits) < (0.02 if weights.endswith("a8") else 1e-5)


def test_groups_limit_the_choice() -> None:
    grouped = Experts(8, 8, 2, 32, 0, 0, "sigmoid", scaled=False, groups=4, kept_groups=1)
    scores = torch.tensor([[0.9, 0.0, 0.5, 0.6, 0.1, 0.2, 0.3, 0.3]])
    assert experts.choose(scores, grouped)[1].tolist() == [[3, 2]]  # 1.1 together beats the best alone
    assert best(scores[0].tolist(), grouped) == [3, 2]
    one = Experts(8, 8, 2, 32, 0, 0, "softmax", scaled=False, groups=4, kept_groups=1)
    assert experts.choose(scores, one)[1].tolist() == [[0, 1]]


# ---- one by one ----


@pytest.mark.parametrize("skew", [0.0, 20.0], ids=["as many or fewer", "more than were drawn"])
def test_whoever_the_router_chooses_runs_in_the_places_of_the_draw(skew: float) -> None:
    """A draw of great skew falls on the same two experts each time, and the router chooses more: places take some."""
    scenario = plain(QWEN3_MOE)
    scenario = scenario.model_copy(update={"workload": scenario.workload.model_copy(update={"expert_skew": skew})})
    true = run(plain(QWEN3_MOE), QWEN3_MOE, WIDE_REFERENCE)
    at_work = session(scenario, QWEN3_MOE, WIDE_REFERENCE)
    _, first = at_work.prefill(prompts())
    assert torch.equal(first, true.logits[0])
    numbers, contexts = (0, 1, 2), tuple(map(len, prompts()))
    for number in numbers:
        at_work.cache.allocator.append(number)
    step = at_work.run("decode", Requests(numbers, contexts, tuple((t,) for t in true.tokens[0])))
    assert torch.equal(logits_of(step, QWEN3_MOE), true.logits[1])
    chosen = one_by_one.chosen_by_layer(step)
    drawn = one_by_one.Places(at_work.bound(Batch("decode", DECODE)).program.block("layers").ops).count
    assert len(chosen) == 2  # layers with experts
    assert max(map(len, chosen)) > drawn if skew else drawn >= 4
    for layer, mine in enumerate(chosen):  # each in one place, and all rows of all of them
        standing = torch.cat([step.values[f"{name}.standing"] for name in named(step)]) if layer == 1 else None
        assert mine.tolist() == sorted(set(mine.tolist()))
        if standing is not None:
            assert sorted(standing[:, 0].tolist()) == mine.tolist()
            assert standing[:, 1].sum() == 3 * 2


def named(step: Step) -> list[str]:
    return [key.removesuffix(".standing") for key in step.values if key.endswith(".standing")]


def test_a_measurement_says_how_many_were_drawn_and_chosen() -> None:
    at_work = session(plain(QWEN3_MOE), QWEN3_MOE, WIDE_REFERENCE)
    phase, requests = reported_step(at_work)
    bound, step = at_work.prepared(phase, requests)
    result = document(measure(bound, step, repeats=1), Predicted(1, dict.fromkeys(range(len(bound.program)), 1)))
    assert result["experts"]["drawn"] == one_by_one.Places(bound.program.block("layers").ops).count
    assert result["experts"]["chosen"] == [len(layer) for layer in one_by_one.chosen_by_layer(step)]
    assert {op["name"]: op["form"] for op in result["ops"]}["expert1.find"] == "composed"
