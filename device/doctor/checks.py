"""What a doctor says: a check that has been made, and a trial that is left to the reader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from device.doctor.machine import Machine


@dataclass(frozen=True, slots=True)
class Check:
    """says: what was found where it passed; else what is missing and what to do, on one line."""

    name: str
    passed: bool
    says: str


@dataclass(frozen=True, slots=True)
class Trial:
    """Something that this project cannot know without the device. command: ready to run."""

    what: str
    command: str
    expected: str


def found(name: str, what: str) -> Check:
    return Check(name, True, what)


def missing(name: str, what: str) -> Check:
    return Check(name, False, what)


def probed(machine: Machine, probes: Iterable[tuple[str, str, str]]) -> Iterator[Check]:
    """One check for each (name, Python code that prints what it finds or fails, what to do where it fails)."""
    for name, code, remedy in probes:
        passed, line = machine.python(code)
        yield Check(name, passed, line if passed else remedy)
