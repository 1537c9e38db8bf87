"""From a loaded scenario to its measured step: what `whatif run --backend` does on the device's side."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from device.measure.document import document
from device.measure.measure import BUDGET_NS, Measurement, Runs, measure
from device.ranks.groups import groups_of
from device.ranks.pipeline import rounds
from device.ranks.spawn import joined, on_ranks, under_torchrun
from device.run.backend import Backend
from device.run.session import Session
from device.run.workload import reported_step
from device.step.step import Group, Groups, Step
from device.weights.weights import checkpoint_of
from scenarios.batches import reported_batch
from scenarios.errors import ScenarioError, printable
from scenarios.exchange.measured import Measured, Predicted
from scenarios.files.folder import whole_folder
from scenarios.loader import Loaded, folder_of
from scenarios.models.hf_config import load_model
from scenarios.models.model import Model
from scenarios.schema import Engine, Scenario

#: What an error says where memory has run out and torch has no type for it.
OUT_OF_MEMORY = ("allocate memory", "NPU out of memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
#: Threads that torch computes with: more of them spin against each other on a machine that is not theirs alone.
THREADS = 1
#: Steps that a profile holds, after those of the measurement.
PROFILED_STEPS = 3


@dataclass(frozen=True, slots=True)
class Task:
    """The reported step of a scenario, to be measured by each of its ranks.

    base_folder: the folder that a relative path of the model starts from. budget_ns: after which no repeat is started,
    where one rank measures alone. profile: the folder for a profiler's files.
    """

    backend: str
    scenario: Scenario
    base_folder: Path
    predicted: Predicted
    budget_ns: int = BUDGET_NS
    profile: Path | None = None

    def __call__(self, group: Group | None) -> Measured:
        """Run the step on this process's rank. Raises ScenarioError where memory runs out."""
        from device.backends import choose

        backend = choose(self.backend)
        model = load_model(self.scenario.model, self.base_folder)
        with reported(self.backend):
            checkpoint = checkpoint_of(self.scenario.model, self.base_folder, model, self.scenario.protocol.seed)
            engine = self.scenario.engine
            groups = groups_of(
                group, engine.tensor_parallel_size, engine.pipeline_parallel_size, replicas_of(engine, model)
            )
            session = Session(self.scenario, model, backend, checkpoint, groups)
            phase, requests = reported_step(session)
            runs: Runs
            if engine.pipeline_parallel_size > 1:
                pipe = rounds(session, requests)
                runs, step = pipe, pipe.parts[0].step
            else:
                runs, step = session.prepared(phase, requests)
            measurement = measure(runs, step, budget_ns=self.budget_ns)
            stages = _by_stage(measurement, groups, session.place.device)
            if self.profile is not None:
                profiled(runs, step, self.profile, group)
        if groups.stage:  # the prediction tells the ops of the first stage
            return Measured(stages, measurement.timeline)
        result = document(measurement, self.predicted) | {"ranks": self._ranks(model)} | stages
        return Measured(result, measurement.timeline)

    def _ranks(self, model: Model) -> dict[str, int]:
        """How many ranks the scenario has, and how many were measured: replicas that never meet are one for all."""
        engine = self.scenario.engine
        whole = engine.tensor_parallel_size * engine.pipeline_parallel_size * engine.data_parallel_size
        return {"in_scenario": whole, "measured": ranks_of(engine, model)}


def _by_stage(measurement: Measurement, groups: Groups, device: torch.device) -> dict[str, Any]:
    """The round of each pipeline stage, as its first rank has measured it."""
    if groups.line is None:
        return {}
    sample = measurement.unmarked
    mine = torch.tensor([sample.median_ns, sample.low_ns, sample.high_ns], dtype=torch.float64, device=device)
    every = groups.line.all_gather(mine)[:: groups.tensor.ranks if groups.tensor else 1] / 1000
    names = ("median_us", "low_us", "high_us")
    return {"stages": [dict(zip(names, row, strict=True)) for row in every.tolist()]}


def profiled(runs: Runs, step: Step, folder: Path, everyone: Group | None) -> None:
    """The step some times more under the backend's profiler, which writes into `folder`; all ranks come to its end."""
    backend = runs.backend
    with (
        torch.inference_mode(),
        backend.profiler(folder, everyone.rank if everyone else 0, PROFILED_STEPS) as profiler,
    ):
        for _ in range(1 + PROFILED_STEPS):
            runs.run(step)
            backend.synchronize()
            profiler.step()
    if everyone is not None:  # the first rank renames the folder when all have written
        everyone.all_reduce(torch.zeros(1, device=backend.device))
        backend.synchronize()


