"""What the parts of a device are called. The model's own words are those of an NPU; a GPU's reports use a GPU's."""

from __future__ import annotations

import re

#: Phrase of the model -> what a GPU has in its place, the longer ones first.
_GPU = {
    "cube-bound": "tensor-core-bound",
    "vector-bound": "CUDA-core-bound",
    "the cube": "the tensor cores",
    "cube cores": "tensor cores",
    "vector cores": "CUDA cores",
    "cube": "tensor cores",
    "vector": "CUDA cores",
    "ai_cpu": "launch",
    "HCCL": "NCCL",
    "HCCS": "NVLink",
}
_PHRASE = re.compile(r"\b(" + "|".join(map(re.escape, _GPU)) + r")\b")
#: Engines that a GPU has not.
NOT_ON_A_GPU = ("launch_thread", "ai_cpu")


def spoken(text: str, device: str) -> str:
    """`text` of the model in the words of a kind of device."""
    return _PHRASE.sub(lambda match: _GPU[match.group()], text) if device == "cuda" else text
