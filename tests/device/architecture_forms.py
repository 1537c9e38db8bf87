"""`architecture` for families whose layers differ: from papers and model cards, no cache, no Program, float32."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import exp, floor, log1p, log2

import torch
import torch.nn.functional as F

from device.weights.weights import PAIRED, Checkpoint
from scenarios.models.model import Experts, Latent, Model
from scenarios.models.states import GatedDelta, KimiDelta, Mamba2, ShortConv
from tests.device.architecture import Architecture

Tensor = torch.Tensor
#: What families call norms behind attention and MLP, and before the MLP where there is one behind attention too.
AFTER_BOTH = ("post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
NORMS = {"glm4": ("post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm")}


def slope(head: int, heads: int) -> float:
    """Of ALiBi's bias: 1/2, 1/4, ... for 8 heads, more finely for more; between powers of two the odd ones of twice as
    many."""
    power = 2 ** floor(log2(heads))
    if head < power:
        return float(0.5 ** (8 * (head + 1) / power))
    return float(0.5 ** (8 * (2 * (head - power) + 1) / (2 * power)))


@dataclass(frozen=True)
class Layered(Architecture):
    """One kind of layers with the weights of a checkpoint. lent: keys and values of the last layer, by what it sees.
    picked: the keys that layers with an indexer chose, the last one last."""

    lent: dict[tuple[int, int], tuple[Tensor, Tensor]] = field(default_factory=dict)
    picked: list[Tensor] = field(default_factory=list)

    def chosen(self, x: Tensor, low_query: Tensor, at: str, mla: Latent) -> Tensor:
        assert mla.index is not None
        if not mla.index.borrows:
            self.picked.append(super().chosen(x, low_query, at, mla))
        return self.picked[-1]

    def rotated(self, x: Tensor, in_pairs: bool) -> Tensor:
        return super().rotated(x, in_pairs) if self.model.attention.rotates else x

    def norm(self, x: Tensor, name: str) -> Tensor:
        if self.model.form.layer_norm and x.shape[-1] == self.model.hidden:
            x = x - x.mean(-1, keepdim=True)
        bias = self.weight(f"{name}.bias") if self.model.form.norm_bias else 0
        # 1 + weight is rounded once, as engines hand it to the fused norm.
        weight = (self.checkpoint.tensor(f"{name}.weight") + self.model.form.unit_offset).bfloat16().float()
        return x / (x.pow(2).mean(-1, keepdim=True) + self.model.norm_eps).sqrt() * weight + bias

    def affine(self, x: Tensor, name: str, bias: bool) -> Tensor:
        return x @ self.weight(f"{name}.weight").T + (self.weight(f"{name}.bias") if bias else 0)

    def attention(self, x: Tensor, at: str) -> Tensor:
        """x [tokens, hidden] -> what attention adds."""
        model, form, dim = self.model, self.model.attention, self.model.head_dim
        count = x.shape[0]
        if form.q_rank:
            low = self.norm(self.affine(x, f"{at}.q_a_proj", model.qkv_bias), f"{at}.q_a_layernorm")
            q = self.affine(low, f"{at}.q_b_proj", False).view(count, model.heads, -1)
        else:
            q = self.affine(x, f"{at}.q_proj", model.qkv_bias).view(count, model.heads, -1)
        gate = q[..., dim:]
        if form.gate in ("element", "head"):
            gate = self.affine(x, f"{at}.g_proj", False).view(count, model.heads, -1)
        q = q[..., :dim]
        seen = (form.window, form.chunk)
        names = [("q", "q_norm"), ("k", "k_norm")]
        if model.model_type.startswith("hunyuan"):
            names = [("q", "query_layernorm"), ("k", "key_layernorm")]
        if form.borrows:
            k, v, names = *self.lent[seen], names[:1]
        else:
            k = self.affine(x, f"{at}.k_proj", model.qkv_bias).view(count, -1, dim)
            v = k if form.keys_are_values else self.affine(x, f"{at}.v_proj", model.qkv_bias)
            v = v.view(count, model.kv_heads, -1) * form.value_scale
        for step in ("turn", "norm") if form.norm_last else ("norm", "turn"):
            if step == "norm" and model.qk_norm:
                both = {"q": q, "k": k}
                both |= {name: self.normed_heads(both[name], f"{at}.{norm}") for name, norm in names}
                q, k = both["q"], both["k"]
            if step == "turn" and form.rotates:
                part = model.rotated
                q, *rotated = (
                    torch.cat((self.rotated(y[..., :part], model.model_type in PAIRED), y[..., part:]), -1)
                    for y in (q, k)[: len(names)]
                )
                k = rotated[0] if rotated else k
        if form.value_norm and not form.borrows:
            v = v / (v.pow(2).mean(-1, keepdim=True) + model.norm_eps).sqrt()
        self.lent[seen] = k, v
        out = self.scored(q, k, v, at)
        if form.gate:
            out = out * gate.sigmoid()
        return self.affine(out.reshape(count, -1), f"{at}.o_proj", form.out_bias)

    def normed_heads(self, x: Tensor, name: str) -> Tensor:
        if self.model.qk_norm_of == "layer":
            return self.norm(x.flatten(1), name).view(x.shape)
        if self.model.qk_norm_of == "own":
            from_mean = x - x.mean(-1, keepdim=True)
            spread = (from_mean.pow(2).mean(-1, keepdim=True) + self.model.norm_eps).sqrt()
            return from_mean / spread * self.weight(f"{name}.weight")
        if self.model.attention.weightless:
            return x / (x.pow(2).mean(-1, keepdim=True) + self.model.norm_eps).sqrt()
        return self.norm(x, name)

    def scored(self, q: Tensor, k: Tensor, v: Tensor, at: str) -> Tensor:
        """Token by token and head by head, over the keys that the token sees."""
        form, group = self.model.attention, self.model.heads // self.model.kv_heads
        scale = form.scale or q.shape[-1] ** -0.5
        name = "attention_sink_bias" if self.model.model_type == "mimo_v2_flash" else "sinks"
        sinks = self.weight(f"{at}.{name}") if form.sinks else None
        out = torch.zeros((*q.shape[:2], v.shape[-1]))
        for token in range(q.shape[0]):
            first = 0
            if form.window:
                first = max(0, token - form.window + 1)
            if form.chunk:
                first = token // form.chunk * form.chunk
            for head in range(q.shape[1]):
                keys, values = (y[first : token + 1, head // group] for y in (k, v))
                scores = keys @ q[token, head] * scale
                if form.alibi:
                    scores = scores - slope(head, form.alibi) * torch.arange(token - first, -1, -1)
                if form.soft_cap:
                    scores = form.soft_cap * torch.tanh(scores / form.soft_cap)
                powers = (scores - scores.max()).exp()
                total = powers.sum()
                if sinks is not None:
                    total = total + (sinks[head] - scores.max()).exp()
                out[token, head] = (powers / total) @ values
        return out

    def held(self, x: Tensor, at: str) -> Tensor:
        """What a layer with a state adds."""
        match self.model.state:
            case KimiDelta() as state:
                return self.kimi(x, f"{at}.self_attn", state)
            case GatedDelta() as state:
                return self.delta(x, f"{at}.linear_attn", state)
            case Mamba2() as state:
                return self.mamba(x, f"{at}.mixer", state)
            case ShortConv() as state:
                before, behind, mixed = (x @ self.weight(f"{at}.conv.in_proj.weight").T).chunk(3, -1)
                filtered = self.convolved(before * mixed, f"{at}.conv.conv1d", state.kernel)
                return (behind * filtered) @ self.weight(f"{at}.conv.out_proj.weight").T
        raise AssertionError

    def convolved(self, x: Tensor, name: str, kernel: int, bias: Tensor | None = None) -> Tensor:
        filters = self.weight(f"{name}.weight")
        return F.conv1d(F.pad(x.T, (kernel - 1, 0))[None], filters[:, None], bias, groups=len(filters))[0].T

    def mamba(self, x: Tensor, at: str, state: Mamba2) -> Tensor:
        """Mamba-2, one head after the other."""
        shared = state.groups * state.state_dim
        packed = x @ self.weight(f"{at}.in_proj.weight").T
        gate, mixed, steps = packed.split((state.inner, state.channels, state.heads), -1)
        mixed = F.silu(self.convolved(mixed, f"{at}.conv1d", state.kernel, self.weight(f"{at}.conv1d.bias")))
        values, b, c = mixed.split((state.inner, shared, shared), -1)
        log_a, skip = (self.weight(f"{at}.{name}", torch.float32) for name in ("A_log", "D"))
        steps = F.softplus(steps + self.weight(f"{at}.dt_bias"))
        heads = []
        for head in range(state.heads):
            group = head * state.groups // state.heads
            of = slice(group * state.state_dim, (group + 1) * state.state_dim)
            own = values[:, head * state.head_dim : (head + 1) * state.head_dim]
            memory, rows = torch.zeros(state.state_dim, state.head_dim), []
            for token in range(x.shape[0]):
                step = float(steps[token, head])
                memory = memory * exp(-exp(float(log_a[head])) * step) + step * torch.outer(b[token, of], own[token])
                rows.append(c[token, of] @ memory + skip[head] * own[token])
            heads.append(torch.stack(rows))
        opened = torch.cat(heads, -1) * F.silu(gate)
        by_group = opened.view(len(x), state.groups, -1)
        normed = by_group / (by_group.pow(2).mean(-1, keepdim=True) + self.model.norm_eps).sqrt()
        return (normed.flatten(1) * self.weight(f"{at}.norm.weight")) @ self.weight(f"{at}.out_proj.weight").T

    def delta(self, x: Tensor, at: str, state: GatedDelta) -> Tensor:
        """The gated delta rule, one head after the other."""
        mixed = x @ self.weight(f"{at}.in_proj_qkv.weight").T
        z, b, a = (x @ self.weight(f"{at}.in_proj_{name}.weight").T for name in "zba")
        mixed = F.silu(self.convolved(mixed, f"{at}.conv1d", state.kernel))
        q, k, v = mixed.split((state.keys, state.keys, state.values), -1)
        log_a, bias = self.weight(f"{at}.A_log", torch.float32), self.weight(f"{at}.dt_bias")
        result = []
        for head in range(state.value_heads):
            of = head * state.key_heads // state.value_heads
            columns = slice(of * state.key_dim, (of + 1) * state.key_dim)
            queries, keys = (y[:, columns] / (y[:, columns].pow(2).sum(-1, keepdim=True) + 1e-6).sqrt() for y in (q, k))
            values = v[:, head * state.value_dim : (head + 1) * state.value_dim]
            memory, rows = torch.zeros(state.value_dim, state.key_dim), []
            for token in range(x.shape[0]):
                steps = log1p(exp(float(a[token, head] + bias[head])))
                memory = memory * exp(-exp(float(log_a[head])) * steps)
                wrong = values[token] - memory @ keys[token]
                memory = memory + b[token, head].sigmoid() * torch.outer(wrong, keys[token])
                rows.append(memory @ queries[token] / state.key_dim**0.5)
            result.append(torch.stack(rows))
        out = torch.stack(result, 1)
        out = out / (out.pow(2).mean(-1, keepdim=True) + self.model.norm_eps).sqrt() * self.weight(f"{at}.norm.weight")
        gated = out * F.silu(z.view(out.shape))
        return gated.flatten(1) @ self.weight(f"{at}.out_proj.weight").T

    def kimi(self, x: Tensor, at: str, state: KimiDelta) -> Tensor:
        """Kimi Delta Attention, one head after the other: a decay of each element of a key."""
        mixed = F.silu(self.convolved(x @ self.weight(f"{at}.in_proj_qkv.weight").T, f"{at}.conv1d", state.kernel))
        b = x @ self.weight(f"{at}.in_proj_b.weight").T
        a, gate = (
            x @ self.weight(f"{at}.in_proj_{name}_a.weight").T @ self.weight(f"{at}.in_proj_{name}_b.weight").T
            for name in "fg"
        )
        log_a, bias = self.weight(f"{at}.A_log", torch.float32), self.weight(f"{at}.dt_bias")
        dim, result = state.key_dim, []
        q, k, v = (part.unflatten(-1, (-1, dim)) for part in mixed.chunk(3, -1))
        for head in range(state.value_heads):
            columns = slice(head * dim, (head + 1) * dim)
            memory, rows = torch.zeros(dim, dim), []
            for token in range(x.shape[0]):
                query, key = (y[token, head] / (y[token, head].pow(2).sum() + 1e-6).sqrt() for y in (q, k))
                steps = (1 + (a[token, columns] + bias[columns]).exp()).log()
                memory = memory * (-exp(float(log_a[head])) * steps).exp()
                wrong = v[token, head] - memory @ key
                memory = memory + b[token, head].sigmoid() * torch.outer(wrong, key)
                rows.append(memory @ query / dim**0.5)
            out = torch.stack(rows)
            out = out / (out.pow(2).mean(-1, keepdim=True) + self.model.norm_eps).sqrt()
            result.append(out * self.weight(f"{at}.norm.weight") * gate[:, columns].sigmoid())
        return torch.cat(result, -1) @ self.weight(f"{at}.out_proj.weight").T

    def activated(self, x: Tensor, at: str, kind: str, limit: float, bias: bool) -> Tensor:
        """An MLP of any kind."""
        up = self.affine(x, f"{at}.up_proj", bias)
        below_bias = bias or (self.model.form.down_bias and ".experts" not in at)
        if kind == "gelu_alone":
            return self.affine(F.gelu(up, approximate="tanh"), f"{at}.down_proj", bias)
        if kind == "xielu":
            learned = (self.weight(f"{at}.act_fn.alpha_{part}", torch.float32) for part in "pn")
            above, below = (log1p(exp(float(number))) for number in learned)
            rounded = torch.tensor([above, below + 0.5]).bfloat16().float()
            high = rounded[0] * up**2 + 0.5 * up
            low = rounded[1] * (up.clamp(max=-1e-6).exp() - 1 - up) + 0.5 * up
            return self.affine(torch.where(up > 0, high, low), f"{at}.down_proj", below_bias)
        if kind == "relu2":
            return self.affine(up.relu() ** 2, f"{at}.down_proj", bias)
        gate = self.affine(x, f"{at}.gate_proj", bias)
        if kind == "capped":
            inner = F.silu(gate).clamp(max=limit) * up.clamp(-limit, limit)
        elif kind == "limited":
            inner = F.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)
        elif kind == "clamped":
            gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
            inner = gate * (1.702 * gate).sigmoid() * (up + 1)
        else:
            inner = (F.silu(gate) if kind == "silu" else F.gelu(gate, approximate="tanh")) * up
        return self.affine(inner, f"{at}.down_proj", below_bias)

    def experts(self, x: Tensor, at: str, experts: Experts, routed: Tensor | None = None) -> Tensor:
        """Token by token, the best experts by the router's scores."""
        router = {"gpt_oss": "router", "hunyuan_v1_moe": "gate.wg"}.get(self.model.model_type, "gate")
        logits = self.affine(x, f"{at}.{router}", experts.router_bias) if routed is None else routed
        scores = logits.sigmoid() if experts.score == "sigmoid" else logits.softmax(-1)
        bias = self.weight(f"{at}.gate.e_score_correction_bias", torch.float32) if experts.moves_choice else 0
        scales = torch.ones(experts.count)
        if experts.with_plain:
            scales = self.weight(f"{at.removesuffix('.mlp')}.router.per_expert_scale", torch.float32)
        elif experts.scales_choice:
            scales = self.weight(f"{at}.router_scale", torch.float32).flatten()
        about = experts.activation, experts.limit, experts.bias
        whole = x
        if experts.latent:
            x = self.affine(x, f"{at}.fc1_latent_proj", False)
        out = torch.zeros_like(x)
        for token, row in enumerate(scores):
            chosen = (row + bias).argsort(descending=True)[: experts.top_k]
            if experts.one_per_group:
                each = experts.count // experts.top_k
                chosen = torch.stack([part.argmax() + place * each for place, part in enumerate(row.split(each))])
            weights = row[chosen] / (row[chosen].sum() if experts.normalised else 1) * scales[chosen]
            for weight, expert in zip(weights * experts.factor, chosen.tolist(), strict=True):
                read = x[token : token + 1] * (weight if experts.weighs_input else 1)
                given = self.activated(read, f"{at}.experts.{expert}", *about)[0]
                out[token] += given * (1 if experts.weighs_input else weight)
        if experts.latent:
            out, x = self.affine(out, f"{at}.fc2_latent_proj", False), whole
        if experts.shared:
            single = experts.shared_gate or self.model.model_type == "PanguProMoE"
            name = "shared_expert" if single else "shared_experts"
            shared = self.activated(x, f"{at}.{name}", *experts.shared_activation, experts.bias)
            out += (
                shared * self.affine(x, f"{at}.shared_expert_gate", False).sigmoid() if experts.shared_gate else shared
            )
        return out

    def layer(self, hidden: Tensor, at: str) -> Tensor:
        model, form = self.model, self.model.form
        behind, before_mlp, after_mlp = NORMS.get(model.model_type, AFTER_BOTH)
        if form.attends:
            x = self.norm(hidden, f"{at}.input_layernorm") if form.pre_norms else hidden
            mixed = self.mixed(x, at)
            if form.post_norms:
                mixed = self.norm(mixed, f"{at}.{behind}")
            before = hidden
            hidden = hidden + mixed * form.residual_scale
        if not form.has_mlp:
            return hidden
        x = hidden
        if form.pre_norms:
            behind = before_mlp if form.post_norms else "post_attention_layernorm"
            x = (
                self.norm(hidden, f"{at}.{behind if form.attends else 'input_layernorm'}")
                if not form.parallel
                else (self.norm(before, f"{at}.input_layernorm"))
            )
        about = form.activation, form.limit, form.mlp_bias
        if model.experts and model.experts.with_plain:
            wide = self.alongside(hidden, self.activated(x, f"{at}.mlp", *about), at, model.experts)
        elif model.experts:
            wide = self.experts(x, f"{at}.mlp", model.experts)
        else:
            wide = self.activated(x, f"{at}.mlp", *about)
        if form.post_norms:
            wide = self.norm(wide, f"{at}.{after_mlp}")
        hidden = hidden + wide * form.residual_scale
        return hidden * self.weight(f"{at}.layer_scalar") if form.layer_scale else hidden

    def mixed(self, x: Tensor, at: str) -> Tensor:
        """What attention, or what stands in its place, adds."""
        if self.model.state:
            return self.held(x, at)
        if self.model.latent:
            return self.linear(self.latent(x, f"{at}.self_attn"), f"{at}.self_attn.o_proj")
        return self.attention(x, f"{at}.self_attn")

    def alongside(self, hidden: Tensor, dense: Tensor, at: str, experts: Experts) -> Tensor:
        """Gemma 4: experts over the residual, next to a plain MLP."""
        normed = hidden / (hidden.pow(2).mean(-1, keepdim=True) + self.model.norm_eps).sqrt()
        scale = (self.checkpoint.tensor(f"{at}.router.scale") * hidden.shape[-1] ** -0.5).bfloat16().float()
        routed = (normed * scale) @ self.weight(f"{at}.router.proj.weight").T
        read = self.norm(hidden, f"{at}.pre_feedforward_layernorm_2")
        given = self.experts(read, f"{at}.mlp", experts, routed)
        return self.norm(dense, f"{at}.post_feedforward_layernorm_1") + self.norm(
            given, f"{at}.post_feedforward_layernorm_2"
        )


def forward(model: Model, checkpoint: Checkpoint, tokens: list[int]) -> Tensor:
    """Logits [tokens, vocab] of one sequence."""
    whole = Layered(model, checkpoint)
    hidden = whole.weight("model.embed_tokens.weight")[torch.tensor(tokens)] * model.ends.embed_scale
    lent: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
    picked: list[Tensor] = []
    for layer in range(model.layers):
        one = replace(model.at(layer), layers=1)
        if not model.kinds and model.experts and layer < model.dense_layers:
            one = replace(one, experts=None)
        hidden = Layered(one, checkpoint, lent, picked).layer(hidden, f"model.layers.{layer}")
    head = "model.embed_tokens" if model.tied_embeddings else "lm_head"
    logits = whole.norm(hidden, "model.norm") @ whole.weight(f"{head}.weight").T * model.ends.logit_scale
    cap = model.ends.logit_cap
    return cap * torch.tanh(logits / cap) if cap else logits
