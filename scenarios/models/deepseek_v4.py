"""What a DeepSeek-V4 config says: windows and compressed keys by layer, hyper-connections, experts by a table.

Configs come in two forms: DeepSeek's (`compress_ratios`, `num_hash_layers`) and that of transformers (`layer_types`,
`compress_rates`, `mlp_layer_types`, `rope_parameters` with a part for each kind of angles).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scenarios.errors import shown
from scenarios.models.fields import Fields
from scenarios.models.forms import HyperConnections
from scenarios.models.layers import Layer
from scenarios.models.model import Model
from scenarios.models.parts import Index, RopeScaling, SharedKv
from scenarios.models.rope import rope_scaling

#: Kinds of layers: a window alone, with compressed rows of which an indexer chooses, with all compressed rows.
WINDOW, SPARSE, COMPRESSED = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
KINDS = (WINDOW, SPARSE, COMPRESSED)
#: Tokens of a compressed row, by kind (transformers' defaults, and the only ones that engines have kernels for).
_RATES = {SPARSE: 4, COMPRESSED: 128}


def deepseek_v4(read: Fields, model: Model) -> Model:
    """Several streams, one row of keys and values, and a SwiGLU whose halves are limited."""
    for key, usual in (("num_key_value_heads", 1), ("n_group", 1), ("topk_group", 1)):
        given = read.fields.get(key)
        if given not in (None, usual):
            read.wrong(f"{key}: only {usual} is modelled for this model_type, got {shown(given)}")
    if model.qkv_bias or model.form.mlp_bias:
        read.wrong(f"{'attention_bias' if model.qkv_bias else 'mlp_bias'}: only false is modelled for this model_type")
    if read.flag("use_index_cache", False):
        read.wrong("use_index_cache: not modelled: layers that take over the rows that another chose")
    groups = read.whole("o_groups", 8, most=4096)
    if not read.problems and model.heads % groups:
        read.wrong(f"num_attention_heads {model.heads} is not a multiple of o_groups {groups}")
    hyper = HyperConnections(
        streams=read.whole("hc_mult", 4, most=64),
        iterations=read.whole("hc_sinkhorn_iters", 20, most=1024),
        eps=read.number("hc_eps", 1e-6),
    )
    shared = SharedKv(read.whole("q_lora_rank"), groups, read.whole("o_lora_rank"))
    limit = read.number("swiglu_limit", 0.0, or_none=True)
    activation = "limited" if limit else model.form.activation
    return replace(
        model,
        shared_kv=shared,
        rotary_dim=_rotary_dims(read, model),
        attention=replace(model.attention, window=read.whole("sliding_window", 128)),
        form=replace(model.form, hyper=hyper, activation=activation, limit=limit),
        experts=model.experts and replace(model.experts, activation=activation, limit=limit),
    )


def _rotary_dims(read: Fields, model: Model) -> int:
    """Dimensions of a row that turn, its last ones."""
    share = read.number("partial_rotary_factor", 0.125)
    turning = read.whole("qk_rope_head_dim", max(1, round(model.head_dim * share)), most=4096)
    if not read.problems and (turning % 2 or turning >= model.head_dim):
        read.wrong(f"qk_rope_head_dim: {turning} of head_dim {model.head_dim} is no even number of dimensions below it")
    return turning


def types_by_ratio(read: Fields, layers: int) -> list[str]:
    """Kinds of layers by `compress_ratios`, where entries of prediction layers may follow; without them the first two
    layers see all compressed rows and the others take turns."""
    ratios = read.fields.get("compress_ratios")
    if ratios is None:
        return [COMPRESSED if layer < 2 or layer % 2 == 0 else SPARSE for layer in range(layers)]
    kinds = {0: WINDOW, 1: WINDOW, 4: SPARSE, 128: COMPRESSED}
    if not isinstance(ratios, list) or len(ratios) < layers:
        read.wrong(f"compress_ratios: must have a number for each of {layers} layers, got {shown(ratios)}")
        return [WINDOW] * layers
    known = [ratio if isinstance(ratio, int) and ratio in kinds else None for ratio in ratios[:layers]]
    if None in known:
        read.wrong(f"compress_ratios: not modelled: ratios but 0, 4 and 128, got {shown(ratios[known.index(None)])}")
    return [kinds.get(ratio or 0, WINDOW) for ratio in known]


def hashed_layers(read: Fields, layers: int) -> list[bool]:
    """Layers whose experts a table names: the first `num_hash_layers`, or by `mlp_layer_types`."""
    kinds = read.fields.get("mlp_layer_types")
    if isinstance(kinds, list):
        return [kind == "hash_moe" for kind in [*kinds, *[""] * layers][:layers]]
    first = read.whole("num_hash_layers", 3, most=1024, low=0)
    return [layer < first for layer in range(layers)]


def by_ratio(read: Fields, model: Model, layer: Layer) -> Model:
    """A window in each layer; compressed rows, and angles that are scaled for long contexts, by its kind."""
    shared = model.shared_kv
    if shared is None:
        return model
    experts = model.experts and replace(model.experts, hashed=layer.hashed)
    attention = replace(model.attention, window=read.whole("sliding_window", 128))
    theta, scaling = _angles(read, model, layer.kind)
    model = replace(model, experts=experts, attention=attention, rope_theta=theta, rope_scaling=scaling)
    if layer.kind == WINDOW:
        return model
    sparse = layer.kind == SPARSE
    shared = replace(shared, ratio=_rate(read, layer.kind), index=_index(read) if sparse else None)
    return replace(model, shared_kv=shared)


def _rate(read: Fields, kind: str) -> int:
    """Tokens of a compressed row: of `compress_rates`, or of transformers' older keys."""
    own = "compress_rate_csa" if kind == SPARSE else "compress_rate_hca"
    rates = read.fields.get("compress_rates")
    if own not in read.fields and isinstance(rates, Mapping) and kind in rates:
        return replace(read, fields=dict(rates), inside="compress_rates.").whole(kind, most=4096, low=2)
    return read.whole(own, _RATES[kind], most=4096, low=2)


def _index(read: Fields) -> Index:
    index = Index(
        heads=read.whole("index_n_heads", 64, most=4096),
        dim=read.whole("index_head_dim", 128, most=4096),
        top_k=read.whole("index_topk", 512),
    )
    if not read.problems and index.dim & (index.dim - 1):
        read.wrong(f"index_head_dim: only powers of two are modelled, for the rotation of Hadamard, got {index.dim}")
    return index


def _angles(read: Fields, model: Model, kind: str) -> tuple[float, RopeScaling | None]:
    """(base, scaling) of a kind's rotary angles: plain in layers of a window alone. YaRN's growth of cosines and sines
    is left out in the others (attention_factor 1), as DeepSeek's code does."""
    given: Any = read.fields.get("rope_parameters")
    part = given.get("main" if kind == WINDOW else "compress") if isinstance(given, Mapping) else None
    if isinstance(part, Mapping):
        rope = replace(read, fields=dict(part), inside="rope_parameters.")
        theta, scaling = rope.number("rope_theta", model.rope_theta), rope_scaling(read, rope)
    elif kind == WINDOW:
        return model.rope_theta, None
    else:
        theta, scaling = read.number("compress_rope_theta", 160_000.0), model.rope_scaling
    return theta, scaling and replace(scaling, attention_factor=scaling.attention_factor or 1.0)
