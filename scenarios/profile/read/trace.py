"""A Chrome trace of a profiler as rows: slices, who is called what, and the arrows between them.

The names of processes and threads may stand behind their slices, so rows are gathered under (pid, tid) and get their
lanes at the end. What a row is follows from its process and its arguments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from scenarios.errors import printable
from scenarios.profile.read.build import MAX_THREADS, Columns, FactTable, Grown, Lanes, Texts
from scenarios.profile.read.choose import Only, Part, inside, may_hold, of_part, part_of
from scenarios.profile.read.files import fail
from scenarios.profile.read.flows import ARROWS, HOST, Flows, ThreadOf
from scenarios.profile.read.json_events import Args, Event, Misaligned, slabs, text_of
from scenarios.profile.read.times import NotATime, all_ns_of_us, ns_of_us_numbers
from scenarios.profile.table import NO_ROW, Kind, Lane
from scenarios.records import dataclass
from scenarios.timeline import COMPUTE

#: Categories that are left out: a Python frame for each call of a function would be most of a capture with stacks; the
#: others lie over what they repeat.
DROPPED_CATEGORIES = ("python_function", "gpu_user_annotation", "overhead", "Trace")
#: pid and tid of a slice, as the file has them.
Key = tuple[int | str, int | str]

#: Rows that are looked at one by one at a time.
CHUNK = 1 << 14

_NO_ARGS = Args()
#: Categories of slices whose correlation number says who launched what, and whether they lie on a device.
CORRELATED = {"cuda_runtime": False, "cuda_driver": False, "kernel": True, "gpu_memcpy": True, "gpu_memset": True}
#: What stands in the place of a task's type for a copy of PyTorch.
_DIRECTIONS = frozenset({"HtoD", "DtoH", "DtoD", "HtoH", "PtoP"})


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread of the file: pid, tid, what its process and it are called and labelled.

    categories: of its rows. tasks: the task types of its rows, where it has any. names: of some of its rows, where the
    file does not name its process. What a thread is can be read off its rows where a file has no naming events, as
    every trimmed or split trace.
    """

    pid: int | str
    tid: int | str
    process: str
    name: str
    labels: str
    categories: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()


#: What a thread is for us (None: left out), and what each of its rows is.
Placer = Callable[[Thread], Lane | None]
Classifier = Callable[[Lane, str, str, str], Kind]


class Keys(dict[Key, int]):
    """Each thread once, by number."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def __missing__(self, key: Key) -> int:
        if len(self) >= MAX_THREADS:
            fail(self._path, f"has more than {MAX_THREADS:,} threads and streams")
        number = self[key] = len(self)
        return number


@dataclass(slots=True)
class Trace:
    """What was gathered of a file."""

    path: Path
    texts: Texts
    facts: FactTable
    columns: Columns
    keys: Keys
    cats: Grown = field(default_factory=lambda: Grown(np.int16))
    categories: dict[str, int] = field(default_factory=dict)
    said: dict[tuple[Any, ...], int] = field(default_factory=dict)  # what arguments said, as a number of `facts`
    process_names: dict[int | str, str] = field(default_factory=dict)
    process_labels: dict[int | str, str] = field(default_factory=dict)
    thread_names: dict[Key, str] = field(default_factory=dict)
    flows: Flows = field(default_factory=Flows)
    dropped: Counter[str] = field(default_factory=Counter)
    number: int = 0
    part: Part | None = None

    def has_tasks(self) -> bool:
        """Whether any row says the type of its task, as torch_npu's kernels do and copies of PyTorch do not."""
        return any(said[1] and said[1] not in _DIRECTIONS for said in self.said if isinstance(said[1], str))

    def threads(self, columns: Mapping[str, Any], cats: Any) -> list[Thread]:
        """The threads in order of their numbers. columns, cats: their rows."""
        rows = _Contents(self, columns, cats)
        return [
            Thread(
                pid,
                tid,
                process=self.process_names.get(pid, ""),
                name=self.thread_names.get((pid, tid), ""),
                labels=self.process_labels.get(pid, ""),
                categories=rows.categories(number),
                tasks=rows.tasks(number),
                names=frozenset() if self.process_names.get(pid) else rows.names(number),
            )
            for number, (pid, tid) in enumerate(self.keys)
        ]


