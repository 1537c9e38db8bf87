"""A grid file: which points a sweep has, in which order. The same file gives the same points, whoever works on them.

    scenario: qwen3_32b_tp16_decode
    set: [optimizations.graph=aclgraph]                  # for every point
    grid:                                                # every combination
      workload.batch: {from: 1, to: 64, times: 4}
      engine.tensor_parallel_size: [4, 8, 16]
    zip:                                                 # values that go together
      - {workload.input_tokens: [1024, 4096], workload.output_tokens: [256, 1024]}
    list:                                                # one entry after the other
      - {optimizations.weights: bf16}
      - {optimizations.weights: w8a8, optimizations.kv.dtype: int8}
    random: {count: 100, seed: 0, of: {workload.context_tokens: {from: 100, to: 100000, log: true}}}

Points are all combinations of grid, each zip, the list and the random draws; the last key named changes first.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from math import exp, log
from pathlib import Path
from random import Random
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from scenarios.errors import ScenarioError, did_you_mean, printable, quoted
from scenarios.files.document import Document, parse_path
from scenarios.files.model_walk import known_keys, places, slots_at
from scenarios.files.validation import validate
from scenarios.files.yaml12 import read_document
from scenarios.files.yaml_scalars import resolve_scalar
from scenarios.loader import read_base, shape_problems
from scenarios.records import dataclass
from scenarios.schema import Scenario

#: Points beyond this are a slip of the hand: at 10 ms each they take three hours on one core.
MAX_POINTS = 1_000_000
#: The folder of the grids that come with the package.
SHIPPED = Path(__file__).parent

Scalar = StrictBool | StrictInt | StrictFloat | StrictStr | None
#: A mapping stands for a whole part of a scenario, such as engine.speculative_config; null for none of it.
Value = Scalar | tuple[StrictInt, ...] | dict[StrictStr, Scalar]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Steps(_Part):
    """Values from `from` to `to`, both taken where they are met: each `times` the one before, or `step` more."""

    start: Annotated[StrictInt | StrictFloat, Field(alias="from")]
    to: StrictInt | StrictFloat
    times: Annotated[StrictInt | StrictFloat, Field(gt=1)] | None = None
    step: Annotated[StrictInt | StrictFloat, Field(gt=0)] | None = None

    def values(self) -> list[Value]:
        if (self.times is None) == (self.step is None):
            raise ValueError("give either times or step")
        if self.times is not None and self.start <= 0:
            raise ValueError("times needs a start above 0")
        values: list[Value] = []
        value = self.start
        while value <= self.to and len(values) <= MAX_POINTS:
            values.append(value)
            value = value * self.times if self.times is not None else value + (self.step or 0)
        return values


class Range(_Part):
    """What a draw lies in, both ends included: whole numbers where both ends are whole; log: evenly in logarithms."""

    start: Annotated[StrictInt | StrictFloat, Field(alias="from")]
    to: StrictInt | StrictFloat
    log: StrictBool = False

    def draw(self, random: Random) -> Value:
        low, high = self.start, self.to
        if not low <= high or (self.log and low <= 0):
            raise ValueError(f"from {low} to {high} is no range to draw from")
        whole = isinstance(low, int) and isinstance(high, int)
        if self.log:
            value = exp(random.uniform(log(low), log(high)))
            return min(max(round(value), low), high) if whole else value
        return (
            random.randint(low, high) if isinstance(low, int) and isinstance(high, int) else random.uniform(low, high)
        )


class Draws(_Part):
    count: Annotated[StrictInt, Field(ge=1, le=MAX_POINTS)]
    seed: StrictInt = 0
    of: Annotated[dict[str, Range | tuple[Value, ...]], Field(min_length=1)]


class Grid(_Part):
    """One grid file."""

    description: str = ""
    scenario: Annotated[str, Field(min_length=1, max_length=4096)]
    set: tuple[StrictStr, ...] = ()
    grid: dict[str, Steps | tuple[Value, ...]] = {}
    zip: tuple[dict[str, tuple[Value, ...]], ...] = ()
    list: tuple[dict[str, Value], ...] = ()
    random: Draws | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """One scenario of a sweep. place: its number in the grid. values: of the swept keys. sets: all its settings."""

    place: int
    values: dict[str, Value]
    sets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Space:
    """A grid file, read and checked. scenario: as it is found from the grid's folder. keys: swept, in order."""

    path: Path
    grid: Grid
    scenario: str
    keys: tuple[str, ...]
    blocks: tuple[tuple[Mapping[str, Value], ...], ...]

    def __len__(self) -> int:
        count = 1
        for block in self.blocks:
            count *= len(block)
        return count

    def points(self) -> Iterator[Point]:
        """Every point, in order."""
        for place, parts in enumerate(product(*self.blocks)):
            values = {key: value for part in parts for key, value in part.items()}
            yield Point(place, values, (*self.grid.set, *(f"{k}={text_of(v)}" for k, v in values.items())))


