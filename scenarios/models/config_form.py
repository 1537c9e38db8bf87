"""The odd but real forms of a config.json as the usual one: a type that only `architectures` names, and text parts that
leave out what transformers' classes have by default."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import Any

#: Ends of an architecture's name behind the model's own.
_TASK = re.compile(r"(?:Model|LMHead|For[A-Z]\w*)*$")
#: Architectures whose name is not their type's, in lower case and without underscores.
_OTHER_NAMES = {
    "hunyuandensev1": "hunyuan_v1_dense",
    "hunyuanmoev1": "hunyuan_v1_moe",
    "minimaxm1": "minimax_m1",
    "grok1modelforcausallm": "grok-1",
    "grok1": "grok-1",
    "qwen": "qwen",
    "decilm": "nemotron-nas",
}
#: A type that stands for two generations, by the architecture that tells them apart.
_GENERATIONS = {
    ("bailing_moe", "BailingMoeV2ForCausalLM"): "bailing_moe_v2",
    ("bailing_moe_linear", "BailingMoeLinearV2ForCausalLM"): "bailing_hybrid",
}
#: What the class of a type has where a part of a multimodal config leaves it out (transformers' configuration files;
#: a whole config is written with all its sizes).
_CLASSES: dict[str, dict[str, Any]] = {
    "llama": {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
              "vocab_size": 32000, "rms_norm_eps": 1e-6, "max_position_embeddings": 2048},
    "mistral": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
                "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 131_072,
                "sliding_window": 4096},
    "mixtral": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
                "num_key_value_heads": 8, "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2,
                "max_position_embeddings": 131_072},
    "qwen2": {"hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
              "num_key_value_heads": 32, "vocab_size": 151_936, "max_position_embeddings": 32_768},
    "qwen3": {"hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
              "num_key_value_heads": 32, "head_dim": 128, "vocab_size": 151_936, "max_position_embeddings": 32_768},
    "phi3": {"hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 32,
             "vocab_size": 32_064, "max_position_embeddings": 4096},
    "gemma": {"hidden_size": 3072, "intermediate_size": 24_576, "num_hidden_layers": 28, "num_attention_heads": 16,
              "num_key_value_heads": 16, "head_dim": 256, "vocab_size": 256_000, "max_position_embeddings": 8192},
    "gemma2": {"hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
               "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 256_000, "max_position_embeddings": 8192},
    "gemma3_text": {"hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26},
    "cohere2": {"hidden_size": 8192, "intermediate_size": 22_528, "num_hidden_layers": 40, "num_attention_heads": 64,
                "num_key_value_heads": 64, "vocab_size": 256_000, "max_position_embeddings": 8192},
}  # fmt: skip


def with_type(config: Mapping[str, Any], known: Container[str], names: list[str]) -> dict[str, Any]:
    """`config` with the `model_type` that its architecture says, where it has none or none that is known. names: of
    the types that an architecture may name."""
    given, architectures = config.get("model_type"), config.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else None
    if not isinstance(first, str):
        return dict(config)
    if isinstance(given, str):
        if (given, first) in _GENERATIONS:
            return {**config, "model_type": _GENERATIONS[given, first]}
        if given in known:
            return dict(config)
    name = _plain(_TASK.sub("", first))
    by_name = {_plain(name): name for name in names}
    said = _OTHER_NAMES.get(name) or by_name.get(name)
    return {**config, "model_type": said} if said else dict(config)


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def with_class_defaults(text: Mapping[str, Any]) -> dict[str, Any]:
    """A text part with what its class has by default in place of keys that it leaves out."""
    model_type = text.get("model_type")
    return {**(_CLASSES.get(model_type, {}) if isinstance(model_type, str) else {}), **text}
