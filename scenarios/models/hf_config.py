"""Hugging Face `config.json` files, unchanged, as `Model`s: one table of the families that are lowered, one reader."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from scenarios.errors import ScenarioError, quoted, shown
from scenarios.files.paths import expanded
from scenarios.models.model import Experts, Latent, Model, RopeScaling, Score
from scenarios.ops.program import DType

SHIPPED = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Family:
    """What a `model_type` implies that its config.json does not say.

    qk_norm: Q and K are normalised per head (None: as `use_qk_norm` says). bias: default of `attention_bias` on the QKV
    projections. experts: key of the number of routed experts, "" for a dense model. score: how the router scores.
    latent: multi-head latent attention (MLA). windowed: a `sliding_window` applies without `use_sliding_window`.
    """

    qk_norm: bool | None = False
    bias: bool = False
    experts: str = ""
    score: Score = "softmax"
    latent: bool = False
    windowed: bool = False


#: Of each `model_type`. A dense family whose layers are those of another is one line here.
FAMILIES: dict[str, Family] = {
    "llama": Family(),
    "mistral": Family(windowed=True),
    "qwen2": Family(bias=True),
    "qwen3": Family(qk_norm=True),
    "qwen3_moe": Family(qk_norm=True, experts="num_experts"),
    "glm4_moe": Family(qk_norm=None, experts="n_routed_experts", score="sigmoid"),
    "deepseek_v2": Family(experts="n_routed_experts", latent=True),
    "deepseek_v3": Family(experts="n_routed_experts", score="sigmoid", latent=True),
    "kimi_k2": Family(experts="n_routed_experts", score="sigmoid", latent=True),
}

#: Families that are known and refused, with the reason.
_REFUSED = {
    "deepseek_v32": "its sparse attention over indexed tokens is not modelled",
    "minimax_m2": "its Q and K norm over all heads, which tensor-parallel ranks share, is not modelled",
    "glm4": "its norms after attention and MLP are not modelled",
}
#: Whole numbers of a config, and the only value that is modelled.
_FIXED = {"decoder_sparse_step": 1, "moe_layer_freq": 1}

_TORCH_DTYPE: dict[str, DType] = {"bfloat16": "bf16", "float16": "fp16", "float32": "bf16"}
_MAX_CONFIG_BYTES = 1 << 20


def model_names() -> list[str]:
    """Names of the shipped models, in order."""
    return sorted(p.parent.name for p in SHIPPED.glob("*/config.json"))


def load_model(name: str, relative_to: Path | None = None) -> Model:
    """The model called `name`: a shipped name (case ignored), a folder with a config.json, or such a file.

    Paths are tried relative to `relative_to` (the scenario's folder) and then to the working directory. Raises
    ScenarioError with one line where there is none, the file is no Hugging Face config, or its architecture is not one
    this version lowers.
    """
    for shipped in model_names():
        if shipped.lower() == name.lower():
            return _read(SHIPPED / shipped / "config.json", shipped)
    for root in (relative_to, Path()):
        path = expanded(root / name if root is not None else Path(name))
        try:
            if path.is_dir():
                return _read(path / "config.json", path.resolve().name)
            if path.is_file():
                return _read(path, path.resolve().parent.name if path.name == "config.json" else path.stem)
        except (OSError, ValueError):
            continue
    near = get_close_matches(name, model_names(), 1, 0.5)
    hint = f"Did you mean {near[0]!r}?" if near else f"Shipped: {', '.join(model_names())}"
    raise ScenarioError([f"model {quoted(name)} is neither shipped nor a folder or config.json file. {hint}"])


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


@dataclass(frozen=True, slots=True)
class _Config:
    """A config.json that is read field by field; what is wrong with it gathers in `problems`. inside: the mapping that
    the fields are in, with its dot."""

    path: Path
    fields: dict[str, Any]
    problems: list[str]
    inside: str = ""

    def whole(self, key: str, default: int | None = None, most: int = 1 << 24, low: int = 1) -> int:
        value = self.fields.get(key, default)
        if value is None and default is not None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= most:
            self.wrong(f"{key}: must be a whole number from {low} to {most}, got {shown(value)}")
            return max(1, low)
        return value

    def number(self, key: str, default: float, or_none: bool = False) -> float:
        """The number under `key`; or_none: it may also be zero or null, which is `default`."""
        value = self.fields.get(key, default)
        if or_none and not value and not isinstance(value, bool):
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
            self.wrong(f"{key}: must be a positive number, got {shown(value)}")
            return default
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.fields.get(key, default)
        if not isinstance(value, bool):
            self.wrong(f"{key}: must be true or false, got {shown(value)}")
            return default
        return value

    def wrong(self, what: str) -> None:
        self.problems.append(f"{self.path}: {self.inside}{what}")


def _family(path: Path, config: dict[str, Any]) -> Family:
    model_type = config.get("model_type")
    if isinstance(model_type, str) and model_type in FAMILIES:
        return FAMILIES[model_type]
    if isinstance(model_type, str) and model_type in _REFUSED:
        raise ScenarioError([f"{path}: model_type {model_type!r}: {_REFUSED[model_type]}"])
    raise ScenarioError(
        [f"{path}: model_type {shown(model_type)} is not modelled; decoders that are: {', '.join(FAMILIES)}"]
    )


def _build(path: Path, name: str, config: dict[str, Any]) -> Model:
    family = _family(path, config)
    read = _Config(path, config, [])
    hidden, heads = read.whole("hidden_size"), read.whole("num_attention_heads")
    layers = read.whole("num_hidden_layers", most=1024)
    latent = _latent(read) if family.latent else None
    rope = _rope(read)
    kv_heads, head_dim = (1, latent.rope_dim) if latent else _heads(read, hidden, heads)
    model = Model(
        name=name,
        model_type=str(config["model_type"]),
        hidden=hidden,
        intermediate=read.whole("intermediate_size"),
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=read.whole("vocab_size"),
        max_position=read.whole("max_position_embeddings", 1 << 20),
        norm_eps=read.number("rms_norm_eps", 1e-6),
        rope_theta=rope.number("rope_theta", read.number("rope_theta", 10_000.0)),
        tied_embeddings=read.flag("tie_word_embeddings", False),
        qk_norm=read.flag("use_qk_norm", False) if family.qk_norm is None else family.qk_norm,
        qkv_bias=read.flag("attention_bias", family.bias),
        dtype=_TORCH_DTYPE.get(str(config.get("dtype", config.get("torch_dtype", "bfloat16"))), "bf16"),
        rotary_dim=0 if latent else _rotary(read, head_dim),
        rope_scaling=_rope_scaling(read, rope),
        latent=latent,
        experts=_experts(read, family, layers) if family.experts else None,
    )
    _refuse(read, family)
    if read.problems:
        raise ScenarioError(read.problems)
    return model


def _heads(read: _Config, hidden: int, heads: int) -> tuple[int, int]:
    """(KV heads, head dim) of grouped-query attention."""
    kv_heads = read.whole("num_key_value_heads", heads)
    head_dim = read.whole("head_dim", max(1, hidden // heads), most=4096)
    if not read.problems and heads % kv_heads:
        read.wrong(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
    if not read.problems and "head_dim" not in read.fields and hidden % heads:
        read.wrong(f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}")
    return kv_heads, head_dim


def _rotary(read: _Config, head_dim: int) -> int:
    """Dimensions of a head that are rotated."""
    share = read.number("partial_rotary_factor", 1.0)
    rotary = round(head_dim * share)
    if not read.problems and (not 2 <= rotary <= head_dim or rotary % 2):
        read.wrong(f"partial_rotary_factor: {share:g} of head_dim {head_dim} is no even number of dimensions")
    return rotary


def _rope(read: _Config) -> _Config:
    """What the config says of its rotary angles: `rope_scaling`, or `rope_parameters` as newer configs have it."""
    key = "rope_scaling" if read.fields.get("rope_scaling") is not None else "rope_parameters"
    fields = read.fields.get(key)
    if fields is not None and not isinstance(fields, dict):
        read.wrong(f"{key}: must be a mapping, got {shown(fields)}")
    return replace(read, fields=fields if isinstance(fields, dict) else {}, inside=f"{key}.")


def _rope_scaling(read: _Config, rope: _Config) -> RopeScaling | None:
    """The scaling of rotary angles, None where there is none. A kind that is not computed is kept by its name."""
    kind = rope.fields.get("rope_type", rope.fields.get("type", "default"))
    if not isinstance(kind, str):
        rope.wrong(f"rope_type: must be a name, got {shown(kind)}")
    if not isinstance(kind, str) or kind == "default":
        return None
    if kind not in ("linear", "llama3", "yarn"):
        return RopeScaling(kind)
    if "factor" not in rope.fields:
        rope.wrong(f"factor: is due for {kind}")
    positions = read.fields.get("max_position_embeddings", 1)
    scaling = RopeScaling(
        kind=kind,
        factor=rope.number("factor", 1.0),
        original_positions=rope.whole(
            "original_max_position_embeddings", positions if isinstance(positions, int) else 1
        ),
        low_factor=rope.number("low_freq_factor", 1.0),
        high_factor=rope.number("high_freq_factor", 4.0),
        beta_fast=rope.number("beta_fast", 32.0, or_none=True),
        beta_slow=rope.number("beta_slow", 1.0, or_none=True),
        truncated=rope.flag("truncate", True),
        mscale=rope.number("mscale", 1.0, or_none=True),
        mscale_all_dim=rope.number("mscale_all_dim", 0.0, or_none=True),
        attention_factor=rope.number("attention_factor", 0.0, or_none=True) or None,
    )
    if not read.problems and (scaling.low_factor >= scaling.high_factor or scaling.beta_slow >= scaling.beta_fast):
        rope.wrong("low_freq_factor must be below high_freq_factor, and beta_slow below beta_fast")
    theta = rope.fields.get("rope_theta", read.fields.get("rope_theta", 10_000.0))
    if not read.problems and kind == "yarn" and theta <= 1:
        rope.wrong(f"yarn needs a rope_theta above 1, got {shown(theta)}")
    return scaling


def _latent(read: _Config) -> Latent:
    return Latent(
        q_rank=read.whole("q_lora_rank", 0, low=0) if read.fields.get("q_lora_rank") is not None else 0,
        kv_rank=read.whole("kv_lora_rank"),
        nope_dim=read.whole("qk_nope_head_dim", most=4096),
        rope_dim=read.whole("qk_rope_head_dim", most=4096),
        v_dim=read.whole("v_head_dim", most=4096),
    )


def _experts(read: _Config, family: Family, layers: int) -> Experts:
    count = read.whole(family.experts, most=1 << 14)
    top_k = read.whole("num_experts_per_tok", most=1 << 14)
    width = read.whole("moe_intermediate_size")
    shared = read.whole("n_shared_experts", 0, most=64, low=0)
    dense = read.whole("first_k_dense_replace", 0, most=1024, low=0)
    if not read.problems and top_k > count:
        read.wrong(f"num_experts_per_tok {top_k} is more than {family.experts} {count}")
    if not read.problems and dense >= layers:
        read.wrong(f"first_k_dense_replace {dense} leaves no layer of {layers} with experts")
    factor = read.number("routed_scaling_factor", 1.0)
    normalised = read.flag("norm_topk_prob", family.score == "sigmoid")
    groups, kept = _groups(read, count, top_k)
    return Experts(
        count=count,
        held=count,
        top_k=top_k,
        intermediate=width,
        shared=shared * width,
        dense_layers=dense,
        score=family.score,
        scaled=factor != 1.0,
        factor=factor,
        normalised=normalised,
        groups=groups,
        kept_groups=kept,
    )


def _groups(read: _Config, count: int, top_k: int) -> tuple[int, int]:
    """(groups of experts, those that a token chooses from)."""
    groups = read.whole("n_group", 1, most=1 << 14)
    kept = read.whole("topk_group", groups, most=1 << 14)
    if not read.problems and (count % groups or kept > groups or kept * (count // groups) < top_k):
        read.wrong(f"n_group {groups}, topk_group {kept}: {top_k} of {count} experts cannot be chosen from such groups")
    return groups, kept


def _refuse(read: _Config, family: Family) -> None:
    """What a config may ask for that is not modelled."""
    window = read.fields.get("sliding_window")
    if read.flag("use_sliding_window", False) or (family.windowed and window is not None):
        read.wrong(f"sliding_window: attention to a window of {shown(window)} tokens is not modelled")
    if read.flag("mlp_bias", False):
        read.wrong("mlp_bias: a bias in the MLP is not modelled")
    for key, value in _FIXED.items():
        if read.fields.get(key, value) != value:
            read.wrong(f"{key}: only {value} is modelled, got {shown(read.fields[key])}")
    if read.fields.get("mlp_only_layers"):
        read.wrong("mlp_only_layers: dense layers among those with experts are not modelled")
