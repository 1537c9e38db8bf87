"""The tiling of products that are too small for basic blocks: all layouts over the cores, compared by cycles.

Three families: the left side stays in L1, the right side stays in L1, neither stays. FP32 and bias add a fourth: both.
Source: `FastFindParams` and what it calls in src/common/op_host/op_tiling/cache_tiling.cc
(github.com/Hayden727/cann-ops, commit eef0ff7, a copy of gitee.com/ascend/cann-ops); the chips of this project take its
"l0c2out" branches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from scenarios.records import dataclass
from sim.kernel.tiling.chip import TilingChip
from sim.kernel.tiling.matmul_cycles import Candidate, Score, better, residency, score
from sim.kernel.tiling.product import BLOCK, Product, align, ceil_div

#: Layouts on fewer cores are not tried where a side stays in L1.
MIN_CORES = 16
#: The padding of a side may grow it by this factor: whole blocks, or any size.
_MAX_GROWTH, _MAX_GROWTH_UNALIGNED = 1.35, 3.0
#: Blocks of outputs that L0C holds.
_L0C_BLOCKS = 128


@dataclass(frozen=True, slots=True)
class _Limits:
    """Preferred sizes in blocks, by element size. line: blocks of k in 512 bytes."""

    line: int
    long_line: int
    l0: int
    n_l0: int
    k_l0: int
    kb_l1: int
    m_outer: int


_BY_ITEM_BYTES = {
    1: _Limits(32, 64, l0=64, n_l0=32, k_l0=8, kb_l1=2, m_outer=4),
    2: _Limits(16, 32, l0=64, n_l0=16, k_l0=4, kb_l1=4, m_outer=8),
    4: _Limits(8, 16, l0=32, n_l0=8, k_l0=2, kb_l1=8, m_outer=16),
}
_M_L0 = _OUTER = 8


def find(product: Product, chip: TilingChip) -> Candidate | None:
    """The best layout, or None where no candidate fits."""
    best: Candidate | None = None
    best_score: Score | None = None
    precise = product.item_bytes == 4 or product.bias
    for candidate in _candidates(product, chip):
        scored = score(candidate, product)
        if best_score is None or _replaces(product, candidate, scored, best_score, precise):
            best, best_score = candidate, scored
    return best


def _replaces(product: Product, candidate: Candidate, new: Score, old: Score, precise: bool) -> bool:
    return better(new, old, precise) or _edge_case(product, candidate, new, old)


def _edge_case(product: Product, candidate: Candidate, new: Score, old: Score) -> bool:
    """Of equally fast layouts of ragged matrices, the one with more cores along the ragged side is taken."""
    if product.aligned or new.cycles != old.cycles:
        return False
    by_m = product.trans_a and product.m % BLOCK != 0 and candidate.m_cores > candidate.n_cores > 1
    by_n = not product.trans_b and product.n % BLOCK != 0 and candidate.n_cores > candidate.m_cores > 1
    return by_m or by_n


def _candidates(product: Product, chip: TilingChip) -> Iterator[Candidate]:
    m, k, n = product.blocks
    if product.item_bytes == 4 or product.bias:
        yield from _both_stay(product, chip)
    if _fits_l1(k * ceil_div(m, chip.cube_cores) + 1, product, chip, int(product.bias)):
        yield from _left_stays(product, chip)
    if _fits_l1(k * ceil_div(n, chip.cube_cores) + 1, product, chip, int(product.bias)):
        yield from _right_stays(product, chip)
    yield from _none_stays(product, chip)


def _fits_l1(blocks: int, product: Product, chip: TilingChip, extra_bytes: int = 0) -> bool:
    return blocks * BLOCK * product.block_k * product.item_bytes + extra_bytes <= chip.l1_bytes


def _bias_bytes(product: Product, n_l1: int) -> int:
    """L1 that a 4-byte bias takes."""
    return 4 * n_l1 * BLOCK if product.bias else 0


def _k_bound(product: Product, k_l1: int, left: bool) -> int:
    """Blocks of k reserved for one load; FP32 loads that are transposed on the way need an even number."""
    if product.item_bytes != 4:
        return k_l1
    even = product.trans_a if left else product.trans_a or not product.trans_b
    step = 2 if even else 1
    rest = product.k - k_l1 * product.block_k
    either = 2 if product.trans_a or not product.trans_b else 1
    if rest % (step * product.block_k) == 0 or product.blocks[1] % either == 0:
        return align(k_l1, step)
    return align(k_l1 + 1, step)


def _grown(blocks: int, cores: int, line: int) -> int | None:
    """A core's share, rounded to whole lines; None where another core would go without."""
    share = ceil_div(blocks, cores)
    if cores == 1:
        return share
    largest = max(ceil_div(blocks, cores - 1) - 1, share)
    return align(share, line) if align(share, line) <= largest else None


