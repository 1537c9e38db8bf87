"""How well does a calibrated profile predict this CPU? Calibrate, predict what calibration never ran, measure, compare.

    python benchmarks/study/cpu.py [--profile PROFILE.yaml] [--rounds N] [--out docs/study_cpu.md] [--json FILE]

Every scenario is measured in each of N rounds, minutes apart, each time next to the reference kernel; what two rounds
differ by is the noise that a gain must exceed to be distinguished from none. Nothing is fitted to what is measured
here.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from cases import BASES, PLAIN, VARIANTS, Base, Run, Variant, runs, write_models  # noqa: E402
from page import markdown  # noqa: E402
from results import Result, gains_of, summary  # noqa: E402

from scenarios.errors import ScenarioError  # noqa: E402
from scenarios.files.atomic import write_text  # noqa: E402
from scenarios.loader import load_text  # noqa: E402
from sim.predict.predict import predict  # noqa: E402
from sim.predict.scenario_result import case_of, predicted_of  # noqa: E402

#: Longest that one step is measured in one round, seconds.
BUDGET_S = 2.5


def studied(
    profile: Path,
    bases: Sequence[Base],
    variants: Sequence[Variant],
    rounds: int,
    say: Callable[[str], None],
    ranks: bool = True,
    budget_s: float = BUDGET_S,
) -> tuple[dict[Run, Result], list[str]]:
    """Predict and measure everything; what was refused, with its reason, comes next to it.

    ranks: run steps on two ranks too. budget_s: longest that one step is measured in one round.
    """
    from device.open import measure_on

    refused: list[str] = []
    results: dict[Run, Result] = {}
    with TemporaryDirectory() as folder:
        models = write_models(Path(folder))
        measure = measure_on("cpu", budget_s=budget_s)
        for number in range(rounds):
            for run in runs(tuple(bases), tuple(variants), ranks):
                say(f"round {number + 1}/{rounds}: {run.base.name} {' '.join(run.settings)}")
                text = f"model: {models[run.base.model]}\nhardware: {profile.resolve()}\n"
                loaded = load_text(text, "study", [*run.base.settings, *PLAIN, *run.settings])
                result = results.get(run) or Result(run, predict(case_of(loaded)))
                try:
                    document = measure.run(loaded, predicted_of(result.prediction)).document
                except ScenarioError as error:
                    refused.append(f"{run.base.name}, {' '.join(run.settings)}: {error}")
                    continue
                result.raw_us.append(document["unmarked_step"]["median_us"])
                result.steady_us.append(document["steady_step"]["median_us"])
                results[run] = result
                say(f"  {result.error:+.0%}: {result.predicted_us:,.0f} us for {result.steady_us[-1]:,.0f}")
    return results, refused


def about_of(rounds: int) -> dict[str, Any]:
    from device.backends import choose
    from sim import __version__

    today = date.today().isoformat()
    return {**choose("cpu").describe(), "date": today, "rounds": rounds, "version": __version__}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--profile", type=Path, help="a calibrated profile; by default one is made first")
    parser.add_argument("--rounds", type=int, default=2, help="how often everything is measured")
    parser.add_argument("--budget-s", type=float, default=BUDGET_S, help="longest for one step in one round")
    parser.add_argument("--out", type=Path, help="the page to write (default: print it)")
    parser.add_argument("--json", type=Path, help="write the numbers as JSON")
    parser.add_argument("--comments", type=Path, help="what a person says of the run, put under the summary")
    options = parser.parse_args()

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    with TemporaryDirectory() as folder:
        profile = options.profile or _calibrated(Path(folder) / "profile.yaml", say)
        results, refused = studied(
            profile=profile,
            bases=BASES,
            variants=VARIANTS,
            rounds=options.rounds,
            say=say,
            ranks=True,
            budget_s=options.budget_s,
        )
    gains = gains_of(results, BASES, VARIANTS)
    comments = options.comments.read_text() if options.comments else ""
    page = markdown(results, gains, refused, about_of(options.rounds), comments)
    if options.json:
        steps = [
            {
                "step": run.base.name,
                "settings": run.settings,
                "predicted_us": result.predicted_us,
                "interval_us": result.interval_us,
                "raw_us": result.raw_us,
                "steady_us": result.steady_us,
            }
            for run, result in results.items()
        ]
        write_text(options.json, json.dumps(summary(results, gains) | {"rows": steps}, indent=1) + "\n")
    if options.out:
        write_text(options.out, page)
    else:
        print(page)
    print(json.dumps(summary(results, gains), indent=1), file=sys.stderr)


def _calibrated(out: Path, say: Callable[[str], None]) -> Path:
    """A profile of this machine, made as `whatif calibrate` makes it."""
    from device.open import bench_on
    from sim.fitting.profile_file import ready, write_profile

    rows, base = ready("cpu", out, "")
    write_profile(out, bench_on("cpu")(rows, 240.0, False, say), base)
    return out


if __name__ == "__main__":
    main()
