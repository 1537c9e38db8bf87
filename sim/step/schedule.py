"""What playing a plan yields, whoever plays it: times of each step, launch and kernel, and the Timeline made of them.

The engine and the recurrence fill in the same `Schedule`. Spans are made from it here and only here, so that two
players that agree on times agree on every byte of the timeline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from scenarios.timeline import Process, Span, Timeline
from sim.step.plan import HostStep, Issue, Launch, Plan, Replay, Synchronize, Update

#: Start and end, ns from the start of the step.
Interval = tuple[int, int]


class SimulationStuck(RuntimeError):
    """Nothing can happen any more although work is pending; the message says who waits for what."""


@dataclass(slots=True)
class Schedule:
    """Times of one played plan, ns.

    host: for each step of the plan, when the Python thread is inside its call. launch: for each entry of the launch
    queue (Issue and Replay) in order, when the launch thread is busy with it; empty without one. kernels: for each
    launch in program order, those inside replays included. end_ns: the end of the step (see `step_end`). arrivals: for
    each collective, by the number of its launch, when this rank was ready for it; it starts when the last rank is.
    """

    host: list[Interval]
    launch: list[Interval]
    kernels: list[Interval]
    end_ns: int = 0
    arrivals: dict[int, int] = field(default_factory=dict)


def step_end(schedule: Schedule) -> int:
    """When the step ends: the Python thread is through, and so are the launch thread and the last kernel.

    A plan that ends with Synchronize ends with the Python thread.
    """
    host = schedule.host[-1][1] if schedule.host else 0
    launch = schedule.launch[-1][1] if schedule.launch else 0
    return max(host, launch, max((end for _, end in schedule.kernels), default=0))


def launches(plan: Plan) -> Iterator[Launch]:
    """All kernels of a plan in program order; `Schedule.kernels` follows it."""
    for step in plan.steps:
        if isinstance(step, Issue):
            yield step.launch
        elif isinstance(step, Replay):
            yield from step.launches


def check(plan: Plan) -> None:
    """Refuse a plan that has no meaning.

    Raises ValueError for a launch queue that holds nothing, launch time without a launch thread, a time that is
    negative or no int, and an event with two records (event names are unique within a plan).
    """
    if plan.launch_thread and plan.queue_depth < 1:
        raise ValueError(f"the launch queue must hold at least 1 entry, not {plan.queue_depth}")
    recorded: set[str] = set()
    for step in plan.steps:
        launch_ns = start_ns = 0
        if isinstance(step, Issue):
            launch = step.launch
            host_ns, launch_ns = launch.host_ns, launch.launch_ns
            _check_kernels((launch,), recorded)
        else:
            host_ns = step.host_ns
            if isinstance(step, Replay):
                launch_ns, start_ns = step.launch_ns, step.start_ns
                _check_kernels(step.launches, recorded)
            elif isinstance(step, Update):
                _record(step.records, recorded)
        if host_ns < 0 or launch_ns < 0 or start_ns < 0 or type(host_ns + launch_ns + start_ns) is not int:
            raise ValueError(f"times are whole nanoseconds, 0 or more: {step!r}")
        if launch_ns and not plan.launch_thread:
            raise ValueError(f"launch_ns of {step!r} is {launch_ns}, but the plan has no launch thread to spend it")


def _check_kernels(kernels: Iterable[Launch], recorded: set[str]) -> None:
    for launch in kernels:
        gap_ns, duration_ns = launch.gap_ns, launch.kernel.duration_ns
        if gap_ns < 0 or duration_ns < 0 or type(gap_ns + duration_ns) is not int:
            raise ValueError(f"times are whole nanoseconds, 0 or more: {launch!r}")
        for event in launch.records:
            _record(event, recorded)


def _record(event: str, recorded: set[str]) -> None:
    if event in recorded:
        raise ValueError(f"event {event!r} is recorded twice; event names are unique within a plan")
    recorded.add(event)


def timeline(plan: Plan, schedule: Schedule) -> Timeline:
    """The spans of a played plan.

    Order: the Python thread, the launch thread, the kernels, each by start (kernels that start together in program
    order). A `Python` span covers the time inside the call: a thread that waits for room in the launch queue shows a
    gap after its call, a synchronise spans its whole wait. A `CANN` span is work of the launch thread, launched by
    its Python span. A kernel lies on its stream of `Ascend Hardware`, or on `AI CPU`, launched by its CANN span, or
    by its Python span where there is no launch thread.
    """
    host: list[Span] = []
    cann: list[Span] = []
    kernels: list[Span] = []
    entries = iter(schedule.launch)
    number = 0
    for at, (step, (start, end)) in enumerate(zip(plan.steps, schedule.host, strict=True)):
        name, kind, op_type, index, layer, inside = _call(step)
        span = partial(Span, kind=kind, op_type=op_type, index=index, layer=layer)
        host.append(span(name, "Python", thread="Python", start_ns=start, end_ns=end))
        parent = at
        if inside is not None and plan.launch_thread:
            parent = len(plan.steps) + len(cann)
            start, end = next(entries)
            launched = span(f"launch {name}", "CANN", thread="launch", start_ns=start, end_ns=end, launched_by=at)
            cann.append(launched)
        for launch in inside or ():
            if launch.rendezvous and launch.kernel.alone_ns:
                kernels.append(_kernel_span(launch, schedule.kernels[number], parent))
                kernels += _fused_spans(launch, schedule.arrivals[number], schedule.kernels[number])
            elif launch.rendezvous:
                kernels += _collective_spans(launch, schedule.arrivals[number], schedule.kernels[number], parent)
            else:
                kernels.append(_kernel_span(launch, schedule.kernels[number], parent))
            number += 1
    kernels.sort(key=lambda span: span.start_ns)
    return Timeline((*host, *cann, *kernels), 0, schedule.end_ns)


def _kernel_span(launch: Launch, interval: Interval, parent: int) -> Span:
    process: Process = "Ascend Hardware"
    thread = f"Stream {launch.stream}"
    if launch.kernel.accelerator == "AI_CPU":
        process = thread = "AI CPU"
    start, end = interval
    return Span(
        launch.name,
        process,
        thread=thread,
        start_ns=start,
        end_ns=end,
        kind=launch.kind,
        op_type=launch.op_type,
        index=launch.index,
        layer=launch.layer,
        launched_by=parent,
    )


def _collective_spans(launch: Launch, arrival_ns: int, interval: Interval, parent: int) -> list[Span]:
    """A collective as torch_npu shows it: the whole on its group's lane, waiting and transfer apart on a plane."""
    start, end = interval
    process: Process = "Communication"
    tail = launch.op_type, launch.index, launch.layer
    whole = Span(launch.name, process, "Group 0 Communication", arrival_ns, end, launch.kind, *tail, launched_by=parent)
    spans = [whole]
    if start > arrival_ns:
        spans.append(Span("Notify_Wait", process, "Plane 0", arrival_ns, start, "wait", *tail))
    spans.append(Span("Memcpy", process, "Plane 0", start, end, "transfer", *tail))
    return spans


