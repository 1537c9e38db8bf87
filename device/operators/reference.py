"""The plain-torch reference of every kind: slow and clear, float32 where sums are made. Backends are held against it.

`fused_elementwise`, which a graph compiler makes of several ops, has no row: the runner walks its parts. `prefetch`
computes nothing.
"""

from __future__ import annotations

import re

from device.operators import (
    attention,
    collectives,
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
)
from device.operators.kernel import Inputs, Kernel, Outputs
from device.step import Step
from scenarios.program import Op


def _nothing(_: Op, __: Inputs, ___: Step) -> Outputs:
    return ()


REFERENCE: dict[str, Kernel] = {
    **elementwise.KERNELS, **norms.KERNELS, **matmul.KERNELS, **attention.KERNELS, **kv.KERNELS, **sampling.KERNELS,
    **quant.KERNELS, **prepare.KERNELS, **collectives.KERNELS, **experts.KERNELS, **exchange.KERNELS, **mla.KERNELS,
    "prefetch": Kernel(_nothing),
}  # fmt: skip


def special(op: Op) -> Kernel | None:
    """The kernel of an op that routers or latent attention mean in their own way; None for all others."""
    if op.kind == "attention" and op.attr("latent", False):
        return mla.ABSORBED
    name = re.sub(r"^part\d+\.", "", op.name)  # of a micro-batch
    return experts.NAMED.get(name) or mla.NAMED.get(name)


def reference(op: Op) -> Kernel:
    """The plain-torch way."""
    return special(op) or REFERENCE[op.kind]
