"""Hugging Face `config.json` files, unchanged, as `Model`s: one table of the families that are lowered, one reader."""

from __future__ import annotations

import json
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

from scenarios.errors import ScenarioError, quoted, shown
from scenarios.files.paths import expanded, listed
from scenarios.models.families import FAMILIES
from scenarios.models.family import Family
from scenarios.models.fields import Fields
from scenarios.models.forms import Activation
from scenarios.models.layers import (
    Layer,
    borrowing_layers,
    known_types,
    layered,
    selecting_layers,
    sparse_layers,
    types_of,
    windowed_types,
)
from scenarios.models.model import Experts, Index, Latent, Model, Score
from scenarios.models.params_form import from_params
from scenarios.models.quantization import Stored, UnknownFormat, stored_weights
from scenarios.models.refusals import GELU, SILU, not_modelled, refuse_features
from scenarios.models.rope import rope_of, rope_scaling, rotary_dim
from scenarios.models.text_part import text_part
from scenarios.ops.program import DType

SHIPPED = Path(__file__).parent

_TORCH_DTYPE: dict[str, DType] = {"bfloat16": "bf16", "float16": "fp16", "float32": "bf16"}
#: No config.json is larger; lists of layers that are not quantised make some of several MiB.
_MAX_CONFIG_BYTES = 64 << 20
#: What a model's config is called: Hugging Face's name, and that of Mistral's own form.
CONFIG_NAMES = ("config.json", "params.json")


def model_names() -> list[str]:
    """Names of the shipped models, in order."""
    return [path.parent.name for path in listed(SHIPPED, "*/config.json")]


def load_model(name: str, relative_to: Path | None = None) -> Model:
    """The model called `name`: a shipped name (case ignored), a folder with a config.json, or such a file.

    Paths are tried relative to `relative_to` (the scenario's folder) and then to the working directory. Raises
    ScenarioError with one line where there is none, the file is no Hugging Face config, or its architecture is not one
    this version lowers.
    """
    for shipped in model_names():
        if shipped.lower() == name.lower():
            return _shipped(shipped)
    for root in (relative_to, Path()):
        path = expanded(root / name if root is not None else Path(name))
        try:
            if path.is_dir():
                own = "params.json" if (path / "params.json").is_file() else "config.json"
                file = "config.json" if (path / "config.json").is_file() else own
                return _read(path / file, path.resolve().name)
            if path.is_file():
                return _read(path, path.resolve().parent.name if path.name in CONFIG_NAMES else path.stem)
        except (OSError, ValueError):
            continue
    near = get_close_matches(name, model_names(), 1, 0.5)
    hint = f"Did you mean {near[0]!r}?" if near else f"Shipped: {', '.join(model_names())}"
    raise ScenarioError([f"model {quoted(name)} is neither shipped nor a folder or config.json file. {hint}"])


@lru_cache(maxsize=64)  # points of a sweep are of one model; those of a user may change, with files next to them
def _shipped(name: str) -> Model:
    return _read(SHIPPED / name / "config.json", name)


