"""Who steps together with this rank, and what they exchange: the plain calls of torch.distributed.

Ranks are numbered replica by replica, in each stage by stage, in each the ranks that share a layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from device.step.step import Group, Groups

#: torch 2.13 has renamed these two; the torch of older NPU releases has the old names only.
_ALL_GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_REDUCE_SCATTER = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class Ranks:
    """This process among some of torch.distributed's, or among all. Sums come in place.

    members: their numbers there; every process must make every group, in the same order.
    """

    def __init__(self, members: Sequence[int] | None = None) -> None:
        self._group = None if members is None else dist.new_group(list(members))
        self.members = tuple(range(dist.get_world_size()) if members is None else members)
        self.ranks = len(self.members)
        self._posted: list[Any] = []  # what is still on its way
        me = dist.get_rank()
        self.rank = self.members.index(me) if me in self.members else -1
        self._own_name = ""

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x, group=self._group)
        return x

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        out = x.new_empty((self.ranks * x.shape[0], *x.shape[1:]))
        _ALL_GATHER(out, x, group=self._group)
        return out.view(self.ranks, *x.shape)

    def reduce_scatter(self, x: torch.Tensor) -> torch.Tensor:
        out = x.new_empty((x.shape[0] // self.ranks, *x.shape[1:]))
        _REDUCE_SCATTER(out, x, group=self._group)
        return out

    def all_to_all(self, x: torch.Tensor, sent: Sequence[int], received: Sequence[int]) -> torch.Tensor:
        out = x.new_empty((sum(received), *x.shape[1:]))
        dist.all_to_all_single(out, x.contiguous(), list(received), list(sent), group=self._group)
        return out

    def name(self) -> str:
        return _name_of(self._group or dist.group.WORLD, self.rank)

    def own_name(self) -> str:
        if not self._own_name:
            # Only its members come here: those of other stages have groups of their own.
            self._own_name = _name_of(dist.new_group(list(self.members), use_local_synchronization=True), self.rank)
        return self._own_name

    def send(self, x: torch.Tensor, to: int) -> None:
        dist.send(x.contiguous(), self.members[to], group=self._group)

    def post(self, x: torch.Tensor, to: int) -> None:
        work = dist.isend(x.contiguous(), self.members[to], group=self._group)
        self._posted = [work for work in self._posted if not work.is_completed()] + [work]

    def receive(self, x: torch.Tensor, sender: int) -> torch.Tensor:
        dist.recv(x, self.members[sender], group=self._group)
        return x


def _name_of(group: Any, rank: int) -> str:
    """What HCCL calls a group, or torch where it is none of HCCL's. rank: of this process in it."""
    if dist.get_backend(group) != "hccl":
        return str(group.group_name)
    name: str = group._get_backend(torch.device("npu")).get_hccl_comm_name(rank)
    return name


def groups_of(world: Group | None, tensor: int, stages: int = 1, replicas: int = 1) -> Groups:
    """The groups of this process, of `world` with `replicas` x `stages` x `tensor` ranks; None is a rank alone."""
    if world is None or world.ranks == tensor:
        return Groups.of(world)
    mine, groups = world.rank, {}

    def add(name: str, members: Sequence[int]) -> None:
        group = Ranks(members)  # all processes take part in making each
        if mine in members and len(members) > 1:
            groups[name] = group

    def number(replica: int, stage: int, place: int) -> int:
        return (replica * stages + stage) * tensor + place

    for replica in range(replicas):
        add("line", [number(replica, s, t) for s in range(stages) for t in range(tensor)])
        for stage in range(stages):
            add("tensor", [number(replica, stage, t) for t in range(tensor)])
    for stage in range(stages):
        add("everyone", [number(r, stage, t) for r in range(replicas) for t in range(tensor)])
        for place in range(tensor):
            add("replicas", [number(r, stage, place) for r in range(replicas)])
    replica, rest = divmod(mine, stages * tensor)
    return Groups(**groups, stage=rest // tensor, replica=replica)
