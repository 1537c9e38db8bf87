"""Lesson: a graph changes how work is issued, not what is computed.

Op by op the host pays for every call; where that is longer than the kernels, the device idles. A replayed graph pays
once. The more requests a step has, the longer its kernels, and the less there is to gain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from app_pages.learn.cases import case
from scenarios.timeline import Timeline
from sim.predict.explain import diagnose
from sim.predict.predict import Prediction, predict
from sim.predict.steps import Case

GRAPHS = ("eager", "aclgraph", "npugraph_ex", "ge_graph")


@dataclass(frozen=True, slots=True)
class Point:
    """A decode step of `batch` requests in one mode, ms. host_busy_ms: of the busier host thread."""

    graph: str
    batch: int
    step_ms: float
    low_ms: float
    high_ms: float
    kernels_ms: float
    host_busy_ms: float
    launches: int
    bottleneck: str
    cold_ms: float

    @property
    def idle_share(self) -> float:
        """Part of the step in which the device computes nothing."""
        return max(0.0, 1 - self.kernels_ms / self.step_ms)


def decode(model: str, hardware: str, graph: str, batch: int, context_tokens: int, synchronize: str = "step") -> Case:
    """A decode step. Raises ScenarioError where it is refused, or does not fit."""
    return case(
        f"model={model}",
        f"hardware={hardware}",
        f"optimizations.graph={graph}",
        f"workload.batch={batch}",
        f"workload.input_tokens={context_tokens}",
        f"workload.context_tokens={context_tokens}",
        f"protocol.synchronize={synchronize}",
    )


def point(case: Case) -> Point:
    """The decode step of `case` in figures."""
    return _point(case, predict(case))


def _point(case: Case, prediction: Prediction) -> Point:
    diagnosis = diagnose(prediction)
    tpot, cold = prediction.metrics["tpot_ms"], prediction.cold_start
    step_ms = prediction.step.total_ns / 1e6
    return Point(
        graph=case.scenario.optimizations.graph,
        batch=case.scenario.workload.batch,
        step_ms=step_ms,
        low_ms=tpot.low,
        high_ms=tpot.high,
        kernels_ms=prediction.step.computing_ns / 1e6,
        host_busy_ms=max(diagnosis.busy.python_thread, diagnosis.busy.launch_thread) * step_ms,
        launches=diagnosis.host_launches,
        bottleneck=diagnosis.name,
        cold_ms=cold.compile_ms + cold.capture_ms,
    )


def window(case: Case, layers: tuple[int, int]) -> Timeline:
    """The kernels of layers [first, last) of the step, the host calls that issued them, and what else the host did in
    that time, cut to it. A replayed graph's kernels were issued long before, all at once."""
    timeline = predict(case).timeline
    kernels = [s for s in timeline.device_spans if layers[0] <= s.layer < layers[1] and s.index >= 0]
    calls = [timeline.spans[i] for i in sorted({s.launched_by for s in kernels if s.launched_by >= 0})]
    start, end = min(s.start_ns for s in kernels), max(s.end_ns for s in kernels)
    if case.scenario.optimizations.graph == "eager":
        start = min([start, *(s.start_ns for s in calls)])
    host = [
        replace(s, start_ns=max(s.start_ns, start), end_ns=min(s.end_ns, end), launched_by=-1)
        for s in timeline.spans
        if s.process in ("Python", "CANN") and s.start_ns < end and s.end_ns > start
    ]
    return Timeline((*host, *kernels), start, end, timeline.label, device=timeline.device)
