"""One kernel alone on one device: its time, from its work and the hardware profile.

Every kernel pays for its start, which grows with the cores that it starts on, and then for the slowest of moving,
multiplying and vector work. `vector.py`, `matmul.py`, `ffn.py` and `attention.py` say how each lays its work over the
cores.
Collectives are priced in `sim.collective`, from the moment their last rank arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial

from scenarios.ops.catalogue import params_name
from scenarios.ops.work import (
    AttentionShape,
    CollectiveShape,
    ExchangeShape,
    FfnShape,
    FixedShape,
    FlatShape,
    GroupedShape,
    MatmulCollectiveShape,
    MatmulShape,
    RowsShape,
    Shape,
    Work,
)
from sim.collective import price_collective
from sim.hardware.profile import HardwareProfile
from sim.hardware.sections import KernelParams
from sim.kernel.attention import attention_cost, is_decode
from sim.kernel.cost import Cost
from sim.kernel.cpu import cpu_cost
from sim.kernel.exchange import cores_of, exchange_ns, sent_bytes
from sim.kernel.ffn import ffn_cost
from sim.kernel.grouped import grouped_cost
from sim.kernel.matmul import matmul_cost
from sim.kernel.matmul_all_reduce import fastest, product_of
from sim.kernel.time import Bound, Code, KernelTime, Lane
from sim.kernel.traffic import traffic
from sim.kernel.vector import vector_cost, vector_params

#: (work, hardware, its kernel's parameters, code, resident) -> cost.
CostOf = Callable[[Work, HardwareProfile, KernelParams, Code, bool], Cost]


@lru_cache(maxsize=65536)
def price(
    work: Work, hw: HardwareProfile, code: Code = "cold", resident: bool = False, captured: bool = False
) -> KernelTime:
    """The time of `work` alone on `hw`.

    code: where the instructions are. resident: isolated
    replay, where all data that fits L2 is there from the run before (a microbenchmark). In a network neither holds,
    except for twins such as the norms of Q and K; on a CPU the weights of a small model are resident. captured: part of
    a graph, which on a CPU is compiled code.
    """
    if hw.profile.device == "cpu" and not isinstance(work.shape, CollectiveShape | ExchangeShape):
        return _on_cpu(work, hw, resident, captured)
    if work.unit == "copy":
        return _copied(work, hw)
    return PRICES[type(work.shape)](work, hw, code, resident)


def params_of(work: Work, hw: HardwareProfile) -> KernelParams:
    """The kernel program that runs `work`.

    One that the profile does not know is taken for the plain one of its shape.
    """
    if isinstance(work.shape, FlatShape | RowsShape):
        return vector_params(work, hw)
    name = params_name(work.program)
    if (
        name == "attention"
        and isinstance(work.shape, AttentionShape)
        and not all(is_decode(g) for g in work.shape.groups)
    ):
        name = "attention_prefill"
    if name == "attention" and isinstance(work.shape, AttentionShape) and work.shape.static_tokens:
        name = "static_attention" if "static_attention" in hw.programs else name
    if name in hw.programs:
        return hw.programs[name]
    if isinstance(work.shape, MatmulShape | GroupedShape):
        return hw.programs["quant_matmul" if work.shape.dtype == "int8" else "matmul"]
    if isinstance(work.shape, FfnShape):
        return hw.programs["matmul"]
    assert isinstance(work.shape, AttentionShape)
    return hw.programs["attention" if all(is_decode(g) for g in work.shape.groups) else "attention_prefill"]


def _time(work: Work, hw: HardwareProfile, cost: Cost, lane: Lane) -> KernelTime:
    duration = max(1, round(cost.total_ns))
    on_cube = lane != "AI_VECTOR_CORE"
    if cost.head_ns >= cost.body_ns:
        bound: Bound = "launch"
    elif cost.beside_ns > max(cost.compute_ns, cost.memory_ns):
        bound = "vector"
    elif cost.compute_ns >= cost.memory_ns:
        bound = "cube" if on_cube else "vector"
    else:
        bound = "hbm" if 2 * cost.hbm_bytes >= work.gm_bytes else "l2"
    total = hw.chip.cube_cores if on_cube else hw.chip.vector_cores
    share = min(1.0, cost.cores / total)
    return KernelTime(
        duration_ns=duration,
        accelerator=lane,
        cores=cost.cores,
        bound=bound,
        hbm_bytes=round(cost.hbm_bytes),
        gm_bytes=work.gm_bytes,
        flops=work.cube_flops,
        roofline_ns=roofline_ns(work, hw, cost.hbm_bytes),
        hbm_share=min(1.0, cost.hbm_bytes / duration / hw.memory.hbm_gbps),
        cube_share=share if on_cube else 0.0,
        vector_share=share if lane != "AI_CORE" else 0.0,
        variant=_variant(work),
    )


def _variant(work: Work) -> str:
    """How the kernel gets at its weights or cache, where that is not the plain way."""
    shape = work.shape
    ways = (
        ("nz", isinstance(shape, MatmulShape | GroupedShape) and shape.weight_format == "nz"),
        ("l2", bool(work.prefetched_bytes) or (isinstance(shape, AttentionShape) and shape.cache_prefetched)),
    )
    return "+".join(name for name, taken in ways if taken)


def roofline_ns(work: Work, hw: HardwareProfile, hbm_bytes: float | None = None) -> int:
    """The bound that no kernel beats, ns: the greater of its flops at peak and its HBM bytes at the HBM's peak.

    hbm_bytes: by default those that the work draws from HBM in a network; what it finds in L2 is no bound.
    """
    peak = hw.chip.cube_flops_per_ns
    if isinstance(work.shape, MatmulShape | GroupedShape) and work.shape.dtype in ("int8", "int4"):
        peak *= 2
    moved = traffic(work, hw).hbm if hbm_bytes is None else hbm_bytes
    return round(max(work.cube_flops / peak, moved / hw.memory.hbm_peak_gbps))


def _on_cpu(work: Work, hw: HardwareProfile, resident: bool, captured: bool) -> KernelTime:
    """A call that runs on the caller's own core."""
    cost = cpu_cost(work, hw, resident, captured)
    lane: Lane = "AI_VECTOR_CORE"
    if isinstance(work.shape, MatmulShape | GroupedShape | FfnShape):
        lane = "AI_CORE"
    elif isinstance(work.shape, AttentionShape):
        lane = "MIX_AIC"
    return _time(work, hw, cost, lane)


