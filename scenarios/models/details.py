"""What a family makes of its config.json beyond the usual fields, family by family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from scenarios.errors import shown
from scenarios.models.fields import Fields
from scenarios.models.forms import Ends, GatedDelta
from scenarios.models.layers import Layer
from scenarios.models.model import Model
from scenarios.models.rope import rope_scaling, rotary_dim


def nothing(_: Fields, model: Model) -> Model:
    return model


def as_it_is(_: Fields, model: Model, __: Layer) -> Model:
    return model


def everywhere(_: Fields, layers: int) -> list[bool]:
    return [True] * layers


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
    if layer.kind == "sliding_attention" and "rope_local_base_freq" in read.fields:
        return replace(model, rope_theta=read.number("rope_local_base_freq", 10_000.0), rope_scaling=None)
    return model


def gemma4(read: Fields, model: Model) -> Model:
    """Scores as they are, values normed, and experts next to a plain MLP."""
    model = replace(gemma(read, model), attention=replace(model.attention, scale=1.0, value_norm=True))
    return model if model.experts is None else replace(model, experts=replace(model.experts, with_plain=True))


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
    gated = replace(model.attention, gated=read.flag("attn_output_gate", True))
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
        model, state=state, heads=state.value_heads, head_dim=state.value_dim, kv_heads=state.key_heads,
        rotary_dim=0, attention=replace(model.attention, gated=False, rotates=False), qk_norm=False, qkv_bias=False,
    )  # fmt: skip


# ---- Llama 4 ----


def llama4(read: Fields, model: Model) -> Model:
    """One expert a token, whose input is weighed; a shared one next to it; norms without weights behind the angles."""
    model = replace(
        model, intermediate=read.whole("intermediate_size_mlp", model.intermediate),
        attention=replace(model.attention, norm_last=True, weightless=True),
    )  # fmt: skip
    if model.experts is None:
        return model
    width = model.experts.intermediate
    experts = replace(model.experts, shared=width, weighs_input=True, normalised=False)
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