def measured(
    backend: Backend, loaded: Loaded, predicted: Predicted, budget_ns: int = BUDGET_NS, profile: Path | None = None
) -> Measured:
    """Run the reported step of a scenario on `backend` and lay it next to its prediction: rank 0's where there are
    more.

    Under torchrun this process is one of the ranks, and those above 0 end here; else the ranks are started here.
    profile: a new folder for a profiler's files, there whole or not at all. Raises ScenarioError, one line, where the
    backend lacks what the scenario asks for, memory runs out or a rank is lost.
    """
    task = Task(backend.name, loaded.scenario, folder_of(loaded, "model"), predicted, budget_ns)
    if profile is None:
        return _measured(task, backend)
    # Ranks that torchrun has started fill one folder, of a name that all of them know.
    named = os.environ["MASTER_PORT"] if under_torchrun() else str(os.getpid())
    if under_torchrun() and os.environ["RANK"] != "0":
        partial = Path(os.path.abspath(profile)).with_name(f".whatif-{named}.partial")
        return _measured(replace(task, profile=partial), backend)
    with whole_folder(profile, named) as partial:
        return _measured(replace(task, profile=partial), backend)


def unmet(backend: str, scenario: Scenario) -> list[str]:
    """What the scenario says of waiting and of host threads that this process does not do, one line each. On a CPU each
    call ends with its work, whatever is said."""
    lines: list[str] = []
    if backend == "cpu":
        return lines
    if (where := scenario.protocol.synchronize) != "step":
        what = f"the host waits at the end of a step, not after each {where}; set it to step"
        lines.append(f"--backend {backend}: protocol.synchronize: {what}")
    wanted, here = str(scenario.engine.task_queue_enable), os.environ.get("TASK_QUEUE_ENABLE", "1")
    if backend == "npu" and wanted != here:
        what = f"{wanted} in the scenario, and TASK_QUEUE_ENABLE of this process is {here}; export it before the start"
        lines.append(f"--backend npu: engine.task_queue_enable: {what}, or set it to {here}")
    return lines


def _measured(task: Task, backend: Backend) -> Measured:
    scenario = task.scenario
    if lines := unmet(backend.name, scenario):
        raise ScenarioError(lines)
    torch.set_num_threads(THREADS)
    if scenario.engine.pipeline_parallel_size > 1 and reported_batch(scenario).phase == "prefill":
        what = "a prefill's stages are predicted from empty to empty, and only a steady round is measured"
        where = "engine.pipeline_parallel_size"
        raise ScenarioError([f"--backend {backend.name}: {where}: {what}; set it to 1, or workload.phase to decode"])
    ranks = ranks_of(scenario.engine, load_model(scenario.model, task.base_folder))
    if backend.devices is not None and ranks > backend.devices and not under_torchrun():
        fields = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
        where = ", ".join(f"engine.{field}" for field in fields if getattr(scenario.engine, field) > 1)
        what = f"{where}: {ranks} ranks want a device each, there are {backend.devices}"
        raise ScenarioError([f"--backend {backend.name}: {what}; take fewer ranks"])
    if under_torchrun():
        group = joined(backend.collectives, ranks)
        result = task(group)
        if group.rank:
            raise SystemExit(0)
        return result
    if ranks == 1:
        return task(None)
    return on_ranks(task, ranks, backend.collectives)[0]


def replicas_of(engine: Engine, model: Model) -> int:
    """Replicas of attention that step together, for they share experts; others never meet, and one is measured."""
    return engine.data_parallel_size if engine.enable_expert_parallel and model.experts else 1


def ranks_of(engine: Engine, model: Model) -> int:
    """Ranks that are measured."""
    return engine.tensor_parallel_size * engine.pipeline_parallel_size * replicas_of(engine, model)


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
    # torch on a CPU and torch_npu have no type for it; libraries of a GPU have words of their own.
    says = any(words in str(error) for words in OUT_OF_MEMORY)
    if says or isinstance(error, MemoryError | torch.OutOfMemoryError):
        return f"out of memory: {lines[0] if lines else 'take a smaller model, batch or length'}"
    if type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
        why = next((line for line in lines if "Error" in line), lines[0] if lines else "no reason given")
        return f"torch.compile failed ({why}): check the C++ compiler, or set graph to eager and these fusions to false"
    if "No available kernel" in str(error):
        return "no fused attention kernel of this GPU takes this shape and type; set fusion.attention to false"
    if any(words in str(error) for words in ("CUDA error", "CUBLAS_STATUS", "CUDNN_STATUS", "device-side assert")):
        return f"the GPU failed ({lines[0]}): see nvidia-smi and dmesg; CUDA_LAUNCH_BLOCKING=1 says which call it was"
    return None
