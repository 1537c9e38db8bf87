"""Models from unchanged Hugging Face `config.json` files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from scenarios.errors import ScenarioError, shown
from scenarios.program import DType

SHIPPED = Path(__file__).parent / "models"

#: Dense decoders that this version lowers, by `model_type`: whether Q and K are normalised per head, whether QKV has a
#: bias.
DENSE = {"qwen3": (True, False), "qwen2": (False, True), "llama": (False, False), "mistral": (False, False)}

_TORCH_DTYPE: dict[str, DType] = {"bfloat16": "bf16", "float16": "fp16", "float32": "bf16"}
_MAX_CONFIG_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Model:
    """A dense grouped-query decoder. Sizes in elements; `layers` decoder layers; `bias` on the QKV projections.

    Of a model split over `tensor_parallel` ranks, heads, kv_heads, intermediate and vocab are those of one rank;
    full_vocab is the whole vocabulary (0 where it is vocab).
    """

    name: str
    model_type: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_position: int
    norm_eps: float
    rope_theta: float
    tied_embeddings: bool
    qk_norm: bool
    qkv_bias: bool
    dtype: DType
    tensor_parallel: int = 1
    full_vocab: int = 0

    @property
    def whole_vocab(self) -> int:
        """The vocabulary of the model, over all ranks."""
        return self.full_vocab or self.vocab

    @property
    def q_size(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def linear_weights(self) -> int:
        """Weights in the linear layers of all decoder layers, elements (what weight quantisation shrinks)."""
        attention = self.hidden * (self.q_size + 2 * self.kv_size) + self.q_size * self.hidden
        return self.layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def other_weights(self) -> int:
        """Embedding, LM head (once where tied), norms and biases, elements; never quantised here."""
        norms = self.layers * (2 * self.hidden + (2 * self.head_dim if self.qk_norm else 0)) + self.hidden
        bias = self.layers * (self.q_size + 2 * self.kv_size) if self.qkv_bias else 0
        return self.vocab * self.hidden * (1 if self.tied_embeddings else 2) + norms + bias

    def kv_bytes_per_token(self, element_bits: int) -> int:
        """Bytes of K and V that one token adds over all layers, scales not counted."""
        return 2 * self.layers * self.kv_size * element_bits // 8


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
        path = (root / name if root is not None else Path(name)).expanduser()
        try:
            if path.is_dir():
                return _read(path / "config.json", path.resolve().name)
            if path.is_file():
                return _read(path, path.resolve().parent.name if path.name == "config.json" else path.stem)
        except (OSError, ValueError):
            continue
    near = get_close_matches(name, model_names(), 1, 0.5)
    hint = f"Did you mean {near[0]!r}?" if near else f"Shipped: {', '.join(model_names())}"
    raise ScenarioError([f"model {name!r} is neither shipped nor a folder or config.json file. {hint}"])


def _read(path: Path, name: str) -> Model:
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
    """A config.json that is read field by field; what is wrong with it gathers in `problems`."""

    path: Path
    fields: dict[str, Any]
    problems: list[str]

    def whole(self, key: str, default: int | None = None, most: int = 1 << 24) -> int:
        value = self.fields.get(key, default)
        if value is None and default is not None:
            value = default
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            self.wrong(f"{key}: must be a whole number from 1 to {most}, got {shown(value)}")
            return 1
        return value

    def number(self, key: str, default: float) -> float:
        value = self.fields.get(key, default)
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
        self.problems.append(f"{self.path}: {what}")


def _build(path: Path, name: str, config: dict[str, Any]) -> Model:
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in DENSE:
        raise ScenarioError(
            [f"{path}: model_type {shown(model_type)} is not modelled; dense decoders are: {', '.join(DENSE)}"]
        )
    read = _Config(path, config, [])
    hidden, heads = read.whole("hidden_size"), read.whole("num_attention_heads")
    kv_heads = read.whole("num_key_value_heads", heads)
    head_dim = read.whole("head_dim", max(1, hidden // heads), most=4096)
    if not read.problems and heads % kv_heads:
        read.wrong(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
    if not read.problems and "head_dim" not in config and hidden % heads:
        read.wrong(f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}")
    qk_norm, bias = DENSE[model_type]
    model = Model(
        name=name,
        model_type=model_type,
        hidden=hidden,
        intermediate=read.whole("intermediate_size"),
        layers=read.whole("num_hidden_layers", most=1024),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=read.whole("vocab_size"),
        max_position=read.whole("max_position_embeddings", 1 << 20),
        norm_eps=read.number("rms_norm_eps", 1e-6),
        rope_theta=read.number("rope_theta", 10_000.0),
        tied_embeddings=read.flag("tie_word_embeddings", False),
        qk_norm=qk_norm,
        qkv_bias=read.flag("attention_bias", bias),
        dtype=_TORCH_DTYPE.get(str(config.get("dtype", config.get("torch_dtype", "bfloat16"))), "bf16"),
    )
    window = config.get("sliding_window")
    if read.flag("use_sliding_window", False) or (model_type == "mistral" and window is not None):
        read.wrong(f"sliding_window: attention to a window of {shown(window)} tokens is not modelled")
    if read.flag("mlp_bias", False):
        read.wrong("mlp_bias: a bias in the MLP is not modelled")
    if read.problems:
        raise ScenarioError(read.problems)
    return model
