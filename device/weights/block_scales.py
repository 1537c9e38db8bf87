"""FP8 weights with a scale per block, as DeepSeek-V3 is published: read as BF16, since nothing here multiplies FP8.

Next to `NAME` lies `NAME_scale_inv`, a float32 scale for each block of 128 x 128, or of what
`quantization_config.weight_block_size` of config.json says. Despite its name a weight is its FP8 value times its scale.
Blocks at the lower and right edge may be smaller.
"""

from __future__ import annotations

import json
from math import ceil
from pathlib import Path
from typing import Any

import torch

from scenarios.errors import ScenarioError, printable, shown

FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
#: Of DeepSeek-V3, where a config names none.
BLOCK = (128, 128)

Block = tuple[int, int]


def block_of(config: Path) -> Block:
    """Rows and columns of a block by a config.json. Raises ScenarioError where its quantisation is another."""
    fields: Any = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
    quantization = fields.get("quantization_config") or {}
    where = f"{config}: quantization_config"
    if not isinstance(quantization, dict):
        raise ScenarioError([f"{where}: must be a mapping, got {shown(quantization)}"])
    if (method := quantization.get("quant_method", "fp8")) != "fp8":
        raise ScenarioError([f"{where}.quant_method: FP8 in blocks is read, not {shown(method)}"])
    size = quantization.get("weight_block_size", list(BLOCK))
    if not (isinstance(size, list) and len(size) == 2 and all(type(n) is int and 0 < n <= 1 << 20 for n in size)):
        raise ScenarioError([f"{where}.weight_block_size: two whole numbers above 0 are due, got {_listed(size)}"])
    return size[0], size[1]


def _listed(value: object) -> str:
    return printable(json.dumps(value)) if isinstance(value, list) else shown(value)


def dequantised(name: str, values: torch.Tensor, scale: torch.Tensor, block: Block) -> torch.Tensor:
    """`values` [rows, columns] in FP8 times the scale [row blocks, column blocks] of each one's block, in bf16.

    Raises ScenarioError, without the file, where the shapes do not belong together or a scale is no number.
    """
    if values.ndim != 2:
        raise ScenarioError([f"{name} is FP8 of shape {list(values.shape)}; only matrices lie in blocks"])
    wanted = [ceil(size / of) for size, of in zip(values.shape, block, strict=True)]
    if list(scale.shape) != wanted:
        blocks = f"blocks of {block[0]} x {block[1]} of {list(values.shape)}"
        raise ScenarioError([f"{name}_scale_inv has shape {list(scale.shape)}; {blocks} need {wanted}"])
    if not scale.is_floating_point() or not torch.isfinite(scale.float()).all():
        raise ScenarioError([f"{name}_scale_inv holds what is no number"])
    rows, columns = values.shape
    each = scale.float().repeat_interleave(block[0], 0)[:rows]
    return (values.float() * each.repeat_interleave(block[1], 1)[:, :columns]).to(torch.bfloat16)
