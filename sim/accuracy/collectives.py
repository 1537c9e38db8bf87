"""Measured collectives held against predictions.

A `microbench` row is the bare transfer. A row measured in a network holds two things more: vector cores take longer
for bytes that other kernels wrote (`busy`), and ranks do not arrive together. Steps simulate the latter; a row alone
does not say when its ranks came, so it gets the profile's spread: `arrival_us` for the median of a run,
`arrival_mean_us` for the mean of one whose hosts jitter (all-reduces of one decode step on 16 dies: median 20 us, mean
80 us). Ranks of a device-bound step are kept in step by their collectives, so that the median spread is small.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import exp

from scenarios.errors import ScenarioError
from sim.accuracy.rows.files import CollectiveRow
from sim.accuracy.score import Scored, Skipped
from sim.collective.choose import CollectiveError
from sim.collective.price import CollectiveTime, Semantics, price_collective
from sim.hardware.profile import HardwareError, HardwareProfile, load_hardware
from sim.predict.uncertainty import Z90

#: Spellings of the operations, in lower case and without underscores.
OPS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "allgatherbase": "all_gather",
    "allgatherintotensor": "all_gather", "reducescatter": "reduce_scatter", "reducescattertensor": "reduce_scatter",
    "alltoall": "all_to_all", "alltoallv": "all_to_all", "alltoallvc": "all_to_all", "broadcast": "broadcast",
    "sendrecv": "send_recv", "send": "send_recv", "receive": "send_recv", "recv": "send_recv",
    "batchsendrecv": "send_recv",
}  # fmt: skip


def op_of(name: str) -> str:
    """The operation behind a name such as `hcom_allReduce__612_4_1`. Raises CollectiveError."""
    plain = name.lower().removeprefix("hcom").replace("_", " ").split("@")[0]
    words = plain.rstrip("0123456789 ").replace(" ", "")
    if words not in OPS:
        raise CollectiveError(f"{name!r} is no collective that is modelled")
    return OPS[words]


def arrival_spread_ns(hw: HardwareProfile, statistic: str = "median") -> float:
    """What the ranks of a collective in a network add by not arriving together, ns: `median` or `mean`."""
    c = hw.collective
    return 1000 * (c.arrival_us if statistic == "median" else c.arrival_mean_us)


def predicted_us(row: CollectiveRow, hw: HardwareProfile) -> float:
    """The time of a measured collective, us. Raises CollectiveError where it cannot be priced."""
    return _timed(row, hw)[0]


def _timed(row: CollectiveRow, hw: HardwareProfile) -> tuple[float, CollectiveTime]:
    semantics: Semantics = "shard" if row.shard else "full"
    time = price_collective(
        op_of(row.op),
        row.bytes,
        ranks=row.ranks,
        hw=hw,
        mode=row.mode,
        algorithm=row.algorithm,
        semantics=semantics,
        idle=row.idle,
        busy=row.waited,
    )
    spread = arrival_spread_ns(hw) if row.waited else 0.0
    return (time.duration_ns + spread) / 1000, time


def price_collectives(rows: Iterable[CollectiveRow], hardware: str = "") -> tuple[list[Scored], list[Skipped]]:
    """Price measured collectives; `hardware` replaces the profile that the rows name. The plain roofline next to them
    is the bytes that a rank must receive over the rate of its links on paper."""
    scored: list[Scored] = []
    skipped: list[Skipped] = []
    for row in rows:
        try:
            hw = load_hardware(hardware or row.hardware)
            us, time = _timed(row, hw)
        except (CollectiveError, HardwareError, ScenarioError) as error:
            skipped.append(Skipped(row.label, str(error)))
            continue
        width = Z90 * (hw.collective.sigma**2 + hw.residual.device_sigma**2) ** 0.5
        kind = f"{op_of(row.op)} {row.ranks}"
        plain = time.link_bytes / (hw.collective.hccs_peak_gbps * _links(row.ranks, hw)) / 1000
        scored.append(
            Scored(
                row.label,
                kind,
                measured_us=row.mean_us,
                predicted_us=us,
                low_us=us * exp(-width),
                high_us=us * exp(width),
                roofline_us=plain,
                scored=row.scored,
            )
        )
    return scored, skipped


def _links(ranks: int, hw: HardwareProfile) -> int:
    """Links that bring a rank its bytes: one to each neighbour on a full mesh, else the port."""
    c = hw.collective
    return min(ranks, c.dies_per_server) - 1 if c.full_mesh and ranks > 1 else 1


def by_operation(kind: str) -> tuple[str, int]:
    """Order of the kinds, which are operation and ranks."""
    op, _, ranks = kind.rpartition(" ")
    return op, int(ranks)
