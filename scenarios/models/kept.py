"""What a quantised checkpoint keeps in 16 bits: parts of a layer that its list of modules leaves out.

Lists name modules (`model.layers.3.self_attn.q_proj`), parts of their names (`self_attn`), globs (`model.layers.*.mlp`)
or, in compressed-tensors, expressions (`re:.*self_attn.*`). A part is kept where all its products are, in the layers
that are looked at: the first, a middle one and the last.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

#: Parts of a layer that are quantised or kept together: its attention, the expert that every token takes, a plain MLP.
Part = Literal["attention", "shared", "mlp"]

#: Keys of the lists.
_LISTS = ("ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules")
#: Expressions longer than this are not tried.
_MOST_CHARACTERS = 200
_GATED = ("gate_proj", "up_proj", "down_proj")
_LATENT = ("q_b_proj", "kv_a_proj_with_mqa", "o_proj")
_GROUPED = ("q_proj", "k_proj", "v_proj", "o_proj")


def kept_parts(given: Mapping[str, Any], config: Mapping[str, Any]) -> frozenset[Part]:
    """The parts of `config`'s layers that its quantisation, `given`, leaves in 16 bits."""
    patterns = [str(word) for key in _LISTS if isinstance(given.get(key), list) for word in given[key]]
    layers = config.get("num_hidden_layers")
    if not patterns or not isinstance(layers, int) or not 0 < layers <= 1024:
        return frozenset()
    names = frozenset(patterns)
    loose = [pattern for pattern in patterns if not re.search(r"\.\d+\.", pattern)][:1000]

    def kept(layer: int, module: str) -> bool:
        name = f"model.layers.{layer}.{module}"
        longer = (name, f"language_{name}", f"language_model.{name}")
        return any(one in names or _inside(one, names) for one in longer) or any(map(_matches(longer), loose))

    places = sorted({0, layers // 2, layers - 1})
    attention = [f"self_attn.{name}" for name in (_LATENT if config.get("kv_lora_rank") else _GROUPED)]
    if config.get("linear_num_key_heads"):
        attention.append("linear_attn.out_proj")
    parts: set[Part] = set()
    if all(kept(layer, module) for layer in places for module in attention):
        parts.add("attention")
    for owner in ("shared_experts", "shared_expert"):
        if all(kept(layer, f"mlp.{owner}.{name}") for layer in places[-2:] for name in _GATED):
            parts.add("shared")
    if all(kept(0, f"mlp.{name}") for name in _GATED):
        parts.add("mlp")
    return frozenset(parts)


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
