"""The host's side of a step: Program and hardware profile to a Plan, of one rank or of all.

Graph: one call replays all captured blocks. aclgraph and npugraph_ex update the lengths of each attention kernel on the
host after the replay call; the kernel waits for its update on an event. ge_graph takes the lengths as inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from scenarios.ops.catalogue import kind_of
from scenarios.ops.program import Block, Program
from sim.hardware.profile import HardwareProfile
from sim.kernel.time import KernelTime
from sim.step.jitter import late_ns
from sim.step.plan import LATE, HostStep, HostWork, Issue, Launch, Plan, Replay, Synchronize, Update
from sim.step.priced import Conditions, Priced, Pricer, seeded
from sim.step.rank_plans import RankPlans, times_of

if TYPE_CHECKING:  # a rank alone needs no numpy
    from sim.step.rank_plans import Matrix

#: Graph modes whose attention kernels hold their lengths as captured parameters.
PARAMETER_UPDATES = ("aclgraph", "npugraph_ex")


def make_plan(program: Program, hw: HardwareProfile, conditions: Conditions) -> Plan:
    """The plan of one steady step of one rank, which ends when the host has seen the device finish."""
    return _Builder(program, hw, conditions).plan()


def make_plans(program: Program, hw: HardwareProfile, conditions: Conditions) -> Sequence[Plan]:
    """The plans of all `conditions.ranks`: as `make_plan` for each, but what they share is laid out once."""
    builder = _Builder(program, hw, replace(conditions, rank=0))
    plan = builder.plan()
    return (plan,) if conditions.ranks == 1 else _of_ranks(builder, plan)


class _Cell(NamedTuple):
    """One op in one layer."""

    priced: Priced
    kernel: KernelTime
    gap_ns: int
    group_ranks: int


class _Builder:
    """Walks a program once and lays out the host's steps."""

    def __init__(self, program: Program, hw: HardwareProfile, conditions: Conditions) -> None:
        self._program = program
        self.pricer, self.hw, self.conditions = Pricer(program, hw, conditions), hw, conditions
        #: Blocks in the order of their kernels, and the block and layer that each update is for.
        self.blocks: list[tuple[Block, list[Priced]]] = []
        self.updates: list[tuple[Block, int]] = []
        self._index = 0
        self._recorded: dict[str, int] = {}

    def plan(self) -> Plan:
        threaded = self.conditions.task_queue_enable > 0
        return Plan(tuple(self.steps()), threaded, self.hw.host.queue_depth)

    def steps(self) -> Iterable[HostStep]:
        conditions, skew_us = self.conditions, self.hw.host.rank_skew_us
        if conditions.ranks > 1 and skew_us:  # all ranks have the same steps, so rank 0 starts 0 ns late
            yield HostWork(LATE, late_ns(conditions.seed, conditions.ranks, skew_us)[conditions.rank])
        for captured, blocks in self._program.runs():
            if captured:
                yield from self._replay(blocks)
            else:
                for block in blocks:
                    yield from self._eager(block)
        yield Synchronize("synchronize", self._ns(self.hw.host.synchronize_us * 1000))

    def _ns(self, host_ns: float) -> int:
        return round(host_ns * self.conditions.host_scale)

    def _layers(self, block: Block) -> Iterator[list[_Cell]]:
        """The ops of one block in each of its layers."""
        pricer = self.pricer
        priced = pricer.priced(block)
        self.blocks.append((block, priced))
        kernels = [pricer.kernels(item) for item in priced]
        replayed = [block.captured or not block.alone(item.op) for item in priced]
        groups = [pricer.group_ranks(item.op, item.kernel) for item in priced]
        gaps: list[int] = []
        for layer in range(block.repeat):
            if layer < 2:  # a gap depends on the kernel before, so the first layer's may differ from the others'
                gaps = [
                    pricer.gap_ns(item.op, item.nominal[layer], again, block.captured)
                    for item, again in zip(priced, replayed, strict=True)
                ]
            of_layer = [times[layer] for times in kernels]
            yield list(map(_Cell, priced, of_layer, gaps, groups))

    def _launch(self, cell: _Cell, layer: int, captured: bool, waits: tuple[str, ...] = ()) -> Launch:
        priced, kernel = cell.priced, cell.kernel
        op = priced.op
        if op.waits:
            waits = (*waits, *(f"{event}#{self._recorded[event]}" for event in op.waits if event in self._recorded))
        records = tuple(self._record(event) for event in op.records) if op.records else ()
        jitter = priced.jitter[layer]
        index = self._index
        self._index += 1
        has_rendezvous = kernel.link_share > 0
        return Launch(
            index=index,
            layer=layer,
            name=op.name,
            kind=op.kind,
            op_type=priced.op_type,
            kernel=kernel,
            stream=op.stream,
            waits=waits,
            records=records,
            host_ns=0 if captured else self._ns(priced.host_ns * jitter),
            launch_ns=0 if captured else self._ns(priced.launch_ns * jitter),
            gap_ns=cell.gap_ns,
            rendezvous=f"{op.name} {index}" if has_rendezvous else "",
            group_ranks=cell.group_ranks,
        )

    def _record(self, event: str) -> str:
        self._recorded[event] = self._recorded.get(event, -1) + 1
        return f"{event}#{self._recorded[event]}"

    def _eager(self, block: Block) -> Iterable[HostStep]:
        wait_ns = self._ns(self.hw.host.synchronize_us * 1000)
        where = self.conditions.synchronize
        for layer, cells in enumerate(self._layers(block)):
            for cell in cells:
                yield Issue(self._launch(cell, layer, captured=False))
                if where == "op":
                    yield Synchronize("synchronize", wait_ns)
            if where == "layer" and block.is_layer:
                yield Synchronize("synchronize", wait_ns)

    def _replay(self, blocks: list[Block]) -> Iterable[HostStep]:
        """The replay call, then one parameter update for each captured attention kernel, in order."""
        hw, updates = self.hw, []
        launches: list[Launch] = []
        updated = self._program.graph in PARAMETER_UPDATES
        numbers: Counter[str] = Counter()  # a layer's number counts through all blocks that have the op
        for block in blocks:
            for layer, cells in enumerate(self._layers(block)):
                for cell in cells:
                    op = cell.priced.op
                    gates: tuple[str, ...] = ()
                    if updated and kind_of(op).family == "attention":
                        gates = (f"update {op.name} {numbers[op.name]}",)
                        numbers[op.name] += 1
                        self.updates.append((block, layer))
                        jitter = self.pricer.update_jitter(block)[layer]
                        update_ns = self._ns(hw.host.attention_update_us * 1000 * jitter)
                        updates.append(Update(gates[0], update_ns, gates[0]))
                    launches.append(self._launch(cell, layer, True, gates))
        yield HostWork("copy inputs", self._ns(hw.host.input_copy_us * 1000))
        call_ns = self._ns(hw.host.model_execute_us * 1000)
        yield Replay(self._program.graph, tuple(launches), call_ns, 0, round(hw.graph.start_us * 1000))
        yield from updates


