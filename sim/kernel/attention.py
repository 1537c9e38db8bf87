"""Fused attention, laid over the AI cores as CANN's published tiling does. Three programs, each with its own numbers.

Decode from a static cache (IncreFlashAttention; `static_tokens`): a task is one request and one KV head on one vector
core; where tasks are few its keys are cut into parts. The two vector cores of a cube share what loads for them, so

    time = start + keys of the fullest cube x time of a key

It gets a mask and no lengths: it reads the whole cache.

Decode over actual lengths (FusedInferAttentionScore, packed; MLA's absorbed decode) starts on all cores, every core
walks the list of requests, and keys are spread evenly:

    time = start + requests x time of a request + keys of all heads / cores x time of a key

MLA reads 576 + 512 elements of a key. That keys of few requests are cut is inferred: two decode steps of Qwen3-32B with
4 and 16 requests of 4,864 tokens differ by 37 us a layer in computing, which tasks that are not cut cannot explain.

Prefill: blocks of 128 queries of one head go to the cores; a causal mask leaves out what a block does not see:

    time = start + blocks of the fullest core x mean keys of a block x 128 x time of a score

No program beats HBM, and a static cache whose layer exceeds L2 streams at `far_kv_gbps`.
"""

from __future__ import annotations

from math import ceil

from scenarios.ops.program import DTYPE_BITS, Group
from scenarios.ops.work import AttentionShape, Work
from sim.hardware.profile import HardwareProfile
from sim.hardware.sections import KernelParams
from sim.kernel.cost import Cost
from sim.kernel.tiling.chip import tiling_chip
from sim.kernel.tiling.decode_attention import Decode, decode_tiling
from sim.kernel.time import Code
from sim.kernel.traffic import hbm_rate, traffic

#: Queries of one head that a core takes at once in prefill: 64 for each of its two vector cores.
BLOCK_QUERIES = 128
#: Requests with at most this many new tokens take the decode path (a token and its speculated successors).
DECODE_QUERY = 16
#: Elements that MLA reads again as values (its latent part), of a row of 576.
MLA_VALUES = 512
#: Head sizes above this take proportionally longer for a score: 128 elements hide behind the softmax, 256 do not.
HIDDEN_DIM = 128


def is_decode(group: Group) -> bool:
    return group.query <= DECODE_QUERY


def attention_cost(work: Work, hw: HardwareProfile, params: KernelParams, code: Code, resident: bool) -> Cost:
    """The cost of fused attention over all groups; `code` and `resident` as in `sim.kernel.price.price`."""
    shape, chip = work.shape, hw.chip
    assert isinstance(shape, AttentionShape)
    split = traffic(work, hw, resident)
    decoding = all(is_decode(g) for g in shape.groups)
    if decoding and shape.static_tokens:
        cores, busy = static_decode_ns(shape, hw, params)
    else:
        latent = work.program == "mla_attention"
        cores, busy = chip.cube_cores, sum(_group_ns(g, shape, hw, params, latent) for g in shape.groups)
    multiply = work.cube_flops / (chip.cube_flops_per_ns * cores / chip.cube_cores) / hw.kernel.cube_efficiency
    far = shape.static_tokens > 0 and work.cold_read_bytes > chip.l2_bytes
    rate = min(hw.memory.far_kv_gbps if far else hw.memory.hbm_gbps, hbm_rate(cores, hw))
    stream = split.hbm / rate
    requests = sum(g.count for g in shape.groups if is_decode(g))
    walk = 0.0 if shape.static_tokens else 1000 * params.row_us * requests
    return Cost(
        1000 * params.fixed_us + walk, max(busy, stream, multiply), cores, multiply, max(stream, busy), split.hbm
    )


def static_decode_ns(shape: AttentionShape, hw: HardwareProfile, params: KernelParams) -> tuple[int, float]:
    """(cores, ns of the fullest cube) over a static cache."""
    requests = sum(g.count * g.query for g in shape.groups)
    decode = Decode(requests, shape.heads, shape.kv_heads, shape.head_dim, shape.static_tokens, half=True)
    tiling = decode_tiling(decode, tiling_chip(hw.chip))
    tasks = tiling.waves * (1 if tiling.cores == tiling.workers else 2)
    keys = ceil(shape.static_tokens / tiling.parts)
    return tiling.cores, tasks * (1000 * params.row_us + keys * key_ns(shape, hw, params, 2 * shape.head_dim))


def key_ns(shape: AttentionShape, hw: HardwareProfile, params: KernelParams, elements: int) -> float:
    """One key of one KV head on a core: its elements (K and V), those of 8 bit unpacked on the vector cores."""
    moved = elements * params.element_ns * DTYPE_BITS[shape.kv_dtype] / 16
    if shape.kv_dtype not in ("int8", "int4"):
        return moved
    cycle_ns = 1000 / hw.chip.clock_mhz
    return moved + elements * 3 * hw.kernel.register_cycles * cycle_ns / (hw.chip.vector_bytes / 4) / 2


def _group_ns(group: Group, shape: AttentionShape, hw: HardwareProfile, params: KernelParams, latent: bool) -> float:
    """One group on the fullest core: decode by keys, prefill by blocks of queries."""
    cores = hw.chip.cube_cores
    if is_decode(group):
        prefill = params is hw.programs["attention_prefill"]  # requests that decode in the batch of one that does not
        elements = shape.head_dim + MLA_VALUES if latent else 2 * shape.head_dim
        keys = group.count * shape.kv_heads * group.kv_len / cores
        return keys * key_ns(shape, hw, hw.programs["attention"] if prefill else params, elements)
    blocks = group.count * shape.heads * ceil(group.query / BLOCK_QUERIES)
    keys = group.context + (group.query + 1) / 2
    rows = min(BLOCK_QUERIES, group.query)
    # Under a causal mask long and short blocks are paired and dealt evenly; else whole blocks are.
    fullest = max(blocks / cores, 1.0) if group.context < group.query else float(ceil(blocks / cores))
    return fullest * keys * rows * params.element_ns * max(1.0, shape.head_dim / HIDDEN_DIM)
