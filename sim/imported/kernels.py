"""The kernels of a measured step: by op type and shape, with their place under the roofline where it is known."""

from __future__ import annotations

from collections.abc import Iterable
from math import fsum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from scenarios.ops.work import Work
from scenarios.profile import Capture, Kind, Step
from scenarios.profile.families import ATTENTION, MATMUL, family_of_type
from scenarios.records import dataclass
from sim.accuracy.rows.op_types import Unpriced, work_of_row
from sim.hardware.profile import HardwareProfile
from sim.kernel.price import price
from sim.kernel.time import Bound, KernelTime
from sim.predict.explain import Bottleneck

#: Who says what bounds a kernel: the profiler's pipe counters, the model, or only the engine that it ran on.
BoundSource = Literal["measured", "predicted", "assumed"]

#: What bounds a kernel whose busiest pipe is this. MTE1 feeds the cube from L1; MTE2, MTE3 and FixPipe move data from
#: and to global memory, which may be HBM or L2; a busy scalar unit starts and steers.
_BOUND_OF_PIPE: dict[str, Bound] = {
    "mac": "cube", "mte1": "cube", "mte2": "hbm", "mte3": "hbm", "fixpipe": "hbm", "vec": "vector", "scalar": "launch",
}  # fmt: skip
_LIMIT_OF_BOUND: dict[Bound, Bottleneck] = {
    "hbm": "HBM-bound", "cube": "cube-bound", "vector": "vector-bound", "launch": "vector-bound",
    "ai_cpu": "vector-bound", "link": "communication-bound", "l2": "vector-bound",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class MeasuredKernel:
    """All kernels of one op type and shape in the step.

    share: of the step. roofline_share: the time that peak compute and peak HBM bandwidth allow, over the time taken;
    predicted_us: what the model says for all of them. Both None without a hardware capture, or with `unpriced` saying
    why. gbps, tflops: reached, by the bytes and flops that the shapes imply.
    """

    op_type: str
    shapes: str
    dtypes: str
    task_type: str
    count: int
    total_us: float
    share: float
    bound: Bound
    bound_source: BoundSource
    limit: Bottleneck
    cores: int
    hbm_bytes: int | None = None
    flops: int | None = None
    roofline_share: float | None = None
    predicted_us: float | None = None
    gbps: float | None = None
    tflops: float | None = None
    unpriced: str = ""


def kernels_of(
    capture: Capture, step: Step, total_ns: int, hardware: HardwareProfile | None
) -> tuple[MeasuredKernel, ...]:
    """The kernels that start in the step, grouped, the longest first. Collectives are not among them."""
    events = capture.events
    rows = in_step(capture, step, Kind.KERNEL)
    if not len(rows):
        return ()
    facts, which = np.unique(events.fact[rows], return_inverse=True)
    counts = np.bincount(which)
    times = np.bincount(which, weights=events.duration_ns[rows].astype(np.float64))
    kernels = [
        _kernel(capture, int(fact), int(count), int(ns), total_ns, hardware)
        for fact, count, ns in zip(facts, counts, times, strict=True)
    ]
    return tuple(sorted(_merged(kernels), key=lambda k: (-k.total_us, k.op_type, k.shapes)))


def in_step(capture: Capture, step: Step, *kinds: Kind) -> NDArray[np.intp]:
    """The rows of these kinds that start in the step's window."""
    rows = capture.events.rows(*kinds)
    starts = capture.events.start_ns[rows]
    return rows[(starts >= step.start_ns) & (starts < step.end_ns)]


def _kernel(
    capture: Capture, fact: int, count: int, ns: int, total_ns: int, hardware: HardwareProfile | None
) -> MeasuredKernel:
    facts = capture.events.facts

    def text(column: str) -> str:
        return capture.texts[int(getattr(facts, column)[fact])]

    task_type, pipe, op_type, shapes, dtypes = (text(c) for c in ("task_type", "pipe", "op_type", "shapes", "dtypes"))
    work, time, why = _priced(op_type, shapes, dtypes, hardware)
    bound, source = _bound(op_type, task_type, pipe, time)
    limit = _LIMIT_OF_BOUND[bound]
    if bound == "l2" and work is not None and work.unit in ("cube", "mix"):
        limit = "cube-bound"  # it waits for what it loads from L2
    row = MeasuredKernel(
        op_type=op_type,
        shapes=shapes,
        dtypes=dtypes,
        task_type=task_type,
        count=count,
        total_us=ns / 1000,
        share=ns / total_ns if total_ns else 0.0,
        bound=bound,
        bound_source=source,
        limit=limit,
        cores=int(facts.block_dim[fact]),
        unpriced=why,
    )
    return _with_roofline(row, time, ns) if time is not None and ns else row


def _with_roofline(row: MeasuredKernel, time: KernelTime, ns: int) -> MeasuredKernel:
    values = {name: getattr(row, name) for name in MeasuredKernel.__slots__}
    values |= {
        "hbm_bytes": row.count * time.hbm_bytes,
        "flops": row.count * time.flops,
        "roofline_share": row.count * time.roofline_ns / ns,
        "predicted_us": row.count * time.duration_ns / 1000,
        "gbps": row.count * time.gm_bytes / ns,
        "tflops": row.count * time.flops / ns / 1000,
    }
    return MeasuredKernel(**values)


def _priced(
    op_type: str, shapes: str, dtypes: str, hardware: HardwareProfile | None
) -> tuple[Work | None, KernelTime | None, str]:
    """The work of a kernel and its price, or why there is none."""
    if hardware is None:
        return None, None, ""
    if not shapes:
        return None, None, "no shapes in the profile"
    try:
        work = work_of_row(op_type, shapes, dtypes)
        return work, price(work, hardware), ""
    except (Unpriced, ValueError, OverflowError) as error:
        return None, None, str(error)


def _bound(op_type: str, task_type: str, pipe: str, time: KernelTime | None) -> tuple[Bound, BoundSource]:
    if pipe in _BOUND_OF_PIPE:
        return _BOUND_OF_PIPE[pipe], "measured"
    if time is not None:
        return time.bound, "predicted"
    if "AI_CPU" in task_type or "AICPU" in task_type:
        return "ai_cpu", "assumed"
    # At level 0 a kernel of the vector cores is an AI_CORE task too, so the op type has to tell.
    return ("cube" if family_of_type(op_type) in (MATMUL, ATTENTION) else "vector"), "assumed"


def _merged(rows: Iterable[MeasuredKernel]) -> list[MeasuredKernel]:
    """Rows of one op type, shape and type as one: they differ in their cores or the pipe that happened to lead."""
    groups: dict[tuple[str, str, str], list[MeasuredKernel]] = {}
    for row in rows:
        groups.setdefault((row.op_type, row.shapes, row.dtypes), []).append(row)
    return [members[0] if len(members) == 1 else _sum(members) for members in groups.values()]


def _sum(members: list[MeasuredKernel]) -> MeasuredKernel:
    longest = max(members, key=lambda m: m.total_us)
    values = {name: getattr(longest, name) for name in MeasuredKernel.__slots__}
    total_us = fsum(m.total_us for m in members)
    values["count"] = sum(m.count for m in members)
    for name in ("total_us", "share"):
        values[name] = fsum(getattr(m, name) for m in members)
    for name in ("hbm_bytes", "flops", "predicted_us"):
        values[name] = None if getattr(longest, name) is None else sum(getattr(m, name) or 0 for m in members)
    for name in ("roofline_share", "gbps", "tflops"):
        if getattr(longest, name) is not None and total_us:
            values[name] = fsum((getattr(m, name) or 0.0) * m.total_us for m in members) / total_us
    return MeasuredKernel(**values)
