"""`ascend_pytorch_profiler_*.db`, torch_npu's export as SQLite (and msprof's `msprof_*.db`, which has its tables).

Times are integer nanoseconds; texts are numbers of STRING_IDS. TASK holds what ran on the device, COMPUTE_TASK_INFO
which of it are kernels, COMMUNICATION_OP whole collectives, CANN_API and PYTORCH_API the host's calls; a task and the
call of CANN that launched it share their connectionId.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from scenarios.errors import printable
from scenarios.profile.read.build import Batch, Columns, FactTable, Lanes, Texts, ordered
from scenarios.profile.read.choose import WHATEVER, Only
from scenarios.profile.read.database_steps import reported_beside
from scenarios.profile.read.files import LIMITS, fail, regular
from scenarios.profile.read.flows import ThreadOf, enclosing
from scenarios.profile.read.kernel_details import op_type_of
from scenarios.profile.read.marks import is_mark
from scenarios.profile.read.streams import fifo
from scenarios.profile.read.torch_npu import classify
from scenarios.profile.read.torch_npu_files import read_info
from scenarios.profile.read.torch_npu_steps import steps_of_marks
from scenarios.profile.table import NO_ROW, Capture, Kind, Lane
from scenarios.timeline import Process

MAX_STRING_CHARS = 1 << 16
#: Steps of SQLite's machine that one query may take: a table may be a view that never ends.
MAX_STEPS = 2_000_000_000
#: Types of CANN_API whose calls launch what the device runs.
_LAUNCHING = (10000, 20000, 5000, 5500)


class _Database:
    """An open database: its tables and their columns, and rows that are checked."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path, self.connection = path, connection
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self.tables = {str(name) for (name,) in rows}

    def columns(self, table: str) -> set[str]:
        """The columns of a table, none where there is no such table."""
        if table not in self.tables:
            return set()
        return {str(row[1]) for row in self.connection.execute(f'PRAGMA table_info("{table}")')}

    def rows(self, table: str, columns: Sequence[str], where: str = "") -> Iterator[tuple[Any, ...]]:
        """The rows of the table, none where there is no such table.

        Raises CaptureError for a column that is missing and for more rows than the limit.
        """
        there = self.columns(table)
        if not there:
            return
        for column in columns:
            if column not in there:
                known = ", ".join(printable(name, 30) for name in sorted(there)[:12])
                fail(self.path, f"table {table} has no column '{column}'; found {known}")
        names = ", ".join(f'"{column}"' for column in columns)
        query = f'SELECT {names} FROM "{table}" {where} LIMIT {LIMITS.events + 1}'
        for number, row in enumerate(self.connection.execute(query)):
            if number >= LIMITS.events:
                fail(self.path, f"table {table} holds more than {LIMITS.events:,} rows; profile fewer steps")
            yield row

    def whole(self, value: object, where: str) -> int:
        """A whole number, 0 or more; SQLite keeps any type in any column."""
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
            value = int(value)
        if not isinstance(value, int) or not 0 <= value < 2**62:
            fail(self.path, f"{where} is {printable(repr(value), 40)}, not a whole number")
        return value

    def interval(self, table: str, first: object, end: object) -> tuple[int, int]:
        """Start and duration, ns. Raises CaptureError for what ends before it starts."""
        start, last = self.whole(first, f"{table}.startNs"), self.whole(end, f"{table}.endNs")
        if last < start:
            fail(self.path, f"table {table}: a row ends at {last}, before its start at {start}")
        return start, last - start


@contextmanager
def _opened(path: Path) -> Iterator[_Database]:
    regular(path)
    with path.open("rb") as file:
        if file.read(16) != b"SQLite format 3\0":
            fail(path, "is no SQLite database")
    uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
    steps = 0

    def bounded() -> int:
        nonlocal steps
        steps += 1
        return steps > MAX_STEPS // 1_000_000

    try:
        connection = sqlite3.connect(uri, uri=True)
        try:
            connection.text_factory = lambda data: data[: MAX_STRING_CHARS * 4].decode("utf-8", "replace")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.set_progress_handler(bounded, 1_000_000)
            yield _Database(path, connection)
        finally:
            connection.close()
    except (sqlite3.Error, UnicodeError) as error:
        fail(path, f"is no readable SQLite database: {printable(str(error), 80)}")


def read_database(path: Path, only: Only = WHATEVER) -> list[Capture]:
    """The captures of a database, one a device. only: see `read_pytorch`. Raises CaptureError, one line."""
    with _opened(path) as database:
        if not database.tables & {"TASK", "COMPUTE_TASK_INFO"}:
            tables = ", ".join(printable(name, 30) for name in sorted(database.tables)[:8])
            fail(path, f"is a database, but no profile: it has no table TASK. Found {tables or 'no tables'}")
        devices = sorted({database.whole(d, "TASK.deviceId") for (d,) in database.rows("TASK", ("deviceId",))})
        if len(devices) > 1:
            fail(path, f"mixes the tasks of devices {', '.join(map(str, devices[:8]))}; one device a file")
        return [_read(database, devices[0], only.mark)] if devices else fail(path, "holds no tasks of a device")


