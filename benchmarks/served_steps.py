"""Steps of the device engine, one by one, next to the simulator's price of that very step.

    python benchmarks/served_steps.py --hardware my_cpu.yaml [--engine my_engine.yaml] [--set KEY=VALUE ...]

Steps are put together by what is in them: requests that decode, and whether prompts ride along. device: until the
model's tokens are with the host. host: the rest (plan, inputs, Program, commit). Errors are predicted / measured - 1
of the sums; nothing is fitted to these steps but what the files given were fitted to. Nothing here fails a build.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scenarios.exchange.served import Deployed, ServedStep  # noqa: E402
from sim.engines.costs import EngineCosts  # noqa: E402
from sim.serving.prices import TICKS_PER_NS, GridPrices  # noqa: E402

#: Steps of up to so many requests are a line of the table.
DECODING = (0, 1, 2, 4, 8, 12, 16, 1 << 30)


def main() -> None:
    from device.backends import choose
    from device.serving.serve import served
    from scenarios.loader import load_scenario
    from sim.engines.profile import engine_of
    from sim.predict.scenario_result import case_of
    from sim.serving.simulate import prices_of, scheduled, serving_capacity

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scenario", default="serve_tiny_cpu")
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--hardware", default="")
    parser.add_argument("--engine", default="")
    parser.add_argument("--clock", default="steady", choices=("steady", "wall"))
    parser.add_argument("--set", dest="sets", action="append", default=[])
    asked = parser.parse_args()
    named = (("hardware", asked.hardware), ("engine.profile", asked.engine))
    loaded = load_scenario(asked.scenario, [*asked.sets, *(f"{key}={value}" for key, value in named if value)])
    case = case_of(loaded)
    costs = scheduled(case, engine_of(loaded).costs(1))
    reference = case.hardware.profile.reference_us
    deployed = Deployed(serving_capacity(case).kv_tokens, 1000 * float(reference.value) if reference else 0.0)
    run = served(choose(asked.backend), loaded, deployed, asked.clock)
    print("\n".join(table(run.steps, prices_of(case, costs), costs)))


def device_ns(step: ServedStep, prices: GridPrices) -> float:
    """The simulator's price of the device's part of `step`."""
    if step.chunks:
        return prices.mixed(step.decoding, step.context_tokens, step.prompt_tokens, step.pairs) / TICKS_PER_NS
    return prices.decode(step.decoding, step.context_tokens).ticks(step.context_tokens) / TICKS_PER_NS


def table(steps: tuple[ServedStep, ...], prices: GridPrices, costs: EngineCosts) -> Iterator[str]:
    """A row for each kind of step: medians of its steps, ms."""
    kinds: dict[tuple[bool, int], list[ServedStep]] = defaultdict(list)
    for step in steps:
        kinds[bool(step.chunks), next(most for most in DECODING if step.decoding <= most)].append(step)
    yield "| step | steps | tokens | device, ms: predicted | measured | error | host: predicted | measured |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for (mixed, most), alike in sorted(kinds.items()):
        predicted = [device_ns(step, prices) for step in alike]
        measured = [step.device_ns for step in alike]
        host = [step.end_ns - step.start_ns - step.device_ns for step in alike]
        said = [costs.host_ns(step.decoding + step.chunks, step.chunks) for step in alike]
        ms = " | ".join(f"{median(values) / 1e6:.2f}" for values in (predicted, measured))
        hosts = " | ".join(f"{median(values) / 1e6:.2f}" for values in (said, host))
        tokens = median(step.decoding + step.prompt_tokens for step in alike)
        label = f"{'prompts and ' if mixed else ''}up to {most} decode" if most else "prompts alone"
        error = sum(predicted) / sum(measured) - 1
        yield f"| {label} | {len(alike)} | {tokens:.0f} | {ms} | {error:+.0%} | {hosts} |"


if __name__ == "__main__":
    main()
