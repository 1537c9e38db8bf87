"""Real 16-bit arithmetic on a machine without it: values in float32, rounded where a device would round."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
Precision = Literal["fp32", "fp16", "bf16"]


def rounded(x: Floats, precision: Precision) -> npt.NDArray[np.float32]:
    """`x` as the nearest values of `precision`, ties to even, in float32.

    bfloat16 keeps the upper 16 of float32's bits: half of what is cut off, and one if the last kept bit is set, is
    added before the cut. Infinities and NaN stay what they are.
    """
    wide = np.ascontiguousarray(x, dtype=np.float32)
    if precision == "fp32":
        return wide
    if precision == "fp16":
        with np.errstate(over="ignore"):
            return wide.astype(np.float16).astype(np.float32)
    bits = wide.view(np.uint32)
    kept = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isfinite(wide), kept.view(np.float32), wide)


def matmul(a: Floats, b: Floats, precision: Precision) -> npt.NDArray[np.float32]:
    """a [m, k] x b [k, n] as a cube core does it: inputs in `precision`, sums in float32, rounded once at the end."""
    return rounded(rounded(a, precision) @ rounded(b, precision), precision)


def relative_error(values: Floats, exact: Floats) -> float:
    """Largest difference over the largest magnitude of what is exact."""
    return float(np.max(np.abs(values.astype(np.float64) - exact)) / np.max(np.abs(exact)))
