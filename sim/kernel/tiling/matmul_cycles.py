"""The cycles by which the tiling of small products compares its candidates.

Source: `GemmCycleModelL0c2out`, `GemmCycleEstimate` and `GemmEstimate` of CANN's open gemm tiling, in
cache_tiling_cycle_model.cc, cache_tiling_cycle_est.cc and cache_tiling_est.cc of
src/common/op_host/op_tiling/gemm/estimate (github.com/Hayden727/cann-ops, commit eef0ff7, a copy of
gitee.com/ascend/cann-ops).
"""

from __future__ import annotations

from scenarios.records import dataclass
from sim.kernel.tiling.product import BLOCK, Product, ceil_div

#: Cycles that the conversion of row-major data on its way to L1 takes to start, and a load from L1 to L0.
_ND_TO_NZ_START, _L0_START = 210, 26
#: Bytes a cycle from L1 into L0A and L0B.
_L0A_BYTES, _L0B_BYTES = 256, 128
#: A burst is fetched in packages of 512, 256 and 128 bytes; each takes the time of 512 bytes, at 64 a cycle.
_PACKAGE_BYTES, _PACKAGE_CYCLES = (512, 256, 128), 8


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to lay a product over cores, in blocks.

    m_cores, n_cores: cores along m and n. core_m, core_n: blocks of outputs of a core, padded to whole L1 tiles.
    m_l1, n_l1, ka_l1, kb_l1: blocks of one load into L1. m_l0, n_l0, k_l0: blocks of one step.
    m_loads, n_loads: L1 tiles that a core loads along m and n.
    """

    m_cores: int
    n_cores: int
    core_m: int
    core_n: int
    m_l1: int
    n_l1: int
    ka_l1: int
    kb_l1: int
    m_l0: int
    n_l0: int
    k_l0: int
    m_loads: int
    n_loads: int
    a_buffers: int = 1
    b_buffers: int = 1
    c_buffers: int = 1


@dataclass(frozen=True, slots=True)
class Residency:
    """What of a core's inputs stays in L1: a side as a whole, or only with all of its k."""

    a_full: bool
    b_full: bool
    a_k_full: bool
    b_k_full: bool


def residency(candidate: Candidate, product: Product) -> Residency:
    """What a candidate keeps in L1."""
    k = product.blocks[1]
    a_k, b_k = ceil_div(k, candidate.ka_l1) == 1, ceil_div(k, candidate.kb_l1) == 1
    a_full, b_full = a_k and candidate.m_loads == 1, b_k and candidate.n_loads == 1
    return Residency(a_full, b_full, a_k and not a_full, b_k and not b_full)


@dataclass(frozen=True, slots=True)
class Score:
    """What candidates are compared by."""

    cycles: int
    step: int
    load: int
    l0c: int
    repeats: int
    k_l0: int
    spread: int


def better(new: Score, old: Score, precise: bool) -> bool:
    """Whether a candidate replaces the best one so far.

    Fewer cycles first, then less work in one step, less loading, more of L0C used, and so on. precise: FP32 or bias.
    """
    if new.cycles != old.cycles:
        return new.cycles < old.cycles
    if new.step != old.step:
        return new.step < old.step
    if new.load != old.load:
        return new.load < old.load
    if new.l0c != old.l0c:
        return new.l0c > old.l0c
    if new.repeats < 32 and (old.repeats >= 32 or old.k_l0 > new.k_l0):
        return True
    return precise and new.spread < old.spread


def score(candidate: Candidate, product: Product) -> Score:
    """The score of a candidate."""
    held = residency(candidate, product)
    k = product.blocks[1]
    a_loads, b_loads = _l1_loads(candidate, held)
    return Score(
        cycles=cycles(candidate, product),
        step=candidate.m_l0 * candidate.k_l0 * candidate.n_l0,
        load=k * candidate.core_m * a_loads + k * candidate.core_n * b_loads,
        l0c=candidate.m_l0 * candidate.n_l0 * candidate.c_buffers,
        repeats=_l0_repeats(candidate, product, held),
        k_l0=candidate.k_l0,
        spread=candidate.n_cores * candidate.core_m + candidate.m_cores * candidate.core_n,
    )


def _l1_loads(candidate: Candidate, held: Residency) -> tuple[int, int]:
    """How often a core loads its rows of the left side and its columns of the right side."""
    by_n, by_m = candidate.core_n // candidate.n_l0, candidate.core_m // candidate.m_l0
    if held.a_full and held.b_full:
        return 1, 1
    if held.b_full:
        return by_n, 1
    if held.a_full:
        return (1, 1) if held.b_k_full else (1, by_m)
    if held.a_k_full:
        return 1, by_m
    if held.b_k_full:
        return by_n, 1
    return by_n, by_m


