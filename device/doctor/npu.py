"""An Ascend NPU: driver, devices, CANN, torch_npu and its torch, HCCL; and what no test without one can show."""

from __future__ import annotations

import re
from pathlib import Path

from device.doctor.checks import Check, found, missing
from device.doctor.cpu import torch_of
from device.doctor.machine import Machine
from device.doctor.npu_trials import TRIALS

DRIVER = "/usr/local/Ascend/driver/version.info"
#: Where CANN says which version it is, below ASCEND_HOME_PATH, by age of the release.
CANN_VERSIONS = ("version.info", "version.cfg", "compiler/version.info", "runtime/version.info", "toolkit/version.info")
#: Whether torch finds a device.
SEES = "import torch, torch_npu; n = torch.npu.device_count(); print(n, 'devices'); assert n"
#: The first driver (HDK) with enough stream resources for captured graphs.
GRAPH_DRIVER = (25, 5, 1)

__all__ = ["TRIALS", "checks"]


def checks(machine: Machine) -> list[Check]:
    """In the order in which one needs the other."""
    torch = torch_of(machine)
    return [
        _driver(machine), _devices(machine), _npu_smi(machine), _cann(machine), torch, *_torch_npu(machine),
        _hccl(machine),
    ]  # fmt: skip


def _driver(machine: Machine) -> Check:
    version = _version(machine.text(DRIVER))
    if version is None:
        return missing("driver", f"no {DRIVER}; install the Ascend HDK driver and firmware")
    if tuple(int(n) for n in re.findall(r"\d+", version)[:3]) < GRAPH_DRIVER:
        wanted = ".".join(map(str, GRAPH_DRIVER))
        return missing("driver", f"{version}; captured graphs run out of streams (alloc sq cq fail) before {wanted}")
    return found("driver", version)


def _devices(machine: Machine) -> Check:
    count = machine.devices("davinci[0-9]*")
    if not count:
        return missing("devices", "no /dev/davinci*; pass the NPUs into this container (--device), or use their host")
    return found("devices", f"{count} in /dev")


def _npu_smi(machine: Machine) -> Check:
    path = machine.command("npu-smi")
    return found("npu-smi", path) if path else missing("npu-smi", "not on PATH; it comes with the driver")


def _cann(machine: Machine) -> Check:
    home = machine.environment.get("ASCEND_HOME_PATH") or machine.environment.get("ASCEND_TOOLKIT_HOME")
    if not home:
        return missing("CANN", "ASCEND_HOME_PATH is not set; install CANN and `source .../ascend-toolkit/set_env.sh`")
    if not machine.file(home).is_dir():
        return missing("CANN", f"ASCEND_HOME_PATH is {home}, which is no folder; source the right set_env.sh")
    versions = (_version(machine.text(f"{home}/{name}")) for name in CANN_VERSIONS)
    version = next((v for v in versions if v), None)
    if version is None:
        return missing("CANN", f"{home} names no version ({', '.join(CANN_VERSIONS)}); install CANN anew")
    return found("CANN", f"{version} in {home}")


def _torch_npu(machine: Machine) -> list[Check]:
    """Its version, that of the torch beside it, the CANN it is documented with, and whether it sees a device."""
    from device.operators.npu.versions import wheel_of, wrong_pairing

    version, torch = machine.package("torch-npu"), machine.package("torch")
    if version is None:
        line = "not installed; pip install 'ascend-whatif[npu]', or the version for your CANN (docs/npu.md)"
        return [missing("torch_npu", line), missing("torch sees them", "torch_npu is not there to look")]
    if torch is not None and (wrong := wrong_pairing(torch, version)):
        return [missing("torch_npu", wrong), missing("torch sees them", "not tried with this pair")]
    wheel = wheel_of(version)
    documented = f"documented with CANN {wheel.cann}" if wheel and wheel.cann else "no CANN is documented for it"
    known = "" if wheel else "; not one of the versions that the adapters are written for (docs/npu.md)"
    passed, line = machine.python(
        "import torch, torch_npu; n = torch.npu.device_count(); print(n, 'devices'); assert n"
    )
    if passed:
        seen = found("torch sees them", line)
    elif "cannot open shared object" in line or "libascend" in line or "libhccl" in line:
        seen = missing("torch sees them", f"CANN is not found ({line[:90]}); source its set_env.sh")
    else:
        seen = missing("torch sees them", f"no device ({line[:90]}); see npu-smi info and ASCEND_RT_VISIBLE_DEVICES")
    return [found("torch_npu", f"{version}, {documented}{known}"), seen]


def _hccl(machine: Machine) -> Check:
    home = machine.environment.get("ASCEND_HOME_PATH", "")
    folders = [f"{home}/lib64", *machine.environment.get("LD_LIBRARY_PATH", "").split(":")]
    for folder in folders:
        path = machine.file(str(Path(folder) / "libhccl.so")) if folder.startswith("/") else None
        if path is not None and path.is_file():
            return found("HCCL", str(path))
    return missing("HCCL", "no libhccl.so in CANN's lib64 or on LD_LIBRARY_PATH; one rank only until CANN is sourced")


def _version(text: str | None) -> str | None:
    """`25.5.1` of a file that says Version=25.5.1, or [9.1.0]."""
    match = re.search(r"(?:[Vv]ersion\s*=\s*\[?|\[)[^\d\n]*(\d+\.\d+[\w.]*)", text or "")
    return match.group(1) if match else None