def _read(database: _Database, device: int, mark: str) -> Capture:
    path, texts, facts, lanes = database.path, Texts(database.path), FactTable(database.path), Lanes()
    words = _Words(database, texts)
    columns = Columns(path)
    host = _host(database, words, columns, lanes, mark)
    _tasks(database, words, columns, lanes, facts, host)
    _collectives(database, words, columns, lanes, facts, host)
    if not mark:
        _marks(database, texts, columns, lanes)
    if not columns.count:
        fail(path, "holds no events")
    table = columns.take()
    table["launched_by"] = _launched(table, tuple(lanes))
    events, clipped = fifo(ordered(table, facts.facts()), tuple(lanes))
    events, steps = steps_of_marks(events, texts.tuple())
    info = read_info(path.parent.parent if path.parent.name == "ASCEND_PROFILER_OUTPUT" else path.parent)
    ranks = dict(database.rows("RANK_DEVICE_MAP", ("deviceId", "rankId")))
    said = ranks.get(device)
    rank = said if isinstance(said, int) and 0 <= said < 10**7 else info.rank if info.rank is not None else device
    notes = [*info.notes, *host.notes, *clipped]
    reported = reported_beside(path)
    if not reported:
        notes.append("no reported step times: there is no StepTraceTime in an analysis.db beside it")
    return Capture(
        source=str(path),
        kind="torch_npu",
        rank=rank,
        device="NPU",
        texts=texts.tuple(),
        lanes=tuple(lanes),
        events=events,
        steps=steps,
        reported=reported,
        metadata=info.metadata,
        groups=info.groups,
        collective_waits_ns={},
        dropped={},
        notes=tuple(notes),
    )


class _Words:
    """STRING_IDS: the number of a text in the database as its number in the capture; texts that none needs are not
    kept."""

    def __init__(self, database: _Database, texts: Texts) -> None:
        self.database, self.texts, self.known = database, texts, dict[object, int]()
        self.there = "STRING_IDS" in database.tables
        self._listed: list[str] = []

    def __call__(self, number: object) -> int:
        known = self.known.get(number)
        if known is None:
            known = self.known[number] = self.texts[self._text(number)]
        return known

    def texts_of(self, number: int) -> str:
        """The text of a number of the capture."""
        while len(self._listed) <= number:
            self._listed = list(self.texts)
        return self._listed[number]

    def op_type(self, said: object, name: object) -> int:
        """The op type as said, else from the name."""
        number = self(said)
        return number if number else self.texts[op_type_of(self.texts_of(self(name)))]

    def shape(self, number: object) -> int:
        """A text of shapes without the quotation marks around it."""
        return self.texts[self.texts_of(self(number)).strip('"')]

    def _text(self, number: object) -> str:
        if number is None or not self.there or not isinstance(number, int):
            return str(number) if isinstance(number, str) else ""
        row = self.database.connection.execute("SELECT value FROM STRING_IDS WHERE id = ?", (number,)).fetchone()
        text = str(row[0]) if row and row[0] is not None else ""
        return "" if text == "N/A" else text


class _Host:
    """The rows of host calls, and which row has which connection."""

    def __init__(self) -> None:
        self.by_connection: dict[int, int] = {}
        self.notes: list[str] = []


def _host(database: _Database, words: _Words, columns: Columns, lanes: Lanes, mark: str) -> _Host:
    """Calls of PyTorch and CANN, each on the lane of its thread."""
    host = _Host()
    marks: dict[int, bool] = {}
    processes: tuple[tuple[str, Process], ...] = (("PYTORCH_API", "Python"), ("CANN_API", "CANN"))
    for table, process in processes:
        batch, before = Batch(columns, "kind", "lane", "start_ns", "duration_ns", "name"), columns.count
        names = ("startNs", "endNs", "globalTid", "connectionId", "name", "type")
        for first, end, tid, connection, text, kind in database.rows(table, names):
            if kind == 50003:  # frames of Python, which are left out of trace_view.json too
                continue
            start, length = database.interval(table, first, end)
            thread = database.whole(tid, f"{table}.globalTid")
            if process == "CANN" and kind in _LAUNCHING and isinstance(connection, int):
                host.by_connection.setdefault(connection, batch.next_row)
            lane = lanes[Lane(process, f"Thread {thread & 0xFFFFFFFF}", -1, str(thread))]
            name = words(text)
            if process == "Python" and name not in marks:
                marks[name] = is_mark(words.texts_of(name), mark)
            is_step = process == "Python" and marks[name]
            batch.row(Kind.STEP if is_step else Kind.HOST, lane, start, length, name)
        batch.flush()
        if columns.count == before:
            host.notes.append(f"no host calls of {process}: the table {table} is missing or empty")
    return host


