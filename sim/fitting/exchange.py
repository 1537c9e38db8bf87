"""Fit what a peer and a row add to an exchange of experts' tokens to measured ones.

Six rows, three sizes of group, one size of message: two numbers can be distinguished from them and no more. scipy is
imported only when a fit runs (the extra `fit`).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from math import log
from pathlib import Path
from typing import cast

from scenarios.ops.program import DType
from scenarios.ops.work import Exchange, ExchangeShape
from scenarios.records import dataclass
from sim.accuracy.reference import reference_csv
from sim.fitting.collectives import with_links
from sim.fitting.robust import fit_logs
from sim.hardware.files import write_numbers
from sim.hardware.profile import HardwareProfile, read_hardware
from sim.kernel.exchange import exchange_ns

#: Where the fit starts, us.
START = {"exchange_flag_us": 1.0, "exchange_row_us": 1.0}
#: The profile that the rows are measured on and that takes the numbers.
PROFILE = "atlas_a3_die"


@dataclass(frozen=True, slots=True)
class ExchangeRow:
    """One measured dispatch or combine."""

    shape: ExchangeShape
    mean_us: float


def rows() -> list[ExchangeRow]:
    """The rows of the reference set."""
    with reference_csv("exchange").open(encoding="utf-8", newline="") as file:
        return [
            ExchangeRow(
                ExchangeShape(
                    cast(Exchange, row["op"]),
                    int(row["tokens"]),
                    int(row["top_k"]),
                    int(row["hidden"]),
                    cast(DType, row["dtype"]),
                    int(row["ranks"]),
                ),
                float(row["mean_us"]),
            )
            for row in csv.DictReader(file)
        ]


def residuals(values: Mapping[str, float], measured: list[ExchangeRow], hw: HardwareProfile) -> list[float]:
    """ln(predicted / measured) of each row."""
    tried = with_links(hw, values)
    return [log(exchange_ns(row.shape, tried) / 1000 / row.mean_us) for row in measured]


def fit(measured: list[ExchangeRow], hw: HardwareProfile) -> dict[str, float]:
    """The two numbers, fitted as logarithms so that they stay positive."""
    return fit_logs(lambda values: residuals(values, measured, hw), START, prior=0.0, max_evaluations=None)


def calibrate(folder: Path) -> dict[str, float]:
    """Fit and write into the profile in `folder`; intervals are the ends over fits that leave one group size out."""
    path = folder / f"{PROFILE}.yaml"
    hw = read_hardware(path)
    measured = rows()
    values = fit(measured, hw)
    sizes = sorted({row.shape.ranks for row in measured})
    without = [fit([row for row in measured if row.shape.ranks != size], hw) for size in sizes]
    spans = {name: (min(f[name] for f in without), max(f[name] for f in without)) for name in values}
    write_numbers(
        path,
        {f"collective.{name}": value for name, value in values.items()},
        {f"collective.{name}": span for name, span in spans.items()},
    )
    return values
