"""Two load tests side by side: of each load in both, how long a request took, and which part of it changed.

A request takes TTFT + (output tokens - 1) x TPOT. Over several loads TPOT is a line in the requests in flight: what
every step costs, and what each request in flight adds to it (as deployments are measured: 37 + 0.49 x concurrency ms).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, fsum, hypot, log
from typing import Any

from sim.compare.load_share import Load, LoadShare, load_share
from sim.compare.results import AS_FAST, pair_of

#: Loads are the same where rates, requests in flight and lengths agree to this share.
SAME_LOAD = 0.05
#: A part that grew by less than this share did not change: repeats of one load test differ by a few per cent.
CHANGED = 0.05
#: Half of the central 90 % of ln(mean) of one load test, where nothing is known of its repeats: two of them then differ
#: by CHANGED at most (assumed: their tools keep one run).
REPEAT = log(1 + CHANGED) / 2**0.5
#: The cause where a pair's loads differ.
ANOTHER_LOAD = "another load"
#: A smaller change of a part is one of the last digit, ms.
MIN_MS = 1e-6
#: A line through TPOT needs loads whose requests in flight differ by this factor.
SPREAD = 1.5


Pair = tuple[Load, Load]


def compare_loads(a: Sequence[Load], b: Sequence[Load]) -> dict[str, Any]:
    """`loads`: each pair with its metrics and causes, ms a request, which sum to the change of `e2el_ms`; `line`: TPOT
    over the requests in flight, where the loads allow one; `likely`: what probably changed, with its evidence; `notes`.
    """
    pairs, notes = paired(a, b)
    line = _line([one for one, _ in pairs], [other for _, other in pairs]) if pairs else _line(a, b)
    return {
        "loads": [_compared(*pair) for pair in pairs],
        "line": line,
        "likely": _likely(pairs, line),
        "notes": notes,
    }


def paired(a: Sequence[Load], b: Sequence[Load]) -> tuple[list[Pair], list[str]]:
    """The loads that both sides ran, lightest first, and a note of each that one of them did not.

    One load on each side is a pair whatever it is, with a note of what differs in it.
    """
    if len(a) == len(b) == 1:
        differs = _differences(a[0], b[0])
        return [(a[0], b[0])], [f"the loads differ: {', '.join(differs)}"] if differs else []
    left = list(b)
    pairs: list[Pair] = []
    notes: list[str] = []
    for load in a:
        same = [other for other in left if not _differences(load, other)]
        if same:
            pairs.append((load, same[0]))
            left.remove(same[0])
        else:
            notes.append(f"only A has the load {load.label}")
    notes += [f"only B has the load {load.label}" for load in left]
    return sorted(pairs, key=lambda pair: pair[0].in_flight), notes


def _differences(a: Load, b: Load) -> list[str]:
    differs = [] if a.arrival == b.arrival else [f"arrival {a.arrival} and {b.arrival}"]
    values = [("input tokens", a.input_tokens, b.input_tokens), ("output tokens", a.output_tokens, b.output_tokens)]
    if a.rate and b.rate:
        values.append(("requests/s", a.rate, b.rate))
    else:
        values.append(("requests in flight", a.in_flight, b.in_flight))
    for name, one, other in values:
        if abs(one - other) > SAME_LOAD * max(one, other):
            differs.append(f"{name} {one:,.4g} and {other:,.4g}")
    return differs


def _compared(a: Load, b: Load) -> dict[str, Any]:
    metrics = {
        metric: {**pair_of(getattr(a, metric), getattr(b, metric)), **_interval(a, b, metric)}
        for metric in ("ttft_ms", "tpot_ms", "e2el_ms")
    }
    if a.output_throughput and b.output_throughput:
        metrics["output_throughput"] = pair_of(a.output_throughput, b.output_throughput)
    causes = [
        {"cause": cause, "a_ms": a_ms, "b_ms": b_ms, "change_ms": b_ms - a_ms}
        for cause, a_ms, b_ms in _causes(a, b)
        if abs(b_ms - a_ms) > MIN_MS
    ]
    return {
        "load": a.label,
        "in_flight": {"a": a.in_flight, "b": b.in_flight},
        "metrics": metrics,
        "causes": sorted(causes, key=lambda row: (-abs(row["change_ms"]), row["cause"])),
    }


def _interval(a: Load, b: Load, metric: str) -> dict[str, float | None]:
    """`low` and `high` of B / A, central 90 %: the two sides' widths, which are independent, add as squares."""
    value = [getattr(load, metric) for load in (a, b)]
    if min(value) <= 0:
        return {"low": None, "high": None}
    (down_a, up_a), (down_b, up_b) = (_widths(load, metric) for load in (a, b))
    ratio = value[1] / value[0]
    return {"low": ratio * exp(-hypot(up_a, down_b)), "high": ratio * exp(hypot(down_a, up_b))}


