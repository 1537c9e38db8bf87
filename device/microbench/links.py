"""Collectives between ranks by size, each on processes of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from statistics import median

import torch

from device.backends import choose
from device.measure.measure import Sample
from device.measure.steady import Reference, steadied, timed
from device.microbench.plan import link_bytes
from device.ranks.spawn import on_ranks
from device.step.step import Group
from scenarios.exchange.timings import Timing
from scenarios.ops.program import Op, Tensor

#: Repeats of each size, of which the first WARM_UP do not count.
REPEATS, WARM_UP = 25, 3
#: Rows of what is exchanged.
ROWS = 8


@dataclass(frozen=True, slots=True)
class Links:
    """All collectives by size on one rank, for `on_ranks`."""

    backend: str

    def __call__(self, group: Group) -> list[Timing]:
        backend = choose(self.backend)
        reference = Reference(backend)
        timings = []
        with torch.inference_mode():
            for kind in ("all_reduce", "all_gather", "reduce_scatter"):
                for size in link_bytes(self.backend):
                    x = torch.ones(ROWS, size // 2 // ROWS, dtype=torch.bfloat16, device=backend.device)
                    call = getattr(group, kind)
                    references, walls = [], []
                    for _ in range(REPEATS + WARM_UP):
                        references.append(reference.timed().busy_ns)
                        group.all_reduce(torch.zeros(1, device=backend.device))  # all ranks start together
                        walls.append(timed(backend, partial(call, x)).wall_ns)
                    timings.append(_row(kind, x.shape[-1], group.ranks, references[WARM_UP:], walls[WARM_UP:]))
        return timings


def timed_links(backend: str, collectives: str, ranks: int) -> list[Timing]:
    """Rank 0's rows. Raises ScenarioError, one line, where the ranks do not meet."""
    return on_ranks(Links(backend), ranks, collectives)[0]


def _row(kind: str, cols: int, ranks: int, references: list[int], walls: list[int]) -> Timing:
    steady = Sample.of(steadied(walls, references))
    rows = {"all_reduce": ROWS, "all_gather": ROWS * ranks, "reduce_scatter": ROWS // ranks}[kind]
    given, output = Tensor("x", (ROWS, cols), "bf16"), Tensor("y", (rows, cols), "bf16")
    op = Op(kind, f"{kind} of {ranks}", (given,), (output,), (("ranks", ranks),))
    return Timing(
        kind=kind,
        trial=f"{kind} {2 * ROWS * cols} bytes on {ranks} ranks",
        form="torch",
        ops=(op,),
        median_us=steady.median_ns / 1000,
        low_us=steady.low_ns / 1000,
        high_us=steady.high_ns / 1000,
        raw_us=median(walls) / 1000,
        reference_us=median(references) / 1000,
        repeats=REPEATS,
    )
