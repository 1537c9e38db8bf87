"""Scaled-down models of each shipped family, prompts, runs, and a forward pass that knows no Program."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F

from device.backends import choose
from device.numerics import Run, generate
from device.runner import reference
from device.session import Options, Prompts, Session
from device.weights import Checkpoint, RandomCheckpoint
from scenarios.model import Model
from scenarios.schema import Scenario
from tests.scenarios.making import bare, switched

QWEN3 = Model(
    name="tiny-qwen3", model_type="qwen3", hidden=64, intermediate=96, layers=2, heads=4, kv_heads=2, head_dim=16,
    vocab=320, max_position=512, norm_eps=1e-6, rope_theta=10_000.0, tied_embeddings=True, qk_norm=True,
    qkv_bias=False, dtype="bf16",
)  # fmt: skip
QWEN2 = replace(QWEN3, name="tiny-qwen2", model_type="qwen2", qk_norm=False, qkv_bias=True, layers=3, head_dim=8)
LLAMA = replace(
    QWEN3, name="tiny-llama", model_type="llama", qk_norm=False, tied_embeddings=False, heads=8, kv_heads=8, head_dim=8,
    dtype="fp16",
)  # fmt: skip
FAMILIES = {"qwen3": QWEN3, "qwen2": QWEN2, "llama": LLAMA}

#: Three requests of two lengths; all begin alike.
LENGTHS = (40, 40, 33)
COMMON = 33
SIZES = {"workload__batch": 3, "workload__input_tokens": 40, "workload__output_tokens": 8}

ALL_FUSED = dict.fromkeys(
    ("fusion__rms_norm", "fusion__add_rms_norm", "fusion__rope", "fusion__swiglu", "fusion__attention", "fusion__qkv",
     "fusion__gate_up"), True,
)  # fmt: skip
REFERENCE, WIDE_REFERENCE = Options(choice=reference), Options(wide=True, choice=reference)


def plain(**switches: object) -> Scenario:
    """Every optimisation off but those given: plain(fusion__rope=True)."""
    return switched(bare(**SIZES), **switches)


def prompts(vocab: int = QWEN3.vocab, lengths: tuple[int, ...] = LENGTHS) -> list[list[int]]:
    """Seeded prompts whose first COMMON - 1 tokens are the same."""
    random = torch.Generator().manual_seed(7)
    common = torch.randint(0, vocab, (COMMON - 1,), generator=random).tolist()
    return [(common + torch.randint(0, vocab, (n,), generator=random).tolist())[:n] for n in lengths]


def session(made: Scenario, model: Model = QWEN3, options: Options | None = None) -> Session:
    if model.dtype == "fp16" and made.optimizations.weights == "bf16":
        made = switched(made, weights="fp16")
    return Session(made, model, choose("cpu"), RandomCheckpoint(model, 0), options=options)


def run(
    made: Scenario, model: Model = QWEN3, options: Options | None = None, steps: int = 4, forced: Run | None = None,
    given: Prompts | None = None,
) -> Run:  # fmt: skip
    """Prefill and `steps` decode steps; forced: on the tokens of another run, so that logits stay comparable."""
    return generate(session(made, model, options), given or prompts(), steps, forced.tokens if forced else None)


def forward(model: Model, checkpoint: Checkpoint, tokens: list[int]) -> torch.Tensor:
    """Logits [tokens, vocab] of one sequence, written from the architecture: no cache, no Program, float32."""

    def weight(name: str) -> torch.Tensor:
        return checkpoint.tensor(name).to(torch.float16 if model.dtype == "fp16" else torch.bfloat16).float()

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + model.norm_eps).sqrt() * weight(f"{name}.weight")

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        bias = model.qkv_bias and name[-6:] in ("q_proj", "k_proj", "v_proj")
        return x @ weight(f"{name}.weight").T + (weight(f"{name}.bias") if bias else 0)

    count, half = len(tokens), model.head_dim // 2
    angle = torch.arange(count)[:, None] * model.rope_theta ** (-torch.arange(half) / half)[None]
    turn = torch.polar(torch.ones_like(angle), angle)[:, None]

    def rotated(x: torch.Tensor) -> torch.Tensor:
        pairs = torch.complex(x[..., :half].contiguous(), x[..., half:].contiguous()) * turn
        return torch.cat((pairs.real, pairs.imag), -1)

    hidden = weight("model.embed_tokens.weight")[torch.tensor(tokens)]
    for layer in range(model.layers):
        at = f"model.layers.{layer}"
        x = norm(hidden, f"{at}.input_layernorm")
        q, k, v = (linear(x, f"{at}.self_attn.{p}_proj").view(count, -1, model.head_dim) for p in "qkv")
        if model.qk_norm:
            q, k = norm(q, f"{at}.self_attn.q_norm"), norm(k, f"{at}.self_attn.k_norm")
        q, k = rotated(q), rotated(k)
        seen = [h * model.kv_heads // model.heads for h in range(model.heads)]
        scores = torch.einsum("qhd,khd->hqk", q, k[:, seen]) / model.head_dim**0.5
        scores = scores.masked_fill(torch.ones(count, count).triu(1).bool(), float("-inf"))
        mixed = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v[:, seen]).reshape(count, -1)
        hidden = hidden + linear(mixed, f"{at}.self_attn.o_proj")
        x = norm(hidden, f"{at}.post_attention_layernorm")
        gated = F.silu(linear(x, f"{at}.mlp.gate_proj")) * linear(x, f"{at}.mlp.up_proj")
        hidden = hidden + linear(gated, f"{at}.mlp.down_proj")
    head = "model.embed_tokens" if model.tied_embeddings else "lm_head"
    return norm(hidden, "model.norm") @ weight(f"{head}.weight").T