def _of_ranks(builder: _Builder, plan: Plan) -> RankPlans:
    """The plans of all ranks, from rank 0's and what `builder` has laid out for it."""
    import numpy as np

    conditions, pricer, times = builder.conditions, builder.pricer, times_of(plan)

    def on_all(ns: list[int]) -> Matrix:
        return np.tile(np.array(ns, np.int64)[:, np.newaxis], conditions.ranks)

    host, launch, kernels = on_all(times.host), on_all(times.launch), on_all(times.kernels)
    steps, entries = _places(plan)
    if builder.hw.host.rank_skew_us:
        host[0] = late_ns(conditions.seed, conditions.ranks, builder.hw.host.rank_skew_us)
    start = 0
    for block, priced in builder.blocks:
        end = start + block.repeat * len(priced)
        for place, item in enumerate(priced):
            rows = range(start + place, end, len(priced))  # this op's kernels, one a layer
            if pricer.varies(item.kernel) or kind_of(item.op).routed:
                kernels[rows] = pricer.kernels_ns(item, block)
            if not block.captured:
                jitter = pricer.host_jitter(item.name, block.repeat)
                host[[steps[row] for row in rows]] = np.rint(item.host_ns * jitter * conditions.host_scale)
                launch[[entries[row] for row in rows]] = np.rint(item.launch_ns * jitter * conditions.host_scale)
        start = end
    updates = (at for at, step in enumerate(plan.steps) if isinstance(step, Update))
    for at, (block, layer) in zip(updates, builder.updates, strict=True):
        jitter = pricer.host_jitter(seeded("update", block), block.repeat)[layer]
        host[at] = np.rint(builder.hw.host.attention_update_us * 1000 * jitter * conditions.host_scale)
    return RankPlans(plan, host, launch, kernels)


def _places(plan: Plan) -> tuple[dict[int, int], dict[int, int]]:
    """Of each kernel issued alone: the place of its step among the steps, and among those that launch."""
    steps: dict[int, int] = {}
    entries: dict[int, int] = {}
    launching = 0
    for at, step in enumerate(plan.steps):
        if isinstance(step, Issue):
            steps[step.launch.index], entries[step.launch.index] = at, launching
        launching += isinstance(step, Issue | Replay)
    return steps, entries
