"""The families of decoders: what each `model_type` implies that its config.json does not say, and what is refused.

docs/models.md has the same table in words; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from scenarios.models import details
from scenarios.models.fields import Fields
from scenarios.models.forms import USUAL_ATTENTION, USUAL_LAYER, AttentionForm, LayerForm
from scenarios.models.layers import Adapt
from scenarios.models.model import Model, QkNorm, Score


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What a `model_type` implies that its config.json does not say.

    qk_norm: Q and K are normalised per head (None: as `use_qk_norm` says). norm_of: what one norm of them spans. bias:
    default of `attention_bias` on the QKV projections; out_bias: it counts for the output projection too. experts: key
    of the number of routed experts, "" for a dense model. width: key of an expert's width. score: how the router
    scores. normalised: default of `norm_topk_prob`. latent: multi-head latent attention (MLA). windowed: a
    `sliding_window` holds without `use_sliding_window`. tied: default of `tie_word_embeddings`. optional_experts: it
    has experts where the config says so. models: keys of FEATURES that the lowering of the family knows. attention,
    form: of its layers. defaults: of keys that a config may leave out; renames: its own names of keys, by the usual
    one. finish: what else of a config makes the model. types: kinds of its layers where the config has no
    `layer_types`. rotates: which layers turn by position. adapt: what sets a kind of layer apart. like: published
    models that stand for it.
    """

    qk_norm: bool | None = False
    norm_of: QkNorm = "head"
    bias: bool = False
    out_bias: bool = False
    experts: str = ""
    width: str = "moe_intermediate_size"
    score: Score = "softmax"
    normalised: bool | None = None
    latent: bool = False
    windowed: bool = False
    tied: bool = False
    optional_experts: bool = False
    models: frozenset[str] = frozenset()
    attention: AttentionForm = USUAL_ATTENTION
    form: LayerForm = USUAL_LAYER
    defaults: Mapping[str, Any] = field(default_factory=dict)
    renames: Mapping[str, str] = field(default_factory=dict)
    finish: Callable[[Fields, Model], Model] = details.nothing
    types: Callable[[Fields, int], list[str]] | None = None
    known: tuple[str, ...] = ("full_attention", "attention", "sliding_attention")
    rotates: Callable[[Fields, int], list[bool]] = details.everywhere
    adapt: Adapt = details.as_it_is
    like: str = ""


#: Families that differ from others in names only.
_GEMMA = Family(
    tied=True, types=None, adapt=details.by_kind, finish=details.gemma,
    form=LayerForm(unit_offset=True, activation="gelu"),
    defaults={"head_dim": 256, "hidden_activation": "gelu_pytorch_tanh"},
    models=frozenset({"attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"}), like="Gemma",
)  # fmt: skip
_GEMMA3 = replace(
    _GEMMA, qk_norm=True, types=details.all_but_each, like="Gemma 3 1B, 4B, 12B, 27B",
    form=LayerForm(unit_offset=True, activation="gelu", post_norms=True),
    models=_GEMMA.models | {"sliding_window_pattern"},
    defaults={
        **_GEMMA.defaults, "vocab_size": 262_208, "num_attention_heads": 8, "num_key_value_heads": 4,
        "max_position_embeddings": 131_072, "rope_theta": 1_000_000.0, "rope_local_base_freq": 10_000.0,
        "query_pre_attn_scalar": 256, "sliding_window": 4096,
    },
)  # fmt: skip
_LINEAR = frozenset({"linear_num_key_heads", "linear_conv_kernel_dim", "attn_output_gate"})
_QWEN3_5 = Family(
    qk_norm=True, finish=details.qwen3_next, types=details.linear_types, adapt=details.delta_layer, models=_LINEAR,
    known=("full_attention", "linear_attention"), form=LayerForm(unit_offset=True), like="Qwen3.5, Qwen3.6 dense",
    defaults={"head_dim": 256, "partial_rotary_factor": 0.25},
)  # fmt: skip
_QWEN3_NEXT = replace(_QWEN3_5, experts="num_experts", normalised=True, like="Qwen3-Next-80B-A3B")
_LLAMA4 = Family(
    qk_norm=None, experts="num_local_experts", width="intermediate_size", score="sigmoid", finish=details.llama4,
    types=details.llama4_types, rotates=details.llama4_rotates, adapt=details.llama4_kind,
    known=("full_attention", "chunked_attention"), models=frozenset({"attention_chunk_size", "no_rope_layers"}),
    defaults={"use_qk_norm": True, "attention_chunk_size": 8192, "rope_theta": 500_000.0},
    like="Llama 4 Scout, Maverick",
)  # fmt: skip
_GLM4_MOE = Family(qk_norm=None, experts="n_routed_experts", score="sigmoid", like="GLM-4.5, GLM-4.6, GLM-4.7")

#: Of each `model_type`. A dense family whose layers are those of another is one line here.
FAMILIES: dict[str, Family] = {
    "llama": Family(out_bias=True, like="Llama 2 and 3, Yi, DeepSeek-R1-Distill-Llama"),
    "mistral": Family(windowed=True, like="Mistral 7B, Mistral Small, Devstral"),
    "ministral": Family(windowed=True, like="Ministral 8B"),
    "seed_oss": Family(bias=True, like="Seed-OSS"),
    "ernie4_5": Family(tied=True, like="ERNIE-4.5 0.3B"),
    "mimo": Family(bias=True, like="MiMo 7B"),
    "qwen2": Family(bias=True, like="Qwen2, Qwen2.5, QwQ"),
    "qwen3": Family(qk_norm=True, out_bias=True, like="Qwen3"),
    "qwen3_moe": Family(qk_norm=True, out_bias=True, experts="num_experts", like="Qwen3-30B-A3B, Qwen3-235B-A22B"),
    "glm4_moe": _GLM4_MOE,
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
        like="Qwen1.5-MoE, Qwen2-57B-A14B",
    ),
    "llama4_text": _LLAMA4,
    "glm4": Family(form=LayerForm(post_norms=True), like="GLM-4 0414 9B, 32B"),
    "granite": Family(finish=details.granite, tied=True, like="Granite 3"),
    "phi3": Family(windowed=True, like="Phi-3, Phi-4"),
}  # fmt: skip

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
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "llama4": "llama4_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
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
    "use_bias": "a bias in all projections",
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
    "kimi_linear": "linear attention layers (linear_attn_config)",
    "minimax_m1": "linear attention layers (attn_type_list)",
    "minimax_text_01": "linear attention layers (attn_type_list)",
    "nemotron_h": "Mamba layers (hybrid_override_pattern)",
    "gemma4": "windows by layer (layer_types), heads of two sizes (global_head_dim) and soft caps of logits",
    "gemma4_text": "windows by layer (layer_types), heads of two sizes (global_head_dim) and soft caps of logits",
    "longcat_flash": "two attentions a layer next to the experts, and experts that do nothing (zero_expert_num)",
    "hunyuan_v1_moe": "Q and K norms after the rotary angles (use_qk_norm)",
    "hunyuan_v1_dense": "Q and K norms after the rotary angles (use_qk_norm)",
    "step3": "attention with one shared K and V and a low-rank query (share_q_dim)",
    "step3_text": "attention with one shared K and V and a low-rank query (share_q_dim)",
}
