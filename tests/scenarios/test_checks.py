"""Scenarios that contradict themselves, or set what would change nothing: each rule with its words."""

from __future__ import annotations

from typing import Any

import pytest

from scenarios.checks import check, is_given
from scenarios.schema import Scenario


def scenario(**fields: Any) -> Scenario:
    """`scenario(workload__batch=4)`: two underscores for a dot, lists as in a file."""
    data: dict[str, Any] = {}
    for name, value in fields.items():
        *parts, last = name.split("__")
        part = data
        for key in parts:
            part = part.setdefault(key, {})
        part[last] = value
    return Scenario.model_validate(data)


def problems(**fields: Any) -> list[tuple[str, str]]:
    return [(problem.where, problem.what) for problem in check(scenario(**fields))]


def test_the_defaults_are_sound() -> None:
    assert problems() == []


FUSION, KV = "optimizations__fusion__", "optimizations__kv__"

REFUSED: list[tuple[dict[str, Any], str, str]] = [
    (
        {"engine__max_model_len": 1000, "workload__input_tokens": 900, "workload__output_tokens": 101},
        "engine.max_model_len",
        "must be at least 1001, the 900 input_tokens and 101 output_tokens of a request, got 1000",
    ),
    (
        {"engine__max_model_len": 2048, "workload__context_tokens": 2048},
        "workload.context_tokens",
        "2048 tokens in the cache and 1 new ones are more than engine.max_model_len 2048",
    ),
    (
        {"engine__max_model_len": 2048, "workload__context_tokens": 1025, "workload__phase": "prefill"},
        "workload.context_tokens",
        "1025 tokens in the cache and 1024 new ones are more than engine.max_model_len 2048",
    ),
    (
        {"workload__batch": 257},
        "workload.batch",
        "workload.batch 257 is more than engine.max_num_seqs 256",
    ),
    (
        {"engine__max_num_batched_tokens": 63, "workload__batch": 64},
        "engine.max_num_batched_tokens",
        "must be at least 64, one token for each request of a decode step, got 63",
    ),
    (
        {"engine__max_num_batched_tokens": 63, "workload__batch": 64, "workload__phase": "mixed"},
        "engine.max_num_batched_tokens",
        "must be at least 64, one token for each request of a mixed step, got 63",
    ),
    (
        {"engine__max_num_batched_tokens": 100, "workload__input_tokens": 1_000_001},
        "engine.max_num_batched_tokens",
        "the prefill of 1000001 prompt tokens in steps of max_num_batched_tokens 100 takes 10001 steps, more than "
        "10000: at least 101 tokens a step are needed",
    ),
    (
        {"workload__batch": 256, "workload__input_tokens": 16_000_000},
        "workload.batch",
        "the prefill of 4096000000 prompt tokens in steps of max_num_batched_tokens 8192 takes 500000 steps, more than "
        "10000: at least 409600 tokens a step are needed",
    ),
    (
        {"workload__phase": "mixed"},
        "workload.phase",
        "a mixed step needs workload.batch of at least 2, for a prefill and a decode, got 1",
    ),
    (
        {"engine__cudagraph_capture_sizes": [1, 2]},
        "engine.cudagraph_capture_sizes",
        "has no effect with optimizations.graph eager: only aclgraph and npugraph_ex capture sizes",
    ),
    (
        {"engine__cudagraph_capture_sizes": [1, 2], "optimizations__graph": "ge_graph"},
        "engine.cudagraph_capture_sizes",
        "has no effect with optimizations.graph ge_graph: only aclgraph and npugraph_ex capture sizes",
    ),
    (
        {"engine__cudagraph_capture_sizes": [1, 4, 4], "optimizations__graph": "aclgraph"},
        "engine.cudagraph_capture_sizes[2]",
        "must be greater than the size before it, 4, got 4",
    ),
    (
        {"engine__cudagraph_capture_sizes": [], "optimizations__graph": "aclgraph"},
        "engine.cudagraph_capture_sizes",
        "must not be empty",
    ),
    (
        {"optimizations__graph_prefill": True},
        "optimizations.graph_prefill",
        "has no effect with optimizations.graph eager: only ge_graph compiles prefills",
    ),
    (
        {"optimizations__graph_prefill": True, "optimizations__graph": "aclgraph"},
        "optimizations.graph_prefill",
        "has no effect with optimizations.graph aclgraph: only ge_graph compiles prefills",
    ),
    (
        {KV + "layout": "contiguous", KV + "block_size": 128},
        "optimizations.kv.block_size",
        "has no effect with layout contiguous. Remove it, or set it to null where a base file gives it",
    ),
    (
        {"optimizations__overlap__prefetch_layers": 1},
        "optimizations.overlap.prefetch_layers",
        "has no effect without overlap.prefetch: true. Remove it, or set it to null where a base file gives it",
    ),
    (
        {KV + "scale": "channel"},
        "optimizations.kv.scale",
        "has no effect with dtype auto, only with int8. Remove it, or set it to null where a base file gives it",
    ),
    (
        {KV + "layout": "contiguous", KV + "prefix_sharing": True, KV + "shared_prefix_tokens": 8},
        "optimizations.kv.prefix_sharing",
        "needs layout paged, got contiguous",
    ),
    (
        {KV + "prefix_sharing": True},
        "optimizations.kv.prefix_sharing",
        "has no effect without shared_prefix_tokens above 0",
    ),
    (
        {KV + "shared_prefix_tokens": 8},
        "optimizations.kv.shared_prefix_tokens",
        "has no effect without prefix_sharing: true",
    ),
    (
        {KV + "prefix_sharing": True, KV + "shared_prefix_tokens": 1025},
        "optimizations.kv.shared_prefix_tokens",
        "must be at most workload.input_tokens, 1024, got 1025",
    ),
    (
        {"engine__sequence_parallel": True},
        "engine.sequence_parallel",
        "has no effect with engine.tensor_parallel_size 1",
    ),
]


