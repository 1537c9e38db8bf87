"""Results of load tests of a serving engine, as the tools write them: vLLM bench, guidellm, AIPerf, AISBench.

vLLM bench: the JSON of `vllm bench serve --save-result` (also `--save-detailed`), its JSON lines (SGLang's too) or the
list of a sweep. guidellm: `benchmarks.json`. AIPerf and GenAI-Perf: `profile_export_aiperf.json` or `.csv`. AISBench:
the JSON of a performance run, with the CSV of latencies next to it. Which tool wrote a file is seen by its keys. Means
are read; a result without TPOT takes ITL. Of several runs those in which no request ended well are left out.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Literal

from scenarios.errors import ScenarioError, printable
from scenarios.exchange.result_fields import Fields, Keys, number_of
from scenarios.files.document import Mark
from scenarios.files.json_places import json_place
from scenarios.files.textfile import decode, read_bytes
from scenarios.records import dataclass

Arrival = Literal["constant", "poisson", "closed", "burst"]
#: Arrivals at a rate, as guidellm and AIPerf call them.
_AT_RATE: dict[str, Arrival] = {"constant": "constant", "poisson": "poisson"}
#: Requests in flight that a strategy of guidellm implies.
_STREAMS = {"synchronous": 1.0}
#: Share of `max_concurrency` in flight from which on it, and no longer the rate, decides when requests are sent.
BOUND = 0.9
#: `burstiness` (a number, or Infinity) from which on vLLM bench's requests come at equal distances, within a tenth.
REGULAR = 100.0
#: Files are this large at most: guidellm and `--save-detailed` keep each request with its text.
MAX_BYTES = 512 << 20
#: Load tests of one file that are read.
MAX_RESULTS = 10_000
#: What no load test reports: requests in flight or a second, tokens of a request, ms of a latency.
MAX_IN_FLIGHT, MAX_TOKENS, MAX_MS = 1_000_000, 100_000_000, 1_000_000_000
KNOWN = "a result of vllm bench serve, guidellm, AIPerf or AISBench"
#: Where the tools say how many requests ended well.
_ENDED = (
    "completed",
    "metrics.request_totals.successful",
    "run_stats.requests_made.successful",
    "request_totals.successful",
    "request_count.avg",
    "request_count",
    "Success Requests.total",
    "Success Requests.stable",
)
#: How a CSV of AISBench starts.
_AISBENCH_CSV = "Performance Parameters"


@dataclass(frozen=True, slots=True)
class LoadTest:
    """One load test. Means in ms; None where the tool does not say. rate: requests/s (constant, poisson). concurrency:
    requests in flight (closed). requests: completed. window_s: only requests that ended within it were counted.
    output_throughput: output tokens/s. model: as the tool names it."""

    tool: str
    label: str
    arrival: Arrival
    rate: float | None
    concurrency: int | None
    requests: int
    window_s: float | None
    input_tokens: int
    output_tokens: int
    ttft_ms: float | None
    tpot_ms: float | None
    output_throughput: float | None
    model: str | None = None


def read_load_tests(path: Path) -> list[LoadTest]:
    """The load tests of a file. Raises ScenarioError, one line, where its form is not known or a number is missing."""
    text = _text(path)
    if path.suffix.lower() == ".csv":
        if text.lstrip().startswith(_AISBENCH_CSV):
            path = path.with_suffix(".json")
            text = _text(path)
        else:
            values, lines = _aiperf_csv(path, text)
            return [_aiperf(Fields(path, values, places=partial(_csv_place, path, lines)))]
    runs = [run for start, document in _documents(path, text) for run in _runs(path, document, _Text(text, start))]
    if not runs:
        raise ScenarioError([f"{path}:1:1: holds no load test"])
    answered = [(read, fields) for read, fields in runs if _ended(fields) != 0]
    if not answered:
        raise ScenarioError([f"{path}:1:1: none of its {len(runs)} load tests has a request that ended well"])
    return [_told(read(fields), fields) for read, fields in answered[:MAX_RESULTS]]


def _told(test: LoadTest, fields: Fields) -> LoadTest:
    """`test`, if it says anything of the engine, and nothing that no engine can do."""
    for what, value, most in (
        ("requests in flight", test.concurrency, MAX_IN_FLIGHT),
        ("input tokens a request", test.input_tokens, MAX_TOKENS),
        ("output tokens a request", test.output_tokens, MAX_TOKENS),
        ("ms of TTFT", test.ttft_ms, MAX_MS),
        ("ms of TPOT", test.tpot_ms, MAX_MS),
        ("requests/s", test.rate, MAX_IN_FLIGHT),
    ):
        if value is not None and not 0 < value <= most:
            label = printable(test.label, 80)
            raise fields.wrong("", f"{label}: {value:.4g} {what}: more than 0 and at most {most:,} are due")
    if test.ttft_ms is None and test.tpot_ms is None and test.output_throughput is None:
        raise fields.wrong("", f"{printable(test.label, 80)} has no TTFT, no TPOT and no output tokens/s")
    return test


def _text(path: Path) -> str:
    if path.is_dir():
        raise ScenarioError([f"{path}: is a folder; {KNOWN} is due"])
    return decode(read_bytes(path, str(path), MAX_BYTES), str(path)).removeprefix("\ufeff")


def _ended(fields: Fields) -> float | None:
    """Requests that ended well, as far as the run says so."""
    for name in _ENDED:
        number = number_of(fields.value(name))
        if number is not None:
            return number
    return None


#: Keys near the head of a result, by tool; `schema_version` is in ours, which have some of them too, and in AIPerf's.
_MARKS = (
    (b'"completed"', b'"total_input_tokens"'),
    (b'"benchmarks"',),
    (b'"time_to_first_token"',),
    (b'"input_config"',),
    (b'"Request Throughput"',),
)
#: As much of a file as tells what it is, bytes.
_SNIFFED = 1 << 16


def is_load_test(path: Path) -> bool:
    """Whether a file looks like a load test's result, by the keys at its head; one that cannot be read is none."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as opened:
            head = opened.read(_SNIFFED)
    except (OSError, ValueError):  # no permission, a name too long, a NUL in it
        return False
    if path.suffix.lower() == ".csv":
        return head.removeprefix(b"\xef\xbb\xbf").startswith((b"Metric,", _AISBENCH_CSV.encode()))
    ours = (b'"schema_version"' in head and b'"aiperf_version"' not in head) or b'"traceEvents"' in head
    return not ours and any(all(mark in head for mark in marks) for marks in _MARKS)


