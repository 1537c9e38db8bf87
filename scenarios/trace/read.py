"""The reader of our own traces: what `write_trace` wrote comes back as the same timelines, to the nanosecond.

Foreign traces (torch_npu's, msprof's) are another task: they are larger, and their clock starts elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeVar, cast, get_args

from scenarios.errors import ScenarioError, printable, shown
from scenarios.timeline import Process, Span, Timeline
from scenarios.trace.layout import HOST, MAX_NS, SPAN_ARG, STEP_NAME, STEP_TID, Value

#: Largest file that is read, bytes. JSON takes five times its size in memory.
MAX_TRACE_BYTES = 512 * 2**20

_TS = re.compile(r"([0-9]{1,16})\.([0-9]{3})")
_LABELS = re.compile(r"([A-Z]{1,8}) ([0-9]{1,9}) (SIMULATED|MEASURED)")
_PROCESSES = frozenset(get_args(Process))

T = TypeVar("T")


class TraceError(ScenarioError):
    """A file is no trace of ours; one line, exit status 2."""


def read_trace(path: str | os.PathLike[str]) -> list[Timeline]:
    """The timelines of a trace that `write_trace` wrote, in their order.

    Spans are equal to those written, in order and to the nanosecond; arguments that `kernel_args` added are among
    their args, so that writing again gives the same bytes. "Overlap Analysis" and counters are left out, being
    computed from the spans. Raises TraceError, one line, for a file that is unreadable, larger than MAX_TRACE_BYTES,
    cut off, not JSON, or not ours.
    """
    file = printable(os.fspath(path), 200)
    events = _parse(_read(path, file), file)
    slots: dict[int, _Slot] = {}
    for number, event in enumerate(events):
        where = f"{file}: event {number}"
        if not isinstance(event, dict):
            _fail(where, f"is {shown(event)}, not an object")
        phase = _get(event, "ph", str, where)
        if phase in ("M", "X"):
            pid = _get(event, "pid", int, where)
            slot = slots.setdefault(pid >> 10, _Slot(f"{file}: timeline {len(slots)}"))
            (slot.name if phase == "M" else slot.slice)(pid, event, where)
        elif phase not in ("s", "f", "C"):
            _fail(where, f"has the phase {shown(phase)}, which this tool does not write")
    if not slots:
        _fail(file, "holds no timeline")
    timelines: list[Timeline] = []
    for slot in slots.values():
        timelines.append(slot.timeline(first=sum(len(t.spans) for t in timelines)))
    return timelines


def _fail(where: str, what: str) -> NoReturn:
    raise TraceError([f"{where}: {what}"])


def _get(event: dict[str, Any], key: str, kind: type[T], where: str) -> T:
    """The value of `key`, which has to be of exactly this type (true is no integer)."""
    value = event.get(key)
    if type(value) is not kind:
        _fail(where, f"{key} is {shown(value)}, not of type {kind.__name__}")
    return value


def _read(path: str | os.PathLike[str], file: str) -> str:
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):  # a pipe or a device may never open, or never end
            _fail(file, "is a folder" if stat.S_ISDIR(mode) else "is not a regular file")
        with open(path, "rb") as opened:
            data = opened.read(MAX_TRACE_BYTES + 1)
    except OSError as error:
        _fail(file, f"cannot be read: {error.strerror or error}")
    except ValueError:  # a NUL or a lone surrogate in the path
        _fail(file, "is not a possible file name")
    if len(data) > MAX_TRACE_BYTES:
        _fail(file, f"is larger than {MAX_TRACE_BYTES // 2**20} MiB")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        _fail(file, f"byte {error.start} is not UTF-8")


def _parse(text: str, file: str) -> list[Any]:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no JSON number")

    try:
        events = json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        cut = "" if text.rstrip().endswith("]") else "; the array does not end, so the file is probably cut off"
        _fail(f"{file}:{error.lineno}:{error.colno}", f"is not JSON: {error.msg}{cut}")
    except RecursionError:
        _fail(file, "is nested too deeply")
    except ValueError as error:  # a constant, or an integer of thousands of digits
        _fail(file, f"is not JSON: {error}")
    if not isinstance(events, list):
        _fail(file, f"holds {shown(events)}, not an array of events")
    return events


@dataclass(slots=True)
class _Slot:
    """What the file says of one timeline."""

    where: str
    processes: dict[int, str] = field(default_factory=dict)
    threads: dict[tuple[int, int], str] = field(default_factory=dict)
    spans: dict[int, Span] = field(default_factory=dict)
    label: tuple[str, int, str] | None = None  # device, rank, SIMULATED or MEASURED
    step: tuple[int, int] | None = None

    def name(self, pid: int, event: dict[str, Any], where: str) -> None:
        """Take in an M event."""
        what, args = _get(event, "name", str, where), _get(event, "args", dict, where)
        if what == "process_name":
            self.processes[pid] = _get(args, "name", str, where)
        elif what == "thread_name":
            self.threads[pid, _get(event, "tid", int, where)] = _get(args, "name", str, where)
        elif what == "process_labels" and (match := _LABELS.fullmatch(_get(args, "labels", str, where))):
            self.label = match[1], int(match[2]), match[3]

    def slice(self, pid: int, event: dict[str, Any], where: str) -> None:
        """Take in an X event."""
        process, tid = self.processes.get(pid), _get(event, "tid", int, where)
        thread, name = self.threads.get((pid, tid)), _get(event, "name", str, where)
        if process is None or thread is None:
            _fail(where, "lies on a process or thread without a name")
        start_ns, end_ns = _interval(event, where)
        if process == "Overlap Analysis":
            return
        if process == "Python" and tid == STEP_TID:
            if name != STEP_NAME or self.step is not None:
                _fail(where, f"{printable(name)} is not the only {STEP_NAME}: the trace is not one of this tool")
            self.step = start_ns, end_ns
            return
        own, args = _split(_get(event, "args", dict, where), where)
        position = _get(own, SPAN_ARG, int, where)
        if position in self.spans:
            _fail(where, f"is span {position}, as an earlier event was")
        process, thread = own.get("process", process), own.get("thread", thread)
        if process not in _PROCESSES or not isinstance(thread, str):
            _fail(where, f"lies on {shown(process)}, {shown(thread)}")
        integers = {key: _get(own, key, int, where) if key in own else -1 for key in ("index", "layer")}
        launch = "correlation_id" if process in HOST else "connection_id"
        self.spans[position] = Span(
            name=name,
            process=cast(Process, process),
            thread=thread,
            start_ns=start_ns,
            end_ns=end_ns,
            kind=_get(own, "kind", str, where) if "kind" in own else "",
            op_type=_get(own, "op_type", str, where) if "op_type" in own else "",
            index=integers["index"],
            layer=integers["layer"],
            launched_by=_get(own, launch, int, where) if launch in own else -1,
            args=args,
        )

    def timeline(self, first: int) -> Timeline:
        """The timeline; `first` counts the spans of those before it, from which the file counts the launchers on."""
        if self.step is None or self.label is None:
            _fail(self.where, f"has no {STEP_NAME} or no label: the trace is not one of this tool")
        if sorted(self.spans) != list(range(len(self.spans))):
            _fail(self.where, f"lacks some of its {len(self.spans)} spans")
        device, rank, label = self.label
        return Timeline(
            spans=tuple(self._launched(self.spans[i], first) for i in range(len(self.spans))),
            start_ns=self.step[0],
            end_ns=self.step[1],
            label="MEASURED" if label == "MEASURED" else "SIMULATED",
            rank=rank,
            device=device,
        )

    def _launched(self, span: Span, first: int) -> Span:
        """The span with its launcher counted within this timeline."""
        if span.launched_by < 0:
            return span
        launcher = span.launched_by - first
        if launcher not in self.spans or self.spans[launcher] is span:
            _fail(self.where, f"{printable(span.name)} is launched by span {launcher}, which is not there")
        return replace(span, launched_by=launcher)


def _interval(event: dict[str, Any], where: str) -> tuple[int, int]:
    """Start and end, ns."""
    ts, length = event.get("ts"), event.get("dur")
    match = _TS.fullmatch(ts) if isinstance(ts, str) else None
    if match is None:
        _fail(where, f"ts is {shown(ts)}, not microseconds with three decimals as text")
    if not isinstance(length, int | float) or isinstance(length, bool) or not 0 <= length < MAX_NS / 1000:
        _fail(where, f"dur is {shown(length)}, not microseconds")
    start_ns = int(match[1]) * 1000 + int(match[2])
    end_ns = start_ns + round(length * 1000)
    if end_ns >= MAX_NS:
        _fail(where, f"ts is {ts}: times count from the start of the step")
    return start_ns, end_ns


def _split(args: dict[str, Any], where: str) -> tuple[dict[str, Any], tuple[tuple[str, Value], ...]]:
    """The writer's own arguments, up to and with `span`; and those of the span and its kernel behind it."""
    items = list(args.items())
    border = list(args).index(SPAN_ARG) + 1 if SPAN_ARG in args else 0
    for key, value in items[border:]:
        if not isinstance(value, str | int | float):
            _fail(where, f"{printable(key)} is {shown(value)}, neither text nor a number")
    return dict(items[:border]), tuple(items[border:])
