"""Arrows of a trace: which host call issued which kernel.

`HostToDevice` leads from CANN's call to the device, `async_task_queue` from the call that enqueued to the one that
dequeued, `async_npu` from torch's operator to the device; `ac2g` is CUDA's from the runtime call to the kernel. An
arrow's ends are places, (pid, tid, ts): the head begins exactly at its slice, the tail lies inside its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from device.profiles.json_events import Event
from device.profiles.times import all_ns_of_us
from scenarios.profile.table import NO_ROW, Int32, Int64, Kind

#: Categories of arrows that say who launched what; of two that lead to one row the first here counts.
ARROWS = ("HostToDevice", "ac2g", "async_task_queue", "async_npu")

_CODES = {name: code for code, name in enumerate(ARROWS)}
HOST = ("Python", "CANN")
#: How deep calls nest at most between a call and the one that encloses it.
_MAX_DEPTH = 512


@dataclass(frozen=True, slots=True)
class ThreadOf:
    """What the search needs of a thread: its number in the system, and the process of its lane, "" for none."""

    tid: int | str
    process: str


class Flows:
    """Tails and heads as they come, matched by category and id at the end."""

    def __init__(self) -> None:
        self._parts: dict[str, list[np.ndarray[Any, Any]]] = {
            name: [] for name in ("code", "key", "thread", "head", "ns")
        }

    def add(self, events: Sequence[Event], threads: Sequence[int]) -> None:
        """Take in events of phase s and f in categories of ARROWS; `threads` are the numbers of their (pid, tid).

        Raises NotATime for a time that is none.
        """
        if not events:
            return
        columns: tuple[tuple[str, Any, Any], ...] = (
            ("code", [_CODES[event.cat] for event in events], np.int8),
            ("key", [_number(event.id) for event in events], np.int64),
            ("thread", threads, np.int32),
            ("head", [event.ph == "f" for event in events], np.int8),
            ("ns", all_ns_of_us([event.ts for event in events]), np.int64),
        )
        for name, values, kind in columns:
            self._parts[name].append(np.asarray(values, dtype=kind))

    def resolve(self, columns: Mapping[str, Any], keys: Int32, threads: Sequence[ThreadOf]) -> tuple[Int32, Int32]:
        """`launched_by` and `issued_after_ns` for each row. keys: the number of each row's thread in `threads`."""
        rows = _Rows(columns, keys, threads)
        launched = np.full(len(keys), NO_ROW, dtype=np.int32)
        after = np.zeros(len(keys), dtype=np.int32)
        start = columns["start_ns"]
        category, key, thread, head, ns = self._columns()
        for code in range(len(ARROWS)):
            tails, heads = (np.flatnonzero((category == code) & (head == is_head)) for is_head in (0, 1))
            if not len(tails) or not len(heads):
                continue
            heads, tails = _paired(key, ns, heads, tails)
            targets = rows.beginning(thread[heads], ns[heads])
            sources = rows.around(thread[tails], ns[tails])
            ok = (targets != NO_ROW) & (sources != NO_ROW) & (targets != sources)
            targets, sources, issued = targets[ok], sources[ok], ns[tails[ok]]
            new = launched[targets] == NO_ROW
            launched[targets[new]] = sources[new]
            after[targets[new]] = np.clip(issued[new] - start[sources[new]], 0, 2**31 - 1)
        rows.enclose(launched)
        return launched, after

    def _columns(self) -> tuple[Any, ...]:
        parts = self._parts
        self._parts = {name: [] for name in parts}
        return tuple(np.concatenate(parts[name]) if parts[name] else np.empty(0, np.int64) for name in parts)


