"""Plans for tests of the players: short builders, random plans, and the rules of a played plan written as equations."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from scenarios.timeline import Timeline
from sim.kernel.time import KernelTime, Lane
from sim.step import engine, recurrence
from sim.step.plan import HostStep, HostWork, Issue, Launch, Plan, Replay, Synchronize, Update
from sim.step.schedule import Schedule, launches


def kernel(
    duration_ns: int, *, lane: Lane = "AI_CORE", hbm=0.0, cube=0.0, vector=0.0, ai_cpu=0.0, link=0.0, holds=False
) -> KernelTime:
    return KernelTime(
        duration_ns,
        lane,
        20,
        "hbm",
        0,
        0,
        0,
        0,
        hbm_share=hbm,
        cube_share=cube,
        vector_share=vector,
        ai_cpu_share=ai_cpu,
        holds_cores=holds,
        link_share=link,
    )


def launch(
    name: str,
    duration_ns: int,
    *,
    stream=0,
    waits=(),
    records=(),
    host_ns=0,
    launch_ns=0,
    gap_ns=0,
    layer=-1,
    **of_kernel,
) -> Launch:
    priced = kernel(duration_ns, **of_kernel)
    return Launch(0, layer, name, "matmul", "MatMul", priced, stream, waits, records, host_ns, launch_ns, gap_ns)


def issue(name: str, duration_ns: int, **of_launch) -> Issue:
    return Issue(launch(name, duration_ns, **of_launch))


def together(*captured: Launch) -> Plan:
    """All kernels become ready at 0, at no cost to the host."""
    return Plan((Replay("graph", captured, 0, 0, 0), SYNCHRONIZE), launch_thread=False, queue_depth=1)


SYNCHRONIZE = Synchronize("synchronize", 0)


def play(plan: Plan) -> Timeline:
    """The timeline of a plan without contention, on which both players must agree."""
    timeline = engine.play(plan)
    assert recurrence.play(plan) == timeline
    return timeline


def log(timeline: Timeline, process: str = "") -> list[tuple[str, str, int, int]]:
    """What a story ends in: (thread, name, start, end) of each span, of one process or of all."""
    return [(s.thread, s.name, s.start_ns, s.end_ns) for s in timeline.spans if process in ("", s.process)]


def kernels(timeline: Timeline) -> list[tuple[str, int, int]]:
    """(name, start, end) of each kernel, in order of start."""
    return [(s.name, s.start_ns, s.end_ns) for s in timeline.device_spans]


# Small times make many things happen at one moment, where an event loop is most likely to take a wrong turn.
NS = st.one_of(st.integers(0, 4), st.integers(0, 60))
STREAMS = 3
#: At most three kernels run together, so nothing is over-subscribed.
MODEST = st.sampled_from([0.0, 0.1, 1 / 3])
GREEDY = st.sampled_from([0.0, 0.2, 0.5, 0.7, 1.0])


class _Drawing:
    """A plan that is being drawn: its steps, what they have recorded, updates that captured kernels wait for."""

    def __init__(self, draw: st.DrawFn, share, *, wild: bool, streams: int) -> None:
        self.draw = draw
        self.streams = streams
        self.share = share
        self.wild = wild
        self.threaded = draw(st.booleans())
        self.steps: list[HostStep] = []
        self.recorded: list[str] = []
        self.promised: list[str] = []

    def launch(self, number: int, captured: bool) -> Launch:
        draw, here = self.draw, len(self.steps)
        waits = []
        if self.recorded and draw(st.booleans()):
            waits.append(draw(st.sampled_from(self.recorded)))
        if captured and draw(st.integers(0, 3)) == 0:
            self.promised.append(f"update#{here}.{number}")
            waits.append(self.promised[-1])
        if self.wild and draw(st.integers(0, 5)) == 0:
            waits.append(f"event#{draw(st.integers(0, 12))}.0")
        records = (f"event#{here}.{number}",) if draw(st.booleans()) else ()
        self.recorded.extend(records)
        return launch(
            f"k{here}.{number}",
            draw(NS),
            stream=draw(st.integers(0, self.streams - 1)),
            waits=tuple(waits),
            records=records,
            host_ns=draw(NS),
            launch_ns=draw(NS) if self.threaded else 0,
            gap_ns=draw(st.integers(0, 5)),
            layer=number,
            lane=draw(st.sampled_from(["AI_CORE", "AI_VECTOR_CORE", "AI_CPU"])),
            hbm=draw(self.share),
            cube=draw(self.share),
            vector=draw(self.share),
            ai_cpu=draw(self.share),
        )

    def step(self) -> None:
        draw, steps = self.draw, self.steps
        choice = draw(st.sampled_from(["issue", "issue", "issue", "replay", "update", "work", "synchronize"]))
        if choice == "issue":
            steps.append(Issue(self.launch(0, False)))
        elif choice == "replay":
            captured = tuple(self.launch(number, True) for number in range(draw(st.integers(0, 5))))
            steps.append(Replay(f"g{len(steps)}", captured, draw(NS), draw(NS) if self.threaded else 0, draw(NS)))
        elif choice == "update" and self.promised:
            self.keep_promise()
        elif choice == "work":
            steps.append(HostWork("prepare", draw(NS)))
        elif choice == "synchronize":
            self.keep_promises()
            steps.append(Synchronize(draw(st.sampled_from(["synchronize", "step"])), draw(NS)))

    def keep_promise(self) -> None:
        self.recorded.append(self.promised[0])
        self.steps.append(Update(self.promised[0], self.draw(NS), self.promised.pop(0)))

    def keep_promises(self) -> None:
        while self.promised:
            self.keep_promise()


@st.composite
def plans(draw: st.DrawFn, share=MODEST, *, wild: bool = False, streams: int = STREAMS) -> Plan:
    """A random plan of up to 12 steps, on up to three streams, with events, replays, updates and synchronises.

    A kernel waits for records earlier in program order, or for updates that follow before the next synchronise.
    `wild` plans also wait for anything else, so that some of them can never end.
    """
    drawing = _Drawing(draw, share, wild=wild, streams=streams)
    for _ in range(draw(st.integers(1, 12))):
        drawing.step()
    drawing.keep_promises()
    if draw(st.booleans()):
        drawing.steps.append(Synchronize("synchronize", draw(NS)))
    return Plan(tuple(drawing.steps), drawing.threaded, draw(st.integers(1, 4)))


def assert_rules(plan: Plan, schedule: Schedule) -> None:
    """Every start is the latest of its causes, exactly: no effect before its cause, and nobody idle without one.

    Written from the rules as equations between the times of a played plan, whoever played it; only the ends of
    kernels are taken as they are, since they depend on sharing.
    """
    begin_of_next = 0
    submitted: list[int] = []  # for each kernel, when it may start at the earliest
    entry, kernel_number = 0, 0
    recorded = {
        event: schedule.kernels[number][1] for number, one in enumerate(launches(plan)) for event in one.records
    }
    for step, (first, end) in zip(plan.steps, schedule.host, strict=True):
        assert first == begin_of_next
        begin_of_next = end
        if isinstance(step, Synchronize):
            ends = [at for _, at in (*schedule.kernels[:kernel_number], *schedule.launch[:entry])]
            assert end == max([first, *ends]) + step.host_ns
        elif isinstance(step, HostWork | Update):
            assert end == first + step.host_ns
            if isinstance(step, Update):
                recorded[step.records] = end
        else:
            inside = (step.launch,) if isinstance(step, Issue) else step.launches
            payer = step.launch if isinstance(step, Issue) else step
            assert end == first + payer.host_ns
            submit = end
            if plan.launch_thread:
                before = schedule.launch[entry - 1][1] if entry else 0
                if entry >= plan.queue_depth:
                    begin_of_next = max(end, schedule.launch[entry - plan.queue_depth][0])
                taken, submit = schedule.launch[entry]
                assert taken == max(begin_of_next, before)
                assert submit == taken + payer.launch_ns
                entry += 1
            submitted += [submit + (step.start_ns if isinstance(step, Replay) else 0)] * len(inside)
            kernel_number += len(inside)

    free: dict[int, int] = {}
    timed = zip(launches(plan), schedule.kernels, submitted, strict=True)
    for one, (start, end), ready in timed:
        causes = [ready, *(recorded[event] for event in one.waits)]
        if one.stream in free:
            causes.append(free[one.stream] + one.gap_ns)
        assert start == max(causes)
        assert end - start >= one.kernel.duration_ns
        free[one.stream] = end
    ends = [end for lane in (schedule.host, schedule.launch, schedule.kernels) for _, end in lane]
    assert schedule.end_ns == max(ends, default=0)
    assert all(a[1] <= b[0] for a, b in pairwise(schedule.launch))
