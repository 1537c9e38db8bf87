"""The reported step of every rank that steps together, for whoever wants to see who waits for whom."""

from __future__ import annotations

from dataclasses import replace

from scenarios.timeline import Timeline, on_device
from sim.predict.predict import Prediction
from sim.predict.steps import plans_of
from sim.step.play import schedules
from sim.step.schedule import timeline


def timelines_of_ranks(prediction: Prediction) -> list[Timeline]:
    """The step of `prediction` on each rank that was played, rank 0 first, on one clock.

    One timeline where all ranks are alike; also of a model in stages, whose step is that of its first stage.
    """
    if prediction.pipeline is not None:
        return [prediction.timeline]
    case = prediction.case
    plans = plans_of(case, prediction.batch)
    device = case.hardware.profile.device.upper()
    timelines = [
        replace(on_device(timeline(plan, schedule), device), rank=rank)
        for rank, (plan, schedule) in enumerate(zip(plans, schedules(plans), strict=True))
    ]
    return timelines if len(timelines) > 1 else [prediction.timeline]
