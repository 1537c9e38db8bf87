"""A `run` document read back from its file, with suspicion: what `compare` takes from it is there and is sane."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Annotated, Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from scenarios.errors import ScenarioError, printable, shown
from sim.predict.result import SCHEMA_VERSION

MAX_BYTES = 64 << 20
#: Levels of braces and brackets; ours have 5.
MAX_DEPTH = 32

#: Nothing that is measured here comes near the upper end; it keeps sums and ratios finite.
Amount = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True)


class _Metric(_Part):
    value: Amount


class _Named(_Part):
    name: str


class _Kernel(_Part):
    kind: str
    total_us: Amount


class _Overlap(_Part):
    switch: str = Field(alias="pass")
    first: str
    second: str
    places: int
    first_us: Amount
    second_us: Amount
    ideal_us: Amount
    predicted_us: Amount
    lost_us: Annotated[float, Field(ge=-1e18, le=1e18, allow_inf_nan=False)]


class _Step(_Part):
    model_config = ConfigDict(strict=True, extra="allow")
    __pydantic_extra__: dict[str, Amount]

    total_us: Annotated[float, Field(ge=1e-3, le=1e18, allow_inf_nan=False)]
    free_us: Amount
    communication_not_overlapped_us: Amount


class _Mean(_Part):
    mean: Amount
    low: Amount | None = None
    high: Amount | None = None


class _Gap(_Part):
    device_ms: Amount
    prefill_ms: Amount
    engine_ms: Amount


class _Serving(_Part):
    completed: Amount
    duration_s: Amount
    request_throughput: Amount
    output_throughput: Amount
    total_token_throughput: Amount
    mean_running: Amount
    ttft_ms: _Mean
    tpot_ms: _Mean
    e2el_ms: _Mean | None = None
    queue_ms: _Mean
    gap: _Gap | None = None


class _Traffic(_Part):
    arrival: str
    rate: Amount | None = None
    concurrency: Amount | None = None


class _Workload(_Part):
    traffic: _Traffic


class _Served(_Part):
    workload: _Workload


class _Requests(_Part):
    """What `compare` reads of a result that served requests."""

    scenario: _Served
    serving: _Serving


class _Result(_Part):
    """What `compare` reads."""

    scenario: _Named
    hardware: str
    bottleneck: _Named
    metrics: dict[str, _Metric]
    step: _Step
    kernels: list[_Kernel]
    overlaps: list[_Overlap] = []  # results written before overlaps were counted have none
    kernel_count: Amount
    launches: Amount
    hbm_bytes: Amount
    global_memory_bytes: Amount


def read_result(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The document in `path`.

    Raises ScenarioError, one line, where the file is unreadable, larger than MAX_BYTES, not JSON, not a result of
    `whatif run --json`, or of another schema version.
    """
    file = printable(os.fspath(path), 200)
    document = _parsed(_text(Path(path), file), file)
    if not isinstance(document, dict) or "schema_version" not in document:
        _fail(file, "not a result of `whatif run --json`")
    version = document["schema_version"]
    if version != SCHEMA_VERSION or isinstance(version, bool):
        _fail(file, f"schema_version is {shown(version)}, this version reads {SCHEMA_VERSION}")
    if _deep(document):
        _fail(file, f"nested deeper than {MAX_DEPTH} levels, so not a result of `whatif run --json`")
    try:
        _Result.model_validate(document)
        if document.get("serving"):
            _Requests.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(printable(str(key)) for key in first["loc"])
        _fail(file, f"{where}: {first['msg']}, so not a result of `whatif run --json`")
    return document


def _text(path: Path, file: str) -> str:
    try:
        mode = path.stat()
        if not stat.S_ISREG(mode.st_mode):  # a pipe or a device may never end
            _fail(file, "is a folder" if stat.S_ISDIR(mode.st_mode) else "is not a regular file")
        if mode.st_size > MAX_BYTES:
            _fail(file, f"larger than {MAX_BYTES} bytes, so not a result of `whatif run --json`")
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        _fail(file, "no such file")
    except OSError as error:
        _fail(file, f"cannot be read: {error.strerror or error}")
    except ValueError:  # no UTF-8, or a NUL in the path
        _fail(file, "not JSON: not UTF-8 text")


def _parsed(text: str, file: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        _fail(f"{file}:{error.lineno}:{error.colno}", f"not JSON: {error.msg}")
    except (ValueError, RecursionError):  # NaN, a number of thousands of digits, a thousand brackets
        _fail(file, "not a result of `whatif run --json`")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _deep(document: Any) -> bool:
    """Whether the document has more than MAX_DEPTH levels."""
    level = [document]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())
        ]
        if not level:
            return False
    return True


def _fail(where: str, what: str) -> NoReturn:
    raise ScenarioError([f"{where}: {what}"])
