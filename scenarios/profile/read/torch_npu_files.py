"""The small files next to a torch_npu trace: reported step times, collectives, versions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scenarios.errors import printable
from scenarios.profile.read.csv_tables import known, table_rows, us_cell, whole_cell
from scenarios.profile.read.files import fail, read_all
from scenarios.profile.read.times import NotATime, ns_of_us
from scenarios.profile.table import ReportedStep
from scenarios.records import dataclass
from scenarios.timeline import StepTime

STEP_COLUMNS = ("Step", "Computing", "Communication(Not Overlapped)", "Overlapped", "Communication", "Free")
STEP_OPTIONAL = ("Device_id", "Stage", "Bubble", "Preparing")
MAX_JSON_BYTES = 256 * 2**20
MAX_INFO_BYTES = 4 * 2**20
#: Versions whose files were looked at; a newer one is read and said to be newer.
KNOWN_TORCH_NPU = (2, 13)


def read_reported(path: Path) -> tuple[ReportedStep, ...]:
    """The rows of step_trace_time.csv. Raises CaptureError with file and line."""
    rows = []
    for line, row in table_rows(path, STEP_COLUMNS, STEP_OPTIONAL):
        ns = {name: us_cell(path, line, row, name) for name in STEP_COLUMNS[1:]}
        computing, exposed, free = ns["Computing"], ns["Communication(Not Overlapped)"], ns["Free"]
        time = StepTime(
            total_ns=computing + exposed + free,
            computing_ns=computing,
            communication_ns=ns["Communication"],
            communication_not_overlapped_ns=exposed,
            communication_wait_ns=0,
            overlapped_ns=ns["Overlapped"],
            free_ns=free,
        )
        device = whole_cell(known(row.get("Device_id", "")))
        stage, bubble = (us_cell(path, line, row, c) if row.get(c) else 0 for c in ("Stage", "Bubble"))
        # Preparing can be negative: a kernel of the step before, seen first.
        preparing = row.get("Preparing", "")
        prepared = 0 if not preparing or preparing.startswith("-") else us_cell(path, line, row, "Preparing")
        rows.append(ReportedStep(known(row["Step"]), device, time, stage, bubble, prepared))
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class Communicated:
    """One collective of communication.json."""

    step: str
    name: str
    group: str
    start_ns: int
    elapse_ns: int
    wait_ns: int


def read_communication(path: Path) -> tuple[Communicated, ...]:
    """The collectives of communication.json, in order of the file. Raises CaptureError, one line."""
    document = _object(path, MAX_JSON_BYTES)
    collectives = []
    for step, kinds in document.items():
        for kind, ops in _items(path, step, kinds):
            for name, op in _items(path, f"{step}.{kind}", ops):
                if name == "Total Op Info":
                    continue
                where = f"{step}.{kind}.{printable(name, 80)}"
                times = dict(_items(path, where, op)).get("Communication Time Info")
                if not isinstance(times, dict):
                    fail(path, f"{where}: has no 'Communication Time Info'")
                op_name, _, group = name.partition("@")
                collectives.append(
                    Communicated(
                        step.removeprefix("step"),
                        op_name,
                        group,
                        _us(path, where, times, "Start Timestamp(us)"),
                        _us(path, where, times, "Elapse Time(ms)", 1000),
                        _us(path, where, times, "Wait Time(ms)", 1000),
                    )
                )
    return tuple(collectives)


def _us(path: Path, where: str, times: Mapping[str, Any], key: str, factor: int = 1) -> int:
    value = times.get(key)
    if not isinstance(value, str):
        fail(path, f"{where}: {key} is missing or no number")
    try:
        return ns_of_us(value) * factor
    except NotATime as error:
        fail(path, f"{where}: {key}: {error}")


def _items(path: Path, where: str, value: object) -> Any:
    if not isinstance(value, dict):
        fail(path, f"{printable(where, 80)}: is no object")
    return value.items()


def _object(path: Path, most: int) -> dict[str, Any]:
    """A JSON object whose numbers stay the texts they are."""
    data = read_all(path, most)
    try:
        document = json.loads(data.decode("utf-8"), parse_float=str, parse_int=str, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        fail(f"{path}:{error.lineno}:{error.colno}", f"is not JSON: {error.msg}")
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        fail(path, f"is not JSON: {printable(str(error), 80)}")
    if not isinstance(document, dict):
        fail(path, "holds no object")
    return document


def _no_number(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON number")


@dataclass(frozen=True, slots=True)
class Info:
    """What profiler_info_N.json and profiler_metadata.json say. rank None: not said."""

    rank: int | None
    metadata: dict[str, str]
    groups: dict[str, tuple[int, ...]]
    notes: tuple[str, ...]


_INFO = re.compile(r"profiler_info(?:_([0-9]{1,9}))?\.json")


def read_info(folder: Path) -> Info:
    """The versions, the level, the rank and the groups of the `*_ascend_pt` folder. Missing files say nothing."""
    metadata: dict[str, str] = {}
    groups: dict[str, tuple[int, ...]] = {}
    rank: int | None = None
    for path in sorted(folder.glob("profiler_info*.json")):
        if (match := _INFO.fullmatch(path.name)) is None:
            continue
        document = _object(path, MAX_INFO_BYTES)
        if match[1] is not None:
            rank = int(match[1])
        if isinstance(said := document.get("rank_id"), str) and said.isdigit() and len(said) < 10:
            rank = int(said)
        config = document.get("config")
        experimental = config.get("experimental_config") if isinstance(config, dict) else None
        level = experimental.get("_profiler_level") if isinstance(experimental, dict) else None
        for key, value in (
            ("torch_npu", document.get("torch_npu_version")),
            ("cann", document.get("cann_version")),
            ("level", level),
        ):
            if isinstance(value, str):
                metadata[key] = printable(value, 40)
    path = folder / "profiler_metadata.json"
    if path.is_file():
        document = _object(path, MAX_INFO_BYTES)
        groups = _groups(document.get("parallel_group_info"))
        args = document.get("distributed_args")
        if isinstance(args, dict) and isinstance(size := args.get("world_size"), str):
            metadata["world_size"] = printable(size, 12)
    return Info(rank, metadata, groups, tuple(_newer(metadata.get("torch_npu", ""))))


def _groups(said: object) -> dict[str, tuple[int, ...]]:
    groups = {}
    for key, group in said.items() if isinstance(said, dict) else ():
        ranks = group.get("global_ranks") if isinstance(group, dict) else None
        if isinstance(ranks, list) and all(isinstance(r, str) and r.isdigit() and len(r) < 10 for r in ranks):
            name = group.get("group_name")
            groups[printable(str(key), 80)] = tuple(int(r) for r in ranks)
            if isinstance(name, str):
                groups.setdefault(printable(name, 80), groups[printable(str(key), 80)])
    return groups


def _newer(version: str) -> list[str]:
    """A note where a capture is of a newer torch_npu than any whose files were looked at."""
    match = re.match(r"([0-9]{1,4})\.([0-9]{1,4})", version)
    if match is None or (int(match[1]), int(match[2])) <= KNOWN_TORCH_NPU:
        return []
    newest = ".".join(map(str, KNOWN_TORCH_NPU))
    return [f"written by torch_npu {version}, newer than {newest}, the last whose files this tool knows"]
