"""A forward pass written from the architectures, as papers and model cards have them: no cache, no Program, float32.

Weights come under their Hugging Face names. Rotated pairs are complex numbers, MLA unpacks all keys and values, experts
are summed token by token.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log, pi

import torch
import torch.nn.functional as F

from device.weights.weights import Checkpoint
from scenarios.models.model import Experts, Latent, Model

#: Projections of a gated MLP.
GATED = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class Architecture:
    """A model with the weights of a checkpoint, rounded to the model's 16 bits."""

    model: Model
    checkpoint: Checkpoint

    def weight(self, name: str, dtype: torch.dtype | None = None) -> torch.Tensor:
        rounded = torch.float16 if self.model.dtype == "fp16" else torch.bfloat16
        return self.checkpoint.tensor(name).to(dtype or rounded).float()

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + self.model.norm_eps).sqrt() * self.weight(f"{name}.weight")

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        bias = self.model.qkv_bias and name[-6:] in ("q_proj", "k_proj", "v_proj")
        return x @ self.weight(f"{name}.weight").T + (self.weight(f"{name}.bias") if bias else 0)

    def rotated(self, x: torch.Tensor, in_pairs: bool) -> torch.Tensor:
        """x [tokens, heads, dim] rotated by its place: neighbours are a pair, or element i and i + dim / 2 are."""
        half = x.shape[-1] // 2
        each = torch.tensor([turning(self.model, i, half) for i in range(half)])
        angle = torch.arange(x.shape[0])[:, None] * each[None]
        turn = torch.polar(torch.full_like(angle, length(self.model)), angle)[:, None]
        if in_pairs:
            return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (half, 2)).contiguous()) * turn).flatten(-2)
        pairs = torch.complex(x[..., :half].contiguous(), x[..., half:].contiguous()) * turn
        return torch.cat((pairs.real, pairs.imag), -1)

    def grouped(self, x: torch.Tensor, at: str) -> torch.Tensor:
        """What grouped-query attention gives to its output projection."""
        model, turning = self.model, self.model.rotated
        q, k, v = (self.linear(x, f"{at}.{p}_proj") for p in "qkv")
        if model.qk_norm and model.qk_norm_of == "layer":
            q, k = self.norm(q, f"{at}.q_norm"), self.norm(k, f"{at}.k_norm")
        q, k, v = (y.view(x.shape[0], -1, model.head_dim) for y in (q, k, v))
        if model.qk_norm and model.qk_norm_of == "head":
            q, k = self.norm(q, f"{at}.q_norm"), self.norm(k, f"{at}.k_norm")
        q, k = (torch.cat((self.rotated(y[..., :turning], False), y[..., turning:]), -1) for y in (q, k))
        seen = [h * model.kv_heads // model.heads for h in range(model.heads)]
        return attended(q, k[:, seen], v[:, seen])

    def latent(self, x: torch.Tensor, at: str) -> torch.Tensor:
        """The same of latent attention."""
        mla, count = self.model.latent, x.shape[0]
        assert mla is not None
        if mla.q_rank:
            low_query = self.norm(x @ self.weight(f"{at}.q_a_proj.weight").T, f"{at}.q_a_layernorm")
            query = self.linear(low_query, f"{at}.q_b_proj")
        else:
            query = self.linear(x, f"{at}.q_proj")
        q, q_pe = query.view(count, -1, mla.nope_dim + mla.rope_dim).split((mla.nope_dim, mla.rope_dim), -1)
        low, k_pe = self.linear(x, f"{at}.kv_a_proj_with_mqa").split((mla.kv_rank, mla.rope_dim), -1)
        unpacked = self.linear(self.norm(low, f"{at}.kv_a_layernorm"), f"{at}.kv_b_proj")
        k, v = unpacked.view(count, -1, mla.nope_dim + mla.v_dim).split((mla.nope_dim, mla.v_dim), -1)
        rotated = self.rotated(k_pe[:, None], True).expand(-1, k.shape[1], -1)
        whole = torch.cat((q, self.rotated(q_pe, True)), -1)
        chosen = self.chosen(x, low_query, f"{at}.indexer", mla) if mla.index else None
        return attended(whole * length_of_scores(self.model), torch.cat((k, rotated), -1), v, chosen)

    def chosen(self, x: torch.Tensor, low_query: torch.Tensor, at: str, mla: Latent) -> torch.Tensor:
        """The keys that each token attends to, bool [tokens, keys]: the best by the indexer's weighed scores."""
        index, count = mla.index, x.shape[0]
        assert index is not None
        q = self.linear(low_query, f"{at}.wq_b").view(count, index.heads, index.dim)
        norm = (self.weight(f"{at}.k_norm.{part}") for part in ("weight", "bias"))
        k = F.layer_norm(self.linear(x, f"{at}.wk"), (index.dim,), *norm, eps=1e-6)
        q, k = (
            torch.cat((self.rotated(y[..., : mla.rope_dim], index.in_pairs), y[..., mla.rope_dim :]), -1)
            for y in (q, k[:, None])
        )
        scores = torch.einsum("qhd,kd->qkh", q, k[:, 0]).relu() @ self.linear(x, f"{at}.weights_proj")[:, :, None]
        result = torch.zeros(count, count, dtype=torch.bool)
        for token in range(count):
            best = scores[token, : token + 1, 0].argsort(descending=True)[: index.top_k]
            result[token, best] = True
        return result

    def gated(self, x: torch.Tensor, at: str, names: tuple[str, ...] = GATED) -> torch.Tensor:
        gate, up, down = names
        return self.linear(F.silu(self.linear(x, f"{at}.{gate}")) * self.linear(x, f"{at}.{up}"), f"{at}.{down}")

    def mixture(self, x: torch.Tensor, at: str, experts: Experts) -> torch.Tensor:
        """The experts that each token chooses, weighed, and the one that every token takes."""
        sparse_block = self.model.model_type in ("mixtral", "minimax_m2")
        at, names = (at.replace("mlp", "block_sparse_moe"), ("w1", "w3", "w2")) if sparse_block else (at, GATED)
        bias = f"{at}.e_score_correction_bias" if sparse_block else f"{at}.gate.e_score_correction_bias"
        logits = self.linear(x, f"{at}.gate")
        scores = logits.sigmoid() if experts.score == "sigmoid" else logits.softmax(-1)
        rank = scores.clone()
        if experts.score == "sigmoid":
            rank += self.weight(bias, torch.float32)
        out = torch.zeros_like(x)
        for token in range(x.shape[0]):
            chosen = best(rank[token].tolist(), experts)
            weights = scores[token, chosen]
            weights = (weights / weights.sum() if experts.normalised else weights) * experts.factor
            for weight, expert in zip(weights, chosen, strict=True):
                out[token] += weight * self.gated(x[token : token + 1], f"{at}.experts.{expert}", names)[0]
        return out + self.gated(x, f"{at}.shared_experts") if experts.shared else out


def turning(model: Model, pair: int, half: int) -> float:
    """Radians a position of one of `half` pairs: 1 / theta^(pair / half), less where a long context asks for it."""
    plain, scaling = model.rope_theta ** (-pair / half), model.rope_scaling
    if scaling is None:
        return plain
    if scaling.kind == "proportional":
        return plain if pair < scaling.factor * half else 0.0
    if scaling.kind == "linear":
        return plain / scaling.factor
    if scaling.kind == "llama3":  # by the wavelength, in positions
        wave, longest, shortest = (
            2 * pi / plain,
            scaling.original_positions / scaling.low_factor,
            scaling.original_positions / scaling.high_factor,
        )
        if wave < shortest:
            return plain
        if wave > longest:
            return plain / scaling.factor
        smooth = (scaling.original_positions / wave - scaling.low_factor) / (scaling.high_factor - scaling.low_factor)
        return (1 - smooth) * plain / scaling.factor + smooth * plain
    assert scaling.kind == "yarn"

    def where(turns: float) -> float:  # the pair that turns so often over the original positions
        return 2 * half * log(scaling.original_positions / (turns * 2 * pi)) / (2 * log(model.rope_theta))

    low, high = max(floor(where(scaling.beta_fast)), 0), min(ceil(where(scaling.beta_slow)), 2 * half - 1)
    if pair <= low:
        return plain
    if pair >= high:
        return plain / scaling.factor
    divided = (pair - low) / (high - low)
    return plain / scaling.factor * divided + plain * (1 - divided)


def length(model: Model) -> float:
    """Of the rotated vectors, over that of the plain ones."""
    scaling = model.rope_scaling
    if scaling is None or scaling.kind != "yarn":
        return 1.0
    return (0.1 * scaling.mscale * log(scaling.factor) + 1) / (0.1 * scaling.mscale_all_dim * log(scaling.factor) + 1)


def length_of_scores(model: Model) -> float:
    """What DeepSeek multiplies the scores by beyond 1 / sqrt(dim)."""
    scaling = model.rope_scaling
    return (0.1 * scaling.mscale_all_dim * log(scaling.factor) + 1) ** 2 if scaling and scaling.kind == "yarn" else 1.0


def best(rank: list[float], experts: Experts) -> list[int]:
    """The chosen experts of one token: groups by their best two (sigmoid) or best one, then the best of those."""
    size, most = experts.count // experts.groups, 2 if experts.score == "sigmoid" else 1
    groups = [range(g * size, (g + 1) * size) for g in range(experts.groups)]
    groups.sort(key=lambda group: -sum(sorted((rank[i] for i in group), reverse=True)[:most]))
    open_ = [i for group in groups[: experts.kept_groups] for i in group]
    return sorted(open_, key=lambda i: -rank[i])[: experts.top_k]


def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, chosen: torch.Tensor | None = None) -> torch.Tensor:
    """Causal attention, all [tokens, heads, dim] -> [tokens, heads dim]. chosen: the keys that each token sees."""
    count = q.shape[0]
    scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
    scores = scores.masked_fill(torch.ones(count, count).triu(1).bool(), float("-inf"))
    if chosen is not None:
        scores = scores.masked_fill(~chosen, float("-inf"))
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).reshape(count, -1)


def forward(model: Model, checkpoint: Checkpoint, tokens: list[int]) -> torch.Tensor:
    """Logits [tokens, vocab] of one sequence."""
    architecture = Architecture(model, checkpoint)
    hidden = architecture.weight("model.embed_tokens.weight")[torch.tensor(tokens)]
    for layer in range(model.layers):
        at = f"model.layers.{layer}"
        x = architecture.norm(hidden, f"{at}.input_layernorm")
        mixed = (architecture.latent if model.latent else architecture.grouped)(x, f"{at}.self_attn")
        hidden = hidden + architecture.linear(mixed, f"{at}.self_attn.o_proj")
        x = architecture.norm(hidden, f"{at}.post_attention_layernorm")
        if model.experts and layer >= model.dense_layers:
            hidden = hidden + architecture.mixture(x, f"{at}.mlp", model.experts)
        else:
            hidden = hidden + architecture.gated(x, f"{at}.mlp")
    head = "model.embed_tokens" if model.tied_embeddings else "lm_head"
    return architecture.norm(hidden, "model.norm") @ architecture.weight(f"{head}.weight").T
