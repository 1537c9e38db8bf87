"""What a step consists of, as shares of it that sum to 1, and the bottleneck that follows: its largest part.

Idle time is a part like any other: the host that is late, kernels that lie queued behind something else, copies. So a
step whose device idles for 98 % of it is not bound by its few kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

Part = Literal[
    "computing: HBM",
    "computing: cube",
    "computing: vector",
    "communication: transfer",
    "waiting for ranks",
    "pipeline bubble",
    "host late",
    "queued",
    "copies",
    "idle, cause unknown",
]
Name = Literal[
    "host-bound",
    "HBM-bound",
    "cube-bound",
    "vector-bound",
    "communication-bound",
    "bubble-bound",
    "capacity-bound",
    "idle-bound",
    "mixed",
]

#: The name of the bottleneck that each part speaks for. Waiting for other ranks is communication, never host work.
NAME_OF: dict[Part, Name] = {
    "computing: HBM": "HBM-bound", "computing: cube": "cube-bound", "computing: vector": "vector-bound",
    "communication: transfer": "communication-bound", "waiting for ranks": "communication-bound",
    "pipeline bubble": "bubble-bound", "host late": "host-bound", "queued": "idle-bound", "copies": "idle-bound",
    "idle, cause unknown": "idle-bound",
}  # fmt: skip
#: What the device does in each part. Half of a step spent on one of these says what kind of step it is.
_SORT_OF: dict[Name, str] = {
    "HBM-bound": "computing", "cube-bound": "computing", "vector-bound": "computing",
    "communication-bound": "communication", "bubble-bound": "idle", "host-bound": "idle", "idle-bound": "idle",
}  # fmt: skip
#: The largest name is given where it has MIN_SHARE of the step, or where its sort has and it is LEAD times the next
#: of that sort; never where the second is within MARGIN of the step. Any other step is mixed. All three are conventions
#: of this tool.
MARGIN, MIN_SHARE, LEAD = 0.05, 0.5, 2.0


def shares_of(parts_ns: Mapping[Part, float], total_ns: int) -> dict[str, float]:
    """Each part as a share of the step, the largest first; parts of no time are left out."""
    shares = {str(part): ns / max(1, total_ns) for part, ns in parts_ns.items() if ns > 0}
    return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))


def in_shares(parts_ns: Mapping[Part, float], total_ns: int) -> str:
    """The largest bottlenecks of a mixed step with their shares."""
    said = ", ".join(f"{name} {ns / max(1, total_ns):.0%}" for name, ns in list(by_name(parts_ns).items())[:3])
    return f"{said} of the step"


def mixed_evidence(evidence: Sequence[str], parts_ns: Mapping[Part, float], total_ns: int) -> str:
    """What a mixed step is made of. evidence: of each of its names; what two of them say stands once."""
    said = list(dict.fromkeys(clause for one in evidence for clause in one.split("; ")))
    return f"no part stands out ({in_shares(parts_ns, total_ns)}): {'; '.join(said)}"


def by_name(parts: Mapping[Part, float]) -> dict[Name, float]:
    """The parts summed by the bottleneck they speak for, the largest first."""
    sums: dict[Name, float] = {}
    for part, value in parts.items():
        if value > 0:
            sums[NAME_OF[part]] = sums.get(NAME_OF[part], 0.0) + value
    return dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))


def bottleneck_of(parts_ns: Mapping[Part, float], total_ns: int) -> tuple[Name, tuple[Name, ...]]:
    """The bottleneck, and the names it is made of: one, or of a mixed step the two largest and what is near them."""
    sums = by_name(parts_ns)
    if not sums:
        return "host-bound", ("host-bound",)
    first = max(sums.values())
    near = tuple(name for name, ns in sums.items() if first - ns < MARGIN * total_ns)
    if len(near) == 1 and (first >= MIN_SHARE * total_ns or _leads(near[0], sums, total_ns)):
        return near[0], near
    return "mixed", near if len(near) > 1 else tuple(sums)[:2]


def _leads(name: Name, sums: Mapping[Name, float], total_ns: int) -> bool:
    """Whether the sort of `name` has its share of the step, and `name` the lead in it."""
    same = [ns for other, ns in sums.items() if _SORT_OF[other] == _SORT_OF[name]]
    others = [ns for other, ns in sums.items() if _SORT_OF[other] == _SORT_OF[name] and other != name]
    return sum(same) >= MIN_SHARE * total_ns and sums[name] >= LEAD * max(others, default=0.0)
