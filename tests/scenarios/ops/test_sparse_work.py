"""Work of sparse attention and its indexer, by hand."""

from __future__ import annotations

import pytest

from scenarios.ops.attention_work import _selected_keys
from scenarios.ops.catalogue import work_of
from scenarios.ops.program import Group, Op, Tensor

HEADS, RANK, ROPE, TOP_K = 4, 8, 2, 16


def attention(group: tuple[int, int, int]) -> Op:
    tokens = group[0] * group[1]
    query = Tensor("q", (tokens, HEADS, RANK), "bf16"), Tensor("r", (tokens, HEADS, ROPE), "bf16")
    caches = tuple(Tensor(n, (1, 99, 1, width), "bf16", "kv_cache") for n, width in (("latent", RANK), ("rope", ROPE)))
    attrs = (("groups", (group,)), ("heads", HEADS), ("kv_heads", 1), ("head_dim", RANK + ROPE), ("block_size", 0),
             ("latent", True), ("top_k", TOP_K))  # fmt: skip
    chosen = Tensor("selected", (tokens, TOP_K), "int32")
    return Op("attention", "attention", (*query, *caches, chosen), (query[0],), attrs)


@pytest.mark.parametrize(
    ("group", "keys"),
    [
        (Group(1, 1, 99), 16),  # decode: 100 keys are there, 16 are taken
        (Group(1, 1, 9), 10),  # fewer keys than top_k
        (Group(1, 20, 0), 136 + 4 * 16),  # 1 + 2 + ... + 16, then 16 each
        (Group(1, 4, 14), 15 + 16 + 16 + 16),
    ],
)
def test_keys_that_queries_take(group: Group, keys: int) -> None:
    assert _selected_keys(group, TOP_K) == keys


def test_a_decode_step_reads_the_taken_rows_and_no_more() -> None:
    work = work_of(attention((3, 1, 99)))
    assert work.cold_read_bytes == 3 * TOP_K * (RANK + ROPE) * 2
    assert work.cube_flops == 4 * (RANK + ROPE) * HEADS * 3 * TOP_K


def test_a_prefill_reads_each_row_from_hbm_once() -> None:
    work = work_of(attention((1, 64, 0)))
    assert work.cold_read_bytes == 64 * (RANK + ROPE) * 2
    assert work.cube_flops == 4 * (RANK + ROPE) * HEADS * (136 + 48 * TOP_K)


def test_the_indexer_scores_all_keys() -> None:
    query, weights = Tensor("q", (3, 4, 8), "bf16"), Tensor("w", (3, 4), "bf16")
    cache = Tensor("index_cache", (3, 100, 1, 8), "bf16", "kv_cache")
    attrs = (("groups", ((3, 1, 99),)), ("heads", 4), ("head_dim", 8), ("top_k", 16), ("block_size", 0))
    work = work_of(Op("lightning_indexer", "i", (query, weights, cache), (Tensor("s", (3, 16), "int32"),), attrs))
    assert work.cold_read_bytes == 3 * 100 * 8 * 2
    assert work.cube_flops == 2 * 8 * 4 * 300