def _copied(work: Work, hw: HardwareProfile) -> KernelTime:
    """A copy by the DMA engines, which use no core.

    Assumed: together they draw what HBM sustains, and one task starts as a kernel on one core does.
    """
    moved = work.cold_read_bytes
    duration = max(1, round(1000 * hw.kernel.start_us + moved / hw.memory.hbm_gbps))
    return KernelTime(
        duration_ns=duration,
        accelerator="SDMA",
        cores=0,
        bound="hbm" if moved / hw.memory.hbm_gbps > duration / 2 else "launch",
        hbm_bytes=moved,
        gm_bytes=work.gm_bytes,
        flops=0,
        roofline_ns=round(moved / hw.memory.hbm_peak_gbps),
        hbm_share=min(1.0, moved / duration / hw.memory.hbm_gbps),
    )


def _fixed(work: Work, hw: HardwareProfile, *_: object) -> KernelTime:
    """A kernel whose time does not depend on its shape.

    As the profile's `fixed_us` says, or else a start on one core.
    """
    shape, on_cpu = work.shape, work.unit == "ai_cpu"
    assert isinstance(shape, FixedShape)
    us = hw.fixed_us.get(shape.key)
    if us is None:
        us = hw.fixed_us["ai_cpu"] if on_cpu else hw.kernel.start_us + hw.kernel.core_us
    return KernelTime(
        duration_ns=max(1, round(1000 * us)),
        accelerator="AI_CPU" if on_cpu else "AI_VECTOR_CORE",
        cores=1,
        bound="ai_cpu" if on_cpu else "launch",
        hbm_bytes=work.cold_read_bytes,
        gm_bytes=work.gm_bytes,
        flops=0,
        roofline_ns=roofline_ns(work, hw, work.cold_read_bytes),
        vector_share=0.0 if on_cpu else 1 / hw.chip.vector_cores,
        ai_cpu_share=1 / hw.chip.ai_cpu_cores if on_cpu else 0.0,
    )


