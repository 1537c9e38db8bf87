"""What a `model_type` implies that its config.json does not say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from scenarios.models import details
from scenarios.models.fields import Fields
from scenarios.models.forms import USUAL_ATTENTION, USUAL_LAYER, AttentionForm, LayerForm
from scenarios.models.layers import Adapt
from scenarios.models.model import Model, QkNorm, Score
from scenarios.records import dataclass


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
    `layer_types`. kinds: usual names of kinds in `layer_types`, by those that newer configs have. rotates: which layers
    turn by position. limits: of the SwiGLUs of each layer. hashed: layers whose experts a table names. adapt: what sets
    a kind of layer apart. like: published models that stand for it.
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
    kinds: Mapping[str, str] = field(default_factory=dict)
    known: tuple[str, ...] = ("full_attention", "attention", "sliding_attention")
    rotates: Callable[[Fields, int], list[bool]] = details.everywhere
    limits: Callable[[Fields, int], list[tuple[float, float]]] = details.unlimited
    hashed: Callable[[Fields, int], list[bool]] = details.nowhere
    adapt: Adapt = details.by_kind
    like: str = ""
