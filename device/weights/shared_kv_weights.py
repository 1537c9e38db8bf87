"""Weights of DeepSeek-V4's attention and streams: transformers' names, their sizes, and how a Program wants them."""

from __future__ import annotations

import torch

from scenarios.models.model import Model

#: Modules of a layer by what a Program calls them.
_MODULES = {
    "q_a_norm": "self_attn.q_a_norm", "kv_proj": "self_attn.kv_proj", "kv_norm": "self_attn.kv_norm",
    "o_a_proj": "self_attn.o_a_proj", "o_proj": "self_attn.o_b_proj", "compressed": "self_attn.compressor",
    "index": "self_attn.compressor.indexer", "index_q_proj": "self_attn.compressor.indexer.q_b_proj",
    "index_heads_proj": "self_attn.compressor.indexer.scorer.weights_proj", "hc_attention": "attn_hc",
    "hc_mlp": "ffn_hc", "attention_norm": "input_layernorm",
}  # fmt: skip
#: Tensors of a module that are its own, no module's weight.
_OWN = {"factors": "scale", "fn": "fn", "base": "base", "position_bias": "position_bias", "tid2eid": "tid2eid"}
#: Of the sum behind the layers.
_HEAD = {"hc_head_fn": "hc_fn", "base": "hc_base", "factors": "hc_scale"}


def own_name(model: Model, name: str, part: str, layer: int) -> str | None:
    """The tensor `part` of what a Program calls `name`; None where it is called as in other families."""
    if name in ("hc_head", "hc_head_fn"):
        return f"model.hc_head.{_HEAD.get(name) or _HEAD[part]}"
    if model.shared_kv is None:
        return None
    at = f"model.layers.{layer}"
    if name == "router" and part == "tid2eid":
        return f"{at}.mlp.gate.tid2eid"
    if name in ("compressed", "index"):  # a tensor of the compressor: a projection, its norm, or the bias of places
        return f"{at}.{_MODULES[name]}.{part}{'' if part in _OWN else '.weight'}"
    module = _MODULES.get(name)
    return module and f"{at}.{module}.{_OWN.get(part, part)}"


def own_shape(model: Model, one: Model, name: str) -> tuple[int, ...] | None:
    """The shape of the tensor called `name`, of a layer like `one`; None where it is of another kind."""
    hyper, shared = model.form.hyper, one.shared_kv
    if hyper and "hc" in name:
        wide = hyper.streams * model.hidden
        if ".hc_head." in name:
            return {"hc_fn": (hyper.streams, wide), "hc_base": (hyper.streams,), "hc_scale": (1,)}[
                name.rpartition(".")[2]
            ]
        if "_hc." in name:
            return {"fn": (hyper.mixed, wide), "base": (hyper.mixed,), "scale": (3,)}[name.rpartition(".")[2]]
    if shared is None:
        return None
    if name.endswith("tid2eid") and one.experts:
        return model.whole_vocab, one.experts.top_k
    _, _, tensor = name.partition(".self_attn.")
    if tensor.startswith("compressor."):
        return _of_compressor(one, tensor.removeprefix("compressor.").removesuffix(".weight"))
    dim, hidden = one.head_dim, one.hidden
    sizes: dict[str, tuple[int, ...]] = {
        "q_a_proj": (shared.q_rank, hidden), "q_a_norm": (shared.q_rank,), "q_b_proj": (one.q_size, shared.q_rank),
        "kv_proj": (dim, hidden), "kv_norm": (dim,), "o_b_proj": (hidden, one.attended),
        "o_a_proj": (one.attended, one.heads * dim // shared.groups),
    }  # fmt: skip
    return sizes.get(tensor.removesuffix(".weight"))


def _of_compressor(one: Model, tensor: str) -> tuple[int, ...]:
    """Of the compressor of a layer, or of its indexer's."""
    shared = one.shared_kv
    assert shared is not None
    width = one.head_dim
    if shared.index:
        index = shared.index
        if tensor == "indexer.q_b_proj":
            return index.heads * index.dim, shared.q_rank
        if tensor == "indexer.scorer.weights_proj":
            return index.heads, one.hidden
        width = index.dim if tensor.startswith("indexer.") else width
    last = tensor.rpartition(".")[2]
    if last == "position_bias":
        return shared.ratio, shared.parts * width
    return (width,) if last == "kv_norm" else (shared.parts * width, one.hidden)


def by_group(value: torch.Tensor, one: Model) -> torch.Tensor:
    """The grouped output projection [groups x rank, k] as [groups, k, rank]. one: of the rank that holds these
    groups."""
    assert one.shared_kv is not None
    return value.unflatten(0, (one.shared_kv.groups, -1)).transpose(1, 2)


def table_of_experts(shape: tuple[int, ...], experts: int, random: torch.Generator) -> torch.Tensor:
    """Different experts for each token of the vocabulary."""
    return torch.rand((shape[0], experts), generator=random).argsort(-1)[:, : shape[1]].to(torch.int32)
