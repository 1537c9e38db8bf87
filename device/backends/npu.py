"""An Ascend NPU through torch_npu: its fused calls, streams and events, captured graphs, HCCL.

docs/npu.md says what of this is held against the wheel without a device, and what only a device can show.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from device.backends import npu_graphs
from device.backends.accelerator import Accelerator
from device.operators.kernel import Kernel
from device.operators.npu.call import has_atb
from device.operators.npu.kernels import kernel_of
from device.operators.npu.plan import lacking
from device.operators.npu.refusals import on_chip
from device.operators.npu.versions import wheel_of, wrong_pairing
from device.operators.npu.weights import LaidOut
from device.operators.reference import REFERENCE
from device.run.call import Call, Unit
from scenarios.errors import ScenarioError, printable
from scenarios.models.model import Model
from scenarios.ops.program import Op, Program, Tensor

#: Streams that a step may use: the main one, prefetch, collectives, and one to spare.
STREAMS = 4
DOCTOR = "`whatif doctor --backend npu` says what is missing"


def torch_npu() -> Any:
    """The module. Raises ScenarioError, one line, where it is absent, wants another torch or finds no CANN."""
    try:
        from importlib.metadata import PackageNotFoundError, version

        installed = version("torch-npu")
    except PackageNotFoundError:
        raise ScenarioError(
            [f"--backend npu: torch_npu is not installed; {DOCTOR} and which version this machine's CANN wants"]
        ) from None
    if wrong := wrong_pairing(str(torch.__version__), installed):
        raise ScenarioError([f"--backend npu: {wrong}"])
    try:
        return importlib.import_module("torch_npu")
    except ImportError as error:  # a library of CANN that the loader does not find
        line = printable(str(error).partition("\n")[0], 120)
        raise ScenarioError(
            [f"--backend npu: CANN is not there ({line}); install it and source its set_env.sh; {DOCTOR}"]
        ) from None


def opened() -> tuple[Any, int]:
    """(torch_npu, the number of this process's device). Raises ScenarioError, one line, where there is no device."""
    module = torch_npu()
    count = module.npu.device_count() if module.npu.is_available() else 0
    if not count:
        raise ScenarioError(
            [f"--backend npu: no NPU is there; see npu-smi info and ASCEND_RT_VISIBLE_DEVICES; {DOCTOR}"]
        )
    number = int(os.environ.get("LOCAL_RANK", "0"))
    if number >= count:
        raise ScenarioError(
            [f"--backend npu: rank {number} has no device of its own, there are {count}; take fewer ranks"]
        )
    return module, number


class Npu(Accelerator):
    """Device number LOCAL_RANK, or the first. Raises ScenarioError as `opened`."""

    name = "npu"
    streams = STREAMS
    collectives = "hccl"

    def __init__(self) -> None:
        self._module, number = opened()
        super().__init__(torch.device("npu", number), self._module.npu)
        self.calls.set_device(number)
        self.calls.config.allow_internal_format = True  # FRACTAL_NZ weights; without it a cast to it is dropped
        self._laid_out = LaidOut()

    @property
    def version(self) -> str:
        """Of torch_npu."""
        return str(self._module.__version__).partition("+")[0]

    @property
    def chip(self) -> str:
        """As CANN calls it: Ascend910B3 of Atlas A2, Ascend910_9391 of A3."""
        return str(self.calls.get_device_name(self.device))

    @property
    def atb(self) -> bool:
        """Whether ATB's calls are there: torch_npu has them where it finds NNAL next to CANN."""
        return has_atb()

    @property
    def devices(self) -> int:
        count: int = self.calls.device_count()
        return count

    def describe(self) -> dict[str, str | int]:
        wheel = wheel_of(self.version)
        return {
            "backend": self.name,
            "device": f"{self.calls.get_device_name(self.device)}, {self.calls.device_count()} in this machine",
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "torch_npu": self.version,
            "documented_cann": (wheel.cann if wheel else None) or "none for this torch_npu",
            "task_queue_enable": os.environ.get("TASK_QUEUE_ENABLE", "1"),
        }

    def kernel(self, op: Op) -> Kernel:
        return kernel_of(op, self.version, self.atb) or REFERENCE[op.kind]

    def lacks(self, program: Program, model: Model) -> list[str]:
        return lacking(program, model, self.version, self.atb) + on_chip(program, self.chip)

    def held(
        self, op: Op, tensor: Tensor, value: torch.Tensor, act: torch.dtype, others: Callable[[Tensor], torch.Tensor]
    ) -> torch.Tensor:
        return self._laid_out.get(op, tensor, value, act, others)

    def units(self, graph: str, calls: Sequence[Call], captures: dict[object, Any]) -> tuple[Unit, ...]:
        return npu_graphs.units(self, graph, calls, captures)

    def profiler(self, folder: Path, rank: int, steps: int) -> Any:
        """torch_npu's own, at level 1 with pipe utilisation: it writes one *_ascend_pt a rank."""
        profiler = self._module.profiler
        config = profiler._ExperimentalConfig(
            profiler_level=profiler.ProfilerLevel.Level1,
            aic_metrics=profiler.AiCMetrics.PipeUtilization,
            data_simplification=False,
        )
        return profiler.profile(
            activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
            record_shapes=True,
            schedule=profiler.schedule(wait=0, warmup=1, active=steps, repeat=1),
            on_trace_ready=profiler.tensorboard_trace_handler(str(folder), f"rank{rank}"),
            experimental_config=config,
        )