def _fused_spans(launch: Launch, arrival_ns: int, interval: Interval) -> list[Span]:
    """What a kernel with a collective inside shows next to itself: waiting for other ranks, and its transfers."""
    start, end = interval
    process: Process = "Communication"
    tail = launch.op_type, launch.index, launch.layer
    spans = [Span("Notify_Wait", process, "Plane 0", arrival_ns, start, "wait", *tail)] if start > arrival_ns else []
    return [*spans, Span("Memcpy", process, "Plane 0", start + launch.kernel.alone_ns, end, "transfer", *tail)]


def _call(step: HostStep) -> tuple[str, str, str, int, int, tuple[Launch, ...] | None]:
    """Name, kind, op_type, index and layer of a step's Python span; the kernels it launches, None if it launches
    none."""
    if isinstance(step, Issue):
        launch = step.launch
        return launch.name, launch.kind, launch.op_type, launch.index, launch.layer, (launch,)
    if isinstance(step, Replay):
        return _called("replay", step.name), "replay", "", -1, -1, step.launches
    if isinstance(step, Update):
        return _called("update", step.name), "update", "", -1, -1, None
    if isinstance(step, Synchronize):
        return _called("synchronize", step.name), "synchronize", "", -1, -1, None
    return step.name, "host", "", -1, -1, None


def _called(verb: str, name: str) -> str:
    return name if name.startswith(verb) else f"{verb} {name}"


def stuck(plan: Plan, blocked: Mapping[int, tuple[Launch, str]], synchronize: str, pending: int) -> SimulationStuck:
    """The error of a simulation that stopped with work pending.

    blocked: for each blocked stream its first kernel and the event that it misses. synchronize: name of the Synchronize
    step in which the Python thread waits, empty if it waits nowhere. pending: kernels issued and not ended.
    """
    origins: dict[str, str] = {}
    for step in plan.steps:
        if isinstance(step, Update):
            origins[step.records] = f"recorded by the update {step.name!r}"
    for launch in launches(plan):
        for event in launch.records:
            origins[event] = f"recorded by {place(launch)} of stream {launch.stream}"
    lines = [f"Python: {synchronize!r} waits for {pending} kernels"] if synchronize else []
    for stream, (launch, event) in sorted(blocked.items()):
        lines.append(
            f"stream {stream}: {place(launch)} waits for event {event!r}, {origins.get(event, 'which nothing records')}"
        )
    return SimulationStuck("the simulation is stuck: " + "; ".join(lines))


def place(launch: Launch) -> str:
    """A kernel's name with its layer, `attention[3]`."""
    return f"{launch.name}[{launch.layer}]" if launch.layer >= 0 else launch.name
