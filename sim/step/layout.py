"""A step in columns of numbers: what its length depends on, laid out from the priced blocks of a program.

A plan has an object for each kernel of the step, which a timeline needs and a length does not: making them takes longer
than playing them. A `Layout` says the same in columns, and `sim.step.lengths` and `sim.step.fluid` play it. Tests hold
lengths equal to those of the plan's players, to the nanosecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from scenarios.ops.catalogue import kind_of
from scenarios.ops.program import Block, Program
from sim.hardware.profile import HardwareProfile
from sim.kernel.time import KernelTime
from sim.step.host import PARAMETER_UPDATES
from sim.step.jitter import jitter_of_ranks, late_ns
from sim.step.priced import Conditions, Priced, Pricer, seeded
from sim.step.rank_hosts import Calls, Issued, RankHosts, hosts_of_ranks

if TYPE_CHECKING:  # a rank alone needs no numpy
    from numpy import float64, int64
    from numpy.typing import NDArray

    from sim.step.rank_plans import Matrix

    Numbers = NDArray[int64]


#: Before any time: the first kernel of a stream pays no gap.
NEVER = -(1 << 62)


@dataclass(slots=True)
class Row:
    """The repetitions of one op in a block. first, apart: the number of its first kernel, and kernels from one
    repetition to the next."""

    block: Block
    item: Priced
    first: int
    apart: int

    @property
    def places(self) -> slice:
        """Its kernels among those of the step."""
        return slice(self.first, self.first + (self.block.repeat - 1) * self.apart + 1, self.apart)


class Meetings(NamedTuple):
    """Where a step waits, whatever its kernels take. group: ranks of each meeting. meets: the kernels in which ranks
    meet. launched, gap_times_ns: of each kernel, the entry that launches it, and the gap before it. places: kernels
    that wait for something: the first of each entry of the host, those of updates and of meetings; None where all do.
    entries: of each place, the entry that launches it. gaps_ns: sum of the gaps up to each place; gap_sum_ns: of
    all. first_gap_ns: of the first kernel. at: of each meeting, its place. gated: places that wait for an update;
    updates: the host steps of these."""

    group: int
    meets: Numbers
    launched: Numbers
    gap_times_ns: Numbers
    places: Numbers | None
    entries: Numbers
    gaps_ns: Numbers
    gap_sum_ns: int
    first_gap_ns: int
    at: Numbers
    gated: Numbers
    updates: Numbers


@dataclass(slots=True)
class Layout:
    """One step of `ranks` alike ranks, in program order.

    Of each host step: host_ns, before it is scaled and rounded, and the class of the call; the last one waits for the
    device first. Of each launch that the host makes (an eager kernel, a replay): `entries`, its place among the host
    steps; launch_ns; start_ns, until its first kernel may run. Of each kernel:
    launched, its number among the entries; durations_ns of rank 0, gaps_ns, streams, kernels (before jitter). By
    kernel: gates, the host step that it waits for; waits and records, numbers of events; meets, how many neighbouring
    ranks meet in it (0: all). blocks: the kernels by op, block by block. noise: jitter of kernels on ranks, less 1.
    Once asked for, meetings: where ranks meet; calls: time of rank 0's host by class of call, ns. late_ns: how much
    later than rank 0 each rank starts, in the first host step where ranks do. busy_ns: until when the first stream is
    busy with what came before the step.
    """

    ranks: int
    threaded: bool
    depth: int
    host_ns: list[float] = field(default_factory=list)
    host_classes: list[str] = field(default_factory=list)
    late_ns: tuple[int, ...] = ()
    entries: list[int] = field(default_factory=list)
    launch_ns: list[float] = field(default_factory=list)
    start_ns: list[int] = field(default_factory=list)
    launched: list[int] = field(default_factory=list)
    durations_ns: list[int] = field(default_factory=list)
    gaps_ns: list[int] = field(default_factory=list)
    streams: list[int] = field(default_factory=list)
    kernels: list[KernelTime] = field(default_factory=list)
    gates: dict[int, int] = field(default_factory=dict)
    waits: dict[int, tuple[int, ...]] = field(default_factory=dict)
    records: dict[int, tuple[int, ...]] = field(default_factory=dict)
    meets: dict[int, int] = field(default_factory=dict)
    blocks: list[list[Row]] = field(default_factory=list)
    hosts: RankHosts | None = None
    kernel_matrix: Matrix | None = None
    noise: NDArray[float64] | None = None
    meetings: Meetings | None = None
    calls: dict[str, int] | None = None
    busy_ns: int = NEVER

    def call_times(self) -> dict[str, int]:
        """Time of rank 0's host steps, ns, by class of call."""
        if self.calls is None:
            host_ns = map(round, self.host_ns) if self.hosts is None else self.hosts.host_ns[:, 0].tolist()
            self.calls = {}
            for name, ns in zip(self.host_classes, host_ns, strict=True):
                self.calls[name] = self.calls.get(name, 0) + ns
        return self.calls

    @property
    def several_streams(self) -> bool:
        """Whether kernels may run together, or wait for events of one another."""
        return any(self.streams) or bool(self.records)


