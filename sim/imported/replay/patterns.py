"""Runs of primitive kernels that one fused kernel does, as regular expressions over op types.

Each kernel of a stream becomes one letter, so that variants (a cast more or less, Pow or Pows) are one pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from scenarios.records import dataclass

_LETTERS = {
    "a": ("Add", "Adds", "AddV2", "Axpy"), "C": ("Cast",), "P": ("Pow", "Pows", "Square"),
    "M": ("ReduceMean", "ReduceMeanD"), "R": ("Rsqrt",), "q": ("Sqrt",), "r": ("Reciprocal",), "m": ("Mul", "Muls"),
    "d": ("RealDiv", "Div"), "w": ("Swish", "Silu"), "g": ("Sigmoid",), "n": ("Neg",),
    "N": ("RmsNorm",),
    "S": ("Slice", "StridedSlice", "StridedSliceD", "SplitV", "SplitVD"), "c": ("Concat", "ConcatD", "ConcatV2D"),
}  # fmt: skip
_LETTER = {name: letter for letter, names in _LETTERS.items() for name in names}

_NORM = "C?PMa(?:Rm|q(?:dm?|rm))C?m"
_ROTATE = "(?:mSn?Sn?cma|SSncmma|mS{1,2}ncma|SnSc(?:mma|mam))"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A run of primitives. fused: the op type of the kernel that does them all."""

    name: str
    title: str
    fused: str
    run: re.Pattern[str]


#: In the order in which they are fused where all are: what a longer one takes, a shorter one no longer finds.
PATTERNS = (
    Pattern("add_rms_norm", "Add and RMSNorm's primitives", "AddRmsNorm", re.compile(f"a(?:{_NORM}|N)")),
    Pattern("rms_norm", "RMSNorm's primitives", "RmsNorm", re.compile(_NORM)),
    Pattern("swiglu", "SwiGLU's primitives", "SwiGlu", re.compile("wm|gmm")),
    Pattern("rope", "RoPE's primitives, Q and K together", "ApplyRotaryPosEmb", re.compile(f"{_ROTATE}{_ROTATE}")),
)
BY_NAME = {pattern.name: pattern for pattern in PATTERNS}


def runs(pattern: Pattern, op_types: Sequence[str]) -> Iterator[range]:
    """Where the pattern occurs among the kernels of one stream, from left to right and without overlap."""
    letters = "".join(_LETTER.get(name, "x") for name in op_types)
    return (range(match.start(), match.end()) for match in pattern.run.finditer(letters))
