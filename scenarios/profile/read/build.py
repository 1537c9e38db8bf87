"""Rows of a capture gathered part by part, then put in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from scenarios.profile.read.files import LIMITS, CaptureError, fail
from scenarios.profile.table import COLUMN_TYPES, FACTS, NO_ROW, Events, Facts, Lane

#: Threads and streams of a capture: their numbers are 16 bits wide.
MAX_THREADS = 32_000


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


class Grown:
    """A column that grows in place: no list of parts, so joining them takes no second copy."""

    def __init__(self, kind: Any) -> None:
        self._values = np.empty(0, dtype=kind)
        self._used = 0

    def extend(self, values: Any) -> None:
        """Append values."""
        end = self._used + len(values)
        if end > len(self._values):
            # The memory of a large array moves to where there is room; nothing else refers to it.
            self._values.resize(max(4096, end, len(self._values) * 5 // 4), refcheck=False)
        self._values[self._used : end] = values
        self._used = end

    def take(self) -> np.ndarray[Any, Any]:
        """The values; the column is empty then."""
        values, self._values = self._values, np.empty(0, dtype=self._values.dtype)
        values.resize(self._used, refcheck=False)
        self._used = 0
        return values


class Columns:
    """Columns of `Events` that grow. A column that no part has is 0, `launched_by` is NO_ROW."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._columns: dict[str, Grown] = {}
        self.count = 0

    def add(self, **columns: Any) -> None:
        """Append rows; one of the columns must be `start_ns`."""
        before, count = self.count, len(columns["start_ns"])
        self.count += count
        if self.count > LIMITS.events:
            fail(self._path, f"holds more than {LIMITS.events:,} events; profile fewer steps")
        for name, values in columns.items():
            if name not in self._columns:
                self._columns[name] = Grown(COLUMN_TYPES[name])
                self._columns[name].extend(_missing(name, before))
            self._columns[name].extend(values)
        for name in self._columns.keys() - columns.keys():
            self._columns[name].extend(_missing(name, count))

    def take(self) -> dict[str, np.ndarray[Any, Any]]:
        """The columns as they came, those that no part had among them as one value that stands for all."""
        taken = {}
        for name in COLUMN_TYPES:
            column = self._columns.pop(name, None)
            taken[name] = column.take() if column is not None else _missing(name, self.count)
        return taken


def _missing(name: str, count: int) -> np.ndarray[Any, Any]:
    """`count` values of a column that a part does not have."""
    fill = np.asarray(NO_ROW if name == "launched_by" else 0, dtype=COLUMN_TYPES[name])
    return np.broadcast_to(fill, (count,))


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
        if len(self) >= MAX_THREADS:
            raise CaptureError([f"the profile has more than {MAX_THREADS:,} threads and streams"])
        number = self[lane] = len(self)
        return number
