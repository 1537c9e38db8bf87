"""Which device is here, and which profile describes it: named by WHATIF_HARDWARE, or known by the chip's own name."""

from __future__ import annotations

import os

from device.backends import choose
from device.run.backend import Backend
from scenarios.errors import ScenarioError

#: Names the profile of the machine that tests and `whatif experiment` run on.
VARIABLE = "WHATIF_HARDWARE"


def backend_here(name: str) -> Backend | str:
    """The backend called `name`, or why it is not here."""
    try:
        return choose(name)
    except ScenarioError as error:
        return error.messages[0]


#: The profile of each chip by the name that it gives itself: Ascend's as CANN's platform files name them, with the same
#: number of AI cores. A 910_9391 and a 910_9392 have a clock 3 % above their profile's, a 910B4-1 more L2, a 910_9363
#: half the memory, a 950PR_958b an eighth less of memory and L2. Other sizes of Ascend 950 have no profile.
CHIPS = {
    "Ascend910B1": "atlas_a2_910b1",
    "Ascend910B2": "atlas_a2_910b2", "Ascend910B2C": "atlas_a2_910b2",
    "Ascend910B3": "atlas_a2_910b3",
    "Ascend910B4": "atlas_a2_910b4", "Ascend910B4-1": "atlas_a2_910b4_64g",
    "Ascend910_9381": "atlas_a3_die", "Ascend910_9382": "atlas_a3_die",
    "Ascend910_9391": "atlas_a3_die", "Ascend910_9392": "atlas_a3_die",
    "Ascend910_9372": "atlas_a3_die_20",
    "Ascend910_9362": "atlas_a3_560t_die", "Ascend910_9363": "atlas_a3_560t_die",
    "Ascend950PR_9589": "950pr", "Ascend950PR_958b": "950pr",
    "NVIDIA H200": "h200_sxm",
}  # fmt: skip


def profile_here(backend: str, chip: str) -> str | None:
    """The profile of this machine: what WHATIF_HARDWARE says, or that of the chip; None where neither does.

    chip: as the device calls itself, such as `Ascend910B2` or `NVIDIA H200`; what follows a comma is no part of it.
    """
    if named := os.environ.get(VARIABLE):
        return named
    if backend == "cpu":
        return "cpu"
    return CHIPS.get(chip.partition(",")[0].strip())


def devices_here(backend: str) -> int:
    """How many ranks find a device of their own."""
    if backend == "cpu":
        return os.cpu_count() or 1
    import torch

    return int(torch.accelerator.device_count())