def _widths(load: Load, metric: str) -> tuple[float, float]:
    """How far ln(metric) reaches down and up."""
    for name, low, high in load.ends:
        if name == metric:
            return -log(low), log(high)
    return REPEAT, REPEAT


def distinguishable(pair: dict[str, float | None]) -> bool:
    """Whether a metric's interval of B / A lies on one side of 1."""
    low, high = pair.get("low"), pair.get("high")
    return low is not None and high is not None and (low > 1 or high < 1)


def _causes(a: Load, b: Load) -> list[tuple[str, float, float]]:
    """(cause, ms of a request of A, of B), whose differences sum to that of E2EL. Decoding counts A's output tokens."""
    of_a, of_b = dict(a.parts_ms), dict(b.parts_ms)
    gaps = a.output_tokens - 1
    causes = [("more output tokens", 0.0, (b.output_tokens - a.output_tokens) * b.tpot_ms)]
    if not (of_a and of_b):
        share = _share(a, b)
        by_load = a.tpot_ms if share is None else share.tpot_of(b.tpot_ms)
        if share is not None:
            causes.append((ANOTHER_LOAD, gaps * a.tpot_ms, gaps * by_load))
        return [*causes, ("first token", a.ttft_ms, b.ttft_ms), ("decode", gaps * by_load, gaps * b.tpot_ms)]
    parts = ("device", "prefill", "engine")
    other = [load.tpot_ms - fsum(of[part] for part in parts) for load, of in ((a, of_a), (b, of_b))]
    causes.append(("queue", of_a["queue"], of_b["queue"]))
    causes.append(("prefill", a.ttft_ms - of_a["queue"], b.ttft_ms - of_b["queue"]))
    causes += [(f"decode: {part}", gaps * of_a[part], gaps * of_b[part]) for part in parts]
    causes.append(("decode: other", gaps * other[0], gaps * other[1]))
    return causes


def _line(a: Sequence[Load], b: Sequence[Load]) -> dict[str, Any] | None:
    """TPOT = per step + per request x requests in flight, by least squares over the loads of each side."""
    fits = []
    for loads in (a, b):
        points = [(load.in_flight, load.tpot_ms) for load in loads]
        if len(points) < 2 or max(x for x, _ in points) < SPREAD * min(x for x, _ in points):
            return None
        mean_x, mean_y = (fsum(values) / len(points) for values in zip(*points, strict=True))
        slope = fsum((x - mean_x) * (y - mean_y) for x, y in points) / fsum((x - mean_x) ** 2 for x, _ in points)
        fits.append((mean_y - slope * mean_x, slope))
    return {
        "per_step_ms": pair_of(fits[0][0], fits[1][0]),
        "per_request_ms": pair_of(fits[0][1], fits[1][1]),
        "at_in_flight": fsum(fsum(x.in_flight for x in loads) / len(loads) for loads in (a, b)) / 2,
    }


def _likely(pairs: Sequence[Pair], line: dict[str, Any] | None) -> list[dict[str, Any]]:
    """What probably changed, largest part of a token's change first; rules of thumb, none says that it was so."""
    if not pairs:
        return _of_line(line)
    rows: list[tuple[float, dict[str, Any]]] = []
    lightest, heaviest = pairs[0], pairs[-1]
    share = _share(*lightest)
    if share is not None:
        return _next_to_load(*lightest, share)
    if line is None:
        rows += _grown(lightest[0].tpot_ms, lightest[1].tpot_ms, 1.0, "tpot", "ms a token")
    else:
        rows += _grown_of_line(line)
    gaps = max(1.0, lightest[0].output_tokens - 1)
    rows += _grown(lightest[0].ttft_ms, lightest[1].ttft_ms, 1 / gaps, "first", "ms to the first token, lightest load")
    waits = [heavy.ttft_ms - light.ttft_ms for light, heavy in zip(lightest, heaviest, strict=True)]
    if len(pairs) > 1 and waits[1] - waits[0] > CHANGED * heaviest[0].ttft_ms:
        rows += _grown(waits[0], waits[1], 1 / gaps, "wait", "ms more to the first token at the heaviest load")
    return [row for _, row in sorted(rows, key=lambda pair: -pair[0])]


