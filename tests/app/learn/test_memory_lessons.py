"""The claims on the KV cache: paging wastes less, bytes of a token stay, INT8 halves them at an error with a cause."""

import pytest

from app_pages.learn.kv import experiment as kv_cache
from app_pages.learn.kv.experiment import Traffic, play

TOKENS, BLOCK = 8192, 128


def test_pages_run_more_requests_in_fewer_steps() -> None:
    rows = play("contiguous", TOKENS, BLOCK, Traffic(), 5000)
    pages = play("paged", TOKENS, BLOCK, Traffic(), 5000)
    assert max(f.running for f in pages) > max(f.running for f in rows)
    assert len(pages) < len(rows)
    assert rows[-1].finished == pages[-1].finished == 23  # the last one is gone after the last frame


@pytest.mark.parametrize("layout", ["contiguous", "paged"])
@pytest.mark.parametrize("common", [0, 256])
def test_frames_add_up(layout: kv_cache.Layout, common: int) -> None:
    for frame in play(layout, TOKENS, BLOCK, Traffic(common_tokens=common), 5000):
        owned = [cell for cell in frame.cells if cell[0] >= 0]
        assert frame.reserved_tokens == len(owned) * BLOCK <= TOKENS
        assert all(0 <= filled <= 1 for _, _, filled in frame.cells)
        filled_tokens = round(sum(filled * holders for _, holders, filled in owned) * BLOCK)
        assert filled_tokens == frame.used_tokens
        assert frame.running + frame.waiting + frame.finished == 24


def test_a_shared_prefix_is_held_once() -> None:
    frames = play("paged", TOKENS, BLOCK, Traffic(common_tokens=256), 5000)
    shared = max(frames, key=lambda f: f.running)
    assert max(holders for _, holders, _ in shared.cells) > 2
    assert shared.used_tokens > TOKENS  # more tokens than the cache could hold apart


def test_a_cache_that_holds_no_request_has_no_frame() -> None:
    assert play("contiguous", 256, BLOCK, Traffic()) == ()


def test_the_same_seed_gives_the_same_frames() -> None:
    assert play("paged", TOKENS, BLOCK, Traffic(seed=3)) == play("paged", TOKENS, BLOCK, Traffic(seed=3))
    assert play("paged", TOKENS, BLOCK, Traffic(seed=3)) != play("paged", TOKENS, BLOCK, Traffic(seed=4))


def test_paging_changes_no_byte_of_a_token_and_int8_halves_them() -> None:
    result = {(c.layout, c.dtype): c for c in kv_cache.capacities("Qwen3-8B", "atlas_a2_910b2", 1024, 1024)}
    assert result["paged", "auto"].token_bytes == result["contiguous", "auto"].token_bytes == 2 * 36 * 8 * 128 * 2
    assert result["paged", "int8"].token_bytes * 2 == result["paged", "auto"].token_bytes
    assert result["paged", "auto"].max_requests > 3 * result["contiguous", "auto"].max_requests
    assert result["paged", "int8"].max_requests > 1.9 * result["paged", "auto"].max_requests


def test_scales_of_channels_withstand_strong_channels() -> None:
    plain = {q.scale: q for q in kv_cache.quantised(512, 128, outlier=1)}
    strong = {q.scale: q for q in kv_cache.quantised(512, 128, outlier=50)}
    assert strong["channel"].output_error < 1.5 * plain["channel"].output_error < 0.03
    assert strong["token"].output_error > 5 * plain["token"].output_error
    assert strong["head"].output_error > strong["token"].output_error
    assert all(q.token_bytes < 0.6 * 2 * 2 * 128 for q in plain.values())
