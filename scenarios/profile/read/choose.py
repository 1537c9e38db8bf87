"""Which part of a long trace is read: the step that is looked at, and one on each side of it.

A trace of a gigabyte holds thousands of steps, and nobody looks at more than one. Its marks are found by a pass over
the bytes that decodes nothing else; what lies outside of the chosen steps is decoded and forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from scenarios.profile.read.files import opened, regular
from scenarios.profile.read.json_events import Event, NumberEvent
from scenarios.profile.read.marks import family_of, is_mark, preference, step_ids
from scenarios.profile.read.times import NotATime, ns_of_us, ns_of_us_numbers
from scenarios.profile.table import Int32, Int64
from scenarios.records import dataclass

Flags = NDArray[np.bool_]

#: A trace of more bytes is read in part; packed ones count ten times. About a million events.
LONG_BYTES = 100_000_000
_PACKED = 10
#: How names of marks start in the file, as far as they are known without being asked for.
_STARTS = ((b'"ProfilerStep#',), (b'"execute_', b'"step['))
#: Marks of a family below which a trace is read whole.
MIN_MARKS = 4
#: An event with a mark's name in it is no longer than this on each side.
_AROUND = 4096
_CHUNK = 1 << 22

#: Most sequences of digits that a piece is searched for, and how many digits say something.
_PREFIXES, _PREFIX_DIGITS = 3, 6

#: In the events that name processes and threads, which stand together.
_NAMES = (b"process_name", b"thread_name")

_DECODER = msgspec.json.Decoder(Event)
_NUMBERS = msgspec.json.Decoder(NumberEvent)


@dataclass(frozen=True, slots=True)
class Only:
    """The wish of the reader. mark: what `--step-mark` says; step: the id of a step; "" for none."""

    mark: str = ""
    step: str = ""


#: Nothing is wished for.
WHATEVER = Only()


@dataclass(frozen=True, slots=True)
class Part:
    """What is read: host calls that start in [begin_ns, end_ns), and what they launched, up to `until_ns`.

    steps: how many the file holds; around: the id of the one that the part is around.
    """

    begin_ns: int
    end_ns: int
    until_ns: int
    steps: int
    around: str

    @property
    def note(self) -> str:
        """What has to be said of it."""
        return (
            f"the file holds {self.steps:,} steps; read are step {self.around} and one on each side of it, --step "
            "names another"
        )


@dataclass(frozen=True, slots=True)
class _Mark:
    name: str
    begin_ns: int
    end_ns: int


def part_of(path: Path, only: Only) -> Part | None:
    """The part of a long trace to read, None for one that is read whole: it is short, or holds few marks."""
    size = regular(path).st_size
    if size * (_PACKED if path.suffix == ".gz" else 1) < LONG_BYTES:
        return None
    for starts in [(_start_of(only.mark),)] if only.mark else _STARTS:
        families = _families(_marks(path, starts, only.mark))
        if families:
            marks = families[min(families, key=lambda name: (preference(name), -len(families[name]), name))]
            return _around(marks, only.step)
    return None


def _start_of(wanted: str) -> bytes:
    """How a mark's name starts in the file, of one that `--step-mark` says: without its numbers at the end."""
    return b'"' + (wanted.rstrip("0123456789") or wanted).encode("utf-8", "replace")


def _families(marks: Iterator[_Mark]) -> dict[str, list[_Mark]]:
    """The marks by family, disjoint and in order; families of a few are left out."""
    families: dict[str, list[_Mark]] = {}
    for mark in sorted(marks, key=lambda mark: (mark.begin_ns, -mark.end_ns)):
        own = families.setdefault(family_of(mark.name), [])
        if not own or mark.begin_ns >= own[-1].end_ns:
            own.append(mark)
    return {name: own for name, own in families.items() if len(own) >= MIN_MARKS}


