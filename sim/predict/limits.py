"""What of a scenario a kind of device has not, whatever the model: only an NPU has torch_npu's kernels and layouts."""

from __future__ import annotations

from scenarios.schema import Scenario
from sim.collective.topology import levels_of
from sim.hardware.profile import HardwareProfile

#: Switches below `optimizations` that a GPU has nothing for, with the values it can have and why.
_NOT_ON_A_GPU: tuple[tuple[str, tuple[object, ...], str], ...] = (
    ("weight_format", ("nd",), "FRACTAL_NZ is a layout of Ascend's cube cores, a GPU has none"),
    ("overlap.prefetch", (False,), "torch brings no weight into a GPU's L2 ahead"),
    ("fusion.ffn", (False,), "torch has no such kernel for a GPU"),
    ("fusion.matmul_all_reduce", (False,), "torch has no such kernel for a GPU"),
    (
        "graph",
        ("eager", "aclgraph", "ge_graph"),
        "a compiler of torch_npu; on a GPU aclgraph means CUDA graphs, and ge_graph torch.compile before them",
    ),
)


def limits(scenario: Scenario, hardware: HardwareProfile) -> list[tuple[str, str]]:
    """What `hardware` cannot run of `scenario`: (field, what) pairs."""
    device = hardware.profile.device
    problems = _without_traffic(scenario) if device != "npu" and scenario.workload.traffic is None else []
    if device == "cuda":
        return [*problems, *_on_a_gpu(scenario)]
    ranks = scenario.engine.tensor_parallel_size
    levels = levels_of(ranks, hardware.collective)
    if scenario.optimizations.fusion.matmul_all_reduce and levels and levels[-1].tier == "roce":
        what = (
            f"npu_mm_all_reduce_base needs ranks that HCCS joins; on {hardware.name} {ranks} of them are joined by RoCE"
        )
        problems.append(("optimizations.fusion.matmul_all_reduce", what))
    return problems


def _without_traffic(scenario: Scenario) -> list[tuple[str, str]]:
    """Off an NPU an engine's host acts on served requests only: no shipped engine profile is of such a host."""
    given = [name for name in ("profile", "async_scheduling") if getattr(scenario.engine, name) is not None]
    return [(f"engine.{name}", "has no effect without workload.traffic") for name in given]


def _on_a_gpu(scenario: Scenario) -> list[tuple[str, str]]:
    problems = [
        (f"optimizations.{switch}", why)
        for switch, values, why in _NOT_ON_A_GPU
        if _value(scenario.optimizations, switch) not in values
    ]
    if scenario.engine.task_queue_enable:
        problems.append(("engine.task_queue_enable", "a launch thread of torch_npu, a GPU has none; set it to 0"))
    if scenario.engine.hccl_op_expansion_mode != "auto":
        problems.append(("engine.hccl_op_expansion_mode", "NCCL has no such choice; set it to auto"))
    return problems


def _value(part: object, path: str) -> object:
    for name in path.split("."):
        part = getattr(part, name)
    return part
