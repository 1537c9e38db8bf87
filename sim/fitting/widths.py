"""Fit how wide intervals of kernels are to rows that no fit had seen: `python -m sim.fitting.widths [--write]`.

An error of a row predicted by a fit without its shape, model or stack is drawn from Student's t (four degrees of
freedom) around 0. Its scale is the root of the sum of squares of

* the spread of its family on its chip, times its program's share, and
* what stands behind the prediction does not tell: few shapes, sizes far outside of them, another chip, no row at all
  (`sim.kernel.ranges`), as it was in the fold.

Spreads of families come from shapes held out, the further terms from all ways to hold out, by maximum likelihood, where
rows of one shape count as the root of their number; then families' spreads are scaled so that 90 % of the shapes held
out lie inside widths that their own rows did not decide. How much of these widths a step needs is fitted after them
(`sim.fitting.steps`).
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from math import log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scenarios.ops.families import Family
from scenarios.records import dataclass
from sim.accuracy.unseen import UnseenClass, write_unseen
from sim.fitting.unseen import WAYS, By, Judged, all_rows, judged, networks
from sim.hardware.files import write_numbers
from sim.hardware.profile import SHIPPED
from sim.kernel.ranges import SPREADS_FILE, Known, Spreads
from sim.predict.uncertainty import T90

FAMILIES: tuple[Family, ...] = ("matmul", "attention", "vector")
#: Where a fit starts and what it is drawn to where rows do not decide: spread of a family, and the terms.
FAMILY_SIGMA = 0.1
FEW, OCTAVE, ELSEWHERE, NEVER = 0.15, 0.05, 0.15, 0.35
#: How strongly: standard deviations of the logarithms, of terms and of a program's share.
TERM_PULL, SHARE_PULL = 0.5, 0.4
#: The profile that takes the spreads of each stack's families.
PROFILE_OF = {"A3": "atlas_a3_die", "910B2": "atlas_a2_910b2"}
#: Degrees of freedom of the errors.
FREEDOM = 4
#: Boards and clocks of one chip, as the profiles assume; intervals have it next to the fitted spreads.
DEVICE_SIGMA = 0.03
#: Share of the rows that an interval claims to hold, and fewest rows of a class that may decide its width.
NOMINAL, MIN_ROWS = 0.9, 15
ROUNDS = 3
#: Parts of the shapes that are left out in turn to see how much wider an interval must be for rows that did not decide
#: it.
CROSS_FOLDS = 3


@dataclass(frozen=True, slots=True)
class Widths:
    """sigmas: by (stack, family); terms and shares as `sim.kernel.ranges` takes them."""

    sigmas: Mapping[tuple[str, Family], float]
    terms: Spreads

    def scale(self, item: Judged) -> float:
        """Scale of the error's law: half of the 90 % interval of its logarithm over T90."""
        own = self.sigmas[item.stack, item.family] * self.terms.shares.get(item.program, 1.0)
        return float(np.sqrt(own**2 + self.terms.extra(item.support, item.family) ** 2 + DEVICE_SIGMA**2))

    def covers(self, item: Judged) -> bool:
        """Whether the interval around the prediction holds the measurement."""
        return abs(item.error) <= T90 * self.scale(item)


def fit_widths(items: Mapping[By, Sequence[Judged]]) -> Widths:
    """The widths that the errors of `items` ask for; they hold at least `shape`, and no isolated kernels."""
    return _covering(items, _likely(items))


def _likely(items: Mapping[By, Sequence[Judged]]) -> Widths:
    """The widths of maximum likelihood, by turns: families, terms, programs."""
    shapes = items["shape"]
    rest = [item for way, judged_items in items.items() if way != "seen" for item in judged_items]
    sigmas = {(stack, family): FAMILY_SIGMA for stack in PROFILE_OF for family in FAMILIES}
    terms = Spreads(FEW, OCTAVE, NEVER, 0.0, dict.fromkeys(FAMILIES, ELSEWHERE), {})
    widths = Widths(sigmas, terms)
    for _ in range(ROUNDS):
        widths = Widths(_sigmas(shapes, widths), widths.terms)
        widths = Widths(widths.sigmas, _terms(rest, widths))
        widths = Widths(widths.sigmas, _with_shares(shapes, widths))
    return widths


