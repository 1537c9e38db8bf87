"""A step in pipeline stages: each stage's own step, played by the usual players, set in time by `sim.step.pipeline`.

A decode batch is shared out over as many micro-batches as there are stages (fewer requests: fewer micro-batches), and
the step is the steady round in which each of them passes each stage once. Of a prefill, the step is as many chunks as
there are stages, from an empty pipeline to an empty one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from scenarios.batches import micro_batches
from scenarios.lowering.stages import TRANSFERS, layers_of_stages
from scenarios.models.model import Model
from scenarios.ops.catalogue import CATALOGUE, kind_of, work_of
from scenarios.ops.program import Batch, Program
from scenarios.records import dataclass
from sim.hardware.profile import HardwareProfile
from sim.kernel.price import price
from sim.kernel.time import KernelTime
from sim.predict.memory import Memory
from sim.predict.uncertainty import PROBE, Sensitivity, sensitivity
from sim.step import engine, fluid, lengths, ranks, recurrence
from sim.step.layout import Layout
from sim.step.pipeline import Round, StageTime, once, steady
from sim.step.plan import HostStep, Issue, Launch, Plan, Synchronize
from sim.step.rank_plans import RankPlans
from sim.step.ranks import Variant
from sim.step.schedule import launches

#: A device that is busy for so long finds everything issued when it is free, ns.
LONG_NS = 10**12

Rows = list[list[StageTime]]


@dataclass(frozen=True, slots=True)
class Pipe:
    """A model in stages. program: of one stage and micro-batch. plans: the same, one a tensor-parallel rank, at a
    probe's speeds. laid: that in columns, None where the host waits for its device on the way. rigid: it does so after
    each layer or op."""

    model: Model
    hardware: HardwareProfile
    program: Callable[[Batch, int], Program]
    plans: Callable[[Batch, int, Variant], Sequence[Plan]]
    laid: Callable[[Batch, int, Variant], Layout | None]
    rigid: bool

    @property
    def stages(self) -> int:
        return self.model.pipeline_parallel


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The step in stages. layers and memory: by stage; requests: of each micro-batch."""

    round: Round
    layers: tuple[int, ...]
    memory: tuple[Memory, ...]
    requests: tuple[int, ...]


def passing(batch: Batch, stages: int, chunks: int) -> tuple[Batch, ...]:
    """What is in the pipeline in a step of `batch`. chunks: prefill chunks that follow one another."""
    if batch.phase == "prefill":
        return (batch,) * min(stages, chunks)
    return micro_batches(batch, stages)


def round_of(rows: Rows, phase: str) -> Round:
    """The step: a steady round of micro-batches, or a series of prefill chunks."""
    return once(rows) if phase == "prefill" else steady(rows)


def pipeline_of(model: Model, batches: Sequence[Batch], round_: Round, memory: tuple[Memory, ...]) -> Pipeline:
    """What a result tells of round `round_` of these micro-batches."""
    layers = layers_of_stages(model.layers, model.pipeline_parallel)
    return Pipeline(round_, layers, memory, tuple(batch.requests for batch in batches))


def sensitivity_of_stages(pipe: Pipe, batches: Sequence[Batch], phase: str, several_ranks: bool) -> Sensitivity:
    """What the step depends on, as `sim.predict.steps.sensitivity_of` finds for a step without stages."""
    probes = [Variant(), Variant(device=1 + PROBE), Variant(host=1 + PROBE)]
    if several_ranks:
        probes.append(Variant(late=False))
    nominal, device, host, *in_time = (round_of(rows, phase).total_ns for rows in rows_of(pipe, batches, probes))
    late = in_time[0] if in_time else None
    laid = [pipe.laid(batches[0], stage, Variant()) for stage in range(pipe.stages)]
    if len(columns := tuple(one for one in laid if one is not None)) == pipe.stages:
        return sensitivity(nominal, device, host, columns, pipe.hardware, late)
    plans = [pipe.plans(batches[0], stage, Variant())[0] for stage in range(pipe.stages)]
    together = replace(plans[0], steps=tuple(step for plan in plans for step in plan.steps))
    return sensitivity(nominal, device, host, together, pipe.hardware, late)


