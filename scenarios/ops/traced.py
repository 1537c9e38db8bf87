"""Sizes of a step as expressions: a program that is built from them once says what it asks for at any size.

A step of another batch or context is mostly the same program with other numbers in its shapes. A `Size` stands for a
number with the expression that it came from; arithmetic makes further expressions, and whatever the code decides by one
is kept as a guard. So the works of a traced program are exact wherever its guards hold, and where they do not, the
program is another. What cannot be an expression (a look-up by a size, a count of repetitions, a float) raises: then
there is no trace, and programs are built one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache, update_wrapper
from typing import Any, ParamSpec, TypeVar

from scenarios.ops import work as works
from scenarios.ops.program import Group
from scenarios.ops.work import Work
from scenarios.records import dataclass

P = ParamSpec("P")
T = TypeVar("T")


class Untraceable(TypeError):
    """A size is asked for what no expression says."""


class Unhashable(Untraceable):
    """A size is looked up."""


class Size:
    """A whole number and its expression. value: what it is where it is traced. guards: of its trace, filled as it is
    compared, by their expressions."""

    __slots__ = ("guards", "text", "value")

    def __init__(self, value: int, text: str, guards: dict[str, bool]) -> None:
        self.value, self.text, self.guards = value, text, guards

    def _made(self, other: object, sign: str, reflected: bool, of: Callable[[int, int], int]) -> Size:
        value, text = _of(other)
        if reflected:
            return Size(of(value, self.value), f"({text}{sign}{self.text})", self.guards)
        return Size(of(self.value, value), f"({self.text}{sign}{text})", self.guards)

    def __add__(self, other: object) -> Size:
        return self if type(other) is int and other == 0 else self._made(other, "+", False, lambda a, b: a + b)

    __radd__ = __add__

    def __mul__(self, other: object) -> Size:
        return self if type(other) is int and other == 1 else self._made(other, "*", False, lambda a, b: a * b)

    __rmul__ = __mul__

    def __sub__(self, other: object) -> Size:
        return self._made(other, "-", False, lambda a, b: a - b)

    def __rsub__(self, other: object) -> Size:
        return self._made(other, "-", True, lambda a, b: a - b)

    def __floordiv__(self, other: object) -> Size:
        return self._made(other, "//", False, lambda a, b: a // b)

    def __rfloordiv__(self, other: object) -> Size:
        return self._made(other, "//", True, lambda a, b: a // b)

    def __mod__(self, other: object) -> Size:
        return self._made(other, "%", False, lambda a, b: a % b)

    def __neg__(self) -> Size:
        return Size(-self.value, f"(-{self.text})", self.guards)

    def _held(self, other: object, sign: str, of: Callable[[int, int], bool]) -> bool:
        value, text = _of(other)
        return self._guard(f"{self.text}{sign}{text}", of(self.value, value))

    def _guard(self, text: str, holds: bool) -> bool:
        self.guards[text] = holds
        return holds

    def __lt__(self, other: object) -> bool:
        return self._held(other, "<", lambda a, b: a < b)

    def __le__(self, other: object) -> bool:
        return self._held(other, "<=", lambda a, b: a <= b)

    def __gt__(self, other: object) -> bool:
        return self._held(other, ">", lambda a, b: a > b)

    def __ge__(self, other: object) -> bool:
        return self._held(other, ">=", lambda a, b: a >= b)

    def __eq__(self, other: object) -> bool:
        if other is None or isinstance(other, str | tuple):
            return False
        return self._held(other, "==", lambda a, b: a == b)

    def __bool__(self) -> bool:
        return self._guard(f"{self.text}!=0", self.value != 0)

    def __hash__(self) -> int:
        raise Unhashable(self.text)

    def __format__(self, spec: str) -> str:
        raise Untraceable(self.text)

    __str__ = __repr__ = __int__ = __float__ = __hash__  # type: ignore[assignment]


def _of(other: object) -> tuple[int, str]:
    if isinstance(other, Size):
        return other.value, other.text
    if type(other) is not int:
        raise Untraceable(type(other).__name__)
    return other, f"({other})" if other < 0 else str(other)


class Unknown:
    """What a program must not depend on."""

    def __bool__(self) -> bool:
        raise Untraceable

    def __eq__(self, other: object) -> bool:
        raise Untraceable

    __hash__ = __bool__


def remembered(maxsize: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """As `lru_cache`, of functions that may be given sizes that are traced, which no look-up may answer."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        known = lru_cache(maxsize)(function)

        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return known(*args, **kwargs)  # type: ignore[arg-type]
            except Unhashable:
                return function(*args, **kwargs)

        return update_wrapper(call, function)

    return decorate


@dataclass(frozen=True, slots=True)
class Traced:
    """Works of the ops of a step, block by block, as expressions of sizes. ops: their names. holds: whether the guards
    hold at some sizes, given by place."""

    ops: tuple[tuple[str, ...], ...]
    works: tuple[tuple[Formula, ...], ...]
    holds: Callable[..., bool]


@dataclass(frozen=True, slots=True)
class Formula:
    """A work. text: its expression. of: places among the sizes of those that it depends on. make: it at these."""

    text: str
    of: tuple[int, ...]
    make: Callable[..., Work]


def formula(work: Work, names: tuple[str, ...]) -> Formula:
    """What a traced program asks for, as an expression. Raises Untraceable."""
    text = _written(work)
    of = tuple(place for place, name in enumerate(names) if name in text)
    return Formula(text, of, _compiled(text, tuple(names[place] for place in of)))


def guarded(guards: Mapping[str, bool], names: Iterable[str]) -> Callable[..., bool]:
    """Whether all guards come out as they did where the program was traced."""
    tests = [text if holds else f"not {text}" for text, holds in guards.items()]
    test: Callable[..., bool] = eval(f"lambda {', '.join(names)}: {' and '.join(tests) or True}", {})
    return test


@lru_cache(maxsize=4096)
def _compiled(text: str, names: tuple[str, ...]) -> Callable[..., Work]:
    make: Callable[..., Work] = eval(f"lambda {', '.join(names)}: {text}", _MADE)
    return make


def _written(value: Any) -> str:
    """A work, or what is in it, as Python writes it."""
    if isinstance(value, Size):
        return value.text
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, tuple):
        return f"({''.join(f'{_written(one)},' for one in value)})"
    if is_dataclass(value) and type(value).__name__ in _MADE:
        return f"{type(value).__name__}({', '.join(_written(getattr(value, f.name)) for f in fields(value))})"
    raise Untraceable(type(value).__name__)


#: What an expression of a work is made of.
_MADE: dict[str, Any] = {
    one.__name__: one
    for one in (
        Group,
        Work,
        works.MatmulShape,
        works.FfnShape,
        works.RowsShape,
        works.FlatShape,
        works.AttentionShape,
        works.FixedShape,
        works.CollectiveShape,
        works.ExchangeShape,
        works.MatmulCollectiveShape,
    )
}
