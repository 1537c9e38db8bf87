"""The one public call: `predict(scenario)` -> Prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from math import fsum

from scenarios.batches import capture_sizes, decode_batch, prefill_batches, reported_batch
from scenarios.build import build, effective_graph, problems_of
from scenarios.models.model import Model
from scenarios.ops.program import Batch, Program
from scenarios.schema import Scenario
from scenarios.speculation import draft_passes, without_speculation
from scenarios.timeline import StepTime, Timeline, on_device, step_time
from sim.hardware.profile import HardwareProfile
from sim.predict.limits import limits
from sim.predict.memory import DoesNotFit, Memory, cache_problems, memory_of, memory_of_stages, refuse_overflow
from sim.predict.pipeline_steps import Pipe, Pipeline, passing, pipeline_of, round_of, rows_of, sensitivity_of_stages
from sim.predict.pipeline_timeline import Shown, shown
from sim.predict.speculation import Speculation, lookup_ns, yielded_tokens
from sim.predict.ttft import Interval, ends_in_turn, ends_through_stages, mean_end_ns
from sim.predict.uncertainty import PROBE, Sensitivity, sensitivity, step_interval
from sim.predict.waits import waits_by_rank
from sim.step import engine, fluid, lengths, ranks, recurrence
from sim.step.host import make_plans
from sim.step.layout import Layout, layout
from sim.step.pipeline import Round
from sim.step.plan import Plan
from sim.step.priced import Conditions, host_costs_ns
from sim.step.ranks import Variant
from sim.step.schedule import launches, timeline

#: A step as it is, with slower kernels, with slower hosts, and with ranks that start together.
PROBES = (Variant(), Variant(device=1 + PROBE), Variant(host=1 + PROBE), Variant(late=False))


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


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario with its model and hardware looked up: what every question is asked about."""

    scenario: Scenario
    model: Model
    hardware: HardwareProfile

    @property
    def conditions(self) -> Conditions:
        protocol = self.scenario.protocol
        return Conditions(self.scenario.engine.task_queue_enable, protocol.synchronize, protocol.seed)

    def with_scenario(self, scenario: Scenario) -> Case:
        return replace(self, scenario=scenario)


@dataclass(frozen=True, slots=True)
class Prediction:
    """The answer for one scenario: the reported step in full, the metrics of a request, memory and cold start.

    The step is rank 0's. waits_ns: how long it waited in collectives, by the rank that came last. pipeline: None where
    the model is not split in depth. speculation: None where there is none.
    """

    case: Case
    batch: Batch
    graph: str
    program: Program
    plan: Plan
    timeline: Timeline
    step: StepTime
    waits_ns: dict[int, int]
    sensitivity: Sensitivity
    metrics: dict[str, Metric]
    memory: Memory
    cold_start: ColdStart
    pipeline: Pipeline | None = None
    speculation: Speculation | None = None


def predict(case: Case) -> Prediction:
    """Play the reported step of `case` in the simulator and derive the metrics of its requests.

    Raises DoesNotFit where it does not fit the device's memory.
    """
    memory = memory_of(case.scenario, case.model, case.hardware)
    refuse_overflow(case.hardware.name, memory)
    batch = reported_batch(case.scenario)
    shown = _shown(case, batch)
    schedule = on_device(shown.timeline, case.hardware.profile.device.upper())
    return Prediction(
        case=case,
        batch=batch,
        graph=effective_graph(case.scenario, in_flight(case, batch)[0])[0],
        program=shown.program,
        plan=shown.plan,
        timeline=schedule,
        step=step_time(schedule),
        waits_ns=shown.waits_ns,
        sensitivity=sensitivity_of(case, batch),
        metrics=_metrics(case, memory),
        memory=memory,
        cold_start=cold_start(case),
        pipeline=_pipeline(case, batch),
        speculation=_speculation(case),
    )


def _pipeline(case: Case, batch: Batch) -> Pipeline | None:
    """The step in stages, or None where there is one stage."""
    if case.model.pipeline_parallel == 1:
        return None
    memory = memory_of_stages(case.scenario, case.model, case.hardware)
    return pipeline_of(case.model, in_flight(case, batch), _round(case, batch), memory)


