"""What a backend cannot do, by the switch that asks for it."""

from __future__ import annotations

from collections.abc import Iterator

from device.backends.base import Backend
from device.microbench.plan import S, trials
from scenarios.batches import reported_batch
from scenarios.build import build
from scenarios.errors import ScenarioError
from scenarios.passes import PASSES
from scenarios.passes.base import set_switch


def refusals(backend: Backend) -> Iterator[tuple[str, str]]:
    """(switch, why it is refused) of the optimisations that `backend` lacks, as far as a dense model asks for them."""
    plain = trials()[0].scenario
    for item in PASSES:
        scenario = set_switch(plain, item.switch, item.on)
        for switch, value in item.missing(scenario):
            scenario = set_switch(scenario, switch, value)
        if item.idle(S):
            continue
        try:
            program = build(scenario, S, reported_batch(scenario))
        except ScenarioError:  # needs another type of value, or more than one rank
            continue
        for line in backend.lacks(program, S):
            if line.startswith(f"optimizations.{item.switch}:"):
                yield item.switch, line
