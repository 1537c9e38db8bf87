"""How late the hosts of ranks start a step: what two measured steps leave once transfers and kernels are counted.

Stragglers make all others wait in their first collective. `rank_skew_us` is fitted so that the logarithms of
measured over predicted cancel over the two steps that state their concurrency; `rank_skew_sigma` is how far the same
waiting varies over all decode steps of that source, as the root mean square of its logarithm over the fitted one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log, sqrt
from statistics import fmean

from scenarios.batches import reported_batch
from sim.accuracy.reference import reference_csv
from sim.accuracy.rows.files import read_steps
from sim.accuracy.steps import case_of_row
from sim.hardware.profile import HardwareProfile
from sim.predict.steps import Case, length_ns, plans_of

#: Rows of steps.csv that state their concurrency, and all rows of that model's decode on 16 dies.
FITTED_ROWS = ("qwen3_32b_decode_a3_tp16_c4", "qwen3_32b_decode_a3_tp16_c16")
SPREAD_ROWS = (*FITTED_ROWS, "qwen3_32b_decode_a3_tp16_b16", "qwen3_32b_decode_a3_tp16_b16_later")
#: Skews between which the fit searches, us, and how closely.
MAX_US = 5000.0
CLOSE_US = 0.1


def fit_rank_skew(hw: HardwareProfile) -> dict[str, float]:
    """The mean lateness of one rank and how it varies, under the profile's names. `hw`: the profile of those dies."""
    steps = {row.id: (case_of_row(row), row.step_ms) for row in read_steps(reference_csv("steps"))}
    fitted = [_known(*steps[name]) for name in FITTED_ROWS]
    low, high = 0.0, MAX_US
    while high - low > CLOSE_US:
        skew = (low + high) / 2
        if fmean(log(_step_ms(case, hw, skew) / ms) for case, ms in fitted) < 0:
            low = skew
        else:
            high = skew
    skew = (low + high) / 2
    return {
        "host.rank_skew_us": skew,
        "residual.rank_skew_sigma": _spread([_known(*steps[name]) for name in SPREAD_ROWS], hw, skew),
    }


def _spread(rows: Sequence[tuple[Case, float]], hw: HardwareProfile, skew_us: float) -> float:
    logs = []
    for case, ms in rows:
        in_time, late = (_step_ms(case, hw, us) for us in (0.0, skew_us))
        logs.append(log((ms - in_time) / (late - in_time)))
    return sqrt(fmean(x * x for x in logs))


def _step_ms(case: Case, hw: HardwareProfile, skew_us: float) -> float:
    profile = replace(hw, host=replace(hw.host, rank_skew_us=skew_us))
    return length_ns(plans_of(replace(case, hardware=profile), reported_batch(case.scenario))) / 1e6


def _known(case: Case | str, step_ms: float) -> tuple[Case, float]:
    if isinstance(case, str):
        raise ValueError(case)
    return case, step_ms
