"""Simulator against the device engine on one trace: calibrated at one rate, asked for another.

    python benchmarks/served.py --hardware my_cpu.yaml [--rounds N] [--load trace|closed] [--speeds FIT ASK] [--set ...]

Each round serves the trace at the first speed (1: as it is), fits the engine to the bench file of that run, predicts
the other load (the trace at the second speed, or closed) and serves it. Errors are predicted / measured - 1, of the
other load alone: nothing is fitted to it.
spread: largest less smallest measurement of the rounds over their median, which is what the machine does by itself.
Nothing here fails a build.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

SPEED = "workload.traffic.trace.speed"
#: The loads that are asked for: the trace at another speed; as many requests in flight as there are slots.
ASKED = {
    "trace": (),
    "closed": (
        "workload.traffic.trace=null",
        "workload.traffic.arrival=closed",
        "workload.traffic.concurrency=16",
        "workload.traffic.requests=96",
        "workload.traffic.warmup_requests=16",
    ),
}
#: What is compared, and how far off it may be.
FIGURES = (
    ("output_throughput", "", 0.05), ("ttft_ms", "p50", 0.10), ("tpot_ms", "p50", 0.10), ("ttft_ms", "p99", 0.25),
    ("tpot_ms", "p99", 0.25), ("itl_ms", "p50", 0.10), ("itl_ms", "p99", 0.25), ("e2el_ms", "p50", 0.10),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scenario", default="serve_tiny_cpu")
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--hardware", default="")
    parser.add_argument("--load", choices=ASKED, default="trace")
    parser.add_argument("--speeds", nargs=2, type=float, default=(1, 2), help="of the trace: fitted to, asked for")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clock", default="steady")
    parser.add_argument("--set", dest="sets", action="append", default=[])
    asked = parser.parse_args()
    sets = [*asked.sets, *([f"hardware={asked.hardware}"] if asked.hardware else [])]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(asked.rounds):
            # A profile is remembered by its file's name.
            rows.append(one_round(asked, sets, Path(folder) / f"{number}_bench.json", Path(folder) / f"{number}.yaml"))
            print(f"round {number + 1}: {' '.join(shown(rows[-1]))}", flush=True)
    print("\n".join(table(rows)))


def one_round(asked: argparse.Namespace, sets: list[str], bench: Path, engine: Path) -> dict[str, Any]:
    """Predictions before and after the fit, and what was measured."""
    from sim.fitting.bench_file import calibrate_engine

    slow, fast = (f"{SPEED}={speed:g}" for speed in asked.speeds)
    served(asked, [*sets, slow], bench)
    calibrate_engine(bench, asked.scenario, sets, engine)
    other = [*sets, *(ASKED[asked.load] or (fast,))]
    result = served(asked, [*other, f"engine.profile={engine}"], None)
    return {
        "before": predicted(other, asked.scenario),
        "after": result["serving"],
        "measured": result["measured"],
    }


def served(asked: argparse.Namespace, sets: list[str], bench: Path | None) -> dict[str, Any]:
    """`serving` and `measured` of one run; the bench file is written."""
    from device.open import measure_on
    from scenarios.loader import load_scenario
    from sim.predict.scenario_result import first_result
    from sim.report.outputs.serving import ServedRequests

    run = first_result(load_scenario(asked.scenario, sets))
    requests = ServedRequests(run)
    measured = requests.measure(measure_on(asked.backend, bench=bench, clock=asked.clock))
    return {"serving": run.result["serving"], "measured": measured["serving"]}


def predicted(sets: list[str], scenario: str) -> dict[str, Any]:
    from scenarios.loader import load_scenario
    from sim.predict.scenario_result import first_result
    from sim.report.outputs.serving import ServedRequests

    run = first_result(load_scenario(scenario, sets))
    ServedRequests(run)
    block: dict[str, Any] = run.result["serving"]
    return block


def figure(block: dict[str, Any], name: str, of: str) -> float:
    return float(block[name][of] if of else block[name])


def shown(row: dict[str, Any]) -> Iterator[str]:
    for name, of, _ in FIGURES:
        value, real = figure(row["after"], name, of), figure(row["measured"], name, of)
        yield f"{name.removesuffix('_ms')} {of} {value:.1f}/{real:.1f} ({value / real - 1:+.0%})"


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "| figure | not calibrated | predicted | measured | spread | error, not calibrated | error | asked |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for name, of, limit in FIGURES:
        before, after, real = (
            [figure(row[side], name, of) for row in rows] for side in ("before", "after", "measured")
        )
        spread = (max(real) - min(real)) / median(real)
        errors = [median(p / m - 1 for p, m in zip(side, real, strict=True)) for side in (before, after)]
        values = f"{median(before):.1f} | {median(after):.1f} | {median(real):.1f} | {spread:.0%}"
        label = f"{name} {of}".strip()
        yield f"| {label} | {values} | {errors[0]:+.1%} | {errors[1]:+.1%} | {limit:.0%} |"


if __name__ == "__main__":
    main()
