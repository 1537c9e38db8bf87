"""The step of every rank: rank 0's is the prediction's, and a collective moves its bytes on all ranks at once."""

from __future__ import annotations

import pytest

from scenarios.loader import load_scenario
from sim.predict.rank_timelines import timelines_of_ranks
from sim.predict.scenario_result import first_result


def test_ranks_meet_in_each_collective_and_the_last_to_come_does_not_wait() -> None:
    prediction = first_result(load_scenario("qwen3_8b_tp2_decode", ["engine.tensor_parallel_size=4"])).prediction
    ranks = timelines_of_ranks(prediction)
    assert [rank.rank for rank in ranks] == [0, 1, 2, 3]
    assert ranks[0] == prediction.timeline
    transfers = [
        {s.index: (s.start_ns, s.end_ns) for s in item.spans if s.process == "Communication" and s.kind == "transfer"}
        for item in ranks
    ]
    assert transfers[0]
    assert all(transfer == transfers[0] for transfer in transfers)
    waits = [{s.index for s in value.spans if s.kind == "wait"} for value in ranks]
    assert not set.intersection(*waits)
    waited = sum(s.duration_ns for s in ranks[0].spans if s.kind == "wait")
    assert waited == sum(prediction.waits_ns.values()) > 0


@pytest.mark.parametrize("name", ["qwen3_8b_decode", "llama_3_1_70b_tp4_pp2_decode"])
def test_one_rank_or_a_stage_is_its_own(name: str) -> None:
    prediction = first_result(load_scenario(name)).prediction
    assert timelines_of_ranks(prediction) == [prediction.timeline]
