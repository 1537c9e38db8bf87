"""The time of one kernel alone on the device: what pricing yields and a plan is made of."""

from __future__ import annotations

from typing import Literal

from scenarios.records import dataclass

#: Where the code of a kernel is when it starts: in HBM; there, but little of it, because a graph compiler made it for
#: its shapes (`first`); in L2, as in a static graph, where each layer runs the same program; or in the cores' own
#: caches, because the same program ran just before.
Code = Literal["cold", "first", "near", "twin"]

#: Share of L2 that keys and values read between two runs of a program may fill before its code is evicted; of 192 MiB
#: between 17 and 33 MB.
CODE_SHARE = 0.15
L2_BYTES = 192 * 2**20


def pushes_code_out(read_bytes: float, l2_bytes: float = L2_BYTES) -> bool:
    """Whether attention that reads so many bytes of keys and values between two runs of a program leaves none of its
    code in L2.

    Measured on 910B2: the first Scatter of a layer takes 6.7 us and the second 4.0 where a layer reads 67 MB, 5.3 and
    4.2 where it reads 33, both 2.9 where it reads 17.
    """
    return read_bytes > CODE_SHARE * l2_bytes


#: The same of all that passes L2, weights too, for kernels that a graph compiler made each for its shapes. The layers
#: that the share above was seen in have 28 MB of weights: 45 MB leave their code, 61 do not.
COMPILED_SHARE = 0.25


def runs_out(passed_bytes: float, l2_bytes: float = L2_BYTES) -> bool:
    """Whether the code of a compiled kernel has left L2 when so many bytes of weights and cache have passed.

    Library kernels keep theirs: the norm of 32 heads in a layer of 386 MB takes 9.0 us, which is that of near code,
    while compiled Swish x Mul (3.3 and 2.6 us there, 2.3 next to 28 MB) and Scatter (2.0 for 1.5 to 1.6) do not.
    """
    return passed_bytes > COMPILED_SHARE * l2_bytes


Bound = Literal["launch", "hbm", "l2", "cube", "vector", "ai_cpu", "link"]


Lane = Literal["AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV", "AI_CPU", "SDMA", "COMMUNICATION"]


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One kernel alone on the device.

    duration_ns: from start to end, launch floor included. hbm_bytes and gm_bytes: traffic to HBM, and to global memory
    as a whole (L2 hits included). roofline_ns: the greater of compute and HBM bytes at their peaks. The shares say
    which part of a resource the kernel uses while it runs alone, 0 to 1: kernels that run together slow each other down
    where the shares of one resource sum to more than 1. holds_cores: its vector cores are its own from start to
    end, and what runs alongside it gets the others. link_share: of the links to other ranks; what uses them meets the
    other ranks first. alone_ns: of a kernel that computes before it communicates, until its first bytes leave.
    extra_sigma: how much less sure the time is than that of shapes that its program was fitted to
    (`sim.kernel.ranges`). variant: another way to the same work, whose error is its own: weights in FRACTAL_NZ, or data
    that a prefetch has sent to L2.
    """

    duration_ns: int
    accelerator: Lane
    cores: int
    bound: Bound
    hbm_bytes: int
    gm_bytes: int
    flops: int
    roofline_ns: int
    hbm_share: float = 0.0
    cube_share: float = 0.0
    vector_share: float = 0.0
    ai_cpu_share: float = 0.0
    holds_cores: bool = False
    link_share: float = 0.0
    alone_ns: int = 0
    extra_sigma: float = 0.0
    variant: str = ""
