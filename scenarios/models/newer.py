"""What newer and rarer families make of their config.json beyond the usual fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from scenarios.errors import shown
from scenarios.models.details import all_but_each, by_kind
from scenarios.models.fields import Fields
from scenarios.models.forms import Ends, Gate
from scenarios.models.layers import Layer
from scenarios.models.model import Model
from scenarios.models.rope import rotary_dim
from scenarios.models.states import KimiDelta

# ---- Trinity ----


def afmoe(read: Fields, model: Model) -> Model:
    """Embeddings times sqrt(hidden) (`mup_enabled`)."""
    return replace(model, ends=Ends(model.hidden**0.5)) if read.flag("mup_enabled", False) else model


def all_but_nth(read: Fields, layers: int) -> list[str]:
    """Windows in all layers but each n-th (`global_attn_every_n_layers`)."""
    each = read.whole("global_attn_every_n_layers", 4, most=1024)
    return ["sliding_attention" if (layer + 1) % each else "full_attention" for layer in range(layers)]


def windowed_turn(read: Fields, layers: int) -> list[bool]:
    """Layers with a window turn, others do not."""
    types = read.fields.get("layer_types")
    if not isinstance(types, list):
        types = all_but_nth(read, layers)
    return [Layer(str(kind)).is_windowed for kind in [*types, *[""] * layers][:layers]]


# ---- layer norms ----


def cohere(read: Fields, model: Model) -> Model:
    """Command: attention and MLP side by side, and a scale of the logits."""
    for key, usual in (("use_parallel_block", True), ("use_gated_activation", True)):
        if read.flag(key, usual) != usual:
            read.wrong(f"{key}: only {str(usual).lower()} is modelled")
    return replace(model, ends=Ends(logit_scale=read.number("logit_scale", 0.0625)))


def cohere2_types(read: Fields, layers: int) -> list[str]:
    return all_but_each(read, layers, usual=4)


def windows_rotate(read: Fields, layers: int) -> list[bool]:
    """Command A: layers that see all keys do not turn by position."""
    types = read.fields.get("layer_types")
    types = types if isinstance(types, list) else cohere2_types(read, layers)
    return [Layer(str(kind)).is_windowed for kind in [*types, *[""] * layers][:layers]]


def starcoder2(read: Fields, model: Model) -> Model:
    """Biases everywhere (`use_bias`)."""
    biased = read.flag("use_bias", True)
    attention = replace(model.attention, out_bias=biased)
    return replace(model, qkv_bias=biased, attention=attention, form=replace(model.form, mlp_bias=biased))


def stablelm(read: Fields, model: Model) -> Model:
    if read.flag("use_parallel_residual", False):
        read.wrong("use_parallel_residual: only false is modelled")
    return model


# ---- MiMo-V2-Flash ----


def mimo_v2(read: Fields, model: Model) -> Model:
    """Values narrower than keys, times a constant; learned sinks in layers with a window, or in those without."""
    attention = replace(
        model.attention,
        value_dim=read.whole("v_head_dim", model.head_dim, most=4096),
        value_scale=read.number("attention_value_scale", 1.0),
        sinks=read.flag("add_full_attention_sink_bias", False),
    )
    return replace(model, attention=attention)


def mimo_types(read: Fields, layers: int) -> list[str]:
    """`hybrid_layer_pattern` has 1 for layers with a window."""
    pattern = read.fields.get("hybrid_layer_pattern")
    if not isinstance(pattern, list) or len(pattern) < layers:
        read.wrong(f"hybrid_layer_pattern: must have a number for each of {layers} layers, got {shown(pattern)}")
        return ["full_attention"] * layers
    return ["sliding_attention" if windowed else "full_attention" for windowed in pattern[:layers]]


def mimo_kind(read: Fields, model: Model, layer: Layer) -> Model:
    """Layers with a window have heads, angles and sinks of their own."""
    if not layer.is_windowed:
        return model
    heads = read.whole("swa_num_attention_heads", model.heads)
    kv_heads = read.whole("swa_num_key_value_heads", model.kv_heads)
    if not read.problems and heads % kv_heads:
        read.wrong(f"swa_num_attention_heads {heads} is not a multiple of swa_num_key_value_heads {kv_heads}")
    head_dim = read.whole("swa_head_dim", model.head_dim, most=4096)
    attention = replace(
        model.attention,
        value_dim=read.whole("swa_v_head_dim", model.value_dim, most=4096),
        sinks=read.flag("add_swa_attention_sink_bias", False),
    )
    return replace(
        model,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rotary_dim=rotary_dim(read, read, head_dim),
        rope_theta=read.number("swa_rope_theta", model.rope_theta),
        attention=attention,
    )


# ---- Kimi-Linear ----


def kimi_linear(read: Fields, model: Model) -> Model:
    """Latent attention that does not turn by position (`mla_use_nope`)."""
    turns = not read.flag("mla_use_nope", False)
    return replace(model, attention=replace(model.attention, rotates=turns))


def kimi_types(read: Fields, layers: int) -> list[str]:
    """`linear_attn_config` lists layers from 1 on: those of full attention, and those of the delta rule."""
    config = read.fields.get("linear_attn_config")
    full = config.get("full_attn_layers") if isinstance(config, Mapping) else None
    if not isinstance(full, list) or not all(isinstance(place, int) for place in full):
        read.wrong(f"linear_attn_config.full_attn_layers: must be a list of numbers, got {shown(full)}")
        full = []
    return ["full_attention" if layer + 1 in full else "linear_attention" for layer in range(layers)]


def kimi_kind(read: Fields, model: Model, layer: Layer) -> Model:
    """The model of a layer of Kimi Delta Attention; latent attention as it is."""
    config = read.fields.get("linear_attn_config")
    if layer.kind != "linear_attention" or not isinstance(config, Mapping):
        return model
    of = replace(read, fields=dict(config), inside="linear_attn_config.")
    heads, dim = of.whole("num_heads", most=4096), of.whole("head_dim", most=4096)
    kernel = of.whole("short_conv_kernel_size", 4, most=64, low=2)
    state = KimiDelta(heads, heads, dim, dim, kernel, dtype="fp32", rank=dim)
    return replace(
        model,
        state=state,
        latent=None,
        heads=heads,
        kv_heads=heads,
        head_dim=dim,
        rotary_dim=0,
        attention=replace(model.attention, rotates=False),
        qkv_bias=False,
    )


# ---- of one model each ----


def telechat(read: Fields, model: Model) -> Model:
    """TeleChat: biases on the output projection and the last of the MLP alone."""
    if read.flag("apply_residual_connection_post_layernorm", False):
        read.wrong("apply_residual_connection_post_layernorm: only false is modelled")
    if read.flag("embed_layernorm", False):
        read.wrong("embed_layernorm: not modelled: a norm behind the embedding")
    return model


def qwen(read: Fields, model: Model) -> Model:
    """Qwen 1: `intermediate_size` counts gate and up together."""
    if not read.flag("no_bias", True):
        read.wrong("no_bias: only true is modelled")
    return replace(model, intermediate=model.intermediate // 2)


def aria(read: Fields, model: Model) -> Model:
    """Aria: shared experts as one of their width together."""
    if model.experts is None:
        return model
    shared = read.whole("moe_num_shared_experts", 2, low=0, most=64) * model.experts.intermediate
    return replace(model, experts=replace(model.experts, shared=shared))


# ---- Step-3.5 ----


def step(read: Fields, model: Model) -> Model:
    """A gate for each head, and a shared expert of a width of its own."""
    gate: Gate = "head" if read.flag("use_head_wise_attn_gate", read.fields.get("gating", True) is True) else ""
    model = replace(model, attention=replace(model.attention, gate=gate))
    if read.flag("use_mfa", False):
        read.wrong("use_mfa: not modelled: one shared K and V with a low-rank query")
    if model.experts is None:
        return model
    width = read.whole("share_expert_dim", read.whole("share_expert_dims", 0, low=0), low=0)
    biased = read.flag("use_moe_router_bias", True)
    return replace(model, experts=replace(model.experts, shared=width, choice_bias=biased))


def step3(read: Fields, model: Model) -> Model:
    """Step-3: one K and V for all heads, a query of low rank, a shared expert of a width of its own."""
    rank = read.whole("share_q_dim", model.head_dim)
    if model.kv_heads != 1:
        read.wrong(f"num_attention_groups: only 1 is modelled next to share_q_dim, got {model.kv_heads}")
    model = replace(model, attention=replace(model.attention, q_rank=rank))
    width = read.whole("share_expert_dim", 0, low=0)
    return model if model.experts is None else replace(model, experts=replace(model.experts, shared=width))


def step_kind(read: Fields, model: Model, layer: Layer) -> Model:
    """Layers with a window have other heads, and angles that are not scaled; some layers cap their SwiGLU."""
    model = by_kind(read, model, layer)
    if layer.is_windowed:
        model = _other_heads(read, model)
    scaled = read.fields.get("yarn_only_types")
    if isinstance(scaled, list) and layer.kind not in scaled:
        model = replace(model, rope_scaling=None)
    if "partial_rotary_factors" in read.fields:
        share = _of_kind(read, "partial_rotary_factors", layer, 1.0)
        rotary = replace(read, fields={"partial_rotary_factor": share})
        model = replace(model, rotary_dim=rotary_dim(rotary, rotary, model.head_dim))
    theta = _of_kind(read, "rope_theta", layer, model.rope_theta)
    return _capped(replace(model, rope_theta=theta), layer)


def _other_heads(read: Fields, model: Model) -> Model:
    """The heads of layers with a window: `attention_other_setting`, or `num_sliding_attention_heads`."""
    other = read.fields.get("attention_other_setting")
    if not isinstance(other, Mapping):
        return replace(model, heads=read.whole("num_sliding_attention_heads", model.heads))
    of = replace(read, fields=dict(other), inside="attention_other_setting.")
    heads, kv_heads = of.whole("num_attention_heads", model.heads), of.whole("num_attention_groups", model.kv_heads)
    if not read.problems and heads % kv_heads:
        of.wrong(f"num_attention_heads {heads} is not a multiple of num_attention_groups {kv_heads}")
    return replace(model, heads=heads, kv_heads=kv_heads, head_dim=of.whole("head_dim", model.head_dim, most=4096))


def _of_kind(read: Fields, key: str, layer: Layer, default: float) -> float:
    """What a list by layer says of the layers of one kind, which must agree; `default` where there is no list."""
    values, types = read.fields.get(key), read.fields.get("layer_types")
    if not isinstance(values, list):
        return default
    kinds = types if isinstance(types, list) else ["full_attention"] * len(values)
    own = [value for value, kind in zip(values, kinds, strict=False) if kind == layer.kind]
    if not own or any(value != own[0] for value in own):
        read.wrong(f"{key}: must have one number for layers of {layer.kind}, got {shown(own[:4])}")
        return default
    return replace(read, fields={key: own[0]}).number(key, default)


def _capped(model: Model, layer: Layer) -> Model:
    """`model` with the limits of the layer's SwiGLU: of its experts, and of a shared one or a plain MLP."""
    routed, plain = layer.limits
    form, experts = model.form, model.experts
    if plain:
        form = replace(form, activation="capped", limit=plain)
    if experts and routed:
        experts = replace(experts, activation="capped", limit=routed)
    if experts and plain != routed:
        experts = replace(experts, shared_limit=plain)
    return replace(model, form=form, experts=experts)


def step_limits(read: Fields, layers: int) -> list[tuple[float, float]]:
    """Of each layer the limits of the SwiGLU of experts, and of the others; 0 for none."""
    routed, plain = (_limits(read, key, layers) for key in ("swiglu_limits", "swiglu_limits_shared"))
    return list(zip(routed, plain, strict=True))


def _limits(read: Fields, key: str, layers: int) -> list[float]:
    values = read.fields.get(key) or [None] * layers
    if isinstance(values, list) and len(values) >= layers:
        named = [replace(read, fields={key: value}).number(key, 0.0, or_none=True) for value in values[:layers]]
        return [float(value) for value in named]
    read.wrong(f"{key}: must be a number for each of {layers} layers, got {shown(values)}")
    return [0.0] * layers
