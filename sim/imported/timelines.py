"""The steps of an imported capture as timelines on one clock, for comparisons and replays."""

from __future__ import annotations

from dataclasses import replace

from scenarios.errors import ScenarioError, printable
from scenarios.profile import Capture, CaptureSet, Step, timeline_of
from scenarios.timeline import Timeline
from sim.imported.chosen import chosen_steps
from sim.imported.ranks import waits_of

#: What is said where ranks cannot be laid on one clock.
CLOCKS = "the ranks' clocks differ by {:.1f} ms, so each is taken alone"


def timelines_of(captures: CaptureSet, step_id: str = "", tasks: bool = False) -> tuple[list[Timeline], list[str]]:
    """One step of every rank, from the start of the earliest; and what has to be said.

    tasks: as `timeline_of` has it. Ranks whose clocks differ all start at 0. Raises ScenarioError where there is no
    such step or it has too many spans.
    """
    first = captures.captures[0]
    chosen = chosen_steps(captures, step_id)
    steps = [one.step for one in chosen]
    try:
        timelines = [timeline_of(one.capture, one.step, tasks) for one in chosen]
    except ValueError as error:
        raise ScenarioError([f"{printable(first.source, 200)}: {error}"]) from None
    notes = [f"step {printable(steps[0].id, 60)} of {len(first.steps)}"] if len(first.steps) > 1 else []
    waits = waits_of([one.capture for one in chosen], steps)
    if not waits.same_clock:
        return timelines, [*notes, CLOCKS.format(waits.clocks_differ_us / 1000)]
    origins = [_origin_ns(one.capture, one.step, t) for one, t in zip(chosen, timelines, strict=True)]
    return [_later(t, origin - min(origins)) for t, origin in zip(timelines, origins, strict=True)], notes


def _origin_ns(capture: Capture, step: Step, timeline: Timeline) -> int:
    """What 0 of a timeline is on the capture's clock."""
    known = next((span for span in timeline.spans if span.index >= 0 and not span.is_wait), None)
    return int(capture.events.start_ns[known.index]) - known.start_ns if known else step.start_ns


def _later(timeline: Timeline, ns: int) -> Timeline:
    if not ns:
        return timeline
    spans = tuple(replace(s, start_ns=s.start_ns + ns, end_ns=s.end_ns + ns) for s in timeline.spans)
    return replace(timeline, spans=spans, start_ns=timeline.start_ns + ns, end_ns=timeline.end_ns + ns)
