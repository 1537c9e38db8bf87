"""Fused attention, laid over the AI cores as CANN's published tiling does. Three programs, each with its own numbers.

Decode from a static cache (IncreFlashAttention; `static_tokens`) is another program: `sim.kernel.static_attention`.

Decode over actual lengths (FusedInferAttentionScore, packed; MLA's absorbed decode) starts on all cores, every core
walks the list of requests, and keys are spread evenly:

    time = start + requests x time of a request + keys of all heads / cores x time of a key

MLA reads 576 + 512 elements of a key. That keys of few requests are cut is inferred: two decode steps of Qwen3-32B with
4 and 16 requests of 4,864 tokens differ by 37 us a layer in computing, which tasks that are not cut cannot explain.

Prefill: blocks of 128 queries of one head go to the cores; a causal mask leaves out what a block does not see:

    time = start + blocks of the fullest core x mean keys of a block x 128 x time of a score

No program beats HBM.
"""

from __future__ import annotations

from math import ceil

from scenarios.ops.program import DTYPE_BITS, Group
from scenarios.ops.work import AttentionShape, Work
from sim.hardware.profile import HardwareProfile
from sim.hardware.sections import KernelParams
from sim.kernel.cost import Cost
from sim.kernel.static_attention import static_attention_cost, unpack_ns
from sim.kernel.time import Code
from sim.kernel.traffic import hbm_rate, traffic

#: Queries of one head that a core takes at once in prefill: 64 for each of its two vector cores.
BLOCK_QUERIES = 128
#: Requests with at most this many new tokens take the decode path (a token and its speculated successors).
DECODE_QUERY = 16
#: Elements that MLA reads again as values (its latent part), of a row of 576; of shorter rows all (an indexer's keys,
#: which have half as many elements here, and rows that are keys and values alike).
MLA_VALUES = 512
#: Head sizes above this take proportionally longer for a score: 128 elements hide behind the softmax, 256 do not.
HIDDEN_DIM = 128


def is_decode(group: Group) -> bool:
    return group.query <= DECODE_QUERY


def attention_cost(work: Work, hw: HardwareProfile, params: KernelParams, code: Code, resident: bool) -> Cost:
    """The cost of fused attention over all groups; `code` and `resident` as in `sim.kernel.price.price`."""
    shape, chip = work.shape, hw.chip
    assert isinstance(shape, AttentionShape)
    if shape.static_tokens and all(is_decode(g) for g in shape.groups):
        return static_attention_cost(work, shape, hw, params, resident)
    split = traffic(work, hw, resident)
    latent = work.program == "mla_attention"
    cores, busy = chip.cube_cores, sum(_group_ns(g, shape, hw, params, latent) for g in shape.groups)
    multiply = work.cube_flops / chip.cube_flops_per_ns / hw.kernel.cube_efficiency
    stream = split.hbm / hbm_rate(cores, hw)
    requests = sum(g.count for g in shape.groups if is_decode(g))
    return Cost(
        1000 * (params.fixed_us + params.row_us * requests),
        max(busy, stream, multiply),
        cores,
        multiply,
        max(stream, busy),
        split.hbm,
    )


def key_ns(shape: AttentionShape, hw: HardwareProfile, params: KernelParams, elements: int) -> float:
    """One key of one KV head on a core: its elements (K and V), those of 8 bit unpacked on the vector cores."""
    return elements * params.element_ns * DTYPE_BITS[shape.kv_dtype] / 16 + unpack_ns(shape, hw, elements)


def _group_ns(group: Group, shape: AttentionShape, hw: HardwareProfile, params: KernelParams, latent: bool) -> float:
    """One group on the fullest core: decode by keys, prefill by blocks of queries."""
    cores = hw.chip.cube_cores
    if is_decode(group):
        prefill = params is hw.programs["attention_prefill"]  # requests that decode in the batch of one that does not
        elements = shape.head_dim + (min(MLA_VALUES, shape.head_dim) if latent else shape.head_dim)
        keys = group.count * shape.kv_heads * group.kv_len / cores
        return keys * key_ns(shape, hw, hw.programs["attention"] if prefill else params, elements)
    blocks = group.count * shape.heads * ceil(group.query / BLOCK_QUERIES)
    keys = group.context + (group.query + 1) / 2
    rows = min(BLOCK_QUERIES, group.query)
    # Under a causal mask long and short blocks are paired and dealt evenly; else whole blocks are.
    fullest = max(blocks / cores, 1.0) if group.context < group.query else float(ceil(blocks / cores))
    return fullest * keys * rows * params.element_ns * max(1.0, shape.head_dim / HIDDEN_DIM)