def _l0_repeats(candidate: Candidate, product: Product, held: Residency) -> int:
    """Load instructions into L0, which break ties only."""
    n_tiles = ceil_div(candidate.n_l1, candidate.n_l0)
    plain_a = candidate.ka_l1 == candidate.k_l0 or (not product.trans_a and candidate.k_l0 == 1)
    plain_b = n_tiles == 1 or (product.trans_b and candidate.n_l0 == 1)
    repeat = (1 if plain_a else candidate.m_l0) + (1 if plain_b else candidate.k_l0)
    if held.a_full and held.b_full:
        return repeat
    tiles = ceil_div(candidate.m_l1, candidate.m_l0) * n_tiles
    whole = tiles * (product.blocks[1] // candidate.k_l0) * repeat
    if held.a_full or held.b_full:
        if held.a_k_full or held.b_k_full:
            return whole
    elif held.a_k_full and held.b_k_full:
        return whole
    return min(candidate.ka_l1, candidate.kb_l1) // candidate.k_l0 * repeat


def packages(burst: int, item_bytes: int) -> int:
    """Cycles of one burst of `burst` blocks side by side."""
    rest, count = burst * item_bytes * BLOCK, 0
    for size in _PACKAGE_BYTES:
        count += rest // size
        rest %= size
    return (count + (rest > 0)) * _PACKAGE_CYCLES


def _load_cycles(rows: int, burst: int, whole: int, nz: bool, item_bytes: int) -> int:
    """One load into L1 of `rows` x `burst` blocks, the burst side by side in memory.

    whole: blocks of the matrix along the burst. nz: FRACTAL_NZ, whose bursts run along the rows.
    """
    count, burst = (burst, rows * BLOCK) if nz else (rows * BLOCK, burst)
    low, high = (1, 4) if item_bytes == 4 else (2, 8)
    if low <= burst <= high and whole == burst:
        count, burst = 1, burst * count
    return count * packages(burst, item_bytes) + _ND_TO_NZ_START


def _side_cycles(candidate: Candidate, product: Product) -> tuple[int, int]:
    """Cycles of one load of the left and of the right side into L1."""
    m, k, n = product.blocks
    rows_m = ceil_div(candidate.m_l1, candidate.m_l0) * candidate.m_l0
    rows_n = ceil_div(candidate.n_l1, candidate.n_l0) * candidate.n_l0
    item = product.item_bytes
    if product.trans_a:
        left = _load_cycles(candidate.ka_l1, rows_m, m, product.a_nz, item)
    else:
        left = _load_cycles(rows_m, candidate.ka_l1, k, product.a_nz, item)
    if product.trans_b:
        right = _load_cycles(rows_n, candidate.kb_l1, k, product.b_nz, item)
    else:
        right = _load_cycles(candidate.kb_l1, rows_n, n, product.b_nz, item)
    return left, right


def cycles(candidate: Candidate, product: Product) -> int:
    """The cycles of a core from its first load to its last step; the way out is not counted."""
    step = candidate.m_l0 * candidate.k_l0 * candidate.n_l0 * (2 if product.item_bytes == 4 else 1)
    block_bytes = BLOCK * product.block_k * product.item_bytes
    to_l0a = candidate.m_l0 * candidate.k_l0 * block_bytes // _L0A_BYTES + _L0_START
    to_l0b = candidate.k_l0 * candidate.n_l0 * block_bytes // _L0B_BYTES + _L0_START
    step = max(step, to_l0a, to_l0b)
    left, right = _side_cycles(candidate, product)
    return _nest(candidate, product, residency(candidate, product), left, right, step)


def _nest(candidate: Candidate, product: Product, held: Residency, left: int, right: int, step: int) -> int:
    """The loops of a core, by what stays in L1; loads overlap with steps only where there are two buffers."""
    k = product.blocks[1]
    m_tiles, n_tiles = ceil_div(candidate.m_l1, candidate.m_l0), ceil_div(candidate.n_l1, candidate.n_l0)
    m_outer, n_outer = ceil_div(candidate.core_m, candidate.m_l0), ceil_div(candidate.core_n, candidate.n_l0)
    m_wide, n_wide = (
        ceil_div(candidate.core_m, candidate.m_l0 * m_tiles),
        ceil_div(candidate.core_n, candidate.n_l0 * n_tiles),
    )
    k_steps = ceil_div(k, candidate.k_l0)
    a_steps, b_steps = ceil_div(candidate.ka_l1, candidate.k_l0), ceil_div(candidate.kb_l1, candidate.k_l0)
    a_parts, b_parts = ceil_div(k, candidate.ka_l1), ceil_div(k, candidate.kb_l1)
    if held.a_full and held.b_full:
        return left + right + m_outer * n_outer * k_steps * step
    if held.a_full:
        if held.b_k_full:
            return left + n_wide * (right + m_outer * n_tiles * k_steps * step)
        inner = max(right, b_steps * step) if candidate.b_buffers == 2 else right + b_steps * step
        return left + m_outer * n_outer * b_parts * inner
    if held.b_full:
        if held.a_k_full:
            return right + m_wide * (left * n_outer + n_outer * m_tiles * k_steps * step)
        inner = max(left, a_steps * step) if candidate.a_buffers == 2 else left + a_steps * step
        return right + m_outer * n_outer * a_parts * inner
    if held.a_k_full and held.b_k_full:
        return m_wide * (left + n_outer * m_tiles * (right + n_tiles * k_steps * step))
    if held.a_k_full:
        return m_wide * (left + n_outer * m_tiles * b_parts * max(right, b_steps * step))
    if held.b_k_full:
        return n_wide * (right + m_outer * n_tiles * a_parts * max(left, a_steps * step))
    if candidate.ka_l1 == candidate.kb_l1:
        inner = a_parts * max(left + right, a_steps * step)
    elif candidate.ka_l1 > candidate.kb_l1:
        inner = a_parts * (left + ceil_div(candidate.ka_l1, candidate.kb_l1) * max(right, b_steps * step))
    else:
        inner = b_parts * (right + ceil_div(candidate.kb_l1, candidate.ka_l1) * max(left, a_steps * step))
    return m_outer * n_outer * inner
