"""What Hugging Face calls the tensors of a Program, and how large they are in a model of its shape."""

from __future__ import annotations

from device.weights.shared_kv_weights import own_name, own_shape
from device.weights.state_weights import name_in_layer, shape_in_layer
from scenarios.models.model import Model

#: Where a layer's tensors stand.
IN_LAYER = {
    "q_proj": "self_attn.q_proj", "k_proj": "self_attn.k_proj", "v_proj": "self_attn.v_proj",
    "o_proj": "self_attn.o_proj", "q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm",
    "q_a_proj": "self_attn.q_a_proj", "q_a_norm": "self_attn.q_a_layernorm", "q_b_proj": "self_attn.q_b_proj",
    "kv_a_proj": "self_attn.kv_a_proj_with_mqa", "kv_a_norm": "self_attn.kv_a_layernorm",
    "kv_b_proj": "self_attn.kv_b_proj", "gate_proj": "mlp.gate_proj", "up_proj": "mlp.up_proj",
    "index_q_proj": "self_attn.indexer.wq_b", "index_k_proj": "self_attn.indexer.wk",
    "index_k_norm": "self_attn.indexer.k_norm", "index_weights_proj": "self_attn.indexer.weights_proj",
    "down_proj": "mlp.down_proj", "router": "mlp.gate", "post_attention_norm": "post_attention_layernorm",
    "attention_out_norm": "post_attention_layernorm", "mlp_out_norm": "post_feedforward_layernorm",
    "shared_expert_gate": "mlp.shared_expert_gate",
    "attention_gate_proj": "self_attn.g_proj",
    "latent_down_proj": "mlp.fc1_latent_proj", "latent_up_proj": "mlp.fc2_latent_proj",
}  # fmt: skip
#: Tensors that are no module's weight or bias: their whole name in a layer.
PLAIN = {
    "layer_scalar": "layer_scalar",
    "router_norm": "router.scale",
    "router_scales": "router.per_expert_scale",
    "sinks": "self_attn.sinks",
    "xielu_p": "mlp.act_fn.alpha_p",
    "xielu_n": "mlp.act_fn.alpha_n",
}
#: Norms that families call otherwise: those with norms behind attention and MLP too, or behind them alone.
_WITH_POST_NORMS = {"post_attention_norm": "pre_feedforward_layernorm"}
_GEMMA4 = {
    **_WITH_POST_NORMS,
    "dense_norm": "post_feedforward_layernorm_1",
    "moe_norm": "pre_feedforward_layernorm_2",
    "experts_norm": "post_feedforward_layernorm_2",
    "router": "router.proj",
}
_HUNYUAN = {
    "q_norm": "self_attn.query_layernorm",
    "k_norm": "self_attn.key_layernorm",
    "router": "mlp.gate.wg",
}
_OTHER_NAMES: dict[str, dict[str, str]] = {
    "gemma2": _WITH_POST_NORMS, "gemma3_text": _WITH_POST_NORMS, "gemma4_text": _GEMMA4,
    "glm4": {"attention_out_norm": "post_self_attn_layernorm", "mlp_out_norm": "post_mlp_layernorm"},
    "hunyuan": _HUNYUAN, "hunyuan_v1_dense": _HUNYUAN, "hunyuan_v1_moe": _HUNYUAN,
    "gpt_oss": {"router": "mlp.router"},
}  # fmt: skip
#: The same of tensors that are no module's, and of the shared expert.
_OTHER_PLAIN = {
    "PanguProMoE": {"router_scales": "mlp.router_scale"},
    "mimo_v2_flash": {"sinks": "self_attn.attention_sink_bias"},
}
#: Last words of their names.
_PLAIN_PARTS = ("layer_scalar", "router_scale", "attention_sink_bias", "alpha_p", "alpha_n")
_SHARED_EXPERT = ("PanguProMoE",)


#: Families whose experts stand under other names: the module of a layer, and its projections.
SPARSE_BLOCK = ("mixtral", "minimax_m2")
_IN_SPARSE_BLOCK = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}


def name_of(model: Model, name: str, part: str, layer: int) -> str:
    """The tensor `part` (weight, bias) of what a Program calls `name` (`q_proj`, `experts.3.up_proj`,
    `shared.up_proj`), of `layer`."""
    if name == "embed_tokens" or (name == "lm_head" and model.tied_embeddings):
        return "model.embed_tokens.weight"
    if name == "lm_head":
        return "lm_head.weight"
    if name == "input_norm":
        return f"model.layers.0.input_layernorm.{part}"
    if other := own_name(model, name, part, layer):
        return other
    if name == "final_norm":
        return f"model.norm.{part}"
    if name == "next_norm":
        last = layer + 1 == model.layers
        return f"model.norm.{part}" if last else f"model.layers.{layer + 1}.input_layernorm.{part}"
    at = f"model.layers.{layer}"
    state = model.at(layer).state if model.kinds or model.state else None
    if state is not None and (own := name_in_layer(state, name, part)):
        return f"{at}.{own}"
    if name in PLAIN:
        return f"{at}.{_OTHER_PLAIN.get(model.model_type, {}).get(name, PLAIN[name])}"
    if model.model_type in SPARSE_BLOCK and (name == "router" or name.startswith("experts.")):
        return _in_sparse_block(f"{at}.block_sparse_moe", name, part)
    if name == "router" and part == "bias" and not (model.experts and model.experts.router_bias):
        return f"{at}.mlp.gate.e_score_correction_bias"
    prefix, _, projection = name.rpartition(".")
    if prefix:
        return f"{at}.mlp.{_shared(model) if prefix == 'shared' else prefix}.{projection}.{part}"
    return f"{at}.{_other_names(model).get(name) or IN_LAYER[name]}.{part}"