def _losses(errors: NDArray[np.float64], scales: NDArray[np.float64]) -> NDArray[np.float64]:
    """Minus the logarithm of Student's density, up to a constant."""
    return np.asarray((FREEDOM + 1) / 2 * np.log1p((errors / scales) ** 2 / FREEDOM) + np.log(scales))


def _weights(items: Sequence[Judged]) -> NDArray[np.float64]:
    count: dict[tuple[str, str, str], int] = {}
    for item in items:
        key = item.by, item.sample.shape, item.stack
        count[key] = count.get(key, 0) + 1
    return np.array([count[item.by, item.sample.shape, item.stack] ** -0.5 for item in items])


def _best(loss: Any, start: float, low: float = 1e-3, high: float = 2.0) -> float:
    result = import_module("scipy.optimize").minimize_scalar(loss, bounds=(log(low), log(high)), method="bounded")
    return float(np.exp(result.x)) if result.success else start


def _sigmas(items: Sequence[Judged], widths: Widths) -> dict[tuple[str, Family], float]:
    result = dict(widths.sigmas)
    for stack, family in result:
        mine = [item for item in items if (item.stack, item.family) == (stack, family)]
        errors, weights = np.array([item.error for item in mine]), _weights(mine)
        shares = np.array([widths.terms.shares.get(item.program, 1.0) for item in mine])
        extra = np.hypot(DEVICE_SIGMA, [widths.terms.extra(item.support, family) for item in mine])

        def loss(x: float, e: Any = errors, w: Any = weights, s: Any = shares, more: Any = extra) -> float:
            pull = ((x - log(FAMILY_SIGMA)) / 1.0) ** 2 / 2
            return float(np.sum(w * _losses(e, np.hypot(np.exp(x) * s, more))) + pull)

        result[stack, family] = _best(loss, result[stack, family])
    return result


def _terms(items: Sequence[Judged], widths: Widths) -> Spreads:
    starts = np.log([FEW, OCTAVE, NEVER, ELSEWHERE, ELSEWHERE, ELSEWHERE])
    errors, weights = np.array([item.error for item in items]), _weights(items)
    own = np.array(
        [widths.sigmas[i.stack, i.family] * widths.terms.shares.get(i.program, 1.0) for i in items], np.float64
    )

    def terms(x: NDArray[np.float64]) -> Spreads:
        few, octave, never, *elsewhere = (float(v) for v in np.exp(x))
        return Spreads(few, octave, never, 0.0, dict(zip(FAMILIES, elsewhere, strict=True)), widths.terms.shares)

    def loss(x: NDArray[np.float64]) -> float:
        tried = terms(x)
        extra = np.hypot(DEVICE_SIGMA, [tried.extra(item.support, item.family) for item in items])
        pull = np.sum(((x - starts) / TERM_PULL) ** 2) / 2
        return float(np.sum(weights * _losses(errors, np.hypot(own, extra))) + pull)

    now = widths.terms
    start = np.log([now.few, now.octave, now.never, *(now.elsewhere[family] for family in FAMILIES)])
    return terms(import_module("scipy.optimize").minimize(loss, start, method="L-BFGS-B").x)


