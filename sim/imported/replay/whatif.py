"""What-ifs by name: those asked for, or all that apply, each alone and one after the other, ranked by gain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from scenarios.errors import ScenarioError, did_you_mean, printable, quoted
from scenarios.records import dataclass
from scenarios.timeline import Timeline
from sim.compare import classes
from sim.hardware.profile import HardwareProfile
from sim.imported.replay.build import build
from sim.imported.replay.graph import Graph
from sim.imported.replay.patterns import PATTERNS
from sim.imported.replay.play import play, timelines
from sim.imported.replay.transforms.base import Asked, Bound, Changed, Transform, refuse_word
from sim.imported.replay.transforms.collectives import no_waits, remove_collectives, shrink_collectives
from sim.imported.replay.transforms.fuse import fuse
from sim.imported.replay.transforms.graph_mode import remove_host_gaps
from sim.imported.replay.transforms.scale import quantise, scale
from sim.imported.replay.transforms.second_stream import second_stream
from sim.predict.best_set import NO_EFFECT

_FAMILIES = (
    classes.MATMUL, classes.ATTENTION, classes.NORM, classes.CACHE, classes.ELEMENTWISE, classes.COPY,
    classes.COLLECTIVE,
)  # fmt: skip
#: Names without a space, which a shell needs no quotes for.
FAMILY = {name.replace(" ", "_").lower(): name for name in _FAMILIES}

TRANSFORMS = {
    transform.name: transform
    for transform in (
        Transform(
            "remove_host_gaps", "the step as a captured graph", remove_host_gaps, (), ("launch_us", "gap_us"), True
        ),
        Transform("fuse", "primitives become one kernel", fuse, tuple(p.name for p in PATTERNS), (), True),
        Transform("quantise", "INT8 matrix products", quantise, (), ("factor",), True),
        Transform("scale", "kernels of a family, faster or slower", scale, tuple(FAMILY), ("factor",), named=True),
        Transform("no_waits", "no waiting for other ranks", no_waits, named=True, bound=True),
        Transform(
            "shrink_collectives",
            "transfers take part of their time",
            shrink_collectives,
            (),
            ("factor",),
            named=True,
            bound=True,
        ),
        Transform(
            "remove_collectives", "no collectives: the bound of hiding them", remove_collectives, named=True, bound=True
        ),
        Transform("second_stream", "a family on a stream of its own", second_stream, tuple(FAMILY), named=True),
    )
}
#: What is tried where nothing is asked for.
TRIED = (
    "remove_host_gaps", *(f"fuse:{p.name}" for p in PATTERNS), "quantise", "no_waits", "shrink_collectives",
    "remove_collectives", "second_stream:kv_cache",
)  # fmt: skip


def asked(text: str, hardware: HardwareProfile | None = None) -> Asked:
    """`NAME`, `NAME:SUBJECT`, `NAME:key=value,...` or both. Raises ScenarioError with the nearest name."""
    where = f"--what-if {printable(text)}"
    name, _, rest = text.partition(":")
    if name not in TRANSFORMS:
        raise refuse_word(where, name, tuple(TRANSFORMS))
    transform, subject, options = TRANSFORMS[name], "", {}
    for part in filter(None, (piece.strip() for piece in rest.split(","))):
        key, equals, value = part.partition("=")
        if not equals:
            if not transform.subjects and not transform.named:
                raise ScenarioError([f"{where}: {name} takes no {quoted(part)}"])
            if part not in transform.subjects and not transform.named:
                raise refuse_word(where, part, transform.subjects)
            subject = FAMILY.get(part, part)
        elif key not in transform.options:
            raise refuse_word(where, key, transform.options or ("no option",))
        else:
            options[key] = _number(where, key, value)
    return Asked(name, subject, options, hardware)


def _number(where: str, key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 <= number <= 1e9:
        raise ScenarioError([f"{where}: {key} is {quoted(value)}, not a number from 0 to 1e9"])
    return number


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What came of the what-ifs: the rows of the table as plain data, and the timelines with all of those asked for
    (none where none was).

    replay: how well the unchanged graph replays.
    """

    rows: list[dict[str, Any]]
    replay: dict[str, Any]
    changed: tuple[Timeline, ...]