def layout(program: Program, hw: HardwareProfile, conditions: Conditions) -> Layout | None:
    """The columns of one step; None where the host waits for the device within it."""
    if conditions.synchronize != "step":
        return None
    return _Columns(program, hw, replace(conditions, rank=0)).columns()


#: Of an entry that is one eager kernel: it may run when it is launched.
EAGER = -1


def _in_turn(columns: Sequence[Sequence[float]]) -> Iterable[float]:
    """The first number of each column, then the second of each, and so on."""
    return chain.from_iterable(zip(*columns, strict=True))


class _Columns:
    """Fills a layout, block by block."""

    def __init__(self, program: Program, hw: HardwareProfile, conditions: Conditions) -> None:
        self._pricer = Pricer(program, hw, conditions)
        self._program, self._hw, self._conditions = program, hw, conditions
        self._to = Layout(conditions.ranks, conditions.task_queue_enable > 0, hw.host.queue_depth)
        self._updates: list[tuple[Block, int]] = []
        self._recorded: dict[str, int] = {}
        self._events = 0

    def columns(self) -> Layout:
        to, host = self._to, self._hw.host
        conditions = self._conditions
        if conditions.ranks > 1 and host.rank_skew_us:
            to.late_ns = late_ns(conditions.seed, conditions.ranks, host.rank_skew_us)
            self._host(0.0)
        for captured, blocks in self._program.runs():
            if captured:
                self._replay(blocks)
            else:
                for block in blocks:
                    self._eager(block)
        self._host(host.synchronize_us * 1000)
        if conditions.host_scale != 1.0:
            to.host_ns = [ns * conditions.host_scale for ns in to.host_ns]
            to.launch_ns = [ns * conditions.host_scale for ns in to.launch_ns]
        if conditions.ranks > 1:
            self._on_ranks()
        return to

    def _host(self, ns: float) -> None:
        """A host step of the graph or the engine."""
        self._to.host_ns.append(ns)
        self._to.host_classes.append("graph")

    def _eager(self, block: Block) -> None:
        to, items = self._to, self._pricer.priced(block)
        first_step, count = len(to.host_ns), len(items)
        to.host_ns += _in_turn([[item.host_ns * factor for factor in item.jitter] for item in items])
        to.host_classes += [kind_of(item.op).host for item in items] * block.repeat
        to.launch_ns += _in_turn([[item.launch_ns * factor for factor in item.jitter] for item in items])
        first_entry, kernels = len(to.entries), block.repeat * count
        to.entries += range(first_step, first_step + kernels)
        to.start_ns += [EAGER] * kernels
        to.launched += range(first_entry, first_entry + kernels)
        self._kernels(block, items, [not block.alone(item.op) for item in items])

    def _replay(self, blocks: list[Block]) -> None:
        to, hw = self._to, self._hw
        self._host(hw.host.input_copy_us * 1000)
        self._host(hw.host.model_execute_us * 1000)
        to.entries.append(len(to.host_ns) - 1)
        to.launch_ns.append(0.0)
        to.start_ns.append(round(hw.graph.start_us * 1000))
        updated = self._program.graph in PARAMETER_UPDATES
        for block in blocks:
            items = self._pricer.priced(block)
            first = len(to.durations_ns)
            to.launched += [len(to.entries) - 1] * (block.repeat * len(items))
            self._kernels(block, items, [True] * len(items))
            gated = [n for n, item in enumerate(items) if kind_of(item.op).family == "attention"]
            if updated and gated:
                self._update(block, [first + place for place in gated], len(items))

    def _update(self, block: Block, gated: list[int], apart: int) -> None:
        """The parameter updates that attention kernels wait for. gated: those of the first layer; apart: from one layer
        to the next."""
        to, update_ns = self._to, self._hw.host.attention_update_us * 1000
        jitter, each = self._pricer.update_jitter(block), len(gated)
        numbers = [kernel + layer * apart for layer in range(block.repeat) for kernel in gated]
        to.gates |= zip(numbers, range(len(to.host_ns), len(to.host_ns) + len(numbers)), strict=True)
        to.host_ns += [update_ns * factor for factor in jitter for _ in gated]
        to.host_classes += ["graph"] * len(numbers)
        self._updates += [(block, layer) for layer in range(block.repeat) for _ in range(each)]

    def _kernels(self, block: Block, items: list[Priced], replayed: list[bool]) -> None:
        """The kernels of all repetitions of a block."""
        to, repeat, width = self._to, block.repeat, len(items)
        first = len(to.durations_ns)
        if not width:
            return
        # The gap depends on the kernel before, so the first repetition's may differ from the others'.
        for layer in range(min(2, repeat)):
            gaps = [
                self._pricer.gap_ns(item.op, item.nominal[layer], again, block.captured)
                for item, again in zip(items, replayed, strict=True)
            ]
            to.gaps_ns += gaps * (1 if layer == 0 else repeat - 1)
        to.streams += [item.op.stream for item in items] * repeat
        if not any(kind_of(item.op).routed for item in items):
            kernels = [item.kernel for item in items] * repeat
        else:
            kernels = [item.nominal[layer] for layer in range(repeat) for item in items]
        to.kernels += kernels
        to.durations_ns += [kernel.duration_ns for kernel in kernels]  # of several ranks: replaced by `_on_ranks`
        to.blocks.append([Row(block, item, first + place, width) for place, item in enumerate(items)])
        for place, item in enumerate(items):
            if item.kernel.link_share > 0:
                group = self._pricer.group_ranks(item.op, item.kernel)
                to.meets |= dict.fromkeys(range(first + place, first + repeat * width, width), group)
        if any(item.op.waits or item.op.records for item in items):
            self._events_of(items, first, repeat)

    def _events_of(self, items: list[Priced], first: int, repeat: int) -> None:
        """Numbers of events: a wait is for the latest record of its name in program order."""
        to = self._to
        number = first
        for _ in range(repeat):
            for item in items:
                if item.op.waits:
                    known = tuple(self._recorded[event] for event in item.op.waits if event in self._recorded)
                    to.waits[number] = (*to.waits.get(number, ()), *known)
                if item.op.records:
                    numbers = tuple(range(self._events, self._events + len(item.op.records)))
                    self._events += len(numbers)
                    self._recorded |= zip(item.op.records, numbers, strict=True)
                    to.records[number] = numbers
                number += 1

    def _on_ranks(self) -> None:
        """The times in which ranks differ, as matrices of shape (places, ranks)."""

        to, pricer, conditions = self._to, self._pricer, self._conditions
        rows = [row for rows in to.blocks for row in rows]
        eager = tuple(
            Calls(
                row.item.name, row.item.host_ns, row.item.launch_ns, to.launched[row.first], row.block.repeat, row.apart
            )
            for row in rows
            if not row.block.captured
        )
        updates = tuple(
            (at, seeded("update", block), layer, block.repeat)
            for at, (block, layer) in zip(to.gates.values(), self._updates, strict=True)
        )
        issued = Issued(
            host_ns=tuple(to.host_ns),
            launch_ns=tuple(to.launch_ns),
            entries=tuple(to.entries),
            start_ns=tuple(to.start_ns),
            late_ns=to.late_ns,
            eager=eager,
            updates=updates,
        )
        to.hosts = hosts_of_ranks(self._hw, conditions, issued)
        varying = tuple(
            (row.item.name, row.block.repeat, row.first, row.apart) for row in rows if pricer.varies(row.item.kernel)
        )
        sigma, count = self._hw.kernel.jitter_sigma, len(to.durations_ns)
        to.noise = _kernel_noise(conditions.seed, sigma, conditions.ranks, count, varying)
        on_ranks(to, self._hw)
        for row in rows:
            if kind_of(row.item.op).routed:  # each rank holds other experts
                assert to.kernel_matrix is not None
                to.kernel_matrix[row.places] = pricer.kernels_ns(row.item, row.block)
                to.durations_ns = to.kernel_matrix[:, 0].tolist()


def on_ranks(to: Layout, hw: HardwareProfile) -> None:
    """The kernels of all ranks from their durations without jitter, but for those that hold experts."""
    import numpy as np

    assert to.noise is not None
    alone = np.array(to.durations_ns, np.int64)[:, None]
    kernels = np.rint(alone + to.noise * np.minimum(alone, 1000 * hw.kernel.jitter_cap_us))
    to.kernel_matrix = np.maximum(kernels, 1).astype(np.int64)
    to.durations_ns = to.kernel_matrix[:, 0].tolist()


@lru_cache(maxsize=16)
def _kernel_noise(
    seed: int, sigma: float, ranks: int, kernels: int, varying: tuple[tuple[str, int, int, int], ...]
) -> NDArray[float64]:
    """Jitter of each kernel on each rank less 1, of shape (kernels, ranks), 0 of those that have none; not to be
    written to. varying: ops, as (what jitter is drawn by, layers, first kernel, kernels from layer to layer)."""
    import numpy as np

    noise = np.zeros((kernels, ranks))
    for name, layers, first, apart in varying:
        jitter = jitter_of_ranks(seed, f"kernel {name}", layers, sigma, ranks)
        noise[first : first + (layers - 1) * apart + 1 : apart] = jitter - 1
    return noise
