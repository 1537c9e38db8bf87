"""Lesson: find the bottleneck first. The same model is bound by five different things, and each has its own remedy."""

from __future__ import annotations

from dataclasses import dataclass

from app_pages.learn.cases import case, why
from scenarios.errors import ScenarioError
from sim.predict.explain import diagnose
from sim.predict.predict import predict

#: Deployments of one model that differ in one thing each, as settings.
SITUATIONS = {
    "eager, one request": ("optimizations.graph=eager",),
    "graph, one request": ("optimizations.graph=ge_graph",),
    "graph, 64 requests": ("optimizations.graph=ge_graph", "workload.batch=64"),
    "prefill of 4,096 tokens": ("workload.phase=prefill", "workload.input_tokens=4096"),
    "prefill on 8 cards": ("workload.phase=prefill", "workload.input_tokens=4096", "engine.tensor_parallel_size=8"),
    "4,096 requests": ("optimizations.graph=ge_graph", "workload.batch=4096", "engine.max_num_seqs=4096"),
}


@dataclass(frozen=True, slots=True)
class Situation:
    """One deployment. limits_us: time of the kernels by what limits
    them; empty where it does not fit."""

    name: str
    settings: tuple[str, ...]
    bottleneck: str
    evidence: str
    step_ms: float
    limits_us: dict[str, float]


def situations(model: str, hardware: str) -> list[Situation]:
    """Every situation, predicted."""
    return [_situation(name, model, hardware) for name in SITUATIONS]


def _situation(name: str, model: str, hardware: str) -> Situation:
    settings = SITUATIONS[name]
    try:
        prediction = predict(case(f"model={model}", f"hardware={hardware}", *settings))
    except ScenarioError as error:
        return Situation(name, settings, "capacity-bound", why(error), 0.0, {})
    diagnosis = diagnose(prediction)
    return Situation(
        name, settings, diagnosis.name, diagnosis.evidence, prediction.step.total_ns / 1e6, dict(diagnosis.limits)
    )
