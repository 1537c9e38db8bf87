"""The page of a study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from cases import Run
from results import Gain, Result, summary

_HEAD = """# The study on a CPU

Made by `make study` on {date}: {device}, torch {torch}, {threads} thread, version {version}. The profile is what
`whatif calibrate --backend cpu` wrote before anything here was measured; nothing is fitted to these steps, and the
models, batches and lengths are none of the calibration's. *Raw* is the wall clock; *steady* leaves out other programs'
time and is scaled by the reference kernel to the calibration's speed ([measure.md](measure.md)). Errors are of steady
steps, predicted / measured - 1; intervals are the profile's central 90 %. On two ranks a collective counts with its
quickest decile. A CPU's numbers say nothing about Ascend.
"""


def markdown(
    results: Mapping[Run, Result],
    gains: Sequence[Gain],
    refused: Sequence[str],
    about: Mapping[str, Any],
    comments: str,
) -> str:
    """Summary, comments, every step and every gain."""
    parts = [_HEAD.format(**about), "\n".join(_summary(summary(results, gains), about)), comments.strip()]
    parts += ["## Steps", "\n".join(_steps(results)), "## Gains", "Step without / step with, all else equal."]
    parts.append("\n".join(_gains(gains)))
    if refused:
        parts += ["## Refused", "\n".join(f"- {line}" for line in refused)]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _summary(told: Mapping[str, Any], about: Mapping[str, Any]) -> Iterator[str]:
    right, of = told["directions"]
    wrong = told["reversed"]
    yield from ("| what | result |", "|---|---|")
    yield f"| steps | {told['steps']} |"
    yield f"| median error of a step | {told['median_error']:.1%} |"
    yield f"| 90th percentile | {told['p90_error']:.1%} |"
    yield f"| median error, one rank alone | {told['median_error_one_rank']:.1%} |"
    yield f"| steps inside their 90 % interval | {told['covered']:.0%} |"
    yield f"| noise of one measured step (standard deviation, from {about['rounds']} rounds) | {told['noise']:.1%} |"
    yield f"| rank correlation of gains, all | {told['rank_correlation_all']:.2f} |"
    for name, value in told["rank_correlation"].items():
        yield f"| rank correlation, {name} | {value:.2f} |"
    yield f"| direction of the gains that stand out from noise | {right} of {of} right |"
    yield f"| pairs that both distinguish, in the wrong order | {'; '.join(wrong) or 'none'} |"


def _steps(results: Mapping[Run, Result]) -> Iterator[str]:
    yield "| step | settings | raw ms | steady ms | predicted ms | interval | error | inside |"
    yield "|---|---|---:|---:|---:|---|---:|---|"
    for run, result in sorted(results.items(), key=lambda item: (item[0].base.name, item[0].settings)):
        low, high = (us / 1000 for us in result.interval_us)
        cells = (
            run.base.name,
            _short(run.settings),
            f"{median(result.raw_us) / 1000:.2f}",
            f"{result.measured_us / 1000:.2f}",
            f"{result.predicted_us / 1000:.2f}",
            f"{low:.2f}-{high:.2f}",
            f"{result.error:+.0%}",
            "yes" if result.is_covered else "no",
        )
        yield f"| {' | '.join(cells)} |"


def _gains(gains: Sequence[Gain]) -> Iterator[str]:
    yield "| step | optimisation | predicted | measured | stands out from noise |"
    yield "|---|---|---|---:|---|"
    for gain in gains:
        value, low, high = gain.predicted
        cells = (
            gain.base.name,
            gain.variant.name,
            f"{value:.2f}x ({low:.2f}-{high:.2f})",
            f"{gain.measured:.2f}x",
            "yes" if gain.is_told else "no",
        )
        yield f"| {' | '.join(cells)} |"


def _short(settings: Sequence[str]) -> str:
    parts = [s.removeprefix("optimizations.").removeprefix("fusion.").removesuffix("=true") for s in settings]
    return ", ".join(parts) or "all off"
