"""What a checkpoint's `quantization_config` says of its weights, and the `optimizations.weights` nearest to it.

A config.json names how its weights are stored; a scenario names how they are computed. Where the scenario leaves that
open, the nearest is taken, and a line says so. A format that has no near one is refused by its name.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from scenarios.errors import printable, shown
from scenarios.models.kept import Part, kept_parts
from scenarios.records import dataclass

#: The file next to a config.json in which ModelSlim says how weights are stored.
DESCRIPTION = "quant_model_description.json"
#: Bits of (weights, activations) to the nearest `optimizations.weights`.
_NEAREST = {(8, 8): "w8a8", (8, 16): "w8a16", (4, 16): "w4a16", (4, 8): "w4a8", (4, 4): "w4a8"}


@dataclass(frozen=True, slots=True)
class Stored:
    """How a checkpoint holds its weights. what: in words, `FP8 (e4m3, blocks of 128 x 128)`. nearest: the
    `optimizations.weights` that is closest, "" where the config says that they are not quantised. keeps: parts of a
    layer that stay in 16 bits."""

    what: str
    nearest: str
    keeps: frozenset[Part] = frozenset()


#: Methods that a refusal names; docs/models.md has them all.
_KNOWN = "fp8, compressed-tensors, modelopt, awq, gptq, mxfp4, bitsandbytes, torchao, quark, ascend and others"


class UnknownFormat(ValueError):
    """A quantised checkpoint that has no near format; the text says which."""


def stored_weights(config: Mapping[str, Any], path: Path) -> Stored | None:
    """How the checkpoint of `config` (read from `path`) holds its weights; None where it is not quantised.

    Raises UnknownFormat where it is quantised in a way that no `optimizations.weights` is near to.
    """
    if isinstance(config.get("quantize"), str):  # ModelSlim for MindIE: "w8a8", "w8a8_dynamic", "w4a8_dynamic"
        return _modelslim(config["quantize"])
    given = config.get("quantization_config", config.get("compression_config"))
    own = config.get("quantization")  # of MLX
    if given is None and isinstance(own, Mapping) and "bits" in own:
        given = {"quant_method": "mlx", "bits": own["bits"]}
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise UnknownFormat(f"must be a mapping, got {shown(given)}")
    method = given.get("quant_method")
    if method is None:
        method = "modelopt" if "quant_algo" in given or "producer" in given else None
        method = "compressed-tensors" if method is None and "config_groups" in given else method
    name = str(method).lower().replace("_", "-") if isinstance(method, str) else ""
    if name in ("ascend", "modelslim"):
        types = _described(path)
        kept_names = [key.removesuffix(".weight") for key, held in types.items() if held == "FLOAT"]
        return _without_kept(_modelslim_of_folder(given, types), {"ignore": kept_names, **given}, config)
    reader = _READERS.get(name)
    if reader is None:
        raise UnknownFormat(f"quant_method {shown(method)} has no near `optimizations.weights`; known: {_KNOWN}")
    return _without_kept(_experts_apart(reader(given), config.get("expert_dtype")), given, config)


def _experts_apart(stored: Stored, experts: object) -> Stored:
    """`stored` where `expert_dtype` says that routed experts have another type than all else (DeepSeek-V4: FP4 next to
    FP8): what is nearest to the experts, which are nearly all of the weights, with the rest in as few bits."""
    if experts is None or (experts == "fp8" and stored.nearest == "w8a8"):
        return stored
    if experts == "fp4" and stored.nearest == "w8a8":
        return _near(f"FP4 experts, the rest {stored.what}, here in 4 bits too", 4, 8)
    raise UnknownFormat(f"expert_dtype {shown(experts)} with {stored.what} has no near `optimizations.weights`")


def _without_kept(stored: Stored, given: Mapping[str, Any], config: Mapping[str, Any]) -> Stored:
    """`stored` with what of `config`'s layers the lists of `given` leave in 16 bits."""
    try:
        kept = kept_parts(given, config)
    except ValueError as error:
        raise UnknownFormat(f"{stored.what} has {error}: engines pack them") from None
    parts = stored.keeps | kept.parts
    return replace(stored, keeps=parts, what=f"{stored.what}{_but_for(parts, kept.single)}")


def _but_for(kept: frozenset[Part], single: int) -> str:
    """What is kept, in words behind the format."""
    words = {"attention": "attention", "shared": "the shared expert", "mlp": "plain MLPs", "experts": "experts"}
    names = [word for part, word in words.items() if part in kept]
    names += [f"{part.partition('.')[2]} of {words[part.partition('.')[0]]}" for part in sorted(kept - set(words))]
    listed = " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
    said = f" with {listed} in 16 bits" if names else ""
    return f"{said}, and {single} modules of single layers, which are quantised here" if single else said


