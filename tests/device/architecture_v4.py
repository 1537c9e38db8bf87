"""DeepSeek-V4 from its paper and model code: no cache, no Program, float32, one token after the other.

Only what its engine quantises is rounded: queries and keys of the indexer, to 127 steps each way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from device.weights.weights import Checkpoint
from scenarios.models.model import Experts, Model
from scenarios.models.parts import SharedKv
from tests.device.architecture import turning
from tests.device.architecture_forms import Layered

Tensor = torch.Tensor


@dataclass(frozen=True)
class Streamed(Layered):
    """One layer of DeepSeek-V4. tokens: of the sequence."""

    tokens: tuple[int, ...] = ()

    def rotated_last(self, x: Tensor, places: Tensor, back: bool = False) -> Tensor:
        """The last dimensions of x [tokens, heads, dim] by their places."""
        width = self.model.rotated
        each = torch.tensor([turning(self.model, pair, width // 2) for pair in range(width // 2)])
        angle = places[:, None].float() * each
        turn = torch.polar(torch.ones_like(angle), -angle if back else angle)[:, None]
        still, part = x[..., :-width], x[..., -width:]
        pairs = torch.complex(part[..., : width // 2].contiguous(), part[..., width // 2 :].contiguous()) * turn
        return torch.cat((still, pairs.real, pairs.imag), -1)

    def unit(self, x: Tensor) -> Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + self.model.norm_eps).sqrt()

    def rows(self, x: Tensor, at: str, width: int, shared: SharedKv) -> Tensor:
        """Compressed rows of all whole windows, [rows, width]."""
        values, scores = (x @ self.weight(f"{at}.{name}_proj.weight").T for name in ("kv", "gate"))
        bias, ratio = self.weight(f"{at}.position_bias", torch.float32), shared.ratio
        result = []
        for window in range(len(x) // ratio):
            tokens = range(window * ratio, (window + 1) * ratio)
            pairs = [(values[t, -width:], scores[t, -width:] + bias[t % ratio, -width:]) for t in tokens]
            if shared.index and window:
                pairs += [
                    (values[t - ratio, :width], scores[t - ratio, :width] + bias[t % ratio, :width]) for t in tokens
                ]
            powers = torch.stack([score for _, score in pairs]).exp()
            result.append((powers * torch.stack([value for value, _ in pairs])).sum(0) / powers.sum(0))
        if not result:
            return torch.zeros(0, width)
        normed = self.norm(torch.stack(result), f"{at}.kv_norm")
        return self.rotated_last(normed[:, None], torch.arange(len(result)) * ratio)[:, 0]

    def best_rows(self, x: Tensor, low: Tensor, at: str, shared: SharedKv) -> list[list[int]]:
        """The compressed rows that each token attends to."""
        index, count = shared.index, len(x)
        if index is None:
            return [list(range((token + 1) // shared.ratio)) for token in range(count)]
        mixes = spread(index.dim)
        query = (low @ self.weight(f"{at}.q_b_proj.weight").T).view(count, index.heads, index.dim)
        query = stepped(self.rotated_last(query, torch.arange(count)) @ mixes)
        keys = stepped(self.rows(x, at, index.dim, shared) @ mixes)
        gains = x @ self.weight(f"{at}.scorer.weights_proj.weight").T
        chosen = []
        for token in range(count):
            seen = (token + 1) // shared.ratio
            scores = [float((keys[row] @ query[token].T).relu() @ gains[token]) for row in range(seen)]
            chosen.append(sorted(range(seen), key=lambda row: -scores[row])[: index.top_k])
        return chosen

    def attention(self, x: Tensor, at: str) -> Tensor:
        model, shared, count = self.model, self.model.shared_kv, len(x)
        assert shared is not None
        places = torch.arange(count)
        low = self.norm(x @ self.weight(f"{at}.q_a_proj.weight").T, f"{at}.q_a_norm")
        query = (low @ self.weight(f"{at}.q_b_proj.weight").T).view(count, model.heads, model.head_dim)
        query = self.rotated_last(self.unit(query), places)
        near = self.norm(x @ self.weight(f"{at}.kv_proj.weight").T, f"{at}.kv_norm")
        near = self.rotated_last(near[:, None], places)[:, 0]
        compressor = f"{at}.compressor"
        far = self.rows(x, compressor, model.head_dim, shared) if shared.ratio else near[:0]
        picks = self.best_rows(x, low, f"{compressor}.indexer", shared) if shared.ratio else [[]] * count
        sinks, out = self.weight(f"{at}.sinks"), torch.zeros_like(query)
        for token in range(count):
            keys = torch.cat((near[max(0, token + 1 - model.attention.window) : token + 1], far[picks[token]]))
            for head in range(model.heads):
                powers = (keys @ query[token, head] / model.head_dim**0.5).exp()
                out[token, head] = powers @ keys / (powers.sum() + sinks[head].exp())
        grouped = self.rotated_last(out, places, back=True).view(count, shared.groups, -1)
        low_out = self.weight(f"{at}.o_a_proj.weight").view(shared.groups, shared.out_rank, -1)
        both = torch.cat([grouped[:, group] @ low_out[group].T for group in range(shared.groups)], -1)
        return both @ self.weight(f"{at}.o_b_proj.weight").T

    def experts(self, x: Tensor, at: str, experts: Experts, routed: Tensor | None = None) -> Tensor:
        """Experts by a table of the tokens or by their scores."""
        logits = x @ self.weight(f"{at}.gate.weight").T
        scores = (1 + logits.exp()).log().sqrt()
        about = experts.activation, experts.limit, False
        out = self.activated(x, f"{at}.shared_experts", *about)
        for place, token in enumerate(self.tokens):
            if experts.hashed:
                chosen = self.checkpoint.tensor(f"{at}.gate.tid2eid")[token].long()
            else:
                bias = self.weight(f"{at}.gate.e_score_correction_bias", torch.float32)
                chosen = (scores[place] + bias).argsort(descending=True)[: experts.top_k]
            shares = scores[place, chosen] / scores[place, chosen].sum() * experts.factor
            for share, expert in zip(shares, chosen.tolist(), strict=True):
                out[place] += share * self.activated(x[place : place + 1], f"{at}.experts.{expert}", *about)[0]
        return out

    def around(self, streams: Tensor, at: str, inner: str, norm: str) -> Tensor:
        """Attention or MLP between the streams [tokens, streams, hidden]."""
        hyper = self.model.form.hyper
        assert hyper is not None
        count = hyper.streams
        raw = self.unit(streams.flatten(1)) @ self.weight(f"{at}.{inner}.fn", torch.float32).T
        base, factors = (self.weight(f"{at}.{inner}.{name}", torch.float32) for name in ("base", "scale"))
        reads = (raw[:, :count] * factors[0] + base[:count]).sigmoid() + hyper.eps
        gains = 2 * (raw[:, count : 2 * count] * factors[1] + base[count : 2 * count]).sigmoid()
        mixes = (raw[:, 2 * count :] * factors[2] + base[2 * count :]).view(-1, count, count).softmax(-1) + hyper.eps
        for turn in range(2 * hyper.iterations - 1):
            mixes = mixes / (mixes.sum(-1 if turn % 2 else -2, keepdim=True) + hyper.eps)
        x = self.norm(torch.einsum("ts,tsh->th", reads, streams), f"{at}.{norm}")
        experts = self.model.experts
        assert experts is not None
        is_attention = inner == "attn_hc"
        given = self.attention(x, f"{at}.self_attn") if is_attention else self.experts(x, f"{at}.mlp", experts)
        return torch.einsum("tfs,tfh->tsh", mixes, streams) + gains[..., None] * given[:, None]


def spread(size: int) -> Tensor:
    """Hadamard's matrix: the sign of an element is the parity of the bits that its row and column share."""
    signs = [[(-1.0) ** (row & column).bit_count() for column in range(size)] for row in range(size)]
    return torch.tensor(signs) / size**0.5


