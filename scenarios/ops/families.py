"""Families of kernels: decided once, for kinds of the catalogue (`OpKind.family`) and for names in profilers' files."""

from __future__ import annotations

import re
from typing import Literal

Family = Literal["matmul", "attention", "vector"]

#: By words in an op type or in the whole name of a kernel, in order: those of CANN, of CUDA's and ROCm's libraries
#: (cuBLAS `nvjet_*`, `ampere_*gemm*`, `sm90_xmma_*`; hipBLASLt `Cijk_*`; CUTLASS, cuDNN), of Triton, of flash attention
#: and of serving engines. Attention comes before products, since it is built of them and names them.
_WORDS: tuple[tuple[re.Pattern[str], Family], ...] = (
    # Triton's generated kernels: pointwise, reductions. What they fuse stands in their names; products have templates.
    # And sums of a split K, which are no product.
    (
        re.compile(r"^triton_(?:poi|per|red)_|reshape_and_cache|causal_conv1d|split_?k_?reduce|reduce_?split_?k", re.I),
        "vector",
    ),
    (
        re.compile(
            r"attention|(?:\b|[0-9_])mla|ringmla|flash|fmha|sdpa|mha_(?:varlen|fwd|bwd)|kernel_mha|paged_?attn|_attn_"
            r"|batch(?:prefill|decode)with|\b_?fwd_(?:grouped_)?kernel(?:_stage[0-9])?\b|merge_state",
            re.I,
        ),
        "attention",
    ),
    (
        re.compile(
            r"matmul|gemm|gemv|conv(?!er)|\bffn|cijk|cublas|addmm|nvjet|xmma|cutlass|tensorop|wgmma|bmm|grouped_?mm"
            r"|splitk|fused_moe_kernel|[shi]cudnn_|marlin|(?:^|[^a-z])mm(?:[^a-z]|$)|fprop|dgrad|wgrad|winograd|dot_kernel",
            re.I,
        ),
        "matmul",
    ),
)


#: Libraries that are named after products, whatever their kernels do.
_LIBRARY = re.compile(r"fbgemm(?:_gpu)?", re.I)


def family_of_type(op_type: str) -> Family:
    """The family of a kernel by its op type (or by the name that a library gives it)."""
    said = _LIBRARY.sub("", without_arguments(op_type))
    return next((family for words, family in _WORDS if words.search(said)), "vector")


def without_arguments(name: str) -> str:
    """A C++ signature without its list of arguments at the end: their types say nothing of the work."""
    if not name.endswith(")"):
        return name
    depth = 0
    for place in range(len(name) - 1, -1, -1):
        depth += (name[place] == ")") - (name[place] == "(")
        if depth == 0:
            return name[:place]
    return name
