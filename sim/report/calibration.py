"""A calibration for a terminal: programs with their errors, what is not identified, what to do next."""

from __future__ import annotations

from math import exp
from statistics import median

from rich.console import Console
from rich.text import Text

from scenarios.exchange.timings import Timings
from sim.accuracy.score import percentile
from sim.fitting.calibrated import Calibrated
from sim.report.tables import Column, fitted


def print_calibration(console: Console, calibration: Calibrated, timings: Timings, out: str) -> None:
    """One line a program: shapes, rows, error with whole shapes held out, and its coefficients."""
    about = timings.about
    console.print(Text.assemble((f"Calibrated {about['backend']}", "bold"), f"  {about.get('device', '')}"))
    numbers = calibration.numbers
    sources = {source: sum(n.source == source for n in numbers.values()) for source in ("fitted", "measured", "spec")}
    told = ", ".join(f"{count} {source}" for source, count in sources.items() if count)
    for line in (
        f"  torch {about.get('torch', '?')}; {len(timings.rows)} rows; {told}; "
        f"{len(calibration.unknown)} not identified",
        f"  reference kernel {numbers['reference_us'].value:,.0f} us "
        f"({numbers['reference_us'].low:,.0f}-{numbers['reference_us'].high:,.0f}): the speed that times are told at",
    ):
        console.print(Text(line, style="dim"))
    console.print()
    fits = sorted(calibration.fits, key=lambda fit: -sum(sample.us for sample in fit.samples))
    errors = [sorted(abs(exp(e) - 1) for e in fit.errors) for fit in fits]
    columns = [
        Column("program", [fit.program for fit in fits]),
        Column("shapes", [str(fit.shapes) for fit in fits], right=True),
        Column("rows", [str(len(fit.samples)) for fit in fits], right=True, rank=2),
        Column("median", [f"{median(e):.0%}" for e in errors], right=True),
        Column("P90", [f"{percentile(e, 0.9):.0%}" for e in errors], right=True),
        Column("coefficients", [_told(fit.values) for fit in fits], rank=1),
    ]
    console.print(fitted("Programs, errors with whole shapes held out", columns, console.width))
    console.print(Text(f"{out} is written; take it: --set hardware={out}"), soft_wrap=True)


def _told(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in values.items())