def stepped(x: Tensor) -> Tensor:
    """Each head in whole steps of a 127th of its largest element."""
    step = x.abs().amax(-1, keepdim=True) / 127
    return (x / step).round() * step if x.numel() else x


def forward(model: Model, checkpoint: Checkpoint, tokens: list[int]) -> Tensor:
    """Logits [tokens, vocab] of one sequence."""
    hyper, whole = model.form.hyper, Streamed(model, checkpoint)
    assert hyper is not None
    embedded = whole.weight("model.embed_tokens.weight")[torch.tensor(tokens)]
    streams = embedded[:, None].repeat(1, hyper.streams, 1)
    for layer in range(model.layers):
        one = Streamed(replace(model.at(layer), layers=1), checkpoint, tokens=tuple(tokens))
        at = f"model.layers.{layer}"
        streams = one.around(streams, at, "attn_hc", "input_layernorm")
        streams = one.around(streams, at, "ffn_hc", "post_attention_layernorm")
    head = {name: whole.weight(f"model.hc_head.hc_{name}", torch.float32) for name in ("fn", "base", "scale")}
    reads = (whole.unit(streams.flatten(1)) @ head["fn"].T * head["scale"] + head["base"]).sigmoid() + hyper.eps
    hidden = whole.norm(torch.einsum("ts,tsh->th", reads, streams), "model.norm")
    return hidden @ whole.weight("lm_head.weight").T
