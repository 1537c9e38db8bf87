"""Rows of a profile gathered part by part, then put in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from device.profiles.files import LIMITS, fail
from scenarios.profile.table import COLUMN_TYPES, FACTS, NO_ROW, Events, Facts, Lane


class Texts(dict[str, int]):
    """Each text once, by number; the first is "". Refuses a file whose texts take more than the limit."""

    def __init__(self, path: Path) -> None:
        super().__init__({"": 0})
        self._path, self._chars = path, 0

    def __missing__(self, text: str) -> int:
        self._chars += len(text) + 64
        if self._chars > LIMITS.text_bytes:
            fail(self._path, f"its names and shapes take more than {LIMITS.text_bytes // 2**20} MiB")
        number = self[text] = len(self)
        return number

    def tuple(self) -> tuple[str, ...]:
        """The texts in order of their numbers."""
        return tuple(self)


class FactTable(dict[tuple[int, ...], int]):
    """Each combination of FACTS once, by number; number 0 knows nothing."""

    def __init__(self, path: Path) -> None:
        super().__init__({(0,) * len(FACTS): 0})
        self._path = path

    def __missing__(self, fact: tuple[int, ...]) -> int:
        if len(self) >= LIMITS.facts:
            fail(self._path, f"has more than {LIMITS.facts:,} different kernels; profile fewer steps")
        number = self[fact] = len(self)
        return number

    def facts(self) -> Facts:
        """The combinations as columns."""
        return Facts(*np.array(list(self), dtype=np.int32).T.copy())


class Columns:
    """Columns of `Events` that grow. Missing columns of a part are 0, `launched_by` is NO_ROW."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: dict[str, list[np.ndarray[Any, Any]]] = {name: [] for name in COLUMN_TYPES}
        self.count = 0

    def add(self, **columns: Any) -> None:
        """Append rows; one of the columns must be `start_ns`."""
        count = len(columns["start_ns"])
        self.count += count
        if self.count > LIMITS.events:
            fail(self._path, f"holds more than {LIMITS.events:,} events; profile fewer steps")
        for name, kind in COLUMN_TYPES.items():
            part = columns.get(name)
            if part is None:
                fill = NO_ROW if name == "launched_by" else 0
                self._parts[name].append(np.broadcast_to(np.asarray(fill, dtype=kind), (count,)))
            else:
                self._parts[name].append(np.asarray(part, dtype=kind))

    def take(self) -> dict[str, np.ndarray[Any, Any]]:
        """The columns as they came, each part freed as it is joined."""
        joined = {}
        for name, kind in COLUMN_TYPES.items():
            joined[name] = np.concatenate([np.empty(0, dtype=kind), *self._parts.pop(name)])
        return joined


class Batch:
    """Rows that come one by one, handed to `Columns` in parts, so that few of them are Python objects at a time."""

    SIZE = 1 << 16

    def __init__(self, columns: Columns, *names: str) -> None:
        self._columns, self._names, self._rows = columns, names, list[tuple[int, ...]]()

    @property
    def next_row(self) -> int:
        """The number that the next row gets."""
        return self._columns.count + len(self._rows)

    def row(self, *values: int) -> None:
        """Take in a row: a value for each of the names."""
        self._rows.append(values)
        if len(self._rows) == self.SIZE:
            self.flush()

    def flush(self) -> None:
        """Hand over what is left."""
        if self._rows:
            self._columns.add(**dict(zip(self._names, zip(*self._rows, strict=True), strict=True)))
            self._rows.clear()


def ordered(columns: dict[str, np.ndarray[Any, Any]], facts: Facts) -> Events:
    """The rows in order of start, longer ones first among equals. `columns` is used up."""
    order = np.lexsort((-columns["duration_ns"], columns["start_ns"])).astype(np.int32)
    went = np.empty(len(order), dtype=np.int32)
    went[order] = np.arange(len(order), dtype=np.int32)
    for name in COLUMN_TYPES:  # one after the other: a whole second table would be the most memory that a reader takes
        columns[name] = columns[name][order]
    launched = columns["launched_by"]
    known = launched != NO_ROW
    launched[known] = went[launched[known]]
    return Events(**columns, facts=facts)


class Lanes(dict[Lane, int]):
    """Each lane once, by number."""

    def __missing__(self, lane: Lane) -> int:
        number = self[lane] = len(self)
        return number
