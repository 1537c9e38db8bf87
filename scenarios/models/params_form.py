"""Mistral's own `params.json` as a Hugging Face config: other names of the same sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Names of `params.json`, by those of a config.json.
_NAMES = {
    "dim": "hidden_size", "n_layers": "num_hidden_layers", "hidden_dim": "intermediate_size", "n_heads":
    "num_attention_heads", "n_kv_heads": "num_key_value_heads", "norm_eps": "rms_norm_eps", "tied_embeddings":
    "tie_word_embeddings", "max_seq_len": "max_position_embeddings", "model_max_length": "max_position_embeddings",
}  # fmt: skip
#: The same of its experts (`moe`).
_MOE = {
    "expert_hidden_dim": "moe_intermediate_size",
    "num_expert_groups": "n_group",
    "num_expert_groups_per_tok": "topk_group",
    "routed_scale": "routed_scaling_factor",
    "num_shared_experts": "n_shared_experts",
}
#: The same of its angles (`yarn`).
_YARN = {"beta": "beta_fast", "alpha": "beta_slow"}


def from_params(config: dict[str, Any]) -> dict[str, Any]:
    """`config`, with usual names where it is a `params.json`: it has sizes and no `model_type`."""
    if "model_type" in config or not {"dim", "n_layers", "n_heads"} <= set(config):
        return config
    usual = {str(_NAMES.get(key, key)): value for key, value in config.items()}
    moe, latent = config.get("moe"), config.get("kv_lora_rank") is not None
    usual["model_type"] = "mistral"
    if isinstance(moe, Mapping):
        usual |= {str(_MOE.get(key, key)): value for key, value in moe.items()}
        usual |= {"num_local_experts": moe.get("num_experts"), "n_routed_experts": moe.get("num_experts")}
        usual["model_type"] = "deepseek_v3" if latent else "mixtral"
        usual["scoring_func"] = "softmax"
    yarn = config.get("yarn")
    if isinstance(yarn, Mapping):
        usual["rope_scaling"] = {str(_YARN.get(key, key)): value for key, value in yarn.items()} | {"type": "yarn"}
    windows = config.get("sliding_window")
    if isinstance(windows, list) and windows:  # a pattern over the layers, None for all keys
        layers, sizes = config["n_layers"], [size for size in windows if size is not None]
        if isinstance(layers, int) and 0 < layers <= 1024:
            kinds = ["full_attention" if size is None else "sliding_attention" for size in windows]
            usual["layer_types"] = [kinds[layer % len(kinds)] for layer in range(layers)]
        usual["sliding_window"] = sizes[0] if sizes else None
    return usual