def _of_line(line: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Of sweeps that have no load in common: what their lines say."""
    rows = [] if line is None else _grown_of_line(line)
    return [row for _, row in sorted(rows, key=lambda pair: -pair[0])]


def _grown_of_line(line: dict[str, Any]) -> list[tuple[float, dict[str, Any]]]:
    step, request, at = line["per_step_ms"], line["per_request_ms"], line["at_in_flight"]
    return [
        *_grown(step["a"], step["b"], 1.0, "step", "ms a step, whatever its requests"),
        *_grown(request["a"], request["b"], at, "request", "ms a step for each request in flight"),
    ]


def _share(a: Load, b: Load) -> LoadShare | None:
    """What the load of `b` makes of `a`, where the loads differ."""
    differs = _differences(a, b)
    return load_share(a, b, ", ".join(differs)) if differs else None


def _next_to_load(a: Load, b: Load, share: LoadShare) -> list[dict[str, Any]]:
    """The load with what it explains of a token's change, and what is beyond it, largest part of a token first."""
    low, high = share.tpot_ms
    predicted = share.tpot_of(b.tpot_ms)
    change = b.tpot_ms - a.tpot_ms
    explained = max(0.0, (predicted - a.tpot_ms) / change) if abs(change) > AS_FAST else 1.0
    row = {
        "part": "load",
        "side": "B" if b.tpot_ms >= a.tpot_ms else "A",
        "name": f"{ANOTHER_LOAD}: {share.differs}",
        "evidence": f"by its load alone B has {low:,.3g} to {high:,.3g} ms a token, and has {b.tpot_ms:,.3g}: "
        f"{explained:.0%} of the change",
        "a_ms": a.tpot_ms,
        "b_ms": predicted,
        "low_ms": low,
        "high_ms": high,
        "share": explained,
    }
    first = share.ttft_of(b.ttft_ms)
    part = "wait" if share.heavier == (b.ttft_ms > first) else "first"
    beyond = _grown(predicted, b.tpot_ms, 1.0, "tpot", "ms a token")
    beyond += _grown(first, b.ttft_ms, 1 / max(1.0, b.output_tokens - 1), part, "ms to the first token")
    for _, more in beyond:
        more["evidence"] += ": what the load does not explain"
    return [one for _, one in sorted([(abs(predicted - a.tpot_ms), row), *beyond], key=lambda pair: -pair[0])]


#: What a part that grew speaks for.
_SPEAKS_FOR = {
    "tpot": "graph missed, host starved, or other kernels (a second load tells steps from requests)",
    "step": "graph missed, host starved, or slower kernels: each step takes longer",
    "request": "work for each request: sampling, output processing, no asynchronous scheduling, or a longer KV cache",
    "first": "prefill: a smaller chunk, a lost prefix cache, or slower kernels",
    "wait": "queueing: fewer slots or less KV cache, or prefills that are put off",
}


def _grown(a_ms: float, b_ms: float, times: float, part: str, unit: str) -> list[tuple[float, dict[str, Any]]]:
    """The row of a part that is longer on one side, after how much longer a token is for it."""
    low, high = sorted((a_ms, b_ms))
    if high - low <= max(CHANGED * abs(high), AS_FAST):
        return []
    row = {
        "part": part,
        "side": "B" if b_ms > a_ms else "A",
        "name": _SPEAKS_FOR[part],
        "evidence": f"{high:,.3g} {unit}, against {low:,.3g}",
        "a_ms": a_ms,
        "b_ms": b_ms,
    }
    return [((high - low) * times, row)]


def sentence(names: tuple[str, str], loads: dict[str, Any]) -> str:
    """What the comparison says first: the heaviest load that both ran."""
    if not loads["loads"]:
        return f"{names[0]} and {names[1]} have no load in common."
    row = loads["loads"][-1]
    e2el = row["metrics"]["e2el_ms"]
    change = e2el["b"] - e2el["a"]
    if abs(change) < AS_FAST * e2el["a"]:
        return f"At {row['load']} a request of {names[1]} takes as long as one of {names[0]}."
    if not distinguishable(e2el):
        between = f"their ratio lies between {e2el['low']:.2f} and {e2el['high']:.2f}"
        return (
            f"At {row['load']} a request of {names[1]} takes {e2el['b']:,.0f} ms against {e2el['a']:,.0f} ms of "
            f"{names[0]}: not distinguishable, {between}."
        )
    pulls = [cause for cause in row["causes"] if (cause["change_ms"] > 0) == (change > 0)]
    most = f", most of it {pulls[0]['cause']} ({pulls[0]['change_ms']:+,.1f} ms)" if pulls else ""
    return (
        f"At {row['load']} a request of {names[1]} takes {e2el['b']:,.0f} ms against {e2el['a']:,.0f} ms of {names[0]}"
        f"{most}."
    )
