"""An Ascend NPU: driver, devices, CANN, torch_npu and its torch, HCCL; and what no test without one can show."""

from __future__ import annotations

import re
from pathlib import Path

from device.doctor.checks import CHECKOUT, Check, missing, present
from device.doctor.cpu import torch_of
from device.doctor.machine import Machine
from device.doctor.npu_trials import TRIALS

DRIVER = "/usr/local/Ascend/driver/version.info"
#: Where CANN says which version it is, below ASCEND_HOME_PATH, by age of the release.
CANN_VERSIONS = ("version.info", "version.cfg", "compiler/version.info", "runtime/version.info", "toolkit/version.info")
FIRMWARE = "/usr/local/Ascend/firmware/version.info"
#: Whether torch finds a device.
SEES = "import torch, torch_npu; n = torch.npu.device_count(); print(n, 'devices'); assert n"
#: The first driver (HDK) with enough stream resources for captured graphs.
GRAPH_DRIVER = (25, 5, 1)
#: The driver that goes with a release of CANN, where a page says so without a login: the installation page of
#: vLLM-Ascend 0.13 for CANN 8.5.0.
DRIVERS = {(8, 5): (25, 5)}

__all__ = ["TRIALS", "checks"]


def checks(machine: Machine) -> list[Check]:
    """In the order in which one needs the other."""
    cann = cann_version(machine)
    found_ones = [_driver(machine), _devices(machine), _npu_smi(machine), _cann(machine), torch_of(machine)]
    return [*found_ones, *_torch_npu(machine, cann), *_stack(machine, cann), *_atb(machine), _hccl(machine)]


def _driver(machine: Machine) -> Check:
    version, firmware = (version_of(machine.text(path)) for path in (DRIVER, FIRMWARE))
    if version is None:
        return missing("driver", f"no {DRIVER}; install the Ascend HDK driver and firmware")
    if _numbers(version) < GRAPH_DRIVER:
        wanted = ".".join(map(str, GRAPH_DRIVER))
        return missing("driver", f"{version}; captured graphs run out of streams (alloc sq cq fail) before {wanted}")
    return present("driver", f"{version}, firmware {firmware or 'not told'}")


def _devices(machine: Machine) -> Check:
    count = machine.devices("davinci[0-9]*")
    if not count:
        return missing("devices", "no /dev/davinci*; pass the NPUs into this container (--device), or use their host")
    return present("devices", f"{count} in /dev")


def _npu_smi(machine: Machine) -> Check:
    path = machine.command("npu-smi")
    return present("npu-smi", path) if path else missing("npu-smi", "not on PATH; it comes with the driver")


def _cann(machine: Machine) -> Check:
    home = _home(machine)
    if not home:
        return missing("CANN", "ASCEND_HOME_PATH is not set; install CANN and `source .../ascend-toolkit/set_env.sh`")
    if not machine.file(home).is_dir():
        return missing("CANN", f"ASCEND_HOME_PATH is {home}, which is no folder; source the right set_env.sh")
    version = cann_version(machine)
    if version is None:
        return missing("CANN", f"{home} names no version ({', '.join(CANN_VERSIONS)}); install CANN anew")
    return present("CANN", f"{version} in {home}")


def _home(machine: Machine) -> str | None:
    return machine.environment.get("ASCEND_HOME_PATH") or machine.environment.get("ASCEND_TOOLKIT_HOME")


def cann_version(machine: Machine) -> str | None:
    """The release of CANN that is sourced, None where none is or it does not say."""
    home = _home(machine)
    versions = (version_of(machine.text(f"{home}/{name}")) for name in CANN_VERSIONS if home)
    return next((version for version in versions if version), None)