def rows_of(pipe: Pipe, batches: Sequence[Batch], probes: Sequence[Variant] = (Variant(),)) -> list[Rows]:
    """Times by probe, micro-batch and stage. Equal micro-batches and equal stages are played once."""
    known: dict[tuple[object, ...], list[StageTime]] = {}
    probed: list[Rows] = [[] for _ in probes]
    for batch in batches:
        row: list[list[StageTime]] = []
        for stage in range(pipe.stages):
            blocks = pipe.program(batch, stage).blocks
            key = tuple(block for block in blocks if block.name not in TRANSFERS)  # those know their dies
            if key not in known:
                known[key] = _stage_times(pipe, batch, stage, probes)
            transfer = transfer_ns(pipe, batch, stage)
            row.append(
                [
                    replace(known_row, transfer_ns=round(transfer * p.device))
                    for known_row, p in zip(known[key], probes, strict=True)
                ]
            )
        for rows, times in zip(probed, zip(*row, strict=True), strict=True):
            rows.append(list(times))
    return probed


def transfer_ns(pipe: Pipe, batch: Batch, stage: int) -> int:
    """How long the tensors of one micro-batch take from the stage before, both sides ready."""
    if not stage:
        return 0
    received = pipe.program(batch, stage).block("receive").ops
    return sum(price(work_of(op), pipe.hardware).duration_ns for op in received if kind_of(op).exchanges == "stages")


def _stage_times(pipe: Pipe, batch: Batch, stage: int, probes: Sequence[Variant]) -> list[StageTime]:
    last = stage == pipe.stages - 1
    laid = pipe.laid(batch, stage, Variant())
    if laid is not None and (known := _times_in_columns(pipe, batch, stage, laid, probes)) is not None:
        return known
    nominal = alone_ranks(pipe.plans(batch, stage, Variant()), last)
    if len(nominal) > 1 and not any(launch.stream for launch in launches(nominal[0])):
        return _times_of_ranks(nominal, probes, pipe.rigid)  # one set of plans serves all probes
    return [
        _times(nominal if probe == Variant() else alone_ranks(pipe.plans(batch, stage, probe), last), pipe.rigid)
        for probe in probes
    ]


def _times_in_columns(
    pipe: Pipe, batch: Batch, stage: int, nominal: Layout, probes: Sequence[Variant]
) -> list[StageTime] | None:
    """Of a stage whose host waits for nothing on its way; None where the queue between its threads fills up."""
    last, several = stage == pipe.stages - 1, nominal.ranks > 1 and not nominal.several_streams
    if several:  # one set of columns serves all probes
        laid = alone_in_columns(nominal, last)
        host, post = lengths.host_of_first(laid)
        idle = lengths.lengths_of_ranks_ns(laid, probes)
        busy = lengths.lengths_of_ranks_ns(replace(laid, busy_ns=LONG_NS), probes)
        if idle is None or busy is None:
            return None
        return [
            StageTime(round(host * probe.host), round(post * probe.host), alone_ns, busy_ns - LONG_NS)
            for probe, alone_ns, busy_ns in zip(probes, idle, busy, strict=True)
        ]
    times = []
    for probe in probes:
        probed = nominal if probe == Variant() else pipe.laid(batch, stage, probe)
        assert probed is not None
        laid = alone_in_columns(probed, last)
        busy_ns = _length_ns(replace(laid, busy_ns=LONG_NS)) - LONG_NS
        times.append(StageTime(*lengths.host_of_first(laid), _length_ns(laid), busy_ns))
    return times


def _length_ns(laid: Layout) -> int:
    """Of one rank, or of ranks whose kernels overlap."""
    return fluid.end_ns(laid) if laid.several_streams else lengths.length_ns(laid)


def alone_in_columns(laid: Layout, last: bool) -> Layout:
    """`alone` of a step in columns."""
    transfers = [row.places for rows in laid.blocks for row in rows if kind_of(row.item.op).exchanges == "stages"]
    silent = {number for places in transfers for number in range(len(laid.streams))[places]}
    durations = [0 if number in silent else ns for number, ns in enumerate(laid.durations_ns)]
    meets = {number: size for number, size in laid.meets.items() if number not in silent}
    host_ns = laid.host_ns if last else [*laid.host_ns[:-1], 0.0]
    changed = replace(laid, durations_ns=durations, meets=meets, host_ns=host_ns)
    if laid.kernel_matrix is not None and laid.hosts is not None:
        changed.kernel_matrix, host = laid.kernel_matrix.copy(), laid.hosts.host_ns.copy()
        for places in transfers:
            changed.kernel_matrix[places] = 0
        host[-1] *= last
        changed.hosts = replace(laid.hosts, host_ns=host)
    return changed


