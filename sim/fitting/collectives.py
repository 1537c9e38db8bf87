"""Fit the links' numbers to measured collectives: `python -m sim.fitting.collectives [--write]`.

Robust least squares on logarithms, as for kernels; what is held out is a whole point (operation, ranks, bytes), however
many rows it has. scipy is imported only when a fit runs (the extra `fit`).
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping, Sequence
from math import exp, log, log1p
from pathlib import Path
from statistics import median

from scenarios.records import dataclass
from sim.accuracy.collectives import op_of, predicted_us
from sim.accuracy.reference import reference_csv
from sim.accuracy.rows.files import CollectiveRow, read_collectives
from sim.accuracy.score import percentile
from sim.collective.price import price_collective
from sim.fitting.robust import covering, fit_logs, intervals
from sim.hardware.files import write_numbers
from sim.hardware.numbers import with_numbers
from sim.hardware.profile import SHIPPED, HardwareProfile, read_hardware
from sim.predict.uncertainty import Z90


@dataclass(frozen=True, slots=True)
class Links:
    """Numbers of one family's `collective` section: where they are written, on whose rows they are fitted, and from
    where a fit starts (it is pulled there where rows do not decide)."""

    into: str
    hardware: str
    parameters: Mapping[str, float]


FAMILIES = (
    Links(
        "atlas_a3_die",
        "atlas_a3_die",
        {
            "hccs_gbps": 213,
            "ai_cpu_start_us": 30,
            "ai_cpu_idle_us": 70,
            "step_us": 2,
            "reduce_step_us": 1.2,
            "reduce_gbps": 900,
            "aiv_step_us": 4,
            "aiv_gbps": 165,
            "aiv_core_gbps": 16.6,
            "aiv_reduce_gbps": 250,
            "aiv_busy_share": 0.5,
            "arrival_us": 1.2,
        },
    ),
    Links("atlas_a2_910b2", "atlas_a2_910b4", {"hccs_gbps": 18.3, "reduce_gbps": 196}),
)


def points(links: Links) -> dict[tuple[str, int, int], list[CollectiveRow]]:
    """The family's scored rows by (operation, ranks, bytes of the whole tensor)."""
    by_point: dict[tuple[str, int, int], list[CollectiveRow]] = {}
    for row in read_collectives(reference_csv("collectives")):
        if row.hardware == links.hardware and row.scored:
            whole = row.bytes * (row.ranks if row.shard else 1)
            by_point.setdefault((op_of(row.op), row.ranks, whole), []).append(row)
    return by_point


def with_links(hw: HardwareProfile, values: Mapping[str, float]) -> HardwareProfile:
    """`hw` with other numbers in its `collective` section."""
    return with_numbers(hw, {f"collective.{name}": value for name, value in values.items()})


def residuals(values: Mapping[str, float], rows: Sequence[CollectiveRow], hw: HardwareProfile) -> list[float]:
    """ln(predicted / measured) of each row."""
    tried = with_links(hw, values)
    return [log(predicted_us(row, tried) / row.mean_us) for row in rows]


def fit(links: Links, rows: Sequence[CollectiveRow], hw: HardwareProfile) -> dict[str, float]:
    """The numbers that fit `rows` best; fitted as logarithms, so they stay positive."""
    values = fit_logs(lambda tried: residuals(tried, rows, hw), links.parameters)
    price_collective.cache_clear()  # full of devices that will not come again
    return values


def held_out(links: Links, hw: HardwareProfile) -> list[tuple[CollectiveRow, float]]:
    """(row, absolute relative error) of each row, predicted by a fit that has not seen its point."""
    by_point = points(links)
    result = []
    for left, rows in by_point.items():
        values = fit(links, [row for point, seen in by_point.items() if point != left for row in seen], hw)
        result += [(row, abs(exp(r) - 1)) for row, r in zip(rows, residuals(values, rows, hw), strict=True)]
    return result


def interval(links: Links, hw: HardwareProfile, draws: int) -> dict[str, tuple[float, float]]:
    """5th and 95th percentile of each number over fits to points drawn with replacement."""
    groups, generator = list(points(links).values()), random.Random(0)
    fits = [
        fit(links, [row for rows in generator.choices(groups, k=len(groups)) for row in rows], hw) for _ in range(draws)
    ]
    return intervals(fits)


def calibrate(
    folder: Path, draws: int = 0, check: bool = True
) -> list[tuple[Links, list[tuple[CollectiveRow, float]]]]:
    """Fit each family and write its numbers into the profiles in `folder`; the held-out errors, if `check`."""
    done = []
    for links in FAMILIES:
        path = folder / f"{links.into}.yaml"
        hw = with_links(read_hardware(path), links.parameters)
        values = fit(links, [row for rows in points(links).values() for row in rows], hw)
        errors = held_out(links, hw) if check else []
        if errors and links.into == "atlas_a3_die":
            values["sigma"] = log1p(covering(error for _, error in errors)) / Z90
        spans = interval(links, hw, draws) if draws else {}
        write_numbers(
            path,
            {f"collective.{name}": value for name, value in values.items()},
            {f"collective.{name}": span for name, span in spans.items()},
        )
        done.append((links, errors))
    return done


def table(results: Sequence[tuple[Links, list[tuple[CollectiveRow, float]]]]) -> str:
    """Held-out errors by family, operation and ranks."""
    lines = [f"{'held out':40} {'rows':>5} {'median':>7} {'P90':>7}"]
    for links, errors in results:
        kinds: dict[str, list[float]] = {}
        for row, error in errors:
            kinds.setdefault(f"{op_of(row.op)} {row.ranks}", []).append(error)
        kinds["all"] = [e for _, e in errors]
        for kind, errors_of_kind in kinds.items():
            ordered = sorted(errors_of_kind)
            name = f"{links.hardware} {kind}"
            lines.append(f"{name:40} {len(ordered):5} {median(ordered):7.1%} {percentile(ordered, 0.9):7.1%}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--bootstrap", type=int, default=0, help="draws for the intervals (the profiles took 100)")
    parser.add_argument("--out", type=Path, help="folder of profiles to write into")
    parser.add_argument("--write", action="store_true", help="write into the shipped profiles")
    options = parser.parse_args(arguments)
    target = SHIPPED if options.write else options.out
    if target is None:
        parser.error("--write or --out FOLDER")
    print(table(calibrate(target, options.bootstrap)))


if __name__ == "__main__":
    main()
