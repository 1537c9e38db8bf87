"""What a cost model hands to `sim.kernel.price.price`."""

from __future__ import annotations

from scenarios.records import dataclass
from sim.kernel.tiles import Tile


@dataclass(frozen=True, slots=True)
class Cost:
    """Nanoseconds and bytes of one kernel.

    head_ns: before and next to the work (launch, instruction fetch, synchronisation). body_ns: the work. cores: cores
    started (cube cores, or vector cores of a vector kernel). compute_ns, memory_ns: what the computing and the moving
    alone would take: the greater is the bound. hbm_bytes: traffic to HBM. beside_ns: work of the vector cores next to
    the cube. tiles, tile: what passes the fullest core of a vector kernel, one like the other.
    """

    head_ns: float
    body_ns: float
    cores: int
    compute_ns: float
    memory_ns: float
    hbm_bytes: float
    beside_ns: float = 0.0
    tiles: int = 0
    tile: Tile | None = None

    @property
    def total_ns(self) -> float:
        return self.head_ns + self.body_ns
