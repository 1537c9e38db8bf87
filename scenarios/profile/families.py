"""What kind of work a kernel does, read off its whole name: the one table for readers, tables, what-ifs and advice.

Names are those of CANN's op types, cuBLAS (`nvjet_*`, `ampere_*gemm*`, `sm90_xmma_gemm_*`), hipBLASLt (`Cijk_*`),
CUTLASS, cuDNN, Triton's templates, flash attention of several libraries, NCCL and RCCL, and the engines' own.
"""

from __future__ import annotations

import re
from functools import lru_cache

MATMUL, ATTENTION, NORM, CACHE, ELEMENTWISE, COPY, COLLECTIVE = (
    "matrix products", "attention", "norms", "KV cache", "other vector", "copies", "collectives",
)  # fmt: skip

#: Kernels that move data between devices, whatever their library: a whole name that starts with it, or holds it.
_COLLECTIVE = re.compile(
    r"^(?:void )?(?:hcom|hccl|nccl|rccl|gloo|c10d|msccl)|cross_device_reduce|deep_ep::|nvshmem"
    r"|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all",
    re.I,
)
#: Families by parts of the name, in order; what matches none is `ELEMENTWISE`.
_FAMILIES = (
    # Triton's generated kernels: pointwise, reductions. What they fuse stands in their names; products have templates.
    (re.compile(r"^triton_(?:poi|per|red)_.*norm", re.I), NORM),
    (re.compile(r"^triton_(?:poi|per|red)_", re.I), ELEMENTWISE),
    # A fused product with a collective inside is a product; kernels of flash attention name their products.
    (
        re.compile(
            r"attention|(?:\b|[0-9_])mla|ringmla|flash_?(?:fwd|bwd|attn|decode|mla)|fmha|sdpa|mha_(?:varlen|fwd|bwd)|paged_?attn"
            r"|_attn_|batch(?:prefill|decode)with|\b_?fwd_(?:grouped_)?kernel(?:_stage[0-9])?\b|merge_state",
            re.I,
        ),
        ATTENTION,
    ),
    (re.compile(r"causal_conv1d", re.I), ELEMENTWISE),
    (
        re.compile(
            r"matmul|gemm|gemv|conv(?!er)|\bffn|cijk|cublas|addmm|nvjet|xmma|cutlass|tensorop|wgmma|bmm|grouped_?mm"
            r"|splitk|fused_moe_kernel|marlin|(?:^|[^a-z])mm(?:[^a-z]|$)|fprop|dgrad|wgrad|winograd|dot_kernel",
            re.I,
        ),
        MATMUL,
    ),
    (_COLLECTIVE, COLLECTIVE),
    (re.compile(r"norm", re.I), NORM),
    (re.compile(r"cache|kv_", re.I), CACHE),
    (re.compile(r"memcpy|memset|tensormove|viewcopy|transdata|transpose|^copy|direct_copy", re.I), COPY),
)
#: Functions that run what their template says, and are called alike whatever it is.
_GENERIC = re.compile(r"(?:device_|run_|launch_)?kernel(?:_impl|2|_function)?|elementwise_kernel_with_index", re.I)
_TOKEN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@lru_cache(maxsize=65_536)
def family_of_type(name: str) -> str:
    """The family of a kernel by its op type or its whole name."""
    return next((family for pattern, family in _FAMILIES if pattern.search(name)), ELEMENTWISE)


def is_collective_kernel(name: str) -> bool:
    """Whether a kernel on a stream of a device is a whole collective: NCCL's, RCCL's, or an engine's own."""
    return bool(_COLLECTIVE.search(name)) and family_of_type(name) == COLLECTIVE


def function_of(name: str) -> str:
    """The function in a C++ kernel's name: `void at::native::vectorized_elementwise_kernel<4, ...>(int)` is
    vectorized_elementwise_kernel. Of a function that only runs what its template says, `cutlass::Kernel2<...>`, the
    first word of the template that names products or attention."""
    plain = name.removeprefix("void ").replace("(anonymous namespace)", "")
    head, _, rest = re.sub(r"[<(]", "\0", plain, count=1).partition("\0")
    function = head.rsplit("::", 1)[-1].strip()
    if not rest or not (_GENERIC.fullmatch(function) or function in ("Kernel", "Kernel2")):
        return function or name
    family = family_of_type(name)
    words = [word for word in _TOKEN.findall(rest[:20_000]) if word not in ("cutlass", "gemm", "kernel", "flash")]
    return next((word for word in words if family_of_type(word) == family != ELEMENTWISE), function or name)
