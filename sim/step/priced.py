"""What each op of a step costs before it is laid out in time: the host's calls, the kernel in each repetition, their
jitter, and the gap that a kernel leaves on its stream.

Eager: the Python thread pays dispatch for each op; with TASK_QUEUE_ENABLE a second thread launches, in pipeline with
the first.

    TASK_QUEUE_ENABLE   Python thread                launch thread
    0                   dispatch + tiling + launch   -
    1                   dispatch + tiling + enqueue  launch
    2                   dispatch + enqueue           tiling + launch

Graph in pieces: one call replays the ops of a layer between two that touch the KV cache, and those are eager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from scenarios.ops.catalogue import VARIANTS, family_of, kind_of, op_type_of, work_of
from scenarios.ops.op_kind import HostClass
from scenarios.ops.product_work import placed, routing_of
from scenarios.ops.program import Block, Op, Program
from scenarios.ops.work import AttentionShape, Work
from scenarios.records import dataclass
from sim.hardware.profile import HardwareProfile
from sim.kernel.price import price
from sim.kernel.ranges import extra_sigma
from sim.kernel.time import Code, KernelTime, pushes_code_out, runs_out
from sim.kernel.vector_tiling import is_compiled
from sim.step.jitter import jitter, jitter_of_ranks, named

if TYPE_CHECKING:  # a rank alone needs no numpy
    from numpy import float64
    from numpy.typing import NDArray

    from sim.step.rank_plans import Matrix


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


def host_costs_ns(op: Op, hw: HardwareProfile, task_queue_enable: int) -> tuple[float, float]:
    """(Python thread, launch thread) nanoseconds of one eager call, before jitter."""
    return _call_costs_ns(kind_of(op).host, hw, task_queue_enable)


@lru_cache(maxsize=256)
def _call_costs_ns(call: HostClass, hw: HardwareProfile, task_queue_enable: int) -> tuple[float, float]:
    host = hw.host
    if call == "inner":
        # The call that reads the view launches this kernel too: tiling and launch, no dispatch.
        if task_queue_enable == 0:
            return 1000 * (host.tiling_us + host.launch_us), 0.0
        return 0.0, 1000 * host.launch_us
    dispatch_us = {
        "aten": host.aten_python_us,
        "matmul": host.matmul_python_us,
        "npu": host.fused_op_python_us,
        "collective": host.collective_python_us,
    }[call]
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


def codes_of(block: Block, program: Program, hw: HardwareProfile) -> list[Code]:
    """Where the code of each op of a block is, whatever ran just before.

    Static graphs have vector kernels with little code. It stays in L2 from layer to layer, unless what attention reads
    pushes that of programs out which a layer runs but once. Of kernels that the graph compiler made, each for its
    shapes, it is evicted where weights and cache that pass L2 until the same kernel runs again leave no room.
    """
    if not (block.captured and program.graph == "ge_graph" and hw.profile.device == "npu"):
        return ["cold"] * len(block.ops)
    once = block.repeat == 1
    streamed, keys = [], 0
    for op in block.ops:
        work = work_of(op) if family_of(op.kind) != "vector" else None
        streamed.append(work.cold_read_bytes if work else 0)
        keys += streamed[-1] if work and isinstance(work.shape, AttentionShape) else 0
    runs, pushed = Counter(op.kind for op in block.ops), pushes_code_out(keys, hw.chip.l2_bytes)
    codes: list[Code] = []
    for op, passed in zip(block.ops, passed_since(block.ops, streamed), strict=True):
        if kind_of(op).unit != "vector":
            codes.append("cold")
            continue
        evicted = runs_out(passed, hw.chip.l2_bytes) if _compiled(op) else pushed and runs[op.kind] == 1
        codes.append("first" if once or evicted else "near")
    return codes


def _compiled(op: Op) -> bool:
    """Whether the graph compiler makes this kernel for its shapes."""
    if op.parts or kind_of(op).elementwise or is_compiled(op.kind):
        return True
    return (op.kind, op.op_type) in VARIANTS and is_compiled(work_of(op).program)


def passed_since(ops: Sequence[Op], streamed: Sequence[int]) -> list[int]:
    """Bytes that pass L2 before each op since the same kernel ran, in this layer or in the one before. streamed: bytes
    of each op."""
    before = list(accumulate(streamed, initial=0))
    names = [(op.kind, op.op_type, *[t.shape for t in op.inputs], *[t.shape for t in op.outputs]) for op in ops]
    ran = {name: before[n + 1] - before[-1] for n, name in enumerate(names)}  # in the layer before
    passed = []
    for n, name in enumerate(names):
        passed.append(before[n] - ran[name])
        ran[name] = before[n + 1]
    return passed


def scaled(kernel: KernelTime, factor: float) -> KernelTime:
    """`kernel` with its duration times `factor`."""
    return kernel if factor == 1.0 else _scaled(kernel, factor)


@lru_cache(maxsize=65536)
def _scaled(kernel: KernelTime, factor: float) -> KernelTime:
    return replace(kernel, duration_ns=max(1, round(kernel.duration_ns * factor)))


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
    return _with_sigma(scaled(pricing(work, hw, code, resident, captured), device_scale), work, hw)


def kernel_of(work: Work, hw: HardwareProfile, code: Code) -> KernelTime:
    """The kernel of an op that asks for `work` on an NPU or a GPU, as `Pricer.nominal`."""
    return _with_sigma(price(work, hw, code), work, hw)


def _with_sigma(time: KernelTime, work: Work, hw: HardwareProfile) -> KernelTime:
    extra = 0.0 if hw.profile.device == "cpu" else extra_sigma(work, hw.profile.name)
    return KernelTime(*(*_fields_before_sigma(time), extra, time.variant)) if extra else time


def _scheduled_nowhere(op: Op) -> Op:
    """`op` without its place in the step, which its work does not depend on."""
    return Op(op.kind, "", op.inputs, op.outputs, op.attrs, op.op_type, parts=op.parts, expert=op.expert)


#: All of a KernelTime but its duration, which comes first, and all before its two last: `replace` would cost more than
#: all else in a plan of ranks, and as much as pricing a kernel.
_fields_before_sigma: Callable[[KernelTime], tuple[Any, ...]] = attrgetter(*(f.name for f in fields(KernelTime)[:-2]))
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


class Pricer:
    """Prices the blocks of one program in program order."""

    def __init__(self, program: Program, hw: HardwareProfile, conditions: Conditions) -> None:
        self._program, self.hw, self.conditions = program, hw, conditions
        self._mixed_before = False
        self._on_cpu = hw.profile.device == "cpu"
        self._resident = self._on_cpu and _fits_last_cache(program, hw)

    def priced(self, block: Block) -> list[Priced]:
        """The ops of one block with their kernels and host costs."""
        hw, device = self.hw, self.hw.profile.device
        steady = (1.0,) * block.repeat  # of a kernel that no call of the host launches
        kind_before = ""
        after_alone = False  # the first ops of a layer are in one piece with the last of the layer before
        priced = []
        for op, code in zip(block.ops, codes_of(block, self._program, hw), strict=True):
            kind = kind_of(op)
            # Twins are known apart only for norms (K's follows Q's); elsewhere the measured means hold both.
            twin = kind_before == op.kind and kind.twin
            kind_before = op.kind
            nominal = self.nominal(op, block, self.conditions.rank, "twin" if twin else code)
            name = seeded(op.name, block)
            jitter = steady if block.captured else self._jitter(name, block.repeat, hw.host.jitter_sigma)
            costs = _call_costs_ns(kind.host, hw, self.conditions.task_queue_enable)
            if block.pieces:
                alone = block.alone(op)
                if not alone:
                    costs = (self._piece_ns() if after_alone else 0.0), 0.0
                after_alone = alone
            priced.append(Priced(op, name, op_type_of(op, device), nominal[0], *costs, jitter, nominal))
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

    def kernels(self, priced: Priced) -> Sequence[KernelTime]:
        """The kernel's time in each repetition, with the rank's jitter where others wait for it."""
        if not self.varies(priced.kernel):
            return priced.nominal
        factors = self._jitter(f"kernel {priced.name}", len(priced.nominal), self.hw.kernel.jitter_sigma)
        return [
            KernelTime(
                max(1, round(nominal.duration_ns + (factor - 1) * self.spread_ns(nominal))),
                *_fields_after_duration(nominal),
            )
            for nominal, factor in zip(priced.nominal, factors, strict=True)
        ]

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
        """`kernels` on all ranks, ns, of shape (repetitions of `block`, ranks)."""
        import numpy as np

        conditions = self.conditions
        sigma = self.hw.kernel.jitter_sigma if self.varies(item.kernel) else 0.0
        jitter = jitter_of_ranks(conditions.seed, f"kernel {item.name}", block.repeat, sigma, conditions.ranks)
        if not kind_of(item.op).routed:
            spread = self.spread_ns(item.kernel)
            times = item.kernel.duration_ns + (jitter - 1) * spread
        else:  # each rank holds other experts
            layers = range(block.first, block.first + block.repeat)
            routed, scale = _scheduled_nowhere(item.op), conditions.device_scale
            own = _of_experts(
                price, routed, self.hw, ranks=conditions.ranks, scale=scale, layers=layers, resident=self._resident
            )
            times = own + (jitter - 1) * np.minimum(own, self.spread_cap_ns)
        return np.maximum(np.rint(times), 1).astype(np.int64)

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


def seeded(name: str, block: Block) -> str:
    """What the jitter of `name` is drawn by: layers of one name in several blocks have their own."""
    return f"{name} {block.first}" if block.first else name


@lru_cache(maxsize=256)
def _of_experts(
    pricing: Pricing, op: Op, hw: HardwareProfile, ranks: int, scale: float, layers: range, resident: bool
) -> Matrix:
    """Durations of a routed kernel before jitter, ns, of shape (layers, ranks); not to be written to."""
    import numpy as np

    routing = routing_of(op)
    known: dict[tuple[int, ...], int] = {}  # by what its experts get, which is all that places differ in

    def duration_ns(layer: int, rank: int) -> int:
        busy = routing.busy(layer, rank)
        if busy not in known:
            work = work_of(placed(op, layer, rank))
            known[busy] = scaled(pricing(work, hw, "cold", resident, False), scale).duration_ns
        return known[busy]

    return np.array([[duration_ns(layer, rank) for rank in range(ranks)] for layer in layers])


def _fits_last_cache(program: Program, hw: HardwareProfile) -> bool:
    """Whether the weights and caches that one step reads stay in the last cache until the next."""
    cold = sum(block.repeat * work_of(op).cold_read_bytes for block in program.blocks for op in block.ops)
    return cold <= hw.memory.l2_resident_share * hw.chip.l2_bytes
