"""The number formats of a Program as torch knows them."""

from __future__ import annotations

import torch

from scenarios.ops.program import DType

#: How each type of a Program is held. INT4 lies packed two to a byte.
DTYPES: dict[DType, torch.dtype] = {
    "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "int8": torch.int8, "int4": torch.uint8,
    "int32": torch.int32, "int64": torch.int64, "bool": torch.bool,
}  # fmt: skip


#: The same with 16-bit values held in float32: what a result would be without rounding to 16 bits.
WIDE_DTYPES: dict[DType, torch.dtype] = {**DTYPES, "bf16": torch.float32, "fp16": torch.float32}
