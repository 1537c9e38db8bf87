"""The families of decoders: what each `model_type` implies that its config.json does not say, and what is refused.

docs/models.md has the same table in words; a test holds the two together.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scenarios.models import deepseek_v4, details
from scenarios.models.alike import ALIKE
from scenarios.models.family import Family
from scenarios.models.forms import AttentionForm, LayerForm

#: Families that differ from others in names only.
_GEMMA = Family(
    tied=True,
    out_bias=True,
    types=None,
    adapt=details.by_kind,
    finish=details.gemma,
    form=LayerForm(unit_offset=True, activation="gelu"),
    defaults={"head_dim": 256, "hidden_activation": "gelu_pytorch_tanh"},
    models=frozenset({"attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"}),
    like="Gemma",
)
_GEMMA3 = replace(
    _GEMMA,
    qk_norm=True,
    types=details.all_but_each,
    like="Gemma 3 1B, 4B, 12B, 27B",
    form=LayerForm(unit_offset=True, activation="gelu", post_norms=True),
    models=_GEMMA.models | {"sliding_window_pattern"},
    defaults={
        **_GEMMA.defaults,
        "vocab_size": 262_208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "max_position_embeddings": 131_072,
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
    },
)
_LINEAR = frozenset({"linear_num_key_heads", "linear_conv_kernel_dim", "attn_output_gate"})
_QWEN3_5 = Family(
    qk_norm=True,
    out_bias=True,
    finish=details.qwen3_next,
    types=details.linear_types,
    adapt=details.delta_layer,
    models=_LINEAR,
    known=("full_attention", "linear_attention"),
    form=LayerForm(unit_offset=True),
    like="Qwen3.5, Qwen3.6 dense",
    defaults={"head_dim": 256, "partial_rotary_factor": 0.25},
)
_QWEN3_NEXT = replace(_QWEN3_5, experts="num_experts", normalised=True, like="Qwen3-Next-80B-A3B")
_LLAMA4 = Family(
    qk_norm=None,
    out_bias=True,
    experts="num_local_experts",
    width="intermediate_size",
    score="sigmoid",
    finish=details.llama4,
    types=details.llama4_types,
    rotates=details.llama4_rotates,
    adapt=details.llama4_kind,
    known=("full_attention", "chunked_attention"),
    models=frozenset({"attention_chunk_size", "no_rope_layers"}),
    defaults={"use_qk_norm": True, "attention_chunk_size": 8192, "rope_theta": 500_000.0},
    like="Llama 4 Scout, Maverick",
)
_GLM4_MOE = Family(qk_norm=None, experts="n_routed_experts", score="sigmoid", like="GLM-4.5, GLM-4.6, GLM-4.7")

_GEMMA4 = Family(
    tied=True,
    qk_norm=True,
    experts="num_experts",
    optional_experts=True,
    normalised=True,
    types=details.all_but_each,
    adapt=details.gemma4_kind,
    finish=details.gemma4,
    form=LayerForm(activation="gelu", post_norms=True),
    models=frozenset({"final_logit_softcapping", "attention_k_eq_v", "enable_moe_block", "sliding_window_pattern"}),
    renames={"top_k_experts": "num_experts_per_tok"},
    like="Gemma 4 26B-A4B, 31B",
    defaults={"head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 512},
)
#: Norms behind attention and MLP alone.
_BEHIND = LayerForm(pre_norms=False, post_norms=True)
_HUNYUAN = Family(
    qk_norm=None,
    out_bias=True,
    attention=AttentionForm(norm_last=True),
    tied=True,
    like="Hunyuan 0.5B to 7B",
    renames={"attention_head_dim": "head_dim"},
    defaults={"use_qk_norm": True},
)
_LFM2 = Family(
    qk_norm=True,
    tied=True,
    finish=details.lfm2,
    types=details.lfm2_types,
    adapt=details.lfm2_kind,
    known=("full_attention", "conv"),
    renames={"norm_eps": "rms_norm_eps", "tie_embedding": "tie_word_embeddings", "block_ff_dim": "intermediate_size"},
    like="LFM2",
)
_GRANITE_MOE = Family(
    out_bias=True,
    experts="num_local_experts",
    width="intermediate_size",
    normalised=True,
    tied=True,
    finish=details.granite,
    like="Granite 3 with experts",
)

#: Families that read `bias`.
_BIAS = frozenset({"bias"})
#: Sparse attention with an indexer, which some layers take over from the one before them.
_INDEXED: dict[str, Any] = {
    "models": frozenset({"index_topk"}),
    "kinds": {"indexed_attention": "full_attention", "deepseek_sparse_attention": "full_attention"},
    "adapt": details.indexed,
}

#: Of each `model_type`. A dense family whose layers are those of another is one line here.
FAMILIES: dict[str, Family] = {
    **ALIKE,
    "llama": Family(out_bias=True, like="Llama 2 and 3, Yi, DeepSeek-R1-Distill-Llama"),
    "mistral": Family(windowed=True, like="Mistral 7B, Mistral Small, Devstral"),
    "ministral": Family(windowed=True, like="Ministral 8B"),
    "seed_oss": Family(bias=True, like="Seed-OSS"),
    "ernie4_5": Family(tied=True, like="ERNIE-4.5 0.3B"),
    "mimo": Family(bias=True, like="MiMo 7B"),
    "qwen2": Family(bias=True, like="Qwen2, Qwen2.5, QwQ"),
    "qwen3": Family(qk_norm=True, out_bias=True, like="Qwen3", defaults={"head_dim": 128}),
    "qwen3_moe": Family(qk_norm=True, out_bias=True, experts="num_experts", like="Qwen3-30B-A3B, Qwen3-235B-A22B"),
    "glm4_moe": _GLM4_MOE,
    "deepseek": Family(experts="n_routed_experts", normalised=False, like="DeepSeek-MoE 16B"),
    "deepseek_v2": Family(experts="n_routed_experts", latent=True, like="DeepSeek-V2, V2.5, Coder-V2"),
    "deepseek_v3": Family(
        experts="n_routed_experts", score="sigmoid", latent=True, like="DeepSeek-V3, R1, V3.1, Kimi-VL's text"
    ),
    "deepseek_v32": Family(
        experts="n_routed_experts", score="sigmoid", latent=True, like="DeepSeek-V3.2", **_INDEXED
    ),
    "deepseek_v4": Family(
        experts="n_routed_experts",
        score="sqrtsoftplus",
        normalised=True,
        attention=AttentionForm(sinks=True),
        types=deepseek_v4.types_by_ratio,
        known=deepseek_v4.KINDS,
        hashed=deepseek_v4.hashed_layers,
        adapt=deepseek_v4.by_ratio,
        finish=deepseek_v4.deepseek_v4,
        models=frozenset(
            {"hc_mult", "compress_ratios", "num_hash_layers", "index_topk", "o_lora_rank", "swiglu_limit"}
        ),
        defaults={"head_dim": 512, "n_shared_experts": 1, "routed_scaling_factor": 1.5},
        like="DeepSeek-V4 Flash, Pro",
    ),
    "glm_moe_dsa": Family(
        experts="n_routed_experts",
        score="sigmoid",
        latent=True,
        like="GLM-5, GLM-5.1, GLM-5.2",
        **_INDEXED,
    ),
    "kimi_k2": Family(experts="n_routed_experts", score="sigmoid", latent=True, like="Kimi-K2"),
    "mixtral": Family(
        experts="num_local_experts",
        width="intermediate_size",
        normalised=True,
        windowed=True,
        like="Mixtral 8x7B, 8x22B",
    ),
    "minimax_m2": Family(
        qk_norm=None,
        norm_of="layer",
        experts="num_local_experts",
        width="intermediate_size",
        score="sigmoid",
        defaults={"use_qk_norm": True},
        like="MiniMax-M2, M2.1, M2.5, M2.7",
    ),
    "olmoe": Family(
        qk_norm=True, norm_of="layer", out_bias=True, experts="num_experts", width="intermediate_size",
        normalised=False, like="OLMoE",
    ),
    "dots1": Family(qk_norm=True, experts="n_routed_experts", score="sigmoid", like="dots.llm1"),
    "gpt_oss": Family(
        bias=True, out_bias=True, experts="num_local_experts", width="intermediate_size", normalised=True,
        attention=AttentionForm(sinks=True), finish=details.gpt_oss, types=details.all_but_second,
        models=frozenset({"swiglu_limit"}), like="gpt-oss 20b, 120b",
    ),
    "gemma": _GEMMA,
    "gemma2": replace(
        _GEMMA, types=details.every_other, form=_GEMMA3.form, like="Gemma 2 2B, 9B, 27B",
        defaults={**_GEMMA.defaults, "query_pre_attn_scalar": 256, "sliding_window": 4096},
    ),
    "gemma3_text": _GEMMA3,
    "qwen3_next": _QWEN3_NEXT,
    "qwen3_5_text": _QWEN3_5,
    "qwen3_5_moe_text": replace(_QWEN3_NEXT, like="Qwen3.5-35B-A3B and larger, Qwen3.6"),
    "qwen2_moe": Family(
        bias=True, experts="num_experts", normalised=False, finish=details.shared_gate,
        renames={"qkv_bias": "attention_bias"},
        like="Qwen1.5-MoE, Qwen2-57B-A14B",
    ),
    "llama4_text": _LLAMA4,
    "glm4": Family(form=LayerForm(post_norms=True), like="GLM-4 0414 9B, 32B"),
    "granite": Family(out_bias=True, finish=details.granite, tied=True, like="Granite 3"),
    "phi3": Family(windowed=True, like="Phi-3, Phi-4"),
    "gemma4_text": _GEMMA4,
    "ministral3": Family(windowed=True, like="Ministral 3, Devstral 2"),
    "ernie4_5_moe": Family(
        experts="num_experts", normalised=True, tied=True, finish=details.bias_of_choice, like="ERNIE-4.5 21B, 300B",
        renames={"moe_num_experts": "num_experts", "moe_k": "num_experts_per_tok",
                 "moe_num_shared_experts": "n_shared_experts"},
    ),
    "hunyuan_v1_dense": _HUNYUAN,
    "hunyuan_v1_moe": replace(
        _HUNYUAN, experts="num_experts", normalised=True, like="Hunyuan-A13B",
        renames={**_HUNYUAN.renames, "moe_topk": "num_experts_per_tok", "num_shared_expert": "n_shared_experts"},
    ),
    "hunyuan": replace(
        _HUNYUAN, experts="num_experts", width="intermediate_size", normalised=True, like="Hunyuan-Large",
        renames={**_HUNYUAN.renames, "moe_topk": "num_experts_per_tok", "num_shared_expert": "n_shared_experts"},
    ),
    "internlm": Family(
        bias=True, out_bias=True, renames={"bias": "attention_bias"}, models=_BIAS, like="InternLM 7B, 20B",
    ),
    "internlm2": Family(out_bias=True, models=_BIAS, renames={"bias": "attention_bias"}, like="InternLM2, 2.5"),
    "internlm3": Family(
        models=_BIAS, renames={"qkv_bias": "attention_bias", "bias": "attention_out_bias"}, like="InternLM3",
    ),
    "baichuan": Family(finish=details.baichuan, like="Baichuan, Baichuan2"),
    "chatglm": Family(
        bias=True, finish=details.chatglm, like="ChatGLM3, GLM-4-9B", defaults={"partial_rotary_factor": 0.5}, renames={
            "num_layers": "num_hidden_layers", "padded_vocab_size": "vocab_size", "ffn_hidden_size":
            "intermediate_size", "multi_query_group_num": "num_key_value_heads", "kv_channels": "head_dim",
            "add_qkv_bias": "attention_bias", "seq_length": "max_position_embeddings", "layernorm_epsilon":
            "rms_norm_eps",
        },
    ),
    "glm": Family(bias=True, like="GLM-4-9B, GLM-Edge"),
    "olmo2": Family(out_bias=True, qk_norm=True, norm_of="layer", form=_BEHIND, like="OLMo 2"),
    "olmo3": Family(
        out_bias=True, qk_norm=True, norm_of="layer", form=_BEHIND, adapt=details.scaled_when_full, like="OLMo 3",
    ),
    "exaone": Family(
        like="EXAONE 3.5", renames={"num_layers": "num_hidden_layers", "layer_norm_epsilon": "rms_norm_eps",
                                    "activation_function": "hidden_act"},
    ),
    "exaone4": Family(
        qk_norm=True, form=_BEHIND, rotates=details.windows_turn, models=frozenset({"sliding_window_pattern"}),
        like="EXAONE 4",
    ),
    "smollm3": Family(
        tied=True, out_bias=True, rotates=details.llama4_rotates, models=frozenset({"no_rope_layers"}), like="SmolLM3",
    ),
    "minicpm": Family(finish=details.minicpm, like="MiniCPM, MiniCPM4"),
    "minicpm3": Family(latent=True, finish=details.minicpm, like="MiniCPM3"),
    "bailing_moe": Family(
        experts="num_experts", normalised=True, like="Ling-lite, Ling-plus",
        renames={"num_shared_experts": "n_shared_experts", "use_qkv_bias": "attention_bias"},
        models=frozenset({"use_qkv_bias"}),
    ),
    "bailing_moe_v2": Family(
        qk_norm=True, experts="num_experts", score="sigmoid", normalised=True, like="Ling 2.0, Ring 2.0",
        renames={"num_shared_experts": "n_shared_experts", "use_qkv_bias": "attention_bias"},
        models=frozenset({"use_qkv_bias"}),
    ),
    "granitemoe": _GRANITE_MOE,
    "granitemoeshared": replace(_GRANITE_MOE, finish=details.granite_shared, like="Granite 3 with shared experts"),
    "arcee": Family(out_bias=True, form=LayerForm(activation="relu2"), like="AFM-4.5B"),
    "nemotron_h": Family(
        experts="n_routed_experts", optional_experts=True, score="sigmoid", form=LayerForm(activation="relu2"),
        types=details.nemotron_types, known=("mamba", "attention", "mlp", "moe"), adapt=details.nemotron_kind,
        kinds={"full_attention": "attention", "linear_attention": "mamba"},
        finish=details.nemotron, renames={"layer_norm_epsilon": "rms_norm_eps", "attention_head_dim": "head_dim"},
        models=frozenset({"mamba_num_heads", "ssm_state_size", "hybrid_override_pattern"}),
        like="Nemotron-H, Nemotron Nano 2, Nemotron 3 Nano and Super",
    ),
    "granitemoehybrid": replace(
        _GRANITE_MOE, optional_experts=True, finish=details.granite_hybrid, adapt=details.granite_kind,
        known=("attention", "mamba"),
        kinds={"full_attention": "attention", "linear_attention": "mamba"}, like="Granite 4",
    ),
    "lfm2": _LFM2,
    "lfm2_moe": replace(
        _LFM2, experts="num_experts", score="sigmoid", like="LFM2 8B-A1B",
        renames={**_LFM2.renames, "num_dense_layers": "first_k_dense_replace"},
    ),
    "glm4_moe_lite": Family(
        experts="n_routed_experts", score="sigmoid", latent=True, like="GLM-4.7-Flash",
    ),
    "flex_olmo": Family(
        out_bias=True, qk_norm=True, norm_of="layer", experts="num_experts", width="intermediate_size",
        normalised=False, form=_BEHIND,
        like="FlexOlmo",
    ),
}  # fmt: skip

#: Parts of a multimodal config that hold the decoder of its text, in the order in which they are looked for.
TEXT_PARTS = ("text_config", "llm_config", "language_config", "lm_config", "language_model_config")

#: Decoders that stand in a multimodal config under a name of their own, and what they are as text.
TEXT_TYPES = {
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "glm4v_moe_text": "glm4_moe",
    "kimi_k25": "kimi_k2",
    "glm4v_text": "glm4",
    "mistral3": "mistral",
    "qwen3_omni_moe_text": "qwen3_moe",
    "qwen3_asr_text": "qwen3",
    "qwen3_asr": "qwen3",
    "glm4v": "glm4",
    "glm_ocr_text": "glm4",
    "paddleocr_vl": "ernie4_5",
    "paddleocr_vl_text": "ernie4_5",
    "deepseek_vl_v2": "deepseek_v2",
    "deepseek_ocr": "deepseek_v2",
    "deepseek_ocr2": "deepseek_v2",
    "glm4_moe_text": "glm4_moe",
    "dots_ocr": "qwen2",
    "Keye": "qwen3",
    "KeyeVL1_5": "qwen3",
    "phi3_v": "phi3",
    "minimax_m3_vl": "minimax_m3_vl_text",
    "qwen2_5_omni_text": "qwen2",
    "phi4_multimodal": "phi3",
    "phi4mm": "phi3",
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "llama4": "llama4_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "hunyuan_vl": "hunyuan_v1_dense",
    "hunyuan_vl_text": "hunyuan_v1_dense",
    "mllama": "mllama_text_model",
    "gemma3n": "gemma3n_text",
    "step3_vl": "step3_text",
    "aria": "aria_text",
    "ernie4_5_vl_moe": "ernie4_5_vl_moe_text",
}

#: The same where the `version` of a config decides: MiniCPM-V and -o.
VERSIONS: dict[str, dict[str, str]] = {
    "minicpmv": {"2.0": "minicpm", "2.5": "llama", "2.6": "qwen2", "4.0": "llama", "4": "llama", "4.5": "qwen3"},
    "minicpmo": {"2.6": "qwen2", "4.5": "qwen3"},
}