def _other_names(model: Model) -> dict[str, str]:
    """What the model's family calls otherwise."""
    both = model.form.pre_norms and model.form.post_norms
    return _OTHER_NAMES.get(model.model_type, _WITH_POST_NORMS if both else {})


def _shared(model: Model) -> str:
    single = model.model_type in _SHARED_EXPERT or (model.experts and model.experts.shared_gate)
    return "shared_expert" if single else "shared_experts"


def _in_sparse_block(at: str, name: str, part: str) -> str:
    """`router` and `experts.3.up_proj` of the families in SPARSE_BLOCK."""
    if name == "router":
        return f"{at}.e_score_correction_bias" if part == "bias" else f"{at}.gate.{part}"
    expert, _, projection = name.rpartition(".")
    return f"{at}.{expert}.{_IN_SPARSE_BLOCK[projection]}.{part}"


def shape_of(model: Model, name: str) -> tuple[int, ...]:
    """The shape of the tensor called `name`."""
    *before, layer, part = name.split(".")
    number = next((int(word) for word, ahead in zip(before, ["", *before], strict=False) if ahead == "layers"), -1)
    one = model.at(number if 0 <= number < model.layers else -1)
    if (other := own_shape(model, one, name)) is not None:
        return other
    if one.state is not None and (own := shape_in_layer(one.state, name, model.hidden)):
        return own
    if f"{layer}.{part}" in PLAIN.values() or part in _PLAIN_PARTS:
        sizes = {"scale": one.hidden, "layer_scalar": 1, "alpha_p": 1, "alpha_n": 1}
        if one.experts:
            sizes |= dict.fromkeys(("per_expert_scale", "router_scale"), one.experts.count)
        return (sizes.get(part, one.heads),)
    out, into = _sizes(one, name).get(layer, (model.hidden, 0))
    return (out, into) if into and part == "weight" else (out,)


def _sizes(model: Model, name: str) -> dict[str, tuple[int, int]]:
    """(outputs, inputs) of the modules of one layer that are no norm over the hidden size; inputs 0 for a vector."""
    hidden, width = model.hidden, _mlp_width(model, name)
    sizes = {
        "q_proj": (model.q_width, hidden), "k_proj": (model.kv_size, hidden), "v_proj": (model.v_size, hidden),
        "o_proj": (hidden, model.attended), "gate_proj": (width, hidden), "up_proj": (width, hidden),
        "down_proj": (hidden, width), "embed_tokens": (model.vocab, hidden), "lm_head": (model.vocab, hidden),
        "w1": (width, hidden), "w3": (width, hidden), "w2": (hidden, width), "shared_expert_gate": (1, hidden),
        "g_proj": (model.gate_width, hidden),
        **dict.fromkeys(("q_norm", "k_norm", "query_layernorm", "key_layernorm"), (model.head_dim, 0)),
    }  # fmt: skip
    if model.experts and ".experts." in name:
        read = model.experts.reads(hidden)
        sizes |= {"gate_proj": (width, read), "up_proj": (width, read), "down_proj": (read, width)}
        sizes |= {"w1": (width, read), "w3": (width, read), "w2": (read, width)}
    if model.experts:
        latent = model.experts.latent
        sizes |= {"fc1_latent_proj": (latent, hidden), "fc2_latent_proj": (hidden, latent)}
        count = model.experts.count
        sizes |= {"gate": (count, hidden), "router": (count, hidden), "proj": (count, hidden), "wg": (count, hidden)}
        sizes["block_sparse_moe"] = (count, 0)
    if rank := model.attention.q_rank:
        sizes |= {"q_a_proj": (rank, hidden), "q_b_proj": (model.q_size, rank), "q_a_layernorm": (rank, 0)}
    if model.qk_norm_of == "own":
        sizes |= {"q_norm": (model.heads, model.head_dim), "k_norm": (model.kv_heads, model.head_dim)}
    if model.qk_norm_of == "layer":
        sizes |= {"q_norm": (model.q_size, 0), "k_norm": (model.kv_size, 0)}
    return sizes | _latent_sizes(model)


def _latent_sizes(model: Model) -> dict[str, tuple[int, int]]:
    latent, hidden = model.latent, model.hidden
    if latent is None:
        return {}
    sizes = {
        "q_a_proj": (latent.q_rank, hidden), "q_b_proj": (model.q_size, latent.q_rank),
        "q_a_layernorm": (latent.q_rank, 0),
        "kv_a_proj_with_mqa": (latent.row, hidden), "kv_a_layernorm": (latent.kv_rank, 0),
        "kv_b_proj": (model.heads * (latent.nope_dim + latent.v_dim), latent.kv_rank),
    }  # fmt: skip
    if index := latent.index:
        sizes |= {
            "wq_b": (index.heads * index.dim, latent.q_rank),
            "wk": (index.dim, hidden),
            "k_norm": (index.dim, 0),
            "weights_proj": (index.heads, hidden),
        }
    return sizes


def _mlp_width(model: Model, name: str) -> int:
    """Of a routed expert, the shared one or the plain MLP."""
    if model.experts and ".shared_expert" in name:
        return model.experts.shared
    return model.experts.intermediate if model.experts and ".experts." in name else model.intermediate
