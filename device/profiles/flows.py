"""Arrows of a trace: which host call issued which kernel.

`HostToDevice` leads from CANN's call to the device, `async_task_queue` from the call that enqueued to the one that
dequeued, `async_npu` from torch's operator to the device; `ac2g` is CUDA's from the runtime call to the kernel. An
arrow's ends are places, (pid, tid, ts): the head begins exactly at its slice, the tail lies inside its own.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from device.profiles.json_events import Event
from device.profiles.times import all_ns_of_us
from scenarios.profile.table import NO_ROW, Int32, Int64, Kind, Lane

#: Categories of arrows that say who launched what; of two that lead to one row the first here counts.
ARROWS = ("HostToDevice", "ac2g", "async_task_queue", "async_npu")

#: How deep calls nest at most between a call and the one that encloses it.
_MAX_DEPTH = 512


class Flows:
    """Tails and heads as they come, matched by category and id at the end."""

    def __init__(self) -> None:
        self._category, self._key, self._thread = array("b"), array("q"), array("i")
        self._head = array("b")
        self._times: list[str] = []
        self._ns: list[Int64] = []

    def add(self, event: Event, thread: int) -> None:
        """Take in an event of phase s or f; `thread` is the number of its (pid, tid)."""
        if event.ph == "t" or not event.ts:
            return
        self._category.append(ARROWS.index(event.cat))
        self._key.append(_number(event.id))
        self._thread.append(thread)
        self._head.append(event.ph == "f")
        self._times.append(event.ts)
        if len(self._times) >= 1 << 16:
            self._flush()

    def _flush(self) -> None:
        self._ns.append(all_ns_of_us(self._times))
        self._times = []

    def resolve(
        self,
        columns: Mapping[str, Any],
        keys: Int32,
        threads: Sequence[tuple[int | str, int | str]],
        lanes: Sequence[Lane],
        lane_of: Int32,
    ) -> Int32:
        """`launched_by` for each row. keys: the thread number of each row. lane_of: the lane of a thread, or -1."""
        self._flush()
        rows = _Rows(columns, keys, threads, lanes)
        launched = np.full(len(keys), NO_ROW, dtype=np.int32)
        category, key, thread, head, ns = self._columns()
        for code in range(len(ARROWS)):
            tails, heads = (np.flatnonzero((category == code) & (head == is_head)) for is_head in (0, 1))
            if not len(tails) or not len(heads):
                continue
            order = tails[np.argsort(key[tails], kind="stable")]
            at = np.searchsorted(key[order], key[heads])
            at[at == len(order)] = 0
            same = key[order[at]] == key[heads]
            heads, tails = heads[same], order[at[same]]
            targets = rows.beginning(thread[heads], ns[heads])
            sources = rows.around(thread[tails], ns[tails])
            ok = (targets != NO_ROW) & (sources != NO_ROW) & (targets != sources)
            targets, sources = targets[ok], sources[ok]
            new = launched[targets] == NO_ROW
            launched[targets[new]] = sources[new]
        rows.enclose(launched)
        return launched

    def _columns(self) -> tuple[Any, ...]:
        return (
            np.frombuffer(self._category, dtype=np.int8) if self._category else np.empty(0, np.int8),
            np.frombuffer(self._key, dtype=np.int64) if self._key else np.empty(0, np.int64),
            np.frombuffer(self._thread, dtype=np.int32) if self._thread else np.empty(0, np.int32),
            np.frombuffer(self._head, dtype=np.int8) if self._head else np.empty(0, np.int8),
            np.concatenate([np.empty(0, np.int64), *self._ns]),
        )


def _number(given: int | str | None) -> int:
    """An id as a number of 63 bits: itself where it fits, else a digest."""
    try:
        number = int(given) if given is not None else 0
    except ValueError:
        number = -1
    if 0 <= number < 2**63:
        return number
    return int.from_bytes(blake2b(str(given).encode("utf-8", "replace"), digest_size=8).digest(), "big") >> 1


class _Rows:
    """Finds rows by place. Host rows are found by thread and the time inside them, all rows by their begin."""

    def __init__(
        self,
        columns: Mapping[str, Any],
        keys: Int32,
        threads: Sequence[tuple[int | str, int | str]],
        lanes: Sequence[Lane],
    ) -> None:
        self.start, self.end = columns["start_ns"], columns["start_ns"] + columns["duration_ns"]
        self.keys = keys
        self.order = np.lexsort((-columns["duration_ns"], self.start, keys))
        self.kind = columns["kind"]
        host = np.asarray([lane.process in ("Python", "CANN") for lane in lanes] or [False])
        python = np.asarray([lane.process == "Python" for lane in lanes] or [False])
        self.host, self.python = host[columns["lane"]], python[columns["lane"]]
        # Threads of one tid are one thread to the system, though CANN's calls have a process of their own.
        tids: dict[int | str, int] = {}
        self.tid = np.asarray([tids.setdefault(tid, len(tids)) for _, tid in threads] or [0], dtype=np.int32)

    def beginning(self, thread: Int32, ns: Int64) -> Int32:
        """The device row of `thread` that begins at `ns`, NO_ROW where there is none."""
        device = self.order[~self.host[self.order]]
        at = _pair_search(self.keys[device], self.start[device], thread, ns)
        ok = at < len(device)
        found = np.full(len(ns), NO_ROW, dtype=np.int32)
        row = device[at[ok]]
        exact = (self.keys[row] == thread[ok]) & (self.start[row] == ns[ok])
        found[np.flatnonzero(ok)[exact]] = row[exact]
        rest = np.flatnonzero(found == NO_ROW)
        if len(rest):  # a head on the host: what was dequeued
            host = self.order[self.host[self.order]]
            at = _pair_search(self.keys[host], self.start[host], thread[rest], ns[rest])
            ok = at < len(host)
            row = host[at[ok]]
            exact = (self.keys[row] == thread[rest][ok]) & (self.start[row] == ns[rest][ok])
            found[rest[np.flatnonzero(ok)[exact]]] = row[exact]
        return found

    def around(self, thread: Int32, ns: Int64) -> Int32:
        """The innermost host row of `thread` that `ns` lies in; of its tid in Python where its own thread has none."""
        host = self.order[self.host[self.order]]
        found = self._innermost(host, self.keys[host], thread, ns)
        rest = np.flatnonzero(found == NO_ROW)
        if len(rest):
            python = self._by_tid()
            found[rest] = self._innermost(python, self.tid[self.keys[python]], self.tid[thread[rest]], ns[rest])
        return found

    def enclose(self, launched: Int32) -> None:
        """Give CANN's calls that nobody launched the call of Python that encloses them on the same thread."""
        cann = np.flatnonzero(self.host & ~self.python & (launched == NO_ROW))
        if len(cann):
            python = self._by_tid()
            launched[cann] = self._innermost(
                python, self.tid[self.keys[python]], self.tid[self.keys[cann]], self.start[cann]
            )

    def _by_tid(self) -> Any:
        python = np.flatnonzero(self.python & (self.kind == Kind.HOST))
        return python[np.lexsort((-(self.end - self.start)[python], self.start[python], self.tid[self.keys[python]]))]

    def _innermost(self, rows: Any, of: Any, thread: Any, ns: Int64) -> Int32:
        """The last of `rows` (in order of `of`, then start) that begins at or before `ns` and ends after it."""
        found = np.full(len(ns), NO_ROW, dtype=np.int32)
        at = _pair_search(of, self.start[rows], thread, ns, right=True) - 1
        open_ = np.arange(len(ns))
        for _ in range(_MAX_DEPTH):
            keep = at >= 0
            keep[keep] = of[at[keep]] == thread[open_[keep]]
            at, open_ = at[keep], open_[keep]
            if not len(at):
                break
            inside = self.end[rows[at]] >= ns[open_]
            found[open_[inside]] = rows[at[inside]]
            at, open_ = at[~inside] - 1, open_[~inside]
        return found


def _pair_search(first: Any, second: Int64, want_first: Any, want_second: Int64, right: bool = False) -> Any:
    """`searchsorted` in rows that are in order of (first, second)."""
    begins = np.searchsorted(first, want_first, side="left")
    ends = np.searchsorted(first, want_first, side="right")
    low, high = begins.copy(), ends.copy()
    while (open_ := low < high).any():
        middle = (low + high) // 2
        at = np.minimum(middle, len(second) - 1)
        below = open_ & ((second[at] <= want_second) if right else (second[at] < want_second))
        above = open_ & ~below
        low[below], high[above] = middle[below] + 1, middle[above]
    return low
