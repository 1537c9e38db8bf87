"""The families of decoders: what each `model_type` implies that its config.json does not say, and what is refused.

docs/models.md has the same table in words; a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass

from scenarios.models.model import QkNorm, Score


@dataclass(frozen=True, slots=True)
class Family:
    """What a `model_type` implies that its config.json does not say.

    qk_norm: Q and K are normalised per head (None: as `use_qk_norm` says). norm_of: what one norm of them spans. bias:
    default of `attention_bias` on the QKV projections. experts: key of the number of routed experts, "" for a dense
    model. width: key of an expert's width. score: how the router scores. normalised: default of `norm_topk_prob`.
    latent: multi-head latent attention (MLA). windowed: a `sliding_window` holds without `use_sliding_window`. models:
    keys of FEATURES that the lowering of the family knows. like: published models that stand for it.
    """

    qk_norm: bool | None = False
    norm_of: QkNorm = "head"
    bias: bool = False
    experts: str = ""
    width: str = "moe_intermediate_size"
    score: Score = "softmax"
    normalised: bool | None = None
    latent: bool = False
    windowed: bool = False
    models: frozenset[str] = frozenset()
    like: str = ""


#: Of each `model_type`. A dense family whose layers are those of another is one line here.
FAMILIES: dict[str, Family] = {
    "llama": Family(like="Llama 2 and 3, Yi, DeepSeek-R1-Distill-Llama"),
    "mistral": Family(windowed=True, like="Mistral 7B from v0.2, Mistral Small"),
    "ministral": Family(windowed=True, like="Ministral 8B"),
    "seed_oss": Family(bias=True, like="Seed-OSS"),
    "ernie4_5": Family(like="ERNIE-4.5 0.3B"),
    "mimo": Family(bias=True, like="MiMo 7B"),
    "qwen2": Family(bias=True, like="Qwen2, Qwen2.5, QwQ"),
    "qwen3": Family(qk_norm=True, like="Qwen3"),
    "qwen3_moe": Family(qk_norm=True, experts="num_experts", like="Qwen3-30B-A3B, Qwen3-235B-A22B"),
    "glm4_moe": Family(qk_norm=None, experts="n_routed_experts", score="sigmoid", like="GLM-4.5, GLM-4.6"),
    "deepseek": Family(experts="n_routed_experts", normalised=False, like="DeepSeek-MoE 16B"),
    "deepseek_v2": Family(experts="n_routed_experts", latent=True, like="DeepSeek-V2, V2.5, Coder-V2"),
    "deepseek_v3": Family(
        experts="n_routed_experts", score="sigmoid", latent=True, like="DeepSeek-V3, R1, V3.1, Kimi-VL's text"
    ),
    "deepseek_v32": Family(
        experts="n_routed_experts", score="sigmoid", latent=True, models=frozenset({"index_topk"}), like="DeepSeek-V3.2"
    ),
    "glm_moe_dsa": Family(
        experts="n_routed_experts",
        score="sigmoid",
        latent=True,
        models=frozenset({"index_topk"}),
        like="GLM-5, GLM-5.1",
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
        like="MiniMax-M2, M2.1, M2.5",
    ),
    "olmoe": Family(
        qk_norm=True, norm_of="layer", experts="num_experts", width="intermediate_size", normalised=False, like="OLMoE"
    ),
    "dots1": Family(qk_norm=True, experts="n_routed_experts", score="sigmoid", like="dots.llm1"),
}

#: Parts of a multimodal config that hold the decoder of its text, in the order in which they are looked for.
TEXT_PARTS = ("text_config", "llm_config", "language_config")

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
}

#: Features that a config shows by a key, and that are not modelled: the key, and the feature in words. A key counts
#: where its value is neither null, false, zero nor empty.
FEATURES: dict[str, str] = {
    "hc_mult": "hyper-connections",
    "compress_ratios": "attention over compressed tokens",
    "num_hash_layers": "experts chosen by a hash of the token",
    "index_topk": "sparse attention over indexed tokens",
    "linear_num_key_heads": "gated delta rule layers",
    "linear_attn_config": "linear attention layers",
    "mamba_num_heads": "Mamba layers",
    "ssm_state_size": "Mamba layers",
    "attention_chunk_size": "attention in chunks",
    "no_rope_layers": "layers without rotary angles",
    "final_logit_softcapping": "soft caps of logits",
    "attn_logit_softcapping": "soft caps of scores",
    "query_pre_attn_scalar": "a scale of scores of its own",
    "num_kv_shared_layers": "layers that share the KV cache of others",
    "attention_k_eq_v": "keys that are values too",
    "hidden_size_per_layer_input": "embeddings of each layer",
    "enable_moe_block": "a plain MLP next to the experts",
    "attn_output_gate": "a gate on attention's output",
    "swiglu_limit": "clamped SwiGLU",
    "zero_expert_num": "experts that do nothing",
    "mlp_bias": "a bias in the MLP",
    "use_bias": "a bias in all projections",
    "attention_out_bias": "a bias after attention",
    "share_q_dim": "one shared K and V with a low-rank query",
    "hybrid_override_pattern": "layers of several kinds",
    "linear_conv_kernel_dim": "gated delta rule layers",
    "sliding_window_pattern": "windows by layer",
    "use_qkv_bias": "a bias of its own key on Q, K and V",
    "o_lora_rank": "a low-rank output projection",
    "cross_attention_layers": "cross attention",
}

#: Families that are known and refused, with the features that are missing.
REFUSED: dict[str, str] = {
    "deepseek_v4": "hyper-connections (hc_mult) and attention over compressed tokens (compress_ratios)",
    "gpt_oss": "attention sinks, windows by layer (layer_types) and clamped SwiGLU (swiglu_limit)",
    "qwen3_next": "gated delta rule layers (linear_num_key_heads)",
    "qwen3_5": "gated delta rule layers (linear_num_key_heads)",
    "qwen3_5_text": "gated delta rule layers (linear_num_key_heads)",
    "qwen3_5_moe": "gated delta rule layers (linear_num_key_heads)",
    "qwen3_5_moe_text": "gated delta rule layers (linear_num_key_heads)",
    "kimi_linear": "linear attention layers (linear_attn_config)",
    "minimax_m1": "linear attention layers (attn_type_list)",
    "minimax_text_01": "linear attention layers (attn_type_list)",
    "nemotron_h": "Mamba layers (hybrid_override_pattern)",
    "llama4": "attention in chunks (attention_chunk_size) and layers without rotary angles (no_rope_layers)",
    "llama4_text": "attention in chunks (attention_chunk_size) and layers without rotary angles (no_rope_layers)",
    "gemma": "norms whose weight counts from one, and GELU (hidden_activation)",
    "gemma2": "windows by layer (sliding_window) and soft caps (attn_logit_softcapping)",
    "gemma3": "windows by layer (sliding_window_pattern) and norms after attention and MLP",
    "gemma3_text": "windows by layer (sliding_window_pattern) and norms after attention and MLP",
    "gemma4": "windows by layer (layer_types), heads of two sizes (global_head_dim) and soft caps of logits",
    "gemma4_text": "windows by layer (layer_types), heads of two sizes (global_head_dim) and soft caps of logits",
    "glm4": "norms after attention and MLP",
    "longcat_flash": "two attentions a layer next to the experts, and experts that do nothing (zero_expert_num)",
    "qwen2_moe": "a gate on the shared expert (shared_expert_gate)",
    "hunyuan_v1_moe": "Q and K norms after the rotary angles (use_qk_norm)",
    "hunyuan_v1_dense": "Q and K norms after the rotary angles (use_qk_norm)",
    "step3": "attention with one shared K and V and a low-rank query (share_q_dim)",
    "step3_text": "attention with one shared K and V and a low-rank query (share_q_dim)",
    "phi3": "packed projections in the checkpoint (qkv_proj) and longrope",
}