def _finish(product: Product, chip: TilingChip, draft: Candidate) -> Candidate | None:
    """The candidate with its padding and buffers, or None where it wastes too much or does not fit."""
    m, _, n = product.blocks
    if product.item_bytes == 1:
        narrowed = _int8_step(product, draft)
        if narrowed is None:
            return None
        draft = narrowed
    m_loads = ceil_div(ceil_div(m, draft.m_cores), draft.m_l1)
    n_loads = ceil_div(ceil_div(n, draft.n_cores), draft.n_l1)
    core_m, core_n = min(m_loads * draft.m_l1, m), min(n_loads * draft.n_l1, n)
    m_cores, n_cores = ceil_div(m, core_m), ceil_div(n, core_n)
    growth = _MAX_GROWTH if product.aligned else _MAX_GROWTH_UNALIGNED
    if draft.m_l1 * m_loads * m_cores / m >= growth or draft.n_l1 * n_loads * n_cores / n >= growth:
        return None
    bound = _k_bound(product, draft.ka_l1, True), _k_bound(product, draft.kb_l1, False)
    extra = _bias_bytes(product, draft.n_l1)
    if not _fits_l1(draft.m_l1 * bound[0] + draft.n_l1 * bound[1], product, chip, extra):
        return None
    limit = _BY_ITEM_BYTES[product.item_bytes].l0
    if max(draft.m_l0, draft.n_l0) * draft.k_l0 > limit or draft.m_l0 * draft.n_l0 > _L0C_BLOCKS:
        return None
    done = replace(
        draft, m_cores=m_cores, n_cores=n_cores, core_m=core_m, core_n=core_n, m_loads=m_loads, n_loads=n_loads
    )
    return _buffered(product, chip, done, *bound)


def _int8_step(product: Product, draft: Candidate) -> Candidate | None:
    """INT8 sides that are transposed on the way come in pairs of blocks; a step's inputs fill at most half of L0."""
    by_m, by_n = (2 if product.trans_a else 1), (1 if product.trans_b else 2)
    m_l1, n_l1 = align(draft.m_l1, by_m), align(draft.n_l1, by_n)
    m_l0, n_l0 = align(draft.m_l0, by_m), align(draft.n_l0, by_n)
    m_parts, n_parts = m_l1 // m_l0, n_l1 // n_l0
    while draft.k_l0 * (m_l0 + n_l0) > _L0C_BLOCKS:
        if n_l0 >= m_l0:
            n_l0 -= by_n
        else:
            m_l0 -= by_m
    if m_l0 <= 0 or n_l0 <= 0:
        return None
    return replace(draft, m_l1=m_l0 * m_parts, n_l1=n_l0 * n_parts, m_l0=m_l0, n_l0=n_l0)


def _buffered(product: Product, chip: TilingChip, done: Candidate, ka: int, kb: int) -> Candidate:
    """Two buffers wherever they fit."""
    left = ceil_div(done.m_l1, done.m_l0) * done.m_l0 * ka
    right = ceil_div(done.n_l1, done.n_l0) * done.n_l0 * kb
    extra = _bias_bytes(product, done.n_l1)
    held = residency(done, product)
    a = b = 1
    if held.a_full or held.b_full:
        if not (held.a_full and held.b_full):
            b = 2 if held.a_full and _fits_l1(left + 2 * right, product, chip, 2 * extra) else 1
            a = 2 if held.b_full and _fits_l1(2 * left + right, product, chip, extra) else 1
    elif _fits_l1(2 * left + 2 * right, product, chip, 2 * extra):
        a = b = 2
    elif _fits_l1(2 * left + right, product, chip, 2 * extra):
        a = 2
    elif _fits_l1(left + 2 * right, product, chip, 2 * extra):
        b = 2
    c = 2 if 2 * done.m_l0 * done.n_l0 <= _L0C_BLOCKS else 1
    return replace(done, a_buffers=a, b_buffers=b, c_buffers=c)


