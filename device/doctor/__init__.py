"""`whatif doctor`: is this machine fit for a backend, and what can only a real device show? Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from device.doctor import cpu, cuda, npu
from device.doctor.carry_out import Outcome, carried_out, chosen_trials, estimate
from device.doctor.checks import Check, Trial
from device.doctor.machine import Machine
from scenarios.errors import ScenarioError, did_you_mean, quoted

#: What each backend needs, and what is left to be tried on it.
BACKENDS = {
    "cpu": (cpu.checks, cpu.TRIALS),
    "cuda": (cuda.checks, cuda.TRIALS),
    "npu": (npu.checks, npu.TRIALS),
}


def examined(backend: str, machine: Machine | None = None) -> tuple[str, bool]:
    """(what to print, whether every check passed) for `backend` on this machine, or on the one given.

    Raises ScenarioError where there is no such backend.
    """
    check, trials = _of(backend)
    checks = check(machine or Machine())
    return text(backend, checks, trials), all(c.passed for c in checks)


def tried(
    backend: str, folder: Path, say: Callable[[str], None], only: str = "", machine: Machine | None = None
) -> tuple[str, bool]:
    """As `examined`, and then the trials are carried out in `folder`, which becomes a bundle (device/doctor/carry_out).

    only: numbers of trials, `1,3`; "" for all. The text tells how each ended. Raises ScenarioError as `examined`, and
    for a number that no trial has.
    """
    check, trials = _of(backend)
    asked = chosen_trials(trials, only)
    here = machine or Machine()
    say(f"{backend}: checks, then {estimate(asked)}")
    checks = check(here)
    outcomes = carried_out(backend, checks, asked, folder, say, here)
    passed = all(c.passed for c in checks) and all(outcome.good for outcome in outcomes)
    return text(backend, checks, ()) + outcomes_text(outcomes), passed


def outcomes_text(outcomes: Sequence[Outcome]) -> str:
    """A line or two for each trial: how it ended, and what it said where that is not as expected."""
    lines = ["", "Trials"]
    for outcome in outcomes:
        lines.append(f"  {outcome.number:>2}. {outcome.verdict:<8} {outcome.seconds:6.1f} s  {outcome.what}")
        if outcome.verdict != "passed":
            lines.append(f"      expected: {outcome.expected}; it said: {outcome.says}")
    return "\n".join(lines) + "\n"


def _of(backend: str) -> tuple[Callable[[Machine], list[Check]], tuple[Trial, ...]]:
    if backend not in BACKENDS:
        known = list(BACKENDS)
        what = f"{quoted(backend)} cannot be examined; one of {', '.join(known)}{did_you_mean(backend, known)}"
        raise ScenarioError([f"--backend: {what}"])
    return BACKENDS[backend]


def text(backend: str, checks: Sequence[Check], trials: Sequence[Trial]) -> str:
    """One line a check; then the trials, each with its command and what it should show."""
    width = max(len(c.name) for c in checks)
    failed = sum(not c.passed for c in checks)
    lines = [f"doctor {backend}: {len(checks) - failed} of {len(checks)} checks passed"]
    lines += [f"  {'ok     ' if c.passed else 'MISSING'}  {c.name:<{width}}  {c.says}" for c in checks]
    if trials:
        lines += ["", "What only the hardware can show (to run here, in this order):"]
    for number, trial in enumerate(trials, 1):
        lines += [f"  {number:>2}. {trial.what}", f"      $ {trial.command}", f"      expected: {trial.expected}"]
    return "\n".join(lines) + "\n"
