"""An NVIDIA GPU: driver, devices, and a torch that was built for CUDA."""

from __future__ import annotations

from device.doctor.checks import Check, Trial, found, missing, probed
from device.doctor.cpu import torch_of
from device.doctor.machine import Machine

TRIALS: tuple[Trial, ...] = ()


def checks(machine: Machine) -> list[Check]:
    version = machine.text("/proc/driver/nvidia/version")
    driver = (version or "").partition("\n")[0].strip()
    devices = machine.devices("nvidia[0-9]*")
    made = [
        found("driver", driver) if driver else missing("driver", "no NVIDIA driver is loaded; install it"),
        found("devices", f"{devices} in /dev")
        if devices
        else missing("devices", "no /dev/nvidia*; pass the GPU into this container, or take --backend cpu"),
        torch_of(machine),
        missing("backend", "this version has no CUDA backend yet; take --backend cpu"),
    ]
    probes = (
        (
            "torch sees them",
            "import torch; n = torch.cuda.device_count(); print(n, torch.version.cuda); assert n",
            "this torch sees no GPU; install a torch built for CUDA, and see CUDA_VISIBLE_DEVICES",
        ),
        (
            "NCCL",
            "import torch.distributed as d; assert d.is_nccl_available(); print('available')",
            "this torch has no NCCL: one rank only",
        ),
    )
    return [*made, *probed(machine, probes)]
