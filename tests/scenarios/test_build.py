"""From scenario and batch to a program: what is refused, what is built, and the seed's own case kernel by kernel."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings

from scenarios.batches import decode_batch, prefill_batches, reported_batch
from scenarios.build import build, problems_of
from scenarios.errors import ScenarioError
from scenarios.loader import load_scenario
from scenarios.models.hf_config import load_model
from scenarios.models.model import Model
from scenarios.ops.catalogue import op_type_of
from scenarios.ops.program import Program
from scenarios.passes import PASSES
from scenarios.passes.switches import activation_dtype
from scenarios.schema import Scenario
from tests.examples import examples
from tests.scenarios.making import (
    BIASED,
    PLAIN,
    TINY,
    Drawn,
    bare,
    cases,
    faults,
    kinds,
    op,
    program,
    scenario,
    switched,
)

#: Kernels of one decode step of the seed's case by profiler name: its op statistics of three steps, divided by 3.
SEED_KERNELS = {
    "MatMul": 145,
    "FusedInferAttentionScore": 36,
    "RmsNorm": 73,
    "ScatterNdUpdate": 72,
    "InplaceAddRmsNorm": 72,
    "StridedSliceD": 72,
    "AutomaticBufferFusionOp": 36,
    "Cumsum": 2,
    "ApplyRotaryPosEmb": 36,
    "FloorDiv": 1,
    "Tril": 1,
    "ArgMaxV2": 1,
    "Cast": 4,
    "LogicalNot": 1,
    "OnesLike": 1,
    "Index": 2,
    "Data": 1,
    "GatherV2": 1,
    "Add": 3,
    "GatherElementsV2": 1,
    "ReduceMax": 1,
    "FloorMod": 1,
    "Fill": 1,
    "BroadcastTo": 1,
    "Mul": 1,
    "ZerosLike": 1,
}


def seed_program(root: Path) -> Program:
    result = load_scenario(root / "scenarios" / "qwen3_8b_decode.yaml").scenario
    return build(result, load_model(result.model), decode_batch(result))


def test_the_seeds_decode_step_has_its_recorded_kernels(root: Path) -> None:
    counts = Counter(op_type_of(issued.op) for issued in seed_program(root))
    assert counts == SEED_KERNELS
    assert counts.total() == 567


def test_the_table_of_the_seed_is_the_measured_one(root: Path, shared: Path) -> None:
    path = shared / "measured" / "seed_workload" / "op_statistic_decode.csv"
    with path.open(newline="") as file:
        measured = {row["OP Type"]: int(row["Count"]) for row in csv.DictReader(file)}
    assert len(measured) == 26
    assert {name: count / 3 for name, count in measured.items()} == SEED_KERNELS
    assert Counter(op_type_of(issued.op) for issued in seed_program(root)) == {k: v // 3 for k, v in measured.items()}


def test_the_kernels_of_the_seed_run_on_the_cores_that_were_recorded(root: Path, shared: Path) -> None:
    from scenarios.ops.catalogue import work_of

    path = shared / "measured" / "seed_workload" / "op_statistic_decode.csv"
    units = {"AI_CORE": "cube", "AI_VECTOR_CORE": "vector", "MIX_AIC": "mix", "AI_CPU": "ai_cpu", "MIX_AIV": "vector"}
    with path.open(newline="") as file:
        measured = {row["OP Type"]: units[row["Core Type"]] for row in csv.DictReader(file)}
    assert {op_type_of(issued.op): work_of(issued.op).unit for issued in seed_program(root)} == measured


def test_the_eager_reference_case_is_a_hugging_face_model(root: Path) -> None:
    result = load_scenario(root / "scenarios" / "qwen3_8b_910b2_eager.yaml").scenario
    built = build(result, load_model(result.model), decode_batch(result))
    assert built.graph == "eager"
    assert built.applied == ("fusion.attention",)
    assert Counter(kinds(built))["matmul"] == 7  # q, k, v, o, gate, up and down apart
    assert {t.dtype for t in op(built, "q_proj").inputs} == {"fp16"}
    assert not {"rms_norm", "add_rms_norm", "rope", "swiglu"} & set(kinds(built))


def test_every_shipped_scenario_builds_without_fault(root: Path) -> None:
    files = sorted((root / "scenarios").glob("*.yaml"))
    assert len(files) >= 5
    for file in files:
        result = load_scenario(file).scenario
        model = load_model(result.model)
        assert problems_of(result, model) == [], file.name
        for batch in [decode_batch(result), *prefill_batches(result)[:3]]:
            assert faults(build(result, model, batch)) == [], file.name


# ---- any combination of switches ----


@examples(600)
@given(cases())
def test_any_combination_is_built_without_fault_or_refused_with_a_reason(drawn: Drawn) -> None:
    result, model = drawn
    problems = problems_of(result, model)
    if problems:
        with pytest.raises(ScenarioError) as caught:
            program(result, model)
        assert caught.value.messages == tuple(f"{where}: {what}" for where, what in problems)
        assert all(where.partition(".")[0] in Scenario.model_fields and len(what) > 5 for where, what in problems)
        return
    built = program(result, model)
    assert faults(built) == []
    on = [item.switch for item in PASSES if item.is_on(result) and not item.idle(model) and item.switch != "graph"]
    assert [name.partition("=")[0] for name in built.applied if not name.startswith("graph")] == on


@examples(100)
@given(cases())
def test_every_step_of_the_prefill_builds_too(drawn: Drawn) -> None:
    result, model = drawn
    if not problems_of(result, model):
        for batch in prefill_batches(result)[:3]:
            assert faults(program(result, model, batch)) == []


@examples(50)
@given(cases())
def test_one_scenario_has_one_program(drawn: Drawn) -> None:
    result, model = drawn
    if not problems_of(result, model):
        assert program(result, model) == program(result, model)


def test_scenarios_are_refused_for_a_reason_and_not_often() -> None:
    """The search above has to reach both sides."""
    reached: Counter[str] = Counter()

    @settings(max_examples=300)
    @given(cases())
    def look(drawn: Drawn) -> None:
        result, model = drawn
        problems = problems_of(result, model)
        reached.update(where for where, _ in problems)
        reached["built"] += not problems

    look()
    assert reached["built"] > 100
    assert set(reached) >= {
        "built",
        "optimizations.kv.dtype",
        "optimizations.fusion.add_rms_norm_quant",
        "optimizations.fusion.qkv_norm_rope_cache",
        "optimizations.fusion.ffn",
    }


# ---- what is refused ----

FEED_FORWARD = {"fusion__gate_up": True, "fusion__swiglu": True, "fusion__ffn": True, "weights": "fp16"}
FUSED = {"fusion__rms_norm": True, "fusion__rope": True, "fusion__qkv": True, "fusion__attention": True}


@pytest.mark.parametrize(
    ("switches", "model", "result"),
    [
        ({"kv__dtype": "int8"}, TINY, ("kv.dtype", "needs fusion.attention true")),
        (
            {"fusion__qkv_norm_rope_cache": True},
            TINY,
            (
                "fusion.qkv_norm_rope_cache",
                "needs fusion.qkv true, fusion.rms_norm true, fusion.rope true, fusion.attention true, kv.layout paged",
            ),
        ),
        (
            {**FUSED, "kv__layout": "paged", "fusion__qkv_norm_rope_cache": True},
            PLAIN,
            ("fusion.qkv_norm_rope_cache", "plain has no Q and K norm to fuse"),
        ),
        (
            {
                **FUSED,
                "kv__layout": "paged",
                "fusion__qkv_norm_rope_cache": True,
                "kv__dtype": "int8",
                "kv__scale": "head",
            },
            TINY,
            (
                "fusion.qkv_norm_rope_cache",
                "the fused cache write takes only one INT8 scale a channel (kv.scale channel)",
            ),
        ),
        (
            {"fusion__add_rms_norm": True, "fusion__add_rms_norm_quant": True},
            TINY,
            ("fusion.add_rms_norm_quant", "needs weights w8a8"),
        ),
        (
            {"fusion__ffn": True},
            TINY,
            ("fusion.ffn", "needs fusion.gate_up true, fusion.swiglu true, weights fp16"),
        ),
        ({**FEED_FORWARD, "weights": "w8a8"}, TINY, ("fusion.ffn", "needs weights fp16")),
        ({**FEED_FORWARD, "weights": "bf16"}, TINY, ("fusion.ffn", "needs weights fp16")),
        ({**FEED_FORWARD, "weight_format": "nz"}, TINY, ("fusion.ffn", "needs weight_format nd")),
        (
            {**FEED_FORWARD, "overlap__prefetch": True},
            TINY,
            (
                "fusion.ffn",
                "cannot be combined with overlap.prefetch: when npu_ffn reads prefetched weights is not modelled",
            ),
        ),
        (
            {"kv__dtype": "fp16"},
            TINY,
            ("kv.dtype", "fp16 with bf16 activations: the fused kernels take one type; use auto"),
        ),
    ],
)
def test_a_switch_that_cannot_apply_is_refused_by_name(
    switches: dict[str, object], model: Model, result: tuple[str, str]
) -> None:
    where, what = result
    assert problems_of(switched(bare(), **switches), model) == [(f"optimizations.{where}", what)]


def test_all_refusals_come_at_once() -> None:
    result = switched(bare(), kv__dtype="int8", fusion__qkv_norm_rope_cache=True, fusion__add_rms_norm_quant=True)
    assert problems_of(result, BIASED) == [
        ("optimizations.kv.dtype", "needs fusion.attention true"),
        (
            "optimizations.fusion.qkv_norm_rope_cache",
            "needs fusion.qkv true, fusion.rms_norm true, fusion.rope true, fusion.attention true, kv.layout paged",
        ),
        ("optimizations.fusion.add_rms_norm_quant", "needs fusion.add_rms_norm true, weights w8a8"),
    ]


def test_a_request_longer_than_the_models_positions_is_refused() -> None:
    def where(**settings: object) -> list[tuple[str, str]]:
        return problems_of(scenario(**settings), TINY)

    positions = "the 8192 positions of tiny (engine.allow_long_max_model_len)"
    assert where(workload__input_tokens=8191, workload__output_tokens=1) == []
    assert where(workload__input_tokens=8192, workload__output_tokens=1)[0] == (
        "workload.input_tokens",
        f"8193 tokens are more than {positions}",
    )
    assert where(engine__max_model_len=10_000)[0] == (
        "engine.max_model_len",
        f"10000 tokens are more than {positions}",
    )
    assert ("workload.context_tokens", f"longer than {positions}") in where(workload__context_tokens=8192)
    assert where(workload__context_tokens=8191) == []


def test_an_engine_may_be_told_to_take_longer_requests() -> None:
    """VLLM_ALLOW_LONG_MAX_MODEL_LEN: the same step, with a table of cosines for its last position."""
    result = scenario(workload__context_tokens=9_999, engine__allow_long_max_model_len=True)
    assert problems_of(result, TINY) == []
    ops = [op for block in build(result, TINY, reported_batch(result)).blocks for op in block.ops]
    rows = {tensor.name: tensor.shape[0] for op in ops for tensor in op.inputs if tensor.name.endswith("_table")}
    assert rows["cos_table"] == rows["sin_table"] == 10_000
    assert scenario(engine__allow_long_max_model_len=True).engine.positions(8192, 100) == 8192
    assert scenario().engine.positions(8192, 10_000) == 8192


def test_the_cache_has_room_for_a_context_longer_than_the_request() -> None:
    # A decode step 5,000 tokens deep, of a request that is given as 1,024 + 128.
    result = scenario(workload__context_tokens=5000, optimizations__kv__block_size=16)
    assert result.longest_request_tokens == 5001
    table = op(program(result), "attention").inputs[3]
    assert table.shape == (1, 313)  # 313 blocks of 16 hold 5,008 tokens


# ---- types and modes ----


def test_the_activations_take_the_type_that_is_given() -> None:
    def act(**optimizations: object) -> str:
        return activation_dtype(switched(bare(), **optimizations), TINY)

    assert act(weights="bf16") == "bf16"
    assert act(weights="fp16") == "fp16"
    assert act(weights="w8a8") == "bf16"  # the model's own
    assert act(weights="w8a8", kv__dtype="fp16") == "fp16"
    assert act(weights="w4a16", kv__dtype="int8") == "bf16"


def test_a_padded_graph_has_the_rows_of_its_captured_size() -> None:
    def rows(batch: int, **more: object) -> tuple[str, int]:
        sizes = {"engine__cudagraph_capture_sizes": (4, 8)} if "optimizations__graph" in more else {}
        built = program(scenario(workload__batch=batch, **more, **sizes))
        return built.graph, op(built, "o_proj").out.shape[0]

    assert rows(3) == ("eager", 3)
    assert rows(3, optimizations__graph="aclgraph") == ("aclgraph", 4)
    assert rows(5, optimizations__graph="npugraph_ex") == ("npugraph_ex", 8)
    assert rows(9, optimizations__graph="aclgraph") == ("eager", 9)


def test_a_batch_off_the_grid_is_issued_as_in_eager_mode() -> None:
    eager = scenario(workload__batch=9)
    off_grid = scenario(workload__batch=9, optimizations__graph="npugraph_ex", engine__cudagraph_capture_sizes=(4, 8))
    assert program(off_grid) == program(eager)
