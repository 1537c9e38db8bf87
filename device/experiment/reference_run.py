"""The plain program, every switch off, by the reference operators: what the numbers of a side are held to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from device.experiment.sides import Prepared
from device.experiment.text import Span, Text
from device.operators.reference import reference
from device.run.backend import Backend
from device.run.host_inputs import Requests
from device.run.session import Options, Session, logits_of
from device.step.step import Group
from device.weights.weights import Checkpoint
from scenarios.errors import ScenarioError
from scenarios.exchange.bench import Errors
from scenarios.models.model import Model
from scenarios.passes.base import set_switch
from scenarios.passes.switches import activation_dtype, all_off
from scenarios.schema import Scenario

#: Smallest norm that errors are reported relative to.
SMALLEST_NORM = 1e-30


@dataclass(frozen=True, slots=True)
class ReferenceRun:
    """tokens: of each request, those that every side is run on. logits: as of a side's first pass. precision: in which
    the plain program ran."""

    tokens: list[list[int]]
    logits: torch.Tensor
    precision: str


def plain_of(scenario: Scenario, model: Model) -> Scenario:
    """`scenario` with every optimisation off, but that experts run together: the same numbers in fewer calls."""
    act = activation_dtype(scenario, model)
    scenario = all_off(scenario, model)
    if model.experts:
        scenario = set_switch(scenario, "fusion.grouped_matmul", True)
    return set_switch(set_switch(scenario, "weights", act), "kv.prefix_sharing", False)


def plain_session(
    scenario: Scenario, model: Model, backend: Backend, checkpoint: Checkpoint, group: Group | None, wide: bool
) -> Session:
    """The plain program by the reference operators. wide: in float32, else in the model's 16 bits."""
    return Session(plain_of(scenario, model), model, backend, checkpoint, group, Options(wide, choice=reference))


def reference_run_of(session: Session, text: Text) -> ReferenceRun:
    """Run a plain session on `text`; where that is no real text, the program goes on with tokens that it samples itself
    from the first decode step on, so that a trained model reads what it would have written."""
    span, tokens, model = Span.of(session.scenario), [list(t) for t in text.tokens], session.model
    precision = "float32" if session.options.wide else session.act
    prepared = Prepared(session, tokens, span)
    if text.is_given:
        return ReferenceRun(tokens, prepared.first_pass().logits, precision)
    with torch.inference_mode():
        logits = [prepared.prefill_once()]
        random = torch.Generator().manual_seed(session.scenario.protocol.seed)
        for at in range(span.start, span.start + span.steps):
            now = tuple((request[at],) for request in tokens)
            count = len(tokens)
            step = session.run("decode", Requests(tuple(range(count)), (at,) * count, now))
            logits.append(logits_of(step, model).cpu())
            if not logits[-1].isfinite().all():
                raise ScenarioError(["its logits are no numbers"])
            drawn = torch.multinomial(logits[-1].softmax(-1), 1, generator=random).flatten().tolist()
            if at + 1 < span.start + span.steps:
                for request, token in zip(tokens, drawn, strict=True):
                    request[at + 1] = token
    return ReferenceRun(tokens, torch.stack(logits), precision)


def errors_of(logits: torch.Tensor, reference_run: ReferenceRun, span: Span) -> Errors:
    """Of [1 + decode steps, requests, vocab]; likelihoods are of the text behind each decode step but the last."""
    if not logits.isfinite().all():
        return Errors(
            0.0,
            0.0,
            kl_nats=0.0,
            nll_nats=0.0,
            plain_nll_nats=0.0,
            first_other=(0, 0),
            rows=logits[..., 0].numel(),
            is_finite=False,
        )
    difference = logits - reference_run.logits
    ours, plain = logits.log_softmax(-1), reference_run.logits.log_softmax(-1)
    divergence = (plain.exp() * (plain - ours)).sum(-1).clamp_min(0)
    other = (ours.argmax(-1) != plain.argmax(-1)).nonzero()
    return Errors(
        greatest=difference.abs().max().item(),
        relative=(difference.norm() / reference_run.logits.norm().clamp_min(SMALLEST_NORM)).item(),
        kl_nats=divergence.mean().item(),
        nll_nats=_nll(ours, reference_run.tokens, span),
        plain_nll_nats=_nll(plain, reference_run.tokens, span),
        first_other=(int(other[0][0]), int(other[0][1])) if len(other) else None,
        rows=divergence.numel(),
    )


def _nll(scores: torch.Tensor, tokens: Sequence[Sequence[int]], span: Span) -> float:
    """Mean negative log likelihood, nats, of the tokens that follow those of the decode steps; NaN-free: 0 where no
    decode step is followed by one."""
    if span.steps < 2:
        return 0.0
    following = torch.tensor([request[span.start + 1 : span.start + span.steps] for request in tokens]).T
    return float(-scores[1 : span.steps].gather(-1, following.unsqueeze(-1)).mean().item())
