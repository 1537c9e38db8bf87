"""Small configs of families whose layers differ, as their publishers write them, and the models read of them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scenarios.models.hf_config import load_model
from scenarios.models.model import Model

BASE: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 320, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
}  # fmt: skip
MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LINEAR = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4, "full_attention_interval": 2, "partial_rotary_factor": 0.5,
}  # fmt: skip
LATENT = {"q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12}
MAMBA = {
    "mamba_num_heads": 8, "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 16, "conv_kernel": 4, "chunk_size": 16,
}  # fmt: skip
V4 = {
    "num_key_value_heads": 1, "qk_rope_head_dim": 8, "q_lora_rank": 24, "o_lora_rank": 12, "o_groups": 2,
    "sliding_window": 12, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "n_shared_experts": 1, "routed_scaling_factor": 1.5, "scoring_func": "sqrtsoftplus", "index_n_heads": 16,
    "index_head_dim": 16, "index_topk": 5, "hc_mult": 3, "hc_sinkhorn_iters": 5, "hc_eps": 1e-6, "swiglu_limit": 0.3,
}  # fmt: skip
GEMMA = {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 20, "sliding_window": 12}

CONFIGS: dict[str, dict[str, Any]] = {
    "gpt_oss": {
        **BASE, "model_type": "gpt_oss", "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 32,
        "sliding_window": 12, "swiglu_limit": 1.0, "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "gemma": {**BASE, "model_type": "gemma", "hidden_activation": "gelu_pytorch_tanh"},
    "gemma2": {
        **BASE, **GEMMA, "model_type": "gemma2", "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0,
    },
    "gemma3": {
        **BASE, **GEMMA, "model_type": "gemma3_text", "sliding_window_pattern": 2, "rope_local_base_freq": 100.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
    "mistral": {**BASE, "model_type": "mistral", "sliding_window": 12},
    "qwen2 from layer 2": {
        **BASE, "model_type": "qwen2", "sliding_window": 12, "use_sliding_window": True, "max_window_layers": 2,
    },
    "qwen3_next": {
        **BASE, **MOE, **LINEAR, "model_type": "qwen3_next", "shared_expert_intermediate_size": 48,
        "norm_topk_prob": True, "mlp_only_layers": [], "decoder_sparse_step": 1,
    },
    "qwen3_5": {**BASE, **LINEAR, "model_type": "qwen3_5_text", "mamba_ssm_dtype": "float32"},
    "qwen2_moe": {
        **BASE, **MOE, "model_type": "qwen2_moe", "shared_expert_intermediate_size": 48, "decoder_sparse_step": 2,
    },
    "llama4": {
        **BASE, "model_type": "llama4_text", "num_local_experts": 8, "num_experts_per_tok": 1, "intermediate_size": 32,
        "intermediate_size_mlp": 96, "attention_chunk_size": 12, "no_rope_layers": [1, 0, 1, 0],
        "interleave_moe_layer_step": 2, "use_qk_norm": True,
    },
    "gemma4": {
        **BASE, **MOE, "model_type": "gemma4_text", "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 12,
        "global_head_dim": 32, "num_global_key_value_heads": 1, "attention_k_eq_v": True, "enable_moe_block": True,
        "top_k_experts": 2, "final_logit_softcapping": 3.0, "sliding_window_pattern": 2, "rope_parameters": {
            "full_attention": {"rope_theta": 1000.0, "rope_type": "proportional", "partial_rotary_factor": 0.25},
            "sliding_attention": {"rope_theta": 100.0, "rope_type": "default"},
        },
    },
    "gemma4 that shares keys": {
        **BASE, "model_type": "gemma4_text", "sliding_window": 12, "num_kv_shared_layers": 2, "head_dim": 16,
        "global_head_dim": 16, "sliding_window_pattern": 2,
    },
    "glm_moe_dsa that shares its choice": {
        **BASE, **LATENT, "model_type": "glm_moe_dsa", "n_routed_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32, "n_shared_experts": 1, "mlp_layer_types": ["dense", *["sparse"] * 3],
        "index_n_heads": 16, "index_head_dim": 16, "index_topk": 12, "indexer_rope_interleave": True,
        "layer_types": ["indexed_attention"] * 4, "indexer_types": ["full", "shared", "full", "shared"],
    },
    "deepseek_v4": {
        **BASE, **V4, "model_type": "deepseek_v4", "num_hash_layers": 2, "compress_ratios": [0, 4, 4, 128, 0],
        "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 64, "beta_fast": 32,
                         "beta_slow": 1},
        "compress_rope_theta": 500.0,
    },
    "deepseek_v4 as transformers writes it": {
        **BASE, **V4, "model_type": "deepseek_v4", "layer_types": [
            "heavily_compressed_attention", "compressed_sparse_attention", "sliding_attention",
            "heavily_compressed_attention",
        ],
        "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
        "mlp_layer_types": ["hash_moe", "moe", "moe", "moe"], "index_topk": 2, "swiglu_limit": 10.0,
        "rope_parameters": {"main": {"rope_type": "default", "rope_theta": 100.0},
                            "compress": {"rope_type": "default", "rope_theta": 500.0}},
    },
    "pangu_ultra_moe": {
        **BASE, **LATENT, "model_type": "pangu_ultra_moe", "num_routed_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32, "num_shared_experts": 1, "num_dense_layers": 1, "sandwich_norm": True,
    },
    "mimo_v2_flash": {
        **BASE, "model_type": "mimo_v2_flash", "n_routed_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32, "num_key_value_heads": 1, "v_head_dim": 8, "swa_num_key_value_heads": 2,
        "swa_rope_theta": 100.0, "sliding_window": 12, "add_swa_attention_sink_bias": True,
        "attention_value_scale": 0.7,
        "hybrid_layer_pattern": [0, 1, 1, 0], "moe_layer_freq": [0, 1, 1, 1], "partial_rotary_factor": 0.5,
        "n_shared_experts": None, "routed_scaling_factor": None,
    },
    "baichuan with ALiBi": {
        **{key: value for key, value in BASE.items() if key != "max_position_embeddings"}, "model_type": "baichuan",
        "num_attention_heads": 6, "num_key_value_heads": 6, "hidden_size": 96, "model_max_length": 512,
    },
    "kimi_linear": {
        **BASE, **LATENT, **MOE, "model_type": "kimi_linear", "q_lora_rank": None, "num_experts_per_token": 2,
        "num_shared_experts": 1, "first_k_dense_replace": 1, "mla_use_nope": True, "routed_scaling_factor": 2.5,
        "linear_attn_config": {"full_attn_layers": [2, 4], "kda_layers": [1, 3], "num_heads": 4, "head_dim": 8,
                               "short_conv_kernel_size": 4},
    },
    "apertus": {**BASE, "model_type": "apertus", "hidden_act": "xielu", "qk_norm": True},
    "PanguProMoE": {
        **BASE, **MOE, "model_type": "PanguProMoE", "shared_expert_intermediate_size": 48, "num_expert_groups": 2,
    },
    "afmoe": {
        **BASE, **MOE, "model_type": "afmoe", "num_shared_experts": 1, "num_dense_layers": 1, "sliding_window": 12,
        "global_attn_every_n_layers": 2, "mup_enabled": True, "route_scale": 2.5,
    },
    "step3p5": {
        **BASE, "model_type": "step3p5", "num_attention_groups": 2, "moe_num_experts": 8, "moe_top_k": 2,
        "moe_intermediate_size": 32, "share_expert_dim": 48, "moe_layers_enum": "1,2,3", "sliding_window": 12,
        "layer_types": ["full_attention", "sliding_attention"] * 2, "use_head_wise_attn_gate": True,
        "attention_other_setting": {"num_attention_heads": 8, "num_attention_groups": 2, "head_dim": 16},
        "partial_rotary_factors": [0.5, 1.0] * 2, "rope_theta": [1000.0, 100.0] * 2, "moe_router_scaling_factor": 3.0,
        "yarn_only_types": ["full_attention"], "rope_scaling": {
            "rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 32, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
        },
        "swiglu_limits": [0.0, 0.0, 0.2, 0.2], "swiglu_limits_shared": [0.0, 0.0, 0.0, 0.1],
    },
    "step3": {
        **BASE, "model_type": "step3_text", "num_attention_groups": 1, "num_key_value_heads": None, "share_q_dim": 24,
        "moe_num_experts": 8, "moe_top_k": 2, "moe_intermediate_size": 32, "share_expert_dim": 48,
        "moe_layers_enum": "1,3", "norm_expert_weight": False, "max_position_embedding": 512,
    },
    "cohere": {**BASE, "model_type": "cohere", "layer_norm_eps": 1e-5, "logit_scale": 0.5},
    "cohere with norms of each head": {
        **BASE, "model_type": "cohere", "layer_norm_eps": 1e-5, "logit_scale": 0.5, "use_qk_norm": True,
    },
    "telechat": {
        **{key: value for key, value in BASE.items() if key not in ("intermediate_size", "num_hidden_layers",
           "num_attention_heads")},
        "model_type": "telechat", "n_layer": 3, "n_head": 4, "ffn_hidden_size": 96, "layer_norm_epsilon": 1e-5,
    },
    "qwen": {**BASE, "model_type": "qwen", "num_key_value_heads": 4, "kv_channels": 16, "no_bias": True},
    "orion": {**BASE, "model_type": "orion"},
    "cwm": {
        **BASE, "model_type": "cwm", "sliding_window": 12, "layer_types": ["full_attention", "sliding_attention"] * 2,
    },
    "aria_text": {
        **BASE, "model_type": "aria_text", "moe_num_experts": 8, "moe_topk": 2, "moe_intermediate_size": 32,
        "moe_num_shared_experts": 2,
    },
    "cohere2": {
        **BASE, "model_type": "cohere2", "layer_norm_eps": 1e-5, "logit_scale": 0.25, "sliding_window": 12,
        "sliding_window_pattern": 2,
    },
    "nemotron": {**BASE, "model_type": "nemotron", "norm_eps": 1e-5, "partial_rotary_factor": 0.5, "mlp_bias": True},
    "starcoder2": {
        **BASE, "model_type": "starcoder2", "norm_epsilon": 1e-5, "sliding_window": 12, "use_bias": True,
        "hidden_act": "gelu_pytorch_tanh",
    },
    "stablelm": {**BASE, "model_type": "stablelm", "layer_norm_eps": 1e-5, "use_qkv_bias": True},
    "hy_v3": {
        **BASE, **MOE, "model_type": "hy_v3", "num_shared_experts": 1, "router_scaling_factor": 2.5,
        "mlp_layer_types": ["sparse", "dense", "sparse", "sparse"], "attention_bias": True,
    },
    "exaone_moe": {
        **BASE, **MOE, "model_type": "exaone_moe", "num_shared_experts": 1, "sliding_window": 12,
        "first_k_dense_replace": 1, "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "hyperclovax": {
        **BASE, "model_type": "hyperclovax", "embedding_multiplier": 3.0, "residual_multiplier": 0.5,
        "attention_multiplier": 0.2, "logits_scaling": 4.0, "use_post_norm": True,
    },
    "hunyuan": {
        **BASE, "model_type": "hunyuan_v1_moe", "num_experts": 8, "moe_topk": [2] * 4, "num_shared_expert": [1] * 4,
        "moe_intermediate_size": [32] * 4, "use_qk_norm": True, "use_cla": True, "cla_share_factor": 2,
    },
    "ernie": {
        **BASE, "model_type": "ernie4_5_moe", "moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 32,
        "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "moe_layer_end_index": 2,
    },
    "olmo3": {
        **BASE, "model_type": "olmo3", "sliding_window": 12, "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "smollm3": {**BASE, "model_type": "smollm3", "no_rope_layers": [1, 1, 0, 1], "mlp_bias": True},
    "nemotron_h": {
        **BASE, **MAMBA, "model_type": "nemotron_h", "hybrid_override_pattern": "M-*E", "n_routed_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 48,
        "n_shared_experts": 1, "routed_scaling_factor": 2.5, "layer_norm_epsilon": 1e-5,
    },
    "nemotron_h with latent experts": {
        **BASE, **MAMBA, "model_type": "nemotron_h", "hybrid_override_pattern": "ME*E", "n_routed_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 48,
        "n_shared_experts": 1, "routed_scaling_factor": 2.5, "moe_latent_size": 24, "layer_norm_epsilon": 1e-5,
    },
    "granitemoehybrid": {
        **BASE, "model_type": "granitemoehybrid", "layer_types": ["mamba", "attention"] * 2, "mamba_n_heads": 8,
        "mamba_d_head": 8, "mamba_d_state": 16, "mamba_n_groups": 1, "num_local_experts": 8, "num_experts_per_tok": 2,
        "intermediate_size": 32, "shared_intermediate_size": 48, "position_embedding_type": "nope",
        "residual_multiplier": 0.5,
    },
    "lfm2": {**BASE, "model_type": "lfm2", "layer_types": ["conv", "full_attention"] * 2, "norm_eps": 1e-5},
    "arcee": {**BASE, "model_type": "arcee"},
    "glm4": {**BASE, "model_type": "glm4", "partial_rotary_factor": 0.5, "attention_bias": True},
    "granite": {
        **BASE, "model_type": "granite", "embedding_multiplier": 3.0, "residual_multiplier": 0.5,
        "attention_multiplier": 0.2, "logits_scaling": 4.0,
    },
}  # fmt: skip


@cache
def small(name: str) -> Model:
    """The model of one of CONFIGS."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(CONFIGS[name]))
        return load_model(str(path))
