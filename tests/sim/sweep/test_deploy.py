"""The vLLM-Ascend command of a choice: what a named version reads, takes and refuses."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

import pytest

from scenarios.lowering.parallel import shard
from scenarios.models.hf_config import load_model
from sim.predict.steps import Case
from sim.sweep.candidates import Fixed
from sim.sweep.deploy import VERSIONS, command_of, max_graphs, sizes_to_capture
from sim.sweep.evaluate import Slo
from sim.sweep.plan import plan
from sim.sweep.plan_result import plan_result
from tests.scenarios.making import scenario
from tests.sim.hardware_maker import hardware

HW = hardware("atlas_a3_die")
QWEN3_32B = load_model("Qwen3-32B")
SMALL = replace(load_model("Qwen3-0.6B"), layers=4)
WORKLOAD = {"workload__input_tokens": 512, "workload__output_tokens": 64, "optimizations__graph": "aclgraph"}


def base(**settings: object) -> Any:
    return scenario(**{"model": "Qwen3-0.6B", **WORKLOAD, **settings})


def deployed(**settings: object) -> Case:
    made = scenario(**{"model": "Qwen3-32B", **WORKLOAD, "engine__max_num_seqs": 256, **settings})
    degree = made.engine.tensor_parallel_size
    return Case(made, shard(QWEN3_32B, degree), HW)


def test_018_captures_what_its_streams_allow() -> None:
    """By hand: 64 layers take 65 streams a graph; with tensor parallelism a factor of 2, and 2 x 65 are set aside:
    (1800 - 130) // 65 // 2 = 12. Decode steps that are captured whole are not counted (v0.18.0's platform.py asks for
    the sizes in its PIECEWISE branch alone)."""
    whole = deployed(engine__tensor_parallel_size=4)
    assert max_graphs(whole, "0.18") is None
    assert sizes_to_capture(whole, "0.18") == sizes_to_capture(whole, "0.23")
    case = deployed(engine__tensor_parallel_size=4, engine__cudagraph_mode="PIECEWISE")
    assert max_graphs(case, "0.18") == 12
    assert max_graphs(case, "0.23") is None
    few, all_ = sizes_to_capture(case, "0.18"), sizes_to_capture(case, "0.23")
    assert len(few) == 12 < len(all_)
    assert (few[0], few[-1]) == (1, 256) == (all_[0], all_[-1])
    assert set(few) <= set(all_)


def words(case: Case, version: Any) -> list[str]:
    return shlex.split(command_of(case, version).text)


def test_a_flag_that_moved_is_where_its_version_reads_it() -> None:
    case = deployed(engine__tensor_parallel_size=4, engine__sequence_parallel=True)
    old, new = words(case, "0.18"), words(case, "0.23")
    assert "VLLM_ASCEND_ENABLE_FLASHCOMM1=1" in old
    assert not any(word.startswith("VLLM_ASCEND_ENABLE_") for word in new)
    assert json.loads(new[new.index("--additional-config") + 1]) == {"enable_flashcomm1": True}
    assert "--additional-config" not in old
    assert new[new.index("--tensor-parallel-size") + 1] == "4"
    assert json.loads(new[new.index("--compilation-config") + 1])["cudagraph_mode"] == "FULL_DECODE_ONLY"


def test_streams_of_drafts_and_of_other_expansions_are_counted() -> None:
    """By hand: a draft of one layer takes two streams more, (1800 - 2 x 67) // 67 // 2 = 12; expanded by the host,
    (1800 - 40) / 65 / 3 = 9.03."""
    cut = {"engine__tensor_parallel_size": 4, "engine__cudagraph_mode": "PIECEWISE"}
    drafts = {"method": "eagle3", "num_speculative_tokens": 3}
    assert max_graphs(deployed(**cut, engine__speculative_config=drafts), "0.18") == 12
    case = deployed(**cut, engine__hccl_op_expansion_mode="HOST")
    assert max_graphs(case, "0.18") == 9
    assert "HCCL_OP_EXPANSION_MODE=HOST" in words(case, "0.18")


def test_a_graph_mode_that_018_would_change_is_not_given() -> None:
    """v0.18.0 makes PIECEWISE of FULL_AND_PIECEWISE, which would take decode steps apart too."""
    case = deployed(engine__tensor_parallel_size=4, engine__cudagraph_mode="FULL_AND_PIECEWISE")
    modes = [
        json.loads(given[given.index("--compilation-config") + 1])["cudagraph_mode"]
        for given in (words(case, "0.18"), words(case, "0.23"))
    ]
    assert modes == ["FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]
    assert any("makes PIECEWISE of FULL_AND_PIECEWISE" in note for note in command_of(case, "0.18").notes)
    assert not any("PIECEWISE" in note for note in command_of(case, "0.23").notes)


def test_sizes_are_multiples_of_the_ranks_under_flashcomm1() -> None:
    """The engine keeps these alone, and does not start with none: 1 to 8 requests on 16 ranks leave it 16."""
    few = deployed(engine__tensor_parallel_size=16, engine__sequence_parallel=True, engine__max_num_seqs=8)
    assert sizes_to_capture(few, "0.23") == (16,)
    case = deployed(engine__tensor_parallel_size=4, engine__sequence_parallel=True, engine__max_num_seqs=16)
    assert sizes_to_capture(case, "0.23") == (4, 8, 16)


@pytest.mark.parametrize(
    ("weights", "layout", "mode"), [("bf16", "nd", None), ("bf16", "nz", 2), ("w8a8", "nd", 0), ("w8a8", "nz", 2)]
)
def test_the_layout_of_weights_is_the_one_that_was_priced(weights: str, layout: str, mode: int | None) -> None:
    """By default both versions lay quantised products in NZ, and no others."""
    case = deployed(optimizations__weights=weights, optimizations__weight_format=layout)
    old, new = words(case, "0.18"), words(case, "0.23")
    given = [word for word in old if word.startswith("VLLM_ASCEND_ENABLE_NZ")]
    config = json.loads(new[new.index("--additional-config") + 1]) if "--additional-config" in new else {}
    assert given == ([] if mode is None else [f"VLLM_ASCEND_ENABLE_NZ={mode}"])
    assert config.get("weight_nz_mode") == mode


def test_an_eagle3_draft_needs_its_checkpoint() -> None:
    case = deployed(engine__speculative_config={"method": "eagle3", "num_speculative_tokens": 3})
    given = words(case, "0.23")
    drafts = json.loads(given[given.index("--speculative-config") + 1])
    assert drafts == {"method": "eagle3", "model": "EAGLE3_CHECKPOINT", "num_speculative_tokens": 3}
    assert any("EAGLE3_CHECKPOINT" in note for note in command_of(case, "0.23").notes)


def test_flags_of_the_scheduler_are_given_where_the_scenario_has_them() -> None:
    case = deployed(
        engine__async_scheduling=False,
        engine__scheduling_policy="priority",
        engine__scheduler_reserve_full_isl=False,
        engine__kv_cache_memory_bytes=1 << 30,
    )
    old, new = words(case, "0.18"), words(case, "0.23")
    for given in (old, new):
        assert "--no-async-scheduling" in given
        assert given[given.index("--scheduling-policy") + 1] == "priority"
        assert given[given.index("--kv-cache-memory-bytes") + 1] == str(1 << 30)
    assert "--no-scheduler-reserve-full-isl" in new
    assert "--no-scheduler-reserve-full-isl" not in old  # no such rule there


def test_what_a_version_would_not_start_with_is_left_out_and_noted() -> None:
    """Both versions refuse the output projection without kv_role kv_consumer, 0.23 the embedding too."""
    names = ("lmhead", "oproj", "embedding")
    case = deployed(
        engine__finegrained_tp_config={f"{name}_tensor_parallel_size": 8 for name in names},
        optimizations__overlap__micro_batches=2,
    )
    kept = {"0.18": ["lmhead", "embedding"], "0.23": ["lmhead"]}
    for version, stay in kept.items():
        given, notes = words(case, version), " ".join(command_of(case, version).notes)  # type: ignore[arg-type]
        config = json.loads(given[given.index("--additional-config") + 1])["finegrained_tp_config"]
        assert list(config) == [f"{name}_tensor_parallel_size" for name in stay]
        assert "oproj_tensor_parallel_size" in notes
        assert "overlap.micro_batches" in notes


def test_longer_requests_than_the_model_has_positions_are_a_variable_of_the_command() -> None:
    case = deployed(engine__max_model_len=50_000, engine__allow_long_max_model_len=True)
    for version in ("0.18", "0.23"):
        given = words(case, version)
        assert "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1" in given
        assert given[given.index("--max-model-len") + 1] == "50000"
    assert not any(word.startswith("VLLM_ALLOW") for word in words(deployed(), "0.23"))


def test_products_that_replicas_share_are_in_the_command() -> None:
    shared = {"lmhead_tensor_parallel_size": 8}
    case = deployed(engine__finegrained_tp_config=shared)
    given = words(case, "0.23")
    assert json.loads(given[given.index("--additional-config") + 1]) == {"finegrained_tp_config": shared}


def test_quantised_weights_and_eager_are_said_as_the_engine_wants_them() -> None:
    case = deployed(optimizations__weights="w8a8", optimizations__graph="eager")
    given = words(case, "0.23")
    assert given[given.index("--quantization") + 1] == "ascend"
    assert "--enforce-eager" in given
    assert "--compilation-config" not in given
    assert any("checkpoint" in note for note in command_of(case, "0.23").notes)


def test_a_gpu_gets_no_command_of_vllm_ascend() -> None:
    case = Case(base(optimizations__graph="eager", engine__task_queue_enable=0), SMALL, hardware("h200_sxm"))
    result = plan_result(plan(case, SMALL, 1, Slo(), Fixed(frozenset({"optimizations.graph"}))), "x")
    assert result["best"]["command"] == {}


def test_replicas_over_several_servers_say_where_they_start() -> None:
    """By hand: 16 replicas of two dies, eight on each server of 16; 12 of them leave four for the second."""
    layout = {"engine__tensor_parallel_size": 2, "engine__data_parallel_size": 16}
    for version in VERSIONS:
        command = command_of(deployed(**layout), version)
        given = shlex.split(command.text)
        assert given[given.index("--data-parallel-size-local") + 1] == "8"
        assert "--data-parallel-address $SERVER0 --data-parallel-rpc-port 13389" in command.text
        assert command.notes[0].endswith("the second server runs the same with --headless --data-parallel-start-rank 8")
    uneven = command_of(deployed(**{**layout, "engine__data_parallel_size": 12}), "0.23")
    assert uneven.notes[0].endswith("--data-parallel-start-rank 8, the last one with --data-parallel-size-local 4")
    many = command_of(deployed(**{**layout, "engine__data_parallel_size": 32}), "0.23")
    assert "server n of 1 to 3 runs the same with --headless --data-parallel-start-rank 8 x n" in many.notes[0]


def test_replicas_of_one_server_need_no_address() -> None:
    command = command_of(deployed(engine__tensor_parallel_size=2, engine__data_parallel_size=8), "0.23")
    assert "--data-parallel-address" not in command.text
    assert not any("SERVER0" in note for note in command.notes)


def test_a_replica_that_is_larger_than_a_server_is_said() -> None:
    command = command_of(deployed(engine__tensor_parallel_size=16, engine__pipeline_parallel_size=2), "0.23")
    assert command.notes[0] == (
        "a replica has 32 dies and a server 16: its servers are joined by Ray or --nnodes, not given here"
    )
