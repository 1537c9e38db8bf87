"""Microbenchmarks of a machine that does not exist: what its profile says each op takes, with a known noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from device.microbench.plan import COPY_BYTES, Trial, trials
from scenarios.batches import reported_batch
from scenarios.build import build
from scenarios.exchange.timings import COPY, STEP, SYNCHRONIZE, Timing, Timings
from scenarios.ops.catalogue import work_of
from scenarios.ops.program import Op
from sim.hardware.profile import HardwareProfile, load_hardware
from sim.hardware.sections import KernelParams
from sim.kernel.price import price

ABOUT = {
    "backend": "cpu", "device": "a CPU of a test", "threads": 1, "torch": "2.13.0", "capability": "AVX512",
    "l1_cache_bytes": 32768, "l2_cache_bytes": 1 << 20, "l3_cache_bytes": 32 << 20, "date": "2026-01-01",
}  # fmt: skip
#: What a call of each program takes on it, and what the host adds.
TRUE: dict[str, KernelParams] = {
    "matmul": KernelParams(fixed_us=30, row_us=0.01, element_ns=0.2, mac_ns=0.01),
    "attention": KernelParams(fixed_us=60, element_ns=0.9, mac_ns=0.7),
    "rms_norm": KernelParams(fixed_us=35, element_ns=1.5),
    "add": KernelParams(fixed_us=2, element_ns=0.3),
    "mul": KernelParams(fixed_us=3, element_ns=0.25),
    "silu": KernelParams(fixed_us=9, element_ns=0.6),
}
START_US, HOST_US, REFERENCE_US = 2.0, 3.0, 500.0


def machine() -> HardwareProfile:
    """The profile of the machine."""
    base = load_hardware("cpu")
    kernel, host = replace(base.kernel, start_us=START_US), replace(base.host, tiling_us=HOST_US)
    return replace(base, kernel=kernel, host=host, programs={**base.programs, **TRUE})


def plain_trials() -> tuple[Trial, ...]:
    """Those of the plan that compile nothing and change no type."""
    return tuple(t for t in trials() if t.name.split()[1] in ("fused", "plain"))


def timings(hw: HardwareProfile, noise: float = 0.02, plan: Sequence[Trial] | None = None, seed: int = 0) -> Timings:
    """All rows of `plan` on `hw`; noise: standard deviation of the logarithm of each time. The machine drifts by a
    third from trial to trial, and its reference with it."""
    random = Random(seed)
    rows: list[Timing] = []
    for trial in plan_of(plan):
        drift = random.choice((0.8, 1.0, 1.2))
        program = build(trial.scenario, trial.model, reported_batch(trial.scenario))
        seen: set[object] = set()
        for issued in program:
            if issued.op.signature not in seen:
                seen.add(issued.op.signature)
                us = price(work_of(issued.op), hw, "cold", True).duration_ns / 1000
                rows.append(_row(issued.op.kind, trial.name, (issued.op,), us * random.lognormvariate(0, noise), drift))
        step = _row(STEP, trial.name, (), 1.0, drift)
        values = {
            "units": 50.0,
            "pieces": 0.0,
            "layers": 1.0,
            "host_us": drift * (HOST_US + 1.0),
            "mark_us": drift * 0.5,
        }
        rows.append(replace(step, values=values))
    for size in COPY_BYTES:
        rate = 60 if size <= 1 << 19 else 40 if size <= 16 << 20 else 10
        rows.append(replace(_row(COPY, f"copy {size}", (), 1 + 2 * size / 1000 / rate, 1.0), values={"bytes": size}))
    rows.append(_row(SYNCHRONIZE, "synchronize", (), 0.05, 1.0))
    return Timings(ABOUT, "plan", True, tuple(rows), ("all",), (("weight_format", "a CPU has no cube"),))


def plan_of(plan: Sequence[Trial] | None) -> Sequence[Trial]:
    return plain_trials() if plan is None else plan


def _row(kind: str, trial: str, ops: tuple[Op, ...], us: float, drift: float) -> Timing:
    us *= drift
    return Timing(kind, trial, "torch", ops, us, 0.9 * us, 1.2 * us, 2 * us, REFERENCE_US * drift, 15)
