"""Which device is here, and which profile describes it: named by WHATIF_HARDWARE, or known by the chip's own name."""

from __future__ import annotations

import os
import re

from device.backends import choose
from device.run.backend import Backend
from scenarios.errors import ScenarioError
from sim.hardware.profile import ALIASES, hardware_names, load_hardware

#: Names the profile of the machine that tests and `whatif experiment` run on.
VARIABLE = "WHATIF_HARDWARE"


def backend_here(name: str) -> Backend | str:
    """The backend called `name`, or why it is not here."""
    try:
        return choose(name)
    except ScenarioError as error:
        return error.messages[0]


def profile_here(backend: str, chip: str) -> str | None:
    """The profile of this machine: what WHATIF_HARDWARE says, or the one that the chip's name names; None where neither
    does.

    chip: as the device calls itself, such as `Ascend910B2` or `NVIDIA H200`.
    """
    if named := os.environ.get(VARIABLE):
        return named
    if backend == "cpu":
        return "cpu"
    words = _plain(chip)
    names = {_plain(n): n for n in hardware_names() if load_hardware(n).profile.device == backend}
    names |= {_plain(alias): n for alias, n in ALIASES.items() if load_hardware(n).profile.device == backend}
    parts = {part: name for key, name in names.items() for part in (key, *re.findall(r"[a-z]*\d+[a-z]*\d*", key))}
    return next((parts[part] for part in sorted(parts, key=len, reverse=True) if len(part) > 3 and part in words), None)


def devices_here(backend: str) -> int:
    """How many ranks find a device of their own."""
    if backend == "cpu":
        return os.cpu_count() or 1
    import torch

    return int(torch.accelerator.device_count())


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
