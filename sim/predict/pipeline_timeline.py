"""The reported step of a model in stages: rank 0, on the first stage, in a round of the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

from scenarios.ops.catalogue import CATALOGUE
from scenarios.ops.program import Batch, Program
from scenarios.records import dataclass
from scenarios.timeline import Span, Timeline
from sim.predict.pipeline_steps import Pipe, alone_ranks, behind_ranks
from sim.step.pipeline import Pass, Round
from sim.step.plan import HostStep, Issue, Launch, Plan, Replay, Update
from sim.step.play import schedules
from sim.step.ranks import Variant
from sim.step.schedule import Interval, Schedule, launches, timeline


@dataclass(frozen=True, slots=True)
class Shown:
    """The reported step of rank 0. waits_ns: by the rank that it waited for."""

    program: Program
    plan: Plan
    timeline: Timeline
    waits_ns: dict[int, int]


def shown(
    pipe: Pipe,
    batches: Sequence[Batch],
    round_: Round,
    whole: Batch,
    waits: Callable[[Plan, Sequence[Schedule]], dict[int, int]],
) -> Shown:
    """Rank 0's step in round `round_`: all micro-batches on the first stage, one after the other.

    waits: how long rank 0 waited in the collectives of its group, by the rank that came last.
    """
    programs = [pipe.program(batch, 0) for batch in batches]
    start = round_.passes[0][0].start_of
    plans: list[Plan] = []
    parts: list[Schedule] = []
    waited: dict[int, int] = {}
    for batch, row in zip(batches, round_.passes, strict=True):
        ours = pipe.plans(batch, 0, Variant())
        schedule = _schedule(ours, row[0])
        for rank, ns in waits(ours[0], schedule).items():
            waited[rank] = waited.get(rank, 0) + ns
        plans.append(ours[0])
        parts.append(_with_sends(ours[0], _shifted(schedule[0], row[0].start_of - start), row, start))
    held = sum(row[1].transfer - row[0].ready for row in round_.passes)
    if held:
        waited[pipe.model.ranks] = held  # its neighbour on the next stage
    blocks = tuple(chain.from_iterable(program.blocks for program in programs))
    plan = joined(plans)
    spans = timeline(plan, _one_after_another(parts))
    return Shown(
        Program(blocks, whole, programs[0].graph, programs[0].applied),
        plan,
        Timeline(wrapped(spans.spans, round_.total_ns), 0, round_.total_ns),
        dict(sorted(waited.items())),
    )


def _schedule(plans: Sequence[Plan], at: Pass) -> list[Schedule]:
    """The first stage's ranks with one micro-batch, on devices that are busy until the pass finds them free."""
    busy = max(0, at.device_free - at.start_of)
    schedule = schedules(behind_ranks(alone_ranks(plans, last=False), busy), only_first=True)
    first = schedule[0]
    del first.host[0], first.kernels[0]
    if first.launch:
        del first.launch[0]
    for one in schedule:
        one.arrivals = {number - 1: ns for number, ns in one.arrivals.items()}
    return schedule


def _shifted(schedule: Schedule, by_ns: int) -> Schedule:
    def moved(intervals: list[Interval]) -> list[Interval]:
        return [(start + by_ns, end + by_ns) for start, end in intervals]

    arrivals = {number: ns + by_ns for number, ns in schedule.arrivals.items()}
    return Schedule(
        moved(schedule.host), moved(schedule.launch), moved(schedule.kernels), schedule.end_ns + by_ns, arrivals
    )


def _with_sends(plan: Plan, schedule: Schedule, row: Sequence[Pass], start: int) -> Schedule:
    """`schedule` with its sends where the next stage takes them."""
    ready, at = row[0].ready - start, row[1].transfer - start
    for number, launch in enumerate(launches(plan)):
        if CATALOGUE[launch.kind].exchanges == "stages":
            end = at + launch.kernel.duration_ns
            schedule.arrivals[number] = ready
            schedule.kernels[number] = at, end
            ready = at = end
    return schedule


def joined(plans: Sequence[Plan]) -> Plan:
    """One plan after the other, without the waiting at the end of each; events keep their names apart."""
    steps: list[HostStep] = []
    offset = 0
    for number, plan in enumerate(plans):
        for step in plan.steps[:-1]:
            if isinstance(step, Issue):
                step = replace(step, launch=_renamed(step.launch, number, offset))
            elif isinstance(step, Replay):
                step = replace(step, launches=tuple(_renamed(launch, number, offset) for launch in step.launches))
            elif isinstance(step, Update):
                step = replace(step, records=f"{number}/{step.records}")
            steps.append(step)
        offset += sum(1 for _ in launches(plan))
    return replace(plans[0], steps=tuple(steps))


def _renamed(launch: Launch, number: int, offset: int) -> Launch:
    return replace(
        launch,
        index=launch.index + offset,
        waits=tuple(f"{number}/{event}" for event in launch.waits),
        records=tuple(f"{number}/{event}" for event in launch.records),
    )


def _one_after_another(parts: Sequence[Schedule]) -> Schedule:
    whole = Schedule([], [], [])
    for part in parts:
        whole.arrivals |= {number + len(whole.kernels): ns for number, ns in part.arrivals.items()}
        whole.host += part.host[:-1]  # the step that ended the play
        whole.launch += part.launch
        whole.kernels += part.kernels
        whole.end_ns = max(whole.end_ns, part.end_ns)
    return whole


def wrapped(spans: Sequence[Span], total_ns: int) -> tuple[Span, ...]:
    """Spans of a round that repeats every `total_ns`: what lies behind its end is what the round before left at its
    start, so it is shown there, cut where the round starts."""
    kept: list[Span] = []
    over: list[Span] = []
    for span in spans:
        if span.end_ns <= total_ns:
            kept.append(span)
            continue
        late = replace(span, start_ns=max(0, span.start_ns - total_ns), end_ns=span.end_ns - total_ns, launched_by=-1)
        if span.start_ns < total_ns:
            kept.append(replace(span, end_ns=total_ns))
            over.append(late)
        else:
            kept.append(late)
    return (*kept, *over)
