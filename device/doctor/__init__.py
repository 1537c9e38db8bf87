"""`whatif doctor`: is this machine fit for a backend, and what can only a real device show? Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence

from device.doctor import cpu, cuda, npu
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
    if backend not in BACKENDS:
        known = list(BACKENDS)
        what = f"{quoted(backend)} cannot be examined; one of {', '.join(known)}{did_you_mean(backend, known)}"
        raise ScenarioError([f"--backend: {what}"])
    check, trials = BACKENDS[backend]
    checks = check(machine or Machine())
    return text(backend, checks, trials), all(c.passed for c in checks)


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
