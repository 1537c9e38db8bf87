"""Kernels of a CPU: calls of torch on one core with its caches, where the caller itself does the work.

    time = start + fixed + the greater of (rows x row + elements x element + multiply-adds x mac) and (bytes / rate)

There are no cores to start and no tiles to queue. What a call costs differs by what it is made of, so each kind has its
own program, and what one counts as rows and elements is said in `effects`. Measured over sizes of three orders of
magnitude these sums hold to about 10 %: torch packs the weight of a product again at each call (elements), then
multiplies (mac); its attention walks over requests and heads (rows) and over what they see (elements, mac).

Weights and caches of a step that fit the last cache stay there from step to step; others come from memory.

torch has no attention over ragged batches for a CPU: `device/backends/cpu.py` makes one call for each run of requests
that are alike, so a ragged batch is priced as the sum of them (`calls_of`), each by its own program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from scenarios.ops.catalogue import params_name
from scenarios.ops.program import Group
from scenarios.ops.work import AttentionShape, FixedShape, FlatShape, GroupedShape, MatmulShape, RowsShape, Work
from scenarios.records import dataclass
from sim.hardware.profile import HardwareProfile
from sim.hardware.sections import KernelParams
from sim.kernel.attention import is_decode
from sim.kernel.cost import Cost

#: The program of elementwise work, norms and copies inside code that torch.compile made: calls are fused away.
COMPILED = "compiled"


@dataclass(frozen=True, slots=True)
class Effects:
    """What a call's time grows with.

    Of a product: columns of its output, elements of the weight (packed at each call), multiply-adds. Of attention:
    requests x heads, elements of keys and values read, multiply-adds. Else: rows or separate runs of memory, elements.
    """

    rows: int
    elements: int
    macs: int


def effects(work: Work) -> Effects:
    """The effects of `work`."""
    match work.shape:
        case MatmulShape(batch=batch, k=k, n=n):
            return Effects(batch * n, batch * k * n, work.cube_flops // 2)
        case GroupedShape(loads=loads, k=k, n=n):
            return Effects(len(loads) * n, len(loads) * k * n, work.cube_flops // 2)
        case AttentionShape(groups=groups) as shape:
            requests, keys = sum(g.count for g in groups), sum(g.count * g.kv_len for g in groups)
            return Effects(requests * shape.heads, 2 * keys * shape.kv_heads * shape.head_dim, work.cube_flops // 2)
        case RowsShape(rows=rows, cols=cols):
            return Effects(rows, rows * cols, 0)
        case FlatShape(elements=elements):
            return Effects(work.pieces // 2, elements, 0)
    return Effects(0, 0, work.cube_flops // 2)


def names_of(work: Work, captured: bool = False) -> tuple[str, ...]:
    """Programs that may price `work`, the most special first; a profile has the last one."""
    shape, plain = work.shape, work.program
    if captured and isinstance(shape, RowsShape | FlatShape):
        return (COMPILED, plain, params_name(plain), _generic(work))
    if isinstance(shape, AttentionShape):
        phase = "attention" if all(is_decode(g) for g in shape.groups) else "attention_prefill"
        paged, int8 = "_paged" if shape.block_size else "", "_int8" if shape.kv_dtype == "int8" else ""
        return tuple(dict.fromkeys((phase + paged + int8, phase + paged, phase + int8, phase)))
    flat = isinstance(shape, MatmulShape) and shape.m == 1  # one row: a product of a matrix and a vector
    return (*((f"{plain}_vector",) if flat else ()), plain, params_name(plain), _generic(work))


def _generic(work: Work) -> str:
    if isinstance(work.shape, MatmulShape | GroupedShape):
        return "quant_matmul" if work.shape.dtype == "int8" else "matmul"
    return "elementwise" if isinstance(work.shape, FlatShape) else "row_wise"


def stream_ns(work: Work, hw: HardwareProfile, resident: bool) -> float:
    """Moving the call's bytes: what fits a core's own cache at its rate, the rest at the last cache's; weights and
    caches come from memory unless they are `resident` in the last cache."""
    memory, chip = hw.memory, hw.chip
    cold = 0 if resident else work.cold_read_bytes
    near = work.gm_bytes - cold
    rate = memory.core_l2_gbps if near <= chip.ub_bytes else memory.l2_read_gbps
    if near > memory.l2_resident_share * chip.l2_bytes:
        rate = memory.hbm_gbps
    return cold / memory.hbm_gbps + near / rate


def calls_of(work: Work) -> Iterator[tuple[int, Work]]:
    """The calls that `work` is made of, as (how many are alike, one of them): itself, or attention over a ragged batch
    run by run, its flops by query-key pairs, its cache by keys and its queries by tokens."""
    shape = work.shape
    if not isinstance(shape, AttentionShape) or len(shape.groups) == 1:
        yield 1, work
        return
    pairs, keys, tokens = (sum(of(g) for g in shape.groups) for of in (_pairs, _keys, _tokens))
    for group, count in Counter(shape.groups).items():
        part = _tokens(group) / tokens
        yield (
            count,
            replace(
                work,
                shape=replace(shape, groups=(group,)),
                cube_flops=work.cube_flops * _pairs(group) // pairs,
                cold_read_bytes=work.cold_read_bytes * _keys(group) // keys,
                warm_read_bytes=round(work.warm_read_bytes * part),
                write_bytes=round(work.write_bytes * part),
            ),
        )


def _pairs(group: Group) -> int:
    return group.count * (group.query * group.context + group.query * (group.query + 1) // 2)


def _keys(group: Group) -> int:
    return group.count * group.kv_len


def _tokens(group: Group) -> int:
    return group.count * group.query


def cpu_cost(work: Work, hw: HardwareProfile, resident: bool, captured: bool) -> Cost:
    """The cost of `work`, call by call. resident: weights and caches stay in the last cache. captured: inside compiled
    code."""
    calls = [(count, _call_cost(call, hw, resident, captured)) for count, call in calls_of(work)]
    if len(calls) == 1 and calls[0][0] == 1:
        return calls[0][1]
    return Cost(
        sum(count * cost.head_ns for count, cost in calls),
        sum(count * cost.body_ns for count, cost in calls),
        1,
        sum(count * cost.compute_ns for count, cost in calls),
        sum(count * cost.memory_ns for count, cost in calls),
        sum(count * cost.hbm_bytes for count, cost in calls),
    )


def _call_cost(work: Work, hw: HardwareProfile, resident: bool, captured: bool) -> Cost:
    """The cost of one call."""
    if isinstance(work.shape, FixedShape):
        fixed_us = hw.fixed_us.get(work.shape.key, hw.fixed_us["ai_cpu"])
        return Cost(1000 * fixed_us, 0.0, 1, 0.0, 0.0, 0.0)
    name = next(name for name in names_of(work, captured) if name in hw.programs)
    params = hw.programs[name]
    start_us = 0.0 if name == COMPILED else hw.kernel.start_us
    compute, memory = computing_ns(effects(work), params), stream_ns(work, hw, resident)
    hbm_bytes = 0.0 if resident else float(work.cold_read_bytes)
    return Cost(1000 * (start_us + params.fixed_us), max(compute, memory), 1, compute, memory, hbm_bytes)


def computing_ns(item: Effects, params: KernelParams) -> float:
    """Nanoseconds of the work itself, whatever its bytes take."""
    return 1000 * item.rows * params.row_us + item.elements * params.element_ns + item.macs * params.mac_ns