def _collective(work: Work, hw: HardwareProfile, *_: object) -> KernelTime:
    """A collective whose ranks are all there; on vector cores where HCCL lets it, as inference engines ask for."""
    shape = work.shape
    assert isinstance(shape, CollectiveShape)
    item = price_collective(
        shape.op,
        shape.bytes,
        shape.ranks,
        hw,
        shape.mode,
        busy=True,
        first=shape.first,
        stride=shape.stride,
        imbalance=shape.imbalance,
    )
    duration = max(1, item.duration_ns)
    return KernelTime(
        duration_ns=duration,
        accelerator="COMMUNICATION",
        cores=item.vector_cores,
        bound="link",
        hbm_bytes=item.hbm_bytes,
        gm_bytes=work.gm_bytes,
        flops=0,
        roofline_ns=roofline_ns(work, hw, item.hbm_bytes),
        hbm_share=min(1.0, item.hbm_bytes / duration / hw.memory.hbm_gbps),
        vector_share=item.vector_cores / hw.chip.vector_cores,
        ai_cpu_share=1 / hw.chip.ai_cpu_cores if item.mode == "AI_CPU" else 0.0,
        holds_cores=item.mode == "AIV",
        link_share=1.0,
    )


def _fused(work: Work, hw: HardwareProfile, *_: object) -> KernelTime:
    """A product with its all-reduce inside, all ranks there."""
    shape = work.shape
    assert isinstance(shape, MatmulCollectiveShape)
    product = product_of(work, shape)
    item = fastest(product, shape, hw, params_of(product, hw))
    duration = max(1, round(item.total_ns))
    alone = _time(product, hw, item.cost, "MIX_AIC" if product.unit == "mix" else "AI_CORE")
    computing = min(1.0, item.product_ns / duration)
    return replace(
        alone,
        duration_ns=duration,
        accelerator="MIX_AIC",
        bound="link" if item.reduction_ns > item.product_ns else alone.bound,
        hbm_bytes=round(item.hbm_bytes),
        gm_bytes=work.gm_bytes,
        roofline_ns=roofline_ns(product, hw, item.hbm_bytes),
        hbm_share=min(1.0, item.hbm_bytes / duration / hw.memory.hbm_gbps),
        cube_share=alone.cube_share * computing,
        vector_share=alone.vector_share * computing,
        ai_cpu_share=1 / hw.chip.ai_cpu_cores,
        link_share=1.0,
        alone_ns=min(duration, round(item.first_ns)),
    )


def _exchange(work: Work, hw: HardwareProfile, *_: object) -> KernelTime:
    """Dispatch or combine whose ranks are all there; it takes all vector cores, or those that its stream may."""
    shape = work.shape
    assert isinstance(shape, ExchangeShape)
    duration = max(1, round(exchange_ns(shape, hw)))
    cores = cores_of(shape, hw)
    moved = 2 * sent_bytes(shape)
    return KernelTime(
        duration_ns=duration,
        accelerator="COMMUNICATION",
        cores=cores,
        bound="link",
        hbm_bytes=moved,
        gm_bytes=work.gm_bytes,
        flops=0,
        roofline_ns=roofline_ns(work, hw, moved),
        hbm_share=min(1.0, moved / duration / hw.memory.hbm_gbps),
        vector_share=cores / hw.chip.vector_cores,
        holds_cores=True,
        link_share=1.0,
    )


def _on_cores(cost: CostOf, lane: Lane, work: Work, hw: HardwareProfile, code: Code, resident: bool) -> KernelTime:
    """A kernel whose parameters the profile has, on the cores of `lane`; work of the unit mix takes both kinds."""
    taken: Lane = "MIX_AIC" if work.unit == "mix" and lane == "AI_CORE" else lane
    return _time(work, hw, cost(work, hw, params_of(work, hw), code, resident), taken)


#: The time of one kernel on an accelerator, by the class of its shape.
PRICES: dict[type[Shape], Callable[[Work, HardwareProfile, Code, bool], KernelTime]] = {
    FixedShape: _fixed,
    CollectiveShape: _collective,
    ExchangeShape: _exchange,
    MatmulCollectiveShape: _fused,
    MatmulShape: partial(_on_cores, matmul_cost, "AI_CORE"),
    GroupedShape: partial(_on_cores, grouped_cost, "AI_CORE"),
    FfnShape: partial(_on_cores, ffn_cost, "MIX_AIC"),
    AttentionShape: partial(_on_cores, attention_cost, "MIX_AIC"),
    FlatShape: partial(_on_cores, vector_cost, "AI_VECTOR_CORE"),
    RowsShape: partial(_on_cores, vector_cost, "AI_VECTOR_CORE"),
}
