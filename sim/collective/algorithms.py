"""What each algorithm does, in units of latency (alpha), bytes on a link (beta) and bytes reduced (gamma).

The formulas are those of HCCL's user guide (`coll_algo_intro`): n bytes of the whole tensor, p ranks, alpha the latency
of a step, beta seconds a byte, gamma seconds a byte to reduce. NHR's and the rings' all-reduce are a reduce-scatter and
an all-gather; so is the mesh's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from scenarios.records import dataclass

Algorithm = Literal[
    "one_shot", "mesh", "ring", "rhd", "nhr", "pairwise", "star", "direct", "pipeline", "hierarchical", "none"
]


@dataclass(frozen=True, slots=True)
class Terms:
    """steps alpha + reduce_steps (what a reducing step takes more) + link_bytes beta + reduced_bytes gamma.

    link_bytes: what one link brings to a rank. peers: links of a rank that bring as much at the same time; where the
    rank has one port instead of a link for each peer, all of it goes through the port.
    """

    steps: int
    link_bytes: float
    reduced_bytes: float = 0.0
    reduce_steps: int = 0
    peers: int = 1

    @property
    def received_bytes(self) -> float:
        """What arrives at a rank over all its links."""
        return self.link_bytes * self.peers

    def __add__(self, other: Terms) -> Terms:
        """One after the other; both over the same peers."""
        if self.peers != other.peers:
            raise ValueError("terms over different peers do not add")
        return Terms(
            self.steps + other.steps,
            self.link_bytes + other.link_bytes,
            self.reduced_bytes + other.reduced_bytes,
            self.reduce_steps + other.reduce_steps,
            self.peers,
        )


def mesh_gather(n: float, p: int) -> Terms:
    """alpha + n/p beta: each rank has a link to each other and receives its share over it."""
    return Terms(1, n / p, peers=p - 1)


def mesh_reduce(n: float, p: int) -> Terms:
    """alpha + n/p beta + (p-1)/p n gamma."""
    return Terms(1, n / p, (p - 1) / p * n, 1, peers=p - 1)


def mesh_all_reduce(n: float, p: int) -> Terms:
    """2 alpha + 2/p n beta + (p-1)/p n gamma: two shots."""
    return mesh_reduce(n, p) + mesh_gather(n, p)


def one_shot(n: float, p: int) -> Terms:
    """alpha + n beta + (p-1) n gamma: each rank reads every other's whole message and reduces alone."""
    return Terms(1, n, (p - 1) * n, 1, peers=p - 1)


def ring_gather(n: float, p: int) -> Terms:
    """(p-1) alpha + (p-1)/p n beta."""
    return Terms(p - 1, (p - 1) / p * n)


def ring_reduce(n: float, p: int) -> Terms:
    """(p-1) alpha + (p-1)/p n beta + (p-1)/p n gamma."""
    return Terms(p - 1, (p - 1) / p * n, (p - 1) / p * n, p - 1)


def ring_all_reduce(n: float, p: int) -> Terms:
    """2(p-1) alpha + 2(p-1)/p n beta + (p-1)/p n gamma."""
    return ring_reduce(n, p) + ring_gather(n, p)


def rhd_gather(n: float, p: int) -> Terms:
    """log2 p alpha + (p-1)/p n beta; not a power of two: one more step that brings the whole to the ranks left out."""
    log, core = _floor_power(p)
    extra = int(core != p)
    return Terms(log + extra, ((core - 1) / core + extra) * n)


def rhd_reduce(n: float, p: int) -> Terms:
    """As rhd_gather, and as many bytes reduced as received."""
    gather = rhd_gather(n, p)
    return Terms(gather.steps, gather.link_bytes, gather.link_bytes, gather.steps)


def rhd_all_reduce(n: float, p: int) -> Terms:
    """Recursive halving, then doubling. p a power of two: 2 log2 p alpha + 2(p-1)/p n beta + (p-1)/p n gamma; else,
    with p' = 2^floor(log2 p): (2 log2 p' + 2) alpha + (2(p'-1)/p' + 2) n beta + ((p'-1)/p' + 1) n gamma."""
    return rhd_reduce(n, p) + rhd_gather(n, p)


def nhr_gather(n: float, p: int) -> Terms:
    """ceil(log2 p) alpha + (p-1)/p n beta, for any p (non-uniform hierarchical ring)."""
    return Terms((p - 1).bit_length(), (p - 1) / p * n)


def nhr_reduce(n: float, p: int) -> Terms:
    """ceil(log2 p) alpha + (p-1)/p n beta + (p-1)/p n gamma."""
    steps = (p - 1).bit_length()
    return Terms(steps, (p - 1) / p * n, (p - 1) / p * n, steps)


def nhr_all_reduce(n: float, p: int) -> Terms:
    """2 ceil(log2 p) alpha + 2(p-1)/p n beta + (p-1)/p n gamma."""
    return nhr_reduce(n, p) + nhr_gather(n, p)


def mesh_all_to_all(n: float, p: int) -> Terms:
    """alpha + n/p beta: n bytes that a rank sends to all, its own part included."""
    return Terms(1, n / p, peers=p - 1)


def pairwise_all_to_all(n: float, p: int) -> Terms:
    """(p-1) alpha + beta times the sum of the largest part of each step."""
    return Terms(p - 1, (p - 1) / p * n)


def star_broadcast(n: float, p: int) -> Terms:
    """alpha + n beta: the root sends the whole to each; from one port, p-1 times."""
    return Terms(1, n, peers=p - 1)


def direct(n: float, p: int) -> Terms:
    """alpha + n beta: one rank to one other."""
    del p
    return Terms(1, n)


def without_reducing(algorithm: Callable[[float, int], Terms]) -> Callable[[float, int], Terms]:
    """A broadcast made of scatter and all-gather moves what the all-reduce moves and reduces nothing."""

    def moved(n: float, p: int) -> Terms:
        terms = algorithm(n, p)
        return Terms(terms.steps, terms.link_bytes, peers=terms.peers)

    return moved


#: What there is for each operation, by algorithm, on one level.
FORMULAS: dict[str, dict[str, Callable[[float, int], Terms]]] = {
    "all_reduce": {
        "one_shot": one_shot, "mesh": mesh_all_reduce, "ring": ring_all_reduce, "rhd": rhd_all_reduce,
        "nhr": nhr_all_reduce,
    },
    "all_gather": {"mesh": mesh_gather, "ring": ring_gather, "rhd": rhd_gather, "nhr": nhr_gather},
    "reduce_scatter": {"mesh": mesh_reduce, "ring": ring_reduce, "rhd": rhd_reduce, "nhr": nhr_reduce},
    "all_to_all": {"mesh": mesh_all_to_all, "pairwise": pairwise_all_to_all},
    "broadcast": {
        "star": star_broadcast, "mesh": without_reducing(mesh_all_reduce), "ring": without_reducing(ring_all_reduce),
        "rhd": without_reducing(rhd_all_reduce), "nhr": without_reducing(nhr_all_reduce),
    },
    "send_recv": {"direct": direct},
}  # fmt: skip


def _floor_power(p: int) -> tuple[int, int]:
    """(exponent, value) of the largest power of two that is at most p."""
    log = p.bit_length() - 1
    return log, 1 << log