def _shown(case: Case, batch: Batch) -> Shown:
    """The reported step of rank 0."""
    if case.model.pipeline_parallel > 1:
        return shown(_pipe(case), in_flight(case, batch), _round(case, batch), batch, waits_by_rank)
    plans = plans_of(case, batch)
    schedule = engine.times_of_ranks(plans)
    program = program_of(case.scenario, case.model, batch)
    return Shown(program, plans[0], timeline(plans[0], schedule[0]), waits_by_rank(plans[0], schedule))


@lru_cache(maxsize=64)
def program_of(scenario: Scenario, model: Model, batch: Batch, stage: int | None = None) -> Program:
    """As `build`, remembered: one step is planned several times, at nominal and at probing speeds."""
    return build(scenario, model, batch, stage)


def plans_of(
    case: Case, batch: Batch, host_scale: float = 1.0, device_scale: float = 1.0, stage: int | None = None
) -> Sequence[Plan]:
    """The plans of one step of `case`, or of one pipeline stage: one a tensor-parallel rank, with host or kernel times
    scaled."""
    conditions = replace(case.conditions, host_scale=host_scale, device_scale=device_scale)
    program = program_of(case.scenario, case.model, batch, stage)
    return make_plans(program, case.hardware, replace(conditions, ranks=rank_schedules(case)))


@lru_cache(maxsize=16)
def layout_of(case: Case, batch: Batch) -> Layout | None:
    """The columns of one step of `case`, which is in no stages; None where only its plans say how long it is."""
    program = program_of(case.scenario, case.model, batch)
    return layout(program, case.hardware, replace(case.conditions, ranks=rank_schedules(case)))


def rank_schedules(case: Case) -> int:
    """Ranks that must be played: all that step together, or one where all are alike and none ever waits. Ranks that
    hold whole experts are never alike."""
    hw, model = case.hardware, case.model
    alike = hw.host.jitter_sigma == hw.kernel.jitter_sigma == hw.host.rank_skew_us == 0
    return 1 if alike and not model.expert_parallel else model.ranks


def length_ns(plans: Sequence[Plan]) -> int:
    """Length of a planned step of rank 0, ns, by the fast players (by the engine where kernels overlap)."""
    if len(plans) > 1:
        if overlap(plans[0]):
            return engine.times_of_ranks(plans)[0].end_ns
        return ranks.total_ns(plans)
    quick = recurrence.quick(plans[0])
    return engine.times(plans[0]).end_ns if quick.contended else quick.total_ns


def step_ns(case: Case, batch: Batch) -> int:
    """Length of one step, ns."""
    if case.model.pipeline_parallel > 1:
        return _round(case, batch).total_ns
    laid = layout_of(case, batch)
    return length_ns(plans_of(case, batch)) if laid is None else _laid_ns(laid)


def _laid_ns(laid: Layout, host: float = 1.0, device: float = 1.0) -> int:
    """Length of a step in columns, ns; of one rank with host and kernel times multiplied."""
    if laid.several_streams:
        return fluid.end_ns(laid, host, device)
    if laid.ranks == 1:
        return lengths.length_ns(laid, host, device)
    known = lengths.lengths_of_ranks_ns(laid, (Variant(),))
    return fluid.end_ns(laid) if known is None else known[0]


def step_with_host_ns(case: Case, batch: Batch, factor: float) -> int:
    """Length of one step whose host times are all `factor` times as long, ns; of stages, and of steps in which the host
    waits for its device, to first order."""
    laid = layout_of(case, batch) if case.model.pipeline_parallel == 1 else None
    if laid is not None and laid.ranks == 1:
        return _laid_ns(laid, host=factor)
    totals = None if laid is None else lengths.lengths_of_ranks_ns(laid, (Variant(), Variant(host=factor)))
    if totals is None:
        exposed = sensitivity_of(case, batch)
        return round(exposed.step_ns * (1 + exposed.host * (factor - 1)))
    return round(step_ns(case, batch) * totals[1] / totals[0])


