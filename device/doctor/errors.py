"""Is what a device computes right? Its logits against those of the reference operators, which are plain torch.

    python -m device.doctor.errors npu qwen3_0_6b_decode --set optimizations.weights=w8a8

The scenario's model with its first layers and seeded weights runs a prefill and some decode steps as the backend runs
it, then the same Program by the reference operators on the same device, on the same tokens. One line says the relative
error and what it may be; the status is 1 where it is larger. Under torchrun all ranks take part and the first one
speaks.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from device.backends import choose
from device.doctor.checks import MAX_ERROR, MAX_ERROR_QUANTISED
from device.measure.numerics import Run, generate, small_prompts
from device.operators.reference import reference
from device.ranks.spawn import joined, under_torchrun
from device.run.backend import Backend
from device.run.session import Options, Session
from device.step.step import Group
from device.weights.weights import RandomCheckpoint
from scenarios.errors import ScenarioError
from scenarios.loader import load_scenario
from scenarios.models.hf_config import load_model
from scenarios.models.model import Model
from scenarios.passes.base import set_switch
from scenarios.schema import Scenario

#: Of a small run: layers behind a dense first one, tokens of a prompt, decode steps.
LAYERS, PROMPT_TOKENS, STEPS = 2, 40, 3


@dataclass(frozen=True, slots=True)
class Errors:
    """relative: norm of the difference of a step's logits over the norm of the reference's, of the worst request and
    step; of a model with experts of the middle one, since a near choice that falls on another expert changes a row for
    good. limit: the largest that is right."""

    relative: float
    limit: float

    @property
    def passed(self) -> bool:
        return self.relative <= self.limit

    def __str__(self) -> str:
        says = "within" if self.passed else "NOT within"
        return f"relative error {self.relative:.2e} against the reference operators, {says} {self.limit:g}"


def errors(backend: Backend, scenario: Scenario, model: Model, group: Group | None = None) -> Errors:
    """Raises ScenarioError where the backend lacks what the scenario asks for."""
    short, few = shortened(scenario), shallow(model)
    eager = set_switch(short, "graph", "eager")
    truth = _run(Session(eager, few, backend, RandomCheckpoint(few, 0), group, Options(choice=reference)))
    present = _run(Session(short, few, backend, RandomCheckpoint(few, 0), group), truth)
    rows = (present.logits - truth.logits).norm(dim=-1) / truth.logits.norm(dim=-1)
    return Errors((rows.median() if model.experts else rows.max()).item(), limit_of(scenario))


def limit_of(scenario: Scenario) -> float:
    """The largest error that is right for the scenario's types."""
    switches = scenario.optimizations
    quantised = switches.weights.endswith("a8") or switches.kv.dtype == "int8"
    return MAX_ERROR_QUANTISED if quantised else MAX_ERROR


def shallow(model: Model) -> Model:
    """`model` with its first layers alone."""
    if model.kinds:  # as many as show each kind once
        first = [model.order.index(kind) for kind in range(len(model.kinds))]
        return model.part(0, max(LAYERS, 1 + max(first)))
    experts = model.experts and replace(model.experts, dense_layers=min(1, model.experts.dense_layers))
    layers = LAYERS + (experts.dense_layers if experts else 0)
    return replace(model, layers=min(model.layers, layers), experts=experts)


def shortened(scenario: Scenario) -> Scenario:
    """`scenario` with prompts and outputs of some tokens, and no prefix in common."""
    sizes = {"input_tokens": min(scenario.workload.input_tokens, PROMPT_TOKENS), "output_tokens": STEPS + 1}
    return scenario.model_copy(update={"workload": scenario.workload.model_copy(update=sizes)})


def _run(session: Session, forced: Run | None = None) -> Run:
    workload = session.scenario.workload
    prompts = small_prompts(session.model.vocab, [workload.input_tokens] * workload.batch)
    return generate(session, prompts, STEPS, forced.tokens if forced else None)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where the error is within its limit, 1 where it is not, 2 where the scenario cannot run."""
    parser = argparse.ArgumentParser(prog="python -m device.doctor.errors", description="errors against plain torch")
    parser.add_argument("backend")
    parser.add_argument("scenario")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    asked = parser.parse_args(arguments)
    try:
        backend = choose(asked.backend)
        loaded = load_scenario(asked.scenario, asked.set)
        model = load_model(loaded.scenario.model)
        ranks = loaded.scenario.engine.tensor_parallel_size
        group = joined(backend.collectives, ranks) if under_torchrun() else None
        present = errors(backend, loaded.scenario, model, group)
    except ScenarioError as error:
        print("\n".join(error.messages), file=sys.stderr)
        return 2
    if group is None or not group.rank:
        print(present)
    return int(not present.passed)


if __name__ == "__main__":
    torch.set_num_threads(1)
    raise SystemExit(main())
