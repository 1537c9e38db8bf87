"""What a family makes of its config.json beyond the usual fields, family by family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from scenarios.errors import shown
from scenarios.models.fields import Fields
from scenarios.models.forms import Ends
from scenarios.models.layers import Layer
from scenarios.models.model import Model
from scenarios.models.rope import rope_scaling, rotary_dim
from scenarios.models.states import GatedDelta, Mamba2, ShortConv


def nothing(_: Fields, model: Model) -> Model:
    return model


def unlimited(_: Fields, layers: int) -> list[tuple[float, float]]:
    return [(0.0, 0.0)] * layers


def everywhere(_: Fields, layers: int) -> list[bool]:
    return [True] * layers


def nowhere(_: Fields, layers: int) -> list[bool]:
    return [False] * layers


def gpt_oss(read: Fields, model: Model) -> Model:
    """Sinks, biases everywhere, and a clamped SwiGLU in the experts."""
    if model.experts is None:
        return model
    experts = replace(
        model.experts, router_bias=True, bias=True, activation="clamped", limit=read.number("swiglu_limit", 7.0)
    )
    return replace(model, experts=experts)


def all_but_second(_: Fields, layers: int) -> list[str]:
    """gpt-oss: windows in layers of even number."""
    return every_other(_, layers)


# ---- Gemma ----


def gemma(read: Fields, model: Model) -> Model:
    """Embeddings times sqrt(hidden), caps of scores and logits, and the scale of scores."""
    ends = Ends(model.hidden**0.5, read.number("final_logit_softcapping", 0.0, or_none=True))
    scalar = read.number("query_pre_attn_scalar", float(model.head_dim), or_none=True)
    attention = replace(
        model.attention,
        scale=0.0 if scalar == model.head_dim else scalar**-0.5,
        soft_cap=read.number("attn_logit_softcapping", 0.0, or_none=True),
    )
    return replace(model, ends=ends, attention=attention)


def every_other(_: Fields, layers: int) -> list[str]:
    """Gemma 2: windows in each layer of even number."""
    return ["full_attention" if layer % 2 else "sliding_attention" for layer in range(layers)]


def all_but_each(read: Fields, layers: int, usual: int = 6) -> list[str]:
    """Windows in all layers but each n-th (`sliding_window_pattern`)."""
    each = read.whole("_sliding_window_pattern", read.whole("sliding_window_pattern", usual, most=1024), most=1024)
    return ["sliding_attention" if (layer + 1) % each else "full_attention" for layer in range(layers)]


def by_kind(read: Fields, model: Model, layer: Layer) -> Model:
    """Rotary angles of `rope_parameters` where it has one entry for each kind of layer, or of `rope_local_base_freq` in
    layers with windows (Gemma 3)."""
    given = read.fields.get("rope_parameters")
    if isinstance(given, Mapping) and isinstance(given.get(layer.kind), Mapping):
        rope = replace(read, fields=dict(given[layer.kind]), inside=f"rope_parameters.{layer.kind}.")
        return replace(
            model,
            rope_theta=rope.number("rope_theta", model.rope_theta),
            rope_scaling=rope_scaling(read, rope),
            rotary_dim=rotary_dim(read, rope, model.head_dim),
        )
    if layer.is_windowed and "rope_local_base_freq" in read.fields:
        return replace(model, rope_theta=read.number("rope_local_base_freq", 10_000.0), rope_scaling=None)
    return model


def gemma4(read: Fields, model: Model) -> Model:
    """Scores as they are, values normed, and experts next to a plain MLP."""
    model = gemma(read, model)
    attention = replace(model.attention, scale=1.0, value_norm=True)
    model = replace(model, attention=attention, form=replace(model.form, layer_scale=True))
    return (
        model
        if model.experts is None
        else replace(model, experts=replace(model.experts, with_plain=True, scales_choice=True))
    )


def gemma4_kind(read: Fields, model: Model, layer: Layer) -> Model:
    """Layers without a window have wider heads, fewer of keys, and values that are those keys."""
    if layer.kind != "full_attention":
        return by_kind(read, model, layer)
    wide = replace(model, head_dim=read.whole("global_head_dim", 512, most=4096))
    if read.flag("attention_k_eq_v", False):
        kv_heads = read.fields.get("num_global_key_value_heads")
        heads = model.kv_heads if kv_heads is None else read.whole("num_global_key_value_heads")
        wide = replace(wide, kv_heads=heads, attention=replace(wide.attention, keys_are_values=True))
    return by_kind(read, wide, layer)


# ---- Qwen ----


def shared_gate(read: Fields, model: Model) -> Model:
    """A shared expert of a width of its own, times a gate (Qwen2-MoE, Qwen3-Next)."""
    if model.experts is None:
        return model
    width = read.whole("shared_expert_intermediate_size", 0, low=0)
    return replace(model, experts=replace(model.experts, shared=width, shared_gate=bool(width)))


def qwen3_next(read: Fields, model: Model) -> Model:
    gated = replace(model.attention, gate="packed" if read.flag("attn_output_gate", True) else "")
    return shared_gate(read, replace(model, attention=gated))


def linear_types(read: Fields, layers: int) -> list[str]:
    """Full attention in each n-th layer (`full_attention_interval`), the delta rule in the others."""
    each = read.whole("full_attention_interval", 4, most=1024)
    return ["linear_attention" if (layer + 1) % each else "full_attention" for layer in range(layers)]


def delta_layer(read: Fields, model: Model, layer: Layer) -> Model:
    """The model of a layer of the gated delta rule; full attention as it is."""
    if layer.kind != "linear_attention":
        return model
    stored = str(read.fields.get("mamba_ssm_dtype", "")).replace("bfloat16", "bf16")
    state = GatedDelta(
        key_heads=read.whole("linear_num_key_heads", 16, most=4096),
        value_heads=read.whole("linear_num_value_heads", 32, most=4096),
        key_dim=read.whole("linear_key_head_dim", 128, most=4096),
        value_dim=read.whole("linear_value_head_dim", 128, most=4096),
        kernel=read.whole("linear_conv_kernel_dim", 4, most=64, low=2),
        dtype="fp32" if stored == "float32" else "bf16",
        interleaved=model.model_type == "qwen3_next",
    )
    if not read.problems and state.value_heads % state.key_heads:
        heads = f"{shown(state.value_heads)} is not a multiple of linear_num_key_heads {shown(state.key_heads)}"
        read.wrong(f"linear_num_value_heads {heads}")
    return replace(
        model,
        state=state,
        heads=state.value_heads,
        head_dim=state.value_dim,
        kv_heads=state.key_heads,
        rotary_dim=0,
        attention=replace(model.attention, gate="", rotates=False),
        qk_norm=False,
        qkv_bias=False,
    )


# ---- Llama 4 ----


def llama4(read: Fields, model: Model) -> Model:
    """One expert a token, whose input is weighed; a shared one next to it; norms without weights behind the angles."""
    model = replace(
        model,
        intermediate=read.whole("intermediate_size_mlp", model.intermediate),
        attention=replace(model.attention, norm_last=True, weightless=True),
    )
    if model.experts is None:
        return model
    width = model.experts.intermediate
    experts = replace(model.experts, shared=width, weighs_input=True, normalised=False, choice_bias=False)
    return replace(model, experts=experts)


def llama4_types(read: Fields, layers: int) -> list[str]:
    """Chunks where a layer turns by position, all keys where it does not."""
    return ["chunked_attention" if turns else "full_attention" for turns in llama4_rotates(read, layers)]


def llama4_rotates(read: Fields, layers: int) -> list[bool]:
    """`no_rope_layers` has 1 for layers that turn (despite its name), or each n-th does not."""
    given = read.fields.get("no_rope_layers")
    if isinstance(given, list) and given:
        if len(given) < layers:
            read.wrong(f"no_rope_layers: {len(given)} of {layers} layers")
        return [bool(flag) for flag in [*given, *[1] * layers][:layers]]
    each = read.whole("no_rope_layer_interval", 4, most=1024)
    return [bool((layer + 1) % each) for layer in range(layers)]


def llama4_kind(_: Fields, model: Model, layer: Layer) -> Model:
    """Only layers that turn have norms of Q and K."""
    return model if layer.rotates else replace(model, qk_norm=False)


# ---- scales ----


def granite(read: Fields, model: Model) -> Model:
    """Four multipliers: of the embedding, of what is added to the residual, of the scores and of the logits."""
    scale = read.number("attention_multiplier", model.head_dim**-0.5)
    return replace(
        model,
        ends=Ends(read.number("embedding_multiplier", 1.0), 0.0, 1 / read.number("logits_scaling", 1.0)),
        form=replace(model.form, residual_scale=read.number("residual_multiplier", 1.0)),
        attention=replace(model.attention, scale=scale),
    )


def granite_shared(read: Fields, model: Model) -> Model:
    """The multipliers, and a shared expert of a width of its own."""
    model = granite(read, model)
    if model.experts is None:
        return model
    return replace(model, experts=replace(model.experts, shared=read.whole("shared_intermediate_size", 0, low=0)))


def hyperclovax(read: Fields, model: Model) -> Model:
    """The multipliers of Granite, and norms behind attention and MLP too where the config says so."""
    model = granite(read, model)
    return replace(model, form=replace(model.form, post_norms=read.flag("use_post_norm", True)))


def minicpm(read: Fields, model: Model) -> Model:
    """MiniCPM's scales: of embeddings, of what is added (by the depth), of logits (by the width)."""
    base = read.number("dim_model_base", float(model.hidden))
    depth = read.number("scale_depth", model.layers**0.5)
    return replace(
        model,
        ends=Ends(read.number("scale_emb", 1.0), 0.0, base / model.hidden),
        form=replace(model.form, residual_scale=depth / model.layers**0.5),
    )


