"""How long one step of a case takes: its Program, its plans or columns, the length that they play to, and what that
length depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache

from scenarios.batches import prefill_batches
from scenarios.build import build
from scenarios.models.model import Model
from scenarios.ops.program import Batch, Program
from scenarios.records import dataclass
from scenarios.schema import Scenario
from scenarios.settings import Workload
from scenarios.speculation import draft_passes
from sim.hardware.profile import HardwareProfile
from sim.predict.frames import frame_of
from sim.predict.pipeline_steps import Pipe, passing, round_of, rows_of, sensitivity_of_stages
from sim.predict.speculation import lookup_ns
from sim.predict.ttft import Interval
from sim.predict.uncertainty import PROBE, Sensitivity, sensitivity, step_interval
from sim.step import engine, fluid, kernel_times, lengths, ranks, recurrence
from sim.step.host import make_plans
from sim.step.kernel_times import KernelTimes
from sim.step.layout import Layout, layout
from sim.step.pipeline import Round
from sim.step.plan import Plan
from sim.step.priced import Conditions
from sim.step.ranks import Variant
from sim.step.schedule import launches

#: A step as it is, with slower kernels, with slower hosts, and with ranks that start together.
NOMINAL = Variant()
PROBES = (NOMINAL, Variant(device=1 + PROBE), Variant(host=1 + PROBE), Variant(late=False))


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
def layout_of(case: Case, batch: Batch, stage: int | None = None, probe: Variant = NOMINAL) -> Layout | None:
    """The columns of one step of `case`, or of one pipeline stage, at a probe's speeds; None where only its plans say
    how long it is."""

    def built() -> Layout | None:
        program = program_of(case.scenario, case.model, batch, stage)
        conditions = replace(case.conditions, host_scale=probe.host, device_scale=probe.device)
        return layout(program, case.hardware, replace(conditions, ranks=rank_schedules(case)))

    known = None
    if stage is None and probe == NOMINAL:
        known = frame_of(case.scenario, case.model, case.hardware, batch)
    return known[0].layout(known[1], built) if known else built()


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


def of_step(case: Case) -> Case:
    """`case` as one step of it knows it: how many requests there are in all is nothing to it, so scenarios that have
    the same prefill chunk share its times. Stages count what is in flight, and what cuts a step in parts, or prefetches
    in steps of some sizes, refuses others."""
    scenario, one = case.scenario, Workload.model_fields["batch"].default
    overlap = scenario.optimizations.overlap
    apart = case.model.pipeline_parallel > 1 or overlap.micro_batches > 1 or overlap.comm_chunks > 1
    apart = apart or overlap.prefetch
    if apart or scenario.workload.batch == one:
        return case
    return case.with_scenario(
        scenario.model_copy(update={"workload": scenario.workload.model_copy(update={"batch": one})})
    )


def step_ns(case: Case, batch: Batch) -> int:
    """Length of one step, ns."""
    if case.model.pipeline_parallel > 1:
        return round_in(case, batch).total_ns
    case = of_step(case)
    known = _length_in_columns_ns(case, batch)
    return length_ns(plans_of(case, batch)) if known is None else known


@lru_cache(maxsize=256)
def _length_in_columns_ns(case: Case, batch: Batch) -> int | None:
    """Length of one step by its columns, ns, remembered: what-ifs ask for it first, and later for what it depends on.
    None where only its plans say how long it is."""
    laid = layout_of(case, batch)
    return None if laid is None else _laid_ns(laid)


def uncontended_ns(case: Case, batch: Batch) -> int | None:
    """Length of one step of several ranks, ns, if kernels that run together did not slow each other down: the step is
    never shorter. None where none run together, or where only the whole play says it."""
    laid = layout_of(of_step(case), batch) if case.model.pipeline_parallel == 1 else None
    if laid is None or laid.ranks == 1 or not laid.several_streams:
        return None
    known = lengths.lengths_of_ranks_ns(laid, (NOMINAL,))
    return None if known is None else known[0]


def _laid_ns(laid: Layout, host: float = 1.0) -> int:
    """Length of a step in columns, ns; of one rank with host times multiplied."""
    if laid.several_streams:
        return fluid.end_ns(laid, host)
    if laid.ranks == 1:
        return lengths.length_ns(laid, host)
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


def pipe_of(case: Case) -> Pipe:
    """The stages of a case, with the plans of each."""

    @cache  # as long as there is the pipe: its times and its sensitivity are asked of the same plans
    def plans(batch: Batch, stage: int, probe: Variant) -> Sequence[Plan]:
        return plans_of(case, batch, probe.host, probe.device, stage)

    return Pipe(
        case.model,
        case.hardware,
        program=lambda batch, stage: program_of(case.scenario, case.model, batch, stage),
        plans=plans,
        laid=lambda batch, stage, probe: layout_of(case, batch, stage, probe),
        rigid=case.scenario.protocol.synchronize != "step",
    )


@lru_cache(maxsize=256)
def round_in(case: Case, batch: Batch) -> Round:
    """One round of the pipeline, of a case in stages."""
    return round_of(rows_of(pipe_of(case), in_flight(case, batch))[0], batch.phase)


def sensitivity_of(case: Case, batch: Batch) -> Sensitivity:
    """Length of one step and what it depends on: three plays of it, and one more where ranks wait for each other."""
    return _sensitivity_of_step(of_step(case), batch)


@lru_cache(maxsize=1024)
def _sensitivity_of_step(case: Case, batch: Batch) -> Sensitivity:
    if case.model.pipeline_parallel > 1:
        return sensitivity_of_stages(pipe_of(case), in_flight(case, batch), batch.phase, rank_schedules(case) > 1)
    laid = layout_of(case, batch)
    if laid is not None and (known := _sensitivity_of_laid(case, batch, laid)) is not None:
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


def _sensitivity_of_laid(case: Case, batch: Batch, laid: Layout) -> Sensitivity | None:
    """`sensitivity_of` a step in columns; None where these do not say how long its variants are."""
    if case.model.ranks > 1:
        walk = _probed(case, batch)
        if walk is None:
            return None
        alone, *probes = walk.lengths_ns
        nominal = step_ns(case, batch) if laid.several_streams else alone
        device, host, in_time = (round(nominal * schedule / alone) for schedule in probes)
        return sensitivity(nominal, device, host, laid, case.hardware, in_time)
    if laid.several_streams:
        nominal = step_ns(case, batch)
        device, host = (fluid.end_ns(laid, probe.host, probe.device) for probe in PROBES[1:3])
    else:
        nominal, device, host = lengths.lengths_ns(laid, PROBES[:3])
    return sensitivity(nominal, device, host, laid, case.hardware)


@lru_cache(maxsize=8)  # as large as a step: asked for its sensitivity, and then for its kernels
def _probed(case: Case, batch: Batch) -> lengths.Walk | None:
    """A step of several ranks in columns, as it is and in all probes; None where these do not say how long it is."""
    laid = layout_of(case, batch)
    return None if laid is None else lengths.walk_of_ranks(laid, PROBES)


def kernel_times_of(case: Case, batch: Batch) -> tuple[Layout, KernelTimes] | None:
    """The columns of one step and when rank 0's kernels run in it; None where only a timeline says so: of pipelines,
    of kernels on several streams, and where the host waits for the device within a step."""
    case = of_step(case)
    laid = layout_of(case, batch) if case.model.pipeline_parallel == 1 else None
    if laid is None or laid.several_streams:
        return None
    if case.model.ranks == 1:
        return laid, kernel_times.of_one_rank(laid, sensitivity_of(case, batch).step_ns)
    walk = _probed(case, batch)
    return None if walk is None else (laid, kernel_times.of_first_rank(laid, walk))


def overlap(plan: Plan) -> bool:
    """Whether kernels of several streams may run together."""
    return any(launch.stream for launch in launches(plan))


def interval_ns(case: Case, batch: Batch) -> Interval:
    """(value, low, high) of a step, ns: the central 90 % that the profile's residuals imply."""
    sensitivity = sensitivity_of(case, batch)
    low, high = step_interval(sensitivity, case.hardware)
    return sensitivity.step_ns, low, high


