"""Arrows of a trace: which host call issued which kernel.

`HostToDevice` leads from CANN's call to the device, `async_task_queue` from the call that enqueued to the one that
dequeued, `async_npu` from torch's operator to the device; `ac2g` is CUDA's from the runtime call to the kernel. An
arrow's ends are places, (pid, tid, ts): the head starts exactly at its slice, the tail lies inside its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from scenarios.profile.read.build import Grown
from scenarios.profile.read.json_events import Event
from scenarios.profile.read.times import all_ns_of_us
from scenarios.profile.table import NO_ROW, Int32, Int64, Kind, LostLaunches
from scenarios.records import dataclass

#: Categories of arrows that say who launched what; of two that lead to one row the first here counts.
ARROWS = ("HostToDevice", "ac2g", "async_task_queue", "async_npu")
#: Stands for an arrow that a trimmed file has lost: CUDA's call and its kernel still have one correlation number.
CORRELATION = "correlation"

_CODES = {name: code for code, name in enumerate((*ARROWS, CORRELATION))}
#: Arrows that lead to what the device runs.
_TO_DEVICE = frozenset(_CODES[name] for name in ("HostToDevice", "ac2g", "async_npu", CORRELATION))
HOST = ("Python", "CANN")
_END = {"code": np.int8, "key": np.int64, "thread": np.int16, "head": np.bool_, "ns": np.int64}
_PAIR = {"tail_thread": np.int16, "tail_ns": np.int64, "head_thread": np.int16, "head_ns": np.int64}
#: Threads up to which each one's rows are looked up by a pass over all rows, which needs no order of them.
_FEW_THREADS = 64
#: How deep calls nest at most between a call and the one that encloses it.
_MAX_DEPTH = 512


@dataclass(frozen=True, slots=True)
class ThreadOf:
    """What the search needs of a thread: its number in the system, and the process of its lane, "" for none."""

    tid: int | str
    process: str


class Flows:
    """Arrows as they come. Ends that meet in one slab are kept as pairs, the others until all are there."""

    def __init__(self) -> None:
        self._pairs = tuple(_Table(_PAIR) for _ in _CODES)  # one a category, so that each can be freed by itself
        self._ends = _Table(_END)
        #: Launches without their kernels; known once the arrows are resolved.
        self.lost: LostLaunches | None = None

    def add(self, events: Sequence[Event], threads: Sequence[int]) -> None:
        """Take in events of phase s and f in categories of ARROWS; `threads` are the numbers of their (pid, tid).

        Raises NotATime for a time that is none.
        """
        if events:
            self._add(
                code=np.array([_CODES[event.cat] for event in events], dtype=np.int8),
                key=_numbers([event.id for event in events]),
                thread=np.array(threads, dtype=np.int16),
                head=np.array([event.ph == "f" for event in events], dtype=np.bool_),
                ns=all_ns_of_us([event.ts for event in events]),
            )

    def add_correlated(self, calls: Sequence[Event], heads: Sequence[bool], threads: Sequence[int]) -> None:
        """Take in slices that have a correlation number: calls of the runtime, and (heads) what runs on a device.

        Raises NotATime for a time that is none.
        """
        if calls:
            numbers = [event.args.correlation if event.args is not None else None for event in calls]
            self._add(
                code=np.full(len(calls), _CODES[CORRELATION], dtype=np.int8),
                key=_numbers(numbers),
                thread=np.array(threads, dtype=np.int16),
                head=np.array(heads, dtype=np.bool_),
                ns=all_ns_of_us([event.ts for event in calls]),
            )

    def _add(self, **ends: Any) -> None:
        tails, heads = _met(ends["code"], ends["key"], ends["head"])
        for code, table in enumerate(self._pairs):
            here = ends["code"][heads] == code
            table.add(_pair(ends, tails[here], heads[here]))
        rest = np.ones(len(ends["ns"]), dtype=np.bool_)
        rest[tails] = rest[heads] = False
        self._ends.add({name: column[rest] for name, column in ends.items()})

    def resolve(self, columns: Mapping[str, Any], keys: Any, threads: Sequence[ThreadOf]) -> tuple[Int32, Int32]:
        """`launched_by` and `issued_after_ns` for each row. keys: the number of each row's thread in `threads`."""
        tails = self._pair_the_rest()
        rows = _Rows(columns, keys, threads)
        launched = np.full(len(keys), NO_ROW, dtype=np.int32)
        after = np.zeros(len(keys), dtype=np.int32)
        start = columns["start_ns"]
        lost: dict[int, list[tuple[Any, Any]]] = {
            code: [(left["tail_ns"], rows.around(left["tail_thread"], left["tail_ns"]))] for code, left in tails.items()
        }
        for code, table in enumerate(self._pairs):
            pairs = table.take()
            issued = pairs["tail_ns"]
            targets = rows.starting(pairs.pop("head_thread"), pairs.pop("head_ns"))
            sources = rows.around(pairs.pop("tail_thread"), issued)
            if code in _TO_DEVICE and (nowhere := targets == NO_ROW).any():
                lost[code].append((issued[nowhere], sources[nowhere]))
            ok = (targets != NO_ROW) & (sources != NO_ROW) & (targets != sources)
            ok[ok] = launched[targets[ok]] == NO_ROW
            targets, sources, issued = targets[ok], sources[ok], issued[ok]
            launched[targets] = sources
            after[targets] = np.clip(issued - start[sources], 0, 2**31 - 1)
        self.lost = _lost(lost, columns["name"])
        rows.enclose(launched)
        return launched, after

    def _pair_the_rest(self) -> dict[int, dict[str, Any]]:
        """Each head that is left with its tail: of the same id; where an id comes back, the last that is not behind.

        Returns the tails of arrows to the device that no head has, by category.
        """
        alone: dict[int, dict[str, Any]] = {}
        ends = self._ends.take()
        code, key, ns = ends["code"], ends["key"], ends["ns"]
        for number in range(len(_CODES)):
            tails, heads = (np.flatnonzero((code == number) & (ends["head"] == is_head)) for is_head in (False, True))
            tails = tails[np.lexsort((ns[tails], key[tails]))]
            first, end = (np.searchsorted(key[tails], key[heads], side=side) for side in ("left", "right"))
            there = end > first
            heads, first, end = heads[there], first[there], end[there]
            at = first.copy()
            for i in np.flatnonzero(end - first > 1).tolist():
                of_id = ns[tails[first[i] : end[i]]]
                at[i] = first[i] + max(0, int(np.searchsorted(of_id, ns[heads[i]], side="right")) - 1)
            self._pairs[number].add(_pair(ends, tails[at], heads))
            if number in _TO_DEVICE:
                left = np.setdiff1d(tails, tails[at])
                alone[number] = {"tail_thread": ends["thread"][left], "tail_ns": ends["ns"][left]}
        return alone


