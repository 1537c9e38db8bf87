"""Rotary angles of a config.json: the base, the scaling for long contexts, and how much of a head turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from scenarios.errors import shown
from scenarios.models.fields import Fields
from scenarios.models.model import RopeScaling


def rotary_dim(read: Fields, rope: Fields, head_dim: int) -> int:
    """Dimensions of a head that are rotated: `rotary_dim` itself, or a `partial_rotary_factor` of the head."""
    if rope.fields.get("rope_type") == "proportional":
        return head_dim
    if "rotary_dim" in read.fields:
        rotary = read.whole("rotary_dim", head_dim, most=4096)
        if not read.problems and (not 2 <= rotary <= head_dim or rotary % 2):
            read.wrong(f"rotary_dim: {rotary} of head_dim {head_dim} is no even number of dimensions")
        return rotary
    where = rope if "partial_rotary_factor" in rope.fields else read
    share = where.number("partial_rotary_factor", 1.0)
    rotary = round(head_dim * share)
    if not read.problems and (not 2 <= rotary <= head_dim or rotary % 2):
        where.wrong(f"partial_rotary_factor: {share:g} of head_dim {head_dim} is no even number of dimensions")
    return rotary


def rope_of(read: Fields) -> Fields:
    """What the config says of its rotary angles: `rope_scaling`, or `rope_parameters` as newer configs have it."""
    key = "rope_scaling" if read.fields.get("rope_scaling") is not None else "rope_parameters"
    fields = read.fields.get(key)
    if fields is not None and not isinstance(fields, dict):
        read.wrong(f"{key}: must be a mapping, got {shown(fields)}")
    return replace(read, fields=fields if isinstance(fields, dict) else {}, inside=f"{key}.")


def rope_scaling(read: Fields, rope: Fields) -> RopeScaling | None:
    """The scaling of rotary angles, None where there is none. A kind that is not computed is kept by its name.

    Multimodal sections (`mrope_section`) turn tokens of text as plain angles do: their three positions are one.
    """
    kind = rope.fields.get("rope_type", rope.fields.get("type", "default"))
    kind = kind.removeprefix("telechat3-") if isinstance(kind, str) else kind
    if not isinstance(kind, str):
        rope.wrong(f"rope_type: must be a name, got {shown(kind)}")
    if not isinstance(kind, str) or kind in ("default", "mrope"):
        return None
    details = _DETAILS.get(kind)
    return details(read, rope, RopeScaling(kind)) if details else RopeScaling(kind)


def _proportional(_: Fields, rope: Fields, scaling: RopeScaling) -> RopeScaling:
    """Gemma 4: pairs of the whole head, of which the first turn."""
    return replace(scaling, factor=rope.number("partial_rotary_factor", 1.0))


def _linear(read: Fields, rope: Fields, scaling: RopeScaling) -> RopeScaling:
    """A factor, and the positions that it stretches."""
    if "factor" not in rope.fields:
        rope.wrong(f"factor: is due for {scaling.kind}")
    positions = read.fields.get("max_position_embeddings", 1)
    return replace(
        scaling,
        factor=rope.number("factor", 1.0),
        original_positions=rope.whole(
            "original_max_position_embeddings", positions if isinstance(positions, int) else 1
        ),
    )


def _llama3(read: Fields, rope: Fields, scaling: RopeScaling) -> RopeScaling:
    scaling = _linear(read, rope, scaling)
    low, high = rope.number("low_freq_factor", 1.0), rope.number("high_freq_factor", 4.0)
    if not read.problems and low > high:
        rope.wrong(f"low_freq_factor {low:g} must not be above high_freq_factor {high:g}")
    return replace(scaling, low_factor=low, high_factor=high)


def _yarn(read: Fields, rope: Fields, scaling: RopeScaling) -> RopeScaling:
    """Equal betas are a step from one dimension to the next (Kimi-K2 has 1 and 1)."""
    scaling = _linear(read, rope, scaling)
    fast, slow = rope.number("beta_fast", 32.0, or_none=True), rope.number("beta_slow", 1.0, or_none=True)
    if not read.problems and slow > fast:
        rope.wrong(f"beta_slow {slow:g} must not be above beta_fast {fast:g}")
    theta = rope.fields.get("rope_theta", read.fields.get("rope_theta", 10_000.0))
    if not read.problems and isinstance(theta, int | float) and theta <= 1:
        rope.wrong(f"yarn needs a rope_theta above 1, got {shown(theta)}")
    return replace(
        scaling,
        beta_fast=fast,
        beta_slow=slow,
        truncated=rope.flag("truncate", True),
        mscale=rope.number("mscale", 1.0, or_none=True),
        mscale_all_dim=rope.number("mscale_all_dim", 0.0, or_none=True),
        attention_factor=rope.number("attention_factor", 0.0, or_none=True) or None,
    )


#: What a config says of each kind that is computed.
_DETAILS: dict[str, Callable[[Fields, Fields, RopeScaling], RopeScaling]] = {
    "proportional": _proportional,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
}
