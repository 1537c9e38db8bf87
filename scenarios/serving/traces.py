"""Files of requests as the field publishes them: Azure's CSV, Mooncake's JSONL, BurstGPT's CSV, ShareGPT's JSON.

The samples in `samples/` are made by this project in these forms; they hold no data of anyone.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

from scenarios.errors import ScenarioError, quoted
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


#: (arrival s, input tokens, output tokens, hashes) of one request.
Row = tuple[float, int, int, tuple[int, ...]]


def read_trace(trace: TraceFile, folder: Path, number: int | None = None) -> Trace:
    """The first `number` requests of a trace file. Raises ScenarioError, file:line where a row is wrong."""
    path = _place(trace.file, folder)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ScenarioError([f"workload.traffic.trace.file: cannot read {quoted(str(path))}: {reason}"]) from None
    read = {"azure": _azure, "burstgpt": _burstgpt, "mooncake": _mooncake, "sharegpt": _sharegpt}[trace.form]
    rows = sorted(read(text, str(path)), key=lambda row: row[0])[:number]
    if not rows:
        raise ScenarioError([f"{path}: no request in it (read as {trace.form})"])
    start = rows[0][0]
    return Trace(
        tuple(round(1e9 * (row[0] - start)) for row in rows),
        tuple(row[1] for row in rows),
        tuple(row[2] for row in rows),
        tuple(row[3] for row in rows) if trace.form == "mooncake" else (),
        MOONCAKE_BLOCK_TOKENS if trace.form == "mooncake" else 0,
    )


def _place(name: str, folder: Path) -> Path:
    near = folder / name
    sample = SAMPLES / name
    return sample if not os.path.isfile(near) and os.path.isfile(sample) else near


def _azure(text: str, path: str) -> Iterator[Row]:
    """TIMESTAMP, ContextTokens, GeneratedTokens (AzurePublicDataset, LLM inference traces 2023 and 2024)."""
    for where, row in _csv(text, path, ("TIMESTAMP", "ContextTokens", "GeneratedTokens")):
        yield (
            _date_s(row["TIMESTAMP"], where),
            _tokens(row["ContextTokens"], where),
            _tokens(row["GeneratedTokens"], where),
            (),
        )


def _burstgpt(text: str, path: str) -> Iterator[Row]:
    """Timestamp in s, Request tokens, Response tokens; failed requests have no response and are left out (BurstGPT's
    README)."""
    for where, row in _csv(text, path, ("Timestamp", "Request tokens", "Response tokens")):
        if row["Response tokens"].strip() in ("0", "0.0"):
            continue
        yield (
            _number(row["Timestamp"], where),
            _tokens(row["Request tokens"], where),
            _tokens(row["Response tokens"], where),
            (),
        )


def _mooncake(text: str, path: str) -> Iterator[Row]:
    """A JSON object per line: timestamp in ms, input_length, output_length, hash_ids."""
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        row = _json(line, where)
        missing = [key for key in ("timestamp", "input_length", "output_length") if key not in row]
        if missing:
            raise ScenarioError([f"{where}: no {missing[0]}"])
        hashes = row.get("hash_ids", [])
        if not isinstance(hashes, list) or not all(isinstance(name, int) and name >= 0 for name in hashes):
            raise ScenarioError([f"{where}: hash_ids must be a list of whole numbers"])
        yield (
            _number(row["timestamp"], where) / 1000,
            _tokens(row["input_length"], where),
            _tokens(row["output_length"], where),
            tuple(hashes),
        )


def _sharegpt(text: str, path: str) -> Iterator[Row]:
    """A JSON list of conversations; prompt and answer of each are its first two turns, about four characters a
    token."""
    conversations = _json(text, path, list)
    for number, conversation in enumerate(conversations, start=1):
        where = f"{path}: conversation {number}"
        turns = conversation.get("conversations") if isinstance(conversation, dict) else None
        if not isinstance(turns, list):
            raise ScenarioError([f"{where}: no list of conversations"])
        texts = [turn.get("value") for turn in turns[:2] if isinstance(turn, dict)]
        if len(texts) == 2 and all(isinstance(value, str) and value for value in texts):
            prompt, answer = (max(1, -(-len(str(value)) // CHARACTERS_PER_TOKEN)) for value in texts)
            yield 0.0, prompt, answer, ()


def _csv(text: str, path: str, columns: Iterable[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """(file:line, row) of each row."""
    reader = csv.DictReader(StringIO(text))
    missing = [column for column in columns if column not in (reader.fieldnames or ())]
    if missing:
        raise ScenarioError([f"{path}:1: no column {quoted(missing[0])}"])
    for row in reader:
        where = f"{path}:{reader.line_num}"
        if any(row[column] is None for column in columns):
            raise ScenarioError([f"{where}: fewer fields than columns"])
        yield where, row


def _json(text: str, where: str, kind: type = dict) -> Any:
    try:
        read = json.loads(text)
    except ValueError as error:
        raise ScenarioError([f"{where}: no JSON: {error}"]) from None
    if not isinstance(read, kind):
        raise ScenarioError([f"{where}: must be a JSON {'list' if kind is list else 'object'}"])
    return read


def _number(value: Any, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not 0 <= number < 1e12:
        raise ScenarioError([f"{where}: {quoted(str(value))} is no time"])
    return number


def _tokens(value: Any, where: str) -> int:
    try:
        tokens = int(float(value))
    except (TypeError, ValueError, OverflowError):
        tokens = 0
    if tokens < 1:
        raise ScenarioError([f"{where}: {quoted(str(value))} is no number of tokens"])
    return tokens


def _date_s(text: str, where: str) -> float:
    """Seconds of `2023-11-16 18:17:03.9799600`; a time without a zone is UTC."""
    try:
        date = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ScenarioError([f"{where}: {quoted(text)} is no date and time"]) from None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
