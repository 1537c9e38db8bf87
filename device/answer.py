"""From a loaded scenario to its measured step: what `whatif run --backend` does on the device's side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from device.backends.base import Backend
from device.document import document
from device.measure import measure
from device.session import Session
from device.step import Group
from device.tensor_parallel import joined, on_ranks, under_torchrun
from device.weights import checkpoint_of
from device.workload import reported_step
from scenarios.errors import ScenarioError, printable
from scenarios.loader import Loaded, folder_of
from scenarios.measured import Measured, Predicted
from scenarios.model import load_model
from scenarios.schema import Scenario

#: Threads that torch computes with: more of them spin against each other on a machine that is not theirs alone.
THREADS = 1


@dataclass(frozen=True, slots=True)
class Task:
    """The reported step of a scenario, to be measured by each of its ranks.

    beside: the folder that a relative path of the model starts from.
    """

    backend: str
    scenario: Scenario
    beside: Path
    predicted: Predicted

    def __call__(self, group: Group | None) -> Measured:
        """Run the step on this process's rank. Raises ScenarioError where memory runs out."""
        from device.backends import choose

        backend = choose(self.backend)
        model = load_model(self.scenario.model, self.beside)
        try:
            checkpoint = checkpoint_of(self.scenario.model, self.beside, model, self.scenario.protocol.seed)
            session = Session(self.scenario, model, backend, checkpoint, group)
            phase, requests = reported_step(session)
            bound, step = session.prepared(phase, requests)
            found = measure(bound, step)
        except (MemoryError, torch.OutOfMemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            raise ScenarioError([f"--backend {self.backend}: out of memory: {_first_line(error)}"]) from None
        return Measured(document(found, self.predicted), found.timeline)


def measured(backend: Backend, loaded: Loaded, predicted: Predicted) -> Measured:
    """Run the reported step of a scenario on `backend` and lay it beside its prediction: rank 0's where there are more.

    Under torchrun this process is one of the ranks, and those above 0 end here; else the ranks are started here. Raises
    ScenarioError, one line, where the backend lacks what the scenario asks for, memory runs out or a rank is lost.
    """
    scenario = loaded.scenario
    task = Task(backend.name, scenario, folder_of(loaded, "model"), predicted)
    torch.set_num_threads(THREADS)
    ranks = scenario.engine.tensor_parallel_size
    if under_torchrun():
        group = joined(backend.collectives, ranks)
        found = task(group)
        if group.rank:
            raise SystemExit(0)
        return found
    if ranks == 1:
        return task(None)
    return on_ranks(task, ranks, backend.collectives)[0]


def out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that an allocation failed; torch on a CPU and torch_npu have no type for it."""
    says = any(words in str(error) for words in ("allocate memory", "NPU out of memory"))
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or says


def _first_line(error: BaseException) -> str:
    return printable(str(error).partition("\n")[0], 200)
