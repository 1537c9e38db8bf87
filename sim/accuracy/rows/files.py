"""The exchange form of measurements: CSV files of kernels and of whole steps, read strictly.

kernels: hardware, op_type, input_shapes, mean_us; optional dtype, mode, model, phase, kv_tokens, output_shapes,
block_num, aic_us, aiv_us, batch, context, scored. Shapes as msprof prints them, `;` between tensors. steps: id,
hardware, model, phase, batch, query_len, context, step_ms; optional tp, dp, ep, settings (`--set` pairs, `;` between),
scored. collectives: hardware, op, ranks, bytes, mean_us; optional bytes_semantics, measure_kind, mode, algorithm,
scored. `scored` no: listed, not scored. `docs/validation.md` says more.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from math import nan
from pathlib import Path

from scenarios.errors import ScenarioError, quoted
from scenarios.files.textfile import decode, read_bytes
from scenarios.records import dataclass
from sim.accuracy.rows.code import code_of_row
from sim.kernel.time import Code

MAX_ROWS = 1_000_000
#: Largest count: up to here a double counts one by one.
MAX_COUNT = 2**53
#: Smallest and largest time and ratio, in the units of the columns: nothing that was measured comes near.
MIN_MEASURED, MAX_MEASURED = 1e-6, 1e12
#: Values of `mode` that mean the kernel was replayed alone on data that it had just used.
REPLAYED = ("microbench", "isolated")
#: Values of `measure_kind` whose start nothing hides: launched alone, or by a captured graph. In
#: `microbench:alternating` others run before it.
BARE = ("microbench", "microbench:kernel", "microbench:event", "microbench:graph")


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One measured kernel. kv_tokens: keys of each request, 0 where unknown. replayed: isolated replay, not in a
    network. output_shapes: as the inputs', "" where not printed. cores: blocks that the profiler counted, 0 where it
    did not. in_core_us: time inside the busier kind of core (the rest is start and end), 0 where unknown. static: a
    kernel that a graph compiler (TorchAir) has compiled for its shapes. fitted: a shipped profile was fitted to it.
    code: where its code was when it started.
    """

    label: str
    hardware: str
    op_type: str
    input_shapes: str
    dtypes: str
    mean_us: float
    kv_tokens: int
    replayed: bool
    scored: bool
    output_shapes: str = ""
    cores: int = 0
    in_core_us: float = 0.0
    static: bool = False
    fitted: bool = False
    code: Code = "cold"


@dataclass(frozen=True, slots=True)
class StepKernels:
    """Kernels of one op type inside a measured step: how many, and their mean time, us."""

    op_type: str
    count: int
    mean_us: float


@dataclass(frozen=True, slots=True)
class StepRow:
    """One measured step; batch per data-parallel replica, `context` tokens cached before it. tp: ranks of one
    tensor-parallel group; dp: replicas; ep: ranks that share whole experts, 1 where none do. fitted: something of the
    shipped profiles was fitted to it. kernels: those inside the step, where the source timed them. queued: the host
    issued many steps and waited after all of them. conditions, source: how and where it was measured, in the file's
    words."""

    id: str
    hardware: str
    model: str
    phase: str
    batch: int
    query_len: int
    context: int
    tp: int
    dp: int
    ep: int
    cards: int
    step_ms: float
    settings: tuple[str, ...]
    scored: bool
    fitted: bool = False
    kernels: tuple[StepKernels, ...] = ()
    queued: bool = False
    conditions: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class CollectiveRow:
    """One measured collective. bytes: of one rank's share if `shard`, else of the whole tensor. idle: launched bare, so
    nothing hides its start. waited: in a network, so ranks that come late are part of it."""

    label: str
    hardware: str
    op: str
    ranks: int
    bytes: int
    shard: bool
    mean_us: float
    mode: str
    algorithm: str
    idle: bool
    waited: bool
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
                mean_us=positive(row["mean_us"], where, "mean_us"),
                kv_tokens=whole(row.get("kv_tokens") or "0", where, "kv_tokens"),
                replayed=(row.get("mode") or "").startswith(REPLAYED),
                scored=_is_scored(row),
                output_shapes=row.get("output_shapes") or "",
                cores=whole(row.get("block_num") or "0", where, "block_num"),
                in_core_us=max(positive_or_0(row.get(name) or "", where, name) for name in ("aic_us", "aiv_us")),
                static="ge_graph" in (row.get("mode") or ""),
                fitted=(row.get("fit") or "no") != "no",
                code=code_of_row(
                    row["op_type"],
                    row["input_shapes"],
                    mode=row.get("mode") or "",
                    note=row.get("note") or "",
                    cached_tokens=_cached_tokens(row, where),
                    model=row.get("model") or "",
                ),
            )
        )
    return rows