def _read(path: Path, name: str) -> Model:
    """The model of a config.json; `name` is what the user calls it. Raises ScenarioError, one line a problem."""
    try:
        if path.stat().st_size > _MAX_CONFIG_BYTES:
            raise ScenarioError([f"{path}: larger than {_MAX_CONFIG_BYTES} bytes, not a config.json"])
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioError([f"{path}: {error.strerror or error}"]) from None
    except json.JSONDecodeError as error:
        raise ScenarioError([f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}"]) from None
    except (ValueError, RecursionError):  # no UTF-8, a number of thousands of digits, brackets without end
        raise ScenarioError([f"{path}: not a Hugging Face config.json"]) from None
    if not isinstance(config, dict):
        raise ScenarioError([f"{path}: not a Hugging Face config.json (a JSON object is expected)"])
    return _build(path, name, config)


def _family(path: Path, config: dict[str, Any]) -> Family:
    model_type = config.get("model_type")
    if isinstance(model_type, str) and model_type in FAMILIES:
        return FAMILIES[model_type]
    raise ScenarioError([f"{path}: {not_modelled(config)}. {_nearest(config)}"])


def _nearest(config: dict[str, Any]) -> str:
    """The shipped model most like a config that is not read: with experts or not, latent or not, then by size."""
    keys = ("num_experts", "n_routed_experts", "num_local_experts")
    mixed = any(isinstance(config.get(key), int) and config[key] > 1 for key in keys)
    models = [load_model(name) for name in model_names()]
    hidden, layers = config.get("hidden_size"), config.get("num_hidden_layers")
    size = hidden * hidden * layers if isinstance(hidden, int) and isinstance(layers, int) else 4096 * 4096 * 36
    latent = any(isinstance(config.get(key), int) for key in ("kv_lora_rank", "index_topk"))
    alike = [m for m in models if (m.experts is not None) == mixed and (m.latent is not None) == (latent and mixed)]
    best = min(alike, key=lambda model: abs(model.hidden * model.hidden * model.layers - size))
    return f"The nearest shipped model that runs is {best.name}; `whatif list models` shows the families"


def _build(path: Path, name: str, config: dict[str, Any]) -> Model:
    config, left_out = text_part(from_params(config))
    family = _family(path, config)
    read = Fields(path, usual_keys(config, family), [])
    hidden, heads = read.whole("hidden_size"), read.whole("num_attention_heads")
    layers = read.whole("num_hidden_layers", most=1024)
    latent = _latent(read, "index_topk" in family.models) if family.latent and read.flag("use_mla", True) else None
    rope = rope_of(read)
    kv_heads, head_dim = (1, latent.rope_dim) if latent else _heads(read, hidden, heads)
    stored = _stored(read)
    bias = read.flag("attention_bias", read.flag("qkv_bias", family.bias))
    if bias and latent:
        read.wrong("attention_bias: not modelled: biases in latent attention")
    model = Model(
        name=name,
        model_type=str(config["model_type"]),
        hidden=hidden,
        intermediate=_intermediate(read, family),
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=read.whole("vocab_size"),
        max_position=read.whole("max_position_embeddings", 1 << 20),
        norm_eps=read.number("rms_norm_eps", 1e-6),
        rope_theta=_theta(read, rope),
        tied_embeddings=read.flag("tie_word_embeddings", family.tied),
        qk_norm=read.flag("use_qk_norm", False) if family.qk_norm is None else family.qk_norm,
        qkv_bias=bias,
        dtype=_TORCH_DTYPE.get(str(config.get("dtype") or config.get("torch_dtype")).removeprefix("torch."), "bf16"),
        rotary_dim=0 if latent else rotary_dim(read, rope, head_dim),
        rope_scaling=rope_scaling(read, rope),
        latent=latent,
        experts=_experts(read, family, layers) if _has_experts(read, family) else None,
        qk_norm_of=family.norm_of,
        stored=stored.what if stored else "",
        stored_as=stored.nearest if stored else "",
        keeps=stored.keeps if stored else frozenset(),
        left_out=left_out,
        mtp_layers=_mtp_layers(read),
        attention=replace(
            family.attention,
            out_bias=read.flag("attention_out_bias", family.attention.out_bias or (bias and family.out_bias)),
        ),
        form=replace(
            family.form, activation=_activation(read, family), mlp_bias=read.flag("mlp_bias", family.form.mlp_bias)
        ),
    )
    model = layered(read, family.finish(read, model), _layers(read, family, layers), family.adapt)
    refuse_features(read, family)
    if read.problems:
        raise ScenarioError(_told(path, config, read.problems))
    return model


def _told(path: Path, config: dict[str, Any], problems: list[str]) -> list[str]:
    """Bad values, one line each; features that are not modelled, in one line with the nearest model that runs."""
    features = list(dict.fromkeys(line for line in problems if " modelled" in line))
    bad = [line for line in problems if line not in features]
    if features:
        said = "; ".join(line.removeprefix(f"{path}: ") for line in features)
        bad.append(f"{path}: {said}. {_nearest(config)}")
    return bad


def _theta(read: Fields, rope: Fields) -> float:
    """The base of the rotary angles; where it is given by layer, the first layer's."""
    given = read.fields.get("rope_theta")
    plain = replace(read, fields={"rope_theta": given[0]}) if isinstance(given, list) and given else read
    return rope.number("rope_theta", plain.number("rope_theta", 10_000.0))


def _mtp_layers(read: Fields) -> int:
    """Multi-token prediction layers: DeepSeek, GLM and Qwen count them, MiniMax counts modules of some layers."""
    if read.flag("use_mtp", False):
        return read.whole("num_mtp_modules", 1, most=64) * read.whole("mtp_transformer_layers", 1, most=64)
    return read.whole(
        "num_nextn_predict_layers", read.whole("mtp_num_hidden_layers", 0, low=0, most=64), low=0, most=64
    )


def usual_keys(config: dict[str, Any], family: Family) -> dict[str, Any]:
    """`config` with the family's own names of keys as the usual ones, its defaults where a key is missing, and numbers
    in place of lists that say the same of each layer."""
    usual = {**family.defaults, **config}
    for own, name in family.renames.items():
        if own in config:
            usual[name] = config[own]
    if usual.get("num_hidden_layers") is None:
        by_layer = (usual.get(key) for key in ("layers_block_type", "hybrid_override_pattern"))
        usual |= {"num_hidden_layers": next((len(kinds) for kinds in by_layer if isinstance(kinds, list | str)), None)}
    if family.experts and usual.get(family.experts) is None:
        usual |= {family.experts: next((usual[key] for key in _COUNTS if usual.get(key) is not None), None)}
    for key in _BY_LAYER:
        values = usual.get(key)
        if isinstance(values, list) and len(values) > 1 and all(value == values[0] for value in values):
            usual[key] = values[0]
    return usual


#: What configs call the number of routed experts of a layer.
_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
#: Numbers that some configs give layer by layer.
_BY_LAYER = ("num_experts_per_tok", "moe_intermediate_size", "n_shared_experts", "num_experts", "intermediate_size")


def _has_experts(read: Fields, family: Family) -> bool:
    """Whether a model of the family has experts: some have them where their number is above one."""
    count = read.fields.get(family.experts) if family.experts else None
    return bool(family.experts) and (not family.optional_experts or count not in (None, 0, 1))


def _intermediate(read: Fields, family: Family) -> int:
    """Width of the plain MLP; configs of experts in each layer may leave it out."""
    only_experts = family.experts and "intermediate_size" not in read.fields
    return read.whole("intermediate_size", read.fields.get(family.width, 1) if only_experts else None)


def _activation(read: Fields, family: Family) -> Activation:
    """Of the MLP, by `hidden_act` or `hidden_activation`; that of a family whose own is none of torch's names."""
    if family.form.activation not in ("silu", "gelu"):
        return family.form.activation
    key = "hidden_activation" if read.fields.get("hidden_activation") else "hidden_act"
    given = read.fields.get(key) or family.form.activation
    if given in SILU:
        return "silu"
    if given in GELU:
        return "gelu"
    read.wrong(f"{key}: {shown(given)} is not modelled, only silu and gelu")
    return "silu"


def _layers(read: Fields, family: Family, layers: int) -> list[Layer]:
    """What sets each layer apart."""
    usual = family.types(read, layers) if family.types else windowed_types(read, layers, family.windowed)
    types = [family.kinds.get(kind, kind) for kind in types_of(read, layers, usual)]
    known_types(read, types, family.known)
    sparse = sparse_layers(read, layers) if family.experts else [False] * layers
    if not _has_experts(read, family):
        sparse = [True] * layers  # of a model without experts no layer is one of few
    turns, borrows = family.rotates(read, layers), borrowing_layers(read, layers)
    selects = selecting_layers(read, layers) if family.latent and "index_topk" in family.models else [True] * layers
    limits, hashed = family.limits(read, layers), family.hashed(read, layers)
    each = zip(types, turns, sparse, borrows, selects, limits, hashed, strict=True)
    return [Layer(*one) for one in each]


def _stored(read: Fields) -> Stored | None:
    """How the checkpoint holds its weights; what is not near to any `optimizations.weights` is wrong."""
    try:
        return stored_weights(read.fields, read.path)
    except UnknownFormat as error:
        read.wrong(f"quantization_config: {error}")
        return None


def _heads(read: Fields, hidden: int, heads: int) -> tuple[int, int]:
    """(KV heads, head dim) of grouped-query attention."""
    kv_heads = read.whole("num_key_value_heads", heads)
    head_dim = read.whole("head_dim", max(1, hidden // heads), most=4096)
    if not read.problems and heads % kv_heads:
        read.wrong(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
    if not read.problems and read.fields.get("head_dim") is None and hidden % heads:
        read.wrong(f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}")
    return kv_heads, head_dim


def _latent(read: Fields, sparse: bool) -> Latent:
    """Latent attention; sparse: with an indexer."""
    return Latent(
        q_rank=read.whole("q_lora_rank", 0, low=0) if read.fields.get("q_lora_rank") is not None else 0,
        kv_rank=read.whole("kv_lora_rank"),
        nope_dim=read.whole("qk_nope_head_dim", most=4096),
        rope_dim=read.whole("qk_rope_head_dim", most=4096),
        v_dim=read.whole("v_head_dim", most=4096),
        index=_index(read) if sparse else None,
    )


def _index(read: Fields) -> Index:
    """The indexer of sparse attention."""
    if read.fields.get("q_lora_rank") is None:
        read.wrong("q_lora_rank: is due for sparse attention, whose indexer reads it")
    return Index(
        heads=read.whole("index_n_heads", most=4096),
        dim=read.whole("index_head_dim", most=4096),
        top_k=read.whole("index_topk"),
        in_pairs=read.flag("indexer_rope_interleave", False),
    )


def _experts(read: Fields, family: Family, layers: int) -> Experts:
    count = read.whole(family.experts, most=1 << 14)
    top_k = read.whole("num_experts_per_tok", most=1 << 14)
    width = read.whole(family.width)
    shared = read.whole("n_shared_experts", 0, most=64, low=0)
    dense = read.whole("first_k_dense_replace", 0, most=1024, low=0)
    if not read.problems and top_k > count:
        read.wrong(f"num_experts_per_tok {top_k} is more than {family.experts} {count}")
    if not read.problems and dense >= layers:
        read.wrong(f"first_k_dense_replace {dense} leaves no layer of {layers} with experts")
    activation = _activation(read, family)
    given = read.fields.get("routed_scaling_factor")  # null in MiMo-V2
    factor = 1.0 if given is None else read.number("routed_scaling_factor", 1.0)
    usual = family.score != "softmax" if family.normalised is None else family.normalised
    normalised = read.flag("norm_topk_prob", usual)
    groups, kept = _groups(read, count, top_k)
    biased = next((key for key in _CHOICE_BIAS if read.fields.get(key) is not None), _CHOICE_BIAS[0])
    return Experts(
        count=count,
        held=count,
        top_k=top_k,
        intermediate=width,
        shared=shared * width,
        dense_layers=dense,
        score=_score(read, family),
        scaled=factor != 1.0,
        factor=factor,
        normalised=normalised,
        groups=groups,
        kept_groups=kept,
        activation=activation,
        choice_bias=None if read.flag(biased, True) else False,
    )


#: What families call the switch of a bias that moves the choice of experts.
_CHOICE_BIAS = ("moe_router_enable_expert_bias", "use_routing_bias", "use_moe_router_bias", "router_enable_expert_bias")
#: What they call the router's scores.
_SCORES = ("scoring_func", "score_function", "score_func", "moe_router_activation_func", "moe_router_activation")


def _score(read: Fields, family: Family) -> Score:
    """How the router scores: as the config says, or as the family does."""
    key = next((key for key in _SCORES if read.fields.get(key) is not None), _SCORES[0])
    given = read.fields.get(key, family.score)
    known: dict[object, Score] = {"softmax": "softmax", "sigmoid": "sigmoid", "sqrtsoftplus": "sqrtsoftplus"}
    if isinstance(given, str) and given in known:
        return known[given]
    if given not in (None, "noaux_tc"):  # dots.llm1 has the method of choice here
        read.wrong(f"{key}: {shown(given)} is not modelled, only softmax, sigmoid and sqrtsoftplus")
    return family.score


def _groups(read: Fields, count: int, top_k: int) -> tuple[int, int]:
    """(groups of experts, those that a token chooses from)."""
    groups = read.whole("n_group", 1, most=1 << 14)
    kept = read.whole("topk_group", groups, most=1 << 14)
    if not read.problems and (count % groups or kept > groups or kept * (count // groups) < top_k):
        read.wrong(f"n_group {groups}, topk_group {kept}: {top_k} of {count} experts cannot be chosen from such groups")
    return groups, kept