@dataclass(frozen=True, slots=True)
class _Text:
    """The text of a file and where in it a document starts."""

    text: str
    start: int

    def places(self, path: Path, *above: str | int) -> Callable[[Keys], Mark]:
        """Where what stands under keys of the object under `above` is."""
        return lambda keys: json_place(str(path), self.text, (*above, *keys), self.start)


def _documents(path: Path, text: str) -> list[tuple[int, Any]]:
    """One JSON document, or one per line, each with where in the text it starts."""
    try:
        return [(0, json.loads(text))]
    except (ValueError, RecursionError) as whole:
        try:
            documents = [
                (line.start(), json.loads(line[0])) for line in re.finditer(r"[^\r\n]+", text) if line[0].strip()
            ]
        except (ValueError, RecursionError):
            where = f"{path}:{getattr(whole, 'lineno', 1)}:{getattr(whole, 'colno', 1)}"
            what = getattr(whole, "msg", "nested too deep")
            raise ScenarioError([f"{where}: not JSON: {what}; {KNOWN} is due"]) from None
        return documents


def _runs(path: Path, document: Any, text: _Text) -> Iterator[tuple[Callable[[Fields], LoadTest], Fields]]:
    """How each load test of a document is read, and its fields."""
    if isinstance(document, list) and document and all(isinstance(run, dict) for run in document):
        for number, run in enumerate(document):
            fields = Fields(path, run, f"[{number}].", text.places(path, number))
            yield _tool(fields), fields
        return
    if not isinstance(document, dict):
        where = json_place(str(path), text.text, (), text.start)
        raise ScenarioError([f"{where}: {KNOWN} is due, and it holds no JSON object"])
    if isinstance(document.get("benchmarks"), list):
        for number, benchmark in enumerate(document["benchmarks"]):
            yield _guidellm, Fields(path, benchmark, f"benchmarks[{number}].", text.places(path, "benchmarks", number))
        return
    if isinstance(document.get("records"), dict):  # AIPerf of 2025 kept its metrics in an object of their own
        fields = Fields(path, {**document["records"], **document}, places=text.places(path, "records"))
    else:
        fields = Fields(path, document, places=text.places(path))
    yield _tool(fields), fields


def _tool(fields: Fields) -> Callable[[Fields], LoadTest]:
    """Who reads a result with these keys."""
    document = fields.document
    if "time_to_first_token" in document or "request_latency" in document or "input_config" in document:
        return _aiperf
    if "Request Throughput" in document:
        return _aisbench
    if "mean_ttft_ms" in document:
        return _vllm
    keys = ", ".join(printable(str(key), 40) for key in list(document)[:6])
    mark = fields.places(()) if fields.places else f"{fields.path}:1:1"
    raise ScenarioError([f"{mark}: {KNOWN} is due; its keys are {keys or 'none'}"])


