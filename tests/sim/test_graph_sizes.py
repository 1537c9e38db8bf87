"""Which sizes are captured by default, against numbers that vLLM-Ascend's own comments and messages print."""

from __future__ import annotations

import pytest

from scenarios.loader import load_scenario
from sim.engines.graphs import default_sizes, sizes_in_pieces, sizes_of_streams, thinned
from sim.predict.scenario_result import looked_up
from sim.predict.steps import Case


def case(model: str, *sets: str) -> Case:
    return looked_up(load_scenario("serve_qwen3_14b_910b3", [f"model={model}", "slo=null", *sets]))


def test_vllm_captures_eights_up_to_256_and_then_sixteens() -> None:
    sizes = default_sizes(case("Qwen3-14B").scenario)
    assert sizes[:6] == (1, 2, 4, 8, 16, 24)
    assert (sizes[33], sizes[34], sizes[-1], len(sizes)) == (248, 256, 512, 51)
    # Twice max_num_seqs: 16 requests at most capture up to 32 tokens.
    assert default_sizes(case("Qwen3-14B", "engine.max_num_seqs=16").scenario) == (1, 2, 4, 8, 16, 24, 32)


@pytest.mark.parametrize(
    ("model", "tensor_parallel", "is_aiv", "sizes"),
    [("Qwen3-32B", 4, False, 9), ("Qwen3-14B", 1, False, 43), ("Qwen3-30B-A3B", 4, True, 18),
     ("Qwen3-30B-A3B", 4, False, 11)],
)  # fmt: skip
def test_as_many_graphs_as_streams_hold(model: str, tensor_parallel: int, is_aiv: bool, sizes: int) -> None:
    """update_aclgraph_sizes: (1800 - 40) / 65 / 3 = 9.03 of Qwen3-32B, 1800 / 41 = 43.9 alone; 48 layers and AIV
    1800 / 49 / 2 = 18.4 (19 of the 1,920 in its comment), without it 1760 / 49 / 3 = 11.97 (12)."""
    served = case(model, f"engine.tensor_parallel_size={tensor_parallel}")
    assert sizes_of_streams(served.scenario, served.model, is_aiv) == sizes


def test_the_sizes_that_stay_are_evenly_spaced_in_the_list() -> None:
    served = case("Qwen3-32B", "engine.tensor_parallel_size=4")
    assert sizes_in_pieces(served.scenario, served.model) == (1, 32, 80, 136, 184, 232, 320, 416, 512)
    assert thinned((1, 2, 4), 8) == (1, 2, 4)
    assert thinned((1, 2, 4), 1) == (4,)