@pytest.mark.parametrize(("fields", "where", "what"), REFUSED)
def test_what_is_refused(fields: dict[str, Any], where: str, what: str) -> None:
    assert problems(**fields) == [(where, what)]


@pytest.mark.parametrize(
    "fields",
    [
        {"engine__max_model_len": 1152},
        {"engine__max_model_len": 2048, "workload__context_tokens": 2047},
        {"engine__max_model_len": 2048, "workload__context_tokens": 1024, "workload__phase": "prefill"},
        {"workload__context_tokens": 100_000},  # no max_model_len to exceed
        {"workload__batch": 256},
        {"workload__batch": 512, "engine__max_num_seqs": 512},
        {"workload__batch": 64, "engine__max_num_batched_tokens": 64},
        {"workload__batch": 64, "engine__max_num_batched_tokens": 32, "workload__phase": "prefill"},
        {"engine__max_num_batched_tokens": 100, "workload__input_tokens": 1_000_000},
        {"workload__batch": 2, "workload__phase": "mixed"},
        {"engine__cudagraph_capture_sizes": [1, 2, 300], "optimizations__graph": "npugraph_ex"},
        {KV + "layout": "contiguous"},
        {"optimizations__graph_prefill": True, "optimizations__graph": "ge_graph"},
        {KV + "block_size": 128},
        {KV + "dtype": "int8", KV + "scale": "token"},
        {KV + "prefix_sharing": True, KV + "shared_prefix_tokens": 1024},
        {FUSION + "rms_norm": False, FUSION + "add_rms_norm": False},
        {FUSION + "qkv_norm_rope_cache": True},
        {FUSION + "add_rms_norm_quant": True, "optimizations__weights": "w8a8"},
        {"engine__task_queue_enable": 2},
    ],
)
def test_what_is_allowed(fields: dict[str, Any]) -> None:
    assert problems(**fields) == []


def test_all_problems_come_at_once() -> None:
    fields = {
        "engine__sequence_parallel": True,
        "workload__batch": 1000,
        KV + "scale": "head",
    }
    assert [where for where, _ in problems(**fields)] == [
        "workload.batch",
        "optimizations.kv.scale",
        "engine.sequence_parallel",
    ]


def test_a_problem_between_two_fields_stands_at_the_one_that_was_written() -> None:
    assert problems(engine__max_num_seqs=4, workload__batch=5)[0][0] == "workload.batch"
    base = scenario(workload__batch=5)
    lowered = base.model_copy(update={"engine": base.engine.model_copy(update={"max_num_seqs": 4})})
    assert check(lowered)[0].where == "workload.batch"


def test_what_was_given() -> None:
    given = scenario(workload__batch=1)
    assert is_given(given, "workload.batch")
    assert not is_given(given, "workload.phase")
    assert not is_given(given, "engine.max_num_seqs")
