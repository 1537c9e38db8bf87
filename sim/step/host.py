"""The host's side of a step: Program and hardware profile to a Plan, with what every call costs the host.

Eager: the Python thread pays dispatch for each op; with TASK_QUEUE_ENABLE a second thread launches, in pipeline with
the first.

    TASK_QUEUE_ENABLE   Python thread                launch thread
    0                   dispatch + tiling + launch   -
    1                   dispatch + tiling + enqueue  launch
    2                   dispatch + enqueue           tiling + launch

Graph in pieces: one call replays the ops of a layer between two that touch the KV cache, and those are eager.

Graph: one call replays all captured blocks. aclgraph and npugraph_ex update the lengths of each attention kernel on the
host after the replay call; the kernel waits for its update on an event. ge_graph takes the lengths as inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING

from scenarios.ops.catalogue import kind_of, op_type_of, work_of
from scenarios.ops.product_work import placed
from scenarios.ops.program import Block, Op, Program
from scenarios.ops.work import Work
from sim.hardware.profile import HardwareProfile
from sim.kernel.price import price
from sim.kernel.ranges import extra_sigma
from sim.kernel.time import Code, KernelTime
from sim.step.jitter import jitter, jitter_of_ranks, late_ns, named
from sim.step.plan import LATE, HostStep, HostWork, Issue, Launch, Plan, Replay, Synchronize, Update
from sim.step.rank_plans import RankPlans, times_of

if TYPE_CHECKING:  # a rank alone needs no numpy
    from numpy import float64
    from numpy.typing import NDArray

    from sim.step.rank_plans import Matrix

#: Graph modes whose attention kernels hold their lengths as captured parameters.
PARAMETER_UPDATES = ("aclgraph", "npugraph_ex")


@dataclass(frozen=True, slots=True)
class Conditions:
    """How a program is played: host threads, where the host waits, the seed of its jitter.

    rank, ranks: which of how many ranks this is; each has its own jitter, and with several the kernels have it too,
    since the others wait for the slowest. host_scale and device_scale multiply host and kernel times; they carry a
    profile's uncertainty into a prediction.
    """

    task_queue_enable: int = 1
    synchronize: str = "step"
    seed: int = 0
    rank: int = 0
    ranks: int = 1
    host_scale: float = 1.0
    device_scale: float = 1.0


def make_plan(program: Program, hw: HardwareProfile, conditions: Conditions) -> Plan:
    """The plan of one steady step of one rank, which ends when the host has seen the device finish."""
    return Builder(program, hw, conditions).plan()


def make_plans(program: Program, hw: HardwareProfile, conditions: Conditions) -> Sequence[Plan]:
    """The plans of all `conditions.ranks`: as `make_plan` for each, but what they share is laid out once."""
    builder = Builder(program, hw, replace(conditions, rank=0))
    plan = builder.plan()
    return (plan,) if conditions.ranks == 1 else _of_ranks(builder, plan)


def host_costs_ns(op: Op, hw: HardwareProfile, task_queue_enable: int) -> tuple[float, float]:
    """(Python thread, launch thread) nanoseconds of one eager call, before jitter."""
    host = hw.host
    if kind_of(op).host == "inner":
        # The call that reads the view launches this kernel too: tiling and launch, no dispatch.
        if task_queue_enable == 0:
            return 1000 * (host.tiling_us + host.launch_us), 0.0
        return 0.0, 1000 * host.launch_us
    dispatch_us = {
        "aten": host.aten_python_us,
        "matmul": host.matmul_python_us,
        "npu": host.fused_op_python_us,
        "collective": host.collective_python_us,
    }[kind_of(op).host]
    if task_queue_enable == 0:
        return 1000 * (dispatch_us + host.tiling_us + host.launch_us), 0.0
    if task_queue_enable == 1:
        return 1000 * (dispatch_us + host.tiling_us + host.enqueue_us), 1000 * host.launch_us
    return 1000 * (dispatch_us + host.enqueue_us), 1000 * (host.tiling_us + host.launch_us)


def starts_apart(op: Op, kernel: KernelTime) -> bool:
    """Whether the device starts a kernel apart from plain ones of one kind of cores: `graph.mix_gap_ns` passes before
    and after it (waits of a static graph on 910B2: 1.0 to 1.2 us around attention, 1.0 to 2.0 around grouped products,
    1.5 before and 0.7 after an all-reduce)."""
    return kernel.accelerator in ("MIX_AIC", "MIX_AIV", "COMMUNICATION") or kind_of(op).as_mix


def stays_near(op: Op, block: Block, program: Program, hw: HardwareProfile) -> bool:
    """Whether the code of a vector kernel is still in L2 from the layer before: static graphs have kernels compiled for
    their shapes, with little code."""
    static = block.captured and program.graph == "ge_graph" and block.repeat > 1
    return static and hw.profile.device == "npu" and kind_of(op).unit == "vector"


@lru_cache(maxsize=65536)
def scaled(kernel: KernelTime, factor: float) -> KernelTime:
    """`kernel` with its duration times `factor`."""
    return kernel if factor == 1.0 else replace(kernel, duration_ns=max(1, round(kernel.duration_ns * factor)))


#: How a kernel is priced: `sim.kernel.price.price`.
Pricing = Callable[[Work, HardwareProfile, Code, bool, bool], KernelTime]


@lru_cache(maxsize=65536)
def _nominal(
    pricing: Pricing,
    op: Op,
    hw: HardwareProfile,
    device_scale: float,
    code: Code,
    resident: bool,
    captured: bool = False,
) -> KernelTime:
    """The kernel of `op` before jitter, on a device slower or faster by `device_scale`, and how sure its time is."""
    work = work_of(op)
    time = scaled(pricing(work, hw, code, resident, captured), device_scale)
    extra = 0.0 if hw.profile.device == "cpu" else extra_sigma(work, hw.profile.name)
    return replace(time, extra_sigma=extra) if extra else time


def _scheduled_nowhere(op: Op) -> Op:
    """`op` without its place in the step, which its work does not depend on."""
    return Op(op.kind, "", op.inputs, op.outputs, op.attrs, op.op_type, parts=op.parts, expert=op.expert)


#: All of a KernelTime but its duration, which comes first: `replace` would cost more than all else in a plan of ranks.
_fields_after_duration = attrgetter(*(f.name for f in fields(KernelTime)[1:]))


@dataclass(frozen=True, slots=True)
class Priced:
    """One op of a block with all that its repetitions share. name: what its jitter is drawn by. nominal: its kernel in
    each, before jitter."""

    op: Op
    name: str
    op_type: str
    kernel: KernelTime
    host_ns: float
    launch_ns: float
    jitter: tuple[float, ...]
    nominal: tuple[KernelTime, ...]


class Builder:
    """Walks a program once and lays out the host's steps."""

    def __init__(self, program: Program, hw: HardwareProfile, conditions: Conditions) -> None:
        self._program = program
        self.hw = hw
        self.conditions = conditions
        #: Blocks in the order of their kernels, and the block and layer that each update is for.
        self.blocks: list[tuple[Block, list[Priced]]] = []
        self.updates: list[tuple[Block, int]] = []
        self._index = 0
        self._recorded: dict[str, int] = {}
        self._mixed_before = False
        self._on_cpu = hw.profile.device == "cpu"
        self._resident = self._on_cpu and _fits_last_cache(program, hw)

    def plan(self) -> Plan:
        threaded = self.conditions.task_queue_enable > 0
        return Plan(tuple(self.steps()), threaded, self.hw.host.queue_depth)

    def steps(self) -> Iterable[HostStep]:
        conditions, skew_us = self.conditions, self.hw.host.rank_skew_us
        if conditions.ranks > 1 and skew_us:  # all ranks have the same steps, so rank 0 starts 0 ns late
            yield HostWork(LATE, late_ns(conditions.seed, conditions.ranks, skew_us)[conditions.rank])
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
        yield Synchronize("synchronize", self._ns(self.hw.host.synchronize_us * 1000))

    def _ns(self, host_ns: float) -> int:
        return round(host_ns * self.conditions.host_scale)

    def priced(self, block: Block) -> list[Priced]:
        queue = self.conditions.task_queue_enable
        before = ("", *(op.kind for op in block.ops))
        after_alone = False  # the first ops of a layer are in one piece with the last of the layer before
        priced = []
        for kind, op in zip(before, block.ops, strict=False):
            # Twins are known apart only for norms (K's follows Q's); elsewhere the measured means hold both.
            twin = kind == op.kind and kind_of(op).twin
            code: Code = "twin" if twin else "near" if stays_near(op, block, self._program, self.hw) else "cold"
            nominal = self.nominal(op, block, self.conditions.rank, code)
            jitter = self._jitter(
                seeded(op.name, block), block.repeat, 0.0 if block.captured else self.hw.host.jitter_sigma
            )
            costs = host_costs_ns(op, self.hw, queue)
            if block.pieces and not block.alone(op):
                costs = (self._piece_ns() if after_alone else 0.0), 0.0
            after_alone = block.alone(op)
            name = seeded(op.name, block)
            priced.append(Priced(op, name, op_type_of(op, self.hw.profile.device), nominal[0], *costs, jitter, nominal))
        self.blocks.append((block, priced))
        return priced

    def _piece_ns(self) -> float:
        """Host time of replaying one piece: the call, and the Python around it (assumed: that of a plain op)."""
        return 1000 * (self.hw.host.model_execute_us + self.hw.host.aten_python_us)

    def _jitter(self, name: str, repeat: int, sigma: float) -> tuple[float, ...]:
        return jitter(self.conditions.seed, named(name, self.conditions.rank), repeat, sigma)

    def update_jitter(self, block: Block) -> tuple[float, ...]:
        """Of the parameter updates of one block."""
        return self._jitter(seeded("update", block), block.repeat, self.hw.host.jitter_sigma)

    def nominal(self, op: Op, block: Block, rank: int, code: Code = "cold") -> tuple[KernelTime, ...]:
        """The kernel in each repetition, before jitter: one and the same, but where tokens choose their experts."""
        device, scale = self.hw, self.conditions.device_scale
        if not kind_of(op).routed:
            captured = self._on_cpu and block.captured
            return (
                _nominal(price, op, device, scale, code, resident=self._resident, captured=captured),
            ) * block.repeat
        routed = _scheduled_nowhere(op)
        return tuple(
            _nominal(price, placed(routed, block.first + n, rank), device, scale, "cold", resident=self._resident)
            for n in range(block.repeat)
        )

    def _kernel(self, priced: Priced, layer: int) -> KernelTime:
        """The kernel's time in one repetition, with the rank's jitter where others wait for it."""
        nominal = priced.nominal[layer]
        if not self.varies(priced.kernel):
            return nominal
        sigma = self.hw.kernel.jitter_sigma
        factor = self._jitter(f"kernel {priced.name}", len(priced.nominal), sigma)[layer]
        duration_ns = max(1, round(nominal.duration_ns + (factor - 1) * self.spread_ns(nominal)))
        return KernelTime(duration_ns, *_fields_after_duration(nominal))

    def varies(self, kernel: KernelTime) -> bool:
        """Whether the kernel's time has jitter of its own: not where no other rank would wait for it."""
        several = self.conditions.ranks > 1 and self.hw.kernel.jitter_sigma > 0
        return several and not kernel.link_share

    def spread_ns(self, kernel: KernelTime) -> float:
        """What a factor above or below 1 multiplies."""
        return min(kernel.duration_ns, self.spread_cap_ns)

    @property
    def spread_cap_ns(self) -> float:
        return 1000 * self.hw.kernel.jitter_cap_us

    def host_jitter(self, name: str, repeat: int) -> NDArray[float64]:
        """`_jitter` of host calls on all ranks, of shape (repeat, ranks)."""
        conditions = self.conditions
        return jitter_of_ranks(conditions.seed, name, repeat, self.hw.host.jitter_sigma, conditions.ranks)

    def kernels_ns(self, item: Priced, block: Block) -> Matrix:
        """`_kernels` on all ranks, ns, of shape (repetitions of `block`, ranks)."""
        import numpy as np

        conditions = self.conditions
        sigma = self.hw.kernel.jitter_sigma if self.varies(item.kernel) else 0.0
        jitter = jitter_of_ranks(conditions.seed, f"kernel {item.name}", block.repeat, sigma, conditions.ranks)
        if not kind_of(item.op).routed:
            spread = self.spread_ns(item.kernel)
            times = item.kernel.duration_ns + (jitter - 1) * spread
        else:  # each rank holds other experts
            layers = range(block.first, block.first + block.repeat)
            own = _of_experts(price, _scheduled_nowhere(item.op), self.hw, conditions, layers, self._resident)
            times = own + (jitter - 1) * np.minimum(own, self.spread_cap_ns)
        return np.maximum(np.rint(times), 1).astype(np.int64)

    def _launch(
        self, priced: Priced, layer: int, captured: bool, waits: tuple[str, ...] = (), replayed: bool = False
    ) -> Launch:
        op, kernel = priced.op, self._kernel(priced, layer)
        gap_ns = self.gap_ns(op, kernel, captured or replayed, captured)
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
            gap_ns=gap_ns,
            rendezvous=f"{op.name} {index}" if has_rendezvous else "",
            group_ranks=self.group_ranks(op, kernel),
        )

    def gap_ns(self, op: Op, kernel: KernelTime, replayed: bool, captured: bool) -> int:
        """Idle time of the stream before the next kernel in program order, which is this one."""
        graph = self.hw.graph
        mixed = starts_apart(op, kernel)
        gap_ns = graph.mix_gap_ns if mixed or self._mixed_before else graph.node_gap_ns
        if replayed and self._program.graph != "ge_graph":
            gap_ns = max(gap_ns, graph.replay_node_gap_ns)
        if self._on_cpu and not captured:  # a call starts when it is made; only compiled code is entered and left
            gap_ns = 0.0
        if op.stream == 0:
            self._mixed_before = mixed
        return round(gap_ns)

    def group_ranks(self, op: Op, kernel: KernelTime) -> int:
        """Neighbouring ranks that meet in the kernel, 0 for all of the step.

        A transfer between stages is timed apart (`sim.step.pipeline`); here its ranks only start it together. Ranks
        that lie apart, one of each replica, are taken to meet with all others: their neighbours meet anyway.
        """
        if kernel.link_share <= 0 or kind_of(op).exchanges == "stages" or op.attr("stride", 1) != 1:
            return 0
        group = op.attr("ranks", 0)
        assert isinstance(group, int)
        return group if group < self.conditions.ranks else 0

    def _record(self, event: str) -> str:
        self._recorded[event] = self._recorded.get(event, -1) + 1
        return f"{event}#{self._recorded[event]}"

    def _eager(self, block: Block) -> Iterable[HostStep]:
        wait_ns = self._ns(self.hw.host.synchronize_us * 1000)
        where = self.conditions.synchronize
        priced = self.priced(block)
        for layer in range(block.repeat):
            for item in priced:
                yield Issue(self._launch(item, layer, captured=False, replayed=not block.alone(item.op)))
                if where == "op":
                    yield Synchronize("synchronize", wait_ns)
            if where == "layer" and block.is_layer:
                yield Synchronize("synchronize", wait_ns)

    def _replay(self, blocks: list[Block]) -> Iterable[HostStep]:
        """The replay call, then one parameter update for each captured attention kernel, in order."""
        hw, updates = self.hw, []
        launches: list[Launch] = []
        numbers: Counter[str] = Counter()  # a layer's number counts through all blocks that have the op
        for block in blocks:
            priced = self.priced(block)
            for layer in range(block.repeat):
                for item in priced:
                    gates: tuple[str, ...] = ()
                    if kind_of(item.op).family == "attention" and self._program.graph in PARAMETER_UPDATES:
                        gates = (f"update {item.op.name} {numbers[item.op.name]}",)
                        numbers[item.op.name] += 1
                        self.updates.append((block, layer))
                        jitter = self.update_jitter(block)[layer]
                        update_ns = self._ns(hw.host.attention_update_us * 1000 * jitter)
                        updates.append(Update(gates[0], update_ns, gates[0]))
                    launches.append(self._launch(item, layer, True, gates))
        yield HostWork("copy inputs", self._ns(hw.host.input_copy_us * 1000))
        call_ns = self._ns(hw.host.model_execute_us * 1000)
        yield Replay(self._program.graph, tuple(launches), call_ns, 0, round(hw.graph.start_us * 1000))
        yield from updates


