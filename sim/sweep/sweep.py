"""A sweep from its grid to its table: what is there already is kept, the rest is predicted."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

from scenarios.errors import ScenarioError, printable
from scenarios.records import dataclass
from sim.sweep.point import Result, hash_at
from sim.sweep.space import Point, Space, Value, text_of
from sim.sweep.store import Store, grid_of
from sim.sweep.workers import on_dask, on_processes

#: A number that stands by itself: no part of a name such as Qwen3-8B or atlas_a2_910b2.
_COUNT = re.compile(r"(?<![\w/.-])[0-9]+(?:[.,][0-9]+)*(?![\w-])")
#: Points that are tried for one that says what the scenario resolves to.
TRIED = 64
_SHARD = re.compile(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})")


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `number` of `count` of a grid: every count-th point, so that neighbours, which take alike, are shared
    out."""

    number: int
    count: int

    def has(self, place: int) -> bool:
        return place % self.count == self.number - 1


def shard_of(text: str) -> Shard:
    """`2/8`. Raises ScenarioError."""
    match = _SHARD.fullmatch(text)
    if not match or int(match[1]) > int(match[2]):
        raise ScenarioError([f"--shard: '{printable(text, 20)}' is no i/N such as 2/8, with i from 1 to N"])
    return Shard(int(match[1]), int(match[2]))


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep comes to. kept: points that an earlier run had done. reasons: why points were skipped or failed,
    with the status, the most first."""

    space: Space
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    kept: int
    statuses: dict[str, int]
    reasons: dict[tuple[str, str], int]


def digest(space: Space) -> str:
    """What says that two files hold points of one grid over one scenario: a file that was edited in between gives other
    results for the same points."""
    blocks = [list(map(dict, block)) for block in space.blocks]
    resolved = next(filter(None, (hash_at(space.scenario, point) for point in islice(space.points(), TRIED))), "")
    text = json.dumps([space.scenario, space.grid.set, blocks, resolved], default=list)
    return sha256(text.encode()).hexdigest()[:32]


def sweep(
    space: Space, store_path: Path, shard: Shard | None, jobs: int, dask: str, say: Callable[[str], None]
) -> Swept:
    """Predict the points of `space` that `store_path` does not have yet, and read the table.

    shard: only its points; without one, files of shards next to `store_path` are taken in first. dask: the address of
    a cluster; "" for `jobs` processes here. Raises ScenarioError where the files or the cluster cannot be used.
    """
    store = Store(store_path, digest(space))
    try:
        if shard is None:
            for path in shards_of(store_path):
                if grid_of(path) == digest(space):
                    store.adopt(path)
        done = store.places()
        todo = [p for p in space.points() if p.place not in done and (shard is None or shard.has(p.place))]
        progress = _Progress(len(todo), say)
        work = on_dask(space.scenario, iter(todo), dask) if dask else on_processes(space.scenario, iter(todo), jobs)
        for part in work:
            store.add(part)
            progress.add(part)
        say("")
        return _table(space, store, len(done))
    finally:
        store.close()


def shard_path(store_path: Path, shard: Shard) -> Path:
    """The file of one shard, next to that of the whole sweep."""
    return store_path.with_name(f"{store_path.stem}.shard-{shard.number}-of-{shard.count}{store_path.suffix}")


def shards_of(store_path: Path) -> list[Path]:
    """The files of shards next to `store_path`."""
    return sorted(store_path.parent.glob(f"{store_path.stem}.shard-*-of-*{store_path.suffix}"))


def _table(space: Space, store: Store, kept: int) -> Swept:
    stored = list(store.rows())
    names = dict.fromkeys(name for *_, metrics in stored for name in metrics)
    columns = ("place", "hash", *space.keys, "status", "reason", *names)
    by_place = {point.place: point for point in _some(space, {row[0] for row in stored})}
    rows = []
    for place, key, status, reason, metrics in stored:
        values = by_place[place].values
        swept = (_cell(values.get(k)) for k in space.keys)
        rows.append((place, key, *swept, status, reason, *(metrics.get(name) for name in names)))
    reasons = Counter((row[2], _kind(row[3])) for row in stored if row[2] != "done")
    return Swept(
        space=space,
        columns=columns,
        rows=tuple(rows),
        kept=kept,
        statuses=dict(Counter(row[2] for row in stored)),
        reasons=dict(reasons.most_common()),
    )


def _cell(value: Value) -> Any:
    """A swept value in a table: a list or a mapping as its JSON text."""
    return text_of(value) if isinstance(value, tuple | dict) else value


def _some(space: Space, places: set[int]) -> Iterator[Point]:
    return (point for point in space.points() if point.place in places)


def _kind(reason: str) -> str:
    """A reason without its numbers and its setting, so that reasons of one kind are counted together."""
    text = re.sub(r"^--set [^ ]+: ", "", reason)
    return _COUNT.sub("N", text)


class _Progress:
    """Says how far a sweep is, at most about once a second."""

    def __init__(self, count: int, say: Callable[[str], None]) -> None:
        self._count, self._say = count, say
        self._done, self._start, self._said = 0, monotonic(), float("-inf")

    def add(self, part: list[tuple[int, Result]]) -> None:
        self._done += len(part)
        now = monotonic()
        if now - self._said < 1:
            return
        self._said = now
        left_s = (now - self._start) / self._done * (self._count - self._done)
        left = f"{left_s:.0f} s" if left_s < 100 else f"{left_s / 60:.0f} min"
        self._say(f"{self._done:,} of {self._count:,} points, about {left} left")