def _vllm(fields: Fields) -> LoadTest:
    completed = fields.count("completed")
    rate, clients = fields.maybe("request_rate"), fields.maybe("max_concurrency")
    if rate and clients:  # whichever of the two held requests back
        rate = None if _in_flight(fields) >= BOUND * clients else rate
        clients = None if rate else clients
    at_rate: Arrival = "constant" if _evenness(fields.value("burstiness")) >= REGULAR else "poisson"
    arrival: Arrival = at_rate if rate else "closed" if clients else "burst"
    return LoadTest(
        tool="vllm bench",
        label=str(fields.value("model_id") or fields.value("label") or "vllm bench"),
        arrival=arrival,
        rate=rate,
        concurrency=round(clients) if clients else None,
        requests=completed,
        window_s=None,
        input_tokens=max(1, round(fields.number("total_input_tokens") / completed)),
        output_tokens=max(1, round(fields.number("total_output_tokens") / completed)),
        ttft_ms=fields.number("mean_ttft_ms"),
        tpot_ms=fields.maybe("mean_tpot_ms", "mean_itl_ms"),
        output_throughput=fields.maybe("output_throughput"),
        model=_model(fields, "model_id"),
    )


def _evenness(burstiness: Any) -> float:
    """`burstiness` of vLLM bench, the shape of its gamma intervals; 1, Poisson, where a file has none."""
    return inf if burstiness == inf else number_of(burstiness) or 1.0


def _model(fields: Fields, name: str) -> str | None:
    """A model's name, or the only one of a list."""
    value = fields.value(name)
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, str) and value else None


def _in_flight(fields: Fields) -> float:
    """Requests in flight on average, by Little's law; 0 where a result does not say. The start and the end of a short
    run, with fewer, count as well."""
    seconds, throughput = fields.maybe("duration"), fields.maybe("output_throughput")
    tpot = fields.maybe("mean_tpot_ms", "mean_itl_ms") or 0.0
    tokens = fields.number("total_output_tokens") / fields.count("completed")
    latency_s = (fields.number("mean_ttft_ms") + (tokens - 1) * tpot) / 1000
    rate = fields.count("completed") / seconds if seconds else (throughput or 0.0) / tokens
    return rate * latency_s


def _guidellm(fields: Fields) -> LoadTest:
    def mean(name: str) -> tuple[str, ...]:
        return f"metrics.{name}.successful.mean", f"metrics.{name}.total.mean"

    strategy = (
        fields.value("config.strategy") or fields.value("scheduler.strategy") or fields.value("args.strategy") or {}
    )
    kind = str(strategy.get("type_") or strategy.get("kind") or "") if isinstance(strategy, Mapping) else ""
    rate = number_of(strategy.get("rate")) if isinstance(strategy, Mapping) else None
    in_flight = fields.maybe(*mean("request_concurrency"))
    arrival = _AT_RATE.get(kind, "closed") if rate else "closed"
    rate = None if arrival == "closed" else rate
    streams = number_of(strategy.get("streams")) if isinstance(strategy, Mapping) else None
    clients = _STREAMS.get(kind) or streams or in_flight
    if arrival == "closed" and not clients:
        raise fields.wrong("metrics.request_concurrency", "a number above 0 is due, and there is none")
    return LoadTest(
        tool="guidellm",
        label=f"{kind or 'benchmark'} {rate or clients:g}",
        arrival=arrival,
        rate=rate,
        concurrency=max(1, round(clients)) if arrival == "closed" and clients else None,
        requests=fields.count(
            "metrics.request_totals.successful", "run_stats.requests_made.successful", "request_totals.successful"
        ),
        window_s=fields.maybe("duration", "run_duration") if arrival != "closed" else None,
        input_tokens=max(1, round(fields.number(*mean("prompt_token_count")))),
        output_tokens=max(1, round(fields.number(*mean("output_token_count")))),
        ttft_ms=fields.maybe(*mean("time_to_first_token_ms")),
        tpot_ms=fields.number(*mean("inter_token_latency_ms"), *mean("time_per_output_token_ms")),
        output_throughput=fields.maybe(*mean("output_tokens_per_second")),
        model=_model(fields, "config.backend.model"),
    )


#: Where AIPerf, by version, and GenAI-Perf keep the load that was asked for.
_LOADS = tuple(f"input_config{place}" for place in (".loadgen", ".phases.profiling", ".perf_analyzer.stimulus", ""))


