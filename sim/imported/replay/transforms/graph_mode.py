"""remove_host_gaps: the step as a captured graph, launched by one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from scenarios.timeline import Span
from sim.hardware.profile import load_hardware
from sim.imported.replay.change import Change
from sim.imported.replay.graph import Edge, Graph, Task
from sim.imported.replay.play import play
from sim.imported.replay.transforms.base import Asked, Bound, Changed, bound_of

#: The gap between kernels of a captured graph where one is doubted, ns.
WORSE_GAP_NS = 1_200


def remove_host_gaps(graph: Graph, asked: Asked, end: Bound) -> Changed:
    """One launch for all that the host launched op by op between two waits for the device.

    launch_us: the call and the start of the graph. gap_us: between two nodes of it. Both from the hardware named, or
    from `generic`. Gaps of the profile that are shorter stay.
    """
    hw = asked.hardware or load_hardware("generic")
    usual_us = (hw.host.input_copy_us + hw.host.model_execute_us) + hw.graph.start_us
    launch_ns = round(1000 * asked.number("launch_us", usual_us))
    if "gap_us" in asked.options:
        gap_ns = round(1000 * asked.options["gap_us"])
    else:
        node, replay = round(hw.graph.node_gap_ns), round(hw.graph.replay_node_gap_ns)
        gap_ns = round(bound_of(end, replay, node, max(WORSE_GAP_NS, replay)))
    change = Change(graph)
    launches = _launch_once(change, launch_ns)
    cut = _close_gaps(change, gap_ns)
    change.places = change.saved_calls or cut
    waits = _waits(change, end) if change.saved_calls else ()
    source = f"{hw.name}'s" if not asked.options else "as asked for"
    if not change.saved_calls:
        once = f"the profile has no calls: all of what streams idle beyond {gap_ns / 1000:g} us is taken for the host's"
        return Changed(change.finished(), change.places, (f"{once} ({source})",))
    assumed = (
        f"{launches} launch{'es' if launches != 1 else ''} of a graph, {launch_ns / 1000:g} us each, instead of "
        f"{change.saved_calls:,} calls; at most {gap_ns / 1000:g} us between two nodes ({source})",
        "a wait of the host for the device ends a graph; what the host does before it and after it stays",
        "lengths that attention kernels take from the host are inputs of the graph: no updates of parameters",
        *waits,
    )
    return Changed(change.finished(), change.places, assumed)


def _launch_once(change: Change, launch_ns: int) -> int:
    """Leave all calls out but the first of each segment of a thread, which launches the segment; how many there are."""
    segments: dict[tuple[int, str, int], int] = {}
    drained: dict[tuple[int, str], int] = {}
    segment_of: dict[int, tuple[int, str, int]] = {}
    for number, task in enumerate(change.tasks):
        thread = (task.rank, task.lane)
        if task.what == "synchronise":
            drained[thread] = drained.get(thread, 0) + 1
        elif task.what == "host":
            segment_of[number] = (*thread, drained.get(thread, 0))
    roots: dict[tuple[int, str, int], list[int]] = {}
    for number, task in enumerate(change.tasks):
        root = change.root(number) if task.on_device else None
        if root is not None and root in segment_of:
            roots.setdefault(segment_of[root], []).append(number)
    for key, launched in roots.items():
        calls = {change.root(number) for number in launched}
        if len(calls) < 2:
            continue  # one call: a graph already, or a single kernel
        first = min(call for call in calls if call is not None)
        segments[key] = first
        for number in launched:
            _relaunch(change, number, first)
        _leave_calls_out(change, launched, first)
        last = max(call for call in calls if call is not None)
        for number in range(first + 1, last + 1):  # what launches nothing, but lies between those that do
            if segment_of.get(number) == key and change.tasks[number].span and not change.tasks[number].removed:
                change.spare_call(number)
        call = change.tasks[first]
        assert call.span is not None
        change.tasks[first] = call._replace(duration_ns=launch_ns, span=_as_launch(call.span, launch_ns), removed=False)
    return len(segments)


def _relaunch(change: Change, number: int, call: int) -> None:
    """Let a kernel wait for another call; of a collective the arrival does."""
    place = change.arrival(number)
    task = change.tasks[place]
    after = tuple(e for e in task.after if e.why != "launch")
    if call < place:
        lag_ns = min([change.graph.launch_ns, *(e.lag_ns for e in task.after if e.why == "launch")])
        after = (*after, Edge(call, True, lag_ns, "launch"))
    change.tasks[place] = task._replace(after=after)
    launched = change.tasks[number]
    if launched.span is not None:
        span = replace(launched.span, launched_by=change.tasks[call].number)
        change.tasks[number] = launched._replace(span=span)


def _leave_calls_out(change: Change, launched: list[int], first: int) -> None:
    for number in launched:
        call = change.caller(number)
        while call is not None:
            if call != first and not change.tasks[call].removed and change.tasks[call].what == "host":
                change.spare_call(call)
            call = change.caller(call)


def _close_gaps(change: Change, gap_ns: int) -> int:
    """Give the tasks of a stream the gap of a graph, where the profile's own was not shorter; how many were longer."""
    cut = 0
    starts, tasks = change.graph.starts_ns, change.graph.tasks
    for number, task in enumerate(change.tasks):
        if not task.on_device or task.removed:
            continue
        after = []
        for edge in task.after:
            if edge.why == "queue" and edge.at_end and tasks[edge.source].on_device:
                own = starts[number] - starts[edge.source] - tasks[edge.source].duration_ns
                cut += own > gap_ns
                edge = edge._replace(lag_ns=max(0, min(own, gap_ns)))
            after.append(edge)
        change.tasks[number] = task._replace(after=tuple(after))
    return cut