def _cached_tokens(row: Mapping[str, str], where: str) -> int:
    """Tokens in the cache of a decode step; 0 where the row does not say."""
    counts = [(row.get(name) or "").strip() for name in ("batch", "context")]
    if row.get("phase") != "decode" or not all(text.isascii() and text.isdigit() for text in counts):
        return 0
    batch, context = (whole(text, where, "batch, context") for text in counts)
    return batch * context


def read_steps(path: Path) -> list[StepRow]:
    """The rows of a steps file. Rows that leave batch or lengths open come with zeros there."""
    rows = []
    for line, row in rows_of_csv(path, ("id", "hardware", "model", "phase", "step_ms")):
        where = f"{path}:{line}"
        cards = [whole(row.get(key) or "1", where, key) for key in ("tp", "dp", "ep", "cards")]
        rows.append(
            StepRow(
                id=row["id"],
                hardware=row["hardware"],
                model=row["model"],
                phase=row["phase"],
                batch=whole(row.get("batch") or "0", where, "batch"),
                query_len=whole(row.get("query_len") or "0", where, "query_len"),
                context=whole(row.get("context") or "0", where, "context"),
                tp=cards[0],
                dp=cards[1],
                ep=cards[2],
                cards=max(cards),
                step_ms=positive(row["step_ms"], where, "step_ms") if row["step_ms"] else 0.0,
                settings=tuple(s for s in (row.get("settings") or "").split(";") if s.strip()),
                scored=_is_scored(row),
                fitted=(row.get("fit") or "no") != "no",
                kernels=kernels_of(row.get("kernels") or "", where),
                queued=(row.get("issued") or "") == "queued",
                conditions=row.get("conditions") or "",
                source=row.get("source") or "",
            )
        )
    return rows


def kernels_of(text: str, where: str) -> tuple[StepKernels, ...]:
    """`MatMul 141 6.8;Scatter 56 1.5`: op type, how many, mean us. Raises ScenarioError at `where` for another form."""
    kernels = []
    for item in text.split(";"):
        words = item.split()
        if not words:
            continue
        if len(words) != 3:
            raise ScenarioError([f"{where}: kernels: must be op type, count and mean us, got {item.strip()!r}"])
        name, count, mean = words
        kernels.append(StepKernels(name, whole(count, where, "kernels"), positive(mean, where, "kernels")))
    return tuple(kernels)


def read_collectives(path: Path) -> list[CollectiveRow]:
    """The rows of a collectives file. Raises ScenarioError with file:line for what is missing or no number."""
    rows = []
    for line, row in rows_of_csv(path, ("hardware", "op", "ranks", "bytes", "mean_us")):
        where = f"{path}:{line}"
        kind = (row.get("measure_kind") or "").lower()
        rows.append(
            CollectiveRow(
                label=f"{line} {row['op']} {row['ranks']} ranks {row['bytes']} bytes"[:64],
                hardware=row["hardware"],
                op=row["op"],
                ranks=whole(row["ranks"], where, "ranks"),
                bytes=whole(row["bytes"], where, "bytes"),
                shard="shard" in (row.get("bytes_semantics") or "").lower(),
                mean_us=positive(row["mean_us"], where, "mean_us"),
                mode=row.get("mode") or "auto",
                algorithm=row.get("algorithm") or "auto",
                idle=kind in BARE,
                waited=kind.startswith("in-network"),
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
            if None in row:
                raise ScenarioError(
                    [f"{path}:{reader.line_num}: more fields than the header has columns; quote commas"]
                )
            yield reader.line_num, {key: (value or "").strip() for key, value in row.items() if isinstance(key, str)}
    except csv.Error as error:
        raise ScenarioError([f"{path}:{reader.reader.line_num}: not CSV: {error}"]) from None


def _is_scored(row: dict[str, str]) -> bool:
    return (row.get("scored") or "yes").lower() != "no"


def positive(text: str, where: str, name: str) -> float:
    """`text` as a number above 0; raises ScenarioError that names `where` and `name`."""
    value = float_of(text)
    if not MIN_MEASURED <= value <= MAX_MEASURED:  # NaN is neither
        raise ScenarioError([f"{where}: {name}: must be a positive number up to 1e12, got {quoted(text)}"])
    return value


def positive_or_0(text: str, where: str, name: str) -> float:
    """`text` as a number of at least 0; 0 where it is empty. Raises as `positive` does."""
    return positive(text, where, name) if text and float_of(text) != 0 else 0.0


def float_of(text: str) -> float:
    """`text` as a number, NaN where it is none."""
    try:
        return float(text)
    except ValueError:
        return nan


def whole(text: str, where: str, name: str) -> int:
    """`text` as a whole number, 0 or more; raises ScenarioError that names `where` and `name`."""
    try:
        value = int(float(text))
    except (ValueError, OverflowError):
        value = -1
    if not 0 <= value <= MAX_COUNT:
        raise ScenarioError([f"{where}: {name}: must be a whole number from 0 to 2**53, got {quoted(text)}"])
    return value
