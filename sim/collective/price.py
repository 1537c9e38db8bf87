"""How long one collective takes from the moment its last rank arrives, and what it occupies meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import fsum
from typing import Literal

from scenarios.records import dataclass
from sim.collective.algorithms import FORMULAS, Terms
from sim.collective.choose import Choice, CollectiveError, choose
from sim.collective.links import Mode, Wire, aiv_cores, start_ns, wire
from sim.collective.topology import Level, levels_of
from sim.hardware.profile import HardwareProfile

#: What `bytes` counts: the whole tensor, or one rank's share of it.
Semantics = Literal["full", "shard"]
#: Operations of which a share is a share.
SHARED = ("all_gather", "reduce_scatter", "all_to_all")


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """One collective, all ranks ready at once.

    algorithm: as chosen, `hierarchical:nhr` with the one between servers. mode: who moved the bytes. vector_cores:
    taken from compute (0 unless AIV). link_bytes: received by one rank over its links. hbm_bytes: read and written in
    its memory. bus_gbps: bytes that the best algorithm must move over the time, as collective benchmarks count.
    """

    duration_ns: int
    algorithm: str
    mode: Mode
    vector_cores: int
    hbm_bytes: int
    link_bytes: int
    bus_gbps: float


@lru_cache(maxsize=16384)
def price_collective(
    op: str,
    bytes: int,
    ranks: int,
    hw: HardwareProfile,
    mode: str = "auto",
    algorithm: str = "auto",
    semantics: Semantics = "full",
    *,
    stride: int = 1,
    first: int = 0,
    graph: bool = False,
    idle: bool = False,
    busy: bool = False,
    imbalance: float = 1.0,
) -> CollectiveTime:
    """The time of a collective on `ranks` dies.

    bytes: of the whole tensor (all-gather: its output; reduce-scatter: its input; all-to-all: what one rank sends, its
    own part included), or with semantics "shard" what one rank keeps or sends to one. mode: auto, HOST, AI_CPU or AIV
    (as HCCL_OP_EXPANSION_MODE: AIV falls back above its thresholds; auto is AIV, which inference engines set).
    stride: distance of neighbouring ranks, in dies; first: the die of the first one. graph: part of a whole graph
    (other thresholds). idle: nothing hides the AI CPU's expansion, for nothing ran on the device before or a captured
    graph launches it. busy: between the kernels of a network instead of in a benchmark's loop. imbalance: bytes of the
    busiest rank over the mean, of an all-to-all-v. Raises CollectiveError for an operation, mode or algorithm that
    there is not.
    """
    if bytes < 0 or ranks < 1 or stride < 1 or imbalance < 1:
        raise CollectiveError("bytes must be 0 or more; ranks, stride and imbalance 1 or more")
    op = "all_to_all" if op == "all_to_all_v" else op
    if semantics == "shard" and op not in SHARED:
        raise CollectiveError(f"{op}: has no shards; bytes are the whole message")
    n = float(bytes * ranks if semantics == "shard" else bytes)
    if op == "all_to_all":
        n *= imbalance
    levels = levels_of(ranks, hw.collective, stride, first)
    if not levels:
        choose(op, n, ranks=ranks, levels=(Level("sio", 1),), hw=hw, mode=mode, algorithm="auto", graph=graph)
        return CollectiveTime(
            duration_ns=0, algorithm="none", mode="HOST", vector_cores=0, hbm_bytes=0, link_bytes=0, bus_gbps=0.0
        )
    choice = choose(op, n, ranks=ranks, levels=levels, hw=hw, mode=mode, algorithm=algorithm, graph=graph)
    cores = aiv_cores(op, ranks, hw) if choice.mode == "AIV" else 0
    wires = tuple(wire(level.tier, choice.mode, cores, hw, busy) for level in levels)
    spent, received, reduced = _spent(op, n, ranks, levels, wires, choice)
    duration = round(start_ns(choice.mode, idle, hw) + spent)
    name = choice.algorithm if choice.inter == "none" else f"{choice.algorithm}:{choice.inter}"
    # What arrives is written, as much is read for the others, and what is reduced is read again where it is added.
    hbm = round(2 * received + reduced)
    return CollectiveTime(
        duration_ns=duration,
        algorithm=name,
        mode=choice.mode,
        vector_cores=cores,
        hbm_bytes=hbm,
        link_bytes=round(received),
        bus_gbps=_bus_bytes(op, n, ranks) / max(1, duration),
    )


def _spent(
    op: str, n: float, ranks: int, levels: tuple[Level, ...], wires: tuple[Wire, ...], choice: Choice
) -> tuple[float, float, float]:
    """(ns after the start, bytes received, bytes reduced)."""
    if choice.inter == "pipeline":
        return _pipeline(op, n, levels, wires)
    if choice.inter != "none":
        return _hierarchy(op, n, levels, wires, choice)
    terms = FORMULAS[op][choice.algorithm](n, ranks)
    if op == "send_recv":
        ns = wires[-1].time_ns(terms)
    elif len(levels) == 1:
        ns = wires[0].time_ns(terms)
    elif terms.peers > 1 or op == "all_to_all":
        ns = all_peers_ns(terms, ranks, levels, wires)
    else:  # one flat ring or tree: the slowest tier sets the pace
        ns = max(w.time_ns(terms) for w in wires)
    return ns, terms.received_bytes, terms.reduced_bytes


def all_peers_ns(terms: Terms, ranks: int, levels: tuple[Level, ...], wires: tuple[Wire, ...]) -> float:
    """Each rank with every other over several tiers at once.

    A die's HCCS port carries what goes to its pod too; pairwise steps (peers 1) follow one another, a mesh overlaps.
    """
    share = terms.received_bytes / (ranks - 1)
    times, inside = [], 1
    for level, w in zip(levels, wires, strict=True):
        peers = inside * (level.ranks - 1)
        through = ranks - 1 if level.tier == "hccs" and not w.meshed and terms.peers > 1 else peers
        times.append(w.bytes_ns(share, through))
        inside *= level.ranks
    steps = max(w.steps_ns(terms) for w in wires)
    return steps + (max(times) if terms.peers > 1 else fsum(times))


def _hierarchy(
    op: str, n: float, levels: tuple[Level, ...], wires: tuple[Wire, ...], choice: Choice
) -> tuple[float, float, float]:
    """Level by level. All-reduce: reduce-scatter inwards, all-reduce at the top, all-gather outwards; a broadcast the
    same without reducing. Inside a server the family's own algorithm, between servers the chosen one."""
    parts: list[tuple[Terms, Wire]] = []
    top = len(levels) - 1
    share = n
    for place, (level, w) in enumerate(zip(levels, wires, strict=True)):
        name = choice.inter if level.tier in ("pod", "roce") else "mesh" if w.meshed else "ring"
        formulas = FORMULAS[op if place == top or op not in ("all_reduce", "broadcast") else "reduce_scatter"]
        terms = formulas[name](share, level.ranks)
        if place < top and op in ("all_reduce", "broadcast"):
            back = FORMULAS["all_gather"][name](share, level.ranks)
            terms = (terms if op == "all_reduce" else back) + back
        parts.append((terms, w))
        share /= level.ranks
    return _sum(parts)


