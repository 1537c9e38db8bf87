"""The shipped scenarios as parameters of a test: those that take seconds each to predict are left to `make slow`."""

from __future__ import annotations

import pytest

from scenarios.loader import shipped_names

#: Sixteen ranks that do unlike things, many experts, or long contexts with few layers alike.
SECONDS_EACH = (
    "deepseek_v3_ep16_decode",
    "deepseek_v3_2_ep16_long_context",
    "deepseek_v4_flash_ep16_long_context",
    "glm_4_5_air_ep8_decode",
    "gpt_oss_20b_long_context",
    "kimi_k2_w4a8_ep16_decode",
    "openpangu_pro_moe_ep8_decode",
    "qwen3_5_35b_tp2_long_context",
    "qwen3_32b_tp16_decode",
)
#: Cheap to predict once, not once for each piece of advice.
SECONDS_FOR_ADVICE = (*SECONDS_EACH, "llama_3_1_70b_tp4_pp2_decode", "qwen3_30b_a3b_decode")


def shipped(slow: tuple[str, ...] = SECONDS_EACH) -> list[object]:
    """Each shipped scenario's name, marked slow where it is in `slow`."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in slow)) for name in shipped_names()]
