"""How fast requests are served: 100,000 of an Azure-like load, 21 million output tokens, on a 70B model, TP8.

    python benchmarks/serving.py [--requests N] [--rate R] [--repeats N]

Nothing here fails a build. Times are CPU seconds of this process: first with all step prices to play, then again with
the prices of the first run; peak memory is the process's. Bounds: 3 s cold, 1 s warm, 500 MB.

Measured on 2026-12-01 on two cores of an EPYC at a load of 2 to 4, three runs in turn with the code before, best and
median: warm 1.36 and 1.72 s (before 2.02 and 2.18), cold 3.01 and 3.18 s (3.75 and 3.88), 234 MB (232). Since grid
points share Programs, cold is 2.76 and 2.78 s. The bound of 1 s warm is not met there. Results are the same to the
byte. There are 210,000 runs of equal steps, of 6 to 8 us (10).
"""

from __future__ import annotations

import argparse
import resource
import sys
from pathlib import Path
from time import process_time

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

SETS = (
    "workload.batch=1", "workload.context_tokens=null", "engine.pipeline_parallel_size=1",
    "engine.tensor_parallel_size=8", "engine.max_num_seqs=256", "engine.max_model_len=16384",
    "optimizations.graph=aclgraph", "engine.profile=healthy",
    "workload.traffic={arrival: poisson, rate: %s, requests: %d, "
    "input: {distribution: lognormal, tokens: 1000, sigma: 0.9, high: 8000}, "
    "output: {distribution: lognormal, tokens: 129, sigma: 1.0, low: 2, high: 2000}}",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--rate", type=float, default=3.0)
    parser.add_argument("--repeats", type=int, default=2)
    asked = parser.parse_args()
    start = process_time()
    from scenarios.loader import load_scenario
    from scenarios.serving.traffic import load_of
    from sim.engines.profile import engine_of
    from sim.predict.scenario_result import case_of
    from sim.serving.simulate import prices_of, simulate

    loaded = load_scenario("llama_3_1_70b_tp4_pp2_decode", [*SETS[:-1], SETS[-1] % (asked.rate, asked.requests)])
    case = case_of(loaded)
    engine = engine_of(loaded).costs(case.model.cards)
    load = load_of(loaded.scenario.workload, 0)
    tokens = sum(request.output_tokens for request in load.requests)
    print(f"{len(load.requests):,} requests, {tokens:,} output tokens")
    print(f"imports, scenario and load: {process_time() - start:.2f} s")
    prices = prices_of(case, engine)
    for turn in range(asked.repeats):
        start = process_time()
        outcome = simulate(case, engine, load, prices)
        taken = process_time() - start
        steps = f"{prices.points} steps played, {outcome.step_count:,} steps served"
        print(f"{'warm' if turn else 'cold'}: {taken:.2f} s, {steps}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(f"peak memory {peak / 1e6:,.0f} MB")


if __name__ == "__main__":
    main()
