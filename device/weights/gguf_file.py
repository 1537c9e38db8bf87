"""Weights from a GGUF file, dequantised to float32: read-only, no code in it is run.

llama.cpp's converter reorders the rows of Q and K of Llama models so that rotated pairs lie next to each other; they
are put back here into the halves that Hugging Face pairs.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scenarios.errors import ScenarioError, printable

#: GGUF's architectures that are one of ours, with what Hugging Face calls them.
ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
#: Names of a layer's tensors: Hugging Face to GGUF.
IN_LAYER = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
OUTSIDE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")


class GgufCheckpoint:
    """The tensors of one GGUF file by Hugging Face name. Raises ScenarioError, one line, for what cannot be read."""

    def __init__(self, file: Path) -> None:
        try:
            import gguf
        except ModuleNotFoundError:
            raise ScenarioError([f"{file}: gguf is not installed; pip install 'ascend-whatif[quality]'"]) from None
        self.file, self._gguf = file, gguf
        try:
            self._reader: Any = gguf.GGUFReader(file)
        except Exception as error:  # the library raises what its parsing happens to raise
            raise ScenarioError([f"{file}: no GGUF file: {printable(str(error), 200)}"]) from None
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        self.architecture = str(self._field("general.architecture"))
        if self.architecture not in ARCHITECTURES:
            known = ", ".join(ARCHITECTURES)
            raise ScenarioError([f"{file}: architecture {printable(self.architecture)} is not read; known: {known}"])

    @property
    def origin(self) -> str:
        """Which file these values are from."""
        return f"{printable(self.file.name)}, dequantised to float32"

    def config(self) -> dict[str, Any]:
        """The model as a Hugging Face config.json says it."""

        def size(key: str) -> Any:
            return self._field(f"{self.architecture}.{key}")

        heads, hidden = size("attention.head_count"), size("embedding_length")
        return {
            "model_type": ARCHITECTURES[self.architecture],
            "hidden_size": hidden,
            "intermediate_size": size("feed_forward_length"),
            "num_hidden_layers": size("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": size("attention.head_count_kv"),
            "head_dim": self._field(f"{self.architecture}.attention.key_length", hidden // heads),
            "vocab_size": int(self._tensors["token_embd.weight"].shape[1]),
            "max_position_embeddings": size("context_length"),
            "rms_norm_eps": size("attention.layer_norm_rms_epsilon"),
            "rope_theta": self._field(f"{self.architecture}.rope.freq_base", 10_000.0),
            "tie_word_embeddings": "output.weight" not in self._tensors,
            "torch_dtype": "bfloat16",
        }

    def tensor(self, name: str) -> torch.Tensor:
        stored = self._tensors.get(gguf_name(name))
        if stored is None:
            raise ScenarioError([f"{self.file}: no tensor {printable(gguf_name(name), 100)}"])
        values = self._gguf.quants.dequantize(stored.data, stored.tensor_type)
        tensor = torch.from_numpy(values.copy()).float()
        if self.architecture == "llama" and (".q_proj." in name or ".k_proj." in name):
            key = "attention.head_count" if ".q_proj." in name else "attention.head_count_kv"
            tensor = halves(tensor, int(self._field(f"llama.{key}")))
        return tensor

    def _field(self, key: str, default: Any = None) -> Any:
        field = self._reader.fields.get(key)
        if field is None and default is None:
            raise ScenarioError([f"{self.file}: no field {key}"])
        value = default if field is None else field.contents()
        return float(str(np.float32(value))) if isinstance(value, float) else value  # 1e-06, held in 32 bits


def gguf_name(name: str) -> str:
    """GGUF's name of a Hugging Face tensor; the name itself where it has none."""
    match = _LAYER.fullmatch(name)
    if match is None or match[2] not in IN_LAYER:
        return OUTSIDE.get(name, name)
    return f"blk.{match[1]}.{IN_LAYER[match[2]]}.{match[3]}"


def halves(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """[heads * dim, n] with rotated pairs side by side -> the first of all pairs, then the second, in each head."""
    return rows.view(heads, -1, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)
