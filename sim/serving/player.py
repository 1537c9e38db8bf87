"""How a step is played on a host that launches faster or slower than the hardware profile says."""

from __future__ import annotations

from collections.abc import Callable

from scenarios.ops.program import Batch
from sim.predict.predict import Case, length_ns, plans_of, sensitivity_of, step_ns


def player(dispatch: float) -> Callable[[Case, Batch], int]:
    """How a step is played where each launch takes the host `dispatch` times as long as its profile says."""
    if dispatch == 1:
        return step_ns

    def play(case: Case, batch: Batch) -> int:
        if case.model.pipeline_parallel > 1:  # to first order
            nominal = sensitivity_of(case, batch)
            return round(nominal.step_ns * float(dispatch**nominal.host))
        return length_ns(plans_of(case, batch, host_scale=dispatch))

    return play