def _paired(key: Int64, ns: Int64, heads: Any, tails: Any) -> tuple[Any, Any]:
    """Each head with its tail: of the same id; where an id comes back, the last tail that is not behind the head."""
    tails = tails[np.lexsort((ns[tails], key[tails]))]
    keys = key[tails]
    first, end = (np.searchsorted(keys, key[heads], side=side) for side in ("left", "right"))
    there = end > first
    heads, first, end = heads[there], first[there], end[there]
    at = first.copy()
    for i in np.flatnonzero(end - first > 1).tolist():
        of_id = ns[tails[first[i] : end[i]]]
        at[i] = first[i] + max(0, int(np.searchsorted(of_id, ns[heads[i]], side="right")) - 1)
    return heads, tails[at]


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

    def __init__(self, columns: Mapping[str, Any], keys: Int32, threads: Sequence[ThreadOf]) -> None:
        self.start, self.duration, self.kind = columns["start_ns"], columns["duration_ns"], columns["kind"]
        self.order = np.argsort(keys, kind="stable").astype(np.int32)
        self.bounds = np.concatenate(([0], np.cumsum(np.bincount(keys, minlength=len(threads)))))
        self.threads = threads
        # Threads of one tid are one thread to the system, though CANN's calls have a process of their own.
        self.python: dict[int | str, list[int]] = {}
        for number, thread in enumerate(threads):
            if thread.process == "Python":
                self.python.setdefault(thread.tid, []).append(number)

    def beginning(self, thread: Int32, ns: Int64) -> Int32:
        """The row of `thread` that begins at `ns` (the longest of several), NO_ROW where there is none."""
        found = np.full(len(ns), NO_ROW, dtype=np.int32)
        for number, here in _parts(thread):
            rows = self._rows([number])
            at = np.searchsorted(self.start[rows], ns[here])
            ok = at < len(rows)
            row = rows[at[ok]]
            exact = self.start[row] == ns[here[ok]]
            found[here[ok][exact]] = row[exact]
        return found

    def around(self, thread: Int32, ns: Int64) -> Int32:
        """The innermost host row of `thread` that `ns` lies in; of its tid in Python where its own thread has none."""
        found = np.full(len(ns), NO_ROW, dtype=np.int32)
        for number, here in _parts(thread):
            own = [number] if self.threads[number].process in HOST else []
            found[here] = self._innermost(own, ns[here])
            rest = here[found[here] == NO_ROW]
            if len(rest):
                found[rest] = self._innermost(self.python.get(self.threads[number].tid, []), ns[rest])
        return found

    def enclose(self, launched: Int32) -> None:
        """Give CANN's calls that nobody launched the call of Python that encloses them on the same thread."""
        for number, thread in enumerate(self.threads):
            if thread.process == "CANN" and thread.tid in self.python:
                rows = self.order[self.bounds[number] : self.bounds[number + 1]]
                rows = rows[launched[rows] == NO_ROW]
                launched[rows] = self._innermost(self.python[thread.tid], self.start[rows])

    def _rows(self, numbers: Sequence[int]) -> Int32:
        """The rows of some threads in order of start, the longer first; marks of steps are left out."""
        rows = np.concatenate([self.order[self.bounds[n] : self.bounds[n + 1]] for n in numbers])
        rows = rows[self.kind[rows] != Kind.STEP]
        ordered: Int32 = rows[np.lexsort((-self.duration[rows], self.start[rows]))]
        return ordered

    def _innermost(self, numbers: Sequence[int], ns: Int64) -> Int32:
        """The last row of these threads that begins at or before `ns` and does not end before it."""
        found = np.full(len(ns), NO_ROW, dtype=np.int32)
        if not numbers or not len(ns):
            return found
        rows = self._rows(numbers)
        ends = self.start[rows] + self.duration[rows]
        at = np.searchsorted(self.start[rows], ns, side="right") - 1
        still = np.arange(len(ns))
        for _ in range(_MAX_DEPTH):
            still, at = still[at >= 0], at[at >= 0]
            if not len(at):
                break
            inside = ends[at] >= ns[still]
            found[still[inside]] = rows[at[inside]]
            still, at = still[~inside], at[~inside] - 1
        return found


def _parts(thread: Int32) -> Iterator[tuple[int, Any]]:
    """Each thread with the places where it stands."""
    order = np.argsort(thread, kind="stable")
    numbers, begins = np.unique(thread[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(order, begins[1:]), strict=True) if len(numbers) else ()
