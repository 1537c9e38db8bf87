"""A product fused with its all-reduce (MC2): rows are reduced over the ranks while later rows are multiplied.

The kernel cuts its rows into pieces. The cube cores go through all of them without a stop; a partner on the AI CPU,
started with the kernel, is reported of each piece that is complete and has copy engines reduce it:

    start of reduction i = max(end of product i + hand-over, end of reduction i - 1), the first not before the partner
                           has started
    time = end of the last reduction = at best first product + the greater of the two sums + last reduction

Each piece pays: its product reads the weights again (from L2 as far as they are still there) and fills the cores again,
its reduction all steps of its algorithm, and the hand-over. So many pieces hide more and cost more. What runs side by
side shares HBM. The product of one piece does not wait for other ranks, so if all ranks meet at the kernel's start
instead of at its first reduction it ends no later.

A library's tiling engine picks the pieces: at most 16 (its task queue's depth) of tiles of 128 rows, even but for a
short first one where reducing takes longer, a short last one where multiplying does (CANN's MMPlusAllReduce). Here the
fastest stands for its choice. Assumed: a hand-over costs what a step of a collective made of copies costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from scenarios.ops.pieces import row_pieces
from scenarios.ops.work import MatmulCollectiveShape, MatmulShape, Work
from scenarios.records import dataclass
from sim.collective import CollectiveTime, price_collective
from sim.collective.links import Mode, start_ns
from sim.hardware.profile import HardwareProfile
from sim.hardware.sections import KernelParams
from sim.kernel.cost import Cost
from sim.kernel.matmul import matmul_cost

#: Pieces at most, and rows of the smallest (CANN's tiling of the kernel).
MAX_PIECES = 16
TILE_ROWS = 128
#: Rows of a short first or last piece that are tried.
SHORT_ROWS = (128, 256, 512, 1024)
#: Who moves the bytes: the kernel's partner on the AI CPU.
MODE: Mode = "AI_CPU"


@dataclass(frozen=True, slots=True)
class Fused:
    """One way to cut the kernel. Times in ns.

    first_ns: until the first reduction starts. product_ns, reduction_ns: sums over the pieces. cost: of the product as
    one kernel: what its cores and bytes are.
    """

    pieces: int
    total_ns: float
    first_ns: float
    product_ns: float
    reduction_ns: float
    hbm_bytes: float
    cost: Cost


def product_of(work: Work, shape: MatmulCollectiveShape) -> Work:
    """The product alone."""
    whole = shape.collective.bytes
    return replace(
        work, shape=shape.matmul, warm_read_bytes=work.warm_read_bytes - whole, write_bytes=work.write_bytes - whole
    )


def piece_of(product: Work, rows: int, first: bool) -> Work:
    """`rows` rows of a product. All but the first find its weights in L2 as far as they fit it next to the piece."""
    shape = product.shape
    assert isinstance(shape, MatmulShape)
    read, written = (part * rows // shape.m for part in (product.warm_read_bytes, product.write_bytes))
    piece = replace(
        product,
        shape=replace(shape, m=rows),
        cube_flops=product.cube_flops * rows // shape.m,
        warm_read_bytes=read,
        write_bytes=written,
    )
    if first:
        return piece
    weights = product.cold_read_bytes
    return replace(piece, prefetched_bytes=weights, prefetched_together_bytes=weights + read + written)


def fastest(product: Work, shape: MatmulCollectiveShape, hw: HardwareProfile, params: KernelParams) -> Fused:
    """The fastest cut."""
    return min(
        (cut(product, shape, hw, params, sizes) for sizes in cuts(shape.matmul.m)), key=lambda value: value.total_ns
    )


def cuts(rows: int) -> tuple[tuple[int, ...], ...]:
    """Even pieces; and a short one before even ones (where reducing takes longer, it can start early) or behind them
    (where multiplying does, little is left to reduce)."""
    fromkeys = dict.fromkeys(row_pieces(rows, n, TILE_ROWS) for n in range(1, MAX_PIECES + 1))
    for short in SHORT_ROWS:
        for n in range(1, MAX_PIECES if rows >= 2 * short else 1):
            rest = row_pieces(rows - short, n, TILE_ROWS)
            fromkeys |= {(short, *rest): None, (*rest, short): None}
    return tuple(fromkeys)


def cut(
    product: Work, shape: MatmulCollectiveShape, hw: HardwareProfile, params: KernelParams, sizes: Sequence[int]
) -> Fused:
    """The kernel cut into pieces of `sizes` rows."""
    priced = [_piece(product, shape, rows, i == 0, hw, params) for i, rows in enumerate(sizes)]
    products = [cost.total_ns if i == 0 else cost.body_ns for i, (cost, _) in enumerate(priced)]
    partner_ns, hand_over_ns = start_ns(MODE, False, hw), 1000 * hw.collective.step_us
    reductions = [moved.duration_ns - partner_ns for _, moved in priced]
    product_bytes, moved_bytes = (sum(part.hbm_bytes for part in side) for side in zip(*priced, strict=True))
    product_ns, reduction_ns = sum(products), sum(reductions)
    slower = _hbm_slows(product_bytes / product_ns, moved_bytes / max(1.0, reduction_ns), hw)
    computed, done, first = 0.0, partner_ns, 0.0
    for i, (multiplied, reduced) in enumerate(zip(products, reductions, strict=True)):
        computed += multiplied * (slower if i else 1.0)  # nothing is reduced next to the first product
        start = max(computed + hand_over_ns, done)
        done = start + reduced * (slower if i + 1 < len(sizes) else 1.0)
        first = first or start
    return Fused(
        len(sizes),
        done,
        first_ns=first,
        product_ns=product_ns,
        reduction_ns=reduction_ns,
        hbm_bytes=product_bytes + moved_bytes,
        cost=priced[0][0],
    )


@lru_cache(maxsize=4096)
def _piece(
    product: Work, shape: MatmulCollectiveShape, rows: int, first: bool, hw: HardwareProfile, params: KernelParams
) -> tuple[Cost, CollectiveTime]:
    """What a piece's product and its reduction cost alone: many cuts share a piece."""
    cost = matmul_cost(piece_of(product, rows, first), hw, params, code="cold" if first else "twin", resident=False)
    whole = shape.collective
    return cost, price_collective("all_reduce", whole.bytes * rows // shape.matmul.m, whole.ranks, hw, MODE)


def _hbm_slows(product_gbps: float, moved_gbps: float, hw: HardwareProfile) -> float:
    """How much longer a product and a reduction take side by side where together they want more than HBM gives."""
    return max(1.0, (product_gbps + moved_gbps) / hw.memory.hbm_gbps)
