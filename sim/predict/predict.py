"""The one public call: `predict(scenario)` -> Prediction."""

from __future__ import annotations

from functools import cached_property, lru_cache
from math import fsum

from scenarios.batches import capture_sizes, decode_batch, prefill_batches, reported_batch
from scenarios.build import effective_graph, problems_of
from scenarios.ops.program import Batch, Program
from scenarios.records import dataclass
from scenarios.schema import Scenario
from scenarios.speculation import without_speculation
from scenarios.timeline import StepTime, Timeline, on_device, step_time
from sim.hardware.profile import HardwareProfile
from sim.predict.limits import limits
from sim.predict.memory import DoesNotFit, Memory, cache_problems, memory_of, memory_of_stages, refuse_overflow
from sim.predict.pipeline_steps import Pipeline, pipeline_of, rows_of
from sim.predict.pipeline_timeline import Shown, shown
from sim.predict.speculation import Speculation, yielded_tokens
from sim.predict.step_columns import step_time_in
from sim.predict.steps import (
    Case,
    in_flight,
    interval_ns,
    kernel_times_of,
    pipe_of,
    plans_of,
    program_of,
    round_in,
    sensitivity_of,
    step_ns,
    whole_interval_ns,
)
from sim.predict.ttft import ends_in_turn, ends_through_stages, mean_end_ns
from sim.predict.uncertainty import Sensitivity
from sim.predict.waits import waits_by_rank
from sim.step.kernel_times import KernelTimes
from sim.step.layout import Layout
from sim.step.plan import Plan
from sim.step.play import schedules
from sim.step.priced import host_costs_ns
from sim.step.schedule import timeline


