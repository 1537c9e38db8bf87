"""Files of requests as the field publishes them: Azure's CSV, Mooncake's JSONL, BurstGPT's CSV, ShareGPT's JSON.

The samples in `samples/` are made by this project in these forms; they hold no data of anyone.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scenarios.errors import ScenarioError, quoted
from scenarios.files.json_places import json_place
from scenarios.records import dataclass
from scenarios.traffic_settings import TraceFile

SAMPLES = Path(__file__).parent / "samples"
#: Tokens that one of Mooncake's hash_ids stands for (its README).
MOONCAKE_BLOCK_TOKENS = 512
#: Characters of English text that make a token, about: ShareGPT has texts, and a tokenizer would need its files.
CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Trace:
    """Columns of a trace by arrival. arrival_ns: from the first request on; all 0 where the form has no times. hashes:
    of each request, names of its prompt's blocks of `hash_tokens` tokens, each of all tokens up to its end."""

    arrival_ns: tuple[int, ...]
    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]
    hashes: tuple[tuple[int, ...], ...] = ()
    hash_tokens: int = 0


#: The key that names a trace's file.
FILE_KEY = "workload.traffic.trace.file"
#: (arrival s, input tokens, output tokens, hashes) of one request.
Row = tuple[float, int, int, tuple[int, ...]]


class _Wrong(Exception):
    """`what` is wrong with a row's `field`: who knows its place says it."""

    def __init__(self, field: str, what: str) -> None:
        super().__init__(field, what)
        self.field, self.what = field, what


def read_trace(trace: TraceFile, folder: Path, number: int | None = None, where: str = FILE_KEY) -> Trace:
    """The first `number` requests of a trace file. where: what names it. Raises ScenarioError, file:line:column where a
    row is wrong."""
    path = trace_path(trace.file, folder)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ScenarioError([f"{where}: cannot read {quoted(str(path))}: {reason}"]) from None
    read = {"azure": _azure, "burstgpt": _burstgpt, "mooncake": _mooncake, "sharegpt": _sharegpt}[trace.form]
    rows = sorted(read(text, str(path)), key=lambda row: row[0])[:number]
    if not rows:
        raise ScenarioError([f"{path}:1:1: no request in it (read as {trace.form})"])
    start = rows[0][0]
    return Trace(
        tuple(round(1e9 * (row[0] - start)) for row in rows),
        tuple(row[1] for row in rows),
        tuple(row[2] for row in rows),
        tuple(row[3] for row in rows) if trace.form == "mooncake" else (),
        MOONCAKE_BLOCK_TOKENS if trace.form == "mooncake" else 0,
    )


def trace_path(name: str, folder: Path) -> Path:
    near = folder / name
    sample = SAMPLES / name
    return sample if not os.path.isfile(near) and os.path.isfile(sample) else near


def _azure(text: str, path: str) -> Iterator[Row]:
    """TIMESTAMP, ContextTokens, GeneratedTokens (AzurePublicDataset, LLM inference traces 2023 and 2024)."""

    def request(row: dict[str, str]) -> Row:
        return _date_s(row, "TIMESTAMP"), _tokens(row, "ContextTokens"), _tokens(row, "GeneratedTokens"), ()

    return _rows_of_csv(text, path, ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), request)


def _burstgpt(text: str, path: str) -> Iterator[Row]:
    """Timestamp in s, Request tokens, Response tokens; failed requests have no response and are left out (BurstGPT's
    README)."""

    def request(row: dict[str, str]) -> Row | None:
        if row["Response tokens"].strip() in ("0", "0.0"):
            return None
        return _number(row, "Timestamp"), _tokens(row, "Request tokens"), _tokens(row, "Response tokens"), ()

    return _rows_of_csv(text, path, ("Timestamp", "Request tokens", "Response tokens"), request)


def _mooncake(text: str, path: str) -> Iterator[Row]:
    """A JSON object per line: timestamp in ms, input_length, output_length, hash_ids."""
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        row = _json(line, path, number)
        try:
            yield _mooncake_request(row)
        except _Wrong as wrong:
            column = json_place(path, line, (wrong.field,)).column
            raise ScenarioError([f"{path}:{number}:{column}: {wrong.what}"]) from None


