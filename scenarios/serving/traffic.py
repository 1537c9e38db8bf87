"""`workload.traffic` to requests: when each is sent, how long it is, what it has in common with others.

Arrival intervals are those of `vllm bench serve`: gamma with shape `burstiness` and mean 1 / rate (1 is Poisson), and
where their number is given all of them stretched so that N requests take N / rate, as its `get_request` does: else the
rate of 300 requests would differ by 6 % from one seed to the next. Its first interval is before the first request. All
numbers are drawn from one seed; the same seed gives the same requests.
"""

from __future__ import annotations

from math import log
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scenarios.serving.requests import Load, Request
from scenarios.serving.traces import FILE_KEY, Trace, read_trace
from scenarios.settings import Workload
from scenarios.traffic_settings import MAX_TOKENS, Lengths, Traffic

#: Requests where neither a number nor a duration is given (vllm bench's default).
DEFAULT_REQUESTS = 1000

Ints = NDArray[np.int64]


def load_of(workload: Workload, seed: int, folder: Path = Path(), where: str = FILE_KEY) -> Load:
    """The requests of `workload.traffic`.

    folder: where a trace file is looked up; where: what names it. Raises ScenarioError where the trace cannot be read,
    ValueError where there is no traffic.
    """
    traffic = workload.traffic
    if traffic is None:
        raise ValueError("a workload without traffic has no requests in time")
    trace = read_trace(traffic.trace, folder, traffic.requests, where) if traffic.trace else None
    arrivals, lengths, contents = (np.random.default_rng([seed, part]) for part in range(3))
    times = _times_ns(traffic, trace, arrivals)
    number = len(times)
    inputs = _lengths(traffic.input, trace.input_tokens if trace else (), workload.input_tokens, number, lengths)
    outputs = _lengths(traffic.output, trace.output_tokens if trace else (), workload.output_tokens, number, lengths)
    groups = contents.integers(0, traffic.prefix_groups, number)
    priorities = np.where(contents.random(number) < traffic.urgent_share, 0, 1) if traffic.urgent_share else groups * 0
    requests = tuple(
        Request(n, at, prompt, output, segments=_segments(traffic, trace, n, prompt, group), priority=priority)
        for n, (at, prompt, output, group, priority) in enumerate(
            zip(*(column.tolist() for column in (times, inputs, outputs, groups, priorities)), strict=True)
        )
    )
    if traffic.turns > 1:
        requests = _conversations(requests, traffic)
    return Load(requests, traffic.concurrency, traffic.warmup_requests)


def _times_ns(traffic: Traffic, trace: Trace | None, rng: np.random.Generator) -> Ints:
    """When the conversations are opened, ns, ascending from 0."""
    if traffic.arrival == "trace" and trace is not None:
        speed = traffic.trace.speed if traffic.trace else 1.0
        sent: Ints = np.rint(np.array(trace.arrival_ns, np.float64) / speed).astype(np.int64)
        return _within(sent, traffic.duration_s)
    number = traffic.requests or (len(trace.input_tokens) if trace else None)
    if traffic.arrival in ("closed", "burst"):
        return np.zeros(number or DEFAULT_REQUESTS, np.int64)
    rate = traffic.rate or 1.0
    if number is None and traffic.duration_s is not None:  # enough, and then those within
        mean = rate * traffic.duration_s
        number = int(mean + 8 * (mean / min(1.0, traffic.burstiness)) ** 0.5) + 16
    number = number or DEFAULT_REQUESTS
    if traffic.arrival == "constant":
        gaps = np.full(number, 1 / rate)
    else:
        shape = 1.0 if traffic.arrival == "poisson" else traffic.burstiness
        gaps = rng.gamma(shape, 1 / (rate * shape), number)
        if traffic.duration_s is None and gaps.any():
            gaps *= number / rate / gaps.sum()
    gaps[0] = 0.0
    times: Ints = np.rint(1e9 * np.cumsum(gaps)).astype(np.int64)
    return _within(times, traffic.duration_s)


def _within(times: Ints, duration_s: float | None) -> Ints:
    return times if duration_s is None else times[times < 1e9 * duration_s]


def _lengths(
    wanted: Lengths | None, of_trace: tuple[int, ...], fixed: int, number: int, rng: np.random.Generator
) -> Ints:
    """`number` lengths; those of a trace are repeated where it holds fewer."""
    if wanted is None:
        return np.resize(np.array(of_trace, np.int64), number) if of_trace else np.full(number, fixed, np.int64)
    tokens = wanted.tokens or fixed
    low, high = wanted.low or 1, wanted.high or MAX_TOKENS
    if wanted.distribution == "uniform":
        return rng.integers(low, high, number, endpoint=True)
    if wanted.distribution == "lognormal":
        drawn = rng.lognormal(log(tokens), wanted.sigma or 1.0, number)
        return np.clip(np.rint(drawn), low, high).astype(np.int64)
    return np.full(number, tokens, np.int64)


def _segments(traffic: Traffic, trace: Trace | None, n: int, prompt: int, group: int) -> tuple[tuple[int, int], ...]:
    """What the prompt has in common with others: the prefix of its group, or the hashed blocks of the trace."""
    if traffic.prefix_tokens:
        return ((group, min(prompt, traffic.prefix_tokens)),)
    if trace is not None and trace.hashes:
        hashes = trace.hashes[n % len(trace.hashes)]
        return tuple((name, end) for i, name in enumerate(hashes) if (end := (i + 1) * trace.hash_tokens) <= prompt)
    return ()


def _conversations(first: tuple[Request, ...], traffic: Traffic) -> tuple[Request, ...]:
    """Each request as the first turn of a conversation; the next ones repeat all before them and add as much."""
    think_ns = round(1e9 * traffic.think_time_s)
    turns: list[Request] = []
    for opening in first:
        history = 0
        for turn in range(traffic.turns):
            number = opening.id * traffic.turns + turn
            prompt = history + opening.input_tokens
            after = number - 1 if turn else -1
            turns.append(
                Request(
                    number,
                    opening.arrival_ns,
                    input_tokens=prompt,
                    output_tokens=opening.output_tokens,
                    content=opening.id,
                    segments=opening.segments,
                    priority=opening.priority,
                    after=after,
                    think_ns=think_ns if turn else 0,
                )
            )
            history = prompt + opening.output_tokens
    return tuple(turns)
