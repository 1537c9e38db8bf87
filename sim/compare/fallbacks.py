"""What probably happened where one step takes much longer than the other: named by what both show, with the evidence.

A fallback leaves traces that hardly anything else does: a graph that was not replayed has a host call for each kernel;
a starved host has the same calls, and the device waits for them; a host that waits for its device synchronises more
often; a compilation is one long gap; kernels that were not fused are more of them; another batch or context has kernels
of other shapes. Rules of thumb, from the counts of both sides; none says that it was so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

from scenarios.records import dataclass
from scenarios.timeline import Timeline, is_kernel, length_ns, union_ns
from sim.compare.causes import HOST_LATE, IDLE, causes_ns
from sim.compare.classes import WAIT, op_type_of
from sim.compare.kernels import shapes_of

#: A step this much longer than the other is looked into.
SLOWER = 1.1
#: Launches a kernel of a step that is issued call by call, and at most of one that is replayed.
EAGER, REPLAYED = 0.5, 0.2
#: More kernels than this share above the other's were not fused.
MORE_KERNELS = 1.15
#: Share of the difference that a cause must have, and a single idle gap.
MOST = 0.4
#: Further synchronisations of a host that waits for its device within a step.
SYNCHRONISES = 8
#: Kernels of a step that have the same shapes on both sides, as a share, where batch and context are the same.
SAME_SHAPES = 0.9


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of one side. launches: host calls that launch something; gap_us: the longest idle gap of its
    device; late_us: idle because the host was late (or for a reason that it does not show); busy_us: with a kernel
    running; wait_us: waiting for other ranks, nothing computed alongside; synchronises: times that the host waits for
    its device; shapes: kernels by op type and input shapes, empty where these are not known."""

    name: str
    step_us: float
    kernels: int
    launches: int | None
    late_us: float
    gap_us: float
    busy_us: float = 0.0
    wait_us: float = 0.0
    synchronises: int = 0
    shapes: tuple[tuple[tuple[str, str], int], ...] = ()


def evidence_of(name: str, timeline: Timeline) -> Evidence:
    """The evidence in a timeline."""
    kernels = [span for span in timeline.spans if is_kernel(span)]
    parents = {span.launched_by for span in kernels if span.launched_by >= 0}
    busy = union_ns((span.start_ns, span.end_ns) for span in kernels)
    gaps = [after[0] - before[1] for before, after in pairwise(busy)]
    causes: Mapping[str, int] = causes_ns(timeline)
    return Evidence(
        name=name,
        step_us=(timeline.end_ns - timeline.start_ns) / 1000,
        kernels=len(kernels),
        launches=len(parents) if parents else None,
        late_us=(causes.get(HOST_LATE, 0) + causes.get(IDLE, 0)) / 1000,
        gap_us=max(gaps, default=0) / 1000,
        busy_us=length_ns(busy) / 1000,
        wait_us=causes.get(WAIT, 0) / 1000,
        synchronises=sum(span.synchronizes for span in timeline.spans),
        shapes=tuple(Counter((op_type_of(span), shapes) for span in kernels if (shapes := shapes_of(span))).items()),
    )


def likely(a: Evidence, b: Evidence) -> list[dict[str, str]]:
    """Likely fallbacks of the slower side, the clearest first: {name, side, evidence}; none where both take alike."""
    fast, slow = (a, b) if a.step_us <= b.step_us else (b, a)
    if not fast.step_us or slow.step_us < SLOWER * fast.step_us:
        return []
    lost_us = slow.step_us - fast.step_us
    named: list[tuple[str, str]] = []
    if slow.gap_us > MOST * lost_us:
        named.append(
            ("recompilation or a synchronisation", f"one idle gap of {slow.gap_us / 1000:.2f} ms in the device")
        )
    calls = [side.launches / max(1, side.kernels) if side.launches is not None else None for side in (fast, slow)]
    if calls[0] is not None and calls[1] is not None and calls[1] >= EAGER and calls[0] <= REPLAYED:
        named.append(
            (
                "graph missed: issued call by call",
                f"{slow.launches:,} launches of {slow.kernels:,} kernels against {fast.launches:,} of {fast.kernels:,}",
            )
        )
    if slow.kernels > MORE_KERNELS * fast.kernels:
        named.append(("kernels not fused", f"{slow.kernels:,} kernels against {fast.kernels:,}"))
    elif slow.busy_us - fast.busy_us > MOST * lost_us:
        named.append(_longer_kernels(fast, slow))
    if slow.wait_us - fast.wait_us > MOST * lost_us:
        longer = f"{(slow.wait_us - fast.wait_us) / 1000:.2f} ms longer in collectives, before they transfer"
        named.append(("another rank is late: its host, or more work", longer))
    late_us = slow.late_us - fast.late_us
    if late_us > MOST * lost_us and slow.gap_us <= MOST * lost_us:
        named.append(_late_host(fast, slow, f"the device idles {late_us / 1000:.2f} ms longer for its host"))
    return [{"name": name, "side": slow.name, "evidence": evidence} for name, evidence in named]


def _longer_kernels(fast: Evidence, slow: Evidence) -> tuple[str, str]:
    """What as many kernels that take longer speak for, by their shapes where both sides have them."""
    longer = f"kernels run {(slow.busy_us - fast.busy_us) / 1000:.2f} ms longer"
    if not (fast.shapes and slow.shapes):
        return "more requests or a longer context, or slower kernels", f"{longer}; shapes are not known"
    alike = (Counter(dict(fast.shapes)) & Counter(dict(slow.shapes))).total()
    known = max(sum(count for _, count in side.shapes) for side in (fast, slow))
    evidence = f"{longer}; {alike:,} of {known:,} have the shapes of the other side"
    if alike < SAME_SHAPES * known:
        return "another batch or context: kernels of other shapes", evidence
    return "slower kernels: clock, contention, a longer KV cache, or another version", evidence


def _late_host(fast: Evidence, slow: Evidence, evidence: str) -> tuple[str, str]:
    """A host that waits for its device, or that is slow with the same calls."""
    if slow.synchronises - fast.synchronises >= SYNCHRONISES:
        waits = f"{slow.synchronises:,} synchronisations against {fast.synchronises:,}"
        return "the host waits for its device within the step", f"{evidence}; {waits}"
    return "host starved", evidence