def _mooncake_request(row: dict[str, Any]) -> Row:
    for key in ("timestamp", "input_length", "output_length"):
        if key not in row:
            raise _Wrong(key, f"no {key}")
    hashes = row.get("hash_ids", [])
    if not isinstance(hashes, list) or not all(isinstance(name, int) and name >= 0 for name in hashes):
        raise _Wrong("hash_ids", "hash_ids must be a list of whole numbers")
    return _number(row, "timestamp") / 1000, _tokens(row, "input_length"), _tokens(row, "output_length"), tuple(hashes)


def _sharegpt(text: str, path: str) -> Iterator[Row]:
    """A JSON list of conversations; prompt and answer of each are its first two turns, about four characters a
    token."""
    conversations = _json(text, path, kind=list)
    for number, conversation in enumerate(conversations):
        turns = conversation.get("conversations") if isinstance(conversation, dict) else None
        if not isinstance(turns, list):
            where = json_place(path, text, (number, "conversations"))
            raise ScenarioError([f"{where}: conversation {number + 1} has no list of conversations"])
        texts = [turn.get("value") for turn in turns[:2] if isinstance(turn, dict)]
        if len(texts) == 2 and all(isinstance(value, str) and value for value in texts):
            prompt, answer = (max(1, -(-len(str(value)) // CHARACTERS_PER_TOKEN)) for value in texts)
            yield 0.0, prompt, answer, ()


def _rows_of_csv(
    text: str, path: str, columns: tuple[str, ...], request: Callable[[dict[str, str]], Row | None]
) -> Iterator[Row]:
    """The request of each row, where it has one."""
    try:
        yield from _requests_of_rows(text, path, columns, request)
    except csv.Error as error:
        raise ScenarioError([f"{path}:1:1: is not CSV: {error}"]) from None


def _requests_of_rows(
    text: str, path: str, columns: tuple[str, ...], request: Callable[[dict[str, str]], Row | None]
) -> Iterator[Row]:
    lines = text.splitlines()
    reader = csv.DictReader(lines)
    names = list(reader.fieldnames or ())
    for column in columns:
        if column not in names:
            raise ScenarioError([f"{path}:1:1: no column {quoted(column)}"])
    for row in reader:
        number = reader.line_num
        if any(row[column] is None for column in columns):
            raise ScenarioError([f"{path}:{number}:1: fewer fields than columns"])
        try:
            read = request(row)
        except _Wrong as wrong:
            where = _place_of_field(path, number, lines[number - 1], names.index(wrong.field))
            raise ScenarioError([f"{where}: {wrong.what}"]) from None
        if read is not None:
            yield read


def _place_of_field(path: str, number: int, line: str, index: int) -> str:
    """file:line:column of a CSV field."""
    at, commas, in_quotes = 0, 0, False
    while commas < index and at < len(line):
        in_quotes ^= line[at] == '"'
        commas += line[at] == "," and not in_quotes
        at += 1
    return f"{path}:{number}:{at + 1}"


def _json(text: str, path: str, line: int = 1, kind: type = dict) -> Any:
    """`text`, which is at `line` of a file, parsed."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ScenarioError([f"{path}:{line}:1: no JSON: nested too deep"]) from None
    except ValueError as error:
        below, column = getattr(error, "lineno", 1), getattr(error, "colno", 1)
        what = getattr(error, "msg", str(error))
        raise ScenarioError([f"{path}:{line + below - 1}:{column}: no JSON: {what}"]) from None
    if not isinstance(value, kind):
        raise ScenarioError([f"{path}:{line}:1: must be a JSON {'list' if kind is list else 'object'}"])
    return value


def _number(row: dict[str, Any], field: str) -> float:
    try:
        number = float(row[field])
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not 0 <= number < 1e12:
        raise _Wrong(field, f"{quoted(str(row[field]))} is no time")
    return number


def _tokens(row: dict[str, Any], field: str) -> int:
    try:
        tokens = int(float(row[field]))
    except (TypeError, ValueError, OverflowError):
        tokens = 0
    if tokens < 1:
        raise _Wrong(field, f"{quoted(str(row[field]))} is no number of tokens")
    return tokens


def _date_s(row: dict[str, str], field: str) -> float:
    """Seconds of `2023-11-16 18:17:03.9799600`; a time without a zone is UTC."""
    try:
        date = datetime.fromisoformat(row[field].strip())
    except ValueError:
        raise _Wrong(field, f"{quoted(row[field])} is no date and time") from None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
