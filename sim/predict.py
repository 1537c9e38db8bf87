"""The one public call: `predict(scenario)` -> Prediction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from scenarios.batches import capture_sizes, decode_batch, finished_requests, prefill_batches, reported_batch
from scenarios.build import build, effective_graph, problems_of
from scenarios.model import Model
from scenarios.program import Batch, Program
from scenarios.schema import Scenario
from scenarios.timeline import StepTime, Timeline, on_device, step_time
from sim import engine, ranks, recurrence
from sim.hardware.profile import Hardware
from sim.host import Conditions, host_costs_ns, make_plan
from sim.memory import Memory, memory_of
from sim.plan import Plan
from sim.played import Played, launches, timeline
from sim.uncertainty import PROBE, Exposure, exposure, step_interval

#: (value, low, high) of a time, ns.
Interval = tuple[float, float, float]

#: Prefill chunks priced one by one; longer series are interpolated, since a chunk's time is smooth in its context.
MAX_CHUNKS = 16


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
    hardware: Hardware

    @property
    def conditions(self) -> Conditions:
        protocol = self.scenario.protocol
        return Conditions(self.scenario.engine.task_queue_enable, protocol.synchronize, protocol.seed)

    def with_scenario(self, scenario: Scenario) -> Case:
        return replace(self, scenario=scenario)


@dataclass(frozen=True, slots=True)
class Prediction:
    """The answer for one scenario: the reported step in full, the metrics of a request, memory and cold start.

    The step is rank 0's. waits_ns: how long it waited in collectives, by the rank that came last.
    """

    case: Case
    batch: Batch
    graph: str
    program: Program
    plan: Plan
    timeline: Timeline
    step: StepTime
    waits_ns: dict[int, int]
    exposure: Exposure
    metrics: dict[str, Metric]
    memory: Memory
    cold_start: ColdStart


class DoesNotFit(ValueError):
    """The scenario needs more HBM than there is; the message says by how much and what would fit."""


def predict(case: Case) -> Prediction:
    """Play the reported step of `case` in the simulator and derive the metrics of its requests.

    Raises DoesNotFit where it does not fit the device's memory.
    """
    memory = memory_of(case.scenario, case.model, case.hardware)
    refuse_overflow(case, memory)
    batch = reported_batch(case.scenario)
    program = program_of(case.scenario, case.model, batch)
    plans = plans_of(case, batch)
    played = engine.times_of_ranks(plans)
    spans = on_device(timeline(plans[0], played[0]), case.hardware.profile.device.upper())
    return Prediction(
        case=case,
        batch=batch,
        graph=effective_graph(case.scenario, batch)[0],
        program=program,
        plan=plans[0],
        timeline=spans,
        step=step_time(spans),
        waits_ns=waits_by_rank(played),
        exposure=exposure_of(case, batch),
        metrics=_metrics(case, memory),
        memory=memory,
        cold_start=cold_start(case),
    )


def waits_by_rank(played: Sequence[Played]) -> dict[int, int]:
    """Nanoseconds that rank 0 waited in collectives, by the rank that it waited for."""
    waits: dict[int, int] = {}
    for number, arrival in played[0].arrivals.items():
        last = max(range(len(played)), key=lambda rank: (played[rank].arrivals[number], -rank))
        wait = played[last].arrivals[number] - arrival
        if wait:
            waits[last] = waits.get(last, 0) + wait
    return dict(sorted(waits.items()))


@lru_cache(maxsize=64)
def program_of(scenario: Scenario, model: Model, batch: Batch) -> Program:
    """As `build`, remembered: one step is planned several times, at nominal and at probing speeds."""
    return build(scenario, model, batch)


def plans_of(case: Case, batch: Batch, host_scale: float = 1.0, device_scale: float = 1.0) -> tuple[Plan, ...]:
    """The plans of one step of `case`, one a rank, with host or kernel times scaled."""
    conditions = replace(case.conditions, host_scale=host_scale, device_scale=device_scale)
    program = program_of(case.scenario, case.model, batch)
    count = ranks_played(case)
    return tuple(
        make_plan(program, case.hardware, replace(conditions, rank=rank, ranks=count)) for rank in range(count)
    )


def ranks_played(case: Case) -> int:
    """Ranks that must be played: all of the tensor-parallel group, or one where all are alike and none ever waits."""
    hw = case.hardware
    alike = hw.host.jitter_sigma == hw.kernel.jitter_sigma == hw.host.rank_skew_us == 0
    return 1 if alike else case.model.tensor_parallel


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
    return length_ns(plans_of(case, batch))


@lru_cache(maxsize=256)
def exposure_of(case: Case, batch: Batch) -> Exposure:
    """Length of one step and what it hangs on: three plays of it, and one more where ranks wait for each other."""
    plans = plans_of(case, batch)
    nominal = length_ns(plans)
    if len(plans) > 1 and not overlap(plans[0]):  # one set of plans serves all plays
        device = ranks.total_ns(plans, device_scale=1 + PROBE)
        host = ranks.total_ns(plans, host_scale=1 + PROBE)
        in_time = ranks.total_ns(plans, late_start=False)
        return exposure(nominal, device, host, plans[0], case.hardware, in_time)
    device = length_ns(plans_of(case, batch, device_scale=1 + PROBE))
    host = length_ns(plans_of(case, batch, host_scale=1 + PROBE))
    return exposure(nominal, device, host, plans[0], case.hardware)


def overlap(plan: Plan) -> bool:
    """Whether kernels of several streams may run together."""
    return any(launch.stream for launch in launches(plan))


def interval_ns(case: Case, batch: Batch) -> Interval:
    """(value, low, high) of a step, ns: the central 90 % that the profile's residuals imply."""
    it = exposure_of(case, batch)
    low, high = step_interval(it, case.hardware)
    return it.step_ns, low, high


