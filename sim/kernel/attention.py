"""Fused attention: tasks of one request, one KV head and one block of queries, laid over the AI cores.

An AI core is one cube and two vector cores. A task walks over the keys that its queries see, tile by tile: load K and
V, multiply, softmax on the vector cores, multiply. The slowest of the three sets its time, or their sum where a program
has one buffer only. A decode step has requests x KV heads tasks; where they are few and the cache is long, the keys of
a task are split over cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from scenarios.ops.program import DTYPE_BITS, Group
from scenarios.ops.work import AttentionShape, Work
from sim.hardware.profile import HardwareProfile
from sim.hardware.sections import KernelParams
from sim.kernel.cost import Cost, start_ns
from sim.kernel.traffic import hbm_rate, traffic

#: Query rows (tokens x heads of one KV group) that one task takes.
QUERY_ROWS = 128
#: Keys below which splitting a task over cores is not worth its merge.
MIN_SPLIT_KEYS = 512
#: Tasks are split along the keys only if they leave half of the cores idle.
SPLIT_BELOW = 0.5
#: Requests with at most this many new tokens take the decode path (a token and its speculated successors).
DECODE_QUERY = 16


@dataclass(frozen=True, slots=True)
class Tasks:
    """`count` equal tasks: `rows` query rows each see `keys` keys on average; `loaded` keys are read.

    shared: other tasks of the same head read the same keys, so they are found in L2.
    """

    count: int
    rows: int
    keys: float
    loaded: int
    shared: bool = False


def tasks_of(group: Group, shape: AttentionShape, cores: int) -> Tasks:
    """The tasks of one group of requests; a causal mask lets query i see context + i + 1 keys."""
    rows = group.query * (shape.heads // shape.kv_heads)
    blocks = ceil(rows / QUERY_ROWS)
    keys = group.context + (group.query + 1) / 2
    count = group.count * shape.kv_heads * blocks
    if is_decode(group) and count < SPLIT_BELOW * cores:
        splits = max(1, min(cores // count, group.kv_len // MIN_SPLIT_KEYS))
        return Tasks(count * splits, min(rows, QUERY_ROWS), keys / splits, ceil(group.kv_len / splits))
    return Tasks(count, min(rows, QUERY_ROWS), keys, ceil(keys) if blocks > 1 else group.kv_len, blocks > 1)


def is_decode(group: Group) -> bool:
    return group.query <= DECODE_QUERY


def attention_cost(work: Work, hw: HardwareProfile, params: KernelParams, repeat: bool, resident: bool) -> Cost:
    """The cost of fused attention over all groups; `repeat` and `resident` as in `sim.kernel.price.price`."""
    shape, chip = work.shape, hw.chip
    assert isinstance(shape, AttentionShape)
    groups = [tasks_of(g, shape, chip.cube_cores) for g in shape.groups]
    total = sum(t.count for t in groups)
    cores = max(1, min(chip.cube_cores, total))
    split = traffic(work, hw, resident)
    parts = [_task_ns(t, shape, hw, params, cores, resident) for t in groups]
    busy = sum(t.count * max(p) for t, p in zip(groups, parts, strict=True))
    waves = ceil(total / cores)
    longest = max((max(p) for p in parts), default=0.0)
    spread = max(longest, busy / total * waves) if total else 0.0
    stream = split.hbm / hbm_rate(cores, hw)
    compute = sum(t.count * p[1] for t, p in zip(groups, parts, strict=True)) / cores
    head = start_ns(hw, params, cores, repeat) + 1000 * waves * params.row_us
    memory = max(stream, sum(t.count * p[0] for t, p in zip(groups, parts, strict=True)) / cores)
    return Cost(head, max(spread, stream), cores, compute, memory, split.hbm)


def _task_ns(
    tasks: Tasks, shape: AttentionShape, hw: HardwareProfile, params: KernelParams, cores: int, resident: bool
) -> tuple[float, float]:
    """(moving, computing) nanoseconds of one task."""
    chip, memory, kernel = hw.chip, hw.memory, hw.kernel
    cycle_ns = 1000 / chip.clock_mhz
    row_bytes = shape.head_dim * DTYPE_BITS[shape.kv_dtype] / 8
    # A head's row of a token stands alone in memory unless it is the only KV head.
    bursts = (
        2 * tasks.loaded if shape.kv_heads > 1 else 2 * ceil(tasks.loaded / max(1, shape.block_size or tasks.loaded))
    )
    rate = min(memory.core_kv_gbps, hbm_rate(cores, hw) / cores)
    if resident or tasks.shared:
        rate = memory.core_l2_gbps
    load = 2 * tasks.loaded * row_bytes / rate + bursts * kernel.burst_ns
    blocks = ceil(tasks.rows / chip.cube_m) * tasks.keys / chip.cube_n * 2 * shape.head_dim / chip.cube_k
    cube = blocks * cycle_ns / kernel.cube_efficiency
    vector = tasks.rows * tasks.keys * params.element_ns
    if shape.kv_dtype in ("int8", "int4"):
        unpack = 3 * kernel.register_cycles * cycle_ns / (chip.vector_bytes / 4)
        vector += 2 * tasks.loaded * shape.head_dim * unpack / 2
    if params.buffers == 1:  # no tile is loaded while another is computed
        return 0.0, load + cube + vector
    return load, max(cube, vector)