def _tasks(database: _Database, words: _Words, columns: Columns, lanes: Lanes, facts: FactTable, host: _Host) -> None:
    """What ran on the device: kernels, copies, marks and waits."""
    kernels = _kernels(database, words, facts)
    parts = {t: words(n) for t, n in database.rows("COMMUNICATION_TASK_INFO", ("globalTaskId", "taskType"))}
    batch = Batch(columns, "kind", "lane", "start_ns", "duration_ns", "name", "fact", "launched_by")
    names = ("startNs", "endNs", "connectionId", "globalTaskId", "taskType", "streamId")
    for first, end, connection, task, task_type, stream in database.rows("TASK", names):
        start, length = database.interval("TASK", first, end)
        number = database.whole(stream, "TASK.streamId")
        lane = Lane("Ascend Hardware", f"Stream {number}", number)
        launched = host.by_connection.get(connection, NO_ROW)
        if task in kernels:
            name, fact = kernels[task]
            batch.row(Kind.KERNEL, lanes[lane], start, length, name, fact, launched)
            continue
        word = parts.get(task, words(task_type))
        kind = _not_kernel(lane, words.texts_of(word))
        batch.row(kind, lanes[lane], start, length, word, facts[0, word, 0, 0, 0, 0, 0, 0], launched)
    batch.flush()


def _not_kernel(lane: Lane, label: str) -> Kind:
    """What a task is that COMPUTE_TASK_INFO does not list."""
    kind = classify(lane, label, label, "")
    return Kind.TASK if kind == Kind.KERNEL else kind


def _kernels(database: _Database, words: _Words, facts: FactTable) -> dict[object, tuple[int, int]]:
    """Name and facts of each kernel by its globalTaskId."""
    there = database.columns("COMPUTE_TASK_INFO")
    cores = "blockNum" if "blockNum" in there else "blockDim"
    names = ("globalTaskId", "name", "opType", "taskType", "inputShapes", "inputDataTypes", "outputShapes", cores)
    kernels = {}
    for task, name, op_type, task_type, shapes, dtypes, outputs, block in database.rows("COMPUTE_TASK_INFO", names):
        block_dim = block if isinstance(block, int) and 0 <= block < 2**31 else 0
        words_ = (words.op_type(op_type, name), words(task_type), *(words.shape(w) for w in (shapes, dtypes, outputs)))
        kernels[task] = words(name), facts[*words_, 0, 0, block_dim]
    return kernels


def _collectives(
    database: _Database, words: _Words, columns: Columns, lanes: Lanes, facts: FactTable, host: _Host
) -> None:
    batch = Batch(columns, "kind", "lane", "start_ns", "duration_ns", "name", "fact", "launched_by")
    names = ("opName", "startNs", "endNs", "connectionId", "groupName")
    extra = tuple(c for c in ("count", "opType") if c in database.columns("COMMUNICATION_OP"))
    for op, first, end, connection, group, *more in database.rows("COMMUNICATION_OP", (*names, *extra)):
        start, length = database.interval("COMMUNICATION_OP", first, end)
        said = dict(zip(extra, more, strict=True))
        texts, of_group = words.texts, words(group)
        count = texts[str(said["count"])] if isinstance(said.get("count"), int) else 0
        fact = facts[words.op_type(said.get("opType"), op), texts["COMMUNICATION"], count, 0, 0, of_group, 0, 0]
        lane = lanes[Lane("Communication", f"Group {words.texts_of(of_group)} Communication")]
        launched = host.by_connection.get(connection, NO_ROW)
        batch.row(Kind.COLLECTIVE, lane, start, length, words(op), fact, launched)
    batch.flush()


def _marks(database: _Database, texts: Texts, columns: Columns, lanes: Lanes) -> None:
    """STEP_TIME: the marks of steps."""
    rows = [
        (str(step), database.whole(b, "STEP_TIME.startNs"), database.whole(e, "STEP_TIME.endNs"))
        for step, b, e in database.rows("STEP_TIME", ("id", "startNs", "endNs"))
    ]
    if rows:
        columns.add(
            kind=[int(Kind.STEP)] * len(rows),
            lane=[lanes[Lane("Python", "Steps")]] * len(rows),
            start_ns=[start for _, start, _ in rows],
            duration_ns=[max(0, end - first) for _, first, end in rows],
            name=[texts[f"ProfilerStep#{printable(step, 20)}"] for step, _, _ in rows],
        )


def _launched(table: dict[str, np.ndarray[Any, Any]], lanes: tuple[Lane, ...]) -> Any:
    """`launched_by` with CANN's calls under those of PyTorch that enclose them on their thread."""
    threads = [ThreadOf(lane.thread, lane.process if lane.process in ("Python", "CANN") else "") for lane in lanes]
    return enclosing(table, table["lane"], threads, table["launched_by"])