@dataclass(frozen=True, slots=True)
class Metric:
    """A value with the interval that the profile's uncertainty implies."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ColdStart:
    """What the first requests pay, apart from the steady state. Times in ms; `shapes` graphs are captured or compiled.

    recapture_ms: one new decode shape later on. break_even_steps: decode steps after which the graphs have paid for
    themselves (what a compiled prefill saves is not counted), None where they never do.
    """

    mode: str
    compile_ms: float
    capture_ms: float
    recapture_ms: float
    shapes: int
    break_even_steps: int | None


@dataclass(frozen=True)
class Prediction:
    """The answer for one scenario: the reported step in full, the metrics of a request, memory and cold start.

    The step is rank 0's. pipeline: None where the model is not split in depth. What has an object for each kernel, and
    what only reports ask for, is made when it is asked for.
    """

    case: Case
    batch: Batch
    graph: str
    sensitivity: Sensitivity
    metrics: dict[str, Metric]
    memory: Memory
    pipeline: Pipeline | None = None

    @cached_property
    def step(self) -> StepTime:
        """The parts of the step, from its columns where these say when its kernels run."""
        known = self.kernel_times
        return step_time(self.timeline) if known is None else step_time_in(*known)

    @cached_property
    def kernel_times(self) -> tuple[Layout, KernelTimes] | None:
        """The columns of the step and when its kernels run; None where only its timeline says so."""
        return kernel_times_of(self.case, self.batch)

    @cached_property
    def _shown(self) -> Shown:
        return _shown(self.case, self.batch)

    @property
    def program(self) -> Program:
        return self._shown.program

    @property
    def plan(self) -> Plan:
        return self._shown.plan

    @cached_property
    def timeline(self) -> Timeline:
        return on_device(self._shown.timeline, self.case.hardware.profile.device.upper())

    @cached_property
    def waits_ns(self) -> dict[int, int]:
        """How long rank 0 waited in collectives, by the rank that came last."""
        return self._shown.waits_ns

    @cached_property
    def cold_start(self) -> ColdStart:
        return cold_start(self.case)

    @cached_property
    def speculation(self) -> Speculation | None:
        """The decode step with and without drafts, None where there are none."""
        return _speculation(self.case)


def predict(case: Case) -> Prediction:
    """Play the reported step of `case` in the simulator and derive the metrics of its requests.

    Raises DoesNotFit where it does not fit the device's memory.
    """
    memory = memory_of(case.scenario, case.model, case.hardware)
    refuse_overflow(case.hardware.name, memory)
    batch = reported_batch(case.scenario)
    return Prediction(
        case=case,
        batch=batch,
        graph=effective_graph(case.scenario, in_flight(case, batch)[0])[0],
        sensitivity=sensitivity_of(case, batch),
        metrics=_metrics(case, memory),
        memory=memory,
        pipeline=_pipeline(case, batch),
    )


def _pipeline(case: Case, batch: Batch) -> Pipeline | None:
    """The step in stages, or None where there is one stage."""
    if case.model.pipeline_parallel == 1:
        return None
    memory = memory_of_stages(case.scenario, case.model, case.hardware)
    return pipeline_of(case.model, in_flight(case, batch), round_in(case, batch), memory)


def _shown(case: Case, batch: Batch) -> Shown:
    """The reported step of rank 0."""
    if case.model.pipeline_parallel > 1:
        return shown(pipe_of(case), in_flight(case, batch), round_in(case, batch), batch, waits_by_rank)
    plans = plans_of(case, batch)
    schedule = schedules(plans, only_first=True)
    program = program_of(case.scenario, case.model, batch)
    return Shown(program, plans[0], timeline(plans[0], schedule[0]), waits_by_rank(plans[0], schedule))


def _speculation(case: Case) -> Speculation | None:
    """The decode step with and without drafts, or None where there are none."""
    config, batch = case.scenario.engine.speculative_config, decode_batch(case.scenario)
    if config is None:
        return None
    plain = case.with_scenario(without_speculation(case.scenario))
    verify, whole = interval_ns(case, batch)[0], whole_interval_ns(case, batch)[0]
    return Speculation.of(config, verify, whole - verify, interval_ns(plain, decode_batch(plain.scenario))[0])


def _metrics(case: Case, memory: Memory) -> dict[str, Metric]:
    """TTFT, TPOT and what follows from them.

    TTFT: mean over the requests, which arrive together, from arrival to the end of the chunk that finishes their
    prefill. TPOT: one steady decode step, over what it yields with speculation. E2EL = TTFT + (output tokens - 1) TPOT.
    output_throughput: batch x output tokens / E2EL, tokens/s.
    """
    workload = case.scenario.workload
    yielded = yielded_tokens(case.scenario.engine)
    tpot = tuple(
        ns / 1e6 / n for ns, n in zip(whole_interval_ns(case, decode_batch(case.scenario)), yielded, strict=True)
    )
    ttft = _ttft_ms(case)
    e2el = tuple(t + (workload.output_tokens - 1) * d for t, d in zip(ttft, tpot, strict=True))
    tokens = workload.batch * workload.output_tokens
    rates = tuple(1000 * workload.batch / t for t in tpot)
    throughput = tuple(1000 * tokens / t for t in e2el)
    total = tuple(1000 * (tokens + workload.batch * workload.input_tokens) / t for t in e2el)
    peak, cards = float(memory.total), case.model.cards
    throughput, total, rates = (
        tuple(case.model.data_parallel * t for t in times) for times in (throughput, total, rates)
    )
    return {
        "ttft_ms": Metric(*ttft),
        "tpot_ms": Metric(*tpot),
        "e2el_ms": Metric(*e2el),
        "output_throughput": Metric(throughput[0], throughput[2], throughput[1]),
        "output_throughput_per_card": Metric(*(t / cards for t in (throughput[0], throughput[2], throughput[1]))),
        "total_token_throughput": Metric(total[0], total[2], total[1]),
        "decode_throughput": Metric(rates[0], rates[2], rates[1]),
        "peak_memory_bytes": Metric(peak, peak, peak),
    }


def _ttft_ms(case: Case) -> tuple[float, float, float]:
    chunks = prefill_batches(case.scenario)
    if case.model.pipeline_parallel == 1:
        ends = ends_in_turn(chunks, lambda chunk: whole_interval_ns(case, chunk))
    else:
        pipe = pipe_of(case)
        ends = ends_through_stages(chunks, lambda chunk: (interval_ns(case, chunk), rows_of(pipe, (chunk,))[0][0]))
    value, low, high = (ns / 1e6 for ns in mean_end_ns(case.scenario, chunks, ends))
    return value, low, high


@lru_cache(maxsize=256)
def cold_start(case: Case) -> ColdStart:
    """Capture and compile costs of the scenario's graph mode. Per-node costs are the profile's (assumed unless it says
    otherwise)."""
    scenario, hw = case.scenario, case.hardware
    mode = effective_graph(scenario, in_flight(case, decode_batch(scenario))[0])[0]
    if mode == "eager":
        return ColdStart("eager", 0.0, 0.0, 0.0, 0, None)
    batch = decode_batch(scenario)
    program = _largest_program(case, in_flight(case, batch)[0])
    nodes = _captured_nodes(program)
    eager_ns = fsum(
        fsum(host_costs_ns(op, hw, scenario.engine.task_queue_enable)) * b.repeat
        for b in program.blocks
        if b.captured
        for op in b.ops
    )
    # A capture runs the ops once to warm up and once to record them.
    capture_ms = (2 * eager_ns + 1000 * nodes * hw.graph.capture_node_us) / 1e6
    graph = hw.graph
    shapes, compile_ms = 1, 0.0
    if mode == "aclgraph":
        shapes = len(capture_sizes(scenario.engine))
    elif mode == "npugraph_ex":
        shapes = len(capture_sizes(scenario.engine))
        compile_ms = graph.trace_fixed_us / 1000
    else:
        compile_ms = _compile_ms(nodes, hw)
        capture_ms = 0.0
    recapture_ms = compile_ms if mode == "ge_graph" else capture_ms
    for chunk in _compiled_prefills(scenario):
        shapes += 1
        compile_ms += _compile_ms(_captured_nodes(_largest_program(case, chunk)), hw)
    total_ms = compile_ms + capture_ms * shapes
    eager = scenario.model_copy(update={"optimizations": scenario.optimizations.model_copy(update={"graph": "eager"})})
    saved_ms = (step_ns(case.with_scenario(eager), batch) - sensitivity_of(case, batch).step_ns) / 1e6
    steps = round(total_ms / saved_ms) + 1 if saved_ms > 0 else None
    return ColdStart(mode, compile_ms, capture_ms * shapes, recapture_ms, shapes, steps)


def _largest_program(case: Case, batch: Batch) -> Program:
    """The step's program; of several stages, which capture side by side, the one with the most to capture."""
    if case.model.pipeline_parallel == 1:
        return program_of(case.scenario, case.model, batch)
    stages = range(case.model.pipeline_parallel)
    return max((program_of(case.scenario, case.model, batch, s) for s in stages), key=_captured_nodes)


