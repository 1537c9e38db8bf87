"""What one step and one byte cost on a tier, for the engine that moves the bytes: copies, or vector cores."""

from __future__ import annotations

from math import inf
from typing import Literal

from scenarios.records import dataclass
from sim.collective.algorithms import Terms
from sim.collective.topology import Tier
from sim.hardware.profile import HardwareProfile

#: Where HCCL expands a collective: tasks that the host launches, tasks that the AI CPU launches, a vector kernel.
Mode = Literal["HOST", "AI_CPU", "AIV"]


@dataclass(frozen=True, slots=True)
class Wire:
    """alpha_ns, reduce_alpha_ns: a step, and what a reducing one takes more. gbps: of a link if `meshed`, else of the
    die's port. engine_gbps: what the engine takes in from all links. reduce_gbps: of what arrives."""

    alpha_ns: float
    reduce_alpha_ns: float
    gbps: float
    engine_gbps: float
    reduce_gbps: float
    meshed: bool

    def bytes_ns(self, link_bytes: float, peers: int) -> float:
        """Time of `link_bytes` from each of `peers` at once."""
        rate = min(self.engine_gbps, self.gbps * peers if self.meshed else self.gbps)
        return link_bytes * peers / rate

    def steps_ns(self, terms: Terms) -> float:
        """Latencies of all steps, and the reducing: where each peer has its link, what they bring reduces side by side.

        Else an all-reduce of 8 A2 cards would lose a quarter to it; measured, it takes twice an all-gather's time.
        """
        steps = terms.steps * self.alpha_ns + terms.reduce_steps * self.reduce_alpha_ns
        return steps + terms.reduced_bytes / (self.reduce_gbps * (terms.peers if self.meshed else 1))

    def time_ns(self, terms: Terms) -> float:
        """Time of an algorithm on this wire alone."""
        return self.steps_ns(terms) + self.bytes_ns(terms.link_bytes, terms.peers)


def wire(tier: Tier, mode: Mode, cores: int, hw: HardwareProfile, busy: bool = False) -> Wire:
    """The wire of a tier. cores: vector cores at work, with AIV. busy: in a network, where those take longer."""
    c = hw.collective
    latency_us = {"sio": c.sio_us, "hccs": c.hccs_us, "pod": c.pod_us, "roce": c.roce_us}[tier]
    gbps = {"sio": c.sio_gbps, "hccs": c.hccs_gbps, "pod": c.pod_gbps, "roce": c.roce_gbps}[tier]
    meshed = tier == "hccs" and bool(c.full_mesh)
    if mode != "AIV":
        alpha = 1000 * (c.step_us + latency_us)
        return Wire(alpha, 1000 * c.reduce_step_us, gbps, inf, c.reduce_gbps, meshed)
    if tier == "hccs":
        gbps = c.aiv_gbps / (c.dies_per_server - 1) if meshed and c.dies_per_server > 1 else c.aiv_gbps
    alpha = 1000 * (c.aiv_step_us + latency_us)
    slow = 1 + c.aiv_busy_share if busy else 1.0
    return Wire(alpha, 0.0, gbps / slow, cores * c.aiv_core_gbps / slow, c.aiv_reduce_gbps / slow, meshed)


def aiv_cores(op: str, ranks: int, hw: HardwareProfile) -> int:
    """Vector cores that a collective takes: as many as ranks (times what the profile says), between its limits."""
    c = hw.collective
    smallest = c.aiv_min_reduce_cores if op in ("all_reduce", "reduce_scatter") else c.aiv_min_cores
    return min(max(ranks * c.aiv_cores_per_rank, smallest), c.aiv_max_cores, hw.chip.vector_cores)


def start_ns(mode: Mode, idle: bool, hw: HardwareProfile) -> float:
    """Before the first byte moves. idle: nothing hides the AI CPU's expansion."""
    c = hw.collective
    if mode == "AIV":
        return 1000 * hw.kernel.start_us
    if mode == "HOST":
        return 1000 * c.host_start_us
    return 1000 * (c.ai_cpu_start_us + (c.ai_cpu_idle_us if idle else 0.0))
