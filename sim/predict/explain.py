"""Why a step takes as long as it does: kernels, busy engines, the bottleneck by name, and what to try."""

from __future__ import annotations

from collections.abc import Iterable
from math import fsum

from scenarios.batches import reported_batch
from scenarios.ops.catalogue import CATALOGUE
from scenarios.passes.base import set_switch
from scenarios.passes.switches import changed, on_value, passes_for, with_needs, without
from scenarios.records import dataclass
from scenarios.schema import Scenario
from scenarios.timeline import length_ns, union_ns
from sim.kernel.time import Bound
from sim.predict.device_terms import spoken
from sim.predict.gains import Gains
from sim.predict.parts import parts_of
from sim.predict.pipeline_steps import Pipeline
from sim.predict.predict import Prediction, check
from sim.predict.ratios import step_ratio
from sim.predict.shares import Name, bottleneck_of, mixed_evidence, shares_of
from sim.predict.steps import step_ns
from sim.step.plan import Issue, Launch, Replay
from sim.step.schedule import launches

Bottleneck = Name

_LIMIT: dict[Bound, Bottleneck] = {
    "hbm": "HBM-bound",
    "l2": "vector-bound",
    "cube": "cube-bound",
    "vector": "vector-bound",
    "launch": "vector-bound",
    "ai_cpu": "vector-bound",
    "link": "communication-bound",
}


#: Ranks that are waited for within this share of the longest are waited for alike.
ALIKE = 0.05


def limit_of(kind: str, bound: Bound) -> Bottleneck:
    """What limits a kernel; the cube cores do where they wait for what they load from L2."""
    return "cube-bound" if bound == "l2" and CATALOGUE[kind].uses_cube else _LIMIT[bound]


@dataclass(frozen=True, slots=True)
class KernelRow:
    """All kernels of one kind and name in the step. roofline_share: the time that peak compute and peak HBM would
    allow, over the time taken."""

    kind: str
    op_type: str
    count: int
    total_us: float
    share: float
    bound: Bound
    cores: int
    hbm_bytes: int
    gm_bytes: int
    flops: int
    roofline_share: float
    gbps: float
    tflops: float


@dataclass(frozen=True, slots=True)
class Busy:
    """Share of the step in which each engine works: host threads and AI CPU by time, cube, vector and HBM by use."""

    python_thread: float
    launch_thread: float
    cube: float
    vector: float
    hbm: float
    ai_cpu: float


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The bottleneck, its evidence in one sentence, and the numbers behind it. limits: computing time (us) by what
    limits the kernels, and time in collectives; waiting for other stages of a pipeline is bubble. shares: the parts of
    the step, idle time by its cause among them; they sum to 1."""

    name: Bottleneck
    evidence: str
    limits: dict[str, float]
    shares: dict[str, float]
    busy: Busy
    kernels: tuple[KernelRow, ...]
    host_launches: int
    kernel_count: int
    hbm_bytes: int
    gm_bytes: int


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to try: the `--set` pairs that do it, what it is predicted to gain with the interval, and its cost."""

    settings: tuple[str, ...]
    ratio: float
    low: float
    high: float
    why: str


def diagnose(prediction: Prediction) -> Diagnosis:
    """Name the bottleneck of the reported step."""
    kernels = list(launches(prediction.plan))
    rows = kernel_rows(kernels, prediction.step.total_ns)
    busy = _busy(prediction, kernels)
    limits: dict[str, float] = {}
    for launch in kernels:
        limit = limit_of(launch.kind, launch.kernel.bound)
        limits[limit] = limits.get(limit, 0.0) + launch.kernel.duration_ns / 1000
    if prediction.step.communication_ns:
        # The time in collectives, waiting included, and not only what their transfers take.
        exposed_ns = prediction.step.communication_not_overlapped_ns + _held_by_links_ns(kernels)
        limits["communication-bound"] = exposed_ns / 1000
    if prediction.pipeline is not None:
        bubble = prediction.pipeline.round.bubbles[0]  # rank 0's stage, whose step this is
        limits["communication-bound"] -= bubble.send_ns / 1000
        limits["bubble-bound"] = bubble.total_ns / 1000
    calls = sum(isinstance(step, Issue | Replay) for step in prediction.plan.steps)
    parts = parts_of(prediction, kernels)
    name, made_of = bottleneck_of(parts, prediction.step.total_ns)
    evidence, *others = (_evidence(one, prediction, limits, rows, calls, busy) for one in made_of[:2])
    if name == "mixed":
        evidence = mixed_evidence([evidence, *others], parts, prediction.step.total_ns)
    return Diagnosis(
        name,
        spoken(evidence, prediction.case.hardware.profile.device),
        limits=limits,
        shares=shares_of(parts, prediction.step.total_ns),
        busy=busy,
        kernels=rows,
        host_launches=calls,
        kernel_count=len(kernels),
        hbm_bytes=sum(k.kernel.hbm_bytes for k in kernels),
        gm_bytes=sum(k.kernel.gm_bytes for k in kernels),
    )


