"""The exchange form of measurements: CSV files of kernels and of whole steps, read strictly.

kernels: hardware, op_type, input_shapes, mean_us; optional dtype, mode, model, phase, kv_tokens, scored. Shapes as
msprof prints them, `;` between tensors. steps: id, hardware, model, phase, batch, query_len, context, step_ms; optional
tp, dp, ep, settings (`--set` pairs, `;` between), scored. `scored` no: listed, not scored. `docs/validation.md` says
more.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from scenarios.errors import ScenarioError
from scenarios.files.textfile import decode, read_bytes

MAX_ROWS = 1_000_000
#: Values of `mode` that mean the kernel was replayed alone on data that it had just used.
REPLAYED = ("microbench", "isolated")


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One measured kernel. kv_tokens: keys of each request, 0 where unknown. replayed: isolated replay, not in a
    network."""

    label: str
    hardware: str
    op_type: str
    input_shapes: str
    dtypes: str
    mean_us: float
    kv_tokens: int
    replayed: bool
    scored: bool


@dataclass(frozen=True, slots=True)
class StepRow:
    """One measured step; batch per data-parallel replica, `context` tokens cached before it."""

    id: str
    hardware: str
    model: str
    phase: str
    batch: int
    query_len: int
    context: int
    cards: int
    step_ms: float
    settings: tuple[str, ...]
    scored: bool


def read_kernels(path: Path) -> list[KernelRow]:
    """The rows of a kernels file. Raises ScenarioError with file:line for what is missing or no number."""
    rows = []
    for line, row in rows_of_csv(path, ("hardware", "op_type", "input_shapes", "mean_us")):
        where = f"{path}:{line}"
        rows.append(
            KernelRow(
                label=f"{line} {row['op_type']} {row['input_shapes'][:48]}",
                hardware=row["hardware"],
                op_type=row["op_type"],
                input_shapes=row["input_shapes"],
                dtypes=row.get("dtype") or row.get("dtypes") or "",
                mean_us=_positive(row["mean_us"], where, "mean_us"),
                kv_tokens=_whole(row.get("kv_tokens") or "0", where, "kv_tokens"),
                replayed=(row.get("mode") or "").startswith(REPLAYED),
                scored=_is_scored(row),
            )
        )
    return rows


def read_steps(path: Path) -> list[StepRow]:
    """The rows of a steps file. Rows that leave batch or lengths open come with zeros there."""
    rows = []
    for line, row in rows_of_csv(path, ("id", "hardware", "model", "phase", "step_ms")):
        where = f"{path}:{line}"
        cards = [_whole(row.get(key) or "1", where, key) for key in ("tp", "dp", "ep", "cards")]
        rows.append(
            StepRow(
                id=row["id"],
                hardware=row["hardware"],
                model=row["model"],
                phase=row["phase"],
                batch=_whole(row.get("batch") or "0", where, "batch"),
                query_len=_whole(row.get("query_len") or "0", where, "query_len"),
                context=_whole(row.get("context") or "0", where, "context"),
                cards=max(cards),
                step_ms=_positive(row["step_ms"], where, "step_ms") if row["step_ms"] else 0.0,
                settings=tuple(s for s in (row.get("settings") or "").split(";") if s.strip()),
                scored=_is_scored(row),
            )
        )
    return rows


def rows_of_csv(path: Path, needed: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, row) of a CSV file that has the `needed` columns. Raises ScenarioError, located, where it is none."""
    text = decode(read_bytes(path, str(path)), str(path))
    reader = csv.DictReader(text.splitlines(keepends=True), strict=True)
    try:
        missing = [name for name in needed if name not in (reader.fieldnames or ())]
        if missing:
            raise ScenarioError(
                [f"{path}:1: no column {', '.join(missing)}; found {', '.join(reader.fieldnames or ())}"]
            )
        for count, row in enumerate(reader):
            if count >= MAX_ROWS:
                raise ScenarioError([f"{path}: more than {MAX_ROWS} rows"])
            yield reader.line_num, {key: (value or "").strip() for key, value in row.items() if isinstance(key, str)}
    except csv.Error as error:
        raise ScenarioError([f"{path}:{reader.line_num}: not CSV: {error}"]) from None


def _is_scored(row: dict[str, str]) -> bool:
    return (row.get("scored") or "yes").lower() != "no"


def _positive(text: str, where: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (isfinite(value) and value > 0):
        raise ScenarioError([f"{where}: {name}: must be a positive number, got {text!r}"])
    return value


def _whole(text: str, where: str, name: str) -> int:
    try:
        value = int(float(text))
    except (ValueError, OverflowError):
        value = -1
    if value < 0:
        raise ScenarioError([f"{where}: {name}: must be a whole number, 0 or more, got {text!r}"])
    return value