class _Table:
    """Columns that grow together."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = {name: Grown(kind) for name, kind in columns.items()}

    def add(self, columns: Mapping[str, Any]) -> None:
        """Append rows."""
        for name, values in columns.items():
            self._columns[name].extend(values)

    def take(self) -> dict[str, Any]:
        """The columns as they came; the table is empty then."""
        return {name: column.take() for name, column in self._columns.items()}


def _lost(parts: Mapping[int, list[tuple[Any, Any]]], names: Any) -> LostLaunches:
    """The launches without kernels, by the category of arrows that lost the most: several lead to one kernel."""
    most = max(parts.values(), key=lambda of: sum(len(ns) for ns, _ in of))
    issued = np.concatenate([ns for ns, _ in most])
    rows = np.concatenate([row for _, row in most])
    name = np.where(rows != NO_ROW, names[rows], 0) if len(names) else np.zeros_like(rows)  # no name: no row has one
    return LostLaunches(issued, name.astype(np.int32))


def _pair(ends: Mapping[str, Any], tails: Any, heads: Any) -> dict[str, Any]:
    return {
        "tail_thread": ends["thread"][tails],
        "tail_ns": ends["ns"][tails],
        "head_thread": ends["thread"][heads],
        "head_ns": ends["ns"][heads],
    }


def _met(code: Any, key: Any, head: Any) -> tuple[Any, Any]:
    """The places of tails and heads of ids that have one of each here, pair by pair."""
    order = np.lexsort((head, key, code))
    same = (key[order][1:] == key[order][:-1]) & (code[order][1:] == code[order][:-1])
    alone = same.copy()  # neither the one before nor the one behind is of this id too
    alone[1:] &= ~same[:-1]
    alone[:-1] &= ~same[1:]
    first = np.flatnonzero(alone)
    tails, heads = order[first], order[first + 1]
    both = ~head[tails] & head[heads]
    return tails[both], heads[both]


def _numbers(ids: Sequence[int | str | None]) -> Int64:
    """Ids as numbers; mostly all of them are digits of a number that fits."""
    try:
        numbers = np.array([int(given) for given in ids], dtype=np.int64)  # type: ignore[arg-type]
        if (numbers >= 0).all():
            return numbers
    except (TypeError, ValueError, OverflowError):
        pass
    return np.array([_number(given) for given in ids], dtype=np.int64)


def _number(given: int | str | None) -> int:
    """An id as a number of 63 bits: itself where it fits, else a digest."""
    if type(given) is str:
        given = int(given) if given.isdecimal() and len(given) < 20 else given
    if type(given) is int and 0 <= given < 2**63:
        return given
    return int.from_bytes(blake2b(str(given).encode("utf-8", "replace"), digest_size=8).digest(), "big") >> 1


def enclosing(columns: Mapping[str, Any], keys: Int32, threads: Sequence[ThreadOf], launched: Int32) -> Int32:
    """`launched`, completed: CANN's calls that nobody launched get the call of Python that encloses them."""
    completed = launched.copy()
    _Rows(columns, keys, threads).enclose(completed)
    return completed


