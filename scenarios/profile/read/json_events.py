"""The events of a Chrome trace, slab by slab: of the array form and of the object form with `traceEvents`.

The fast way cuts the file at `},{` between events and decodes each slab with typed structs (msgspec). A cut that falls
inside an event does not decode, so it moves left; where the file has another form than that, ijson reads it event by
event, four times slower and right for whatever is JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import ijson
import msgspec

from scenarios.errors import printable
from scenarios.profile.read.files import LIMITS, Readable, fail, opened

SLAB_BYTES = 1 << 19
#: One event may be this long (call stacks); a longer one is refused.
MAX_EVENT_BYTES = 16 * 2**20
#: Objects and lists within one another; ijson keeps the whole path of each, so the work grows with the square of it.
MAX_DEPTH = 256
_OPEN, _CLOSE = frozenset(("start_map", "start_array")), frozenset(("end_map", "end_array"))

_CUT = re.compile(rb"\}\s*,\s*\{")
_OPENING = re.compile(rb"\s*\[\s*")
_CLOSING = re.compile(rb"\]")
_OBJECT = re.compile(rb"\s*\{")
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[\s*')


class Args(msgspec.Struct, gc=False):
    """What is read of an event's arguments; the rest is skipped."""

    name: Any = None
    labels: Any = None
    task_type: Any = msgspec.field(default=None, name="Task Type")
    data_type: Any = None
    count: Any = None
    stream: Any = None
    correlation: Any = None
    direction: Any = msgspec.field(default=None, name="memcpy direction")
    shapes: Any = msgspec.field(default=None, name="Input Dims")
    dtypes: Any = msgspec.field(default=None, name="Input type")
    group: Any = msgspec.field(default=None, name="Process Group Name")
    collective: Any = msgspec.field(default=None, name="Collective name")


class Event(msgspec.Struct, gc=False):
    """One event whose `ts` is text."""

    ph: str
    ts: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    cat: str = ""
    dur: float | str | None = None
    id: int | str | None = None
    args: Args | None = None


class NumberEvent(Event, gc=False):
    """One event whose `ts` is a number, which no float may touch."""

    ts: Decimal | None = None  # type: ignore[assignment]


class OtherForm(Exception):
    """The file is not one array of events that can be cut; ijson has to read it."""


_FAST = msgspec.json.Decoder(list[Event])
_NUMBERS = msgspec.json.Decoder(list[NumberEvent])


class Misaligned(Exception):
    """A part of the file that was passed over ended within an event: the file has to be read without passing over."""


def slabs(path: Path, wanted: Callable[[bytes], bool] | None = None) -> Iterator[list[Event]]:
    """Lists of events in the order of the file. Raises CaptureError, one line, for what is no trace.

    `ts` of the events is text throughout. Other keys of the object form are skipped. wanted: says of a piece of the
    file whether it may hold an event that is wanted; others are passed over. Raises Misaligned where that went wrong.
    """
    given = 0
    try:
        for events in _cut_slabs(path, wanted):
            yield events
            given += len(events)
    except OtherForm:
        if wanted is not None:
            raise Misaligned from None
        yield from _slow_slabs(path, given)
        return
    except RecursionError:
        fail(path, f"an event behind event {given} is nested too deeply")
    if not given:
        fail(path, "holds no events")


def _cut_slabs(path: Path, wanted: Callable[[bytes], bool] | None) -> Iterator[list[Event]]:
    with opened(path) as file:
        rest, ended = _begin(file), False
        number = 0
        while not ended:
            data = file.read(SLAB_BYTES)
            ended = not data
            buffer = rest + data
            if wanted is not None and not ended and not wanted(buffer):
                # A cut may lie within a text; then what follows does not decode, and nothing is passed over.
                cut = _last_cut(buffer, len(buffer))
                rest = buffer if cut is None else buffer[cut.end() - 1 :]
                if len(rest) > MAX_EVENT_BYTES:
                    fail(path, f"an event is longer than {MAX_EVENT_BYTES // 2**20} MiB")
                continue
            if ended:
                events, rest = _last(buffer), b""
            else:
                events, rest = _decoded(buffer)
                if len(rest) > MAX_EVENT_BYTES:
                    fail(path, f"event {number}: is longer than {MAX_EVENT_BYTES // 2**20} MiB")
            number += len(events)
            yield events


def _begin(file: Readable) -> bytes:
    """The bytes after the bracket that opens the events."""
    head = file.read(SLAB_BYTES)
    match = _OPENING.match(head)
    if match is None and _OBJECT.match(head):
        match = _EVENTS_KEY.search(head)
    if match is None:
        raise OtherForm
    return head[match.end() :]


def _decoded(buffer: bytes) -> tuple[list[Event], bytes]:
    """The whole events of `buffer` up to the last cut that decodes, and the rest."""
    end = len(buffer)
    for _ in range(64):
        cut = _last_cut(buffer, end)
        if cut is None:
            return [], buffer
        try:
            return _decode(b"[" + buffer[: cut.start() + 1] + b"]"), buffer[cut.end() - 1 :]
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            end = cut.start()  # inside an event, or a text
    raise OtherForm


