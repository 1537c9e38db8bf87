"""`scenarios.records.dataclass` does what the standard library's does."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, asdict, field, fields, is_dataclass, replace

import pytest

from scenarios.records import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """A class as the rooms have them."""

    x: int
    y: float = 2.0
    names: tuple[str, ...] = ()
    seen: list[int] = field(default_factory=list, compare=False, repr=False)

    @property
    def sum(self) -> float:
        return self.x + self.y


@dataclasses.dataclass(frozen=True, slots=True)
class Standard:
    """The same by the standard library."""

    x: int
    y: float = 2.0
    names: tuple[str, ...] = ()
    seen: list[int] = field(default_factory=list, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """Arguments by name, in any order of defaults."""

    first: int = 1
    second: int


@dataclass(frozen=True, slots=True, eq=False)
class ByIdentity:
    """Compared by identity."""

    x: int


@dataclass(frozen=True, slots=True)
class Own:
    """Methods that the class has itself stay."""

    x: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and self.x % 2 == other.x % 2

    def __hash__(self) -> int:
        return self.x % 2

    def __repr__(self) -> str:
        return "own"


@dataclass(frozen=True, slots=True)
class Checked:
    """Looks at itself when it is made."""

    x: int

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("negative")


@dataclass(frozen=True, slots=True)
class Longer(Point):
    """Inherits fields."""

    z: int = 9


def test_values_and_defaults_are_those_of_the_standard_library():
    for made in (Point(1), Point(1, 2.0), Point(x=1, names=())):
        assert asdict(made) == asdict(Standard(1)) == {"x": 1, "y": 2.0, "names": (), "seen": []}
    assert Point(1).sum == 3.0
    assert repr(Point(1, names=("a",))) == repr(Standard(1, names=("a",))).replace("Standard", "Point")
    assert Point.__match_args__ == Standard.__match_args__ == ("x", "y", "names", "seen")
    assert [f.name for f in fields(Point)] == [f.name for f in fields(Standard)]
    assert is_dataclass(Point)
    assert not hasattr(Point(1), "__dict__")


def test_factories_make_a_new_value_for_each_instance():
    one, other = Point(1), Point(1)
    one.seen.append(3)
    assert (one.seen, other.seen) == ([3], [])


def test_instances_compare_and_hash_by_their_compared_fields():
    assert Point(1, seen=[1]) == Point(1, seen=[2]) != Point(2)
    assert hash(Point(1)) == hash(Point(1)) == hash(Standard(1))
    assert Point(1) != Standard(1)
    assert len({Point(1), Point(1), Point(2)}) == 2
    assert ByIdentity(1) != ByIdentity(1)
    assert Own(1) == Own(3)
    assert hash(Own(3)) == 1
    assert repr(Own(1)) == "own"


def test_fields_cannot_be_set_or_deleted():
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'w'"):
        point.w = 2  # type: ignore[attr-defined]
    assert point.x == 1


def test_replaced_copied_and_pickled_instances_are_equal():
    point = Point(1, 5.0, ("a", "b"), [4])
    assert replace(point, x=7) == Point(7, 5.0, ("a", "b"))
    for twin in (copy.copy(point), copy.deepcopy(point), pickle.loads(pickle.dumps(point))):
        assert twin == point
        assert twin.seen == [4]
        with pytest.raises(FrozenInstanceError):
            twin.x = 2


def test_arguments_are_checked_by_name():
    assert (Named(second=2).first, Named(second=2, first=5).first) == (1, 5)
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        Point(1, z=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Point.__init__\(\) missing 1 required positional argument: 'x'"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Named(1, 2)  # type: ignore[misc]


def test_post_init_is_called():
    assert Checked(1).x == 1
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)


def test_a_class_that_inherits_has_all_fields():
    longer = Longer(1, z=3)
    assert asdict(longer) == {"x": 1, "y": 2.0, "names": (), "seen": [], "z": 3}
    assert longer == Longer(1, z=3) != Longer(1)
    with pytest.raises(FrozenInstanceError):
        longer.x = 2  # type: ignore[misc]
