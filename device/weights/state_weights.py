"""Weights of layers with a state: their Hugging Face names, their sizes, and which rows a rank has of them."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from scenarios.models.states import GatedDelta, KimiDelta, Mamba2, ShortConv, State

#: The module of a layer.
_MODULE = {KimiDelta: "self_attn", GatedDelta: "linear_attn", Mamba2: "mixer", ShortConv: "conv"}
#: Tensors by what a Program calls them, where that is not their own name.
_NAMES = {"o_proj": "out_proj", "delta_norm": "norm", "mamba_norm": "norm"}
#: Those that are no module's weight or bias.
_PLAIN = {"A_log": "A_log", "D": "D", "dt": "dt_bias"}


def name_in_layer(state: State, name: str, part: str) -> str | None:
    """The tensor that a Program calls `name` in a layer of `state`; None where it is none of the state's."""
    module = _MODULE[type(state)]
    if name in _PLAIN:
        return f"{module}.{_PLAIN[name]}"
    known = name in _NAMES or name.startswith("in_proj") or name == "conv1d"
    return f"{module}.{_NAMES.get(name, name)}.{part}" if known else None


def shape_in_layer(state: State, name: str, hidden: int) -> tuple[int, ...] | None:
    """The shape of a tensor of the state's module by its Hugging Face name; None where it is of another."""
    module, _, rest = name.rpartition(f".{_MODULE[type(state)]}.")
    if not module:
        return None
    name, _, part = rest.partition(".")
    rows = sum(_rows(state).get(name, (hidden,)))
    if name == "out_proj":
        return hidden, _inner(state)
    if isinstance(state, KimiDelta) and name in ("in_proj_f_a", "in_proj_g_a"):
        return state.rank, hidden
    if isinstance(state, KimiDelta) and name in ("in_proj_f_b", "in_proj_g_b"):
        return rows, state.rank
    if name == "conv1d" and part == "weight":
        return rows, state.kernel
    return (rows, hidden) if name.startswith("in_proj") else (rows,)


def rows_of_rank(state: State, name: str, value: torch.Tensor, ranks: int, rank: int) -> torch.Tensor | None:
    """Rows of `value` that `rank` of `ranks` holds: its part of each section. state: of the whole model. None where it
    is no tensor that is cut by sections."""
    sections = _rows(state).get(_PLAIN.get(name, _NAMES.get(name, name)))
    if sections is None or name in ("o_proj", "delta_norm"):
        return None
    return torch.cat([part.chunk(ranks)[rank] for part in value.split(sections)])


def _inner(state: State) -> int:
    match state:
        case GatedDelta():
            return state.values
        case Mamba2():
            return state.inner
    return state.channels


def _rows(state: State) -> Mapping[str, tuple[int, ...]]:
    """Sections of the rows of each tensor, each of which ranks share."""
    match state:
        case KimiDelta():
            heads, mixed = (state.value_heads,), (state.keys, state.keys, state.values)
            return {
                "in_proj_qkv": mixed, "conv1d": mixed, "in_proj_b": heads, "in_proj_f_b": (state.keys,),
                "in_proj_g_b": (state.values,), "A_log": heads, "dt_bias": (state.keys,), "norm": (state.value_dim,),
            }  # fmt: skip
        case GatedDelta():
            heads = (state.value_heads,)
            mixed = (state.keys, state.keys, state.values)
            return {
                "in_proj_qkv": mixed, "conv1d": mixed, "in_proj_z": (state.values,), "in_proj_b": heads,
                "in_proj_a": heads, "A_log": heads, "dt_bias": heads, "norm": (state.value_dim,),
            }  # fmt: skip
        case Mamba2():
            shared = state.groups * state.state_dim
            mixed, heads = (state.inner, shared, shared), (state.heads,)
            return {
                "in_proj": (state.inner, *mixed, state.heads), "conv1d": mixed, "A_log": heads, "D": heads,
                "dt_bias": heads, "norm": (state.inner,),
            }  # fmt: skip
    return {"in_proj": (state.channels,) * 3, "conv1d": (state.channels,)}