def refuse_overflow(case: Case, memory: Memory) -> None:
    """Raise DoesNotFit with the parts, the excess and the greatest batch that fits."""
    if not memory.too_much:
        return
    gib = 1 << 30
    fits = memory.capacity.max_concurrent_requests
    remedy = f"at most {fits} requests of this length fit"
    if not memory.weights_fit:
        remedy = "not even one request fits: shrink the weights"
    elif not fits:
        remedy = "not even one request fits beside the weights: fewer or shorter ones, or less max_num_batched_tokens"
    raise DoesNotFit(
        f"does not fit: {memory.total / gib:.1f} GiB needed (weights {memory.weights / gib:.1f}, "
        f"KV cache {memory.kv_cache / gib:.1f}, activations {memory.activations / gib:.1f}, "
        f"graph, buffers and runtime {(memory.graph_pool + memory.runtime + memory.hccl_buffers) / gib:.1f}) "
        f"of {memory.usable / gib:.1f} GiB usable "
        f"on {case.hardware.name}: {memory.too_much / gib:.1f} GiB too much; {remedy}"
    )


def _metrics(case: Case, memory: Memory) -> dict[str, Metric]:
    """TTFT, TPOT and what follows from them.

    TTFT: mean over the requests, which arrive together, from arrival to the end of the chunk that finishes their
    prefill. TPOT: one steady decode step. E2EL = TTFT + (output tokens - 1) TPOT. output_throughput: batch x output
    tokens / E2EL, tokens/s.
    """
    workload = case.scenario.workload
    tpot = tuple(ns / 1e6 for ns in interval_ns(case, decode_batch(case.scenario)))
    ttft = _ttft_ms(case)
    e2el = tuple(t + (workload.output_tokens - 1) * d for t, d in zip(ttft, tpot, strict=True))
    tokens = workload.batch * workload.output_tokens
    decode = tuple(1000 * workload.batch / t for t in tpot)
    throughput = tuple(1000 * tokens / t for t in e2el)
    total = tuple(1000 * (tokens + workload.batch * workload.input_tokens) / t for t in e2el)
    peak, cards = float(memory.total), case.model.tensor_parallel
    return {
        "ttft_ms": Metric(*ttft),
        "tpot_ms": Metric(*tpot),
        "e2el_ms": Metric(*e2el),
        "output_throughput": Metric(throughput[0], throughput[2], throughput[1]),
        "output_throughput_per_card": Metric(*(t / cards for t in (throughput[0], throughput[2], throughput[1]))),
        "total_token_throughput": Metric(total[0], total[2], total[1]),
        "decode_throughput": Metric(decode[0], decode[2], decode[1]),
        "peak_memory_bytes": Metric(peak, peak, peak),
    }


