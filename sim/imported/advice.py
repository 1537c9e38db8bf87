"""What to try on a measured step, ranked by what it could save at most.

A capture knows no scenario, so nothing is predicted here: each item says how much of the step its time is, which bounds
the gain from above. `whatif run` predicts what a switch really gains.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import fsum

from scenarios.profile import Kind
from scenarios.profile.families import MATMUL, family_of_type
from scenarios.records import dataclass
from sim.imported.diagnosis import Found
from sim.imported.kernels import MeasuredKernel, in_step
from sim.imported.ranks import Waits

#: An item that could save less than this share of the step is not worth a line.
WORTH = 0.005
BALANCE, FIND_LATE = "balance the ranks", "find the rank that is late"
#: What a kernel of 8-bit weights saves at most of one of 16-bit weights.
_QUANTISED = 0.5
#: Kernels shorter than this are mostly their own start, us.
SMALL_US = 10.0
#: In the names of products of 8 or 4 bits.
_NARROW = re.compile(r"quant|fp8|e4m3|int8|i8i8|w[48]a(?:8|16)|int4", re.I)


@dataclass(frozen=True, slots=True)
class Try:
    """One thing to try. at_most_ratio: the step over what would be left of it if the whole time vanished; settings:
    the `--set` pairs of `whatif run` that predict it, () where no switch is one. what_if: the replay that says what it
    really gains, "" where there is none: a ratio of times alone is no bound, since what follows moves up as well."""

    at_most_ratio: float
    at_most_us: float
    settings: tuple[str, ...]
    why: str
    what_if: str = ""


def advise_step(diagnosis: Found, waits: Waits) -> tuple[Try, ...]:
    """What to try, the largest possible gain first."""
    total_us = diagnosis.time.total_ns / 1000
    items = []
    for us, settings, why in _ideas(diagnosis, waits):
        us = min(us, total_us * 0.999)
        if total_us and us >= WORTH * total_us:
            items.append(Try(total_us / (total_us - us), us, settings, why, _replay_of(settings, why)))
    return tuple(sorted(items, key=lambda item: (-item.at_most_us, item.why)))


#: The what-if that replays what a setting does.
_REPLAYS = {
    "optimizations.graph=aclgraph": "remove_host_gaps",
    "optimizations.weights=w8a8": "quantise",
    "optimizations.fusion.add_rms_norm=true": "fuse:add_rms_norm",
    "optimizations.overlap.comm_chunks=4": "remove_collectives",
}


def _replay_of(settings: tuple[str, ...], why: str) -> str:
    if why.startswith((BALANCE, FIND_LATE)):
        return "no_waits"
    return next((_REPLAYS[pair] for pair in settings if pair in _REPLAYS), "")


def _ideas(diagnosis: Found, waits: Waits) -> Iterator[tuple[float, tuple[str, ...], str]]:
    gaps, time = diagnosis.gaps, diagnosis.time
    if gaps.launches_known and gaps.late_us:
        why = f"a graph launches all kernels at once: the host is late in {gaps.late_us / 1000:.2f} ms of idle time"
        yield gaps.late_us, ("optimizations.graph=aclgraph",), why
        if not _has_queue(diagnosis):
            yield (
                gaps.late_us / 2,
                ("engine.task_queue_enable=1",),
                "a second host thread launches while Python dispatches",
            )
    elif gaps.total_us:
        yield (
            gaps.total_us,
            ("optimizations.graph=aclgraph",),
            "the device idles; a profile with host calls would say why",
        )
    yield from _communication(diagnosis, waits)
    yield from _kernels(diagnosis)
    if gaps.launches_known and gaps.queued_us:
        yield (
            gaps.queued_us,
            (),
            f"{gaps.queued_us / 1000:.2f} ms idle though the kernel was queued: waits between streams, copies, starts",
        )
    if time.overlapped_ns == 0 and time.communication_ns:
        exposed = time.communication_not_overlapped_ns - time.communication_wait_ns
        hidden = min(exposed, time.computing_ns) / 1000
        yield hidden, ("optimizations.overlap.comm_chunks=4",), "no collective overlaps with computing"


def _has_queue(diagnosis: Found) -> bool:
    return any(name.startswith("Dequeue") for name in diagnosis.capture.texts)


def _communication(diagnosis: Found, waits: Waits) -> Iterator[tuple[float, tuple[str, ...], str]]:
    mine = next((rank for rank in waits.by_rank if rank.rank == diagnosis.capture.rank), None)
    others = {rank: us for rank, us in waits.waited_for_us.items() if rank != diagnosis.capture.rank}
    if mine is not None and mine.matched and waits.same_clock and mine.wait_us and others:
        last = max(others, key=lambda rank: others[rank])
        yield mine.wait_us, (), f"{BALANCE}: this one waits {mine.wait_us / 1000:.2f} ms, most for rank {last}"
    elif diagnosis.time.communication_wait_ns:
        wait_us = diagnosis.time.communication_wait_ns / 1000
        yield wait_us, (), f"{FIND_LATE}: collectives wait {wait_us / 1000:.2f} ms and move nothing"


def _kernels(diagnosis: Found) -> Iterator[tuple[float, tuple[str, ...], str]]:
    matmuls = [k for k in diagnosis.kernels if family_of_type(k.op_type) == MATMUL and not _is_quantised(k)]
    heavy_us = fsum(k.total_us for k in matmuls if k.limit in ("HBM-bound", "cube-bound"))
    if heavy_us:
        why = f"8-bit weights: {heavy_us / 1000:.2f} ms in matrix products of 16 or 32 bit"
        yield heavy_us * _QUANTISED, ("optimizations.weights=w8a8",), why
    if (fused_us := _add_norm_us(diagnosis)) > 0:
        why = f"fuse Add with the norm behind it: {fused_us / 1000:.2f} ms in such Adds"
        yield fused_us, ("optimizations.fusion.add_rms_norm=true",), why
    small = [k for k in diagnosis.kernels if k.total_us / k.count < SMALL_US and k.limit == "vector-bound"]
    count, us = sum(k.count for k in small), sum(k.total_us for k in small)
    if count:
        yield us, (), f"fuse small kernels: {count:,} of {us / count:.1f} us on average on the vector cores"


def _is_quantised(kernel: MeasuredKernel) -> bool:
    """Whether a product is of 8 or 4 bits already, by its name or the types of its inputs."""
    return "INT8" in kernel.dtypes or bool(_NARROW.search(kernel.op_type))


def _add_norm_us(diagnosis: Found) -> float:
    """Time in Adds that a norm follows on their stream: the kernel that a fused AddRmsNorm saves."""
    capture, events = diagnosis.capture, diagnosis.capture.events
    rows = in_step(capture, diagnosis.step, Kind.KERNEL)
    saved = 0
    last: dict[int, int] = {}
    for row in rows.tolist():
        lane = int(events.lane[row])
        before = last.get(lane)
        if (
            before is not None
            and capture.text(row, "op_type") == "RmsNorm"
            and capture.text(before, "op_type") == "Add"
        ):
            saved += int(events.duration_ns[before])
        last[lane] = row
    return saved / 1000
