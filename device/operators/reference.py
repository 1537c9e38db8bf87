"""The plain-torch reference of every kind: slow and clear, float32 where sums are made. Backends are held against it.

`fused_elementwise`, which a graph compiler makes of several ops, has no row: the runner walks its parts. `prefetch`
computes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from device.operators import (
    attention,
    collectives,
    delta,
    elementwise,
    exchange,
    experts,
    kv,
    matmul,
    mla,
    norms,
    prepare,
    quant,
    sampling,
    shared_kv,
    sparse,
    streams,
)
from device.operators.kernel import Inputs, Kernel, Outputs
from device.step.step import Step
from scenarios.ops.catalogue import kind_of
from scenarios.ops.program import Op, Program


def _nothing(_: Op, __: Inputs, ___: Step) -> Outputs:
    return ()


REFERENCE: dict[str, Kernel] = {
    **elementwise.KERNELS, **norms.KERNELS, **matmul.KERNELS, **attention.KERNELS, **kv.KERNELS, **sampling.KERNELS,
    **quant.KERNELS, **prepare.KERNELS, **collectives.KERNELS, **experts.KERNELS, **exchange.KERNELS, **mla.KERNELS,
    **sparse.KERNELS, **delta.KERNELS, **shared_kv.KERNELS, **streams.KERNELS,
    "prefetch": Kernel(_nothing),
}  # fmt: skip


def special(op: Op) -> Kernel | None:
    """The kernel of an op that routers or latent attention mean in their own way; None for all others."""
    if kind_of(op).family == "attention" and op.attr("latent", False):
        return sparse.ATTENTION if op.attr("top_k", 0) else mla.ABSORBED
    named = (experts.NAMED, mla.NAMED, attention.NAMED, shared_kv.NAMED, streams.NAMED)
    return next((kernels[op.whole] for kernels in named if op.whole in kernels), None)


def reference(op: Op) -> Kernel:
    """The plain-torch way."""
    return special(op) or REFERENCE[op.kind]


def ops_of(program: Program) -> list[Op]:
    """The ops of each block, once; of one that a compiler merged, its parts."""
    return [op for block in program.blocks for whole in block.ops for op in (whole.parts or (whole,))]


def refusals(switches: Mapping[str, str], ops: Iterable[Op], where: str) -> list[str]:
    """What a device lacks, one line each. switches: why, by the switch that asks for it. where: "a CPU"."""
    unknown = dict.fromkeys(op.kind for op in ops if op.kind not in REFERENCE)
    return [
        *(f"optimizations.{switch}: {why}" for switch, why in switches.items()),
        *(f"model: its {kind} has no operator on {where} in this version" for kind in unknown),
    ]