def what_if(
    measured: Sequence[Timeline], wanted: Sequence[str] = (), hardware: HardwareProfile | None = None
) -> WhatIf:
    """Replay measured steps with the what-ifs asked for, or with each that applies, the largest gain first.

    Ratios are the measured makespan over the changed one: above 1 it helps; low and high are the ends of what was
    assumed. waterfall_us: what it takes off when they are applied one after the other, in the order of the rows; of a
    bound that was not requested None, since nothing does just that.
    Raises ScenarioError for a name that is none or that no kernel has, ValueError for timelines without kernels.
    """
    todo = [asked(text, hardware) for text in wanted or TRIED]
    _refuse_unknown(measured, todo)
    graph = build(measured)
    before_ns = play(graph).makespan_ns
    changes = [_alone(graph, change, before_ns) for change in todo]
    if not wanted:
        changes = [change for change in changes if change.changed.places]
        changes.sort(key=lambda change: (-change.row["alone_ratio"], change.row["what_if"]))
    chain, chain_ns = graph, before_ns
    for change in changes:
        transform = TRANSFORMS[change.asked.name]
        if transform.bound and not wanted:
            change.row["waterfall_us"] = None
            continue
        changed = change.changed if chain is graph else transform.apply(chain, change.asked, "value")
        after_ns = play(changed.graph).makespan_ns
        change.row["waterfall_us"] = (chain_ns - after_ns) / 1000
        chain, chain_ns = changed.graph, after_ns
    after = tuple(replace(t, label="SIMULATED") for t in timelines(chain, play(chain))) if wanted else ()
    return WhatIf([change.row for change in changes], _replay(graph, before_ns), after)


def _refuse_unknown(measured: Sequence[Timeline], todo: Sequence[Asked]) -> None:
    """Raise ScenarioError for a family or op type that no kernel of the step has."""
    here = {classes.op_type_of(span) for t in measured for span in t.spans if classes.is_kernel(span)}
    here |= {classes.operation_of(op_type) for op_type in here}
    lower = {word.lower() for word in here}
    for asked in todo:
        if (
            TRANSFORMS[asked.name].named
            and asked.subject
            and asked.subject not in _FAMILIES
            and asked.subject.lower() not in lower
        ):
            hint = did_you_mean(asked.subject, [*FAMILY, *sorted(here)])
            what = "neither a family nor an op type of this step"
            raise ScenarioError([f"--what-if {asked.name}: {quoted(asked.subject)} is {what}{hint}"])


class _Alone(NamedTuple):
    """One what-if on the measured step."""

    asked: Asked
    changed: Changed
    row: dict[str, Any]


def _alone(graph: Graph, asked: Asked, before_ns: int) -> _Alone:
    value = TRANSFORMS[asked.name].apply(graph, asked, "value")
    return _Alone(asked, value, _row(graph, asked, value, before_ns))


def _row(graph: Graph, asked: Asked, value: Changed, before_ns: int) -> dict[str, Any]:
    after_ns = play(value.graph).makespan_ns
    ratios = sorted(_ratio(before_ns, _makespan(graph, asked, value, end, after_ns)) for end in ("better", "worse"))
    ratio = _ratio(before_ns, after_ns)
    low, high = min(ratio, ratios[0]), max(ratio, ratios[1])
    return {
        "what_if": asked.name + (f":{asked.subject}" if asked.subject else ""),
        "title": TRANSFORMS[asked.name].title,
        "made": value.places,
        "predicted_us": after_ns / 1000,
        "alone_ratio": ratio,
        "low": low,
        "high": high,
        "waterfall_us": 0.0,
        "verdict": _verdict(value.places, ratio, low, high),
        "assumed": list(value.assumed) if value.places else [],
    }


def _makespan(graph: Graph, asked: Asked, value: Changed, end: Bound, value_ns: int) -> int:
    """With the other end of what is assumed; nothing to play where nothing was changed, or there is one end."""
    if not value.places or not TRANSFORMS[asked.name].ends:
        return value_ns
    return play(TRANSFORMS[asked.name].apply(graph, asked, end).graph).makespan_ns


def _ratio(before_ns: int, after_ns: int) -> float:
    return before_ns / max(1, after_ns)


def _verdict(changed: int, ratio: float, low: float, high: float) -> str:
    """As the gains of a prediction have it."""
    if not changed:
        return "not applicable"
    if max(abs(r - 1) for r in (ratio, low, high)) < NO_EFFECT:
        return "no effect"
    if low > 1:
        return "gain"
    return "loss" if high < 1 else "not distinguishable"


def _replay(graph: Graph, replayed_ns: int) -> dict[str, Any]:
    measured_ns = max(t.end_ns for t in graph.timelines) - min(t.start_ns for t in graph.timelines)
    return {
        "measured_us": measured_ns / 1000,
        "replayed_us": replayed_ns / 1000,
        "error": replayed_ns / measured_ns - 1 if measured_ns else 0.0,
        "tasks": len(graph.tasks),
        "usual_launch_us": graph.launch_ns / 1000,
        "usual_gap_us": graph.gap_ns / 1000,
        "notes": list(graph.notes),
    }
