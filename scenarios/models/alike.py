"""Families whose layers are made of what those of `families` are made of: each is one entry, in names of its own."""

from __future__ import annotations

from scenarios.models import details, newer
from scenarios.models.family import Family
from scenarios.models.forms import AttentionForm, LayerForm

#: Names of keys that several of them share, by the usual ones.
_SHARED_EXPERTS = {"num_shared_experts": "n_shared_experts"}

#: Attention and MLP side by side behind one layer norm without a bias.
_COHERE = LayerForm(layer_norm=True, parallel=True)

#: Of each `model_type`.
ALIKE: dict[str, Family] = {
    "hy_v3": Family(
        qk_norm=True, out_bias=True, experts="num_experts", score="sigmoid", normalised=True, like="Hy3 295B-A21B",
        renames={**_SHARED_EXPERTS, "router_scaling_factor": "routed_scaling_factor", "route_norm": "norm_topk_prob"},
        defaults={"first_k_dense_replace": 1, "rope_theta": 11_158_840.0},
    ),
    "exaone_moe": Family(
        qk_norm=True, experts="num_experts", score="sigmoid", normalised=True, rotates=details.windows_turn,
        renames=_SHARED_EXPERTS, models=frozenset({"sliding_window_pattern"}), like="K-EXAONE 236B-A23B",
    ),
    "solar_open": Family(
        experts="n_routed_experts", score="sigmoid", normalised=True, like="Solar-Open 100B",
        defaults={"rope_theta": 1_000_000.0},
    ),
    "mellum": Family(
        qk_norm=True, out_bias=True, experts="num_experts", normalised=True, adapt=details.by_kind, like="Mellum 2",
    ),
    "youtu": Family(latent=True, tied=True, like="Youtu-LLM 2B"),
    "iquestcoder": Family(out_bias=True, like="IQuest-Coder 7B, 40B"),
    "helium": Family(like="Helium 2B"),
    "hyperclovax": Family(out_bias=True, finish=details.hyperclovax, like="HyperCLOVA X SEED Think"),
    "vaultgemma": Family(
        tied=True, out_bias=True, types=details.every_other, adapt=details.by_kind, finish=details.gemma,
        form=LayerForm(unit_offset=True, activation="gelu"), like="VaultGemma 1B",
        models=frozenset({"attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"}),
        defaults={"head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 4096, "hidden_activation":
                  "gelu_pytorch_tanh", "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    ),
    "cohere": Family(
        qk_norm=None, norm_of="own", tied=True,
        out_bias=True, form=_COHERE, finish=newer.cohere, renames={"layer_norm_eps": "rms_norm_eps"},
        defaults={"rms_norm_eps": 1e-5}, like="Command R",
    ),
    "cohere2": Family(
        tied=True, out_bias=True, form=_COHERE, finish=newer.cohere, types=newer.cohere2_types, windowed=True,
        rotates=newer.windows_rotate, like="Command R7B, Command A, Aya", models=frozenset({"sliding_window_pattern"}),
        renames={"layer_norm_eps": "rms_norm_eps", "rotary_pct": "partial_rotary_factor"},
        defaults={"rms_norm_eps": 1e-5, "sliding_window": 4096},
    ),
    "nemotron": Family(
        out_bias=True, form=LayerForm(layer_norm=True, norm_bias=True, unit_offset=True, activation="relu2"),
        renames={"norm_eps": "rms_norm_eps", "rope_percent": "partial_rotary_factor", "rotary_percent":
                 "partial_rotary_factor"},
        defaults={"rms_norm_eps": 1e-5, "partial_rotary_factor": 0.5}, like="Nemotron-4, Minitron",
    ),
    "starcoder2": Family(
        tied=True, windowed=True, finish=newer.starcoder2, like="StarCoder2", models=frozenset({"use_bias"}),
        form=LayerForm(layer_norm=True, norm_bias=True, activation="gelu_alone"),
        renames={"norm_epsilon": "rms_norm_eps"}, defaults={"rms_norm_eps": 1e-5},
    ),
    "stablelm": Family(
        form=LayerForm(layer_norm=True, norm_bias=True), finish=newer.stablelm, like="StableLM 3B, 2 1.6B",
        renames={"layer_norm_eps": "rms_norm_eps", "use_qkv_bias": "attention_bias"},
        defaults={"rms_norm_eps": 1e-5, "partial_rotary_factor": 0.25}, models=frozenset({"use_qkv_bias"}),
    ),
    "jais2": Family(
        bias=True, out_bias=True, form=LayerForm(layer_norm=True, norm_bias=True, activation="relu2", mlp_bias=True),
        renames={"layer_norm_eps": "rms_norm_eps"}, defaults={"rms_norm_eps": 1e-5}, like="Jais 2",
    ),
    "afmoe": Family(
        qk_norm=True, out_bias=True, experts="num_experts", score="sigmoid", normalised=True, finish=newer.afmoe,
        attention=AttentionForm(gate="element"), form=LayerForm(post_norms=True), types=newer.all_but_nth,
        rotates=newer.windowed_turn, like="Trinity Nano, Mini, Large",
        renames={**_SHARED_EXPERTS, "route_scale": "routed_scaling_factor", "route_norm": "norm_topk_prob",
                 "num_dense_layers": "first_k_dense_replace"},
        defaults={"first_k_dense_replace": 1, "sliding_window": 1024},
    ),
    "step3p5": Family(
        qk_norm=True, experts="n_routed_experts", score="sigmoid", normalised=True, form=LayerForm(unit_offset=True),
        finish=newer.step, adapt=newer.step_kind, limits=newer.step_limits, like="Step-3.5-Flash, Step-3.7-Flash",
        renames={
            "num_attention_groups": "num_key_value_heads", "moe_num_experts": "n_routed_experts", "moe_top_k":
            "num_experts_per_tok", "moe_router_scaling_factor": "routed_scaling_factor", "norm_expert_weight":
            "norm_topk_prob",
        },
    ),
    **dict.fromkeys(("step3_text", "step3"), Family(
        experts="n_routed_experts", finish=newer.step3, models=frozenset({"share_q_dim"}), like="Step-3 321B-A38B",
        defaults={"num_attention_groups": 1, "head_dim": 256, "first_k_dense_replace": 1, "rope_theta": 500_000.0},
        renames={
            "num_attention_groups": "num_key_value_heads", "moe_num_experts": "n_routed_experts", "moe_top_k":
            "num_experts_per_tok", "norm_expert_weight": "norm_topk_prob", "max_position_embedding":
            "max_position_embeddings",
        },
    )),
    "PanguEmbedded": Family(
        bias=True, out_bias=True, renames={"bias": "attention_bias"}, models=frozenset({"bias"}),
        like="openPangu-Embedded 1B, 7B",
    ),
    "kimi_linear": Family(
        latent=True, experts="num_experts", score="sigmoid", normalised=True, finish=newer.kimi_linear,
        types=newer.kimi_types, adapt=newer.kimi_kind, known=("full_attention", "linear_attention"),
        models=frozenset({"linear_attn_config"}), like="Kimi-Linear 48B-A3B",
        renames={
            "num_experts_per_token": "num_experts_per_tok", "num_shared_experts": "n_shared_experts",
            "moe_renormalize": "norm_topk_prob", "num_expert_group": "n_group", "model_max_length":
            "max_position_embeddings",
        },
    ),
    "apertus": Family(qk_norm=True, out_bias=True, form=LayerForm(activation="xielu"), like="Apertus 8B, 70B"),
    "telechat": Family(
        attention=AttentionForm(out_bias=True), form=LayerForm(down_bias=True), like="TeleChat, TeleChat2",
        renames={
            "n_layer": "num_hidden_layers", "n_head": "num_attention_heads", "ffn_hidden_size": "intermediate_size",
            "layer_norm_epsilon": "rms_norm_eps", "seq_length": "max_position_embeddings",
        },
        finish=newer.telechat,
    ),
    "telechat3": Family(out_bias=True, like="TeleChat3 36B"),
    "qwen": Family(
        bias=True, finish=newer.qwen, like="Qwen 1.8B to 72B",
        renames={"layer_norm_epsilon": "rms_norm_eps", "seq_length": "max_position_embeddings", "kv_channels":
                 "head_dim", "rotary_emb_base": "rope_theta"},
    ),
    "Yi": Family(out_bias=True, like="Yi, before it was Llama"),
    "aquila": Family(like="Aquila"),
    "xverse": Family(like="XVERSE 7B, 13B, 65B"),
    "orion": Family(form=LayerForm(layer_norm=True, norm_bias=True), like="Orion 14B"),
    "cwm": Family(adapt=details.by_kind, like="Code World Model"),
    "aria_text": Family(
        experts="num_experts", normalised=True, finish=newer.aria, like="Aria, its text",
        renames={"moe_num_experts": "num_experts", "moe_topk": "num_experts_per_tok"},
    ),
    "mimo_v2_flash": Family(
        experts="n_routed_experts", score="sigmoid", normalised=True, finish=newer.mimo_v2, types=newer.mimo_types,
        adapt=newer.mimo_kind, models=frozenset({"attention_chunk_size", "v_head_dim"}), like="MiMo-V2-Flash",
        renames={"layernorm_epsilon": "rms_norm_eps"},
    ),
    "PanguProMoE": Family(
        bias=True, out_bias=True, experts="num_experts", normalised=False, finish=details.pangu_pro,
        like="openPangu-Pro-MoE 72B",
    ),
    "pangu_ultra_moe": Family(
        experts="n_routed_experts", score="sigmoid", normalised=True, latent=True, finish=details.pangu_ultra,
        renames={
            "num_routed_experts": "n_routed_experts", **_SHARED_EXPERTS, "num_dense_layers": "first_k_dense_replace",
            "num_mtp_layers": "num_nextn_predict_layers", "attention_kv_lora_dim": "kv_lora_rank",
            "attention_q_lora_dim": "q_lora_rank", "attention_qk_dim": "qk_nope_head_dim",
            "attention_qk_rope_dim": "qk_rope_head_dim", "attention_v_dim": "v_head_dim",
        },
        like="openPangu-Ultra-MoE 718B",
    ),
}  # fmt: skip