def _ttft_ms(case: Case) -> tuple[float, float, float]:
    chunks = prefill_batches(case.scenario)
    times = _chunk_times_ns(case, chunks)
    elapsed = [0.0, 0.0, 0.0]
    weighted = [0.0, 0.0, 0.0]
    for chunk, time in zip(chunks, times, strict=True):
        finished = finished_requests(case.scenario, chunk)
        for i in range(3):
            elapsed[i] += time[i]
            weighted[i] += elapsed[i] * finished
    requests = case.scenario.workload.batch
    value, low, high = (w / requests / 1e6 for w in weighted)
    return value, low, high


def _chunk_times_ns(case: Case, chunks: list[Batch]) -> list[Interval]:
    """Each chunk's time; equal chunks are priced once, long series at MAX_CHUNKS points."""
    distinct = list(dict.fromkeys(chunks))
    if len(distinct) <= MAX_CHUNKS:
        known = {chunk: interval_ns(case, chunk) for chunk in distinct}
        return [known[chunk] for chunk in chunks]
    points = sorted({round(i * (len(chunks) - 1) / (MAX_CHUNKS - 1)) for i in range(MAX_CHUNKS)})
    at = {i: interval_ns(case, chunks[i]) for i in points}
    times: list[Interval] = []
    for left, right in pairwise(points):
        for i in range(left, right):
            times.append(_between(at[left], at[right], (i - left) / (right - left)))
    return [*times, at[points[-1]]]


def _between(a: Interval, b: Interval, share: float) -> Interval:
    value, low, high = (x + share * (y - x) for x, y in zip(a, b, strict=True))
    return value, low, high


@lru_cache(maxsize=256)
def cold_start(case: Case) -> ColdStart:
    """Capture and compile costs of the scenario's graph mode. Per-node costs are the profile's (assumed unless it says
    otherwise)."""
    scenario, hw = case.scenario, case.hardware
    mode = effective_graph(scenario, decode_batch(scenario))[0]
    if mode == "eager":
        return ColdStart("eager", 0.0, 0.0, 0.0, 0, None)
    batch = decode_batch(scenario)
    program = program_of(scenario, case.model, batch)
    nodes = _captured_nodes(program)
    eager_ns = sum(
        sum(host_costs_ns(op, hw, scenario.engine.task_queue_enable)) * b.repeat
        for b in program.blocks if b.captured for op in b.ops
    )  # fmt: skip
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
        compile_ms += _compile_ms(_captured_nodes(program_of(scenario, case.model, chunk)), hw)
    total_ms = compile_ms + capture_ms * shapes
    eager = scenario.model_copy(update={"optimizations": scenario.optimizations.model_copy(update={"graph": "eager"})})
    saved_ms = (step_ns(case.with_scenario(eager), batch) - exposure_of(case, batch).step_ns) / 1e6
    steps = round(total_ms / saved_ms) + 1 if saved_ms > 0 else None
    return ColdStart(mode, compile_ms, capture_ms * shapes, recapture_ms, shapes, steps)


def _captured_nodes(program: Program) -> int:
    return sum(len(b.ops) * b.repeat for b in program.blocks if b.captured)


def _compile_ms(nodes: int, hw: Hardware) -> float:
    """What ge_graph takes to compile one shape."""
    return (hw.graph.compile_fixed_us + nodes * hw.graph.compile_node_us) / 1000


def _compiled_prefills(scenario: Scenario) -> list[Batch]:
    """One chunk for each shape of prefill that is compiled; lengths in the cache are inputs, not part of a shape."""
    if not scenario.optimizations.graph_prefill:
        return []
    chunks = prefill_batches(scenario)
    return list({(chunk.tokens, chunk.requests): chunk for chunk in chunks}.values())


def check(case: Case) -> list[tuple[str, str]]:
    """What forbids this case, as (field, what) pairs; empty where it can run."""
    found = problems_of(case.scenario, case.model)
    if not found:
        memory = memory_of(case.scenario, case.model, case.hardware)
        try:
            refuse_overflow(case, memory)
        except DoesNotFit as error:
            found.append(("workload.batch" if memory.weights_fit else "model", str(error)))
    return found
