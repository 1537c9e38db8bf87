"""The serving engine on the NPU backend: torch_npu's own calls, argument checks, capture and replay, with no NPU.

The numbers are those of the project's own CPU kernels; the steps are those of the scheduler, which the CPU runs too.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.npu_dry.conftest import Dry
from tests.npu_dry.serving import CASES

WAYS = [(case, graph) for case, (_, graphs) in CASES.items() for graph in graphs]


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(dry: Dry) -> dict[str, Any]:
    return dry("serving").answer


@pytest.mark.parametrize(("case", "graph"), WAYS)
def test_requests_get_the_tokens_of_the_plain_operators(served: dict[str, Any], case: str, graph: str) -> None:
    plain, result = served[case]["plain"], served[case][graph]
    assert result["tokens"] == plain["tokens"]
    assert result["steps"] == plain["steps"]
    assert set(result["steps"]) == {"prefill", "mixed", "decode"}
    assert len({token for output in result["tokens"].values() for token in output}) > 6


@pytest.mark.parametrize(("case", "graph"), WAYS)
def test_a_paged_cache_is_read_through_block_tables(served: dict[str, Any], case: str, graph: str) -> None:
    result = served[case][graph]
    attention = 2 * sum(result["steps"].values())  # two layers
    if "paged" in case:
        assert result["with_table"] >= attention
        assert result["without"] == 0
    elif "int8" in case:  # steps of several query tokens dequantise the blocks first
        assert result["with_table"] >= 2 * result["steps"]["decode"]
        assert result["without"] >= 2 * result["steps"]["prefill"]
    else:
        assert result["with_table"] == 0
        assert result["without"] >= attention


def test_requests_lose_their_blocks_and_are_computed_again(served: dict[str, Any]) -> None:
    assert served["small-llama, all fused, paged"]["eager"]["preemptions"] > 0
