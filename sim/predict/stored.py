"""A scenario that leaves its weights open takes those nearest to the checkpoint's; what is said of that."""

from __future__ import annotations

from dataclasses import replace

from scenarios.checks import is_given
from scenarios.loader import Loaded
from scenarios.models.model import Model
from scenarios.passes.base import set_switch
from scenarios.passes.switches import activation_dtype
from scenarios.schema import Scenario
from sim.hardware.profile import HardwareProfile


def with_stored_weights(loaded: Loaded, model: Model) -> Loaded:
    """`loaded` with the `optimizations.weights` nearest to its checkpoint's, where the scenario gives none."""
    if not model.stored_as or is_given(loaded.scenario, "optimizations.weights"):
        return loaded
    return replace(loaded, scenario=set_switch(loaded.scenario, "weights", model.stored_as))


def notes_of(scenario: Scenario, model: Model) -> tuple[str, ...]:
    """What of the model's config.json is taken as something else, or left out; one line each."""
    notes = []
    weights = scenario.optimizations.weights
    if model.stored_as == weights:
        notes.append(f"config.json: weights stored as {model.stored} are computed as {weights}, the nearest here")
    elif model.stored_as:
        near = f"the nearest is {model.stored_as}"
        notes.append(f"config.json: weights stored as {model.stored}; {near}, and the scenario computes {weights}")
    if model.left_out:
        what = f"its {model.left_out} is not modelled; tokens of images count in workload.input_tokens"
        notes.append(f"config.json: the text part of {model.name} alone, {what}")
    return tuple(notes)


def notes_of_hardware(scenario: Scenario, model: Model, hardware: HardwareProfile) -> tuple[str, ...]:
    """What a CPU's profile takes for granted, one line each; a profile that was measured on a machine
    (`whatif calibrate`) takes nothing for granted."""
    profile = hardware.profile
    if profile.device != "cpu" or profile.reference_us is not None:
        return ()
    if activation_dtype(scenario, model) not in ("bf16", "fp16"):
        return ()
    return (
        f"{hardware.name}: of a core that multiplies 16-bit numbers in hardware (AVX512-BF16, AMX); on one that does "
        "not (AVX2) a prefill takes 10 to 18 times as long: `whatif calibrate --backend cpu` measures yours",
    )