def _with_shares(items: Sequence[Judged], widths: Widths) -> Spreads:
    shares = {}
    for program in sorted({item.program for item in items}):
        mine = [item for item in items if item.program == program]
        errors, weights = np.array([item.error for item in mine]), _weights(mine)
        family = np.array([widths.sigmas[item.stack, item.family] for item in mine])
        extra = np.hypot(DEVICE_SIGMA, [widths.terms.extra(item.support, item.family) for item in mine])

        def loss(x: float, e: Any = errors, w: Any = weights, s: Any = family, more: Any = extra) -> float:
            return float(np.sum(w * _losses(e, np.hypot(np.exp(x) * s, more))) + (x / SHARE_PULL) ** 2 / 2)

        shares[program] = _best(loss, 1.0, 0.1, 5.0)
    return replace(widths.terms, shares=shares)


def _covering(items: Mapping[By, Sequence[Judged]], widths: Widths) -> Widths:
    """`widths`, each class scaled so that 90 % of its rows lie inside: families on each chip by shapes held out, then
    programs that were fitted on another chip only, then those that never were, by all ways to hold out.

    How much is read off widths that rows of other shapes decided: spreads are too narrow for the rows that they were
    fitted to, those of a program with few rows most.
    """
    folds = _without_their_shapes(items)
    scaled = _Scaled(widths, tuple(other for other, _ in folds))
    shapes = [[i for i in held if i.by == "shape"] for _, held in folds]
    rest = [[i for i in held if i.by != "seen"] for _, held in folds]
    for key in widths.sigmas:

        def own(start: Widths, factor: float, key: Any = key) -> Widths:
            return replace(start, sigmas={**start.sigmas, key: start.sigmas[key] * factor})

        scaled = scaled.covering([[i for i in held if _class(i) == (*key, "here")] for held in shapes], own)
    for family in FAMILIES:

        def moved(start: Widths, factor: float, family: Family = family) -> Widths:
            elsewhere = {**start.terms.elsewhere, family: start.terms.elsewhere[family] * factor}
            return replace(start, terms=replace(start.terms, elsewhere=elsewhere))

        scaled = scaled.covering([[i for i in held if _class(i)[1:] == (family, "elsewhere")] for held in rest], moved)

    def never(start: Widths, factor: float) -> Widths:
        return replace(start, terms=replace(start.terms, never=start.terms.never * factor))

    return scaled.covering([[i for i in held if i.support.known == "never"] for held in rest], never).widths


def _class(item: Judged) -> tuple[str, Family, Known]:
    return item.stack, item.family, item.support.known


def _without_their_shapes(items: Mapping[By, Sequence[Judged]]) -> list[tuple[Widths, list[Judged]]]:
    """(widths that no row of some shapes has decided, before they are scaled; the rows of those shapes)."""
    shapes = sorted({item.sample.shape for item in items["shape"]})
    result = []
    for fold in range(CROSS_FOLDS):
        mine = set(shapes[fold::CROSS_FOLDS])
        others = {way: [i for i in held if i.sample.shape not in mine] for way, held in items.items()}
        result.append((_likely(others), [i for held in items.values() for i in held if i.sample.shape in mine]))
    return result


@dataclass(frozen=True, slots=True)
class _Scaled:
    """Widths, and those of each fold, which are scaled alike."""

    widths: Widths
    folds: tuple[Widths, ...]

    def covering(
        self,
        held: Sequence[Sequence[Judged]],
        change: Callable[[Widths, float], Widths],
    ) -> _Scaled:
        """Scaled by the smallest factor, between a quarter and four, with which the widths of each fold cover 90 % of
        its rows in `held`; as they are where those are fewer than MIN_ROWS. Each row counts once, as in a coverage."""
        rows = sum(len(fold) for fold in held)
        if rows < MIN_ROWS:
            return self
        low, high = 0.25, 4.0
        for _ in range(20):
            middle = sqrt(low * high)
            tried = [change(widths, middle) for widths in self.folds]
            inside = sum(widths.covers(item) for widths, fold in zip(tried, held, strict=True) for item in fold)
            low, high = (middle, high) if inside < NOMINAL * rows else (low, middle)
        return _Scaled(change(self.widths, high), tuple(change(widths, high) for widths in self.folds))


