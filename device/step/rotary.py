"""Rotary angles: the frequency of each pair of dimensions, scaled for long contexts as a model's config asks.

linear divides all frequencies. llama3 (Llama 3.1) keeps short wavelengths, divides long ones and goes over smoothly in
between. yarn (arXiv:2309.00071, as DeepSeek-V3 and transformers compute it) goes over between two dimensions, and lets
cosines and sines grow with the logarithm of the factor; DeepSeek has that growth in the scale of its scores.
"""

from __future__ import annotations

from math import ceil, floor, log, pi

import torch

from scenarios.errors import ScenarioError, printable
from scenarios.models.model import Model, RopeScaling

#: Kinds of scaling that are computed here.
LINEAR, LLAMA3, YARN, PROPORTIONAL = COMPUTED = ("linear", "llama3", "yarn", "proportional")


def refuse_scaling(model: Model) -> None:
    """Raise ScenarioError, one line, where the config asks for angles that are not computed here."""
    for one in model.turns.values():
        if one.rope_scaling and one.rope_scaling.kind not in COMPUTED:
            kind = printable(one.rope_scaling.kind, 40)
            what = f"rope_scaling of type {kind} is not computed here, only {', '.join(COMPUTED)}"
            raise ScenarioError([f"{model.name}: {what}"])


def frequencies(model: Model) -> torch.Tensor:
    """Radians a position of each rotated pair, [rotated / 2] in float32."""
    half = torch.arange(0, model.rotated, 2, dtype=torch.float32) / model.rotated
    plain = 1.0 / model.rope_theta**half
    scaling = model.rope_scaling
    if scaling is None:
        return plain
    if scaling.kind == PROPORTIONAL:  # the first pairs of the head turn, the others stand still
        turning = torch.arange(model.rotated // 2) < scaling.factor * model.rotated / 2
        return plain * turning
    if scaling.kind == LINEAR:
        return plain / scaling.factor
    kept = _kept_by_yarn(scaling, model) if scaling.kind == YARN else _kept_by_llama3(scaling, plain)
    return plain * kept + plain / scaling.factor * (1 - kept)


def _kept_by_llama3(scaling: RopeScaling, plain: torch.Tensor) -> torch.Tensor:
    """The part of each frequency that is not divided: 1 for more than high_factor turns over the original positions, 0
    for fewer than low_factor."""
    turns = scaling.original_positions * plain / (2 * pi)
    # Equal factors (Llama 4 Scout) are a step.
    return ((turns - scaling.low_factor) / max(scaling.high_factor - scaling.low_factor, 1e-9)).clamp(0, 1)


def _kept_by_yarn(scaling: RopeScaling, model: Model) -> torch.Tensor:
    """The same of yarn: it falls along the dimensions, from the one of beta_fast turns to the one of beta_slow."""
    first, last = (_dimension_of(turns, scaling, model) for turns in (scaling.beta_fast, scaling.beta_slow))
    if scaling.truncated:
        first, last = floor(first), ceil(last)
    first, last = max(first, 0), min(last, model.rotated - 1)
    pairs = torch.arange(model.rotated // 2, dtype=torch.float32)
    return 1 - ((pairs - first) / max(last - first, 0.001)).clamp(0, 1)


def _dimension_of(turns: float, scaling: RopeScaling, model: Model) -> float:
    """The pair that turns so often over the original positions: theta^(2 i / rotated) = positions / (2 pi turns)."""
    return model.rotated * log(scaling.original_positions / (turns * 2 * pi)) / (2 * log(model.rope_theta))


def _growth(factor: float, by: float) -> float:
    return 0.1 * by * log(factor) + 1.0 if factor > 1 else 1.0


def angle_scale(model: Model) -> float:
    """What cosines and sines are multiplied by."""
    scaling = model.rope_scaling
    if scaling is None or scaling.kind != YARN:
        return 1.0
    if scaling.attention_factor is not None:
        return scaling.attention_factor
    return _growth(scaling.factor, scaling.mscale) / _growth(scaling.factor, scaling.mscale_all_dim)


def latent_scale(model: Model) -> float:
    """What the scores of latent attention are multiplied by before the softmax."""
    assert model.latent is not None
    plain: float = (model.latent.nope_dim + model.latent.rope_dim) ** -0.5
    scaling = model.rope_scaling
    return plain * _growth(scaling.factor, scaling.mscale_all_dim) ** 2 if scaling and scaling.kind == YARN else plain
