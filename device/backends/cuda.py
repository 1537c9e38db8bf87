"""An NVIDIA GPU through torch: its fused kernels, streams and events, CUDA graphs, NCCL.

docs/cuda.md says what of this is tested without a GPU, and what only one can show.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from device.backends import cuda_graphs
from device.backends.accelerator import Accelerator
from device.operators import cuda
from device.operators.experts import follows_router
from device.operators.kernel import Kernel
from device.operators.reference import REFERENCE, ops_of, refusals, special
from device.run.call import Call, Unit
from scenarios.errors import ScenarioError, printable
from scenarios.models.model import Model
from scenarios.ops.catalogue import kind_of
from scenarios.ops.program import Op, Program, Tensor

#: Streams that a step may use: the main one, prefetch, collectives, the shared expert, keys.
STREAMS = 5
DOCTOR = "`whatif doctor --backend cuda` says what is missing"
#: Smallest compute capability for which Triton makes kernels.
TRITON_CAPABILITY = (7, 0)


def opened() -> int:
    """The number of this process's GPU. Raises ScenarioError, one line, where torch has no CUDA or there is no GPU."""
    if torch.version.cuda is None:
        what = f"torch {torch.__version__} is built without CUDA; install a build for it (pytorch.org says how)"
        raise ScenarioError([f"--backend cuda: {what}; {DOCTOR}"])
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise ScenarioError([f"--backend cuda: no GPU is there; see nvidia-smi and CUDA_VISIBLE_DEVICES; {DOCTOR}"])
    number = int(os.environ.get("LOCAL_RANK", "0"))
    if number >= count:
        what = f"rank {number} has no GPU of its own, there are {count}; take fewer ranks"
        raise ScenarioError([f"--backend cuda: {what}"])
    return number


def triton() -> bool:
    """Whether torch.compile can make kernels for the GPU of this process."""
    if find_spec("triton") is None:
        return False
    return not torch.cuda.is_available() or torch.cuda.get_device_capability() >= TRITON_CAPABILITY


class Cuda(Accelerator):
    """GPU number LOCAL_RANK, or the first. Raises ScenarioError as `opened`."""

    name = "cuda"
    streams = STREAMS
    collectives = "nccl"

    def __init__(self) -> None:
        number = opened()
        super().__init__(torch.device("cuda", number), torch.cuda)
        try:
            torch.cuda.set_device(self.device)
            torch.cuda.init()
        except RuntimeError as error:  # another process has it for itself, or the driver is too old
            line = printable(str(error).partition("\n")[0], 160)
            raise ScenarioError([f"--backend cuda: GPU {number} cannot be used ({line}); {DOCTOR}"]) from None
        cuda.only_fused_attention()

    @property
    def devices(self) -> int:
        count: int = torch.cuda.device_count()
        return count

    def describe(self) -> dict[str, str | int]:
        about = torch.cuda.get_device_properties(self.device)
        return {
            "backend": self.name,
            "device": f"{about.name}, {torch.cuda.device_count()} in this machine",
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda or "none",
            "capability": f"{about.major}.{about.minor}",
            "attention": "flash; memory-efficient where masked or in float32; never math",
            "triton": "present" if triton() else "none",
        }

    def kernel(self, op: Op) -> Kernel:
        if kernel := special(op):
            return cuda.NAMED.get(op.name, kernel)
        if kind_of(op).family == "attention" and not cuda.whole(op):
            return cuda.COMPOSED_ATTENTION
        if cuda.is_grouped(op):
            return cuda.GROUPED
        return cuda.KERNELS.get(op.kind) or REFERENCE[op.kind]

    def lacks(self, program: Program, model: Model) -> list[str]:
        refused: dict[str, str] = {}
        if program.graph not in ("eager", *cuda_graphs.MODES):
            modes = "aclgraph (CUDA graphs) or ge_graph (torch.compile and CUDA graphs)"
            refused["graph"] = f"{program.graph} is a compiler of torch_npu; take {modes}"
        elif program.graph == "ge_graph" and not triton():
            refused["graph"] = "torch.compile makes the pieces, and Triton is not there for it; take aclgraph or eager"
        ops = ops_of(program)
        for op in dict.fromkeys(ops):
            for switch, why in _lacking(op):
                refused.setdefault(switch, why)
        return refusals(refused, ops, "a GPU")

    def held(
        self, op: Op, tensor: Tensor, value: torch.Tensor, act: torch.dtype, others: Callable[[Tensor], torch.Tensor]
    ) -> torch.Tensor:
        return value

    def units(self, graph: str, calls: Sequence[Call], captures: dict[object, Any]) -> tuple[Unit, ...]:
        return cuda_graphs.units(graph, calls, captures)

    def profiler(self, folder: Path, rank: int, steps: int) -> Any:
        from device.backends.profiler import torch_profiler

        return torch_profiler(folder, rank, steps, on_gpu=True)


def _lacking(op: Op) -> list[tuple[str, str]]:
    """The switches without which `op` would not be there, each with why a GPU cannot run it."""
    lacking: list[tuple[str, str]] = []
    kind = kind_of(op)
    if kind.torch_kernel == "compiled" and not triton():
        what = f"torch has no {op.kind} kernel for a GPU, and there is no Triton to make one"
        lacking.append((kind.switch, f"{what}; install triton, or set it to false"))
    if kind.torch_kernel == "none":
        what = f"torch has no {op.kind} kernel for a GPU, nor can torch.compile make one"
        lacking.append((kind.switch, f"{what}; set it to false"))
    if kind.unit == "copy":
        lacking.append((kind.switch, "torch brings no weight into a GPU's L2 ahead; set it to false"))
    int8 = kind.family == "matmul" and op.inputs[0].dtype == "int8"
    by_router = int8 and (kind.routed or follows_router(op.inputs[0]))
    if int8 and kind.dense and not by_router and (problem := cuda.int8_problem(op)):
        lacking.append(("weights", problem))
    if by_router:
        what = "an expert may have fewer rows than torch._int_mm multiplies on a GPU"
        lacking.append(("weights", f"{what}, and only the router knows; take bf16 or w8a16"))
    dim = op.attr("head_dim", 0)
    assert isinstance(dim, int)
    if kind.family == "attention" and special(op) is None and dim % cuda.HEAD_MULTIPLE:
        what = f"fused attention reads heads of multiples of {cuda.HEAD_MULTIPLE}, these are {dim} wide"
        lacking.append(("fusion.attention", f"{what}; set it to false"))
    if any(t.format == "nz" and t.role == "weight" for t in op.inputs):  # blocks of a cache lie its own way
        lacking.append(("weight_format", "FRACTAL_NZ is the layout of Ascend's cube; set it to nd"))
    return lacking
