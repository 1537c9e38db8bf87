"""An NVIDIA GPU: driver, devices, a torch that was built for CUDA and sees them, Triton, NCCL."""

from __future__ import annotations

from device.doctor.checks import Check, missing, present, probed
from device.doctor.cpu import torch_of
from device.doctor.cuda_trials import TRIALS
from device.doctor.machine import Machine

__all__ = ["TRIALS", "checks"]

#: (name, Python that prints what it finds or fails, what to do where it fails)
PROBES = (
    (
        "CUDA in torch",
        "import torch; print('CUDA', torch.version.cuda); assert torch.version.cuda",
        "this torch is built without CUDA; install a build for it (pytorch.org says how)",
    ),
    (
        "torch sees them",
        "import torch; n = torch.cuda.device_count(); print(n, 'devices'); assert n",
        "this torch sees no GPU; see nvidia-smi and CUDA_VISIBLE_DEVICES, and that the driver fits its CUDA",
    ),
    (
        "computes",
        "import torch; print(torch.cuda.get_device_name(), torch.ones(2, device='cuda').sum().item())",
        "the GPU does not compute; see nvidia-smi (another process may have it for itself) and dmesg",
    ),
    (
        "bf16",
        "import torch; c = torch.cuda.get_device_capability(); print('compute capability', c); assert c >= (8, 0)",
        "flash attention and bf16 products need compute capability 8.0; take fp16 models and fusion.attention=false",
    ),
    (
        "Triton",
        "from device.backends.cuda import triton; assert triton(); import triton as t; print(t.__version__)",
        "no Triton for this GPU: add_rms_norm, rope, swiglu and ge_graph are refused; pip install triton",
    ),
    (
        "NCCL",
        "import torch, torch.distributed as d; assert d.is_nccl_available(); print(torch.cuda.nccl.version())",
        "this torch has no NCCL: one rank only",
    ),
)


def checks(machine: Machine) -> list[Check]:
    """In the order in which one needs the other."""
    version = machine.text("/proc/driver/nvidia/version")
    driver = (version or "").partition("\n")[0].strip()
    devices = machine.devices("nvidia[0-9]*")
    first = [
        present("driver", driver) if driver else missing("driver", "no NVIDIA driver is loaded; install it"),
        present("devices", f"{devices} in /dev")
        if devices
        else missing("devices", "no /dev/nvidia*; pass the GPU into this container, or take --backend cpu"),
        torch_of(machine),
    ]
    return [*first, *probed(machine, PROBES)]