def _near(what: str, weights: object, activations: object) -> Stored:
    pair = (weights, activations)
    if isinstance(weights, int) and isinstance(activations, int) and pair in _NEAREST:
        return Stored(what, _NEAREST[weights, activations])
    raise UnknownFormat(f"{what} has no near `optimizations.weights`: there are 8-bit and 4-bit ones")


def _fp8(given: Mapping[str, Any]) -> Stored:
    block = given.get("weight_block_size")
    sizes = isinstance(block, list) and len(block) == 2 and all(isinstance(side, int) for side in block)
    detail = f", blocks of {block[0]} x {block[1]}" if isinstance(block, list) and sizes else ""
    return _near(f"FP8 ({printable(str(given.get('fmt', 'e4m3')), 20)}{detail})", 8, 8)


def _by_bits(label: str, activations: int = 16) -> Callable[[Mapping[str, Any]], Stored]:
    """AWQ, GPTQ and others that say `bits` of the weights and leave activations in 16 bits."""

    def read(given: Mapping[str, Any]) -> Stored:
        bits = given.get("bits", given.get("w_bit", 4))
        return _near(f"{label} of {shown(bits)} bits", bits, activations)

    return read


def _mxfp4(_: Mapping[str, Any]) -> Stored:
    """gpt-oss: experts in FP4 with a shared exponent for 32, all else in 16 bits."""
    return replace(_near("MXFP4 experts", 4, 16), keeps=frozenset({"attention"}))


def _bitsandbytes(given: Mapping[str, Any]) -> Stored:
    if given.get("load_in_4bit") or given.get("_load_in_4bit"):
        return _near("bitsandbytes NF4", 4, 16)
    return _near("bitsandbytes INT8", 8, 8)


def _groups(label: str) -> Callable[[Mapping[str, Any]], Stored]:
    """compressed-tensors and modelopt: groups of layers, each with bits of its weights and inputs."""

    def read(given: Mapping[str, Any]) -> Stored:
        groups = given.get("config_groups")
        if isinstance(groups, Mapping) and groups:
            kinds = {_bits_of_group(group) for group in groups.values()}
            if len(kinds) > 1:
                raise UnknownFormat(f"{label} with several formats ({len(kinds)}) has no near `optimizations.weights`")
            ((weights, activations, kind),) = kinds
            return _near(f"{label} ({kind}{weights} weights, {activations}-bit activations)", weights, activations)
        algorithm = str(given.get("quant_algo", "")).upper()
        if algorithm in _MODELOPT:
            return _near(f"{label} {algorithm}", *_MODELOPT[algorithm])
        raise UnknownFormat(f"{label} without config_groups has no near `optimizations.weights`")

    return read


_MODELOPT = {"FP8": (8, 8), "NVFP4": (4, 4), "W4A16_AWQ": (4, 16), "W4A8_AWQ": (4, 8), "W8A16": (8, 16)}


def _bits_of_group(group: Any) -> tuple[int, int, str]:
    """(bits of weights, bits of activations, INT or FP) of one group; 0 where the group does not say."""
    if not isinstance(group, Mapping):
        return 0, 0, "?"
    weights, inputs = group.get("weights"), group.get("input_activations")
    bits = weights.get("num_bits", 0) if isinstance(weights, Mapping) else 0
    acts = inputs.get("num_bits", 0) if isinstance(inputs, Mapping) else 16
    kind = "FP" if isinstance(weights, Mapping) and weights.get("type") == "float" else "INT"
    whole = isinstance(bits, int) and isinstance(acts, int)
    return (bits, acts, kind) if whole else (0, 0, kind)


def _modelslim(name: str) -> Stored:
    """`W8A8_DYNAMIC`, `w4a8`, `W8A8S`: the bits are in the name; sparse ones (S, SC) are priced as dense."""
    match = re.match(r"w(\d+)a(\d+)", name.lower())
    if match is None:
        raise UnknownFormat(f"ModelSlim {printable(name, 40)} has no near `optimizations.weights`")
    return _near(f"ModelSlim {printable(name, 40).upper()}", int(match[1]), int(match[2]))


def _modelslim_of_folder(given: Mapping[str, Any], types: Mapping[str, str]) -> Stored:
    """A ModelSlim checkpoint says its type here, or in the description next to the config, whose `types` it lists by
    tensor: there the one that most of them have."""
    said = given.get("model_quant_type", given.get("quant_type")) or types.get("model_quant_type")
    if said is None:
        counts = Counter(kind for kind in types.values() if re.match(r"w\d+a\d+", kind.lower()))
        said = counts.most_common(1)[0][0] if counts else None
    if not isinstance(said, str):
        raise UnknownFormat(f"ModelSlim without model_quant_type, here or in {DESCRIPTION} next to it")
    return _modelslim(said)