def _as_launch(span: Span, launch_ns: int) -> Span:
    return replace(span, name="graph launch", end_ns=span.start_ns + launch_ns, kind="replay", op_type="")


def _waits(change: Change, end: Bound) -> tuple[str, ...]:
    """Shrink the waiting for ranks that are not here: they are late as their hosts jitter, and change as this one does.

    It shrinks as the rest of the step does; at best it vanishes, at worst it stays.
    """
    waiting, longer = _jitter(change)
    kept = (
        f"{longer:,} waits longer than this rank's own time since the collective before stay: no jitter explains them"
    )
    if not waiting:
        return (kept,) if longer else ()
    was, now = (_waited(tasks, change, waiting, 0.0) for tasks in (change.graph.tasks, change.tasks))
    share = min(1.0, bound_of(end, play(now).makespan_ns / max(1, play(was).makespan_ns), 0.0, 1.0))
    change.tasks = list(_waited(change.tasks, change, waiting, share).tasks)
    shrunk = (
        f"waiting for other ranks takes {share:.2f} of its time, as the rest of the step does: their hosts launch "
        "graphs too (at best none is left, at worst all of it)"
    )
    return (shrunk, kept) if longer else (shrunk,)


def _jitter(change: Change) -> tuple[list[int], int]:
    """Collectives whose wait the jitter of other hosts may explain, and how many wait for longer than that.

    Ranks that do the same are not later than all their work in the step so far, which is this one's too.
    """
    waiting: list[int] = []
    longer = 0
    starts = change.graph.starts_ns
    for number, task in enumerate(change.graph.tasks):
        if task.what != "transfer":
            continue
        wait_ns = max((e.lag_ns for e in task.after if e.why == "meet"), default=0)
        if 0 < wait_ns <= starts[change.arrival(number)]:
            waiting.append(number)
        else:
            longer += wait_ns > 0
    return waiting, longer


def _waited(tasks: Sequence[Task], change: Change, waiting: list[int], share: float) -> Graph:
    """The graph with all waiting for ranks that are not here times `share`."""
    changed = list(tasks)
    for number in waiting:
        task = changed[number]
        after = tuple(e._replace(lag_ns=round(e.lag_ns * share)) if e.why == "meet" else e for e in task.after)
        changed[number] = task._replace(after=after)
    return replace(change.graph, tasks=tuple(changed))
