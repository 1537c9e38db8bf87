"""What a doctor says: a check that has been made, and a trial that is left to the reader."""

from __future__ import annotations

from dataclasses import dataclass


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
