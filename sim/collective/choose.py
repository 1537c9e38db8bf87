"""Which expansion and which algorithm HCCL takes: by operation, size, ranks, topology and settings.

Thresholds are the profile's (HCCL's source, `select_alg` of each operator; reference notes in docs). What the rules
leave out: deterministic modes, symmetric memory, rank counts that differ between servers, HCCS switched off.
"""

from __future__ import annotations

from scenarios.errors import did_you_mean
from scenarios.records import dataclass
from sim.collective.algorithms import FORMULAS, Algorithm
from sim.collective.links import Mode
from sim.collective.topology import Level
from sim.hardware.profile import HardwareProfile
from sim.hardware.sections import Collective

MODES = ("auto", "HOST", "AI_CPU", "AIV")
#: Algorithms between servers (HCCL_ALGO=level0:NA;level1:...).
INTER: tuple[Algorithm, ...] = ("ring", "nhr", "rhd", "pipeline")


class CollectiveError(ValueError):
    """An operation, mode or algorithm that there is not, or not for these ranks; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Choice:
    """mode: who moves the bytes. algorithm: on one level, or `hierarchical`. inter: the one between servers then."""

    mode: Mode
    algorithm: Algorithm
    inter: Algorithm = "none"


def choose(
    op: str,
    n: float,
    ranks: int,
    levels: tuple[Level, ...],
    hw: HardwareProfile,
    mode: str,
    algorithm: str,
    graph: bool,
) -> Choice:
    """The choice for `n` bytes of the whole tensor. Raises CollectiveError with what there is instead."""
    _check(op, mode, algorithm)
    forced = "" if algorithm == "auto" else algorithm
    engine = _engine(op=op, n=n, ranks=ranks, levels=levels, hw=hw, mode=mode, forced=forced, graph=graph)
    if engine == "AIV":
        return Choice(engine, _kernel(op, n, forced, hw.collective))
    if len(levels) == 1 or op in ("all_to_all", "send_recv"):
        return Choice(engine, _one_level(op, n, levels, forced, hw.collective))
    if not forced and n <= hw.collective.flat_bytes * levels[0].ranks and levels[-1].tier == "pod":
        return Choice(engine, "nhr")
    if forced in ("mesh", "one_shot", "star"):
        raise CollectiveError(f"{forced}: needs ranks of one server; between servers there are {', '.join(INTER)}")
    inter: Algorithm = forced if forced in INTER else _cheapest(op, n, levels, hw.collective)
    return Choice(engine, "hierarchical", inter)


def _check(op: str, mode: str, algorithm: str) -> None:
    if op not in FORMULAS:
        raise CollectiveError(
            f"{op!r} is no collective{did_you_mean(op, list(FORMULAS))}. Known: {', '.join(FORMULAS)}"
        )
    if mode not in MODES:
        raise CollectiveError(f"{mode!r} is no expansion mode{did_you_mean(mode, MODES)}. Known: {', '.join(MODES)}")
    known = ["auto", *FORMULAS[op], *(("pipeline", "hierarchical") if op in PIPELINED else ())]
    if algorithm not in known:
        raise CollectiveError(f"{algorithm!r} is no algorithm of {op}. Known: {', '.join(known)}")


#: Operations that have levels, and so a pipeline of them.
PIPELINED = ("all_reduce", "all_gather", "reduce_scatter")


def _engine(
    op: str, n: float, ranks: int, levels: tuple[Level, ...], hw: HardwareProfile, mode: str, forced: str, graph: bool
) -> Mode:
    """auto and AIV: vector cores where HCCL lets them (and the algorithm is theirs), else the family's default."""
    c = hw.collective
    if mode in ("HOST", "AI_CPU"):
        return "HOST" if mode == "HOST" else "AI_CPU"
    kernels = forced in ("", "mesh", "one_shot")
    if kernels and n <= _aiv_limit(op, ranks, levels, graph, c):
        return "AIV"
    return "AI_CPU" if c.ai_cpu_default else "HOST"


def _aiv_limit(op: str, ranks: int, levels: tuple[Level, ...], graph: bool, c: Collective) -> float:
    """Largest whole tensor that HCCL gives to vector cores; -1 for none."""
    near = {
        "all_reduce": c.aiv_all_reduce_bytes,
        "all_gather": c.aiv_all_gather_bytes,
        "reduce_scatter": c.aiv_reduce_scatter_bytes,
        "all_to_all": c.aiv_all_to_all_bytes,
    }
    if op not in near or any(level.tier == "roce" for level in levels):
        return -1
    if levels[-1].tier != "pod":
        return ranks * (max(near[op], c.aiv_graph_bytes) if graph else near[op])
    if op == "all_reduce":
        return c.aiv_pod_all_reduce_bytes or -1
    far = {
        "all_gather": c.aiv_pod_all_gather_bytes,
        "reduce_scatter": c.aiv_pod_reduce_scatter_bytes,
        "all_to_all": c.aiv_pod_all_to_all_bytes,
    }
    return ranks * far[op] or -1


def _kernel(op: str, n: float, forced: str, c: Collective) -> Algorithm:
    if op == "all_reduce" and (forced == "one_shot" or (not forced and n <= c.aiv_one_shot_bytes)):
        return "one_shot"
    return "mesh"


def _one_level(op: str, n: float, levels: tuple[Level, ...], forced: str, c: Collective) -> Algorithm:
    """Inside a server: a mesh where each pair has its link, two rings through the switch else."""
    if op == "send_recv":
        return "direct"
    if forced in ("pipeline", "hierarchical"):
        raise CollectiveError(f"{forced}: needs ranks of several servers")
    if forced:
        return forced  # type: ignore[return-value]
    if op == "all_to_all":
        return "mesh" if len(levels) == 1 else "pairwise"
    if op == "all_reduce" and n <= c.one_shot_bytes:
        return "one_shot"
    return "mesh" if c.full_mesh else "ring"


def _cheapest(op: str, n: float, levels: tuple[Level, ...], c: Collective) -> Algorithm:
    """Between servers: the cheapest by HCCL's own static latency; halving and doubling only on A2."""
    names: tuple[Algorithm, ...] = ("ring", "nhr", "rhd") if c.full_mesh else ("ring", "nhr")
    last = levels[-1]
    share = n
    for level in levels[:-1]:
        share /= level.ranks
    rate = c.roce_gbps if last.tier == "roce" else c.pod_gbps

    def cost(name: Algorithm) -> float:
        terms = FORMULAS[op][name](share, last.ranks)
        return 1000 * c.inter_choice_us * terms.steps + terms.received_bytes / rate

    return min(names, key=cost)
