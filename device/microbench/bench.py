"""All microbenchmarks of a backend, one after the other, saved as they go: one that is killed goes on where it was."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from time import monotonic

import torch

from device.microbench.links import timed_links
from device.microbench.memory import timed_memory
from device.microbench.ops import timed_trial
from device.microbench.plan import RANKS, Trial, trials
from device.microbench.refusals import refusals
from device.run.backend import Backend
from scenarios.errors import ScenarioError, printable
from scenarios.exchange.timings import Timing, Timings, pieces_of, read_timings
from scenarios.files.atomic import write_text

#: Seconds between two savings of the rows.
SAVE_EVERY_S = 3.0
#: Ends the name of a trial's second turn.
AGAIN = ", again"
#: Seconds that one unit of a trial's cost is taken for until some have been seen.
FIRST_GUESS_S = 1.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to time. cost: as a trial's."""

    name: str
    run: Callable[[], list[Timing]]
    cost: int = 1


def benched(backend: Backend, rows: Path, budget_s: float, resume: bool, say: Say) -> Timings:
    """The microbenchmarks of `backend`, kept in the file `rows`.

    rows: a part that an earlier run has left there is gone on with. budget_s: but for the first, no benchmark is
    started that would probably end after so many seconds. resume: take what is in `rows` where it is whole, instead of
    measuring again. say: told what is going on. Raises ScenarioError where `rows` cannot be written, or is of another
    machine or plan.
    """
    torch.set_num_threads(1)
    tasks = tasks_of(backend, trials(backend.name))
    about = backend.describe() | caches() | {"date": date.today().isoformat()}
    state = _begun(rows, about, _fingerprint(tasks), resume, say)
    if state.complete:
        return state
    _save(rows, state)  # what cannot be written is refused before anything is measured
    started = saved = monotonic()
    spent = units = 0.0
    for number, task in enumerate(tasks, 1):
        if task.name in state.done:
            continue
        each = spent / units if units else FIRST_GUESS_S
        if state.done and monotonic() - started + task.cost * each > budget_s:
            state = replace(
                state, refused=(*state.refused, (task.name, f"left out: over the budget of {budget_s:g} s"))
            )
            continue
        say(f"{number}/{len(tasks)}  {monotonic() - started:.0f} s  {task.name}")
        begun = monotonic()
        state = _with(state, task)
        spent, units = spent + monotonic() - begun, units + task.cost
        if monotonic() - saved > SAVE_EVERY_S:
            _save(rows, state)
            saved = monotonic()
    state = replace(state, complete=True, refused=(*state.refused, *refusals(backend)))
    _save(rows, state)
    return state


def tasks_of(backend: Backend, plan: tuple[Trial, ...]) -> tuple[Task, ...]:
    """Memory first, then collectives, then the Programs, then those that compile nothing once more."""
    ranks = partial(timed_links, backend.name, backend.collectives, RANKS)
    return (
        Task("memory by size, wait and event", lambda: list(timed_memory(backend))),
        Task(f"collectives on {RANKS} ranks", ranks, 10),
        *(Task(trial.name, partial(timed_trial, backend, trial), trial.cost) for trial in plan),
        # Once more, minutes later: what a neighbour did to a trial the first time he will not do to it again.
        *(Task(f"{trial.name}{AGAIN}", partial(_again, backend, trial)) for trial in plan if trial.cost == 1),
    )


def _again(backend: Backend, trial: Trial) -> list[Timing]:
    return [replace(row, trial=f"{row.trial}{AGAIN}") for row in timed_trial(backend, trial)]


def caches() -> dict[str, str | int]:
    """Bytes of this machine's caches by level, as Linux tells them; nothing elsewhere."""
    caches: dict[str, str | int] = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind, level, size = ((folder / part).read_text().strip() for part in ("type", "level", "size"))
            if kind != "Instruction":
                caches[f"l{int(level)}_cache_bytes"] = int(size.removesuffix("K")) * 1024
        except (OSError, ValueError):
            continue
    return caches


def _with(state: Timings, task: Task) -> Timings:
    """`state` after `task`; what the backend refuses is kept with its reason."""
    try:
        rows = task.run()
    except ScenarioError as error:
        lines = tuple((task.name, line) for line in error.messages)
        return replace(state, done=(*state.done, task.name), refused=(*state.refused, *lines))
    return replace(state, done=(*state.done, task.name), rows=(*state.rows, *rows))


def _begun(rows: Path, about: Mapping[str, str | int], plan: str, resume: bool, say: Say) -> Timings:
    """What an earlier run has left in `rows` where it ended early, or nothing yet."""
    new = Timings(about, plan, False, ())
    if not os.path.lexists(rows):
        return new
    old = read_timings(rows)
    if old.complete and not resume:
        return new
    shown = printable(str(rows), 200)
    # A whole file may be fitted on another machine; a part can only go on where it was started.
    for key in ("backend",) if old.complete else ("backend", "device", "torch", "threads", "capability"):
        if old.about.get(key) != about.get(key):
            what = f"holds a part of another calibration ({key} {old.about.get(key)}, here {about.get(key)})"
            raise ScenarioError([f"{shown}: {what}; delete it or choose another --out"])
    if old.complete:
        return old
    if old.plan != plan:
        raise ScenarioError([f"{shown}: holds a part of another version's plan; delete it or choose another --out"])
    say(f"{len(old.done)} benchmarks are in {shown} already")
    left_out = tuple(pair for pair in old.refused if pair[0] in old.done)
    return replace(old, refused=left_out)


def _fingerprint(tasks: tuple[Task, ...]) -> str:
    return hashlib.sha256("\n".join(task.name for task in tasks).encode()).hexdigest()[:16]


def _save(rows: Path, state: Timings) -> None:
    write_text(rows, pieces_of(state))
