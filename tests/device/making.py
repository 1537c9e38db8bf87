"""Scaled-down models of each shipped family, prompts and runs."""

from __future__ import annotations

from dataclasses import replace

import torch

from device.backends import choose
from device.measure.numerics import Run, generate
from device.operators.reference import reference
from device.run.session import Options, Prompts, Session
from device.weights.weights import RandomCheckpoint
from scenarios.models.model import Experts, Index, Latent, Model, RopeScaling
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
    dtype="fp16", rope_scaling=RopeScaling("llama3", 8.0, 64, 1.0, 4.0),
)  # fmt: skip
#: Behind one dense layer eight experts of which each token takes two; the other has a shared one, groups and MLA.
QWEN3_MOE = replace(
    QWEN3,
    name="tiny-qwen3-moe",
    model_type="qwen3_moe",
    layers=3,
    tied_embeddings=False,
    experts=Experts(8, 8, 2, 32, 0, 1, "softmax", scaled=False),
)
GLM = replace(
    QWEN3_MOE,
    name="tiny-glm",
    model_type="glm4_moe",
    qk_norm=False,
    qkv_bias=True,
    rotary_dim=8,
    experts=Experts(8, 8, 2, 32, 32, 1, "sigmoid", scaled=False),
)
DEEPSEEK = replace(
    QWEN3_MOE,
    name="tiny-deepseek",
    model_type="deepseek_v3",
    qk_norm=False,
    kv_heads=1,
    head_dim=8,
    latent=Latent(q_rank=24, kv_rank=32, nope_dim=16, rope_dim=8, v_dim=12),
    experts=Experts(8, 8, 2, 32, 48, 1, "sigmoid", scaled=True, factor=2.5, groups=4, kept_groups=2),
    rope_scaling=RopeScaling("yarn", 40.0, 256, mscale=1.0, mscale_all_dim=1.0),
)
#: Each token attends to 12 of the keys that it sees, which are up to 48. Of so many heads some score is above zero: no
#: two keys are as good.
SPARSE = replace(
    DEEPSEEK,
    name="tiny-sparse",
    model_type="deepseek_v32",
    latent=Latent(q_rank=24, kv_rank=32, nope_dim=16, rope_dim=8, v_dim=12, index=Index(16, 16, 12, in_pairs=True)),
)
LITE = replace(
    DEEPSEEK,
    name="tiny-lite",
    model_type="deepseek_v2",
    latent=Latent(0, 32, 16, 8, 12),
    experts=Experts(8, 8, 2, 32, 48, 1, "softmax", scaled=False, normalised=False),
    rope_scaling=None,
)
MIXTRAL = replace(
    QWEN3_MOE,
    name="tiny-mixtral",
    model_type="mixtral",
    qk_norm=False,
    experts=Experts(8, 8, 2, 32, 0, 0, "softmax", scaled=False),
)
MINIMAX = replace(
    QWEN3_MOE,
    name="tiny-minimax",
    model_type="minimax_m2",
    qk_norm_of="layer",
    rotary_dim=8,
    experts=Experts(8, 8, 2, 32, 0, 0, "sigmoid", scaled=False),
)
WITH_EXPERTS = {
    "qwen3_moe": QWEN3_MOE, "glm": GLM, "deepseek": DEEPSEEK, "lite": LITE, "mixtral": MIXTRAL, "minimax": MINIMAX,
    "sparse": SPARSE,
}  # fmt: skip
FAMILIES = {"qwen3": QWEN3, "qwen2": QWEN2, "llama": LLAMA}

#: Three requests of two lengths; all start alike.
LENGTHS = (40, 40, 33)
COMMON = 33
SIZES = {"workload__batch": 3, "workload__input_tokens": 40, "workload__output_tokens": 8}

ALL_FUSED = dict.fromkeys(
    (
        "fusion__rms_norm",
        "fusion__add_rms_norm",
        "fusion__rope",
        "fusion__swiglu",
        "fusion__attention",
        "fusion__qkv",
        "fusion__gate_up",
    ),
    True,
)
REFERENCE, WIDE_REFERENCE = Options(choice=reference), Options(wide=True, choice=reference)


def plain(about: Model = QWEN3, **switches: object) -> Scenario:
    """Every optimisation off but those given: plain(fusion__rope=True). Experts run one by one."""
    return switched(bare(about, **SIZES), **switches)


def prompts(vocab: int = QWEN3.vocab, lengths: tuple[int, ...] = LENGTHS) -> list[list[int]]:
    """Seeded prompts whose first COMMON - 1 tokens are the same."""
    random = torch.Generator().manual_seed(7)
    common = torch.randint(0, vocab, (COMMON - 1,), generator=random).tolist()
    return [(common + torch.randint(0, vocab, (n,), generator=random).tolist())[:n] for n in lengths]


def session(scenario: Scenario, model: Model = QWEN3, options: Options | None = None) -> Session:
    if model.dtype == "fp16" and scenario.optimizations.weights == "bf16":
        scenario = switched(scenario, weights="fp16")
    return Session(scenario, model, choose("cpu"), RandomCheckpoint(model, 0), options=options)


def run(
    scenario: Scenario,
    model: Model = QWEN3,
    options: Options | None = None,
    steps: int = 4,
    forced: Run | None = None,
    given: Prompts | None = None,
) -> Run:
    """Prefill and `steps` decode steps; forced: on the tokens of another run, so that logits stay comparable."""
    return generate(session(scenario, model, options), given or prompts(), steps, forced.tokens if forced else None)


class Alike:
    """A group of two ranks that hold the same: the other one's part is this one's. Sums come in place, as NCCL's do."""

    rank, ranks = 0, 2

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2)

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack((x, x))

    def reduce_scatter(self, x: torch.Tensor) -> torch.Tensor:
        return x.chunk(2)[0] * 2
