"""A scenario that leaves its weights open takes those nearest to the checkpoint's; what is said of that."""

from __future__ import annotations

from dataclasses import replace

from scenarios.checks import is_given
from scenarios.loader import Loaded
from scenarios.models.model import Model
from scenarios.passes.base import set_switch
from scenarios.schema import Scenario


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