def in_flight(case: Case, batch: Batch) -> tuple[Batch, ...]:
    """What is in the pipeline in a step of `batch`; the batch itself where there are no stages."""
    stages = case.model.pipeline_parallel
    if stages == 1:
        return (batch,)
    return passing(batch, stages, len(prefill_batches(case.scenario)) if batch.phase == "prefill" else 1)


def _pipe(case: Case) -> Pipe:
    @cache  # as long as there is the pipe: its times and its sensitivity are asked of the same plans
    def plans(batch: Batch, stage: int, probe: Variant) -> Sequence[Plan]:
        return plans_of(case, batch, probe.host, probe.device, stage)

    return Pipe(
        case.model,
        case.hardware,
        program=lambda batch, stage: program_of(case.scenario, case.model, batch, stage),
        plans=plans,
        rigid=case.scenario.protocol.synchronize != "step",
    )


@lru_cache(maxsize=256)
def _round(case: Case, batch: Batch) -> Round:
    return round_of(rows_of(_pipe(case), in_flight(case, batch))[0], batch.phase)


@lru_cache(maxsize=256)
def sensitivity_of(case: Case, batch: Batch) -> Sensitivity:
    """Length of one step and what it depends on: three plays of it, and one more where ranks wait for each other."""
    if case.model.pipeline_parallel > 1:
        return sensitivity_of_stages(_pipe(case), in_flight(case, batch), batch.phase, rank_schedules(case) > 1)
    laid = layout_of(case, batch)
    if laid is not None and (known := _sensitivity_of_laid(case, laid)) is not None:
        return known
    plans = plans_of(case, batch)
    # One walk plays all, for ranks that were folded to one too, so that folding changes nothing.
    if case.model.ranks > 1:
        alone, *probes = ranks.totals_ns(plans, PROBES)
        # What is probed hardly depends on contention, which the walk does not know.
        nominal = length_ns(plans) if overlap(plans[0]) else alone
        device, host, in_time = (round(nominal * schedule / alone) for schedule in probes)
        return sensitivity(nominal, device, host, plans[0], case.hardware, in_time)
    nominal = length_ns(plans)
    device = length_ns(plans_of(case, batch, device_scale=1 + PROBE))
    host = length_ns(plans_of(case, batch, host_scale=1 + PROBE))
    return sensitivity(nominal, device, host, plans[0], case.hardware)


def _sensitivity_of_laid(case: Case, laid: Layout) -> Sensitivity | None:
    """`sensitivity_of` a step in columns; None where these do not say how long its variants are."""
    if case.model.ranks > 1:
        totals = lengths.lengths_of_ranks_ns(laid, PROBES)
        if totals is None:
            return None
        alone, *probes = totals
        nominal = _laid_ns(laid) if laid.several_streams else alone
        device, host, in_time = (round(nominal * schedule / alone) for schedule in probes)
        return sensitivity(nominal, device, host, laid, case.hardware, in_time)
    nominal, device, host = (_laid_ns(laid), _laid_ns(laid, device=1 + PROBE), _laid_ns(laid, host=1 + PROBE))
    return sensitivity(nominal, device, host, laid, case.hardware)


def overlap(plan: Plan) -> bool:
    """Whether kernels of several streams may run together."""
    return any(launch.stream for launch in launches(plan))


def interval_ns(case: Case, batch: Batch) -> Interval:
    """(value, low, high) of a step, ns: the central 90 % that the profile's residuals imply."""
    sensitivity = sensitivity_of(case, batch)
    low, high = step_interval(sensitivity, case.hardware)
    return sensitivity.step_ns, low, high


def whole_interval_ns(case: Case, batch: Batch) -> Interval:
    """(value, low, high) of a step and of the draft that follows it, ns; all ends of the passes together."""
    ends = [interval_ns(case, batch)]
    for drafted in draft_passes(case.scenario, case.model, batch):
        once = interval_ns(Case(drafted.scenario, drafted.model, case.hardware), drafted.batch)
        ends += [once] * drafted.count
    lookup = lookup_ns(case.scenario.engine, batch)
    value, low, high = (lookup + sum(same) for same in zip(*ends, strict=True))
    return value, low, high


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
        pipe = _pipe(case)
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