def _held_by_links_ns(kernels: Iterable[Launch]) -> int:
    """Time of computing kernels with a collective inside that takes longer than their computing."""
    return sum(k.kernel.duration_ns for k in kernels if k.kernel.alone_ns and k.kernel.bound == "link")


def kernel_rows(kernels: Iterable[Launch], total_ns: int) -> tuple[KernelRow, ...]:
    """Kernels grouped by kind and profiler name, the longest first."""
    groups: dict[tuple[str, str], list[Launch]] = {}
    for launch in kernels:
        groups.setdefault((launch.kind, launch.op_type), []).append(launch)
    rows = [_row(kind, op_type, members, total_ns) for (kind, op_type), members in groups.items()]
    return tuple(sorted(rows, key=lambda r: (-r.total_us, r.kind, r.op_type)))


def _row(kind: str, op_type: str, members: list[Launch], total_ns: int) -> KernelRow:
    time_ns = sum(m.kernel.duration_ns for m in members)
    by_bound: dict[Bound, int] = {}
    for m in members:
        by_bound[m.kernel.bound] = by_bound.get(m.kernel.bound, 0) + m.kernel.duration_ns
    gm = sum(m.kernel.gm_bytes for m in members)
    flops = sum(m.kernel.flops for m in members)
    return KernelRow(
        kind=kind,
        op_type=op_type,
        count=len(members),
        total_us=time_ns / 1000,
        share=time_ns / total_ns,
        bound=max(by_bound, key=lambda b: (by_bound[b], b)),
        cores=max(m.kernel.cores for m in members),
        hbm_bytes=sum(m.kernel.hbm_bytes for m in members),
        gm_bytes=gm,
        flops=flops,
        roofline_share=fsum(m.kernel.roofline_ns for m in members) / time_ns,
        gbps=gm / time_ns,
        tflops=flops / time_ns / 1000,
    )


def _busy(prediction: Prediction, kernels: list[Launch]) -> Busy:
    total = prediction.step.total_ns
    spans = prediction.timeline.spans

    def lane(process: str, skip: str = "") -> float:
        busy = union_ns((s.start_ns, s.end_ns) for s in spans if s.process == process and s.kind != skip)
        return length_ns(busy) / total

    chip = prediction.case.hardware
    return Busy(
        python_thread=lane("Python", skip="synchronize"),
        launch_thread=lane("CANN"),
        cube=fsum(k.kernel.duration_ns * k.kernel.cube_share for k in kernels) / total,
        vector=fsum(k.kernel.duration_ns * k.kernel.vector_share for k in kernels) / total,
        hbm=fsum(k.kernel.hbm_bytes for k in kernels) / (chip.memory.hbm_gbps * total),
        ai_cpu=lane("AI CPU"),
    )


