"""Sparse attention of DeepSeek-V3.2 and GLM-5: an indexer scores all keys, and each query attends to the best ones.

The indexer has small heads of its own and a cache of one key per token; its sizes are those of the whole model on each
rank. All tokens take the absorbed way, prefills too, as vLLM-Ascend issues it (`npu_lightning_indexer`, then
`npu_sparse_flash_attention`). The Hadamard rotation of its queries and keys is left out: it keeps their products.
"""

from __future__ import annotations

from scenarios.lowering.primitives import activation, groups_of, linear, rotate, weight
from scenarios.lowering.step import Step
from scenarios.models.model import Index, Latent
from scenarios.ops.program import Op, Tensor

#: Of the layer norm of the indexer's keys (DeepSeek-V3.2's inference code).
LAYER_NORM_EPS = 1e-6


def select_keys(step: Step, x: Tensor, latent: Latent, index: Index) -> tuple[Op, ...]:
    """`normed` and `q_a_normed` -> `selected`, [tokens, top_k]: the keys that each token attends to."""
    tokens, act, rope = step.tokens, step.act, latent.rope_dim
    query = activation("index_q", (tokens, index.heads, index.dim), act)
    key = activation("index_k_normed", (tokens, 1, index.dim), act)
    cos, sin = activation("cos", (tokens, rope), act), activation("sin", (tokens, rope), act)
    low_rank = activation("q_a_normed", (tokens, latent.q_rank), act)
    parts = tuple(_part(t, rope) for t in (query, key))
    return (
        linear("index_q_proj", low_rank, "index_q", index.heads * index.dim),
        linear("index_k_proj", x, "index_k", index.dim),
        _key_norm(tokens, index, step),
        linear("index_weights_proj", x, "index_weights", index.heads),
        *(op for name, t in (("q", query), ("k", key)) for op in _split(name, t, rope)),
        *(op for name, part in zip("qk", parts, strict=True) for op in _turned(name, part, cos, sin)),
        *(_joined(name, t, rope) for name, t in (("q", query), ("k", key))),
        _write(step, index),
        _indexer(step, index),
    )


def _key_norm(tokens: int, index: Index, step: Step) -> Op:
    """One layer norm of the new keys, with weight and bias."""
    x, out = (activation(name, (tokens, index.dim), step.act) for name in ("index_k", "index_k_normed"))
    gamma, beta = (weight(f"index_k_norm.{part}", (index.dim,), step.act) for part in ("weight", "bias"))
    return Op("layer_norm", "index_k_norm", (x, gamma, beta), (out,), (("eps", LAYER_NORM_EPS),))


def _part(x: Tensor, width: int, name: str = "") -> Tensor:
    return activation(name or x.name, (*x.shape[:-1], width), x.dtype)


def _split(name: str, x: Tensor, rope: int) -> tuple[Op, ...]:
    """The rotated part of each head comes first."""
    rest = x.shape[-1] - rope
    return (
        Op(
            "slice", f"slice_index_{name}_pe", (_part(x, rope),), (_part(x, rope, f"index_{name}_pe"),), (("start", 0),)
        ),
        Op(
            "slice",
            f"slice_index_{name}_nope",
            (_part(x, rest),),
            (_part(x, rest, f"index_{name}_nope"),),
            (("start", rope),),
        ),
    )


def _turned(name: str, part: Tensor, cos: Tensor, sin: Tensor) -> tuple[Op, ...]:
    return rotate(
        f"index_rope_{name}", _part(part, part.shape[-1], f"index_{name}_pe"), f"index_{name}_rotated", cos, sin
    )


def _joined(name: str, x: Tensor, rope: int) -> Op:
    parts = _part(x, rope, f"index_{name}_rotated"), _part(x, x.shape[-1] - rope, f"index_{name}_nope")
    return Op("concat", f"join_index_{name}", parts, (_part(x, x.shape[-1], f"index_{name}_whole"),))


def index_cache(step: Step, index: Index) -> Tensor:
    """One key of the indexer per token."""
    return Tensor("index_cache", (step.batch.requests, step.cache_tokens, 1, index.dim), step.act, "kv_cache")


def _write(step: Step, index: Index) -> Op:
    cache, slots = index_cache(step, index), Tensor("slots", (step.tokens,), "int64", "table")
    key = activation("index_k_whole", (step.tokens, 1, index.dim), step.act)
    return Op("kv_cache_write", "write_index", (key, cache, slots), (cache,), op_type="Scatter")


def _indexer(step: Step, index: Index) -> Op:
    """Weighed scores of all keys, and the best of them for each query."""
    query = activation("index_q_whole", (step.tokens, index.heads, index.dim), step.act)
    weights = activation("index_weights", (step.tokens, index.heads), step.act)
    attrs = (
        ("groups", groups_of(step.batch)),
        ("heads", index.heads),
        ("head_dim", index.dim),
        ("top_k", index.top_k),
        ("block_size", 0),
    )
    return Op("lightning_indexer", "index", (query, weights, index_cache(step, index)), (selected(step, index),), attrs)


def selected(step: Step, index: Index) -> Tensor:
    """Places of the keys that each token attends to, -1 where it sees fewer."""
    return activation("selected", (step.tokens, index.top_k), "int32")
