"""What a doctor says: a check that has been made, and a trial that is left to the reader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from device.doctor.machine import Machine

#: Largest relative error of a step's logits against the reference operators: the rounding of 16-bit values between
#: operators, and of rows or a cache that are quantised on the way. The bounds of tests/npu_dry/test_tier1_adapters.py.
MAX_ERROR, MAX_ERROR_QUANTISED = 0.015, 0.03
#: Where `pip install .` finds this project, which is on no registry.
CHECKOUT = "in a checkout of this project"


@dataclass(frozen=True, slots=True)
class Check:
    """says: what was found where it passed; else what is missing and what to do, on one line."""

    name: str
    passed: bool
    says: str


@dataclass(frozen=True, slots=True)
class Trial:
    """Something that this project cannot know without the device. command: ready to run. seconds: about how long it
    takes (assumed where the device was never there). status: what the command ends with where all is well."""

    what: str
    command: str
    expected: str
    seconds: int = 60
    status: int = 0


def present(name: str, what: str) -> Check:
    return Check(name, True, what)


def missing(name: str, what: str) -> Check:
    return Check(name, False, what)


def probed(machine: Machine, probes: Iterable[tuple[str, str, str]]) -> Iterator[Check]:
    """One check for each (name, Python code that prints what it finds or fails, what to do where it fails)."""
    for name, code, remedy in probes:
        passed, line = machine.python(code)
        yield Check(name, passed, line if passed else remedy)
