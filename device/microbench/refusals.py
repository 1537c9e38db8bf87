"""What a backend cannot do, by the switch that asks for it."""

from __future__ import annotations

from collections.abc import Iterator

from device.microbench.plan import S, trials
from device.run.backend import Backend
from scenarios.batches import reported_batch
from scenarios.build import build
from scenarios.errors import ScenarioError
from scenarios.passes.base import set_switch
from scenarios.passes.switches import passes_for, with_needs


def refusals(backend: Backend) -> Iterator[tuple[str, str]]:
    """(switch, why it is refused) of the optimisations that `backend` lacks, as far as a dense model asks for them."""
    first = trials(backend.name)[0]
    plain, model = first.scenario, S if backend.name == "cpu" else first.model
    for item in passes_for(model):
        scenario = with_needs(item, set_switch(plain, item.switch, item.on))
        try:
            program = build(scenario, model, reported_batch(scenario))
        except ScenarioError:  # needs another type of value, or more than one rank
            continue
        for line in backend.lacks(program, model):
            if line.startswith(f"optimizations.{item.switch}:"):
                yield item.switch, line
