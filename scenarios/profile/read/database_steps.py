"""Step times that torch_npu reports next to its database: the table StepTraceTime of analysis.db."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

from scenarios.errors import printable
from scenarios.profile.read.files import fail, regular
from scenarios.profile.read.times import NotATime, ns_of_us
from scenarios.profile.table import ReportedStep
from scenarios.timeline import StepTime

_COLUMNS = (
    "deviceId", "step", "computing", "communication_not_overlapped", "overlapped", "communication", "free", "stage",
    "bubble", "preparing",
)  # fmt: skip
#: Steps that are read.
MAX_STEPS = 100_000


def reported_beside(path: Path) -> tuple[ReportedStep, ...]:
    """The reported steps of `analysis.db` in the folder of the database `path`, or of `path` itself; () for none.

    Raises CaptureError where the table is there and has other columns or values.
    """
    for candidate in (path.parent / "analysis.db", path):
        if not candidate.is_file():
            continue
        regular(candidate)
        try:
            connection = sqlite3.connect(f"file:{quote(str(candidate.resolve()))}?mode=ro&immutable=1", uri=True)
            try:
                rows = _rows(candidate, connection)
            finally:
                connection.close()
        except (sqlite3.Error, UnicodeError) as error:
            fail(candidate, f"is no readable SQLite database: {printable(str(error), 80)}")
        if rows:
            return rows
    return ()


def _rows(path: Path, connection: sqlite3.Connection) -> tuple[ReportedStep, ...]:
    there = {str(row[1]) for row in connection.execute('PRAGMA table_info("StepTraceTime")')}
    if not there:
        return ()
    if missing := [column for column in _COLUMNS if column not in there]:
        fail(path, f"table StepTraceTime has no column '{missing[0]}'")
    reported = []
    for device, step, *values in connection.execute(
        f"SELECT {', '.join(_COLUMNS)} FROM StepTraceTime LIMIT {MAX_STEPS}"
    ):
        try:
            ns = [ns_of_us(str(value)) for value in values[:-1]]
            preparing = max(0.0, float(values[-1] or 0.0))
        except (NotATime, TypeError, ValueError) as error:
            fail(path, f"StepTraceTime of step {printable(str(step), 20)}: {error}")
        computing, exposed, overlapped, communication, free, stage, bubble = ns
        time = StepTime(
            total_ns=computing + exposed + free,
            computing_ns=computing,
            communication_ns=communication,
            communication_not_overlapped_ns=exposed,
            communication_wait_ns=0,
            overlapped_ns=overlapped,
            free_ns=free,
        )
        number = device if isinstance(device, int) else 0
        name = "" if step is None else str(step)
        reported.append(ReportedStep(name, number, time, stage, bubble, round(preparing * 1000)))
    return tuple(reported)
