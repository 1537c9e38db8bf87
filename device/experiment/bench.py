"""A backend as the bench of an experiment: one process where there is one rank, fresh ranks for each pair where there
are more."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import numpy
import torch

from device.backends import choose
from device.experiment.workbench import Workbench
from device.measure.answer import THREADS, measured, unmet
from device.ranks.spawn import on_ranks, under_torchrun
from device.run.backend import Backend
from device.run.windows import problems
from device.step.step import Group
from device.weights.weights import RandomCheckpoint, checkpoint_of
from scenarios.batches import decode_batch, prefill_batches, reported_batch
from scenarios.build import build
from scenarios.errors import ScenarioError, printable
from scenarios.exchange.bench import Pair, WarmUp
from scenarios.exchange.measured import Measured, Predicted
from scenarios.loader import Loaded, folder_of
from scenarios.lowering.parallel import shard_of
from scenarios.models.hf_config import load_model
from scenarios.schema import Scenario

T = TypeVar("T")

#: Fusions that torch has no kernel for on a CPU or a GPU, so that one is compiled (device/operators/compiled.py).
COMPILED_FUSIONS = ("add_rms_norm", "rope", "swiglu", "add_rms_norm_quant", "swiglu_quant", "qkv_norm_rope_cache")


@dataclass(frozen=True, slots=True)
class RankTask:
    """What each rank of a pair does. b: None to warm `a` up."""

    backend: str
    base_folder: Path
    a: Scenario
    b: Scenario | None

    def __call__(self, group: Group) -> Pair | WarmUp:
        bench = Workbench(choose(self.backend), self.base_folder, group)
        return bench.warm_up(self.a) if self.b is None else bench.pair(self.a, self.b)


@dataclass(slots=True)
class DeviceBench:
    """`exchange.bench.Bench` on `backend`. base_folder: the folder that a relative path of the model starts from."""

    backend: Backend
    base_folder: Path
    device: str = ""
    _started: float = field(default_factory=perf_counter)
    _here: Workbench | None = None

    @classmethod
    def of(cls, backend: Backend, loaded: Loaded) -> DeviceBench:
        """Raises ScenarioError where torchrun has started this process, or where ranks would not be tensor-parallel."""
        if under_torchrun():
            raise ScenarioError(["whatif experiment: it starts its ranks itself; run it without torchrun"])
        _refuse_spread(backend, loaded.scenario)
        torch.set_num_threads(THREADS)
        return cls(backend, folder_of(loaded, "model"), backend.name)

    def machine(self) -> dict[str, str | int]:
        return {
            **self.backend.describe(),
            "python": platform.python_version(),
            "numpy": numpy.__version__,
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "cores": os.cpu_count() or 0,
            "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        }

    def weights(self, loaded: Loaded) -> str:
        scenario = loaded.scenario
        model = load_model(scenario.model, self.base_folder)
        checkpoint = checkpoint_of(scenario.model, self.base_folder, model, scenario.protocol.seed)
        return "seeded random" if isinstance(checkpoint, RandomCheckpoint) else f"trained ({type(checkpoint).__name__})"

    def refused(self, scenario: Scenario) -> str:
        if lines := unmet(self.backend.name, scenario):
            return lines[0]
        model = load_model(scenario.model, self.base_folder)
        try:
            part = shard_of(scenario.engine, model, scenario.engine.tensor_parallel_size)
            batches = (reported_batch(scenario), decode_batch(scenario), prefill_batches(scenario)[0])
            programs = [build(scenario, part, batch) for batch in batches]
            lacking = [
                line for program in programs for line in (*problems(program, part), *self.backend.lacks(program, part))
            ]
        except ScenarioError as error:
            return error.messages[0]
        return "; ".join(dict.fromkeys(lacking))

    def warm_up(self, scenario: Scenario) -> WarmUp:
        if scenario.engine.tensor_parallel_size > 1:
            result = self._on_ranks(scenario, None)
        else:
            self._here = Workbench(self.backend, self.base_folder)
            result = _as_lines(self.backend.name, lambda: self._bench().warm_up(scenario))
        assert isinstance(result, WarmUp)
        return result

    def profile(self, loaded: Loaded, predicted: Predicted) -> Measured:
        if self._here is None or loaded.scenario.engine.tensor_parallel_size > 1:
            return measured(self.backend, loaded, predicted)
        return _as_lines(self.backend.name, lambda: self._bench().profile(predicted))

    def compiles(self, scenario: Scenario) -> bool:
        optimizations = scenario.optimizations
        if optimizations.graph in ("ge_graph", "npugraph_ex"):
            return True
        fused = any(getattr(optimizations.fusion, name) for name in COMPILED_FUSIONS)
        return fused and self.device in ("cpu", "cuda")

    def pair(self, a: Scenario, b: Scenario, seconds: float | None = None) -> Pair:
        if a.engine.tensor_parallel_size > 1 or b.engine.tensor_parallel_size > 1:
            result = self._on_ranks(a, b)
        else:
            result = _as_lines(self.backend.name, lambda: self._bench().pair(a, b, seconds))
        assert isinstance(result, Pair)
        return result

    def elapsed_s(self) -> float:
        return perf_counter() - self._started

    def _bench(self) -> Workbench:
        self._here = self._here or Workbench(self.backend, self.base_folder)
        return self._here

    def _on_ranks(self, a: Scenario, b: Scenario | None) -> Pair | WarmUp:
        task = RankTask(self.backend.name, self.base_folder, a, b)
        return on_ranks(task, a.engine.tensor_parallel_size, self.backend.collectives)[0]


def _refuse_spread(backend: Backend, scenario: Scenario) -> None:
    """Raise ScenarioError where the ranks are more than a tensor-parallel group."""
    for name, parts in (("pipeline_parallel_size", "stages"), ("data_parallel_size", "replicas")):
        if (number := getattr(scenario.engine, name)) > 1:
            what = f"engine.{name}: {number} {parts}, but an experiment's ranks share each layer; set it to 1"
            raise ScenarioError([f"--backend {backend.name}: {what}"])


def _as_lines(backend: str, work: Callable[[], T]) -> T:
    """What `work` returns. Whatever goes wrong in one comparison is one line, for the next can still be made."""
    from device.measure.answer import what_failed

    try:
        return work()
    except ScenarioError as error:
        lines = list(error.messages)
    except Exception as error:
        first = printable(f"{type(error).__name__}: {error}".partition("\n")[0], 200)
        lines = [f"--backend {backend}: {what_failed(error) or first}"]
    # Not inside the except: what it holds, tensors among them, is gone by now.
    raise ScenarioError(lines)
