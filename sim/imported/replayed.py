"""What-ifs on an imported capture: the part `what_if` of an `import` document, and the timelines behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scenarios.profile import CaptureSet
from scenarios.profile.spans import rows_of
from scenarios.timeline import Timeline
from sim.hardware.profile import HardwareProfile
from sim.imported.chosen import chosen_steps
from sim.imported.replay.whatif import asked, what_if
from sim.imported.timelines import CLOCKS, timelines_of

#: A step with more spans is replayed only where a what-if is asked for: a list of all takes long.
LISTED_SPANS = 50_000


def replayed(
    captures: CaptureSet, step_id: str, wanted: Sequence[str], hardware: HardwareProfile | None, withheld: str = ""
) -> tuple[dict[str, Any], list[Timeline]]:
    """(`what_if` document, measured timelines and behind them the changed ones, where what-ifs were asked for).

    wanted: `NAME[:ARGS]`; none for all that apply. withheld: why nothing is advised, "" for no reason; what-ifs that
    are asked for are replayed all the same. Raises ScenarioError for a what-if that is none.
    """
    if withheld and not wanted:
        return _nothing([withheld]), []
    for text in wanted:
        asked(text)  # what is wrong with the words is said before the work
    spans = sum(len(rows_of(one.capture, one.step, True)) for one in chosen_steps(captures, step_id))
    if spans > LISTED_SPANS and not wanted:
        return _nothing([f"{spans:,} spans in the step: ask for a what-if by name, --what-if NAME"]), []
    timelines, notes = timelines_of(captures, step_id, tasks=True)
    if any(note.startswith(CLOCKS[:20]) for note in notes):
        timelines = timelines[:1]
    try:
        replay = what_if(timelines, wanted, hardware)
    except ValueError as error:
        return _nothing([*notes, str(error)]), []
    result = {
        "asked": list(wanted),
        "replay": replay.replay,
        "kind": "measured" if timelines[0].label == "MEASURED" else "predicted",
        "ranks": [timeline.rank for timeline in timelines],
        "rows": replay.rows,
        "notes": [*notes, *replay.replay["notes"]],
    }
    return result, [*timelines, *replay.changed] if wanted else []


def _nothing(notes: list[str]) -> dict[str, Any]:
    return {"asked": [], "replay": None, "kind": "measured", "ranks": [], "rows": [], "notes": notes}