#: Switches of ChatGLM that are modelled one way only.
_CHATGLM = {
    "apply_residual_connection_post_layernorm": False,
    "rmsnorm": True,
    "post_layer_norm": True,
    "add_bias_linear": False,
}


def chatglm(read: Fields, model: Model) -> Model:
    """GLM's older form: a factor of the base of its angles, and heads of K and V of their own where it says so."""
    for key, usual in _CHATGLM.items():
        if read.flag(key, usual) != usual:
            read.wrong(f"{key}: only {str(usual).lower()} is modelled")
    kv_heads = model.kv_heads if read.flag("multi_query_attention", True) else model.heads
    return replace(model, rope_theta=model.rope_theta * read.number("rope_ratio", 1.0), kv_heads=kv_heads)


def baichuan(read: Fields, model: Model) -> Model:
    """Baichuan's 13B models have biases by distance (ALiBi) in place of rotary angles, and say their length by a key of
    their own."""
    if "max_position_embeddings" in read.fields:
        return model
    length = read.whole("model_max_length", model.max_position)
    attention = replace(model.attention, rotates=False, alibi=model.heads)
    return replace(model, max_position=length, attention=attention)


def windows_turn(read: Fields, layers: int) -> list[bool]:
    """EXAONE 4: of models with windows only those layers turn by position."""
    types = read.fields.get("layer_types")
    if read.fields.get("sliding_window") is None or not isinstance(types, list):
        return [True] * layers
    return [Layer(kind).is_windowed for kind in [*types, *[""] * layers][:layers]]


