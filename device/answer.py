"""From a loaded scenario to its measured step: what `whatif run --backend` does on the device's side."""

from __future__ import annotations

import torch

from device.backends.base import Backend
from device.document import document
from device.measure import measure
from device.session import Session
from device.weights import checkpoint_of
from device.workload import reported_step
from scenarios.errors import ScenarioError, printable
from scenarios.loader import Loaded, folder_of
from scenarios.measured import Measured, Predicted
from scenarios.model import load_model

#: Threads that torch computes with: more of them spin against each other on a machine that is not theirs alone.
THREADS = 1


def measured(backend: Backend, loaded: Loaded, predicted: Predicted) -> Measured:
    """Run the reported step of a scenario on `backend` and lay it beside its prediction.

    Raises ScenarioError, one line, where the backend lacks what the scenario asks for or memory runs out.
    """
    scenario = loaded.scenario
    beside = folder_of(loaded, "model")
    model = load_model(scenario.model, beside)
    torch.set_num_threads(THREADS)
    try:
        checkpoint = checkpoint_of(scenario.model, beside, model, scenario.protocol.seed)
        session = Session(scenario, model, backend, checkpoint)
        phase, requests = reported_step(session)
        bound, step = session.prepared(phase, requests)
        found = measure(bound, step)
    except (MemoryError, torch.OutOfMemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        raise ScenarioError([f"--backend {backend.name}: out of memory: {_first_line(error)}"]) from None
    return Measured(document(found, predicted), found.timeline)


def out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that an allocation failed; torch on a CPU has no type for it."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error)


def _first_line(error: BaseException) -> str:
    return printable(str(error).partition("\n")[0], 200)
