"""The plain roofline that predictions are held against: what peers that price operators one by one do.

time = max(flops / 0.7 peak, bytes / 0.6 bandwidth) + a static start of 5 us on the cube, 2 us on vector cores, 10 us
for a collective, whose bandwidth is that of one link or port on paper.
"""

from __future__ import annotations

from dataclasses import replace
from math import fsum

from scenarios.ops.catalogue import work_of
from scenarios.ops.program import Program
from scenarios.ops.work import CollectiveShape, MatmulCollectiveShape, MatmulShape, Work
from sim.hardware.profile import HardwareProfile
from sim.kernel.matmul_all_reduce import product_of

COMPUTE_SHARE = 0.7
BANDWIDTH_SHARE = 0.6
STATIC_US = {"cube": 5.0, "mix": 5.0, "vector": 2.0, "ai_cpu": 2.0, "copy": 2.0, "link": 10.0}


def roofline_us(work: Work, hw: HardwareProfile) -> float:
    """The plain roofline's time of one kernel, us."""
    if isinstance(work.shape, CollectiveShape):
        link_ns = work.shape.bytes / (BANDWIDTH_SHARE * hw.collective.hccs_peak_gbps)
        return link_ns / 1000 + STATIC_US["link"]
    if isinstance(work.shape, MatmulCollectiveShape):  # as if one hid the other
        both = product_of(work, work.shape), replace(work, unit="link", shape=work.shape.collective)
        return max(roofline_us(part, hw) for part in both)
    peak = COMPUTE_SHARE * hw.chip.cube_flops_per_ns
    if isinstance(work.shape, MatmulShape) and work.shape.dtype in ("int8", "int4"):
        peak *= 2
    bytes_ns = work.gm_bytes / (BANDWIDTH_SHARE * hw.memory.hbm_peak_gbps)
    return max(work.cube_flops / peak, bytes_ns) / 1000 + STATIC_US[work.unit]


def program_roofline_us(program: Program, hw: HardwareProfile) -> float:
    """The sum over the kernels of a step: no host, no gaps, no overlap."""
    return fsum(b.repeat * fsum(roofline_us(work_of(op), hw) for op in b.ops) for b in program.blocks)