def _torch_npu(machine: Machine, cann: str | None) -> list[Check]:
    """Its version, that of the torch next to it, and whether it sees a device."""
    from device.operators.npu.versions import wheel_for, wheel_of, wrong_pairing

    version, torch = machine.package("torch-npu"), machine.package("torch")
    if version is None:
        wheel = wheel_for(cann, torch) if cann else None
        how = f"for CANN {cann}: {wheel.install}" if wheel else "pip install '.[npu]', or what docs/npu.md names"
        line = f"not installed; {CHECKOUT}, {how}"
        return [missing("torch_npu", line), missing("torch sees them", "torch_npu is not there to look")]
    if torch is not None and (wrong := wrong_pairing(torch, version)):
        return [missing("torch_npu", wrong), missing("torch sees them", "not tried with this pair")]
    known = "" if wheel_of(version) else "; not one of the versions that the adapters are held against (docs/npu.md)"
    passed, line = machine.python(SEES)
    if passed:
        seen = present("torch sees them", line)
    elif "cannot open shared object" in line or "libascend" in line or "libhccl" in line:
        seen = missing("torch sees them", f"CANN is not found ({line[:90]}); source its set_env.sh")
    else:
        seen = missing("torch sees them", f"no device ({line[:90]}); see npu-smi info and ASCEND_RT_VISIBLE_DEVICES")
    return [present("torch_npu", f"{version}{known}"), seen]


def _stack(machine: Machine, cann: str | None) -> list[Check]:
    """Whether driver, CANN and torch_npu belong together; nothing where one of the last two is not there.

    An older torch_npu finds in a newer CANN what it was built for; a newer one may not find it in an older CANN.
    """
    from device.operators.npu.versions import WHEELS, minor, wheel_for, wheel_of

    version = machine.package("torch-npu")
    if version is None or cann is None:
        return []
    right, wheel = wheel_for(cann, machine.package("torch")), wheel_of(version)
    remedy = f"{CHECKOUT}: {right.install}" if right else f"install CANN {WHEELS[0].cann} or newer"
    wanted = wheel.cann if wheel else None
    if right and wheel and wanted is not None and minor(wanted) == minor(cann):
        return [_beside_driver(machine, cann, f"torch_npu {version} is documented with CANN {wanted}")]
    named = f"documented with CANN {wanted}" if wanted else "documented with no CANN"
    told = f"torch_npu {version} is {named}, here is {cann}"
    newest = max(minor(w.cann) for w in WHEELS if w.cann)
    if minor(cann) < (minor(wanted) if wanted else newest):
        return [missing("versions", f"{told}; {remedy}")]
    return [_beside_driver(machine, cann, f"{told}, which is not older ({remedy} is the documented pair)")]


def _beside_driver(machine: Machine, cann: str, told: str) -> Check:
    from device.operators.npu.versions import minor

    driver, wanted = version_of(machine.text(DRIVER)), DRIVERS.get(minor(cann))
    if driver is None or wanted is None:
        return present("versions", f"{told}; the release notes of CANN {cann} name its driver")
    named = ".".join(map(str, wanted))
    if _numbers(driver) < wanted:
        return missing("versions", f"driver {driver} is older than {named}, which goes with CANN {cann}; install that")
    return present("versions", f"{told}; driver {driver} is not older than {named}, which goes with it")


def _atb(machine: Machine) -> list[Check]:
    """What writes keys and values on a wheel whose own call cannot write plain blocks. Not needed: slower without."""
    from device.operators.npu.versions import PLAIN_BLOCKS, has

    version = machine.package("torch-npu")
    if version is None or has(PLAIN_BLOCKS, version):
        return []
    if home := machine.environment.get("ATB_HOME_PATH"):
        return [present("ATB", f"{home}; it writes keys and values in one call")]
    line = "not sourced, so keys and values are written by two calls; install NNAL and `source .../nnal/atb/set_env.sh`"
    return [present("ATB", line)]


def _hccl(machine: Machine) -> Check:
    home = machine.environment.get("ASCEND_HOME_PATH", "")
    folders = [f"{home}/lib64", *machine.environment.get("LD_LIBRARY_PATH", "").split(":")]
    for folder in folders:
        path = machine.file(str(Path(folder) / "libhccl.so")) if folder.startswith("/") else None
        if path is not None and path.is_file():
            return present("HCCL", str(path))
    return missing("HCCL", "no libhccl.so in CANN's lib64 or on LD_LIBRARY_PATH; one rank only until CANN is sourced")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version)[:3])


def version_of(text: str | None) -> str | None:
    """`25.5.1` of a file that says Version=25.5.1, or [9.1.0]."""
    match = re.search(r"(?:[Vv]ersion\s*=\s*\[?|\[)[^\d\n]*(\d+\.\d+[\w.]*)", text or "")
    return match.group(1) if match else None