def _pipeline(op: str, n: float, levels: tuple[Level, ...], wires: tuple[Wire, ...]) -> tuple[float, float, float]:
    """HCCL's pipeline: while a part crosses between servers the part before spreads inside.

    [max(n/p beta_inter + alpha_inter, n/p beta_intra + alpha_intra)(p_inter - 1) + n/p beta_intra + alpha_intra], for
    an all-reduce twice, once of them reducing.
    """
    p = 1
    for level in levels:
        p *= level.ranks
    near, far = wires[0], wires[-1]
    servers = p // levels[0].ranks
    part = n / p
    gather = _pipelined(part, levels[0].ranks, servers, near, far, reducing=False)
    reduce = _pipelined(part, levels[0].ranks, servers, near, far, reducing=True)
    moved = (p - 1) * part
    if op == "all_reduce":
        return gather + reduce, 2 * moved, moved
    return (gather, moved, 0.0) if op == "all_gather" else (reduce, moved, moved)


def _pipelined(part: float, near_ranks: int, servers: int, near: Wire, far: Wire, reducing: bool) -> float:
    peers = near_ranks - 1
    inside = near.time_ns(Terms(1, part, peers * part if reducing else 0.0, int(reducing), peers)) if peers else 0.0
    across = far.time_ns(Terms(1, part, part if reducing else 0.0, int(reducing)))
    return max(across, inside) * (servers - 1) + inside


def _sum(parts: Sequence[tuple[Terms, Wire]]) -> tuple[float, float, float]:
    return (
        fsum(w.time_ns(terms) for terms, w in parts),
        fsum(terms.received_bytes for terms, _ in parts),
        fsum(terms.reduced_bytes for terms, _ in parts),
    )


def _bus_bytes(op: str, n: float, ranks: int) -> float:
    if op in ("broadcast", "send_recv"):
        return n
    return (2 if op == "all_reduce" else 1) * (ranks - 1) / ranks * n