def _last_cut(buffer: bytes, end: int) -> re.Match[bytes] | None:
    """The last `},{` before `end`."""
    window = 1 << 16
    while True:
        start = max(0, end - window)
        cut = None
        for cut in _CUT.finditer(buffer, start, end):  # noqa: B007 (the last one)
            pass
        if cut is not None or start == 0:
            return cut
        window *= 4


def _last(buffer: bytes) -> list[Event]:
    """The events at the end of the file, up to the bracket that closes them."""
    text = buffer.rstrip()
    for start in reversed([match.start() for match in _CLOSING.finditer(text)][-64:]):
        # Behind the bracket nothing may stand, or the other keys of the object form.
        behind = text[start + 1 :].strip()
        try:
            if behind:
                msgspec.json.decode(b'{"":0' + behind)
            return _decode(b"[" + text[: start + 1])
        except msgspec.DecodeError:
            continue
    raise OtherForm


def _decode(slab: bytes) -> list[Event]:
    try:
        return _FAST.decode(slab)
    except msgspec.ValidationError:
        try:
            events = _NUMBERS.decode(slab)
        except msgspec.ValidationError:
            raise OtherForm from None  # ijson says which event it is
        return [_with_text(event) for event in events]


def _with_text(event: NumberEvent) -> Event:
    ts = "" if event.ts is None else format(event.ts, "f")
    return Event(
        ph=event.ph,
        ts=ts,
        name=event.name,
        pid=event.pid,
        tid=event.tid,
        cat=event.cat,
        dur=event.dur,
        id=event.id,
        args=event.args,
    )


def _slow_slabs(path: Path, skip: int) -> Iterator[list[Event]]:
    """All events from number `skip` on, read by ijson."""
    _refuse_deep(path)
    with opened(path) as file:
        prefix = "item" if _first_sign(path) == b"[" else "traceEvents.item"
        batch: list[Event] = []
        number = -1
        try:
            for number, item in enumerate(ijson.items(file, prefix)):
                if number >= LIMITS.events * 3:
                    fail(path, f"holds more than {LIMITS.events * 3:,} entries")
                if number < skip:
                    continue
                batch.append(_checked(item, f"{path}: event {number}"))
                if len(batch) == 4096:
                    yield batch
                    batch = []
        except ijson.IncompleteJSONError as error:
            fail(path, f"event {number + 1}: {_json_fault(str(error))}")
        except (ijson.JSONError, UnicodeDecodeError) as error:
            fail(path, f"event {number + 1}: is not JSON: {printable(' '.join(str(error).split()))}")
        if number < 0:
            fail(path, "holds no events")
        yield batch


def _refuse_deep(path: Path) -> None:
    depth = 0
    with opened(path) as file:
        try:
            for event, _ in ijson.basic_parse(file):
                depth += (event in _OPEN) - (event in _CLOSE)
                if depth > MAX_DEPTH:
                    fail(path, "is nested too deeply")
        except (ijson.JSONError, UnicodeDecodeError):
            return  # reading it says what and where


def _first_sign(path: Path) -> bytes:
    with opened(path) as file:
        first = file.read(4096).lstrip()[:1]
    if first not in (b"[", b"{"):
        fail(path, "is not JSON: it begins with neither [ nor {" if first else "is empty")
    return first


def _json_fault(text: str) -> str:
    if "NaN" in text or "nan" in text or "Infinity" in text:
        return "holds NaN or Infinity, which are no JSON numbers"
    if "premature EOF" in text or "parse error: premature" in text or "incomplete" in text.lower():
        return "the file is cut off"
    return f"is not JSON: {printable(' '.join(text.split()))}"


def _checked(item: object, where: str) -> Event:
    """One event of ijson's as a struct. Raises CaptureError where a field has the wrong type."""
    if not isinstance(item, dict):
        fail(where, "is not an object")
    ts, args = item.get("ts", ""), item.get("args")
    if isinstance(ts, int | Decimal) and not isinstance(ts, bool):
        ts = format(ts, "f") if isinstance(ts, Decimal) else str(ts)
    plain = {key: _plain(item[key]) for key in ("ph", "name", "pid", "tid", "cat", "dur", "id") if key in item}
    try:
        return msgspec.convert({**plain, "ts": ts, "args": args if isinstance(args, dict) else None}, Event)
    except msgspec.ValidationError as error:
        fail(where, printable(str(error).replace(" - at `$", ", at `"), 120))


def _plain(value: object) -> object:
    return float(value) if isinstance(value, Decimal) else value


def text_of(value: object) -> str:
    """An argument as one text: a text as it is, a list as torch_npu writes shapes, anything else as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, default=str, separators=(",", ":"))
