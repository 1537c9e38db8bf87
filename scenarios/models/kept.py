"""What a quantised checkpoint keeps in 16 bits: parts of a layer that its list of modules leaves out.

Lists name modules (`model.layers.3.self_attn.q_proj`), parts of their names (`self_attn`), globs (`model.layers.*.mlp`)
or, in compressed-tensors, expressions (`re:.*self_attn.*`). A part, or one product of it, is kept where it is in the
layers that are looked at: the first, a middle one and the last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from scenarios.records import dataclass

#: What of a layer stays in 16 bits: a part whose products are kept together (its `attention`, the expert that every
#: token takes as `shared`, a plain `mlp`, the routed `experts`), or one product of it, `attention.o_proj`.
Part = str

#: Keys of the lists.
_LISTS = ("ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules", "exclude", "unconverted_modules")
#: Expressions longer than this are not tried.
_MOST_CHARACTERS = 200
_GATED = ("gate_proj", "up_proj", "down_proj")
_LATENT = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "o_proj")
_GROUPED = ("q_proj", "k_proj", "v_proj", "o_proj")
#: Names of products in a checkpoint, by those in a Program.
_OTHER_NAMES = {"kv_a_proj_with_mqa": "kv_a_proj", "out_proj": "o_proj"}
#: A layer by its number, or a module of it that has products.
_IN_ONE_LAYER = re.compile(r"layers\.(\d{1,4})(?:\.((?:self_attn|mlp)(?:\.\w+)*_proj|self_attn|mlp))?$")
#: Products that engines pack into one, whose weights must be alike (vLLM refuses others).
PACKED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "qkv_a_proj": ("q_a_proj", "kv_a_proj"),
}


@dataclass(frozen=True, slots=True)
class Kept:
    """parts: what stays in 16 bits in all layers. single: modules that do so in some layers only, which are quantised
    here like the others."""

    parts: frozenset[Part] = frozenset()
    single: int = 0


def kept_parts(given: Mapping[str, Any], config: Mapping[str, Any]) -> Kept:
    """What of `config`'s layers its quantisation, `given`, leaves in 16 bits.

    Raises ValueError where of products that are packed only some are kept.
    """
    patterns = [str(word) for key in _LISTS if isinstance(given.get(key), list) for word in given[key]]
    layers = config.get("num_hidden_layers")
    if not patterns or not isinstance(layers, int) or not 0 < layers <= 1024:
        return Kept()
    names = frozenset(pattern.removesuffix(".*") for pattern in patterns)
    loose = [pattern for pattern in patterns if not re.search(r"\.\d+(?:\.|$)", pattern)][:1000]

    def kept(layer: int, module: str) -> bool:
        name = f"model.layers.{layer}.{module}"
        longer = (name, f"language_{name}", f"language_model.{name}", f"model.language_model.layers.{layer}.{module}")
        return any(one in names or _inside(one, names) for one in longer) or any(map(_matches(longer), loose))

    parts: set[Part] = set()
    always: set[str] = set()
    for part, modules, places in _modules(config, layers):
        held = [module for module in modules if all(kept(layer, module) for layer in places)]
        always |= set(held)
        if len(held) == len(modules):
            parts.add(part)
            continue
        others = {_product(module) for module in modules if module not in held}
        products = {_product(module) for module in held} - others
        _alike(products, others)
        parts |= {f"{part}.{product}" for product in products}
    return Kept(frozenset(parts), _single(patterns, always, layers))


def _product(module: str) -> str:
    """What a Program calls the product of a module."""
    last = module.rpartition(".")[2]
    return _OTHER_NAMES.get(last, last)


def _alike(products: set[str], others: set[str]) -> None:
    """Raises ValueError where of products that engines pack only `products` are kept."""
    for name in ("qkv_proj", "gate_up_proj"):
        kept = products & set(PACKED[name])
        if kept and others & set(PACKED[name]):
            raise ValueError(f"{', '.join(sorted(kept))} in 16 bits, but not all of {', '.join(PACKED[name])}")


def _modules(config: Mapping[str, Any], layers: int) -> Iterator[tuple[Part, list[str], list[int]]]:
    """(a part, its modules, the layers that are looked at): the first, a middle one and the last."""
    places = sorted({0, layers // 2, layers - 1})
    latent = _LATENT if config.get("q_lora_rank") else ("q_proj", *_LATENT[2:])
    attention = [f"self_attn.{name}" for name in (latent if config.get("kv_lora_rank") else _GROUPED)]
    if config.get("linear_num_key_heads"):
        attention.append("linear_attn.out_proj")
    yield "attention", attention, places
    mixed = any("experts" in key and isinstance(count, int) and count > 1 for key, count in config.items())
    yield "mlp", [f"mlp.{name}" for name in _GATED], places[:1] if mixed else places
    if not mixed:
        return
    for owner in ("shared_experts", "shared_expert"):
        yield "shared", [f"mlp.{owner}.{name}" for name in _GATED], places[-2:]
    yield "experts", [f"mlp.experts.0.{name}" for name in _GATED], places[-2:]


def _single(patterns: list[str], always: set[str], layers: int) -> int:
    """Modules of single layers that are listed, by name or by an expression with their numbers."""
    expressions = sum(pattern.startswith("re:") and bool(re.search(r"layers\W+\(?\d", pattern)) for pattern in patterns)
    listed = (_IN_ONE_LAYER.search(pattern.removesuffix(".*")) for pattern in patterns)
    return expressions + sum(
        match is not None and int(match[1]) < layers and match[2] not in always for match in listed
    )


def _inside(name: str, names: frozenset[str]) -> bool:
    """Whether a module above `name` is listed."""
    steps = name.split(".")
    return any(".".join(steps[:count]) in names for count in range(3, len(steps)))


def _matches(names: tuple[str, ...]) -> Any:
    """pattern -> whether it holds one of `names`."""

    def holds(pattern: str) -> bool:
        if pattern.startswith("re:"):
            return _expression(pattern[3:], names)
        if "*" in pattern:
            return any(fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*") for name in names)
        return any(f".{pattern}." in f".{name}." for name in names)

    return holds


def _expression(pattern: str, names: tuple[str, ...]) -> bool:
    if len(pattern) > _MOST_CHARACTERS:
        return False
    try:
        return any(re.match(pattern, name) for name in names)
    except re.error:
        return False
