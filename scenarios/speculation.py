"""What speculative decoding adds to a step: forward passes of a draft, after the step that verifies the last one.

mtp drafts with the model's own prediction layers: each joins the embedding of a token with the hidden state before it
(one product, 2 x hidden to hidden) and is then a decoder layer like the last ones, with the model's own LM head. eagle3
joins three hidden states in the same way (3 x hidden to hidden) in front of one dense layer, with an LM head of its own
over a smaller vocabulary. The first pass goes over all tokens of the step, accepted or not, as vLLM's does; each later
one over a token for each request.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from scenarios.models.model import Model
from scenarios.ops.program import Batch, Group
from scenarios.passes.switches import activation_dtype
from scenarios.records import dataclass
from scenarios.schema import Scenario
from scenarios.settings import Engine, Optimizations

#: Tokens that an EAGLE-3 draft chooses from: `draft_vocab_size` of the published drafts of Llama 3 and Qwen3.
EAGLE_VOCAB = 32_000
#: Hidden states that a draft joins for each token, by method.
JOINED = {"mtp": 2, "eagle3": 3}


def draft_model(engine: Engine, model: Model) -> Model | None:
    """One draft layer of `model`, one rank's part of it; None where drafts need no forward pass."""
    config = engine.speculative_config
    if config is None or not config.forward:
        return None
    usual = next((one for one, _ in reversed(model.runs) if one.has_cache), model)  # layers may differ
    draft = replace(usual, layers=1, joined=JOINED[config.method])
    if config.method == "eagle3":
        vocab = min(model.vocab, -(-EAGLE_VOCAB // model.tensor_parallel))
        whole = 0 if model.tensor_parallel == 1 else min(model.whole_vocab, EAGLE_VOCAB)
        return replace(draft, experts=None, latent=None, vocab=vocab, full_vocab=whole, expert_parallel=False)
    if draft.experts:
        return replace(draft, experts=replace(draft.experts, dense_layers=0))
    return draft


def draft_scenario(scenario: Scenario, model: Model) -> Scenario:
    """`scenario` as its draft runs: an EAGLE-3 draft is dense and stays in the 16 bits of `model`'s activations."""
    config, optimizations = scenario.engine.speculative_config, scenario.optimizations
    if config is None:
        return scenario
    engine, workload = scenario.engine, scenario.workload
    if config.enforce_eager:
        optimizations = optimizations.model_copy(update={"graph": "eager"})
        engine = engine.model_copy(update={"cudagraph_mode": None})
    if config.method == "eagle3":
        fusion, usual = optimizations.fusion, Optimizations()
        routed = {name: getattr(usual.fusion, name) for name in ("moe_routing", "grouped_matmul", "moe_dispatch")}
        dense = {
            "weights": activation_dtype(scenario, model),
            "weight_format": usual.weight_format,
            "overlap": usual.overlap,
        }
        quantised = {"add_rms_norm_quant": False, "swiglu_quant": False}
        fusion = fusion.model_copy(update={**routed, **quantised})
        optimizations = optimizations.model_copy(update={**dense, "fusion": fusion})
        workload = workload.model_copy(update={"expert_skew": 0.0})
        alone = {"enable_expert_parallel": False, "all2all_backend": "alltoall", "finegrained_tp_config": None}
        engine = engine.model_copy(update=alone)
    changed = {"optimizations": optimizations, "engine": engine, "workload": workload}
    return scenario.model_copy(update=changed)


def draft_layers(engine: Engine, model: Model) -> int:
    """Draft layers that are held: modules of their own where the model has as many as drafted tokens."""
    config = engine.speculative_config
    if config is None or not config.forward:
        return 0
    return min(config.num_speculative_tokens, model.mtp_layers) if config.method == "mtp" else 1


@dataclass(frozen=True, slots=True)
class DraftPass:
    """One forward pass of a draft, `count` of them alike."""

    scenario: Scenario
    model: Model
    batch: Batch
    count: int = 1


def draft_passes(scenario: Scenario, model: Model, batch: Batch) -> tuple[DraftPass, ...]:
    """The draft's forward passes after a step of `batch`: of all its tokens, then of one token a request."""
    config, draft = scenario.engine.speculative_config, draft_model(scenario.engine, model)
    if config is None or draft is None:
        return ()
    changed = draft_scenario(scenario, model)
    first, more = DraftPass(changed, draft, batch), config.num_speculative_tokens - 1
    if not more:
        return (first,)
    later = Batch("decode", tuple(Group(g.count, 1, g.kv_len) for g in batch.groups))
    return first, DraftPass(changed, draft, later, more)


def without_speculation(scenario: Scenario) -> Scenario:
    """`scenario` as it would run one token at a time."""
    return scenario.model_copy(update={"engine": scenario.engine.model_copy(update={"speculative_config": None})})


def speculation_problems(engine: Engine, model: Model) -> Iterator[tuple[str, str]]:
    """What is wrong between `engine.speculative_config` and the model: (field, what) pairs."""
    config, where = engine.speculative_config, "engine.speculative_config"
    if config is None:
        return
    if config.method == "mtp" and not model.mtp_layers:
        yield f"{where}.method", f"{model.name} has no multi-token prediction layers: use eagle3, ngram or suffix"
    if config.forward and model.form.hyper:
        yield f"{where}.method", f"{config.method} is not modelled for the streams of {model.name}: use ngram or suffix"
    if model.pipeline_parallel > 1:
        yield where, "needs engine.pipeline_parallel_size 1: drafts are not passed through stages"
    if config.method == "eagle3" and model.latent:
        yield f"{where}.method", f"eagle3 is modelled for grouped-query attention, not for the latent of {model.name}"
