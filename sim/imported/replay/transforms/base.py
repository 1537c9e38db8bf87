"""What every what-if is given and gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from scenarios.errors import ScenarioError, did_you_mean, quoted
from scenarios.records import dataclass
from sim.hardware.profile import HardwareProfile
from sim.imported.replay.graph import Graph

#: Which end of what is assumed: the value itself, the better one, the worse one.
Bound = Literal["value", "better", "worse"]


@dataclass(frozen=True, slots=True)
class Asked:
    """A what-if as asked for. subject: the pattern or family it is about, "" for all. options: `key=value` pairs.

    hardware: prices kernels that the profile does not have; None where none was named.
    """

    name: str
    subject: str
    options: Mapping[str, float]
    hardware: HardwareProfile | None

    def number(self, key: str, usual: float) -> float:
        """An option, or what is usual."""
        return self.options.get(key, usual)


@dataclass(frozen=True, slots=True)
class Changed:
    """A graph after a what-if. made: how often it applied. assumed: what it took for granted, a sentence each."""

    graph: Graph
    places: int
    assumed: tuple[str, ...]


#: Changes a graph; of assumptions with two ends it takes the one asked for.
Apply = Callable[[Graph, Asked, Bound], Changed]


@dataclass(frozen=True, slots=True)
class Transform:
    """A kind of what-if. subjects: what may follow its colon, () for nothing; named: or any op type of the step.
    options: keys it takes. ends: whether what it assumes has a better and a worse end. bound: whether it only bounds
    what others gain, since nothing does just that.
    """

    name: str
    title: str
    apply: Apply
    subjects: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    ends: bool = False
    named: bool = False
    bound: bool = False


def bound_of(bound: Bound, value: float, better: float, worse: float) -> float:
    """The value for one end."""
    return {"value": value, "better": better, "worse": worse}[bound]


def refuse_word(where: str, word: str, known: tuple[str, ...]) -> ScenarioError:
    """The error for a word that is none of those known."""
    return ScenarioError([f"{where}: {quoted(word)} is not one of {', '.join(known)}{did_you_mean(word, known)}"])