def _around(marks: list[_Mark], step: str) -> Part:
    """The step called `step`, else one of median length that is neither the first nor the last, and its neighbours."""
    ids = step_ids([mark.name for mark in marks])
    if step in ids:
        chosen = ids.index(step)
    elif step.isascii() and step.isdigit() and 1 <= int(step[:9]) <= len(ids) and not ids[0].isdigit():
        chosen = int(step) - 1
    else:
        inner = sorted(range(1, len(marks) - 1), key=lambda n: marks[n].end_ns - marks[n].begin_ns)
        chosen = inner[len(inner) // 2]
    first, last = max(0, chosen - 1), min(len(marks) - 1, chosen + 1)
    start = marks[first].begin_ns
    end = marks[last + 1].begin_ns if last + 1 < len(marks) else marks[last].end_ns
    # A host may run ahead by more than a step; its arrows say what it launched in time.
    return Part(start, end, end + 4 * (end - start), len(marks), ids[chosen])


def _marks(path: Path, starts: tuple[bytes, ...], wanted: str) -> Iterator[_Mark]:
    """The marks in the file whose names start so, in order of the file."""
    with opened(path) as file:
        kept, done = b"", 0  # done: where of `kept` the search goes on
        while True:
            data = file.read(_CHUNK)
            buffer = kept + data
            limit = len(buffer) - (_AROUND if data else 0)
            for start in starts:
                at = buffer.find(start, done)
                while 0 <= at < limit:
                    mark = _mark(buffer, at, wanted)
                    if mark is not None:
                        yield mark
                    at = buffer.find(start, at + 1)
            if not data:
                return
            kept = buffer[max(0, limit - _AROUND) :]
            done = max(0, limit) - max(0, limit - _AROUND)


def _mark(buffer: bytes, at: int, wanted: str) -> _Mark | None:
    """The mark whose name stands at `at`, None where it is something else."""
    start = buffer.rfind(b"{", max(0, at - _AROUND), at)
    end = at
    for _ in range(4):  # the arguments have braces of their own
        end = buffer.find(b"}", end, at + _AROUND) + 1
        if start < 0 or end <= 0:
            return None
        event = _decoded(buffer[start:end])
        if event is not None:
            break
    if event is None or event.ph != "X" or event.cat == "gpu_user_annotation" or not is_mark(event.name, wanted):
        return None
    try:
        start = ns_of_us(event.ts)
        length = int(ns_of_us_numbers([0.0 if event.dur is None else event.dur])[0])
    except NotATime:
        return None
    return _Mark(event.name, start, start + length)


def _decoded(text: bytes) -> Event | None:
    try:
        return _DECODER.decode(text)
    except msgspec.ValidationError:
        try:
            event = _NUMBERS.decode(text)
        except msgspec.DecodeError:
            return None
        return Event(
            event.ph,
            "" if event.ts is None else format(event.ts, "f"),
            name=event.name,
            pid=event.pid,
            tid=event.tid,
            cat=event.cat,
            dur=event.dur,
        )
    except msgspec.DecodeError:
        return None


def inside(part: Part, events: list[Event]) -> list[Event]:
    """The events that may belong to the part: names, and what starts in its time."""
    low, high = part.begin_ns / 1000, part.until_ns / 1000
    kept = []
    for event in events:
        try:
            if event.ph == "M" or low <= float(event.ts) < high:
                kept.append(event)
        except ValueError:
            kept.append(event)  # whoever reads times says what is wrong with this one
    return kept


def may_hold(part: Part) -> Callable[[bytes], bool]:
    """Whether a piece of the file may hold a name or a time of the part: a test on its bytes.

    Times of the part start with one of a few sequences of digits, as long as they are written out.
    """
    low, high, power = part.begin_ns // 1000, part.until_ns // 1000, 1
    while high // power - low // power > _PREFIXES:
        power *= 10
    prefixes = tuple(str(number).encode() for number in range(low // power, high // power + 1))
    if min(map(len, prefixes)) < _PREFIX_DIGITS:
        return lambda piece: True
    return lambda piece: any(prefix in piece for prefix in prefixes) or any(name in piece for name in _NAMES)


def of_part(part: Part, start_ns: Int64, launched: Int32, device: Flags, kernels: Flags) -> Flags:
    """Which rows belong to the part: host calls of its time, and what the device ran of theirs.

    Where launches are known, kernels before the first and behind the last that has one are of other steps.
    """
    keep: Flags = np.where(device, start_ns >= part.begin_ns, (start_ns >= part.begin_ns) & (start_ns < part.end_ns))
    launched_inside = (launched >= 0) & keep[np.maximum(launched, 0)]
    known = device & kernels & launched_inside
    if 2 * int(known.sum()) < int((device & kernels & (start_ns < part.end_ns)).sum()):
        return keep & (start_ns < part.end_ns)
    first, last = start_ns[known].min(), start_ns[known].max()
    apart = device & ~launched_inside & ((start_ns < first) | (start_ns > last))
    elsewhere = device & (launched >= 0) & ~launched_inside
    keep &= ~apart & ~elsewhere
    return keep