def _captured_nodes(program: Program) -> int:
    return sum(len(b.ops) * b.repeat for b in program.blocks if b.captured)


def _compile_ms(nodes: int, hw: HardwareProfile) -> float:
    """What ge_graph takes to compile one shape."""
    return (hw.graph.compile_fixed_us + nodes * hw.graph.compile_node_us) / 1000


def _compiled_prefills(scenario: Scenario) -> list[Batch]:
    """One chunk for each shape of prefill that is compiled; lengths in the cache are inputs, not part of a shape."""
    if not scenario.optimizations.graph_prefill:
        return []
    chunks = prefill_batches(scenario)
    return list({(chunk.tokens, chunk.requests): chunk for chunk in chunks}.values())


def forbidden(case: Case) -> list[tuple[str, str]]:
    """What forbids this case whatever the memory, as (field, what) pairs."""
    return [*problems_of(case.scenario, case.model), *limits(case.scenario, case.hardware)]


def check(case: Case) -> list[tuple[str, str]]:
    """What forbids this case, as (field, what) pairs; empty where it can run."""
    problems = forbidden(case)
    if not problems:
        memory = memory_of(case.scenario, case.model, case.hardware)
        try:
            refuse_overflow(case.hardware.name, memory)
        except DoesNotFit as error:
            problems.append(("workload.batch" if memory.weights_fit else "model", str(error)))
        problems += cache_problems(case.scenario, memory)
    return problems