def _described(path: Path) -> dict[str, str]:
    """The texts of `quant_model_description.json` next to the config, {} where there is none."""
    try:
        described = json.loads((path.parent / DESCRIPTION).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return (
        {key: kind for key, kind in described.items() if isinstance(kind, str)} if isinstance(described, dict) else {}
    )


def _quark(given: Mapping[str, Any]) -> Stored:
    """AMD Quark: types of weights and inputs for the whole model (`global_quant_config`)."""
    whole = given.get("global_quant_config")
    if not isinstance(whole, Mapping):
        raise UnknownFormat("Quark without global_quant_config has no near `optimizations.weights`")
    weights, inputs = (_bits_of_type(whole.get(key)) for key in ("weight", "input_tensors"))
    return _near(f"Quark ({weights}-bit weights, {inputs}-bit activations)", weights, inputs)


def _bits_of_type(given: Any) -> int:
    """Bits of what `dtype` names (int4, fp8_e4m3, fp4); 16 where nothing is said."""
    given = given[0] if isinstance(given, list) and given else given
    if not isinstance(given, Mapping):
        return 16
    match = re.search(r"\d+", str(given.get("dtype", "")))
    return int(match[0][:4]) if match else 0


def _torchao(given: Mapping[str, Any]) -> Stored:
    """torchao: the name of its method, or of the class of its settings, says the bits."""
    kind = given.get("quant_type")
    if isinstance(kind, Mapping):
        kind = kind.get("default", kind)
        kind = kind.get("_type") if isinstance(kind, Mapping) else kind
    name = str(kind).lower().replace("_", "")
    activations = re.search(r"(?:int|float)8dynamicactivation|float8dynamic", name)
    weights = re.search(r"(?:int|float|uint)(\d)weight", name)
    bits = int(weights[1]) if weights else 8 if name.startswith("float8dynamic") else 0
    return _near(f"torchao {printable(str(kind), 60)}", bits, 8 if activations else 16)


def _hqq(given: Mapping[str, Any]) -> Stored:
    """HQQ: bits of the weights, of the whole model or of its first module."""
    config: Any = given.get("quant_config", given)
    for _ in range(3):
        if isinstance(config, Mapping) and "weight_quant_params" in config:
            config = config["weight_quant_params"]
        elif isinstance(config, Mapping) and "nbits" not in config and config:
            config = next(iter(config.values()))
    bits = config.get("nbits") if isinstance(config, Mapping) else None
    return _near(f"HQQ of {shown(bits)} bits", bits, 16)


def _quanto(given: Mapping[str, Any]) -> Stored:
    bits = {"int8": 8, "float8": 8, "int4": 4}.get(str(given.get("weights")), 0)
    return _near(f"quanto {printable(str(given.get('weights')), 20)}", bits, 16)


def _fixed(label: str, weights: int, activations: int) -> Callable[[Mapping[str, Any]], Stored]:
    """A method that has one format."""
    return lambda _: _near(label, weights, activations)


_READERS: dict[str, Callable[[Mapping[str, Any]], Stored]] = {
    "fp8": _fp8,
    "fbgemm-fp8": _fp8,
    "compressed-tensors": _groups("compressed-tensors"),
    "modelopt": _groups("ModelOpt"),
    "modelopt-fp4": _groups("ModelOpt"),
    "awq": _by_bits("AWQ"),
    "awq-marlin": _by_bits("AWQ"),
    "gptq": _by_bits("GPTQ"),
    "gptq-marlin": _by_bits("GPTQ"),
    "gptqmodel": _by_bits("GPTQ"),
    "moe-wna16": _by_bits("AWQ or GPTQ"),
    "auto-round": _by_bits("AutoRound"),
    "intel/auto-round": _by_bits("AutoRound"),
    "inc": _by_bits("AutoRound"),
    "quark": _quark,
    "torchao": _torchao,
    "hqq": _hqq,
    "quanto": _quanto,
    "eetq": _fixed("EETQ INT8", 8, 16),
    "experts-int8": _fixed("INT8 experts", 8, 16),
    "w4afp8": _fixed("INT4 weights, FP8 activations", 4, 8),
    "ptpc-fp8": _fp8,
    "mxfp8": _fixed("MXFP8", 8, 8),
    "modelopt-mxfp8": _fixed("ModelOpt MXFP8", 8, 8),
    "nvfp4": _fixed("NVFP4", 4, 4),
    "mlx": _by_bits("MLX"),
    "mxfp4": _mxfp4,
    "bitsandbytes": _bitsandbytes,
}