def queued_interval_ns(case: Case, batch: Batch) -> Interval:
    """(value, low, high) of the time from step to step, ns, where the host issues many steps of one rank and waits for
    the device after all of them, as benchmark loops do: the slower of its calls and of the device's kernels. The
    interval is as wide as that of a step that starts on an idle device, which steps of several ranks are taken for."""
    value, low, high = interval_ns(case, batch)
    laid = layout_of(case, batch) if case.model.pipeline_parallel == 1 else None
    if laid is None or laid.ranks > 1:
        return value, low, high
    device = _laid_ns(laid, host=0.0)
    host = round(max(sum(laid.host_ns[:-1]), sum(laid.launch_ns)))
    queued = max(device, host)
    return queued, low * queued / value, high * queued / value


def whole_interval_ns(case: Case, batch: Batch) -> Interval:
    """(value, low, high) of a step and of the draft that follows it, ns; all ends of the passes together."""
    ends = [interval_ns(case, batch)]
    for drafted in draft_passes(case.scenario, case.model, batch):
        once = interval_ns(Case(drafted.scenario, drafted.model, case.hardware), drafted.batch)
        ends += [once] * drafted.count
    lookup = lookup_ns(case.scenario.engine, batch)
    value, low, high = (lookup + sum(same) for same in zip(*ends, strict=True))
    return value, low, high
