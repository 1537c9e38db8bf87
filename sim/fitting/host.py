"""Host costs from whole steps: two measurements, two unknowns.

In a host-bound eager step the Python thread's calls add up to the step. What a call costs is taken as one number for
plain aten calls and one for calls that end in a matmul or a fused kernel (module code and views included); tiling and
hand-over are the profile's. The mean of the measured eager steps gives their sum, the measured gain of fusing RMSNorm
alone, which swaps eight aten calls for one fused call at 145 places, gives their ratio:

    n_a a + n_f f + k = T        n_a' a + n_f' f + k' = T / gain
"""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

from scenarios.batches import reported_batch
from scenarios.ops.catalogue import CATALOGUE
from scenarios.passes.base import set_switch
from sim.accuracy.ablations import measured_gain
from sim.accuracy.reference import reference_csv
from sim.accuracy.rows.files import read_steps
from sim.accuracy.steps import case_of_row
from sim.hardware.profile import HardwareProfile
from sim.predict.steps import Case, plans_of
from sim.step.plan import Issue, Synchronize

#: Row of ablations.csv that gives the gain of fusing RMSNorm alone in an eager model.
GAIN_ROW = "swan_eager_rms_norm"


def fit_host(hw: HardwareProfile) -> dict[str, float]:
    """The Python thread's cost per call, us, under the profile's names."""
    steps = read_steps(reference_csv("steps"))
    eager = [r for r in steps if r.fitted and "optimizations.graph=eager" in r.settings]
    rows = [r for r in eager if r.cards == 1 and r.phase == "decode"]
    cases = [case_of_row(r) for r in rows]
    case = next(c for c in cases if isinstance(c, Case))
    total_us = 1000 * mean(r.step_ms for r in rows)
    plain = _calls(case, hw)
    fused = _calls(replace(case, scenario=set_switch(case.scenario, "fusion.rms_norm", True)), hw)
    a, f = _solve(plain, total_us, fused, total_us / measured_gain(reference_csv("ladders"), GAIN_ROW))
    return {"host.aten_python_us": a, "host.matmul_python_us": f, "host.fused_op_python_us": f}


def _calls(case: Case, hw: HardwareProfile) -> tuple[int, int, float]:
    """(aten calls, matmul and fused calls, us that do not depend on either) of a step's Python thread."""
    (plan,) = plans_of(replace(case, hardware=hw), reported_batch(case.scenario))
    issued = [CATALOGUE[s.launch.kind].host for s in plan.steps if isinstance(s, Issue)]
    aten, fused = issued.count("aten"), issued.count("matmul") + issued.count("npu")
    waits = sum(isinstance(s, Synchronize) for s in plan.steps)
    rest = (aten + fused) * (hw.host.tiling_us + hw.host.enqueue_us) + waits * hw.host.synchronize_us
    return aten, fused, rest


def _solve(
    one: tuple[int, int, float], total_us: float, two: tuple[int, int, float], other_us: float
) -> tuple[float, float]:
    a1, f1, k1 = one
    a2, f2, k2 = two
    determinant = a1 * f2 - a2 * f1
    return (
        ((total_us - k1) * f2 - (other_us - k2) * f1) / determinant,
        (a1 * (other_us - k2) - a2 * (total_us - k1)) / determinant,
    )
