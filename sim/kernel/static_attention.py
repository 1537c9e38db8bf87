"""Decode attention over a static cache (IncreFlashAttention): it gets a mask and no lengths, and reads the whole cache.

A task is one request and one KV head on one vector core; where tasks are few, their keys are cut into parts
(`sim.kernel.tiling.decode_attention`). The two vector cores of a cube share what loads for them. With one KV head's
scores for all its queries computed in one go (tiles are longer than most caches), keys are loaded and multiplied first,
then weighed on the vector core, and that of a core's last task hides behind nothing:

    time = start + max(tasks of the fullest cube x (time of a task + its keys x time of a key), all bytes / rate of HBM)
         + queries x keys x time of a score  [+ combine the parts]

- A key is its K and V at what one core draws, `core_kv_gbps` from HBM (measured as the load unit's own time), the rate
  of L2 where a prefetch has the cache on its way, and `element_ns` for the scalar unit to issue an element's loads and
  products. A prefetch makes no HBM faster: all bytes still pass it.
- All cores together stream a cache as vector kernels do, `vector_hbm_share` of what HBM sustains, and one whose layer
  exceeds L2 at `far_kv_gbps`.
- A score goes from the cube to the vector core in FP32 and back in 16 bit, through L2 both ways, and takes
  SCORE_PASSES vector instructions (DealBmm1ResBaseBlock, ElewiseCompute): copy, scale, mask, softmax, cast.
- Parts are combined once all cores have met (CombineSplitKVRes).

Source of the order of work: attention/incre_flash_attention/op_kernel/arch22/incre_flash_attention_split_Bbn2s2_Us2.h
(github.com/hicann/ops-transformer, commit 6747b8a). Start, elements and combining are fitted; a task's 1 us is assumed,
as no measured row has many tasks and few keys.
"""

from __future__ import annotations

from math import ceil

from scenarios.ops.program import DTYPE_BITS
from scenarios.ops.work import AttentionShape, Work
from sim.hardware.profile import HardwareProfile
from sim.hardware.sections import KernelParams
from sim.kernel.cost import Cost
from sim.kernel.tiling.chip import tiling_chip
from sim.kernel.tiling.decode_attention import Decode, DecodeTiling, decode_tiling
from sim.kernel.traffic import hbm_rate, traffic

#: Vector instructions a score: copy, scale, four to mask, five of the softmax, cast (counted; the mask's are assumed).
SCORE_PASSES = 12
#: Bytes of a score from the cube (FP32), and of its weight back to it.
SCORE_BYTES = 4 + 2


def static_attention_cost(
    work: Work, shape: AttentionShape, hw: HardwareProfile, params: KernelParams, resident: bool
) -> Cost:
    """The cost of one query token a request over a cache of `static_tokens` rows each."""
    tiling = static_tiling(shape, hw)
    keys = ceil(shape.static_tokens / tiling.parts)
    tasks = tiling.waves * (1 if tiling.cores == tiling.workers else 2)
    busy = tasks * (1000 * params.row_us + keys * static_key_ns(shape, hw, params))
    split = traffic(work, hw, resident)
    far = work.cold_read_bytes > hw.chip.l2_bytes
    rate = hw.memory.far_kv_gbps if far else hw.memory.vector_hbm_share * hw.memory.hbm_gbps
    stream = split.hbm / min(rate, hbm_rate(tiling.cores, hw))
    multiply = work.cube_flops / hw.chip.cube_flops_per_ns * hw.chip.cube_cores / tiling.cores
    multiply /= hw.kernel.cube_efficiency
    scores = shape.heads // shape.kv_heads * keys * score_ns(hw)
    combining = 1000 * params.combine_us if tiling.parts > 1 else 0.0
    return Cost(
        1000 * params.fixed_us + combining,
        max(busy, stream, multiply) + scores,
        tiling.cores,
        multiply,
        max(stream, busy),
        split.hbm,
    )


def static_tiling(shape: AttentionShape, hw: HardwareProfile) -> DecodeTiling:
    """How CANN lays the tasks over the cores."""
    requests = sum(g.count * g.query for g in shape.groups)
    decode = Decode(requests, shape.heads, shape.kv_heads, shape.head_dim, shape.static_tokens, half=True)
    return decode_tiling(decode, tiling_chip(hw.chip))


def static_key_ns(shape: AttentionShape, hw: HardwareProfile, params: KernelParams) -> float:
    """K and V of one key of one KV head into a core and through it, ns."""
    elements = 2 * shape.head_dim
    rate = hw.memory.core_l2_gbps if shape.cache_prefetched else hw.memory.core_kv_gbps
    loading = elements * DTYPE_BITS[shape.kv_dtype] / 8 / rate
    return loading + elements * params.element_ns + unpack_ns(shape, hw, elements)


def unpack_ns(shape: AttentionShape, hw: HardwareProfile, elements: int) -> float:
    """Elements of a cache of 8 or 4 bit made 16 bit on the two vector cores of a cube, ns; 0 for one of 16 bit."""
    if shape.kv_dtype not in ("int8", "int4"):
        return 0.0
    return elements * 3 * instruction_ns(hw) / 2


def score_ns(hw: HardwareProfile) -> float:
    """One score through L2 to a vector core and back, and its instructions there, ns."""
    moved = SCORE_BYTES / hw.memory.core_write_gbps + SCORE_BYTES / hw.memory.core_l2_gbps
    return moved + SCORE_PASSES * instruction_ns(hw)


def instruction_ns(hw: HardwareProfile) -> float:
    """One vector instruction for one element of 32 bit, ns."""
    return hw.kernel.register_cycles * 1000 / hw.chip.clock_mhz / (hw.chip.vector_bytes / 4)
