"""The constants of a chip that CANN's tiling code asks for."""

from __future__ import annotations

from dataclasses import dataclass


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
