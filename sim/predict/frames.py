"""Which frame a step fits: scenarios that differ in the sizes of their requests share it.

The first steps of a kind are built one by one, as a question that is asked once needs no frame; what asks for many of a
kind (sweeps, plans, sliders) gets to it soon.
"""

from __future__ import annotations

from dataclasses import field
from functools import lru_cache
from typing import Literal

from scenarios.build import build, effective_graph, is_scattered, sizes_of, traced, without_sizes
from scenarios.models.model import Model
from scenarios.ops.program import Batch
from scenarios.records import dataclass
from scenarios.schema import Scenario
from sim.hardware.profile import HardwareProfile
from sim.step.frame import Frame

#: Steps of a kind that are built one by one before they are traced.
ALONE = 2
#: Frames of one kind: where a step of other sizes has other ops.
MAX_FRAMES = 8


@dataclass(frozen=True, slots=True)
class _Kind:
    """What all steps of a frame have in common. scenario: without the sizes of its requests."""

    scenario: Scenario
    model: Model
    hardware: HardwareProfile
    phase: Literal["prefill", "decode", "mixed"]
    groups: int
    mode: str
    scattered: bool


@dataclass(slots=True)
class _Known:
    """The frames of a kind so far. seen: steps without one. untraceable: whether such steps cannot be traced."""

    frames: list[Frame] = field(default_factory=list)
    seen: int = 0
    untraceable: bool = False


@lru_cache(maxsize=512)
def _known(kind: _Kind) -> _Known:
    return _Known()


def frame_of(
    scenario: Scenario, model: Model, hw: HardwareProfile, batch: Batch
) -> tuple[Frame, tuple[int, ...]] | None:
    """The frame that a step of `batch` fits, and its sizes in it; None where it is built by itself: the first of a
    kind, graphs whose kernels are compiled for their shapes, pipelines, a CPU, a host that waits within the step."""
    mode, rows = effective_graph(scenario, batch)
    apart = model.pipeline_parallel > 1 or hw.profile.device == "cpu" or scenario.protocol.synchronize != "step"
    if apart or mode == "ge_graph":
        return None
    scattered = is_scattered(scenario, model, rows)
    plain = without_sizes(scenario)
    known = _known(_Kind(plain, model, hw, phase=batch.phase, groups=len(batch.groups), mode=mode, scattered=scattered))
    sizes = sizes_of(scenario, batch, rows)
    for frame in known.frames:
        if frame.traced.holds(*sizes):
            return frame, sizes
    known.seen += 1
    if known.untraceable or known.seen <= ALONE or len(known.frames) >= MAX_FRAMES:
        return None
    form = traced(scenario, model, batch)
    new = None if form is None else Frame.of(form, build(scenario, model, batch), hw)
    if new is None:
        known.untraceable = True
        return None
    known.frames.append(new)
    return new, sizes
