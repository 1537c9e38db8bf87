"""Kernels on the vector cores: elementwise, row-wise, copies, gathers, sampling.

    time = start + cores x (core + code) + fixed + rows on a core x row + pipeline(load, compute, store)

Fewer cores start on little work: that is why small kernels cost 1 to 8 us whatever they do. All further cost is in the
tile pipeline of the fullest core.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, log2

from scenarios.ops.catalogue import CATALOGUE
from scenarios.ops.work import FlatShape, RowsShape, Work
from sim.hardware.profile import HardwareProfile
from sim.hardware.sections import KernelParams
from sim.kernel.cost import Cost, start_ns
from sim.kernel.tiles import Tile, uniform_ns
from sim.kernel.traffic import hbm_rate, traffic

#: Parameter sets, of no kind of the catalogue, whose kernels read rows picked by index.
_PICKING = ("gather", "index")


@dataclass(frozen=True, slots=True)
class Layout:
    """How work is laid over cores: cores started, and rows and elements on the fullest of them.

    stretch: elements on the fullest core, relative to an even split.
    """

    cores: int
    rows: int
    elements: float
    stretch: float


def flat_layout(elements: int, grain: int, vector_cores: int) -> Layout:
    """Elements that may be cut anywhere: one core for each `grain`, up to all."""
    cores = max(1, min(vector_cores, ceil(elements / max(1, grain))))
    return Layout(cores, 0, elements / cores, 1.0)


def row_layout(rows: int, cols: int, cores_per_row: int, vector_cores: int) -> Layout:
    """Whole rows to cores (or to teams of cores): the fullest takes ceil(rows / teams)."""
    team = max(1, cores_per_row)
    teams = max(1, min(vector_cores // team, rows))
    each = ceil(rows / teams)
    return Layout(teams * team, each, each * cols / team, each * teams / max(1, rows))


def vector_cost(work: Work, hw: HardwareProfile, params: KernelParams, repeat: bool, resident: bool) -> Cost:
    """The cost of a flat or row-wise kernel; `repeat` and `resident` as in `sim.kernel.price.price`."""
    shape, cores = work.shape, hw.chip.vector_cores
    if isinstance(shape, FlatShape):
        return layout_cost(work, hw, params, flat_layout(shape.elements, params.grain, cores), repeat, resident)
    assert isinstance(shape, RowsShape)
    if work.program == "sort":
        # A merge sort passes log2(columns) times over its row.
        passes = max(1.0, log2(max(2, shape.cols)))
        layout = row_layout(shape.rows, shape.cols, params.cores_per_row, cores)
        layout = Layout(layout.cores, layout.rows, layout.elements * passes, layout.stretch)
        return layout_cost(work, hw, params, layout, repeat, resident)
    if _picks_rows(work.program) and params.grain:
        layout = flat_layout(shape.rows * shape.cols, params.grain, cores)
        return layout_cost(work, hw, params, layout, repeat, resident)
    by_row = row_layout(shape.rows, shape.cols, params.cores_per_row, cores)
    if not params.grain:
        return layout_cost(work, hw, params, by_row, repeat, resident)
    # A reduction may also give each row in turn to all cores and join their results: better for few long rows.
    team = max(1, min(cores, ceil(shape.cols / params.grain)))
    spread = Layout(team, shape.rows, shape.rows * shape.cols / team, 1.0)
    alone = replace(params, row_us=0.0)
    return min(
        layout_cost(work, hw, alone, by_row, repeat, resident),
        layout_cost(work, hw, params, spread, repeat, resident),
        key=lambda cost: cost.total_ns,
    )


def _picks_rows(name: str) -> bool:
    """Whether a kernel reads rows picked by index: its cold reads are not a stream."""
    kind = CATALOGUE.get(name)
    return kind.picks_rows if kind else name in _PICKING


def layout_cost(
    work: Work, hw: HardwareProfile, params: KernelParams, layout: Layout, repeat: bool, resident: bool
) -> Cost:
    """The cost of `work` laid over cores as `layout` says."""
    kernel, memory, cores = hw.kernel, hw.memory, layout.cores
    head = start_ns(hw, params, cores, repeat) + 1000 * layout.rows * params.row_us
    split = traffic(work, hw, resident)
    reads, writes = split.hbm_read + split.l2_read, split.hbm_write + split.l2_write
    shared = max(split.hbm / hbm_rate(cores, hw), reads / memory.l2_read_gbps + writes / memory.l2_write_gbps)
    each = layout.stretch / cores
    pieces = work.pieces / 2 * each * kernel.piece_ns
    if _picks_rows(work.program):
        # Rows from all over a table: each core waits for each of them, whatever HBM could give to a stream.
        shared += split.hbm_read * each / memory.core_random_gbps
    load = max(reads * each / memory.core_l2_gbps, shared if reads else 0.0) + pieces
    store = max(writes * each / memory.core_write_gbps, 0.0 if reads else shared) + pieces
    cycle_ns = 1000 / hw.chip.clock_mhz
    lanes = hw.chip.vector_bytes / 4
    compute = work.vector_ops * each * kernel.register_cycles * cycle_ns / lanes + layout.elements * params.element_ns
    tiles = max(1, ceil((reads + writes) * each / (hw.chip.ub_bytes / 2)), ceil(work.pieces / 2 * each))
    tile = Tile(round(load / tiles), round(compute / tiles), round(store / tiles))
    body = uniform_ns(tiles, tile, params.buffers)
    return Cost(head, float(body), cores, compute, max(load, store), split.hbm, tiles=tiles, tile=tile)