def seeded(name: str, block: Block) -> str:
    """What the jitter of `name` is drawn by: layers of one name in several blocks have their own."""
    return f"{name} {block.first}" if block.first else name


@lru_cache(maxsize=256)
def _of_experts(
    pricing: Pricing, op: Op, hw: HardwareProfile, conditions: Conditions, layers: range, resident: bool
) -> Matrix:
    """Durations of a routed kernel before jitter, ns, of shape (layers, ranks); not to be written to."""
    import numpy as np

    works = ([work_of(placed(op, n, rank)) for n in layers] for rank in range(conditions.ranks))
    scale = conditions.device_scale
    ranks = [
        [scaled(pricing(work, hw, "cold", resident, False), scale).duration_ns for work in of_rank] for of_rank in works
    ]
    return np.array(ranks).T


def _fits_last_cache(program: Program, hw: HardwareProfile) -> bool:
    """Whether the weights and caches that one step reads stay in the last cache until the next."""
    cold = sum(block.repeat * work_of(op).cold_read_bytes for block in program.blocks for op in block.ops)
    return cold <= hw.memory.l2_resident_share * hw.chip.l2_bytes


def _of_ranks(builder: Builder, plan: Plan) -> RankPlans:
    """The plans of all ranks, from rank 0's and what `builder` has laid out for it."""
    import numpy as np

    conditions, times = builder.conditions, times_of(plan)

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
            if builder.varies(item.kernel) or kind_of(item.op).routed:
                kernels[rows] = builder.kernels_ns(item, block)
            if not block.captured:
                jitter = builder.host_jitter(item.name, block.repeat)
                host[[steps[row] for row in rows]] = np.rint(item.host_ns * jitter * conditions.host_scale)
                launch[[entries[row] for row in rows]] = np.rint(item.launch_ns * jitter * conditions.host_scale)
        start = end
    updates = (at for at, step in enumerate(plan.steps) if isinstance(step, Update))
    for at, (block, layer) in zip(updates, builder.updates, strict=True):
        jitter = builder.host_jitter(seeded("update", block), block.repeat)[layer]
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
