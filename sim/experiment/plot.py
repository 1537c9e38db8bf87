"""The pictures of a report: gains predicted and measured, factor by factor, and how the baseline became warm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, exp, floor, log
from statistics import median

from sim.experiment.factors import Ratio
from sim.experiment.rows import Experiment, Row
from sim.experiment.statistics import Interval
from sim.report.svg import BLUE, FAINT, GREEN, GREY, INK, ORANGE, Picture

ROW, LEFT, RIGHT, TOP, PLOT = 34, 210, 240, 76, 480
VERDICT_COLOURS = {"adopt": GREEN, "do not adopt": ORANGE, "not distinguishable": GREY}
#: Beyond this an interval is cut, with an arrow's worth of dashes: a predicted one may reach over decades.
WIDEST = 4.0


def gains_svg(found: Experiment) -> str:
    """One line a measured factor: the predicted gain with its interval above, the measured one below."""
    rows = sorted(_measured(found), key=lambda row: -_gain(found, row).value)
    low, high = _range(found, rows)
    height = TOP + ROW * max(1, len(rows)) + 56
    picture = Picture(LEFT + PLOT + RIGHT, height, "Predicted and measured gain of each optimisation, with intervals")

    def x(value: float) -> float:
        return LEFT + (log(min(max(value, low), high)) - log(low)) / (log(high) - log(low)) * PLOT

    bottom = height - 50
    _frame(picture, found, x, (low, high), bottom)
    for number, row in enumerate(rows):
        y = TOP + ROW * (number + 0.5)
        picture.line([(12, y + ROW / 2), (LEFT + PLOT + RIGHT - 12, y + ROW / 2)], FAINT)
        picture.text(LEFT - 12, y + 4, row.factor.name, "end")
        predicted, measured = row.predicted[found.headline], _gain(found, row)
        _interval(picture, x, y - 6, predicted, BLUE, True, (low, high), f"{row.factor.name} predicted")
        assert row.verdict is not None
        colour = VERDICT_COLOURS[row.verdict.call]
        _interval(picture, x, y + 6, measured, colour, False, (low, high), f"{row.factor.name} measured")
        picture.text(LEFT + PLOT + 12, y - 1, row.verdict.call, colour=colour, bold=True)
        said = f"{measured.value:.3f}x measured, {predicted.value:.3f}x predicted"
        picture.text(LEFT + PLOT + 12, y + 12, said, colour=GREY, size=10)
    if not rows:
        picture.text(LEFT + PLOT / 2, TOP + 20, "no factor was measured", "middle", GREY)
    return picture.svg()


def _frame(
    picture: Picture, found: Experiment, x: Callable[[float], float], ends: tuple[float, float], bottom: float
) -> None:
    picture.text(
        16, 24, f"Gain in {_of(found)}, without / with: {found.baseline['scenario']['name']}", bold=True, size=14
    )
    picture.dot(22, 46, 4, BLUE, hollow=True)
    picture.text(34, 50, "predicted, 90 % interval of the profile")
    picture.dot(282, 46, 4, INK)
    picture.text(294, 50, "measured, 95 % interval of the median, by verdict")
    grey = (x(exp(-found.floor)), x(exp(found.floor)))
    picture.box(grey[0], TOP - 8, max(1.0, grey[1] - grey[0]), bottom - TOP + 8, "#f2f2f2", "two equal sides")
    for tick in _ticks(*ends):
        picture.line([(x(tick), TOP - 8), (x(tick), bottom)], INK if tick == 1 else FAINT)
        picture.text(x(tick), bottom + 16, f"{tick:g}x", "middle")
    picture.text(LEFT, bottom + 36, "slower with it", colour=GREY)
    picture.text(LEFT + PLOT, bottom + 36, "faster with it", "end", GREY)
    picture.text(LEFT + PLOT / 2, bottom + 36, "grey band: what two equal sides differ by", "middle", GREY)


def _interval(
    picture: Picture, x: Callable[[float], float], y: float, it: Ratio | Interval, colour: str, hollow: bool,
    ends: tuple[float, float], title: str,
) -> None:  # fmt: skip
    picture.line([(x(it.low), y), (x(it.high), y)], colour, 2)
    for end, cut in ((it.low, it.low < ends[0]), (it.high, it.high > ends[1])):
        if cut:  # goes on beyond the picture
            picture.line([(x(end), y - 4), (x(end), y + 4)], colour, 1, "1 2")
        else:
            picture.line([(x(end), y - 3), (x(end), y + 3)], colour, 2)
    picture.dot(x(it.value), y, 4, colour, hollow, f"{title}: {it.value:.3f} ({it.low:.3f}-{it.high:.3f})")


def _range(found: Experiment, rows: Sequence[Row]) -> tuple[float, float]:
    values = [1 / 1.1, 1.1]
    for row in rows:
        for it in (row.predicted[found.headline], _gain(found, row)):
            values += [it.low, it.value, it.high]
    low, high = max(min(values), 1 / WIDEST), min(max(values), WIDEST)
    return low / 1.02, high * 1.02


def _ticks(low: float, high: float) -> list[float]:
    """1 and what is easy to read around it."""
    if high / low > 1.6:
        return [t for t in (0.25, 0.35, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0) if low <= t <= high]
    step = next(s for s in (0.01, 0.02, 0.05, 0.1) if (high - low) / s <= 10)
    return [round(step * number, 6) for number in range(ceil(low / step), floor(high / step) + 1)]


def warm_up_svg(found: Experiment) -> str:
    """The first repeats of the baseline, by the fixed kernel, over the steady level."""
    told = [side / reference for reference, side in found.warm_up.repeats]
    steady = median(told[2 * (len(told) // 3) :])
    values = [value / steady for value in told]
    width, height, left, bottom = 640, 300, 64, 250
    picture = Picture(width, height, "The first repeats of the baseline over its steady level")
    top, most = 50, max(1.3, *values) * 1.05
    least = min(0.7, *values) * 0.95

    def place(number: int, value: float) -> tuple[float, float]:
        return (
            left + (number + 0.5) / len(values) * (width - left - 24),
            bottom - (value - least) / (most - least) * (bottom - top),
        )

    picture.text(16, 24, f"Warm-up: {_of(found)} of the baseline, repeat by repeat", bold=True, size=14)
    step = next(s for s in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0, 1e9) if (most - least) / s <= 8)
    for number in range(ceil(least / step), floor(most / step) + 1):
        at = place(0, number * step)[1]
        picture.line([(left, at), (width - 24, at)], INK if number * step == 1 else FAINT)
        picture.text(left - 8, at + 4, f"{number * step:g}", "end")
    picture.line([place(n, v) for n, v in enumerate(values)], BLUE)
    for number, value in enumerate(values):
        picture.dot(*place(number, value), 3, BLUE, title=f"repeat {number + 1}: {value:.2f}")
    picture.text(width / 2, bottom + 34, "repeat, the very first on the left", "middle")
    picture.text(18, (top + bottom) / 2, "times the steady level", "middle", upwards=True)
    return picture.svg()


def _of(found: Experiment) -> str:
    return {"tpot": "TPOT", "ttft": "TTFT", "step": "the mixed step"}[found.headline]


def _measured(found: Experiment) -> list[Row]:
    return [row for row in found.rows if row.compared is not None]


def _gain(found: Experiment, row: Row) -> Interval:
    assert row.compared is not None
    return row.compared.gains[found.headline]
