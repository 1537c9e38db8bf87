"""Kernels on the vector cores: elementwise, row-wise, copies, gathers, sampling.

    time = start + cores x per core x code + max(elements of the fullest core x per element, bytes / rate)

Cores and elements follow from the shape as CANN's published tiling lays it out (`sim.kernel.vector_tiling`); start, per
core and per element are the three fitted numbers of a program. A launch alone is 0.46 us and 0.07 us a core, whatever
the kernel (measured: duration less the vector cores' own time, 910B2, three profiles); what a program takes beyond is
its set-up and the fetch of its code by each core. code: `kernel.static_share` where a graph compiler made the kernel
for its shapes, `kernel.warm_share` where a layer before ran that one, `kernel.twin_share` where the kernel just before
did.
"""

from __future__ import annotations

from math import ceil

from scenarios.ops.catalogue import CATALOGUE
from scenarios.ops.work import RowsShape, Work
from sim.hardware.profile import HardwareProfile
from sim.hardware.sections import Chip, KernelParams
from sim.kernel.cost import Cost
from sim.kernel.tiles import Tile
from sim.kernel.tiling.chip import tiling_chip
from sim.kernel.time import Code
from sim.kernel.traffic import traffic
from sim.kernel.vector_tiling import counted_elements, program_of, spread_of

#: Parameter sets, of no kind of the catalogue, whose kernels read rows picked by index.
_PICKING = ("gather",)
#: Bytes come from L2 up to this share of what L2 keeps from kernel to kernel, and from HBM from the other one on
#: (measured: 40 and 80 MB of 192).
L2_UP_TO, HBM_FROM = 2 / 3, 4 / 3
#: The latter where a kernel is replayed on the same data: 85 MB still run at 2.3 TB/s on 910B2.
REPLAY_HBM_FROM = 2.0


def vector_program(work: Work, chip: Chip) -> str:
    """The program that runs vector work on `chip`; see `sim.kernel.vector_tiling.program_of`."""
    return program_of(work, tiling_chip(chip))


def vector_params(work: Work, hw: HardwareProfile) -> KernelParams:
    """The numbers of the program that runs `work`; of the plain one of its shape where the profile has none."""
    known = hw.programs.get(vector_program(work, hw.chip))
    return known or hw.programs["row_wise" if isinstance(work.shape, RowsShape) else "elementwise"]


def vector_cost(work: Work, hw: HardwareProfile, params: KernelParams, code: Code, resident: bool) -> Cost:
    """The cost of a flat or row-wise kernel; `code` and `resident` as in `sim.kernel.price.price`."""
    chip = tiling_chip(hw.chip)
    program = program_of(work, chip)
    spread = spread_of(program, work, chip, params)
    head = 1000 * (params.start_us + params.core_us * spread.started * code_share(code, hw))
    compute = counted_elements(program, work, spread, chip) * _element_ns(program, params, hw, code)
    memory = moving_ns(work, hw, spread.busy, resident)
    tiles, tile = _tiles(work, hw, spread.busy, compute, memory)
    hbm = traffic(work, hw, resident).hbm
    return Cost(head, max(compute, memory), spread.started, compute, memory, hbm, tiles=tiles, tile=tile)


def _element_ns(program: str, params: KernelParams, hw: HardwareProfile, code: Code) -> float:
    """Time of an element; a kernel compiled for its shapes stretches a smaller operand by addressing, while it computes
    (Mul, Square and fused kernels of a compiled text tower of 1,274 tokens, 910B2: with the element of eager broadcasts
    they would take 1.5 times what was measured)."""
    plain = hw.programs.get("elementwise")
    stretched = program in ("broadcast", "broadcast_row")
    return min(params.element_ns, plain.element_ns) if plain and stretched and code != "cold" else params.element_ns


def code_share(code: Code, hw: HardwareProfile) -> float:
    """What remains of a program's cost a core where its code does not come from HBM."""
    kernel = hw.kernel
    return {"cold": 1.0, "first": kernel.static_share, "near": kernel.warm_share, "twin": kernel.twin_share}[code]


def moving_ns(work: Work, hw: HardwareProfile, cores: int, resident: bool) -> float:
    """What moving the bytes takes at the least, ns: few bytes pass L2, many HBM, and rows picked by index are no
    stream."""
    kept = hw.memory.l2_resident_share * hw.chip.l2_bytes
    if picks_rows(work.program) and not (resident and work.gm_bytes <= kept):
        return work.cold_read_bytes / (cores * hw.memory.core_random_gbps)
    cold = traffic(work, hw, resident).hbm / hw.memory.hbm_gbps  # weights and caches, however few
    return max(cold, work.gm_bytes / vector_gbps(work.gm_bytes, hw, resident))


def vector_gbps(moved: int, hw: HardwareProfile, resident: bool) -> float:
    """Rate of a vector kernel that reads and writes `moved` bytes, GB/s.

    In a network HBM gives vector kernels `vector_hbm_share` of what it sustains; all of that to one that is replayed.
    """
    memory = hw.memory
    kept = memory.l2_resident_share * hw.chip.l2_bytes
    hbm_from = REPLAY_HBM_FROM if resident else HBM_FROM
    part = min(1.0, max(0.0, (moved / max(1.0, kept) - L2_UP_TO) / (hbm_from - L2_UP_TO)))
    slow = memory.hbm_gbps * (1.0 if resident else memory.vector_hbm_share)
    return 1 / (part / slow + (1 - part) / max(slow, memory.vector_l2_gbps))


def picks_rows(name: str) -> bool:
    """Whether a kernel reads rows picked by index: its cold reads are not a stream."""
    kind = CATALOGUE.get(name)
    return kind.picks_rows if kind else name in _PICKING


def _tiles(work: Work, hw: HardwareProfile, cores: int, compute: float, memory: float) -> tuple[int, Tile]:
    """Tiles that pass the fullest core through half of UB each, and the time of one on each unit, as far as the law
    can separate them; shown, not priced."""
    reads = work.cold_read_bytes + work.warm_read_bytes
    moved = max(1, work.gm_bytes)
    tiles = max(1, ceil(moved / max(1, cores) / (hw.chip.ub_bytes / 2)))
    load, store = memory * reads / moved, memory * work.write_bytes / moved
    return tiles, Tile(round(load / tiles), round(compute / tiles), round(store / tiles))
