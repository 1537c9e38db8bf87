"""What holds for every scenario: no knob without effect, faster parts never slow a step, time adds up, same bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import BaseModel

from scenarios.batches import reported_batch
from scenarios.build import build, problems_of
from scenarios.checks import check as check_scenario
from scenarios.errors import ScenarioError
from scenarios.lowering.parallel import shard
from scenarios.lowering.stages import split_depth
from scenarios.models.hf_config import SHIPPED, load_model
from scenarios.models.model import Model
from scenarios.schema import Scenario
from scenarios.timeline import length_ns, union_ns
from sim.hardware.profile import HardwareProfile, load_hardware
from sim.hardware.sections import Chip, Graph, Host, Kernel, Memory
from sim.predict.explain import advise, diagnose
from sim.predict.gains import gains_of
from sim.predict.predict import check, predict
from sim.predict.result import run_result
from sim.predict.steps import Case, step_ns
from sim.report.files import to_json
from sim.step import engine, recurrence
from sim.step.host import make_plan
from tests.examples import examples
from tests.scenarios.making import scenario, scenarios

#: Qwen3-0.6B with two of its 28 layers: every kernel has its real size and a step costs little to play.
SMALL = replace(load_model("Qwen3-0.6B"), layers=2)
HARDWARE = load_hardware("atlas_a2_910b2")

#: A dotted field as its parts.
Field = tuple[str, ...]


def faster(hw: HardwareProfile, section: str, field: str, factor: float) -> HardwareProfile:
    part = getattr(hw, section)
    return replace(hw, **{section: replace(part, **{field: getattr(part, field) * factor})})


def total_ns(scenario: Scenario, hw: HardwareProfile, model: Model = SMALL) -> int:
    return step_ns(Case(scenario, model, hw), reported_batch(scenario))


# ---- time ----


def numbers(section: type[Any], *endings: str) -> list[Any]:
    """The numbers of a section of the profile whose name ends so."""
    name = section.__name__.lower()
    return [pytest.param(name, f.name, id=f"{name}.{f.name}") for f in fields(section) if f.name.endswith(endings)]


#: May only help, on one stream.
RATES = [*numbers(Memory, "_gbps"), *numbers(Chip, "_mhz")]
#: May only hurt.
COSTS = [item for section in (Kernel, Host, Graph) for item in numbers(section, "_us", "_ns")]


@pytest.mark.parametrize(("section", "field"), RATES)
@examples(12)
@given(scenario=scenarios(), factor=st.sampled_from([1.01, 1.3, 2.0, 10.0]))
def test_a_faster_part_never_slows_a_step(section: str, field: str, scenario: Scenario, factor: float) -> None:
    assume(not problems_of(scenario, SMALL))
    assert total_ns(scenario, faster(HARDWARE, section, field, factor)) <= total_ns(scenario, HARDWARE)


@pytest.mark.parametrize(("section", "field"), COSTS)
@examples(5)
@given(scenario=scenarios(), factor=st.sampled_from([1.01, 1.5, 10.0]))
def test_a_dearer_part_never_speeds_a_step_up(section: str, field: str, scenario: Scenario, factor: float) -> None:
    assume(not problems_of(scenario, SMALL))
    assert total_ns(scenario, faster(HARDWARE, section, field, factor)) >= total_ns(scenario, HARDWARE)


def test_bandwidth_and_clock_do_help_where_they_are_the_limit() -> None:
    model = load_model("Qwen3-8B")
    decode = scenario(workload__batch=1, optimizations__graph="ge_graph")
    assert total_ns(decode, faster(HARDWARE, "memory", "hbm_gbps", 2.0), model) < 0.9 * total_ns(
        decode, HARDWARE, model
    )
    # Cores that load as fast as they like multiply at their clock.
    prefill = scenario(workload__phase="prefill", workload__input_tokens=4096)
    loading = faster(HARDWARE, "memory", "core_l2_gbps", 10.0)
    assert total_ns(prefill, faster(loading, "chip", "clock_mhz", 2.0), model) < 0.9 * total_ns(prefill, loading, model)


@examples(25)
@given(scenarios())
def test_a_step_is_computing_communication_and_free_time(scenario: Scenario) -> None:
    assume(not problems_of(scenario, SMALL))
    case = Case(scenario, SMALL, HARDWARE)
    assume(not check(case))
    prediction = predict(case)
    step, spans = prediction.step, prediction.timeline.spans
    assert step.total_ns == step.computing_ns + step.communication_not_overlapped_ns + step.free_ns
    assert min(step.free_ns, step.computing_ns) > 0
    # Free time measured the other way round: what is left of the step when the kernels are taken out of it.
    busy = union_ns((s.start_ns, s.end_ns) for s in prediction.timeline.device_spans)
    edges = [0, *(edge for interval in busy for edge in interval), step.total_ns]
    idle = sum(b - a for a, b in zip(edges[::2], edges[1::2], strict=True))
    assert (step.free_ns, step.computing_ns) == (idle, length_ns(busy))
    assert all(0 <= s.start_ns <= s.end_ns <= step.total_ns for s in spans)


@examples(40)
@given(scenarios())
def test_engine_and_recurrence_play_real_plans_alike(scenario: Scenario) -> None:
    assume(not problems_of(scenario, SMALL))
    case = Case(scenario, SMALL, HARDWARE)
    plan = make_plan(build(scenario, SMALL, reported_batch(scenario)), HARDWARE, case.conditions)
    quick = recurrence.quick(plan)
    if quick.contended:  # a second stream next to the first: sharing can only make the step longer
        overlap = scenario.optimizations.overlap
        assert overlap.prefetch or overlap.streams > 1 or overlap.comm_chunks > 1 or overlap.micro_batches > 1
        assert engine.play(plan).end_ns >= quick.total_ns
    else:
        assert engine.play(plan) == recurrence.play(plan)


@examples(25)
@given(scenarios(("decode",)), st.integers(1, 200), st.integers(1, 3000))
def test_more_context_is_never_faster(scenario: Scenario, context: int, more: int) -> None:
    short, long = (
        scenario.model_copy(update={"workload": scenario.workload.model_copy(update={"context_tokens": tokens})})
        for tokens in (context, context + more)
    )
    assume(not problems_of(long, SMALL))
    assert total_ns(long, HARDWARE) >= total_ns(short, HARDWARE)


# ---- knobs ----


def leaves(part: type[BaseModel] = Scenario, above: Field = ()) -> Iterator[tuple[Field, Any]]:
    """Every field of the scenario that holds a value, with its type."""
    for name, field in part.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from leaves(field.annotation, (*above, name))
        else:
            yield (*above, name), field.annotation


def literals(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [value for inner in get_args(annotation) for value in literals(inner)]


#: Values to try for fields whose type does not list them. Each must move something on at least one base.
VALUES: dict[str, list[Any]] = {
    "model": ["Qwen3-1.7B"],
    "hardware": ["generic", "atlas_a3_die_20"],
    "workload.batch": [1, 5, 64],
    "workload.input_tokens": [1, 100, 2000],
    "workload.output_tokens": [1, 500],
    "workload.context_tokens": [100, 5000],
    "engine.tensor_parallel_size": [2],
    "engine.pipeline_parallel_size": [2],
    "engine.data_parallel_size": [2],
    "engine.max_num_seqs": [4, 64],
    "engine.max_num_batched_tokens": [64, 512],
    "engine.max_model_len": [100, 4096],
    "engine.gpu_memory_utilization": [0.5, 0.95],
    "engine.kv_cache_memory_bytes": [1 << 30, 1 << 28],
    "engine.cudagraph_capture_sizes": [[1], [4, 8]],
    "engine.task_queue_enable": [0, 2],
    "optimizations.kv.block_size": [16, 1024],
    "optimizations.kv.shared_prefix_tokens": [128, 384],
    "optimizations.overlap.streams": [2],
    "optimizations.overlap.micro_batches": [2],
    "optimizations.overlap.comm_chunks": [2],
    "optimizations.overlap.prefetch_layers": [0, 1, 2],
    "protocol.seed": [1, 7],
    "workload.expert_skew": [1.0],
    "engine.profile": ["healthy"],
    "engine.async_scheduling": [True],
    "engine.scheduler_reserve_full_isl": [False],
    "engine.prefill_first": [True],
    "engine.speculative_config": [{"method": "ngram", "num_speculative_tokens": 2, "acceptance": 0.5}],
    "engine.finegrained_tp_config": [
        {f"{name}_tensor_parallel_size": 2} for name in ("lmhead", "oproj", "embedding", "mlp")
    ],
    "engine.disaggregated_prefill": [{"instances": 1}],
    "engine.kv_pool": [{"capacity_gib": 1.0}],
    "slo": [{"ttft_ms": 1000.0}],
}
#: For people, not for the prediction.
WITHOUT_EFFECT = {"description"}
#: Moves the serving block or the TPOT in an engine, not the step: tests/sim/serving, tests/sim/predict/test_in_engine.
SERVED = {
    "workload.traffic", "engine.profile", "engine.async_scheduling", "engine.scheduler_reserve_full_isl",
    "engine.prefill_first",
}  # fmt: skip
#: Lets a scenario be that would be refused, and moves no other: tests/scenarios/test_build.py.
PERMISSIONS = {"engine.allow_long_max_model_len"}
#: A value that says what is so anyway, on the base that it is tried on.
SAME = [("optimizations.kv.dtype", "bf16"), ("engine.hccl_op_expansion_mode", "AIV"), ("engine.stack", "torchair")]

SHARED = {"prefix_sharing": True, "shared_prefix_tokens": 512}
BASES: dict[str, dict[str, Any]] = {
    "eager": {"workload": {"batch": 4}},
    "captured": {"workload": {"batch": 4}, "optimizations": {"graph": "aclgraph"}},
    "compiled": {"workload": {"batch": 4}, "optimizations": {"graph": "ge_graph"}},
    "static": {"workload": {"batch": 4}, "optimizations": {"graph": "ge_graph", "kv": {"layout": "contiguous"}}},
    "prefetched": {"workload": {"batch": 4}, "optimizations": {"graph": "ge_graph", "overlap": {"prefetch": True}}},
    "shared": {"workload": {"batch": 4}, "optimizations": {"kv": SHARED}},
    "fp16": {"workload": {"batch": 4}, "optimizations": {"weights": "fp16"}},
    "experts": {"model": "experts", "workload": {"batch": 4}},
    "shared expert": {"model": "latent", "workload": {"batch": 4}},
    "spread": {
        "model": "latent",
        "workload": {"batch": 4},
        "engine": {"tensor_parallel_size": 2, "enable_expert_parallel": True},
    },
    "replicas": {
        "model": "latent",
        "workload": {"batch": 4},
        "engine": {"data_parallel_size": 2, "enable_expert_parallel": True},
        "optimizations": {"graph": "aclgraph"},
    },
    "int8": {"workload": {"batch": 4}, "optimizations": {"kv": {"dtype": "int8"}, "weights": "w8a8"}},
}
#: Knobs that act only on some bases; all others act on `eager`.
ACTS_ON = {
    # A limit in eager mode (checked, and refused where the batch is above it); it sets the captured sizes.
    "engine.max_num_seqs": "captured",
    "engine.cudagraph_capture_sizes": "captured",
    "optimizations.graph_prefill": "compiled",
    "engine.stack": "static",
    "optimizations.overlap.prefetch_layers": "prefetched",
    "optimizations.kv.shared_prefix_tokens": "shared",
    "optimizations.kv.prefix_sharing": "shared",
    "optimizations.kv.scale": "int8",
    "optimizations.fusion.add_rms_norm_quant": "int8",
    "optimizations.fusion.swiglu_quant": "int8",
    "optimizations.fusion.ffn": "fp16",
    "workload.expert_skew": "experts",
    "optimizations.fusion.moe_routing": "experts",
    "optimizations.fusion.grouped_matmul": "experts",
    "optimizations.fusion.moe_dispatch": "spread",
    "optimizations.overlap.micro_batches": "spread",
    "optimizations.overlap.shared_expert_stream": "shared expert",
    "engine.enable_expert_parallel": "spread",
    "engine.all2all_backend": "spread",
    "engine.finegrained_tp_config": "replicas",
    "engine.hccl_op_expansion_mode": "spread",
}


def values_of(path: Field, annotation: Any) -> list[Any]:
    name = ".".join(path)
    if name in VALUES:
        return VALUES[name]
    if values := literals(annotation):
        return values
    assert annotation is bool or bool in get_args(annotation), f"say in VALUES what to try for {name}"
    return [False, True]


def with_value(tree: dict[str, Any], path: Field, value: Any) -> dict[str, Any]:
    head, *rest = path
    below = tree.get(head, {}) if rest else None
    return {**tree, head: with_value(below, tuple(rest), value) if rest else value}  # type: ignore[arg-type]


#: What the bases are about, with two layers each: every kernel has its real size and a step costs little to play.
CONFIGS = {"dense": "Qwen3-0.6B", "experts": "Qwen3-30B-A3B", "latent": "DeepSeek-V2-Lite"}


@cache
def small_configs(folder: Path) -> dict[str, str]:
    """The models of the bases as config.json files."""
    files = {}
    for name, shipped in CONFIGS.items():
        config = json.loads((SHIPPED / shipped / "config.json").read_text())
        path = folder / f"{name}.json"
        path.write_text(json.dumps({**config, "num_hidden_layers": 2}))
        files[name] = str(path)
    return files


def base_tree(name: str, files: dict[str, str]) -> dict[str, Any]:
    """One of the bases, about its small model."""
    tree = BASES[name]
    return {**tree, "model": files[tree.get("model", "dense")]}


def case_of(tree: dict[str, Any]) -> Case:
    scenario = Scenario.model_validate(tree)
    engine = scenario.engine
    model = shard(
        load_model(scenario.model),
        engine.tensor_parallel_size,
        engine.data_parallel_size,
        engine.enable_expert_parallel,
        engine.all2all_backend == "allgather_reducescatter",
    )
    model = split_depth(model, engine.pipeline_parallel_size)
    return Case(scenario, model, load_hardware(scenario.hardware))


def refusal_of(tree: dict[str, Any]) -> str:
    """Why the scenario is refused, or an empty string."""
    problems = [f"{p.where}: {p.what}" for p in check_scenario(Scenario.model_validate(tree))]
    try:
        return "\n".join(problems or [f"{where}: {what}" for where, what in check(case_of(tree))])
    except ScenarioError as error:  # what the model cannot be split into; the command says which field asks for it
        return f"tensor_parallel_size or enable_expert_parallel: {error}"


def result_of(tree: dict[str, Any]) -> str:
    """The answer without the scenario that it repeats."""
    case = case_of(tree)
    prediction = predict(case)
    gains = gains_of(case)
    result = run_result(prediction, diagnose(prediction), gains, advise(prediction, gains), "x")
    return to_json({key: value for key, value in result.items() if key not in ("scenario", "seed")})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return small_configs(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def answers(files: dict[str, str]) -> dict[str, str]:
    return {name: result_of(base_tree(name, files)) for name in BASES}


@pytest.mark.slow
@pytest.mark.parametrize(("path", "annotation"), [pytest.param(*leaf, id=".".join(leaf[0])) for leaf in leaves()])
def test_every_knob_moves_the_answer_or_is_refused(
    path: Field, annotation: Any, files: dict[str, str], answers: dict[str, str]
) -> None:
    name = ".".join(path)
    if name in SERVED:
        return
    if name in WITHOUT_EFFECT:
        assert result_of({**base_tree("eager", files), "description": "other"}) == answers["eager"]
        return
    if name in PERMISSIONS:
        assert result_of(with_value(base_tree("eager", files), path, True)) == answers["eager"]
        return
    base = ACTS_ON.get(name, "eager")
    tree = base_tree(base, files)
    current: Any = Scenario.model_validate(tree)
    for part in path:
        current = getattr(current, part)
    tried = [value for value in values_of(path, annotation) if value != current]
    assert tried
    for value in tried:
        if (name, value) in SAME:
            continue
        changed = with_value(tree, path, value)
        refused = refusal_of(changed)
        if refused:
            assert path[-1] in refused
        else:
            assert result_of(changed) != answers[base], f"{name}: {current} -> {value}"


def test_the_lists_of_knobs_name_knobs() -> None:
    names = {".".join(path) for path, _ in leaves()}
    assert len(names) > 40
    assert set(VALUES) | WITHOUT_EFFECT | PERMISSIONS | set(ACTS_ON) | {name for name, _ in SAME} <= names


# ---- the same answer again ----

ANSWER = """
import sys
from sim.predict.scenario_result import scenario_result
from sim.report.files import to_json
for given in sys.argv[1:]:
    path, *sets = given.split()
    sys.stdout.write(to_json(scenario_result(path, sets).result))
"""
ASKED = [
    "scenarios/qwen3_0_6b_decode.yaml optimizations.graph=aclgraph workload.batch=3",
    "scenarios/qwen3_0_6b_decode.yaml workload.phase=prefill optimizations.weights=w8a8 workload.sampling=top_k_top_p",
]


@pytest.mark.study  # in the default run tests/cli/test_outputs.py asks the same of the whole command
def test_the_same_bytes_in_every_process(root: Path) -> None:
    def run(hash_seed: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", ANSWER, *ASKED],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    first, second = run("0"), run("1")
    assert first == second
    assert len(first) > 5_000


@examples(6)
@given(scenarios())
def test_the_same_bytes_twice_in_one_process(scenario: Scenario) -> None:
    assume(not problems_of(scenario, SMALL))
    case = Case(scenario, SMALL, HARDWARE)
    assume(not check(case))

    def text() -> str:
        prediction = predict(case)
        gains = gains_of(case)
        return to_json(run_result(prediction, diagnose(prediction), gains, advise(prediction, gains), "x"))

    assert text() == text()