class _Contents:
    """What the rows of each thread say of it."""

    #: Names of rows that are looked at, of one thread.
    MAX_NAMES = 64

    def __init__(self, trace: Trace, columns: Mapping[str, Any], cats: Any) -> None:
        self._categories, self._texts = list(trace.categories), trace.texts.tuple()
        lane, width = columns["lane"].astype(np.int64), 1 << 32
        self._of_cat = _by_thread(np.unique(lane * width + cats), width)
        task = trace.facts.facts().task_type[columns["fact"]]
        self._of_task = _by_thread(np.unique(lane * width + task), width)
        self._of_name = _by_thread(np.unique(lane * width + columns["name"]), width, self.MAX_NAMES)

    def categories(self, thread: int) -> frozenset[str]:
        return frozenset(self._categories[number] for number in self._of_cat.get(thread, ()))

    def tasks(self, thread: int) -> frozenset[str]:
        return frozenset(self._texts[number] for number in self._of_task.get(thread, ()) if number)

    def names(self, thread: int) -> frozenset[str]:
        return frozenset(self._texts[number] for number in self._of_name.get(thread, ()))


def _by_thread(pairs: Any, width: int, most: int = 1 << 15) -> dict[int, list[int]]:
    """Numbers by thread, of pairs thread * width + number in order; at most so many of one."""
    numbers: dict[int, list[int]] = {}
    for pair in pairs.tolist():
        of = numbers.setdefault(pair // width, [])
        if len(of) < most:
            of.append(pair % width)
    return numbers


def read_trace_events(path: Path, texts: Texts, only: Only) -> Trace:
    """The slices, names and arrows of a trace, of a long one those of some steps, as `only` wishes. Column `lane` holds
    the numbers of (pid, tid); `kind` is 0.

    Raises CaptureError, one line, for what is no trace, a time that is none, or more than the limits allow.
    """
    part = part_of(path, only)
    if part is None:
        trace = _gathered(path, texts, None, None)
    else:
        try:
            trace = _gathered(path, texts, part, may_hold(part))
        except Misaligned:
            trace = _gathered(path, texts, part, None)
    if not trace.columns.count:
        fail(path, "holds no slices (events of phase X)")
    return trace


def _gathered(path: Path, texts: Texts, part: Part | None, wanted: Callable[[bytes], bool] | None) -> Trace:
    trace = Trace(path, texts, FactTable(path), Columns(path), Keys(path), part=part)
    for events in slabs(path, wanted):
        trace.number += len(events)
        _take(trace, events if part is None else inside(part, events))
    return trace


def _take(trace: Trace, events: Sequence[Event]) -> None:
    keys = trace.keys
    slices = [event for event in events if event.ph == "X"]
    others = [event for event in events if event.ph != "X" and event.ph != "C"]
    arrows = [event for event in others if event.ph in ("s", "f") and event.cat in ARROWS]
    try:
        trace.flows.add(arrows, [keys[event.pid, event.tid] for event in arrows])
    except NotATime as error:
        fail(trace.path, f"{_where(trace, arrows[error.args[1]])}: ts {error.args[0]}")
    if counters := len(events) - len(slices) - len(others):
        trace.dropped["counters"] += counters
    for event in others if len(arrows) < len(others) else ():
        if event.ph == "M":
            _name(trace, event)
        elif event.ph in ("s", "f", "t"):
            if event.cat not in ARROWS:
                trace.dropped[f"{event.cat or event.name} arrows"] += 1
        else:
            trace.dropped[f"phase {printable(event.ph, 8)}"] += 1
    kept = [event for event in slices if event.cat not in DROPPED_CATEGORIES]
    if len(slices) > len(kept):
        trace.dropped.update(event.cat for event in slices if event.cat in DROPPED_CATEGORIES)
    if kept:
        _add(trace, kept)
        if not arrows:  # a profiler writes an arrow's ends next to its slices; a file without them was trimmed
            _correlate(trace, kept)


def _correlate(trace: Trace, slices: Sequence[Event]) -> None:
    """What CUDA's correlation numbers say of who launched what."""
    calls = [
        event
        for event in slices
        if event.args is not None and type(event.args.correlation) in (int, str) and event.cat in CORRELATED
    ]
    trace.flows.add_correlated(
        calls, [CORRELATED[event.cat] for event in calls], [trace.keys[event.pid, event.tid] for event in calls]
    )


def _name(trace: Trace, event: Event) -> None:
    args = event.args or _NO_ARGS
    if len(trace.process_names) + len(trace.thread_names) > 1_000_000:
        fail(trace.path, "names more than 1,000,000 processes and threads")
    if event.name == "process_name":
        trace.process_names[event.pid] = text_of(args.name)
    elif event.name == "process_labels":
        trace.process_labels[event.pid] = text_of(args.labels)
    elif event.name == "thread_name":
        trace.thread_names[event.pid, event.tid] = text_of(args.name)


def _add(trace: Trace, slices: list[Event]) -> None:
    texts, keys = trace.texts, trace.keys
    trace.columns.add(
        start_ns=_times(trace, slices),
        duration_ns=_durations(trace, slices),
        lane=[keys[event.pid, event.tid] for event in slices],
        name=[texts[event.name] for event in slices],
        fact=[
            _fact(trace, args)
            if (args := event.args) is not None and (args.task_type or args.data_type or args.direction or args.group)
            else 0
            for event in slices
        ],
    )
    categories = trace.categories
    trace.cats.extend([categories.setdefault(event.cat, len(categories)) for event in slices])
    if len(categories) > MAX_THREADS:
        fail(trace.path, f"has more than {MAX_THREADS:,} categories of events")


def _fact(trace: Trace, args: Args) -> int:
    """The number of what the arguments say of a device's event; what they say of a host call is left out."""
    said = (args.collective, args.task_type or args.direction, args.count, args.data_type, args.group)
    try:
        number = trace.said.get(said)
    except TypeError:  # a list or an object among them
        return _new_fact(trace, said)
    if number is None:
        number = trace.said[said] = _new_fact(trace, said)
    return number


def _new_fact(trace: Trace, said: tuple[Any, ...]) -> int:
    collective, task, count, data_type, group = said
    # A collective says how many elements of which type.
    shapes, dtypes = (count, data_type) if data_type is not None else (None, None)
    words = (collective, task, shapes, dtypes, None, group, None)
    return trace.facts[*(trace.texts[text_of(word)] for word in words), 0]


def _times(trace: Trace, slices: list[Event]) -> Any:
    try:
        return all_ns_of_us([event.ts for event in slices])
    except NotATime as error:
        event = slices[error.args[1]]
        fail(trace.path, f"{_where(trace, event)}: ts {error.args[0]}")


def _durations(trace: Trace, slices: list[Event]) -> Any:
    try:
        return ns_of_us_numbers([0.0 if event.dur is None else event.dur for event in slices])
    except NotATime as error:
        event = slices[error.args[1]]
        fail(trace.path, f"{_where(trace, event)}: dur {error.args[0]}")


def _where(trace: Trace, event: Event) -> str:
    return f"'{printable(event.name)}' at {printable(event.ts or 'no time', 30)}, behind event {trace.number}"


def placed(trace: Trace, place: Placer, classify: Classifier) -> tuple[dict[str, Any], tuple[Lane, ...]]:
    """The columns of the rows on lanes that are kept, with `lane`, `kind` and `launched_by`; and the lanes.

    Rows of lanes that `place` leaves out are counted in `trace.dropped`. Raises CaptureError where kernels of several
    devices lie in the file.
    """
    columns, cats = trace.columns.take(), trace.cats.take()
    lanes, threads = Lanes(), trace.threads(columns, cats)
    lane_of = np.full(len(threads), -1, dtype=np.int16)
    for number, thread in enumerate(threads):
        lane = place(thread)
        if lane is not None:
            lane_of[number] = lanes[lane]
    key = columns["lane"]
    keep = lane_of[key] >= 0
    if not keep.all():
        for number, count in zip(*np.unique(key[~keep], return_counts=True), strict=True):
            trace.dropped[threads[number].process or "nameless process"] += int(count)
        for name in columns:
            columns[name] = columns[name][keep]
        key, cats = key[keep], cats[keep]
    _one_device(trace, key, threads, lane_of, tuple(lanes))
    columns["lane"] = lane_of[key]
    columns["kind"] = _kinds(trace, tuple(lanes), columns, cats, classify)
    del cats, keep
    kept = tuple(lanes)
    of = [ThreadOf(t.tid, kept[n].process if n >= 0 else "") for t, n in zip(threads, lane_of.tolist(), strict=True)]
    columns["launched_by"], columns["issued_after_ns"] = trace.flows.resolve(columns, key, of)
    return columns if trace.part is None else _part(trace.part, columns, kept), kept


def _part(part: Part, columns: dict[str, Any], lanes: tuple[Lane, ...]) -> dict[str, Any]:
    """The rows that belong to the part of the trace that is read."""
    on_host = np.array([lane.process in HOST for lane in lanes], dtype=bool)
    kinds = np.isin(columns["kind"], (int(Kind.KERNEL), int(Kind.COLLECTIVE)))
    keep = of_part(part, columns["start_ns"], columns["launched_by"], ~on_host[columns["lane"]], kinds)
    went = np.where(keep, np.cumsum(keep) - 1, NO_ROW).astype(np.int32)
    launched = columns["launched_by"]
    columns["launched_by"] = np.where(launched >= 0, went[np.maximum(launched, 0)], NO_ROW).astype(np.int32)
    return {name: column[keep] for name, column in columns.items()}


def _one_device(trace: Trace, key: Any, threads: Sequence[Thread], lane_of: Any, lanes: tuple[Lane, ...]) -> None:
    """Raise CaptureError where the rows on streams are of several processes, which are a device each."""
    used = [threads[number] for number in np.unique(key).tolist()]
    of_device = {t.pid: t.labels for t in used if lanes[lane_of[trace.keys[t.pid, t.tid]]].process in COMPUTE}
    if len(of_device) > 1:
        names = ", ".join(printable(label or str(pid), 20) for pid, label in list(of_device.items())[:8])
        fail(trace.path, f"mixes the kernels of {len(of_device)} devices ({names}); one device a file")


def _kinds(trace: Trace, lanes: tuple[Lane, ...], columns: Any, cats: Any, classify: Classifier) -> Any:
    """The kind of each row, worked out once for each combination of lane, name, task type and category."""
    texts = trace.texts.tuple()
    tasks, categories = trace.facts.facts().task_type, list(trace.categories)
    kinds = np.empty(len(cats), dtype=np.int8)
    known: dict[tuple[int, ...], Kind] = {}
    for start in range(0, len(cats), CHUNK):
        part = slice(start, start + CHUNK)
        parts = (columns["lane"][part], columns["name"][part], tasks[columns["fact"][part]], cats[part])
        of_part = []
        for row in zip(*(values.tolist() for values in parts), strict=True):
            kind = known.get(row)
            if kind is None:
                lane, name, task, cat = row
                kind = known[row] = classify(lanes[lane], texts[name], texts[task], categories[cat])
            of_part.append(kind)
        kinds[part] = of_part
    return kinds
