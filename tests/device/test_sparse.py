"""Sparse attention: fused forms compute what plain ones do, and each query attends to its own keys alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from device.run.session import Options
from tests.device.making import ALL_FUSED, SPARSE, WIDE_REFERENCE, plain, run

FUSED = {**ALL_FUSED, "fusion__moe_routing": True, "fusion__grouped_matmul": True, "kv__layout": "paged"}


@pytest.mark.parametrize("more", [{}, {"fusion__qkv_norm_rope_cache": True}], ids=["fused", "rope and cache in one"])
def test_fused_forms_compute_what_the_plain_one_does(more: dict[str, object]) -> None:
    true = run(plain(SPARSE), SPARSE, WIDE_REFERENCE, steps=2)
    done = run(plain(SPARSE, kv__block_size=16, **FUSED, **more), SPARSE, WIDE_REFERENCE, steps=2, forced=true)
    assert ((done.logits - true.logits).norm() / true.logits.norm()).item() < 1e-5


def test_with_as_many_keys_as_there_are_it_is_full_attention() -> None:
    assert SPARSE.latent is not None
    assert SPARSE.latent.index is not None
    wide = replace(SPARSE, latent=replace(SPARSE.latent, index=replace(SPARSE.latent.index, top_k=64)))
    full = replace(SPARSE, latent=replace(SPARSE.latent, index=None))
    all_keys, plain_keys = (run(plain(m), m, WIDE_REFERENCE, steps=1) for m in (wide, full))
    torch.testing.assert_close(all_keys.logits, plain_keys.logits, rtol=1e-4, atol=1e-4)
    few = run(plain(SPARSE), SPARSE, WIDE_REFERENCE, steps=1, forced=all_keys)
    assert (few.logits - all_keys.logits).norm() / all_keys.logits.norm() > 1e-2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler uses what torch deprecates
def test_the_cpu_backend_computes_what_the_reference_does() -> None:
    true = run(plain(SPARSE), SPARSE, WIDE_REFERENCE, steps=1)
    done = run(plain(SPARSE, kv__block_size=16, **FUSED), SPARSE, Options(wide=True), steps=1, forced=true)
    assert ((done.logits - true.logits).norm() / true.logits.norm()).item() < 1e-5
