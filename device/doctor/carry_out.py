"""Carrying a backend's trials out, one after the other, each in a process of its own, and keeping what they leave.

The folder that is filled is a bundle: `bundle.json` (machine, checks, what each trial ended with), what each trial
printed (`trial_01.txt`, ...), and the files that trials write (results, profiles). docs/contribute.md says what becomes
of it.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic

from device.doctor.about import about
from device.doctor.checks import Check, Trial
from device.doctor.machine import Machine
from scenarios.errors import ScenarioError, printable

Say = Callable[[str], None]

BUNDLE, VERSION = "bundle.json", 1
#: Longest that one trial may take, seconds: a graph engine compiles for minutes, and what hangs must end.
LIMIT_S = 1800.0
#: The folder that this program is imported from; trials that run its tests start there.
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a trial ended. verdict: passed (as expected), failed (a number is beyond its limit), refused (one line said
    why it cannot run here), broke, stopped (over LIMIT_S) or skipped. says: its last line. output: the file of the
    bundle that holds all that it printed."""

    number: int
    what: str
    command: str
    expected: str
    verdict: str
    status: int | None
    seconds: float
    says: str
    output: str

    @property
    def good(self) -> bool:
        return self.verdict in ("passed", "refused", "skipped")


def chosen_trials(trials: Sequence[Trial], only: str) -> list[tuple[int, Trial]]:
    """The trials with the numbers of `only` (`1,3`), all where it is empty. Raises ScenarioError for another number."""
    numbered = list(enumerate(trials, 1))
    if not only.strip():
        return numbered
    words = [word.strip() for word in only.split(",") if word.strip()]
    wrong = [word for word in words if not word.isdecimal() or not 1 <= int(word[:6]) <= len(trials)]
    if wrong:
        raise ScenarioError([f"--only: {printable(wrong[0])} is no trial; there are 1 to {len(trials)}"])
    wanted = {int(word) for word in words}
    return [(number, trial) for number, trial in numbered if number in wanted]


def estimate(trials: Sequence[tuple[int, Trial]]) -> str:
    """`4 trials, about 3 minutes`."""
    seconds = sum(trial.seconds for _, trial in trials)
    long = f"{round(seconds / 60)} minutes" if seconds >= 90 else f"{seconds} seconds"
    return f"{len(trials)} trial{'' if len(trials) == 1 else 's'}, about {long}"


def carried_out(
    backend: str,
    checks: Sequence[Check],
    trials: Sequence[tuple[int, Trial]],
    folder: Path,
    say: Say,
    machine: Machine | None = None,
    limit_s: float = LIMIT_S,
) -> list[Outcome]:
    """Run `trials` in `folder`, one by one, and write the bundle's document there; what each ended with."""
    outcomes = []
    for place, (number, trial) in enumerate(trials, 1):
        left = estimate(trials[place - 1 :])
        say(f"{place}/{len(trials)}  {trial.what} (left: {left})")
        outcomes.append(_tried(number, trial, folder, limit_s))
    say("")
    document = {
        "kind": "bundle",
        "version": VERSION,
        "backend": backend,
        "machine": about(machine or Machine()),
        "checks": [asdict(check) for check in checks],
        "trials": [asdict(outcome) for outcome in outcomes],
    }
    (folder / BUNDLE).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return outcomes


def _tried(number: int, trial: Trial, folder: Path, limit_s: float) -> Outcome:
    output = f"trial_{number:02}.txt"
    words, start_in = _words(trial.command, folder)
    if not start_in.is_dir():
        says = "its tests lie in a checkout, and this is none"
        return _outcome(number, trial, verdict="skipped", status=None, seconds=0.0, says=says, output="")
    started = monotonic()
    status, text = _run(words, start_in, limit_s)
    seconds = monotonic() - started
    (folder / output).write_text(text, encoding="utf-8", errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    says = printable(lines[-1].strip(), 200) if lines else ""
    verdict = _verdict(status, trial.status)
    return _outcome(number, trial, verdict=verdict, status=status, seconds=seconds, says=says, output=output)


def _outcome(
    number: int, trial: Trial, *, verdict: str, status: int | None, seconds: float, says: str, output: str
) -> Outcome:
    return Outcome(
        number,
        trial.what,
        trial.command,
        trial.expected,
        verdict=verdict,
        status=status,
        seconds=round(seconds, 1),
        says=says,
        output=output,
    )


def _verdict(status: int | None, expected: int) -> str:
    if status is None:
        return "stopped"
    if status == expected:
        return "passed"
    return {1: "failed", 2: "refused"}.get(status, "broke")


def _words(command: str, folder: Path) -> tuple[list[str], Path]:
    """The command for this very Python, and the folder that it starts in."""
    first, *rest = shlex.split(command)
    module = {"whatif": ["cli"], "torchrun": ["torch.distributed.run"], "pytest": ["pytest"], "python": []}[first]
    head = [sys.executable, *(word for name in module for word in ("-m", name))]
    if first == "pytest":
        return [*head, *rest], ROOT if (ROOT / "tests").is_dir() else ROOT / "tests"
    return [*head, *rest], folder


def _run(words: Sequence[str], start_in: Path, limit_s: float) -> tuple[int | None, str]:
    """(status, all that was printed); None for a command that took longer. Its ranks end with it."""
    paths = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path), "NO_COLOR": "1"}
    process = subprocess.Popen(
        words,
        cwd=start_in,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    try:
        text, _ = process.communicate(timeout=limit_s)
        return process.returncode, text
    except subprocess.TimeoutExpired:
        _end(process)
        return None, f"{process.communicate()[0]}\nno end within {limit_s:g} s\n"
    except BaseException:
        _end(process)
        raise


def _end(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        process.kill()
    process.wait()