def _draft(m_cores: int, n_cores: int, l1: tuple[int, int, int, int], l0: tuple[int, int, int]) -> Candidate:
    """A candidate of m, n, ka, kb in L1 and m, n, k in L0."""
    m_l1, n_l1, ka_l1, kb_l1 = l1
    m_l0, n_l0, k_l0 = l0
    return Candidate(
        m_cores=m_cores,
        n_cores=n_cores,
        core_m=0,
        core_n=0,
        m_l1=m_l1,
        n_l1=n_l1,
        ka_l1=ka_l1,
        kb_l1=kb_l1,
        m_l0=m_l0,
        n_l0=n_l0,
        k_l0=k_l0,
        m_loads=1,
        n_loads=1,
    )


def _largest_divisor(value: int, start: int) -> int:
    """The largest divisor of `value` that is at most `start`."""
    return next(d for d in range(start, 0, -1) if value % d == 0)


def _both_stay(product: Product, chip: TilingChip) -> Iterator[Candidate]:
    """All of a core's inputs in L1 at once."""
    m, k, n = product.blocks
    lim = _BY_ITEM_BYTES[product.item_bytes]
    for n_cores in range(1, min(chip.cube_cores, n) + 1):
        for m_cores in range(1, min(chip.cube_cores // n_cores, m) + 1):
            m_l1, n_l1 = ceil_div(m, m_cores), ceil_div(n, n_cores)
            ragged_b = not product.trans_b and n_l1 % lim.line and n_cores != 1
            ragged_a = product.trans_a and m_l1 % lim.line and m_cores != 1
            if ragged_a or ragged_b:
                continue
            n_l0 = _largest_divisor(n_l1, min(n_l1, lim.n_l0))
            m_l0 = _largest_divisor(m_l1, min(m_l1, _M_L0))
            k_l0 = _largest_divisor(k, min(lim.l0 // n_l0, lim.l0 // m_l0, k))
            done = _finish(product, chip, _draft(m_cores, n_cores, (m_l1, n_l1, k, k), (m_l0, n_l0, k_l0)))
            if done:
                yield done


def _left_stays(product: Product, chip: TilingChip) -> Iterator[Candidate]:
    """A core's rows of the left side stay in L1 with all of k."""
    m, _, n = product.blocks
    lim = _BY_ITEM_BYTES[product.item_bytes]
    for m_cores in range(1, min(chip.cube_cores, m) + 1):
        if m <= 8 and m_cores > 1:
            return
        for n_cores in range(ceil_div(MIN_CORES, m_cores), min(chip.cube_cores // m_cores, n) + 1):
            draft = _left_draft(product, chip, lim, m_cores, n_cores)
            done = _finish(product, chip, draft) if draft else None
            if done:
                yield done


def _left_draft(product: Product, chip: TilingChip, lim: _Limits, m_cores: int, n_cores: int) -> Candidate | None:
    m, k, n = product.blocks
    precise = product.item_bytes == 4 or product.bias
    if product.trans_a and ceil_div(m, m_cores) % lim.line and m_cores != 1 and precise:
        return None
    m_l1 = _grown(m, m_cores, lim.line)
    if m_l1 is None:
        return None
    ka, kb = _k_bound(product, k, True), _k_bound(product, k, False)
    if not _fits_l1(m_l1 * ka + 1, product, chip, int(product.bias)):
        return None
    if product.trans_a and m_l1 < 8 and m_cores != 1:
        return None
    if m_l1 > lim.line and m_l1 % _M_L0:
        return None
    m_l0 = m_l1 if m_l1 <= lim.line else _M_L0
    n_l0 = min(ceil_div(n, n_cores), lim.n_l0)
    k_l0 = _largest_divisor(k, min(lim.l0 // m_l0, lim.l0 // n_l0, k))
    line_fits = _fits_l1(m_l1 * ka + lim.line * n_l0, product, chip, _bias_bytes(product, n_l0))
    full_line = product.trans_b and k % lim.line == 0 and lim.line % k_l0 == 0 and line_fits
    kb_l1 = lim.line if full_line else k_l0
    # The bound was taken before kb was chosen; what is checked is L1 with two loads of the right side.
    if not _fits_l1(m_l1 * ka + 2 * min(kb, _k_bound(product, k_l0, False)) * n_l0, product, chip):
        return None
    return _draft(m_cores, n_cores, (m_l1, n_l0, k, kb_l1), (m_l0, n_l0, k_l0))


def _right_stays(product: Product, chip: TilingChip) -> Iterator[Candidate]:
    """A core's columns of the right side stay in L1 with all of k."""
    m, _, n = product.blocks
    lim = _BY_ITEM_BYTES[product.item_bytes]
    for n_cores in range(1, min(chip.cube_cores, n) + 1):
        if n <= lim.line and n_cores > 1:
            return
        for m_cores in range(ceil_div(MIN_CORES, n_cores), min(chip.cube_cores // n_cores, m) + 1):
            draft = _right_draft(product, chip, lim, m_cores, n_cores)
            done = _finish(product, chip, draft) if draft else None
            if done:
                yield done


def _right_draft(product: Product, chip: TilingChip, lim: _Limits, m_cores: int, n_cores: int) -> Candidate | None:
    m, k, n = product.blocks
    precise = product.item_bytes == 4 or product.bias
    if not product.trans_b and ceil_div(n, n_cores) % lim.line and n_cores != 1 and precise:
        return None
    n_l1 = _grown(n, n_cores, lim.line)
    kb = _k_bound(product, k, False)
    if n_l1 is None or not _fits_l1(n_l1 * kb + 1, product, chip, int(product.bias)):
        return None
    if n_l1 > lim.line and n_l1 % lim.n_l0:
        return None
    n_l0 = n_l1 if n_l1 <= lim.line else lim.n_l0
    core_m = ceil_div(m, m_cores)
    m_l1 = m_l0 = min(core_m, _M_L0)
    k_l0 = _largest_divisor(k, min(lim.l0 // n_l0, lim.l0 // m_l0, k))
    extra = _bias_bytes(product, n_l1)
    line_fits = _fits_l1(2 * m_l1 * lim.line + n_l1 * kb, product, chip, extra)
    full_line = not product.trans_a and k % lim.line == 0 and lim.line % k_l0 == 0 and line_fits
    ka_l1 = lim.line if full_line else k_l0
    ka = _k_bound(product, ka_l1, True)
    if core_m >= lim.line and _fits_l1(2 * lim.line * ka + n_l1 * kb, product, chip, extra):
        if ka_l1 == k:
            m_l1 = lim.line
        if lim.line * k_l0 <= lim.l0 and lim.line * n_l0 <= _L0C_BLOCKS:
            m_l1 = m_l0 = lim.line
    if not _fits_l1(2 * m_l1 * ka + n_l1 * kb, product, chip, extra):
        return None
    return _draft(m_cores, n_cores, (m_l1, n_l1, ka_l1, k), (m_l0, n_l0, k_l0))


def _none_stays(product: Product, chip: TilingChip) -> Iterator[Candidate]:
    """Neither side stays: cores along n first, the rest along m in shares of whole lines."""
    m, _, n = product.blocks
    lim = _BY_ITEM_BYTES[product.item_bytes]
    for n_cores in range(1, min(chip.cube_cores, n) + 1):
        m_cores = min(chip.cube_cores // n_cores, m)
        if not product.a_nz and (product.trans_a or m_cores != m):
            m_cores = _whole_lines(m, m_cores)
        draft = _plain_draft(product, chip, lim, m_cores, n_cores)
        done = _finish(product, chip, draft) if draft else None
        if done:
            yield done


def _whole_lines(blocks: int, cores: int) -> int:
    """Cores along a side whose shares are multiples of eight blocks, or of four where eight would double them."""
    share = ceil_div(blocks, cores)
    rounded = align(share, 8)
    if rounded // share >= 2:
        rounded = align(share, 4)
    return ceil_div(blocks, rounded)


def _preferred(blocks: int, cores: int, preferred: int, line: int) -> int | None:
    """An L1 tile along a side: the preferred size, shrunk until no core goes without."""
    share = ceil_div(blocks, cores)
    largest = share if cores == 1 else max(share, ceil_div(blocks, cores - 1) - 1)
    tile = min(share, preferred)
    while cores != 1 and align(share, tile) > largest:
        tile -= 1
    if preferred == line and tile % _M_L0 and share >= line:
        return None
    return tile


def _plain_draft(product: Product, chip: TilingChip, lim: _Limits, m_cores: int, n_cores: int) -> Candidate | None:
    m, k, n = product.blocks
    if not product.aligned and not product.trans_a and product.trans_b and _OUTER < k < lim.line:
        k = lim.line
    few = not product.trans_b and n_cores == 1 and 1 < n <= 8
    n_l1 = n if few else _preferred(n, n_cores, _OUTER if product.trans_b else lim.line, lim.line)
    m_l1 = _preferred(m, m_cores, lim.line if product.trans_a else lim.m_outer, lim.line)
    if n_l1 is None or m_l1 is None:
        return None
    ka = kb = k
    if not few or not _fits_l1((m_l1 + n_l1) * k, product, chip, _bias_bytes(product, n_l1)):
        ka, kb = _plain_k(product, lim, k, n_l1 if few else None)
    if few and kb > ka and not product.trans_a and kb % product.block_k == 0:
        ka = kb
    kb = kb // ka * ka if kb > ka else kb
    ka = ka // kb * kb if ka > kb else ka
    m_l0, n_l0 = m_l1, n_l1
    if m_l0 == n_l0 == 16:
        m_l0 = 8
        m_l1 = m_l0 if k != ka else m_l1
    smallest = min(ka, kb)
    k_l0 = lim.k_l0 if smallest >= lim.k_l0 else k
    if few and max(m_l0, n_l0) * smallest <= lim.l0:
        k_l0 = smallest
    m_l1 = _taller(product, lim, m_cores=m_cores, k=k, ka=ka, m_l0=m_l0, m_l1=m_l1)
    k_max = min(ceil_div(lim.l0, m_l0), ceil_div(lim.l0, n_l0))
    deeper = next((i for i in range(k_l0 + 1, k_max + 1) if k_max % i == 0 and ka % i == 0), None)
    if deeper:
        k_l0, kb = deeper, max(deeper, kb)
    k_l0 = _largest_divisor(kb, k_l0)
    return _draft(m_cores, n_cores, (m_l1, n_l1, ka, kb), (m_l0, n_l0, k_l0))


def _plain_k(product: Product, lim: _Limits, k: int, few_n: int | None) -> tuple[int, int]:
    """Blocks of k in one load of either side: a 512-byte line where k lies side by side."""
    ka, kb = min(k, _OUTER), min(k, lim.kb_l1)
    line = lim.long_line if not product.aligned and k >= lim.long_line else lim.line
    if few_n is not None:
        merged = min(256 // few_n, k)
        if merged == k and merged % lim.k_l0 == 0:
            kb = merged // ka * ka
    elif product.trans_b and k >= line:
        kb = line
    if not product.trans_a and k >= line:
        ka = line
    return ka, kb


def _taller(product: Product, lim: _Limits, m_cores: int, k: int, ka: int, m_l0: int, m_l1: int) -> int:
    """Where all of k is loaded at once, more rows are loaded with it."""
    if ka != k or product.trans_a:
        return m_l1
    m = product.blocks[0]
    low = max(ceil_div(lim.l0, ka), m_l1)
    return next((i for i in range(low, min(2 * low, ceil_div(m, m_cores)) + 1, m_l0) if m % i == 0), m_l1)
