"""The host's side of a step: Program and hardware profile to a Plan, with what every call costs the host.

Eager: the Python thread pays dispatch for each op; with TASK_QUEUE_ENABLE a second thread launches, in pipeline with
the first.

    TASK_QUEUE_ENABLE   Python thread                launch thread
    0                   dispatch + tiling + launch   -
    1                   dispatch + tiling + enqueue  launch
    2                   dispatch + enqueue           tiling + launch

Graph: one call replays all captured blocks. aclgraph and npugraph_ex update the lengths of each attention kernel on the
host after the replay call; the kernel waits for its update on an event. ge_graph takes the lengths as inputs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import exp, log1p
from operator import attrgetter
from random import Random
from zlib import crc32

from scenarios.catalogue import CATALOGUE, op_type_of, work_of
from scenarios.program import Block, Op, Program
from sim.hardware.profile import Hardware
from sim.kernel.price import price
from sim.plan import LATE, HostStep, HostWork, Issue, KernelTime, Launch, Plan, Replay, Synchronize, Update

#: Graph modes whose attention kernels hold their lengths as captured parameters.
PARAMETER_UPDATES = ("aclgraph", "npugraph_ex")


@dataclass(frozen=True, slots=True)
class Conditions:
    """How a program is played: host threads, where the host waits, the seed of its jitter.

    rank, ranks: which of how many ranks this is; each has its own luck, and with several the kernels have it too, since
    the others wait for the slowest. host_scale and device_scale multiply host and kernel times; they carry a profile's
    uncertainty into a prediction.
    """

    task_queue_enable: int = 1
    synchronize: str = "step"
    seed: int = 0
    rank: int = 0
    ranks: int = 1
    host_scale: float = 1.0
    device_scale: float = 1.0


def make_plan(program: Program, hw: Hardware, conditions: Conditions) -> Plan:
    """The plan of one steady step, which ends when the host has seen the device finish."""
    builder = _Builder(program, hw, conditions)
    return Plan(
        steps=tuple(builder.steps()),
        launch_thread=conditions.task_queue_enable > 0,
        queue_depth=hw.host.queue_depth,
    )


@lru_cache(maxsize=4096)
def jitter(seed: int, name: str, repeat: int, sigma: float) -> tuple[float, ...]:
    """`repeat` log-normal factors with mean 1 for the host calls of one op, one a layer.

    They hang on the op's name and not on its place, so an op that survives a rewrite keeps its luck and two what-ifs
    differ only by what was rewritten.
    """
    if sigma == 0:
        return (1.0,) * repeat
    random = Random(crc32(f"{seed}/{name}".encode()))
    return tuple(exp(random.gauss(-sigma * sigma / 2, sigma)) for _ in range(repeat))


def host_costs_ns(op: Op, hw: Hardware, task_queue_enable: int) -> tuple[float, float]:
    """(Python thread, launch thread) nanoseconds of one eager call, before jitter."""
    host = hw.host
    if CATALOGUE[op.kind].host == "inner":
        # The call that reads the view launches this kernel too: tiling and launch, no dispatch.
        if task_queue_enable == 0:
            return 1000 * (host.tiling_us + host.launch_us), 0.0
        return 0.0, 1000 * host.launch_us
    dispatch_us = {"aten": host.aten_python_us, "matmul": host.matmul_python_us, "npu": host.fused_op_python_us}[
        CATALOGUE[op.kind].host
    ]
    if task_queue_enable == 0:
        return 1000 * (dispatch_us + host.tiling_us + host.launch_us), 0.0
    if task_queue_enable == 1:
        return 1000 * (dispatch_us + host.tiling_us + host.enqueue_us), 1000 * host.launch_us
    return 1000 * (dispatch_us + host.enqueue_us), 1000 * (host.tiling_us + host.launch_us)


@lru_cache(maxsize=65536)
def scaled(kernel: KernelTime, factor: float) -> KernelTime:
    """`kernel` with its duration times `factor`."""
    return kernel if factor == 1.0 else replace(kernel, duration_ns=max(1, round(kernel.duration_ns * factor)))


#: All of a KernelTime but its duration, which comes first: `replace` would cost more than all else in a plan of ranks.
_fields_after_duration = attrgetter(*(f.name for f in fields(KernelTime)[1:]))


@dataclass(frozen=True, slots=True)
class _Priced:
    """One op of a block with all that its repetitions share."""

    op: Op
    op_type: str
    kernel: KernelTime
    host_ns: float
    launch_ns: float
    luck: tuple[float, ...]
    kernels: tuple[KernelTime, ...]


class _Builder:
    """Walks a program once and lays out the host's steps."""

    def __init__(self, program: Program, hw: Hardware, conditions: Conditions) -> None:
        self._program = program
        self._hw = hw
        self._conditions = conditions
        self._index = 0
        self._recorded: dict[str, int] = {}
        self._mixed_before = False

    def steps(self) -> Iterable[HostStep]:
        if self._conditions.ranks > 1:  # all ranks have the same steps, so rank 0 begins 0 ns late
            yield HostWork(LATE, self._late_ns())
        waiting: list[Block] = []
        for block in self._program.blocks:
            if block.captured:
                waiting.append(block)
                continue
            if waiting:
                yield from self._replay(waiting)
                waiting = []
            yield from self._eager(block)
        if waiting:
            yield from self._replay(waiting)
        yield Synchronize("synchronize", self._ns(self._hw.host.synchronize_us * 1000))

    def _late_ns(self) -> int:
        """How much later than rank 0 this rank begins.

        The others share out the quantiles of an exponential distribution: who is last hangs on the seed, how late the
        last one is does not.
        """
        it = self._conditions
        others = range(1, it.ranks)
        if not it.rank:
            return 0
        order = sorted(others, key=lambda rank: (crc32(f"{it.seed}/late {rank}".encode()), rank))
        quantile = (order.index(it.rank) + 0.5) / len(others)
        return round(-1000 * self._hw.host.rank_skew_us * log1p(-quantile))

    def _ns(self, host_ns: float) -> int:
        return round(host_ns * self._conditions.host_scale)

    def _priced(self, block: Block) -> list[_Priced]:
        queue = self._conditions.task_queue_enable
        before = ("", *(op.kind for op in block.ops))
        priced = []
        for kind, op in zip(before, block.ops, strict=False):
            # Twins are known apart only for norms (K's follows Q's); elsewhere the measured means hold both.
            kernel = price(work_of(op), self._hw, kind == op.kind == "rms_norm")
            kernel = scaled(kernel, self._conditions.device_scale)
            luck = self._luck(op.name, block.repeat, self._hw.host.jitter_sigma)
            costs = host_costs_ns(op, self._hw, queue)
            priced.append(_Priced(op, op_type_of(op), kernel, *costs, luck, self._kernels(op, kernel, block.repeat)))
        return priced

    def _luck(self, name: str, repeat: int, sigma: float) -> tuple[float, ...]:
        """Rank 0 has the luck of a rank alone."""
        rank = self._conditions.rank
        return jitter(self._conditions.seed, f"rank {rank} {name}" if rank else name, repeat, sigma)

    def _kernels(self, op: Op, kernel: KernelTime, repeat: int) -> tuple[KernelTime, ...]:
        """The kernel's time in each repetition: one and the same, or with the rank's luck where others wait for it."""
        sigma = self._hw.kernel.jitter_sigma
        if self._conditions.ranks == 1 or sigma == 0 or kernel.link_share:
            return (kernel,) * repeat
        spread_ns = min(kernel.duration_ns, 1000 * self._hw.kernel.jitter_cap_us)
        luck = self._luck(f"kernel {op.name}", repeat, sigma)
        nominal, rest = kernel.duration_ns, _fields_after_duration(kernel)
        return tuple(KernelTime(max(1, round(nominal + (f - 1) * spread_ns)), *rest) for f in luck)

    def _launch(self, priced: _Priced, layer: int, captured: bool, waits: tuple[str, ...] = ()) -> Launch:
        op, kernel, graph = priced.op, priced.kernels[layer], self._hw.graph
        mixed = kernel.accelerator in ("MIX_AIC", "MIX_AIV")
        gap_ns = graph.mix_gap_ns if mixed or self._mixed_before else graph.node_gap_ns
        if captured and self._program.graph != "ge_graph":
            gap_ns = max(gap_ns, graph.replay_node_gap_ns)
        if op.stream == 0:
            self._mixed_before = mixed
        if op.waits:
            waits = (*waits, *(f"{event}#{self._recorded[event]}" for event in op.waits if event in self._recorded))
        records = tuple(self._record(event) for event in op.records) if op.records else ()
        luck = priced.luck[layer]
        index = self._index
        self._index += 1
        meet = f"{op.name} {index}" if kernel.link_share else ""
        return Launch(
            index, layer, op.name, op.kind, priced.op_type, kernel, op.stream, waits, records,
            0 if captured else self._ns(priced.host_ns * luck),
            0 if captured else self._ns(priced.launch_ns * luck),
            round(gap_ns), meet,
        )  # fmt: skip

    def _record(self, event: str) -> str:
        self._recorded[event] = self._recorded.get(event, -1) + 1
        return f"{event}#{self._recorded[event]}"

    def _eager(self, block: Block) -> Iterable[HostStep]:
        wait_ns = self._ns(self._hw.host.synchronize_us * 1000)
        where = self._conditions.synchronize
        priced = self._priced(block)
        for layer in range(block.repeat):
            for item in priced:
                yield Issue(self._launch(item, layer, captured=False))
                if where == "op":
                    yield Synchronize("synchronize", wait_ns)
            if where == "layer" and block.name == "layers":
                yield Synchronize("synchronize", wait_ns)

    def _replay(self, blocks: list[Block]) -> Iterable[HostStep]:
        """The replay call, then one parameter update for each captured attention kernel, in order."""
        hw, updates = self._hw, []
        launches: list[Launch] = []
        for block in blocks:
            priced = self._priced(block)
            for layer in range(block.repeat):
                for item in priced:
                    gates: tuple[str, ...] = ()
                    if item.op.kind == "attention" and self._program.graph in PARAMETER_UPDATES:
                        gates = (f"update {item.op.name} {layer}",)
                        luck = self._luck("update", block.repeat, hw.host.jitter_sigma)[layer]
                        update_ns = self._ns(hw.host.attention_update_us * 1000 * luck)
                        updates.append(Update(gates[0], update_ns, gates[0]))
                    launches.append(self._launch(item, layer, True, gates))
        yield HostWork("copy inputs", self._ns(hw.host.input_copy_us * 1000))
        call_ns = self._ns(hw.host.model_execute_us * 1000)
        yield Replay(self._program.graph, tuple(launches), call_ns, 0, round(hw.graph.start_us * 1000))
        yield from updates
