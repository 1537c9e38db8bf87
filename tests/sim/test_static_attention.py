"""Decode attention over a static cache, by hand: start, tasks, keys, scores, combining, and what HBM gives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scenarios.ops.program import Group
from scenarios.ops.work import AttentionShape, Work
from sim.hardware.profile import load_hardware
from sim.kernel.price import price
from sim.kernel.static_attention import score_ns, static_tiling

HW = load_hardware("atlas_a2_910b2")
PARAMS, MEMORY = HW.programs["static_attention"], HW.memory
#: K and V of one key of one head, 16 bit.
KEY_BYTES = 2 * 128 * 2


def shape(tokens: int, kv_heads: int = 2, heads: int = 16, requests: int = 1) -> AttentionShape:
    return AttentionShape((Group(requests, 1, 10),), heads, kv_heads, 128, "bf16", 0, tokens)


def ns(of: AttentionShape) -> int:
    size = of.groups[0].count * of.static_tokens * of.kv_heads * KEY_BYTES
    return price(Work("mix", of, 0, 0, size, 0, 0, "attention"), HW).duration_ns


def task_ns(keys: int, gbps: float) -> float:
    return 1000 * PARAMS.row_us + keys * (KEY_BYTES / gbps + 256 * PARAMS.element_ns)


def test_few_heads_take_one_task_a_cube() -> None:
    # 2 KV heads of 8 queries each, 1,024 keys: two cores, nothing is cut, and 8 x 1,024 scores are weighed at the end.
    tail = 8 * 1024 * score_ns(HW)
    assert ns(shape(1024)) == pytest.approx(1000 * PARAMS.fixed_us + task_ns(1024, MEMORY.core_kv_gbps) + tail, abs=1)


def test_a_score_passes_l2_and_twelve_instructions() -> None:
    # 6 bytes at 155 and at 198 GB/s; 12 instructions of 64 elements, 1.28 cycles of 1.8 GHz each.
    assert score_ns(HW) == pytest.approx(6 / 155 + 6 / 198 + 12 * 1.28 / 1.8 / 64)


def test_fewer_queries_a_head_end_sooner() -> None:
    assert ns(shape(1024, heads=16)) - ns(shape(1024, heads=4)) == pytest.approx(6 * 1024 * score_ns(HW), abs=1)


def test_a_prefetched_cache_is_read_at_the_rate_of_l2() -> None:
    cold = shape(1024)
    saved = 1024 * KEY_BYTES * (1 / MEMORY.core_kv_gbps - 1 / MEMORY.core_l2_gbps)
    assert ns(cold) - ns(replace(cold, cache_prefetched=True)) == pytest.approx(saved, abs=1)


def test_parts_are_combined() -> None:
    # From 2,048 keys on each of 2 heads is cut into 4 of 512 keys; two workers share a cube.
    assert static_tiling(shape(2048), HW).parts == 4
    tail = 8 * 512 * score_ns(HW)
    expected = 1000 * (PARAMS.fixed_us + PARAMS.combine_us) + 2 * task_ns(512, MEMORY.core_kv_gbps) + tail
    assert ns(shape(2048)) == pytest.approx(expected, abs=1)


def test_no_prefetch_makes_hbm_faster() -> None:
    # 8 heads: 4,096 more keys are 16.8 MB more, and what each of 6 parts has more of is weighed.
    rate = MEMORY.vector_hbm_share * MEMORY.hbm_gbps
    short, long = (replace(shape(tokens, kv_heads=8), cache_prefetched=True) for tokens in (12_288, 18_432))
    scores = 2 * 1024 * score_ns(HW)
    assert ns(long) - ns(short) == pytest.approx(8 * 6144 * KEY_BYTES / rate + scores, abs=2)


def test_8_bit_caches_are_half_the_bytes_and_unpacked() -> None:
    plain, packed = ns(shape(1024)), ns(replace(shape(1024), kv_dtype="int8"))
    unpacking = 1024 * 256 * 3 * 1.28 / 1.8 / 64 / 2
    assert plain - packed == pytest.approx(1024 * KEY_BYTES / 2 / MEMORY.core_kv_gbps - unpacking, abs=1)