def shipped_grids() -> list[str]:
    """Names of the grids that come with the package, sorted."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def grid_file(given: str) -> Path:
    """The file of a grid: as it is named, or a shipped one by its name. Raises ScenarioError with the nearest name."""
    if os.path.isfile(given):
        return Path(given)
    if given in shipped_grids():
        return SHIPPED / f"{given}.yaml"
    raise ScenarioError([f"{printable(given, 200)}: no such grid{did_you_mean(given, shipped_grids())}"])


def read_space(path: Path) -> Space:
    """The points of a grid file. Raises ScenarioError: file, line and column of a key that no scenario has or that is
    swept twice, of an empty or unequal axis, of more than MAX_POINTS points, of what no point could make right."""
    document = read_document(path)
    grid = validate(document, Grid)
    blocks: list[tuple[Mapping[str, Value], ...]] = []
    for key, axis in grid.grid.items():
        _known(document, ("grid", key), key)
        values = _of(document, ("grid", key), axis.values) if isinstance(axis, Steps) else list(axis)
        if not values:
            raise ScenarioError([f"{document.mark(('grid', key))}: grid.{key}: holds no value"])
        blocks.append(tuple({key: value} for value in values))
    for i, group in enumerate(grid.zip):
        blocks.append(_zipped(document, i, group))
    for i, entry in enumerate(grid.list):
        for key in entry:
            _known(document, ("list", i, key), key)
    if grid.list:
        blocks.append(grid.list)
    if grid.random is not None:
        blocks.append(_drawn(document, grid.random))
    keys = tuple(dict.fromkeys(key for block in blocks for part in block for key in part))
    local = path.parent / grid.scenario
    scenario = str(local) if local.is_file() else grid.scenario
    space = Space(path, grid, scenario, keys, tuple(blocks))
    if len(space) > MAX_POINTS:
        raise ScenarioError([f"{document.mark(())}: {len(space):,} points, more than {MAX_POINTS:,}; sweep fewer"])
    _swept_once(document, grid)
    _possible(document, space)
    return space


def _swept_once(document: Document, grid: Grid) -> None:
    """Raise ScenarioError where two blocks sweep one key, or `set` gives it: one of the two would have no effect."""
    blocks: list[tuple[tuple[str | int, ...], Iterable[str]]] = [(("grid",), grid.grid)]
    blocks += [(("zip", i), group) for i, group in enumerate(grid.zip)]
    blocks.append((("list", 0), dict.fromkeys(key for entry in grid.list for key in entry)))
    blocks.append((("random", "of"), grid.random.of if grid.random else ()))
    seen = {text.partition("=")[0].strip(): "set" for text in grid.set}
    for place, keys in blocks:
        for key in keys:
            if key in seen:
                at = next((i for i, entry in enumerate(grid.list) if key in entry), 0) if place[0] == "list" else None
                mark = document.key_mark((*(place if at is None else ("list", at)), key))
                raise ScenarioError([f"{mark}: {key}: {seen[key]} has it already"])
        seen |= dict.fromkeys(keys, str(place[0]))


def _possible(document: Document, space: Space) -> None:
    """Raise ScenarioError for what is wrong in every point: the scenario, or what `set` lays on it."""
    try:
        base = read_base(space.scenario)
    except ScenarioError as error:
        raise ScenarioError(f"{document.mark(('scenario',))}: scenario: {line}" for line in error.messages) from None
    places = {f"--set {text}": document.mark(("set", i)) for i, text in enumerate(space.grid.set)}
    swept = tuple(f"--set {key}=" for key in space.keys)  # these are points that are skipped
    wrong = [line for line in shape_problems(base, next(space.points()).sets) if not line.startswith(swept)]
    for given, place in places.items():
        wrong = [f"{place}: set{line.removeprefix(given)}" if line.startswith(f"{given}: ") else line for line in wrong]
    if wrong:
        raise ScenarioError(wrong)


def _zipped(document: Document, number: int, group: Mapping[str, tuple[Value, ...]]) -> tuple[Mapping[str, Value], ...]:
    for key in group:
        _known(document, ("zip", number, key), key)
    lengths = {key: len(values) for key, values in group.items()}
    if len(set(lengths.values())) != 1 or 0 in lengths.values():
        counts = ", ".join(f"{key} {count}" for key, count in lengths.items())
        raise ScenarioError(
            [f"{document.mark(('zip', number))}: zip[{number}]: values go together: {counts or 'none'}"]
        )
    return tuple(dict(zip(group, row, strict=True)) for row in zip(*group.values(), strict=True))


def _drawn(document: Document, draws: Draws) -> tuple[Mapping[str, Value], ...]:
    random = Random(draws.seed)
    for key, source in draws.of.items():
        _known(document, ("random", "of", key), key)
        if isinstance(source, tuple) and not source:
            raise ScenarioError([f"{document.mark(('random', 'of', key))}: random.of.{key}: holds no value"])
    rows = []
    for _ in range(draws.count):
        row: dict[str, Value] = {}
        for key, source in draws.of.items():
            if isinstance(source, tuple):
                row[key] = random.choice(source)
            else:
                row[key] = _of(document, ("random", "of", key), lambda s=source: s.draw(random))
        rows.append(row)
    return tuple(rows)


def _of(document: Document, path: tuple[str | int, ...], make: Any) -> Any:
    """What `make` gives; its ValueError with the place of `path`."""
    try:
        return make()
    except ValueError as error:
        where = ".".join(map(str, path))
        raise ScenarioError([f"{document.mark(path)}: {where}: {error}"]) from None


def _known(document: Document, path: tuple[str | int, ...], key: str) -> None:
    """Raise ScenarioError where no scenario has a field `key`."""
    if not slots_at(Scenario, parse_path(key)) or not key.strip("."):
        options = [".".join((*map(str, home), name)) for name, homes in places(Scenario).items() for home in homes]
        options += known_keys(slots_at(Scenario, ()))
        raise ScenarioError([f"{document.key_mark(path)}: unknown key {quoted(key)}{did_you_mean(key, options)}"])


_PLAIN = re.compile(r"[A-Za-z0-9_./-]+")


def text_of(value: Value) -> str:
    """The value as it stands behind `--set key=`."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and resolve_scalar(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False)
