"""Which step of a capture is looked at, and what of the capture belongs to it."""

from __future__ import annotations

from scenarios.errors import ScenarioError, printable
from scenarios.profile import Capture, CaptureSet, Step, step_times_of
from scenarios.profile.views import Views, overlapping, place_of, views_of
from scenarios.records import dataclass
from scenarios.timeline import StepTime

#: Steps that an error line names.
_NAMED = 20


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """A step of one rank. whole: the capture that it was read from. capture: what of it belongs to the step, told
    without its neighbours where steps overlap. step: in `capture`. notes: what has to be said of the choice."""

    whole: Capture
    views: Views
    number: int
    capture: Capture
    step: Step
    time: StepTime
    notes: tuple[str, ...]


def chosen_steps(captures: CaptureSet, step_id: str = "") -> list[Chosen]:
    """The step of each rank: of the first rank the one called `step_id`, by default that of median length among those
    that may stand for all; of the others the same.

    Raises ScenarioError where there is no such step, or it has no kernels.
    """
    first, *others = captures.captures
    main = _chosen(first, step_id, required=True)
    return [main, *(_chosen(capture, main.step.id, required=False) for capture in others)]


def _chosen(capture: Capture, step_id: str, required: bool) -> Chosen:
    views = views_of(capture)
    there = views.whole_steps()
    if not there:
        raise ScenarioError([f"{printable(capture.source, 200)}: holds no kernels, so no step"])
    number = place_of(capture.steps, step_id) if step_id else None
    if number is None and step_id and required:
        known = ", ".join(printable(step.id, 60) or "(no name)" for step in capture.steps[:_NAMED])
        raise ScenarioError([f"--step: '{printable(step_id, 40)}' is not a step of this profile; it has {known}"])
    if number is not None and not views.kernels[number]:
        if required:
            known = ", ".join(printable(capture.steps[n].id, 60) for n in there[:_NAMED])
            raise ScenarioError([f"--step: step {printable(step_id, 40)} holds no kernels; these do: {known}"])
        number = None
    if number is None:
        number = sorted(there, key=lambda n: views.times[n].total_ns)[(len(there) - 1) // 2]
    alone, step = views.view(number)
    time = step_times_of(alone)[alone.steps.index(step)]
    return Chosen(
        capture, views, number=number, capture=alone, step=step, time=time, notes=tuple(_notes(views, number))
    )


def _notes(views: Views, number: int) -> list[str]:
    notes = []
    if text := overlapping(views, number):
        notes.append(text)
    empty = [step.id for step, kernels in zip(views.capture.steps, views.kernels, strict=True) if not kernels]
    if empty:
        named = ", ".join(printable(name, 40) for name in empty[:6]) + (", ..." if len(empty) > 6 else "")
        which = f"step{'' if len(empty) == 1 else 's'} {named}"
        notes.append(f"no kernels in {which}: step {printable(views.capture.steps[number].id, 60)} is shown")
    return notes
