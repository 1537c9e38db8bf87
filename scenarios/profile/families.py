"""What a kernel of a profile does, read off its whole name: the families of `scenarios.ops.families`, and what vector
kernels and collectives are for."""

from __future__ import annotations

import re
from functools import lru_cache

from scenarios.ops.families import Family, without_arguments
from scenarios.ops.families import family_of_type as family_of_kernel

MATMUL, ATTENTION, NORM, CACHE, ELEMENTWISE, COPY, COLLECTIVE = (
    "matrix products", "attention", "norms", "KV cache", "other vector", "copies", "collectives",
)  # fmt: skip

#: Kernels that move data between devices, whatever their library: a whole name that starts with it, or holds it.
_COLLECTIVE = re.compile(
    r"^(?:void )?(?:hcom|hccl|nccl|rccl|gloo|c10d|msccl)|cross_device_reduce|deep_ep::|nvshmem"
    r"|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all",
    re.I,
)
_FAMILY: dict[Family, str] = {"matmul": MATMUL, "attention": ATTENTION}
#: What vector kernels are for, by parts of the name, in order; what matches none is `ELEMENTWISE`.
_FAMILIES = (
    (_COLLECTIVE, COLLECTIVE),
    (re.compile(r"norm", re.I), NORM),
    (re.compile(r"cache|kv_", re.I), CACHE),
    (
        re.compile(
            r"memcpy|memset|tensormove|viewcopy|transdata|transpose|^copy|direct_copy|nchw_?to_?nhwc|nhwc_?to_?nchw",
            re.I,
        ),
        COPY,
    ),
)
#: Functions that run what their template says, and are called alike whatever it is.
_GENERIC = re.compile(r"(?:device_|run_|launch_)?kernel(?:_impl|2|_function)?|elementwise_kernel_with_index", re.I)
#: The type that a template returns, in front of its name.
_RETURNED = re.compile(r"std::enable_if<.*?>::type ")
_TOKEN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@lru_cache(maxsize=65_536)
def family_of_type(name: str) -> str:
    """The family of a kernel by its op type or its whole name."""
    if known := _FAMILY.get(family_of_kernel(name)):
        return known
    said = without_arguments(name)
    return next((family for pattern, family in _FAMILIES if pattern.search(said)), ELEMENTWISE)


def is_collective_kernel(name: str) -> bool:
    """Whether a kernel on a stream of a device is a whole collective: NCCL's, RCCL's, or an engine's own."""
    return bool(_COLLECTIVE.search(name)) and family_of_type(name) == COLLECTIVE


def function_of(name: str) -> str:
    """The function in a C++ kernel's name: `void at::native::vectorized_elementwise_kernel<4, ...>(int)` is
    vectorized_elementwise_kernel. Of a function that only runs what its template says, `cutlass::Kernel2<...>`, the
    first word of the template that names products or attention."""
    plain = _RETURNED.sub("", without_arguments(name).removeprefix("void "), count=1).replace(
        "(anonymous namespace)", ""
    )
    head, _, rest = re.sub(r"[<(]", "\0", plain, count=1).partition("\0")
    function = head.rsplit("::", 1)[-1].strip()
    if not rest or not (_GENERIC.fullmatch(function) or function in ("Kernel", "Kernel2")):
        return function or name
    family = family_of_type(name)
    words = [word for word in _TOKEN.findall(rest[:20_000]) if word not in ("cutlass", "gemm", "kernel", "flash")]
    within = "::".join(head.split("::")[-2:])
    named = function if family_of_type(function) == family or family_of_type(within) != family else within
    return next((word for word in words if family_of_type(word) == family != ELEMENTWISE), named or name)