def scaled_when_full(read: Fields, model: Model, layer: Layer) -> Model:
    """OLMo 3: angles are scaled in layers that see all keys."""
    model = by_kind(read, model, layer)
    return replace(model, rope_scaling=None) if layer.is_windowed else model


def bias_of_choice(read: Fields, model: Model) -> Model:
    """ERNIE 4.5: softmax scores whose choice a bias moves."""
    aux_free = read.flag("moe_use_aux_free", True)
    return model if model.experts is None else replace(model, experts=replace(model.experts, choice_bias=aux_free))


def pangu_ultra(read: Fields, model: Model) -> Model:
    """openPangu-Ultra: norms behind attention and MLP too (`sandwich_norm`); a bias of the choice where it is on."""
    model = replace(model, form=replace(model.form, post_norms=read.flag("sandwich_norm", False)))
    biased = read.flag("router_enable_expert_bias", False)
    return model if model.experts is None else replace(model, experts=replace(model.experts, choice_bias=biased))


def pangu_pro(read: Fields, model: Model) -> Model:
    """openPangu-Pro-MoE (arXiv:2505.21411): one expert of each group for a token, times a learned scale of each, and
    one shared expert as wide as several."""
    if model.experts is None:
        return model
    groups = read.whole("num_expert_groups", model.experts.top_k)
    count, top_k = model.experts.count, model.experts.top_k
    if not read.problems and (groups != top_k or count % groups):
        read.wrong(f"num_expert_groups {groups}: only one expert of each of num_experts_per_tok groups is modelled")
    width = read.whole("shared_expert_intermediate_size", 0, low=0)
    return replace(model, experts=replace(model.experts, shared=width, one_per_group=True, scales_choice=True))


def indexed(_: Fields, model: Model, layer: Layer) -> Model:
    """Sparse attention: a layer that does not choose keys takes those of the one before it that does."""
    latent = model.latent
    if layer.selects or latent is None or latent.index is None:
        return model
    return replace(model, latent=replace(latent, index=replace(latent.index, borrows=True)))


# ---- Mamba-2 and short convolutions ----

_PATTERN = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def nemotron_types(read: Fields, layers: int) -> list[str]:
    """Each layer is one of Mamba, attention, MLP and experts: by `layers_block_type`, or a letter each."""
    given = read.fields.get("layers_block_type")
    if isinstance(given, list) and len(given) >= layers:
        return [str(kind) for kind in given[:layers]]
    pattern = read.fields.get("hybrid_override_pattern")
    if not isinstance(pattern, str) or len(pattern) < layers:
        read.wrong(f"hybrid_override_pattern: must have a letter for each of {layers} layers, got {shown(pattern)}")
        return ["attention"] * layers
    return [_PATTERN.get(letter, f"kind {letter}") for letter in pattern[:layers]]


