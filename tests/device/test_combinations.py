"""Whatever is switched on together, the step computes what the plain one does."""

from __future__ import annotations

import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from device.backends import choose
from device.run.session import Session, logits_of
from device.run.workload import reported_step
from device.weights.weights import RandomCheckpoint
from scenarios.build import problems_of
from scenarios.models.model import Model
from scenarios.passes.base import set_switch
from scenarios.passes.switches import all_off
from scenarios.schema import Scenario
from tests.device.making import WIDE_REFERENCE
from tests.examples import examples
from tests.scenarios.making import Drawn, cases

#: What the drawn sizes become: small enough to run, and still alone, in one chunk and cut into several.
BATCH = {1: 1, 2: 2, 3: 3, 8: 4, 300: 5}
TOKENS = {1: 1, 7: 7, 100: 20, 3000: 45}


@st.composite
def small_cases(draw: st.DrawFn) -> Drawn:
    drawn, model = draw(cases())
    given_context = drawn.workload.context_tokens
    workload = drawn.workload.model_copy(
        update={
            "batch": BATCH[drawn.workload.batch],
            "input_tokens": TOKENS[drawn.workload.input_tokens],
            "output_tokens": min(8, drawn.workload.output_tokens),
            "context_tokens": given_context if given_context is None else min(given_context, 30),
        }
    )
    engine = drawn.engine.model_copy(update={"max_num_batched_tokens": draw(st.sampled_from([16, 64]))})
    return drawn.model_copy(update={"workload": workload, "engine": engine}), model


def plainly(scenario: Scenario, model: Model) -> Scenario:
    """`scenario` with every optimisation off, in the same type of activations."""
    wide = "fp16" if scenario.optimizations.weights == "fp16" or scenario.optimizations.kv.dtype == "fp16" else "bf16"
    return set_switch(all_off(scenario, model), "weights", wide)


def logits(scenario: Scenario, model: Model) -> torch.Tensor:
    """Of the reported step, in float32."""
    at_work = Session(scenario, model, choose("cpu"), RandomCheckpoint(model, 1), options=WIDE_REFERENCE)
    phase, requests = reported_step(at_work)
    return logits_of(at_work.run(phase, requests), model)


def quantised(scenario: Scenario) -> bool:
    return scenario.optimizations.weights.startswith("w") or scenario.optimizations.kv.dtype == "int8"


@examples(100)
@given(small_cases())
def test_any_combination_computes_the_plain_step(drawn: Drawn) -> None:
    result, model = drawn
    assume(not problems_of(result, model))
    outcome, plain = logits(result, model), logits(plainly(result, model), model)
    assert torch.isfinite(outcome).all()
    relative = ((outcome - plain).norm() / plain.norm()).item()
    optimizations = result.optimizations
    if model.experts and quantised(result):
        return  # a near choice may fall on other experts, and then nothing bounds the difference
    if optimizations.weights in ("w4a16", "w4a8"):
        assert relative < 1.0
    elif optimizations.weights in ("w8a16", "w8a8") or optimizations.kv.dtype == "int8":
        assert relative < 0.3  # rows of 16 elements, scales of channels that a prompt of one token has calibrated
    else:
        assert relative < 1e-5
