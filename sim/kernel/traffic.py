"""Where a kernel's bytes come from and how fast cores can draw them. Rates are GB/s, which is bytes a nanosecond."""

from __future__ import annotations

from scenarios.ops.work import Work
from scenarios.records import dataclass
from sim.hardware.profile import HardwareProfile


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of one kernel by level: HBM and L2, reads and writes."""

    hbm_read: float
    l2_read: float
    hbm_write: float
    l2_write: float

    @property
    def hbm(self) -> float:
        return self.hbm_read + self.hbm_write

    @property
    def l2(self) -> float:
        return self.l2_read + self.l2_write


def traffic(work: Work, hw: HardwareProfile, resident: bool = False) -> Traffic:
    """Split the bytes of `work` between HBM and L2.

    Weights, caches and tables come from HBM. Activations are found in L2 as long as the kernel's activations fit the
    share of L2 that survives from kernel to kernel; each byte beyond it also drives one that was there out, so twice
    the excess goes to HBM. resident: the kernel runs again and again on the same data, so whatever fits L2 is there.
    """
    activations = work.warm_read_bytes + work.write_bytes
    room = hw.memory.l2_resident_share * hw.chip.l2_bytes
    if resident and work.gm_bytes <= room:
        return Traffic(0.0, work.cold_read_bytes + work.warm_read_bytes, 0.0, work.write_bytes)
    kept = prefetched_in_l2(work, hw)
    missed = min(activations, 2 * max(0.0, activations - room))
    part = missed / activations if activations else 0.0
    return Traffic(
        work.cold_read_bytes - kept + part * work.warm_read_bytes,
        kept + (1 - part) * work.warm_read_bytes,
        part * work.write_bytes,
        (1 - part) * work.write_bytes,
    )


def prefetched_in_l2(work: Work, hw: HardwareProfile) -> float:
    """Bytes of prefetched weights that the kernel still finds in L2.

    As with activations: each byte beyond the share of L2 that survives drives out one that was there.
    """
    if not work.prefetched_bytes:
        return 0.0
    together = work.prefetched_together_bytes
    room = hw.memory.l2_resident_share * hw.chip.l2_bytes
    kept = max(0.0, together - 2 * max(0.0, together - room))
    return work.prefetched_bytes * kept / together


def hbm_rate(cores: float, hw: HardwareProfile, share: float = 1.0) -> float:
    """What `cores` cores draw from HBM together, bytes a nanosecond: their own limits, up to the sustained rate.

    share: part of the sustained rate that the access pattern reaches.
    """
    return min(cores * hw.memory.core_hbm_gbps, share * hw.memory.hbm_gbps)
