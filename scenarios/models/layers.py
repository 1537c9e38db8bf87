"""Layers that differ: which kind each one is, by what a config says of single layers, and the model of each kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeGuard

from scenarios.errors import printable, shown
from scenarios.models.fields import Fields
from scenarios.models.model import Model
from scenarios.records import dataclass


@dataclass(frozen=True, slots=True)
class Layer:
    """What sets one layer apart. kind: of its attention (`layer_types`); rotates: whether it turns by position; sparse:
    whether its MLP has experts; borrows: whether it sees K and V of an earlier layer; selects: whether its indexer
    chooses keys, or an earlier one's does; limits: of the SwiGLU of its experts, and of its plain or shared MLP;
    hashed: whether a table names its experts."""

    kind: str = "full_attention"
    rotates: bool = True
    sparse: bool = True
    borrows: bool = False
    selects: bool = True
    limits: tuple[float, float] = (0.0, 0.0)
    hashed: bool = False

    @property
    def is_windowed(self) -> bool:
        """Whether a query sees the keys of a window before it."""
        return self.kind == "sliding_attention"

    @property
    def is_chunked(self) -> bool:
        """Whether a query sees the keys of its own chunk."""
        return self.kind == "chunked_attention"


#: (read, model, layer) -> the model of such a layer, beyond what `plain` gives.
Adapt = Callable[[Fields, Model, Layer], Model]

#: Names of the kinds in reports.
NAMES = {
    "full_attention": "full", "attention": "full", "sliding_attention": "window", "chunked_attention": "chunk",
    "linear_attention": "state", "mamba": "state", "conv": "state", "compressed_sparse_attention": "chosen",
    "heavily_compressed_attention": "compressed",
}  # fmt: skip


def layered(read: Fields, model: Model, layers: Sequence[Layer], adapt: Adapt) -> Model:
    """`model` with the kinds of `layers`; as it is where all are alike but for leading dense ones."""
    if read.problems or len(layers) != model.layers:
        return model
    distinct = list(dict.fromkeys(layers))
    kinds = [adapt(read, plain(read, model, layer), layer) for layer in distinct]
    if len(distinct) == 1:
        one = kinds[0]
        return replace(one, layers=model.layers, kind="", experts=model.experts if one.experts else None)
    dense = sum(not layer.sparse for layer in layers)
    alike = len({replace(layer, sparse=True) for layer in layers}) == 1
    if model.experts and alike and not any(layer.sparse for layer in layers[:dense]):
        # The usual form: dense layers lead.
        one = kinds[distinct.index(layers[-1])]
        return replace(one, layers=model.layers, kind="", experts=replace(model.experts, dense_layers=dense))
    shared = model.experts and replace(model.experts, dense_layers=0)
    first = next((one for one in kinds if one.state is None and one.form.attends), kinds[0])
    return replace(
        model,
        experts=shared,
        kinds=_with_angles(kinds),
        attention=first.attention,
        form=model.form,
        order=tuple(distinct.index(layer) for layer in layers),
    )


def plain(read: Fields, model: Model, layer: Layer) -> Model:
    """The model of one `layer`: windows and chunks, rotary angles and experts as it says."""
    turns = model.attention.rotates and layer.rotates
    attention = replace(model.attention, rotates=turns, window=0, chunk=0, borrows=layer.borrows)
    if layer.is_windowed:
        attention = replace(attention, window=read.whole("sliding_window"))
    elif layer.is_chunked:
        attention = replace(attention, chunk=read.whole("attention_chunk_size"))
    experts = model.experts and replace(model.experts, dense_layers=0)
    if not layer.sparse:
        experts = None
    name = NAMES.get(layer.kind, layer.kind)
    return replace(model, layers=1, attention=attention, experts=experts, kind=name, kinds=(), order=())


def _with_angles(kinds: Sequence[Model]) -> tuple[Model, ...]:
    """`kinds` with a name for each set of rotary angles: "" for the first, then _2, _3."""
    sets: dict[object, str] = {}
    named = []
    for one in kinds:
        if one.attention.rotates and one.state is None and one.form.attends:
            key = (one.rope_theta, one.rotated, one.head_dim, one.rope_scaling)
            which = sets.setdefault(key, f"_{len(sets) + 1}" if sets else "")
            named.append(replace(one, angles=which))
        else:
            named.append(one)
    return tuple(named)


def types_of(read: Fields, layers: int, default: Sequence[str]) -> list[str]:
    """`layer_types` of the config, or `default` where it has none."""
    given = read.fields.get("layer_types")
    if given is None:
        return list(default)
    if not isinstance(given, list) or not all(isinstance(kind, str) for kind in given):
        read.wrong(f"layer_types: must be a list of names, got {shown(given)}")
        return list(default)
    if len(given) < layers:
        read.wrong(f"layer_types: {len(given)} of {layers} layers")
        return list(default)
    return given[:layers]


def known_types(read: Fields, types: Sequence[str], known: Sequence[str]) -> None:
    """What of `types` is not among `known` is wrong."""
    others = sorted(set(types) - set(known))
    if others:
        read.wrong(f"layer_types: not modelled: layers of {printable(', '.join(others), 60)}")


def windowed_types(read: Fields, layers: int, always: bool) -> list[str]:
    """Kinds of layers where the config gives one window and no list. always: the family has it in each layer unless
    `max_window_layers` says otherwise; others have it with `use_sliding_window` only."""
    full = ["full_attention"] * layers
    used = read.flag("use_sliding_window", always)
    if read.fields.get("sliding_window") is None or not used:
        return full
    first = read.whole("max_window_layers", 0, most=1 << 14, low=0) if not always else 0
    return [*full[: min(first, layers)], *["sliding_attention"] * (layers - first)]


def sparse_layers(read: Fields, layers: int) -> list[bool]:
    """Which layers have experts, by `mlp_layer_types`, by `decoder_sparse_step` and `mlp_only_layers` (Qwen),
    `interleave_moe_layer_step` and `moe_layers` (Llama 4), `moe_layer_start_index` and its like (ERNIE),
    `moe_layer_freq`, or `first_k_dense_replace`."""
    kinds = read.fields.get("mlp_layer_types")
    if kinds is not None:
        return _by_name(read, kinds, layers)
    if "moe_layers_enum" in read.fields:
        return _listed_layers(read, "moe_layers_enum", layers)
    if "moe_layer_start_index" in read.fields:
        return _ernie_layers(read, layers)
    named = read.fields.get("moe_layers")
    if isinstance(named, list) and named:
        return [layer in named for layer in range(layers)]
    key = "interleave_moe_layer_step" if "interleave_moe_layer_step" in read.fields else "decoder_sparse_step"
    step = read.whole(key, 1, most=1024)
    plain_ones = read.fields.get("mlp_only_layers") or []
    dense = read.whole("first_k_dense_replace", 0, most=1024, low=0)
    pattern = read.fields.get("moe_layer_freq")
    if isinstance(pattern, list):
        if len(pattern) < layers:
            read.wrong(f"moe_layer_freq: {len(pattern)} of {layers} layers")
        return [bool(flag) for flag in [*pattern, *[1] * layers][:layers]]
    if not isinstance(plain_ones, list) or not all(isinstance(place, int) for place in plain_ones):
        read.wrong(f"mlp_only_layers: must be a list of numbers, got {shown(plain_ones)}")
        plain_ones = []
    return [(i + 1) % step == 0 and i not in plain_ones and i >= dense for i in range(layers)]


def _listed_layers(read: Fields, key: str, layers: int) -> list[bool]:
    """Layers whose numbers are listed, or stand in a text with commas between (Step-3.5)."""
    given = read.fields[key]
    words = given.split(",") if isinstance(given, str) else given if isinstance(given, list) else [None]
    numbers = {int(word) for word in map(str, words) if word.strip().isdecimal()}
    if len(numbers) != len(words):
        read.wrong(f"{key}: must be numbers of layers, got {shown(given)}")
    return [layer in numbers for layer in range(layers)]


def _by_name(read: Fields, kinds: object, layers: int) -> list[bool]:
    """`mlp_layer_types`: dense or sparse, layer by layer (moe or hash_moe in DeepSeek-V4); prediction layers may
    follow."""
    known = {"dense", "sparse", "moe", "hash_moe"}
    if not isinstance(kinds, list) or len(kinds) < layers or not known.issuperset(map(str, kinds)):
        read.wrong(f"mlp_layer_types: must be dense or sparse for each of {layers} layers, got {shown(kinds)}")
        return [True] * layers
    return [kind != "dense" for kind in kinds[:layers]]


def _ernie_layers(read: Fields, layers: int) -> list[bool]:
    """Each n-th layer from a first one to a last one."""
    first = read.whole("moe_layer_start_index", 0, most=1024, low=0)
    each = read.whole("moe_layer_interval", 1, most=1024)
    last = layers - 1
    if read.fields.get("moe_layer_end_index") not in (None, -1):
        last = read.whole("moe_layer_end_index", last, most=1024, low=0)
    return [first <= layer <= last and (layer + 1) % each == 0 for layer in range(layers)]


def borrowing_layers(read: Fields, layers: int) -> list[bool]:
    """Layers that see K and V of an earlier one: the last `num_kv_shared_layers` (Gemma), or all but the first of each
    `cla_share_factor` (Hunyuan's cross-layer attention)."""
    if read.flag("use_cla", False):
        share = read.whole("cla_share_factor", 2, most=64)
        return [layer % share > 0 for layer in range(layers)]
    last = read.whole("num_kv_shared_layers", 0, most=1024, low=0)
    if last >= layers:
        read.wrong(f"num_kv_shared_layers {last} leaves no layer of {layers} with keys of its own")
    return [layer >= layers - last for layer in range(layers)]


def selecting_layers(read: Fields, layers: int) -> list[bool]:
    """Layers whose indexer chooses keys: by `indexer_types`, a letter each (`index_topk_pattern`), or each n-th from an
    offset on (`index_topk_freq`, GLM-5.2)."""
    kinds = read.fields.get("indexer_types")
    kinds = read.fields.get("index_topk_pattern") if kinds is None else kinds
    if kinds is not None:
        names = [{"F": "full", "S": "shared"}.get(str(kind), str(kind)) for kind in kinds] if _listed(kinds) else []
        if len(names) < layers or not {"full", "shared"}.issuperset(names) or names[0] != "full":
            read.wrong(f"indexer_types: must be full (the first) or shared for each of {layers} layers")
            return [True] * layers
        return [name == "full" for name in names[:layers]]
    each = read.whole("index_topk_freq", 1, most=1024)
    offset = read.whole("index_skip_topk_offset", 2, most=1024, low=0)
    return [max(layer - offset + 1, 0) % each == 0 for layer in range(layers)]


def _listed(value: object) -> TypeGuard[list[object] | str]:
    return isinstance(value, list | str)
