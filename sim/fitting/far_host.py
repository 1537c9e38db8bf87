"""Rows that tell what the host of an accelerator costs: eager steps for which the device waits.

As in `sim.fitting.host`: the Python thread's calls of such a step add up to the step, those to aten at one cost, those
that end in a matmul or a fused kernel at another; tiling, hand-over and the wait at the end are the profile's.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from scenarios.exchange.timings import CAPTURED, STEP, Timings
from scenarios.ops.catalogue import CATALOGUE
from sim.fitting.cpu import Vector
from sim.hardware.profile import HardwareProfile

#: A step is taken to be bound by its host where its kernels fill less than this of it: the rest of it they wait.
MAX_BUSY = 0.7


def host_bound(timings: Timings, base: HardwareProfile) -> tuple[Vector, Vector, Vector]:
    """(aten calls and matmul or fused calls [trials, 2], what depends on neither, steps by the wall clock), us, of each
    eager trial for which the device waits. base: what the rest is taken from."""
    calls: dict[str, dict[bool, int]] = defaultdict(lambda: {True: 0, False: 0})
    device_us: dict[str, float] = defaultdict(float)
    for row in timings.rows:
        if row.ops and row.kind != CAPTURED:
            calls[row.trial][CATALOGUE[row.kind].host == "aten"] += row.count
            device_us[row.trial] += row.median_us * row.count
    features, rest, steps = [], [], []
    for row in timings.rows:
        if row.kind != STEP or row.values["pieces"] or device_us[row.trial] > MAX_BUSY * row.raw_us:
            continue
        aten, other = calls[row.trial][True], calls[row.trial][False]
        features.append((aten, other))
        rest.append((aten + other) * (base.host.tiling_us + base.host.enqueue_us) + base.host.synchronize_us)
        steps.append(row.raw_us)
    return np.array(features, dtype=float).reshape(-1, 2), np.array(rest), np.array(steps)
