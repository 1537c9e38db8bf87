"""On an NVIDIA GPU: `pytest -m cuda`. Each switch, graphs, streams and ranks for real; elsewhere they skip.

This project has never run them on a GPU: a bound here that a GPU breaks may be wrong, and the test says by how much.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from device.backends import choose
from device.backends.cuda_graphs import GRAPHS, Replayed
from device.measure.answer import what_failed
from device.measure.measure import measure
from device.measure.numerics import Run, compare, generate, reference_run_of, scaled_down, switches
from device.operators.reference import reference
from device.ranks.spawn import on_ranks
from device.run.session import Options, Session
from device.run.workload import reported_step
from device.weights.weights import RandomCheckpoint
from scenarios.errors import ScenarioError
from scenarios.models.hf_config import load_model
from scenarios.models.model import Model
from scenarios.schema import Scenario
from tests.device.making import ALL_FUSED, DEEPSEEK, GLM, LITE, QWEN3, QWEN3_MOE, plain, prompts
from tests.device.ranks import Case, Cases
from tests.scenarios.making import switched

GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not GPUS, reason=f"no GPU that torch {torch.__version__} sees: nothing of CUDA can run"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's compiler uses what torch deprecates
]
two_gpus = pytest.mark.skipif(GPUS < 2, reason=f"two ranks want two GPUs, there are {GPUS}")

PAGED: dict[str, object] = {"kv__layout": "paged", "kv__block_size": 16}
#: Head dimensions of 64 and more: what models have, and what the kernels of a GPU are made for.
WIDE = {model.name: replace(model, head_dim=64) for model in (QWEN3,)}
MODELS = {**WIDE, QWEN3_MOE.name: QWEN3_MOE, GLM.name: GLM, DEEPSEEK.name: DEEPSEEK, LITE.name: LITE}
#: Relative error of 16-bit logits that a right kernel stays under; quantised ones stay under the other.
SIXTEEN_BIT, QUANTISED = 0.03, 0.5


@pytest.fixture(autouse=True)
def _room() -> Iterator[None]:
    """Graphs and caches of one test are gone before the next."""
    yield
    gc.collect()
    torch.cuda.empty_cache()


def run(
    scenario: Scenario, model: Model, options: Options | None = None, forced: Run | None = None, steps: int = 4
) -> Run:
    at_work = Session(scenario, model, choose("cuda"), RandomCheckpoint(model, 0), options=options)
    return generate(at_work, prompts(), steps, forced.tokens if forced else None)


def relative(result: Run, reference_run: Run) -> float:
    return ((result.logits - reference_run.logits).norm() / reference_run.logits.norm()).item()


@pytest.mark.parametrize("name", ["Qwen3-0.6B", "Qwen2.5-0.5B", "Llama-3.1-8B", "Qwen3-30B-A3B", "DeepSeek-V2-Lite"])
def test_every_switch_stays_near_the_plain_operators_or_is_refused_by_name(name: str) -> None:
    model, backend = scaled_down(load_model(name), 64), choose("cuda")
    reference_run = reference_run_of(model, backend)
    ran = 0
    for switch, wanted in switches(model):
        for precision in ("fp32", model.dtype):
            row = compare(model, switch, wanted, precision, backend, reference_run, False)
            if row.refused:
                continue
            ran += 1
            quantised = any(str(v).startswith(("w8", "w4", "int8")) for v in wanted.values())
            most = QUANTISED if quantised else 1e-3 if precision == "fp32" else SIXTEEN_BIT
            # A near choice of experts may fall on others in 16 bits, and then nothing bounds the difference.
            if not model.experts or (precision == "fp32" and not quantised):
                assert row.relative < most, (switch, precision, row.relative)
    assert ran > 10


TOGETHER = {"fusion__moe_routing": True, "fusion__grouped_matmul": True}


@pytest.mark.parametrize("graph", ["aclgraph", "ge_graph"])
@pytest.mark.parametrize("name", MODELS)
def test_replayed_graphs_give_the_tokens_of_the_eager_step(name: str, graph: str) -> None:
    model = MODELS[name]
    fused = {k: v for k, v in ALL_FUSED.items() if not model.latent or k not in ("fusion__qkv", "fusion__rope")}
    eager = plain(model, **fused, **PAGED, fusion__grouped_matmul=bool(model.experts))
    reference_run = run(eager, model)
    done = run(switched(eager, graph=graph), model, forced=reference_run)
    if graph == "aclgraph":  # the same calls: the same bits, but for a batch that is padded to another product
        assert relative(done, reference_run) < 1e-2
        assert done.tokens == reference_run.tokens
    else:  # torch.compile joins calls, and rounds less often
        assert relative(done, reference_run) < SIXTEEN_BIT


def test_replays_are_eager_steps_to_the_last_bit_where_nothing_is_padded() -> None:
    model = WIDE[QWEN3.name]
    eager = plain(model, **ALL_FUSED)
    workload = eager.workload.model_copy(update={"batch": 4})
    eager = eager.model_copy(update={"workload": workload})
    given = prompts(lengths=(40, 40, 33, 33))
    result = {}
    for graph in ("eager", "aclgraph"):
        session = Session(switched(eager, graph=graph), model, choose("cuda"), RandomCheckpoint(model, 0))
        result[graph] = generate(session, given, 6)
    assert result["aclgraph"].tokens == result["eager"].tokens
    assert torch.equal(result["aclgraph"].logits, result["eager"].logits)
    assert len(session.captures[GRAPHS].graphs) > model.layers


def test_a_measured_step_has_a_time_for_every_unit() -> None:
    model = WIDE[QWEN3.name]
    for graph in ("eager", "aclgraph"):
        scenario = plain(model, **ALL_FUSED, graph=graph)
        at_work = Session(scenario, model, choose("cuda"), RandomCheckpoint(model, 0))
        outcome = measure(*at_work.prepared(*reported_step(at_work)), repeats=5)
        assert len(outcome.units) == len(outcome.bound.units)
        assert all(sample.median_ns > 0 for sample in outcome.units)
        assert outcome.timeline.device == "CUDA"
        assert any(isinstance(unit, Replayed) for unit in outcome.bound.units) == (graph == "aclgraph")


@pytest.mark.parametrize(
    ("model", "switch"),
    [(QWEN3, {"overlap__streams": 2}), (GLM, {"overlap__shared_expert_stream": True, **TOGETHER})],
    ids=["keys", "shared expert"],
)
@pytest.mark.parametrize("graph", ["eager", "aclgraph"])
def test_two_streams_give_the_numbers_of_one(model: Model, switch: dict[str, object], graph: str) -> None:
    model = replace(model, head_dim=64, rotary_dim=model.rotary_dim * 64 // model.head_dim if model.rotary_dim else 0)
    fused = {**ALL_FUSED, "fusion__rope": False, "graph": graph}
    more = {k: v for k, v in switch.items() if k.startswith("fusion")}
    reference_run = run(plain(model, **fused, **more), model, steps=8)
    for _ in range(5):  # a race would show in some of them
        done = run(plain(model, **fused, **switch), model, steps=8)
        assert done.tokens == reference_run.tokens
        assert torch.equal(done.logits, reference_run.logits)


def test_attention_of_every_kind_runs_without_the_math_form() -> None:
    """Alike and ragged, whole and chunked, 16 bits and float32: a kernel that is not there would raise."""
    choose("cuda")
    assert not torch.backends.cuda.math_sdp_enabled()
    for model in (WIDE[QWEN3.name], LITE):
        for wide in (False, True):
            fused = {"fusion__attention": True, "fusion__rms_norm": True}
            reference_run = run(plain(model, **fused), model, Options(wide, reference))
            done = run(plain(model, **fused), model, Options(wide), reference_run)
            assert relative(done, reference_run) < (1e-3 if wide else SIXTEEN_BIT)


def test_memory_that_runs_out_is_one_line() -> None:
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    said = what_failed(caught.value)
    assert said is not None
    assert said.startswith("out of memory: CUDA out of memory")
    assert "\n" not in said


# ---- two GPUs ----


@two_gpus
def test_two_ranks_over_nccl_compute_what_one_does() -> None:
    scenario = plain(QWEN3, **ALL_FUSED, **PAGED)
    alone = Case(scenario, QWEN3, Options(), prompts(), [], "cuda")
    first = alone.run(None)
    alone = replace(alone, forced=[first.tokens[0]] * 3)
    reference_run = alone.run(None)
    engine = scenario.engine.model_copy(update={"tensor_parallel_size": 2})
    parallel = replace(alone, scenario=scenario.model_copy(update={"engine": engine}))
    ways: dict[str, dict[str, object]] = {
        "plain": {},
        "graphs": {"graph": "aclgraph"},
        "pieces": {"overlap__comm_chunks": 2},
        "micro-batches": {"overlap__micro_batches": 2},
    }
    cases = {name: replace(parallel, scenario=switched(parallel.scenario, **way)) for name, way in ways.items()}
    answers = on_ranks(Cases(cases), 2, "nccl", timeout_s=100)
    assert answers[0] == answers[1]
    for name, (tokens, logits) in answers[0].items():
        assert relative(Run(tokens, torch.tensor(logits)), reference_run) < SIXTEEN_BIT, name


@two_gpus
def test_a_rank_that_dies_in_a_collective_of_nccl_is_one_line() -> None:
    from tests.device import ranks

    with pytest.raises(ScenarioError) as caught:
        on_ranks(ranks.rank_1_dies_on_a_gpu, 2, "nccl", timeout_s=60, collective_timeout_s=5)
    assert caught.value.messages[0].startswith("rank 1 of 2 was ended by SIGKILL")