def _aiperf(fields: Fields) -> LoadTest:
    rate = fields.maybe(*(f"{load}.request_rate" for load in _LOADS), *(f"{load}.rate" for load in _LOADS))
    clients = fields.maybe(*(f"{load}.concurrency" for load in _LOADS))
    latency_ms, throughput = fields.milliseconds("request_latency"), fields.maybe("request_throughput.avg")
    in_flight = throughput * latency_ms / 1000 if throughput and latency_ms else None  # Little's law
    if rate and clients:
        rate = None if (in_flight or 0.0) >= BOUND * clients else rate
    elif not rate and not clients:
        if in_flight is None:
            fields.number("request_throughput.avg")
            fields.number("request_latency.avg")
        clients = in_flight
    mode = str(fields.value("input_config.loadgen.request_rate_mode"))
    return LoadTest(
        tool="AIPerf",
        label="AIPerf",
        arrival=_AT_RATE.get(mode, "poisson") if rate else "closed",
        rate=rate,
        concurrency=max(1, round(clients)) if clients and not rate else None,
        requests=fields.count("request_count.avg", "request_count", "request_latency.count"),
        window_s=None,
        input_tokens=max(1, round(fields.number("input_sequence_length.avg"))),
        output_tokens=max(1, round(fields.number("output_sequence_length.avg"))),
        ttft_ms=fields.milliseconds("time_to_first_token"),
        tpot_ms=fields.milliseconds("inter_token_latency"),
        output_throughput=fields.maybe("output_token_throughput.avg"),
        model=_model(fields, "input_config.endpoint.model_names"),
    )


#: Rows of AIPerf's CSV (their names without the unit) -> keys of its JSON.
_AIPERF_ROWS = {
    "request latency": "request_latency",
    "time to first token": "time_to_first_token",
    "inter token latency": "inter_token_latency",
    "input sequence length": "input_sequence_length",
    "output sequence length": "output_sequence_length",
    "request throughput": "request_throughput",
    "output token throughput": "output_token_throughput",
    "request count": "request_count",
}


def _csv_rows(path: Path, text: str) -> list[list[str]]:
    """A row a line: a result has no cell that goes on in the next."""
    try:
        return [next(csv.reader([line]), []) for line in text.splitlines()]
    except csv.Error as error:
        raise ScenarioError([f"{path}:1:1: is not CSV: {error}"]) from None


def _csv_place(path: Path, lines: Mapping[str, int], keys: Keys) -> Mark:
    """The line of what stands under `keys`; the first one where there is none."""
    return Mark(str(path), lines.get(str(keys[0]), 1) if keys else 1, 1)


def _aiperf_csv(path: Path, text: str) -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
    """The CSV's sections as its JSON has them, {"request_latency": {"avg": 6550.4, "unit": "ms"}}, and their lines."""
    values: dict[str, dict[str, Any]] = {}
    lines: dict[str, int] = {}
    for line, row in enumerate(_csv_rows(path, text), 1):
        if len(row) < 2:
            continue
        name = re.fullmatch(r"\s*(.*?)\s*(?:\(([^()]*)\))?\s*", row[0])
        key = _AIPERF_ROWS.get(name[1].lower()) if name else None
        number = number_of(row[1])
        if name and key and number is not None:
            values.setdefault(key, {"avg": number, "unit": name[2]})
            lines.setdefault(key, line)
    if not values:
        raise ScenarioError([f"{path}:1:1: {KNOWN} is due; a CSV is AIPerf's: Metric,avg,min,max,..."])
    return values, lines


def _aisbench(fields: Fields) -> LoadTest:
    def total(name: str) -> tuple[str, ...]:
        return f"{name}.total", f"{name}.stable"

    path = fields.path
    latencies = _aisbench_csv(path.with_suffix(".csv"))
    completed = fields.count(*total("Success Requests"), *total("Total Requests"))
    clients = fields.number(*total("Concurrency"), *total("Max Concurrency"))
    missing = [name for name in ("TTFT", "TPOT") if name not in latencies]
    if missing:
        latency_file = path.with_suffix(".csv")
        raise ScenarioError(
            [f"{path}:1:1: AISBench writes {' and '.join(missing)} to {latency_file.name} next to it; it has none"]
        )
    return LoadTest(
        tool="AISBench",
        label=path.stem,
        arrival="closed",
        rate=None,
        concurrency=max(1, round(clients)),
        requests=completed,
        window_s=None,
        input_tokens=max(1, round(fields.number(*total("Total Input Tokens")) / completed)),
        output_tokens=max(
            1, round(fields.number(*total("Total generated tokens"), *total("Total Output Tokens")) / completed)
        ),
        ttft_ms=latencies["TTFT"],
        tpot_ms=latencies["TPOT"],
        output_throughput=fields.maybe(*total("Output Token Throughput")),
    )


def _aisbench_csv(path: Path) -> dict[str, float]:
    """Average latencies, ms, by their names; none where there is no file."""
    if not path.is_file():
        return {}
    header, *rows = _csv_rows(path, _text(path)) or [[]]
    named = [dict(zip(header, row, strict=False)) for row in rows]
    averages = {str(row.get(_AISBENCH_CSV)): number_of(row.get("Average")) for row in named}
    return {name: number for name, number in averages.items() if number}