def nemotron(read: Fields, model: Model) -> Model:
    if model.experts is None:
        return model
    latent = read.whole("moe_latent_size", 0, low=0)
    if latent and model.form.mlp_bias:
        read.wrong("mlp_bias: not modelled: biases around experts of a latent width")
    shared = read.whole("moe_shared_expert_intermediate_size", 0, low=0) * read.whole("n_shared_experts", 1, low=0)
    return replace(model, experts=replace(model.experts, shared=shared, latent=latent))


def nemotron_kind(read: Fields, model: Model, layer: Layer) -> Model:
    """One layer has one part only, and attention does not turn."""
    attends = layer.kind in ("mamba", "attention")
    experts = model.experts if layer.kind == "moe" else None
    form = replace(model.form, attends=attends, has_mlp=not attends)
    model = replace(model, form=form, experts=experts, attention=replace(model.attention, rotates=False))
    if layer.kind != "mamba":
        return model
    state = _mamba(
        read,
        heads="mamba_num_heads",
        head_dim="mamba_head_dim",
        groups="n_groups",
        state="ssm_state_size",
        kernel="conv_kernel",
        chunk="chunk_size",
    )
    return with_mamba(read, model, state)


def _mamba(read: Fields, *, heads: str, head_dim: str, groups: str, state: str, kernel: str, chunk: str) -> Mamba2:
    """The sizes under the family's own keys."""
    stored = str(read.fields.get("mamba_ssm_cache_dtype", read.fields.get("mamba_ssm_dtype", "")))
    return Mamba2(
        heads=read.whole(heads, most=1 << 14),
        head_dim=read.whole(head_dim, 64, most=4096),
        groups=read.whole(groups, 1, most=4096),
        state_dim=read.whole(state, 128, most=4096),
        kernel=read.whole(kernel, 4, most=64, low=2),
        chunk=read.whole(chunk, 256, most=1 << 14),
        dtype="fp32" if stored == "float32" else "bf16",
    )


def with_mamba(read: Fields, model: Model, state: Mamba2) -> Model:
    """`model` with a Mamba-2 layer in place of attention."""
    if not read.problems and state.heads % state.groups:
        read.wrong(f"{state.heads} Mamba heads do not divide by {state.groups} groups")
    return replace(
        model,
        state=state,
        heads=state.heads,
        kv_heads=state.heads,
        head_dim=state.head_dim,
        rotary_dim=0,
        attention=replace(model.attention, rotates=False),
        qk_norm=False,
        qkv_bias=False,
    )


def granite_hybrid(read: Fields, model: Model) -> Model:
    """Granite 4: the multipliers, attention that may not turn, an MLP of the shared width where it has no experts."""
    model = granite_shared(read, model)
    turns = read.fields.get("position_embedding_type", "rope") == "rope"
    model = replace(model, attention=replace(model.attention, rotates=turns))
    return model if model.experts else replace(model, intermediate=read.whole("shared_intermediate_size"))


def granite_kind(read: Fields, model: Model, layer: Layer) -> Model:
    if layer.kind != "mamba":
        return model
    state = _mamba(
        read,
        heads="mamba_n_heads",
        head_dim="mamba_d_head",
        groups="mamba_n_groups",
        state="mamba_d_state",
        kernel="mamba_d_conv",
        chunk="mamba_chunk_size",
    )
    return with_mamba(read, model, state)


def lfm2(read: Fields, model: Model) -> Model:
    """The MLP of LFM2 has two thirds of its stated width, times a factor, up to a multiple."""
    if not read.flag("block_auto_adjust_ff_dim", False):
        return model
    width = int(2 * model.intermediate / 3 * read.number("block_ffn_dim_multiplier", 1.0, or_none=True))
    step = read.whole("block_multiple_of", 256)
    return replace(model, intermediate=-(-width // step) * step)


def lfm2_types(read: Fields, layers: int) -> list[str]:
    """Attention in the layers of `full_attn_idxs` (all, where there is none), convolutions in the others."""
    places = read.fields.get("full_attn_idxs")
    if places is None:
        return ["full_attention"] * layers
    if not isinstance(places, list) or not all(isinstance(place, int) for place in places):
        read.wrong(f"full_attn_idxs: must be a list of numbers, got {shown(places)}")
        places = []
    return ["full_attention" if layer in places else "conv" for layer in range(layers)]


def lfm2_kind(read: Fields, model: Model, layer: Layer) -> Model:
    """A layer of kind conv has a gated short convolution in place of attention."""
    if layer.kind != "conv":
        return model
    state = ShortConv(model.hidden, read.whole("conv_L_cache", 3, most=64, low=2))
    return replace(
        model,
        state=state,
        kv_heads=model.heads,
        head_dim=model.hidden // model.heads,
        rotary_dim=0,
        qk_norm=False,
        attention=replace(model.attention, rotates=False),
    )