def _evidence(
    name: Bottleneck,
    prediction: Prediction,
    limits: dict[str, float],
    rows: tuple[KernelRow, ...],
    calls: int,
    busy: Busy,
) -> str:
    step = prediction.step
    free = step.free_ns / step.total_ns
    total_ms, computing_ms = step.total_ns / 1e6, step.computing_ns / 1e6
    if prediction.pipeline is not None and name == "bubble-bound":
        return _bubble_evidence(prediction.pipeline, prediction.batch.phase)
    if name == "host-bound":
        host_ms = busy.python_thread * total_ms
        return (
            f"the device is idle for {free:.0%} of the step ({step.free_ns / 1e6:.2f} of {total_ms:.2f} ms): the host "
            f"needs {host_ms:.2f} ms for {calls:,} calls ({1000 * host_ms / max(1, calls):.0f} us each), the kernels "
            f"only {computing_ms:.2f} ms"
        )
    if name == "idle-bound":
        return (
            f"the device is idle for {free:.0%} of the step ({step.free_ns / 1e6:.2f} of {total_ms:.2f} ms), most of "
            "it with the next kernel launched: starts of kernels, waits between streams, gaps within a graph; the "
            f"kernels need only {computing_ms:.2f} ms"
        )
    share = limits.get(name, 0.0) / fsum(limits.values())
    top = rows[0]
    memory = prediction.case.hardware.memory
    if name == "HBM-bound":
        moved = sum(r.hbm_bytes for r in rows)
        detail = (
            f"{moved / 1e9:.2f} GB cross HBM in {computing_ms:.2f} ms of kernels, "
            f"{moved / 1e3 / step.computing_ns:.2f} "
            f"of {memory.hbm_gbps / 1000:.2f} TB/s sustained; the cube could do its arithmetic in "
            f"{_cube_ms(prediction, rows):.2f} ms"
        )
    elif name == "communication-bound":
        return _communication_evidence(prediction)
    elif name == "cube-bound":
        peak_tflops = prediction.case.hardware.chip.cube_flops_per_ns / 1000
        prefix, per_tera = ("T", 1) if peak_tflops >= 10 else ("G", 1000)  # a CPU's core has tens of GFLOPS
        flops, rate = sum(r.flops for r in rows) * per_tera / 1e12, top.tflops * per_tera
        detail = (
            f"{flops:.2f} {prefix}flop at {rate:.0f} {prefix}FLOPS in {top.op_type}, of "
            f"{peak_tflops * per_tera:.0f} at peak"
        )
    else:
        detail = _vector_detail([r for r in rows if limit_of(r.kind, r.bound) == "vector-bound"] or list(rows))
    return f"{share:.0%} of kernel time is {name}: {detail}; the device is idle for {free:.0%} of the step"


def _bubble_evidence(pipeline: Pipeline, phase: str) -> str:
    """How long the first stage waits for the others, and why."""
    first, count, stages = pipeline.round, len(pipeline.requests), len(pipeline.layers)
    bubble = first.bubbles[0].total_ns
    text = (
        f"{bubble / first.total_ns:.0%} of the step ({bubble / 1e6:.2f} of {first.total_ns / 1e6:.2f} ms) the first "
        f"stage waits for the others: {count} micro-batch{'' if count == 1 else 'es'} in {stages} stages, "
        f"{first.share:.0%} of their time is bubble"
    )
    if phase == "prefill":
        return f"{text} while the pipeline fills and drains; shorter chunks would fill it sooner"
    if count < stages:
        return f"{text}; {stages} requests or more would keep every stage busy"
    slowest = min(range(stages), key=lambda stage: first.bubbles[stage].total_ns)
    return f"{text}; stage {slowest} sets the pace"


def _communication_evidence(prediction: Prediction) -> str:
    """How much of the step is in collectives, how much of that is waiting, and for whom."""
    step, waits = prediction.step, prediction.waits_ns
    exposed = step.communication_not_overlapped_ns
    text = (
        f"{exposed / step.total_ns:.0%} of the step ({exposed / 1e6:.2f} of {step.total_ns / 1e6:.2f} ms) is in "
        f"collectives that nothing hides"
    )
    if held := _held_by_links_ns(launches(prediction.plan)):
        text = (
            f"{held / step.total_ns:.0%} of the step ({held / 1e6:.2f} ms) is in kernels whose collective takes longer "
            f"than their computing; {text}"
        )
    if not waits:
        return f"{text}; their transfers take all of it"
    of_what = "of it" if step.communication_ns == exposed else "of all time in collectives"
    return f"{text}; {_waiting(waits, step.communication_ns, of_what)}"