class _Rows:
    """Finds rows by place: thread by thread, so that no second table of all rows is made."""

    def __init__(self, columns: Mapping[str, Any], keys: Any, threads: Sequence[ThreadOf]) -> None:
        self.start, self.duration, self.kind = columns["start_ns"], columns["duration_ns"], columns["kind"]
        self.keys = keys
        self.order: Int32 | None = None
        self.bounds: Any = None
        if len(threads) > _FEW_THREADS:
            self.order = np.argsort(keys, kind="stable").astype(np.int32)
            self.bounds = np.concatenate(([0], np.cumsum(np.bincount(keys, minlength=len(threads)))))
        self.threads = threads
        # Threads of one tid are one thread to the system, though CANN's calls have a process of their own.
        self.python: dict[int | str, list[int]] = {}
        for number, thread in enumerate(threads):
            if thread.process == "Python":
                self.python.setdefault(thread.tid, []).append(number)

    def starting(self, thread: Any, ns: Int64) -> Int32:
        """The row of `thread` that starts at `ns` (the longest of several), NO_ROW where there is none."""
        rows_at = np.full(len(ns), NO_ROW, dtype=np.int32)
        for number, here in _parts(thread):
            rows = self._rows([number])
            at = np.searchsorted(self.start[rows], ns[here])
            ok = at < len(rows)
            row = rows[at[ok]]
            exact = self.start[row] == ns[here[ok]]
            rows_at[here[ok][exact]] = row[exact]
        return rows_at

    def around(self, thread: Any, ns: Int64) -> Int32:
        """The innermost host row of `thread` that `ns` lies in; of its tid in Python where its own thread has none."""
        rows_at = np.full(len(ns), NO_ROW, dtype=np.int32)
        for number, here in _parts(thread):
            own = [number] if self.threads[number].process in HOST else []
            rows_at[here] = self._innermost(own, ns[here])
            rest = here[rows_at[here] == NO_ROW]
            if len(rest):
                rows_at[rest] = self._innermost(self.python.get(self.threads[number].tid, []), ns[rest])
        return rows_at

    def enclose(self, launched: Int32) -> None:
        """Give CANN's calls that nobody launched the call of Python that encloses them on the same thread."""
        for number, thread in enumerate(self.threads):
            if thread.process == "CANN" and thread.tid in self.python:
                rows = self._of(number)
                rows = rows[launched[rows] == NO_ROW]
                launched[rows] = self._innermost(self.python[thread.tid], self.start[rows])

    def _of(self, number: int) -> Int32:
        """The rows of a thread, as they lie."""
        if self.order is None or self.bounds is None:
            own: Int32 = np.flatnonzero(self.keys == number).astype(np.int32)
            return own
        within: Int32 = self.order[self.bounds[number] : self.bounds[number + 1]]
        return within

    def _rows(self, numbers: Sequence[int]) -> Int32:
        """The rows of some threads in order of start, the longer first; marks of steps are left out."""
        rows = np.concatenate([self._of(number) for number in numbers])
        rows = rows[self.kind[rows] != Kind.STEP]
        starts = self.start[rows]
        if (starts[1:] > starts[:-1]).all():  # a thread's calls mostly stand in the file as they were made
            in_order: Int32 = rows
        else:
            in_order = rows[np.lexsort((-self.duration[rows], starts))]
        return in_order

    def _innermost(self, numbers: Sequence[int], ns: Int64) -> Int32:
        """The last row of these threads that starts at or before `ns` and does not end before it."""
        rows_at = np.full(len(ns), NO_ROW, dtype=np.int32)
        if not numbers or not len(ns):
            return rows_at
        rows = self._rows(numbers)
        ends = self.start[rows] + self.duration[rows]
        at = np.searchsorted(self.start[rows], ns, side="right") - 1
        still = np.arange(len(ns))
        for _ in range(_MAX_DEPTH):
            still, at = still[at >= 0], at[at >= 0]
            if not len(at):
                break
            inside = ends[at] >= ns[still]
            rows_at[still[inside]] = rows[at[inside]]
            still, at = still[~inside], at[~inside] - 1
        return rows_at


def _parts(thread: Any) -> Iterator[tuple[int, Any]]:
    """Each thread with the places where it stands."""
    order = np.argsort(thread, kind="stable")
    numbers, starts = np.unique(thread[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(order, starts[1:]), strict=True) if len(numbers) else ()
