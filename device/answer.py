"""From a loaded scenario to its measured step: what `whatif run --backend` does on the device's side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
from scenarios.hf_config import load_model
from scenarios.loader import Loaded, folder_of
from scenarios.measured import Measured, Predicted
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
        with reported(self.backend):
            checkpoint = checkpoint_of(self.scenario.model, self.beside, model, self.scenario.protocol.seed)
            session = Session(self.scenario, model, backend, checkpoint, group)
            phase, requests = reported_step(session)
            bound, step = session.prepared(phase, requests)
            found = measure(bound, step)
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
    refuse_spread(backend, scenario)
    if under_torchrun():
        group = joined(backend.collectives, ranks)
        found = task(group)
        if group.rank:
            raise SystemExit(0)
        return found
    if ranks == 1:
        return task(None)
    return on_ranks(task, ranks, backend.collectives)[0]


def refuse_spread(backend: Backend, scenario: Scenario) -> None:
    """Raise ScenarioError where the ranks are more than a tensor-parallel group."""
    for field, parts in (("pipeline_parallel_size", "stages"), ("data_parallel_size", "groups")):
        if (number := getattr(scenario.engine, field)) > 1:
            what = f"engine.{field}: {number} {parts} are predicted, but only one is measured; set it to 1"
            raise ScenarioError([f"--backend {backend.name}: {what}"])


@contextmanager
def reported(backend: str) -> Iterator[None]:
    """Turn what the machine could not do inside into one line; a fault of this program stays itself."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch's own errors are RuntimeErrors
        what = what_failed(error)
        if what is None:
            raise
        raise ScenarioError([f"--backend {backend}: {what}"]) from None


def what_failed(error: BaseException) -> str | None:
    """What the machine could not do, in one line; None where `error` is a fault of this program."""
    lines = [printable(line.strip(), 200) for line in str(error).splitlines() if line.strip()]
    # torch on a CPU and torch_npu have no type for it.
    says = any(words in str(error) for words in ("allocate memory", "NPU out of memory"))
    if says or isinstance(error, MemoryError | torch.OutOfMemoryError):
        return f"out of memory: {lines[0] if lines else 'take a smaller model, batch or length'}"
    if type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
        why = next((line for line in lines if "Error" in line), lines[0] if lines else "no reason given")
        return f"torch.compile failed ({why}): check the C++ compiler, or set graph to eager and these fusions to false"
    return None
