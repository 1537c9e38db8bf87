"""Families of kernels: decided once, for kinds of the catalogue (`OpKind.family`) and for names in profilers' files."""

from __future__ import annotations

import re
from typing import Literal

Family = Literal["matmul", "attention", "vector"]

#: By words in an op type or kernel name, in order: those of CANN, of CUDA's libraries and of torch. Libraries of
#: templates (cutlass, wgmma) come last, as attention is built with them too.
_WORDS: tuple[tuple[re.Pattern[str], Family], ...] = (
    (re.compile(r"matmul|gemm|conv|\bffn|cijk|cublas|addmm", re.I), "matmul"),
    (re.compile(r"attention|\bmla|ringmla|flash|fmha|sdpa", re.I), "attention"),
    (re.compile(r"bmm|cutlass|wgmma", re.I), "matmul"),
)


def family_of_type(op_type: str) -> Family:
    """The family of a kernel by its op type (or by the name that a library gives it)."""
    return next((family for words, family in _WORDS if words.search(op_type)), "vector")
