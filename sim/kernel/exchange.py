"""Dispatch and combine of experts' tokens: one kernel on all vector cores that writes rows into the peers' memory.

dispatch: each core takes its share of the (token, expert) pairs, quantises the row where it is sent in INT8, and writes
it to the rank of its expert; ranks tell each other how much they sent, and what came is copied to the rows of each
expert. combine: results go back, and the rows of each token are weighed and summed. From when the last rank is there:

    dispatch = start + quantise + links + copy + ranks x flag + rows on a core x row
    combine  = start + links + sum + ranks x flag

A stream with fewer cores (`torch.npu.set_stream_limit`) has them work on more rows each, and its links take in less at
once. Quantise, copy and sum are the profile's own vector kernels on as many rows, links the all-to-all on vector cores.
Flag and row are fitted (`sim.fitting.exchange`): what each peer adds, and what a core takes to find where a row belongs
among those of its expert. All measured dispatches have 128 tokens a rank, so that a fixed cost would fit them as well.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import ceil

from scenarios.ops.program import DTYPE_BITS
from scenarios.ops.work import ExchangeShape, RowsShape, Work
from sim.collective.algorithms import mesh_all_to_all
from sim.collective.links import wire
from sim.collective.price import all_peers_ns
from sim.collective.topology import levels_of
from sim.hardware.profile import HardwareProfile
from sim.kernel.vector import vector_cost, vector_params


def exchange_ns(shape: ExchangeShape, hw: HardwareProfile) -> float:
    """Time of one dispatch or combine whose ranks are all there, ns."""
    links, hw = hw.collective, _with_cores(hw, cores_of(shape, hw))
    flags = 1000 * shape.ranks * links.exchange_flag_us
    if shape.op == "moe_combine":
        return _rows_ns(shape, hw, "row_wise", 2, 2, 0) + _links_ns(shape, hw) + flags
    quantised = _rows_ns(shape, hw, "dynamic_quant", 4, 2, 1) if shape.dtype == "int8" else 0.0
    size = DTYPE_BITS[shape.dtype] // 8
    copied = _rows_ns(shape, hw, "copy", 0, size, size)
    on_a_core = ceil(shape.tokens * shape.top_k / hw.chip.vector_cores)
    return quantised + _links_ns(shape, hw) + copied + flags + 1000 * on_a_core * links.exchange_row_us


def cores_of(shape: ExchangeShape, hw: HardwareProfile) -> int:
    """Vector cores that the kernel takes."""
    return max(1, round(shape.core_share * hw.chip.vector_cores))


@lru_cache(maxsize=16)
def _with_cores(hw: HardwareProfile, vector_cores: int) -> HardwareProfile:
    """`hw` as a kernel sees it that may take so many vector cores."""
    return hw if vector_cores == hw.chip.vector_cores else replace(hw, chip=replace(hw.chip, vector_cores=vector_cores))


def sent_bytes(shape: ExchangeShape) -> int:
    """What a rank sends to all ranks, itself included."""
    return shape.tokens * shape.top_k * shape.hidden * DTYPE_BITS[shape.dtype] // 8


def _rows_ns(shape: ExchangeShape, hw: HardwareProfile, program: str, ops: int, read: int, written: int) -> float:
    """One of the profile's vector kernels on all rows that are sent; read and written: bytes an element."""
    rows = shape.tokens * shape.top_k
    elements = rows * shape.hidden
    work = Work(
        "vector",
        RowsShape(rows, shape.hidden),
        vector_ops=ops * elements,
        warm_read_bytes=read * elements,
        write_bytes=written * elements,
        program=program,
    )
    return vector_cost(work, hw, vector_params(work, hw), "cold", resident=False).total_ns


def _links_ns(shape: ExchangeShape, hw: HardwareProfile) -> float:
    levels = levels_of(shape.ranks, hw.collective)
    wires = tuple(wire(level.tier, "AIV", hw.chip.vector_cores, hw) for level in levels)
    terms = mesh_all_to_all(sent_bytes(shape), shape.ranks)
    if len(wires) == 1:
        return wires[0].time_ns(terms)
    return all_peers_ns(terms, shape.ranks, levels, wires)
