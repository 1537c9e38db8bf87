"""Elementwise and broadcasting kernels, as the tiling of compiled (TBE) operators lays them out.

Sources: the elementwise block rule of CANN's auto tiling, version 4 (`elewise_v4`, published with HCCL's reductions
under the CANN Open Software License), and canndev at 9df62e3c `ops/built-in/op_tiling/broadcast_v3.cc` (public copy:
dengguojie/vue-element-admin, branch stp). On A2 and A3 Add, Mul, Cast, Relu, GreaterEqual, LogicalNot, Sin and the
compiler's own fusions (Swish x Mul) follow them, by all block counts at hand. The Ascend C kinds of these operators in
hicann/ops-nn and hicann/ops-math are for later chips (`arch35`) and start a core for each 4 KiB likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

from sim.kernel.tiling.chip import TilingChip
from sim.kernel.tiling.spread import Spread

#: A core takes no less than this of the widest type that the kernel computes with.
CORE_BYTES = 4096

#: Elements of a core are a multiple of this: 128 in the profiles (the source takes it from the compiled operator).
ALIGN = 128

#: Small broadcasts are cut so that cores share evenly; small means this many blocks of 32 bytes a core.
EVEN_BLOCKS = 64


def elementwise(elements: int, widest_bytes: int, chip: TilingChip) -> Spread:
    """Cores of a kernel whose inputs have one shape or are scalars.

    widest_bytes: the widest type of its inputs, outputs and intermediates. BF16 is computed in float (4), and so is
    FP16 in Swish; BOOL in FP16 (2).
    """
    even = ceil(ceil(elements / chip.vector_cores) / ALIGN) * ALIGN
    each = max(1, min(elements, max(even, CORE_BYTES // widest_bytes)))
    used = max(1, ceil(elements / each))
    return Spread(used, used, 0, each)


def broadcast(shape: Sequence[int], out_bytes: int, chip: TilingChip) -> Spread:
    """Cores of a kernel with a broadcast axis; shape: the output's, with axes joined that broadcast alike.

    Axes are taken from the outermost on until the cores run out. Few elements (up to two blocks of 32 bytes a core)
    stay on one core; up to 64 blocks a core, an axis is cut into equal parts if that keeps half of the cores busy.
    """
    cores, block = chip.vector_cores, 32 // out_bytes
    total = prod(shape)
    if total <= 2 * block * cores:
        return Spread(1, 1, shape[0], total)
    even = total <= block * EVEN_BLOCKS * cores
    used, left = 1, cores
    each = list(shape)
    for axis, size in enumerate(shape):
        if size > left:
            parts = _equal_parts(size, left, used, cores // 2) if even else left
            each[axis] = ceil(size / parts)
            used *= ceil(size / each[axis])
            break
        used *= size
        each[axis] = 1
        if even and left % size and used > cores // 2:
            break
        left //= size
    return Spread(used, used, each[0], prod(each))


def _equal_parts(size: int, cores: int, used: int, half: int) -> int:
    """The most parts of equal size for at most `cores`, if that busies more than `half`; else `cores`."""
    parts = next(parts for parts in range(cores, 0, -1) if size % parts == 0)
    return parts if used * parts > half else cores


def on_every_core(elements: int, chip: TilingChip) -> Spread:
    """Kernels that start on all cores whatever their size: Range, MemSet, Index (measured: profiles of A2 and A3)."""
    used = chip.vector_cores
    return Spread(used, max(1, min(used, elements)), 0, ceil(elements / used))
