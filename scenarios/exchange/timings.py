"""Timed operations as plain data: what a device's microbenchmarks write, and what a hardware profile is fitted to.

A file of them is JSON, a row a line. It says whether all that was planned is in it (`complete`), so that a run that was
cut short is never taken for a whole one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from math import isfinite
from pathlib import Path
from typing import Any, get_args

from scenarios.errors import ScenarioError, printable
from scenarios.ops.catalogue import CATALOGUE
from scenarios.ops.program import Attr, DType, Format, Op, Role, Tensor
from scenarios.records import dataclass

KIND, VERSION = "microbenchmarks", 1
#: Rows that are no op of the catalogue: a captured piece (several ops), a whole step, a copy through memory, one wait
#: for the device, one event.
CAPTURED, STEP, COPY, SYNCHRONIZE, EVENT = "captured", "step", "copy", "synchronize", "event"
NO_OPS = (STEP, COPY, SYNCHRONIZE, EVENT)
#: A file larger than this is none of ours.
MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Timing:
    """One thing that was timed again and again.

    trial: the microbenchmark that it is of. form: how the device computed it. ops: what ran: one op, or all of a
    captured piece. median, low, high: microseconds without other programs' time, at the speed of the machine at which
    its reference kernel took reference_us; low and high are the 10th and 90th percentile. raw_us: the median by the
    wall clock. count: equal calls in one step. values: numbers that belong to its kind (of a copy its `bytes`; of a
    step its `units`, its compiled `pieces`, its `layers`, and in microseconds what the host takes next to each unit and
    a mark, `host_us` and `mark_us`).
    """

    kind: str
    trial: str
    form: str
    ops: tuple[Op, ...]
    median_us: float
    low_us: float
    high_us: float
    raw_us: float
    reference_us: float
    repeats: int
    count: int = 1
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def op(self) -> Op:
        return self.ops[0]


@dataclass(frozen=True, slots=True)
class Timings:
    """The microbenchmarks of one device.

    about: where and with what they ran: backend, device, torch, threads, date. plan: what identifies the trials that
    were asked for; done: those that have ended. refused: what the device cannot do, with its reason.
    """

    about: Mapping[str, str | int]
    plan: str
    complete: bool
    rows: tuple[Timing, ...]
    done: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def backend(self) -> str:
        return str(self.about["backend"])


def pieces_of(timings: Timings) -> Iterator[str]:
    """The text of a file of timings, a row a line."""
    head: dict[str, Any] = {
        "kind": KIND,
        "version": VERSION,
        "complete": timings.complete,
        "plan": timings.plan,
        "about": dict(timings.about),
        "done": list(timings.done),
        "refused": [list(pair) for pair in timings.refused],
    }
    yield json.dumps(head, ensure_ascii=False, allow_nan=False)[:-1] + ', "rows": [\n'
    last = len(timings.rows) - 1
    for number, row in enumerate(timings.rows):
        yield json.dumps(_row(row), allow_nan=False) + ("\n" if number == last else ",\n")
    yield "]}\n"


def read_timings(path: Path) -> Timings:
    """The timings in `path`. Raises ScenarioError, one line, where it is not a whole file of them."""
    shown = printable(str(path), 200)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ScenarioError([f"{shown}: larger than {MAX_BYTES >> 20} MiB: not a file of microbenchmarks"])
        result = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_constant)
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError([f"{shown}: cannot be read: {getattr(error, 'strerror', None) or 'no UTF-8'}"]) from None
    except json.JSONDecodeError as error:
        raise ScenarioError(
            [
                f"{shown}:{error.lineno}:{error.colno}: not a whole file of microbenchmarks: {error.msg}; delete it to "
                "begin anew"
            ]
        ) from None
    except (ValueError, RecursionError):
        raise ScenarioError([f"{shown}: not a file of microbenchmarks; delete it to begin anew"]) from None
    if not isinstance(result, dict) or result.get("kind") != KIND:
        raise ScenarioError([f"{shown}: not a file of microbenchmarks (`whatif calibrate` writes them)"])
    if result.get("version") != VERSION:
        what = f"version {printable(str(result.get('version')))} of its kind, and this program reads {VERSION}"
        raise ScenarioError([f"{shown}: {what}; delete it to begin anew"])
    try:
        return _timings(result)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise ScenarioError([f"{shown}: a row or its head is damaged ({printable(str(error))}); delete it"]) from None


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _timings(result: Mapping[str, Any]) -> Timings:
    about = {str(k): v for k, v in result["about"].items() if isinstance(v, str | int)}
    about["backend"]
    return Timings(
        about=about,
        plan=str(result["plan"]),
        complete=result["complete"] is True,
        rows=tuple(_timing(row) for row in result["rows"]),
        done=tuple(str(name) for name in result["done"]),
        refused=tuple((str(what), str(why)) for what, why in result["refused"]),
    )


def _row(row: Timing) -> dict[str, Any]:
    return {
        "kind": row.kind,
        "trial": row.trial,
        "form": row.form,
        "median_us": round(row.median_us, 3),
        "low_us": round(row.low_us, 3),
        "high_us": round(row.high_us, 3),
        "raw_us": round(row.raw_us, 3),
        "reference_us": round(row.reference_us, 3),
        "repeats": row.repeats,
        "count": row.count,
        "values": dict(row.values),
        "ops": [_op(op) for op in row.ops],
    }


def _timing(row: Mapping[str, Any]) -> Timing:
    times = [float(row[name]) for name in ("median_us", "low_us", "high_us", "raw_us", "reference_us")]
    if not all(isfinite(time) and time >= 0 for time in times) or times[-1] == 0:
        raise ValueError(f"{row['kind']}: a time that cannot be")
    ops = tuple(_op_of(op) for op in row["ops"])
    if not ops and row["kind"] not in NO_OPS:
        raise ValueError(f"{row['kind']}: without its ops")
    values = {str(name): float(value) for name, value in row["values"].items()}
    median, low, high, raw, reference = times
    return Timing(
        kind=str(row["kind"]),
        trial=str(row["trial"]),
        form=str(row["form"]),
        ops=ops,
        median_us=median,
        low_us=low,
        high_us=high,
        raw_us=raw,
        reference_us=reference,
        repeats=int(row["repeats"]),
        count=int(row["count"]),
        values=values,
    )


def _op(op: Op) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": op.kind, "inputs": _tensors(op.inputs), "outputs": _tensors(op.outputs)}
    return fields | {"name": op.name, "op_type": op.op_type, "attrs": dict(op.attrs)}


def _tensors(tensors: tuple[Tensor, ...]) -> list[list[Any]]:
    return [[t.dtype, list(t.shape), t.role, t.format] for t in tensors]


def _op_of(op: Mapping[str, Any]) -> Op:
    if op["kind"] not in CATALOGUE:
        raise ValueError(f"unknown kind {op['kind']}")
    attrs = tuple((str(name), _attr(value)) for name, value in op["attrs"].items())
    return Op(
        op["kind"],
        str(op["name"]),
        _tensors_of(op["inputs"]),
        _tensors_of(op["outputs"]),
        attrs,
        str(op["op_type"]),
    )


def _attr(value: Any) -> Attr:
    if isinstance(value, list):
        return tuple((int(a), int(b), int(c)) for a, b, c in value)
    if not isinstance(value, int | float | str | bool):
        raise TypeError("an attribute of an unknown type")
    return value


def _tensors_of(entries: list[Any]) -> tuple[Tensor, ...]:
    tensors = []
    for number, (dtype, shape, role, form) in enumerate(entries):
        for word, known in ((dtype, DType), (role, Role), (form, Format)):
            if word not in get_args(known):
                raise ValueError(f"unknown word {word}")
        tensors.append(Tensor(f"t{number}", tuple(int(side) for side in shape), dtype, role, form))
    return tuple(tensors)
