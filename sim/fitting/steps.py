"""How much of its width a measured step needs: `python -m sim.fitting.steps [--write]`.

The interval of a step adds up what kernels are wrong by whose shapes no fit had seen. Part of that is scatter between
rows of one shape, which averages out over the layers of a step, and most steps run kernels of a stack that was fitted.
How much of the width is left is read off the rows of `steps.csv` that fix no number: the smallest share of their widths
with which 90 % of them lie inside, where rows of one model count as the root of their number. Waiting for rank skew has
a spread of its own (`sim.fitting.ranks`), so rows that wait for it decide nothing here.

Each model is judged by the share that the steps of the others ask for. Laws were chosen with these steps in view, so
the largest of those shares, and of that of all, is the one that is written, for the devices on which they ran.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter
from collections.abc import Sequence
from math import ceil, hypot, log
from pathlib import Path

from scenarios.batches import reported_batch
from scenarios.records import dataclass
from sim.accuracy.reference import reference_csv
from sim.accuracy.rows.files import StepRow, read_steps
from sim.accuracy.score import price_steps
from sim.accuracy.steps import case_of_row
from sim.kernel.ranges import SPREADS_FILE, step_share
from sim.predict.steps import sensitivity_of
from sim.predict.uncertainty import implied_width

#: Share of the rows that an interval claims to hold.
NOMINAL = 0.9
#: Share of a step that is waiting for rank skew, from which on that decides its width.
MAX_LATE = 0.02


@dataclass(frozen=True, slots=True)
class Step:
    """A measured step. error: ln(measured / predicted); width: half of the interval of its logarithm that kernels and
    calls imply; skew: what waiting for rank skew adds to it, on the error's side."""

    model: str
    device: str
    error: float
    width: float
    skew: float
    late: float

    def inside(self, share: float) -> bool:
        """Whether the interval with this share of the width holds the measurement."""
        return abs(self.error) <= hypot(share * self.width, self.skew)


def unfitted_steps() -> list[Step]:
    """The scored steps that fix no number of a profile."""
    rows = [row for row in read_steps(reference_csv("steps")) if row.scored and not row.fitted]
    return [step for row in rows if (step := _step(row)) is not None]


def _step(row: StepRow) -> Step | None:
    scored, _ = price_steps([row])
    case = case_of_row(row)
    if not scored or isinstance(case, str):
        return None
    one, device = scored[0], case.hardware.profile.name
    sensitivity = sensitivity_of(case, reported_batch(case.scenario))
    width = implied_width(sensitivity, case.hardware)
    error = log(one.measured_us / one.predicted_us)
    whole = log(one.high_us / one.predicted_us) if error > 0 else log(one.predicted_us / one.low_us)
    skew = max(0.0, whole**2 - (step_share(device) * width) ** 2) ** 0.5
    return Step(row.model, device, error, width, skew, sensitivity.late)


def share_of_width(steps: Sequence[Step]) -> float:
    """The smallest share with which 90 % of `steps` lie inside, rows of one model weighted as the root of their number.

    Raises ValueError where no step decides.
    """
    deciding = [step for step in steps if step.late <= MAX_LATE]
    if not deciding:
        raise ValueError("no measured step decides how wide steps are")
    count = Counter(step.model for step in deciding)
    needed = sorted((abs(step.error) / step.width, count[step.model] ** -0.5) for step in deciding)
    total, below = sum(weight for _, weight in needed), 0.0
    for share, weight in needed:
        below += weight
        if below >= NOMINAL * total:
            return share
    return needed[-1][0]


def cautious_share(steps: Sequence[Step]) -> float:
    """The largest of the shares that all ask for, and all but those of one model."""
    return max(share_of_width(steps), *(share for _, share, _, _ in held_out(steps)))


def held_out(steps: Sequence[Step]) -> list[tuple[str, float, int, int]]:
    """(model, share that the other models' steps ask for, its rows inside with that share, its rows)."""
    result = []
    for model in sorted({step.model for step in steps}):
        mine = [step for step in steps if step.model == model]
        share = share_of_width([step for step in steps if step.model != model])
        result.append((model, share, sum(step.inside(share) for step in mine), len(mine)))
    return result


def write(share: float, devices: Sequence[str], file: Path = SPREADS_FILE) -> None:
    """Replaces the shares of steps in a file of spreads."""
    with file.open(newline="") as source:
        rows = [row for row in csv.reader(source) if row[0] != "step"]
    with file.open("w", newline="") as target:
        rounded = ceil(1000 * share) / 1000  # the step that decided stays inside
        csv.writer(target, lineterminator="\n").writerows([*rows, *(("step", d, f"{rounded:.3g}") for d in devices)])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true", help="write into the shipped table of spreads")
    options = parser.parse_args(arguments)
    steps = unfitted_steps()
    folds = held_out(steps)
    for model, share, inside, rows in folds:
        print(f"{model}: {share:.2f} by the steps of other models; {inside} of its {rows} steps inside")
    print(f"together {sum(f[2] for f in folds)} of {len(steps)} steps inside")
    share = cautious_share(steps)
    print(f"by all: {share_of_width(steps):.3f}; written: {share:.3f}, {sum(s.inside(share) for s in steps)} inside")
    if options.write:
        write(share, sorted({step.device for step in steps}))


if __name__ == "__main__":
    main()
