"""The exchange form of served benchmarks: one result per row, read strictly.

id, hardware, model, settings (`--set` pairs, `;` between), input_tokens, output_tokens, arrival (constant, poisson,
closed, burst); optional deployment (rows of one have one engine and host), engine (as the source names it), rate
(requests/s), concurrency, prompts, duration_s, prefix_cache_hit (share), ttft_ms, tpot_ms, itl_ms, output_tok_s,
saturated (yes: past capacity), scored (no: listed, not scored), spread_tpot (relative, of repeats), conditions (text;
"graph mode unstated" in it means that the settings' graph has the mode that is the engine's default; a client named in
it that sends no temperature leaves sampling to the model's generation config). A number that is empty, "-", "unstated",
"inf", "nan" or "n/a" is not stated.

A row that cannot be read is refused with its reason, and the others are taken.
"""

from __future__ import annotations

from math import isfinite
from pathlib import Path

from scenarios.errors import ScenarioError, did_you_mean, quoted
from scenarios.records import dataclass
from sim.accuracy.rows.files import positive, rows_of_csv, whole

ARRIVALS = ("constant", "poisson", "closed", "burst")
#: Clients that send no temperature (read in guidellm 0.6.0 and AIPerf): the engine samples as the model's generation
#: config says, which is top-k and top-p for the chat models of all families here. vllm bench sends 0.
SAMPLING_CLIENTS = ("guidellm", "aiperf")
#: How numbers are written that a source does not state.
UNSTATED = ("", "-", "inf", "unstated", "nan", "n/a", "none")
NEEDED = ("id", "hardware", "model", "settings", "input_tokens", "output_tokens", "arrival")


@dataclass(frozen=True, slots=True)
class ServingRow:
    """One result of a served benchmark; None where the source does not state a number. rate: requests/s of all
    replicas. tpot_ms: TPOT, or ITL where that alone is stated. samples: by top-k and top-p, unless the settings say."""

    id: str
    deployment: str
    engine: str
    hardware: str
    model: str
    settings: tuple[str, ...]
    input_tokens: int
    output_tokens: int
    arrival: str
    rate: float | None
    concurrency: int | None
    prompts: int | None
    duration_s: float | None
    prefix_cache_hit: float
    ttft_ms: float | None
    tpot_ms: float | None
    output_throughput: float | None
    saturated: bool
    scored: bool
    spread: float | None
    graph_mode_unstated: bool
    samples: bool


def read_serving(path: Path) -> tuple[list[ServingRow], list[dict[str, str]]]:
    """(rows of a file of served benchmarks, {id, reason} of those that cannot be read).

    Raises ScenarioError with file:line where the file is none of this form, or none of its rows can be read.
    """
    rows: list[ServingRow] = []
    refused: list[dict[str, str]] = []
    for line, row in rows_of_csv(path, NEEDED):
        try:
            rows.append(_row(path, line, row))
        except ScenarioError as error:
            refused.append({"id": row["id"] or f"line {line}", "reason": error.messages[0]})
    if refused and not rows:
        raise ScenarioError([refused[0]["reason"]])
    return rows, refused


def _row(path: Path, line: int, row: dict[str, str]) -> ServingRow:
    where = f"{path}:{line}"
    conditions = (row.get("conditions") or "").lower()

    def number(name: str) -> float | None:
        text = (row.get(name) or "").strip()
        return None if text.lower() in UNSTATED else positive(text, where, name)

    def count(name: str) -> int | None:
        text = (row.get(name) or "").strip()
        return None if text.lower() in UNSTATED else whole(text, where, name)

    arrival = row["arrival"].strip()
    if arrival not in ARRIVALS:
        known = ", ".join(ARRIVALS)
        raise ScenarioError(
            [f"{where}: arrival: {quoted(arrival)} is none of {known}{did_you_mean(arrival, ARRIVALS)}"]
        )
    rate, concurrency, prompts = number("rate"), count("concurrency"), count("prompts")
    if arrival in ("constant", "poisson") and rate is None:
        raise ScenarioError([f"{where}: rate: {arrival} arrivals need a rate, requests/s"])
    if arrival == "closed" and concurrency is None:
        raise ScenarioError([f"{where}: concurrency: closed arrivals need the requests in flight"])
    if arrival == "burst" and not (prompts or concurrency):
        raise ScenarioError([f"{where}: prompts: a burst needs the number of its requests"])
    lengths = [whole(row[name], where, name) for name in ("input_tokens", "output_tokens")]
    for name, length in zip(("input_tokens", "output_tokens"), lengths, strict=True):
        if not length:
            raise ScenarioError([f"{where}: {name}: must be at least 1"])
    return ServingRow(
        id=row["id"],
        deployment=row.get("deployment") or row["id"],
        engine=row.get("engine") or "",
        hardware=row["hardware"],
        model=row["model"],
        settings=tuple(s for s in row["settings"].split(";") if s.strip()),
        input_tokens=lengths[0],
        output_tokens=lengths[1],
        arrival=arrival,
        rate=rate,
        concurrency=concurrency,
        prompts=prompts,
        duration_s=number("duration_s"),
        prefix_cache_hit=_share(row.get("prefix_cache_hit") or "0", where),
        ttft_ms=number("ttft_ms"),
        tpot_ms=number("tpot_ms") or number("itl_ms"),
        output_throughput=number("output_tok_s"),
        saturated=(row.get("saturated") or "").strip().lower() == "yes",
        scored=(row.get("scored") or "yes").strip().lower() != "no",
        spread=number("spread_tpot"),
        graph_mode_unstated="graph mode unstated" in conditions,
        samples=any(client in conditions for client in SAMPLING_CLIENTS),
    )


def _share(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (isfinite(value) and 0 <= value <= 1):
        raise ScenarioError([f"{where}: prefix_cache_hit: must be a share, 0 to 1, got {quoted(text)}"])
    return value
