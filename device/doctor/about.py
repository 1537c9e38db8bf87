"""What must be known of a machine for its numbers to mean something: versions, and the variables that move times.

Neither names of machines and users nor paths and addresses are kept: a bundle is made to be sent.
"""

from __future__ import annotations

import os
import platform
from typing import Any

from device.doctor.machine import Machine
from device.doctor.npu import DRIVER, FIRMWARE, cann_version, version_of

#: Python packages whose version is kept, where they are installed.
PACKAGES = ("torch", "torch-npu", "triton", "triton-ascend", "vllm", "vllm-ascend", "numpy", "safetensors")
#: Variables that move times or memory: collectives, launching, binding to cores, allocators.
VARIABLES = (
    "HCCL_OP_EXPANSION_MODE", "HCCL_ALGO", "HCCL_BUFFSIZE", "HCCL_DETERMINISTIC", "HCCL_INTRA_PCIE_ENABLE",
    "HCCL_INTRA_ROCE_ENABLE", "HCCL_RDMA_TC", "TASK_QUEUE_ENABLE", "CPU_AFFINITY_CONF", "ASCEND_LAUNCH_BLOCKING",
    "ACL_OP_COMPILER_CACHE_MODE", "PYTORCH_NPU_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "CUDA_LAUNCH_BLOCKING",
    "NCCL_ALGO", "NCCL_PROTO", "OMP_NUM_THREADS", "OMP_PROC_BIND", "MKL_NUM_THREADS",
)  # fmt: skip


def about(machine: Machine) -> dict[str, Any]:
    """Versions and variables of `machine` as plain data; None and absent where there is none."""
    packages = {name: machine.package(name) for name in PACKAGES}
    nvidia = machine.text("/proc/driver/nvidia/version")
    return {
        "tool": machine.package("ascend-whatif"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(machine),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "packages": {name: version for name, version in packages.items() if version is not None},
        "cann": cann_version(machine),
        "driver": version_of(machine.text(DRIVER)) or (nvidia or "").partition("\n")[0].strip() or None,
        "firmware": version_of(machine.text(FIRMWARE)),
        "variables": {name: machine.environment[name] for name in VARIABLES if name in machine.environment},
    }


def _cpu(machine: Machine) -> str:
    lines = (machine.text("/proc/cpuinfo") or "").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.lower().startswith(("model name", "cpu part"))]
    return names[0] if names else platform.processor()