def shared_of(items: Sequence[Judged], widths: Widths) -> float:
    """Correlation of the errors of two programs on one stack in one model, of which no fit had seen a row: errors over
    their scales, cut at three, means of programs."""
    together = scale = 0.0
    for group in _grouped(items, lambda item: (item.stack, item.sample.model)).values():
        by_program = _grouped(group, lambda item: item.program)
        means = np.array(
            [np.mean(np.clip([i.error / widths.scale(i) for i in own], -3, 3)) for own in by_program.values()]
        )
        if len(means) > 1:
            together += (means.sum() ** 2 - (means**2).sum()) / (len(means) - 1)
            scale += (means**2).sum()
    return float(together / scale) if scale else 0.0


def _grouped(items: Sequence[Judged], key: Callable[[Judged], Any]) -> dict[Any, list[Judged]]:
    groups: dict[Any, list[Judged]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def halves(items: Mapping[By, Sequence[Judged]]) -> list[tuple[Judged, bool]]:
    """(row, whether its interval holds it) with widths that only rows of other shapes have decided."""
    shapes = sorted({item.sample.shape for item in items["shape"]})
    result = []
    for half in (0, 1):
        mine = set(shapes[half::2])
        others = {way: [i for i in held if i.sample.shape not in mine] for way, held in items.items()}
        widths = fit_widths(others)
        result += [(i, widths.covers(i)) for held in items.values() for i in held if i.sample.shape in mine]
    return result


def summary(covered: Sequence[tuple[Judged, bool]]) -> list[UnseenClass]:
    """Errors and coverage by way to hold out, stack and family, families together last."""
    lines = []
    for way in WAYS:
        for stack in PROFILE_OF:
            for family in (*FAMILIES, "all"):
                mine = [(i, c) for i, c in covered if (i.by, i.stack) == (way, stack) and family in (i.family, "all")]
                if not mine or (family == "all" and len({i.family for i, _ in mine}) < 2):
                    continue
                errors = np.abs(np.expm1([item.error for item, _ in mine]))
                median, p90 = (float(v) for v in np.percentile(errors, (50, 90)))
                inside = sum(c for _, c in mine) / len(mine)
                lines.append(UnseenClass(way, stack, family, len(mine), median, p90, coverage=inside))
    return lines


def write(widths: Widths, shared: float, folder: Path, spreads: Path) -> None:
    """The families' spreads into the profiles of `folder`, the terms into the file `spreads`."""
    for stack, name in PROFILE_OF.items():
        values = {f"residual.{family}_sigma": widths.sigmas[stack, family] for family in FAMILIES}
        write_numbers(folder / f"{name}.yaml", values, {})
    terms = widths.terms
    rows = [("few", "", terms.few), ("octave", "", terms.octave), ("never", "", terms.never), ("shared", "", shared)]
    rows += [("elsewhere", family, terms.elsewhere[family]) for family in FAMILIES]
    rows += [("share", program, share) for program, share in sorted(terms.shares.items())]
    with spreads.open(newline="") as file:
        of_steps = [row for row in csv.reader(file) if row[0] == "step"]  # `sim.fitting.steps` writes these
    with spreads.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("term", "of", "value"))
        writer.writerows((term, of, f"{value:.3g}") for term, of, value in rows)
        writer.writerows(of_steps)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true", help="write into the shipped profiles and tables")
    options = parser.parse_args(arguments)
    rows = all_rows()
    items = {way: networks(judged(rows, way)) for way in WAYS}
    widths = fit_widths(items)
    shared = shared_of(items["stack"], widths)
    lines = summary(halves(items))
    print(f"shared by programs of one stack and model: {shared:.2f}")
    print("\n".join(str(line) for line in lines))
    if options.write:
        write(widths, shared, SHIPPED, SPREADS_FILE)
        write_unseen(lines)


if __name__ == "__main__":
    main()