def _waiting(waits: dict[int, int], communication_ns: int, of_what: str) -> str:
    """Which share of the time in collectives is waiting, and for whom: for one rank above all, or for several."""

    def share(ns: int) -> str:
        return f"{ns / communication_ns:.0%}"

    waited, longest = sum(waits.values()), max(waits.values())
    most = [rank for rank, ns in waits.items() if ns > (1 - ALIKE) * longest]
    if len(most) == 1 and 2 * longest >= waited:
        others = waited - longest
        rest = f", {share(others)} for others" if others >= communication_ns / 100 else ""
        return f"{share(longest)} {of_what} is waiting for rank {most[0]} ({longest / 1e6:.2f} ms){rest}"
    if len(most) == 1:
        whom = f"most for rank {most[0]} ({share(longest)})"
    else:
        whom = f"{share(longest)} each" + (f" for {len(most)} of them" if len(most) < len(waits) else "")
    return f"{share(waited)} {of_what} is waiting for {len(waits)} ranks ({waited / 1e6:.2f} ms), {whom}"


def _vector_detail(rows: list[KernelRow]) -> str:
    """What the vector cores are busy with: starting up for many small kernels, or the work of a large one."""
    count, total = sum(r.count for r in rows), sum(r.total_us for r in rows)
    top = max(rows, key=lambda r: r.total_us)
    if sum(r.total_us for r in rows if r.bound in ("launch", "ai_cpu")) > total / 2:
        return f"{count:,} small kernels of {total / count:.1f} us on average, most of it start-up of their cores"
    return (
        f"{total / 1000:.2f} ms of work on the vector cores, most of it in {top.op_type} ({top.total_us / 1000:.2f} ms)"
    )


def _cube_ms(prediction: Prediction, rows: tuple[KernelRow, ...]) -> float:
    return sum(r.flops for r in rows) / prediction.case.hardware.chip.cube_flops_per_ns / 1e6


def advise(prediction: Prediction, gains: Gains) -> tuple[Advice, ...]:
    """What to try next, the largest predicted gain first: what is off and gains, and what is on and loses."""
    scenario, model = prediction.case.scenario, prediction.case.model
    advices: list[Advice] = []
    for item, gain in zip(passes_for(model), gains.gains, strict=True):
        if gain.state == "off" and gain.verdict == "gain":
            tried = set_switch(with_needs(item, scenario), item.switch, on_value(item, scenario))
            why = gain.title + (", with what it needs" if gain.reason else "")
            advices += _advice(prediction, tried, changed(scenario, tried), why)
        elif gain.state == "on" and gain.verdict == "loss" and not item.for_capacity:
            tried = without(item, scenario, model)
            advices += _advice(prediction, tried, changed(scenario, tried), f"without: {gain.title}")
    if scenario.optimizations.graph == "eager" and scenario.engine.task_queue_enable == 0:
        tried = scenario.model_copy(update={"engine": scenario.engine.model_copy(update={"task_queue_enable": 1})})
        why = "a second host thread launches while Python dispatches"
        advices += _advice(prediction, tried, ("engine.task_queue_enable=1",), why)
    if scenario.protocol.synchronize != "step":
        tried = scenario.model_copy(update={"protocol": scenario.protocol.model_copy(update={"synchronize": "step"})})
        advices += _advice(
            prediction, tried, ("protocol.synchronize=step",), "each synchronise drains the launch queue"
        )
    return tuple(sorted(advices, key=lambda a: (-a.ratio, a.settings)))


def _advice(prediction: Prediction, tried: Scenario, settings: tuple[str, ...], why: str) -> list[Advice]:
    """One advice, or none: what an optimisation needs may cost more than it gains, or no longer fit the memory."""
    case = prediction.case.with_scenario(tried)
    if check(case):
        return []
    if prediction.step.total_ns <= step_ns(case, reported_batch(tried)):
        return []
    ratio = step_ratio(prediction.case, case)
    return [Advice(settings, ratio.value, ratio.low, ratio.high, why)]
