"""A Chrome trace of requests: a lane for each that is in the system at a time, and counters of the steps."""

from __future__ import annotations

import heapq
import json
import os
from typing import Any

import numpy as np

from scenarios.files.atomic import write_text
from sim.serving.outcome import ServingOutcome

#: Requests that a trace shows at most: more make a file that no viewer opens.
MAX_REQUESTS = 20_000
PID, MEASURED_PID = 1, 3


def write_request_trace(
    path: str | os.PathLike[str], outcome: ServingOutcome, label: str, measured: ServingOutcome | None = None
) -> None:
    """Write the trace to `path`, whole or not at all. Raises OutputError."""
    write_text(path, request_trace(outcome, label, measured))


def request_trace(outcome: ServingOutcome, label: str, measured: ServingOutcome | None = None) -> str:
    """The trace as text: times in us from the first arrival, one event per line, sorted by request; below them those
    of `measured`, where a device has served the same load."""
    events = _events(outcome, f"SIMULATED requests: {label}", "SIMULATED steps", PID)
    if measured is not None:
        events += _events(measured, f"MEASURED requests: {label}", "MEASURED steps", MEASURED_PID)
    return "[\n" + ",\n".join(json.dumps(event, ensure_ascii=False) for event in events) + "\n]\n"


def _events(outcome: ServingOutcome, requests: str, counters: str, pid: int) -> list[dict[str, Any]]:
    """The events of one side: processes `pid` (requests) and `pid` + 1 (steps)."""
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": {"name": requests}},
        {"name": "process_name", "ph": "M", "pid": pid + 1, "tid": 0, "args": {"name": counters}},
    ]
    shown = range(min(MAX_REQUESTS, len(outcome.ids)))
    columns = (outcome.arrived_ns, outcome.started_ns, outcome.first_ns, outcome.last_ns)
    times = list(zip(*(column.tolist() for column in columns), strict=True))
    free: list[int] = []
    ending: list[tuple[int, int]] = []
    lanes = 0
    for number in sorted(shown, key=lambda n: (times[n][0], n)):
        arrived, started, first, last = times[number]
        while ending and ending[0][0] <= arrived:
            heapq.heappush(free, heapq.heappop(ending)[1])
        if not free:
            lanes += 1
            free.append(lanes)
        lane = heapq.heappop(free)
        heapq.heappush(ending, (last, lane))
        args = {
            "request": int(outcome.ids[number]),
            "input_tokens": int(outcome.input_tokens[number]),
            "output_tokens": int(outcome.output_tokens[number]),
        }
        parts = (("queue", arrived, max(arrived, started)), ("prefill", started, first), ("decode", first, last))
        events += [
            {
                "name": name,
                "cat": "request",
                "ph": "X",
                "pid": pid,
                "tid": lane,
                "ts": start / 1000,
                "dur": (end - start) / 1000,
                "args": args,
            }
            for name, start, end in parts
            if end > start
        ]
    steps, names = outcome.steps, _counters(outcome)
    order = np.argsort(steps.start_ns, kind="stable")
    of_steps = (steps.start_ns, steps.decoding, steps.chunks, steps.instance)
    for start, decoding, chunks, instance in zip(*(column[order].tolist() for column in of_steps), strict=True):
        if len(events) > 10 * MAX_REQUESTS:
            break
        running = {"decoding": decoding, "prefills": chunks}
        at = {"pid": pid + 1, "tid": 0, "ts": round(start / 1000, 3)}
        events.append({"name": names[instance], "ph": "C", **at, "args": running})
    return events


def _counters(outcome: ServingOutcome) -> list[str]:
    """What the counter of each instance is called: by role and number where there are several."""
    number = int(outcome.steps.instance.max(initial=0)) + 1
    if number == 1:
        return ["running"]
    roles = [use.role for use in outcome.instances] or ["replica"] * number
    return [f"running, {role} {roles[:n].count(role) + 1}" for n, role in enumerate(roles)]
