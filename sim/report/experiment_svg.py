"""The pictures of a report: gains predicted and measured, factor by factor, and how the baseline became warm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, exp, floor, log
from statistics import median

from sim.experiment.factors import Ratio
from sim.experiment.rows import Experiment, Row
from sim.experiment.statistics import Interval
from sim.report import svg

ROW, LEFT, RIGHT, TOP, PLOT = 34, 210, 240, 76, 480
VERDICT_COLOURS = {"adopt": svg.GREEN, "do not adopt": svg.VERMILION, "not distinguishable": svg.GREY}
#: Beyond this an interval is cut, with an arrow's worth of dashes: a predicted one may reach over decades.
WIDEST = 4.0


def gains_svg(experiment: Experiment) -> str:
    """One line a measured factor: the predicted gain with its interval above, the measured one below."""
    rows = sorted(_measured(experiment), key=lambda row: -_gain(experiment, row).value)
    low, high = _range(experiment, rows)
    height = TOP + ROW * max(1, len(rows)) + 56

    def x(value: float) -> float:
        return LEFT + (log(min(max(value, low), high)) - log(low)) / (log(high) - log(low)) * PLOT

    parts = _frame(experiment, x, (low, high), height - 50)
    for number, row in enumerate(rows):
        parts += _row(experiment, row, x, (low, high), TOP + ROW * (number + 0.5))
    if not rows:
        parts.append(svg.text(LEFT + PLOT / 2, TOP + 20, "no factor was measured", "middle", svg.GREY))
    label = "Predicted and measured gain of each optimisation, with intervals"
    return svg.picture(LEFT + PLOT + RIGHT, height, label, parts)


def _frame(experiment: Experiment, x: Callable[[float], float], ends: tuple[float, float], bottom: float) -> list[str]:
    name = experiment.baseline["scenario"]["name"]
    low, high = x(exp(-experiment.floor)), x(exp(experiment.floor))
    parts = [
        svg.text(16, 24, f"Gain in {_of(experiment)}, without / with: {name}", size=14, bold=True),
        svg.circle(22, 46, 4, svg.BLUE, hollow=True),
        svg.text(34, 50, "predicted, 90 % interval of the profile"),
        svg.circle(282, 46, 4, svg.DARK),
        svg.text(294, 50, "measured, 95 % interval of the median, by verdict"),
        svg.box(low, TOP - 8, max(1.0, high - low), bottom - TOP + 8, svg.PALE, "two equal sides"),
    ]
    for tick in _ticks(*ends):
        parts.append(svg.line([(x(tick), TOP - 8), (x(tick), bottom)], svg.DARK if tick == 1 else svg.LINE))
        parts.append(svg.text(x(tick), bottom + 16, f"{tick:g}x", "middle"))
    said = "grey band: what two equal sides differ by"
    return [
        *parts,
        svg.text(LEFT, bottom + 36, "slower with it", colour=svg.GREY),
        svg.text(LEFT + PLOT, bottom + 36, "faster with it", "end", svg.GREY),
        svg.text(LEFT + PLOT / 2, bottom + 36, said, "middle", svg.GREY),
    ]


def _row(
    experiment: Experiment, row: Row, x: Callable[[float], float], ends: tuple[float, float], y: float
) -> list[str]:
    """One factor around y."""
    assert row.verdict is not None
    predicted, measured = row.predicted[experiment.headline], _gain(experiment, row)
    colour, name = VERDICT_COLOURS[row.verdict.call], row.factor.name
    said = f"{measured.value:.3f}x measured, {predicted.value:.3f}x predicted"
    return [
        svg.line([(12, y + ROW / 2), (LEFT + PLOT + RIGHT - 12, y + ROW / 2)]),
        svg.text(LEFT - 12, y + 4, name, "end"),
        *_interval(x, y - 6, ratio=predicted, colour=svg.BLUE, hollow=True, ends=ends, title=f"{name} predicted"),
        *_interval(x, y + 6, ratio=measured, colour=colour, hollow=False, ends=ends, title=f"{name} measured"),
        svg.text(LEFT + PLOT + 12, y - 1, row.verdict.call, colour=colour, bold=True),
        svg.text(LEFT + PLOT + 12, y + 12, said, colour=svg.GREY, size=10),
    ]


def _interval(
    x: Callable[[float], float],
    y: float,
    ratio: Ratio | Interval,
    colour: str,
    hollow: bool,
    ends: tuple[float, float],
    title: str,
) -> list[str]:
    parts = [svg.line([(x(ratio.low), y), (x(ratio.high), y)], colour, 2)]
    for end, cut in ((ratio.low, ratio.low < ends[0]), (ratio.high, ratio.high > ends[1])):
        if cut:  # goes on beyond the picture
            parts.append(svg.line([(x(end), y - 4), (x(end), y + 4)], colour, dash="1 2"))
        else:
            parts.append(svg.line([(x(end), y - 3), (x(end), y + 3)], colour, 2))
    said = f"{title}: {ratio.value:.3f} ({ratio.low:.3f}-{ratio.high:.3f})"
    return [*parts, svg.circle(x(ratio.value), y, 4, colour, said, hollow=hollow)]


def _range(experiment: Experiment, rows: Sequence[Row]) -> tuple[float, float]:
    values = [1 / 1.1, 1.1]
    for row in rows:
        for ratio in (row.predicted[experiment.headline], _gain(experiment, row)):
            values += [ratio.low, ratio.value, ratio.high]
    low, high = max(min(values), 1 / WIDEST), min(max(values), WIDEST)
    return low / 1.02, high * 1.02


def _ticks(low: float, high: float) -> list[float]:
    """1 and what is easy to read around it."""
    if high / low > 1.6:
        return [t for t in (0.25, 0.35, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0) if low <= t <= high]
    step = next(s for s in (0.01, 0.02, 0.05, 0.1) if (high - low) / s <= 10)
    return [round(step * number, 6) for number in range(ceil(low / step), floor(high / step) + 1)]


def warm_up_svg(experiment: Experiment) -> str:
    """The first repeats of the baseline, by the fixed kernel, over the steady level."""
    told = [side / reference for reference, side in experiment.warm_up.repeats]
    steady = median(told[2 * (len(told) // 3) :])
    values = [value / steady for value in told]
    width, height, left, bottom = 640, 300, 64, 250
    top, most = 50, max(1.3, *values) * 1.05
    smallest = min(0.7, *values) * 0.95

    def place(number: int, value: float) -> tuple[float, float]:
        return (
            left + (number + 0.5) / len(values) * (width - left - 24),
            bottom - (value - smallest) / (most - smallest) * (bottom - top),
        )

    parts = [svg.text(16, 24, f"Warm-up: {_of(experiment)} of the baseline, repeat by repeat", size=14, bold=True)]
    step = next(s for s in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0, 1e9) if (most - smallest) / s <= 8)
    for number in range(ceil(smallest / step), floor(most / step) + 1):
        at = place(0, number * step)[1]
        parts.append(svg.line([(left, at), (width - 24, at)], svg.DARK if number * step == 1 else svg.LINE))
        parts.append(svg.text(left - 8, at + 4, f"{number * step:g}", "end"))
    parts.append(svg.line([place(n, v) for n, v in enumerate(values)], svg.BLUE))
    for number, value in enumerate(values):
        parts.append(svg.circle(*place(number, value), 3, svg.BLUE, f"repeat {number + 1}: {value:.2f}"))
    parts.append(svg.text(width / 2, bottom + 34, "repeat, the very first on the left", "middle"))
    parts.append(svg.text(18, (top + bottom) / 2, "times the steady level", "middle", upwards=True))
    return svg.picture(width, height, "The first repeats of the baseline over its steady level", parts)


def _of(experiment: Experiment) -> str:
    return {"tpot": "TPOT", "ttft": "TTFT", "step": "the mixed step"}[experiment.headline]


def _measured(experiment: Experiment) -> list[Row]:
    return [row for row in experiment.rows if row.compared is not None]


def _gain(experiment: Experiment, row: Row) -> Interval:
    assert row.compared is not None
    return row.compared.gains[experiment.headline]