def _times_of_ranks(plans: Sequence[Plan], probes: Sequence[Variant], rigid: bool) -> list[StageTime]:
    """Of ranks that meet in collectives, on one stream each."""

    host, post = _host_ns(plans[0])
    return [
        StageTime(
            round(host * rank_times.host),
            round(post * rank_times.host),
            idle,
            busy - round(LONG_NS * rank_times.device),
            rigid=rigid,
        )
        for rank_times, idle, busy in zip(
            probes,
            ranks.totals_ns(plans, probes),
            ranks.totals_ns(behind_ranks(plans, LONG_NS), probes),
            strict=True,
        )
    ]


def _times(plans: Sequence[Plan], rigid: bool) -> StageTime:
    """Of one rank, or of ranks whose kernels overlap; the plans are made at the probe's speeds."""
    host, post = _host_ns(plans[0])
    queued = _total_ns(behind_ranks(plans, LONG_NS)) - LONG_NS
    return StageTime(host, post, _total_ns(plans), queued, rigid=rigid)


def _host_ns(plan: Plan) -> tuple[int, int]:
    """(when both host threads are through, when the first kernel may start), ns."""
    schedule = recurrence.times(plan)
    through = max([end for _, end in (*schedule.host[:-1], *schedule.launch)], default=0)
    return through, schedule.kernels[0][0]


def _total_ns(plans: Sequence[Plan]) -> int:
    if len(plans) == 1 and not (quick := recurrence.quick(plans[0])).contended:
        return quick.total_ns
    return engine.times_of_ranks(plans)[0].end_ns


def alone(plan: Plan, last: bool) -> Plan:
    """The stage's step without its neighbours: receives and sends are issued and take no time; only the host of the
    last stage waits for its device."""
    steps: list[HostStep] = [
        replace(step, launch=_without_time(step.launch))
        if isinstance(step, Issue) and CATALOGUE[step.launch.kind].exchanges == "stages"
        else step
        for step in plan.steps
    ]
    if not last:
        steps[-1] = Synchronize("", 0)  # ends the play, and costs nothing
    return replace(plan, steps=tuple(steps))


def alone_ranks(plans: Sequence[Plan], last: bool) -> Sequence[Plan]:
    """`alone` for each rank; where ranks differ in times alone, by their times: no rank's plan is laid out."""
    if not isinstance(plans, RankPlans) or not isinstance(plans.first.steps[-1], Synchronize):
        return [alone(plan, last) for plan in plans]
    host_ns, kernel_ns = plans.host_ns.copy(), plans.kernel_ns.copy()
    if not last:
        host_ns[-1] = 0
    for number, launch in enumerate(launches(plans.first)):
        if CATALOGUE[launch.kind].exchanges == "stages":
            kernel_ns[number] = 0
    return RankPlans(alone(plans.first, last), host_ns, plans.launch_ns, kernel_ns)


def behind_ranks(plans: Sequence[Plan], busy_ns: int) -> Sequence[Plan]:
    """`behind` for each rank, likewise."""
    if not isinstance(plans, RankPlans):
        return [behind(plan, busy_ns) for plan in plans]
    import numpy as np

    host_ns, launch_ns = (np.insert(matrix, 0, 0, axis=0) for matrix in (plans.host_ns, plans.launch_ns))
    return RankPlans(behind(plans.first, busy_ns), host_ns, launch_ns, np.insert(plans.kernel_ns, 0, busy_ns, axis=0))


def _without_time(launch: Launch) -> Launch:
    return replace(launch, kernel=replace(launch.kernel, duration_ns=0), rendezvous="")


def behind(plan: Plan, busy_ns: int) -> Plan:
    """`plan` on a device that is busy for the first `busy_ns`."""
    work = KernelTime(busy_ns, "SDMA", cores=0, bound="link", hbm_bytes=0, gm_bytes=0, flops=0, roofline_ns=0)
    return replace(plan, steps=(Issue(Launch(-1, -1, "before", "before", "", work)), *plan.steps))
