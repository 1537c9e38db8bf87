"""Why a config.json is refused: the features that it has and no lowering knows, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scenarios.errors import nearest, printable, shown
from scenarios.models.families import FAMILIES, VERSIONS
from scenarios.models.family import Family
from scenarios.models.fields import Fields
from scenarios.models.unmodelled import FEATURES, REFUSED

#: Whole numbers of a config, and the only value that is modelled; lists by layer are read.
_FIXED = {"moe_layer_freq": 1}
#: What configs call norms of Q and K.
_QK_NORM = ("use_qk_norm", "qk_norm", "qk_layernorm")
#: Names of the activations that a gated MLP is modelled with.
SILU = ("silu", "swish")
GELU = ("gelu_pytorch_tanh", "gelu", "gelu_new", "gelu_fast")


#: Features that are read for any family that is lowered.
_READ = frozenset({"layer_types", "num_kv_shared_layers"})


def not_modelled(config: Mapping[str, Any]) -> str:
    """One line on a config whose `model_type` is not lowered: the features that are missing, or the nearest type that
    is."""
    model_type = config.get("model_type")
    if isinstance(model_type, str) and model_type in REFUSED:
        return f"model_type {model_type!r} is not modelled: it has {REFUSED[model_type]}"
    if isinstance(model_type, str) and model_type in VERSIONS:
        known = ", ".join(sorted(VERSIONS[model_type]))
        return f"model_type {model_type!r} is not modelled: it has a decoder by its version (version), known: {known}"
    features = features_of(config, frozenset())
    if features:
        has = ", ".join(f"{words} ({key})" for key, words in list(features.items())[:4])
        return f"model_type {shown(model_type)} is not modelled: it has {has}"
    near = nearest(model_type, list(FAMILIES)) if isinstance(model_type, str) else None
    return f"model_type {shown(model_type)} is not modelled{f'; there is {near!r}' if near else ''}"


def features_of(config: Mapping[str, Any], known: frozenset[str]) -> dict[str, str]:
    """Features of `config` that are not modelled, by the key that shows them. known: keys that the family models."""
    on = {key: words for key, words in FEATURES.items() if key not in known and _is_on(config.get(key))}
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and "layer_types" not in known:
        others = sorted({str(kind) for kind in kinds} - {"full_attention", "attention"})
        if others:
            on["layer_types"] = f"layers of {printable(', '.join(others), 60)}"
    return on


def _is_on(value: Any) -> bool:
    """Whether a key's value asks for the feature: anything but nothing, false, zero and empty."""
    return value not in (None, False, 0, 0.0, [], {}, "")


def refuse_features(read: Fields, family: Family) -> None:
    """What a config of a known family may ask for that is not modelled, each a problem of `read`."""
    for key, value in _FIXED.items():
        given = read.fields.get(key, value)
        if given != value and not isinstance(given, list):
            read.wrong(f"{key}: only {value} is modelled, got {shown(given)}")
    for key in _QK_NORM:
        given = read.fields.get(key)
        if isinstance(given, bool) and family.qk_norm is not None and given != family.qk_norm:
            read.wrong(f"{key}: only {str(family.qk_norm).lower()} is modelled for this model_type")
    wide, narrow = read.fields.get("head_dim"), read.fields.get("v_head_dim")
    if narrow and wide and not family.latent and "v_head_dim" not in family.models and narrow != wide:
        read.wrong(f"v_head_dim: not modelled: values of another width than keys, got {shown(narrow)}")
    kinds = read.fields.get("attn_type_list")
    if isinstance(kinds, list) and any(kind != 1 for kind in kinds):
        read.wrong("attn_type_list: layers of linear attention are not modelled")
    for key, words in features_of(read.fields, family.models | _READ).items():
        read.wrong(f"{key}: not modelled: {words}")
