"""The numbers of a load test's result, asked for by name: missing ones, those of another kind, and their units."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from scenarios.errors import ScenarioError, quoted
from scenarios.files.document import Mark
from scenarios.records import dataclass

#: A comma between digits of a number.
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
#: Milliseconds of the units of time that AIPerf names.
_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3}


#: Words for a number that is not stated, or without a bound.
_UNSTATED = ("", "-", "inf", "infinity", "nan", "none", "null", "n/a", "unlimited")

Keys = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON object whose numbers are asked for by dotted names; `above` is the name of the object in messages, and
    `places` says where in the file what stands under keys of the object is."""

    path: Path
    document: Any
    above: str = ""
    places: Callable[[Keys], Mark] | None = None

    def wrong(self, name: str, what: str) -> ScenarioError:
        """The error of one field: file, line, column, its name and `what` is wrong."""
        keys = tuple(name.split(".")) if name else ()
        mark = self.places(keys) if self.places else Mark(str(self.path), 1, 1)
        return ScenarioError([f"{mark}: {self.above}{name}: {what}"])

    def value(self, name: str) -> Any:
        """What stands there, or None."""
        node = self.document
        for key in name.split("."):
            if isinstance(node, list):  # of objects with names
                node = next((one for one in node if isinstance(one, Mapping) and one.get("name") == key), None)
            else:
                node = node.get(key) if isinstance(node, Mapping) else None
        return node

    def maybe(self, *names: str) -> float | None:
        """The first of the numbers above 0 that is there.

        Raises ScenarioError for a number below 0 and for a text that is none: who wrote it meant something else.
        """
        for name in names:
            value = self.value(name)
            number = number_of(value)
            if number is None and isinstance(value, str) and value.strip().lower() not in _UNSTATED:
                raise self.wrong(name, f"a number is due, got {quoted(value)}")
            if number is not None and number < 0:
                raise self.wrong(name, f"a number above 0 is due, got {quoted(str(value))}")
            if number is not None and isfinite(number) and number > 0:
                return number
        return None

    def number(self, *names: str) -> float:
        """As `maybe`. Raises ScenarioError where none is there."""
        number = self.maybe(*names)
        if number is None:
            raise self.wrong(names[0], f"a number above 0 is due, {self._shown(names[0])}")
        return number

    def count(self, *names: str) -> int:
        """As `number`, of things. Raises ScenarioError where not one is there."""
        count = round(self.number(*names))
        if count < 1:
            raise self.wrong(names[0], f"a number of at least 1 is due, {self._shown(names[0])}")
        return count

    def milliseconds(self, name: str) -> float | None:
        """The mean of a latency; its unit stands next to it. Raises ScenarioError for a unit that is none of time."""
        number, unit = self.maybe(f"{name}.avg"), str(self.value(f"{name}.unit") or "ms")
        if unit not in _MS:
            raise self.wrong(f"{name}.unit", f"{quoted(unit)} is none of {', '.join(_MS)}")
        return None if number is None else number * _MS[unit]

    def _shown(self, name: str) -> str:
        value = self.value(name)
        return "and there is none" if value is None else f"got {quoted(str(value))}"


def number_of(value: Any) -> float | None:
    """A number, or one with its unit ("146.1 ms"). None of anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if abs(value) < 1e300 else None
    text = _THOUSANDS.sub("", value) if isinstance(value, str) else ""
    match = re.match(r"\s*([-+]?\d[\d.]*(?:[eE][-+]?\d+)?)", text)
    return float(match[1]) if match and match[1].count(".") < 2 else None
