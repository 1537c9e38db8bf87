"""The constants of a chip that CANN's tiling code asks for."""

from __future__ import annotations

from functools import lru_cache

from scenarios.records import dataclass
from sim.hardware.sections import Chip

#: Bytes of L0A and of L0B, the same on all chips of CANN's platform files.
L0_BYTES = 65536
#: Smallest L1 and L0C of those chips: the rules know none below, so a made-up device is laid out as if it had them.
MIN_L1_BYTES, MIN_L0C_BYTES = 524288, 131072


@dataclass(frozen=True, slots=True)
class TilingChip:
    """Cores and on-chip buffers (bytes a core; L2 for the chip), as CANN's platform files state them."""

    cube_cores: int
    vector_cores: int
    ub_bytes: int
    l1_bytes: int
    l0a_bytes: int
    l0b_bytes: int
    l0c_bytes: int
    l2_bytes: int


@lru_cache(maxsize=64)
def tiling_chip(chip: Chip, cube_cores: int = 0) -> TilingChip:
    """What tiling code asks of a profile's chip. cube_cores: only so many of them (0: all)."""
    return TilingChip(
        cube_cores=cube_cores or chip.cube_cores,
        vector_cores=chip.vector_cores,
        ub_bytes=chip.ub_bytes,
        l1_bytes=max(chip.l1_bytes, MIN_L1_BYTES),
        l0a_bytes=L0_BYTES,
        l0b_bytes=L0_BYTES,
        l0c_bytes=max(chip.l0c_bytes, MIN_L0C_BYTES),
        l2_bytes=chip.l2_bytes,
    )
