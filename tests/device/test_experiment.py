"""Sides of an experiment on the CPU: what they run, what they hold, and what their numbers are held to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from device.backends import choose
from device.experiment import COMPILER_CACHE, opened
from device.experiment.bench import DeviceBench
from device.experiment.reference_run import errors_of, plain_of, plain_session, reference_run_of
from device.experiment.sides import Prepared, _mean_end
from device.experiment.text import Span, text_for
from device.experiment.workbench import Workbench
from device.run.session import Session
from device.weights.weights import RandomCheckpoint
from scenarios.errors import ScenarioError
from scenarios.exchange.bench import Pair
from scenarios.loader import Loaded, load_scenario
from scenarios.models.hf_config import load_model
from scenarios.passes.base import set_switch
from scenarios.schema import Scenario
from sim.predict.memory import memory_of
from sim.predict.scenario_result import case_of
from tests.device.making import ALL_FUSED, QWEN3, REFERENCE, WIDE_REFERENCE, plain

pytestmark = [pytest.mark.cpu, pytest.mark.xdist_group("torch")]

SMALL = ("workload.batch=2", "workload.input_tokens=16", "workload.output_tokens=8")


def loaded(*sets: str) -> Loaded:
    return load_scenario("tiny_llama_cpu", (*SMALL, *sets))


@pytest.fixture
def few_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("device.experiment.alternating.MIN_TURNS", 2)
    monkeypatch.setattr("device.experiment.alternating.MAX_TURNS", 2)
    monkeypatch.setattr("device.experiment.alternating.WARM_UP_REPEATS", 3)


def prepared(scenario: Scenario, options: Any = REFERENCE) -> Prepared:
    at_work = Session(scenario, QWEN3, choose("cpu"), RandomCheckpoint(QWEN3, 0), options=options)
    return Prepared(at_work, text_for(scenario, QWEN3.vocab, None).tokens, Span.of(scenario))


# ---- what is run ----


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ((), Span(before=0, prompt=16, start=16, steps=8)),  # the context of 20 lies in the middle of the steps
        (("workload.output_tokens=100",), Span(0, 16, 62, 8)),
        (("workload.output_tokens=1",), Span(0, 16, 9, 8)),  # 17 tokens in all: the steps end there
        (("workload.context_tokens=64",), Span(0, 16, 57, 8)),  # 65 tokens in all
        (("workload.phase=prefill", "workload.context_tokens=32"), Span(32, 48, 28, 8)),
    ],
)
def test_decode_steps_lie_around_the_context_that_is_reported(sets: tuple[str, ...], expected: Span) -> None:
    scenario = loaded(*sets).scenario
    span = Span.of(scenario)
    assert span == expected
    assert max(span.prompt, span.start + span.steps) <= scenario.longest_request_tokens


@pytest.mark.parametrize("switches", [{}, {**ALL_FUSED, "kv__layout": "paged", "kv__block_size": 16}])
def test_a_pass_computes_what_a_session_computes(switches: dict[str, object]) -> None:
    """The prefill in chunks, the cache filled up to the decode steps, and each of these on the text's own tokens."""
    scenario = plain(**switches)
    engine = scenario.engine.model_copy(update={"max_num_batched_tokens": 25})
    side = prepared(scenario.model_copy(update={"engine": engine}), WIDE_REFERENCE)
    ran = side.first_pass()
    assert len(side.parts["ttft"]) == 5  # 3 x 40 tokens
    assert [ready.ends for ready in side.parts["ttft"]] == [0, 1, 0, 1, 1]

    at_work = Session(scenario, QWEN3, choose("cpu"), RandomCheckpoint(QWEN3, 0), options=WIDE_REFERENCE)
    span, texts = side.span, side.texts
    _, logits = at_work.prefill([text[: span.prompt] for text in texts])
    assert torch.allclose(ran.logits[0], logits, atol=1e-5)
    for at in range(span.prompt, span.start + span.steps):
        _, logits = at_work.decode([text[at] for text in texts])
        if at >= span.start:
            assert torch.allclose(ran.logits[1 + at - span.start], logits, atol=1e-5)


def test_a_pass_can_be_made_again_and_again() -> None:
    side = prepared(plain(**ALL_FUSED))
    first, second = side.first_pass(), side.first_pass()
    assert torch.equal(first.logits, second.logits)


def test_ttft_is_the_mean_of_the_ends() -> None:
    assert _mean_end([10, 20, 30], [1, 0, 3]) == round((10 + 3 * 60) / 4)


def test_a_mixed_step_decodes_all_but_the_last_request() -> None:
    scenario = plain(**ALL_FUSED)
    side = prepared(scenario.model_copy(update={"workload": scenario.workload.model_copy(update={"phase": "mixed"})}))
    (ready,) = side.parts["step"]
    assert ready.step.layout.queries == (1, 1, 40)
    assert ready.step.layout.contexts == (44, 44, 0)
    assert set(side.first_pass().first_ms) == {"ttft", "tpot", "step"}


# ---- what the numbers are held to ----


def test_the_plain_program_has_no_error_against_itself() -> None:
    scenario = plain(**ALL_FUSED)
    text = text_for(scenario, QWEN3.vocab, None)
    reference_run = reference_run_of(
        plain_session(scenario, QWEN3, choose("cpu"), RandomCheckpoint(QWEN3, 0), None, True), text
    )
    span = Span.of(scenario)
    itself = errors_of(reference_run.logits, reference_run, span)
    assert (itself.greatest, itself.relative, itself.first_other, itself.rows) == (0.0, 0.0, None, 9 * 3)
    assert itself.kl_nats == pytest.approx(0, abs=1e-6)
    assert itself.nll_nats == itself.plain_nll_nats
    # It goes on with its own tokens, which it finds likelier than random ones.
    assert [t[: span.start + 1] for t in reference_run.tokens] == [t[: span.start + 1] for t in text.tokens]
    assert itself.nll_nats < errors_of(reference_run.logits.flip(-1), reference_run, span).nll_nats

    broken = reference_run.logits.clone()
    broken[0, 0, 0] = torch.nan
    assert not errors_of(broken, reference_run, span).is_finite

    moved = reference_run.logits.clone()
    moved[3, 1] = moved[3, 1].flip(-1)
    other = errors_of(moved, reference_run, span)
    assert other.first_other == (3, 1)
    assert other.kl_nats > 0.01


def test_every_switch_is_off_in_the_plain_program() -> None:
    scenario = set_switch(set_switch(loaded().scenario, "weights", "w8a8"), "graph", "ge_graph")
    model = load_model("Tiny-Llama")
    off = plain_of(scenario, model).optimizations
    assert (off.graph, off.weights, off.kv.layout) == ("eager", "bf16", "contiguous")
    assert not any(getattr(off.fusion, name) for name in ("rms_norm", "attention", "qkv", "gate_up", "rope"))


# ---- pairs ----


def pair_of(*switches: tuple[str, object], sets: tuple[str, ...] = ()) -> tuple[Scenario, Scenario, Pair]:
    a = loaded(*sets).scenario
    b = a
    for switch, value in switches:
        b = set_switch(b, switch, value)
    return a, b, Workbench(choose("cpu"), Path()).pair(a, b)


@pytest.mark.slow
@pytest.mark.usefixtures("few_turns")
def test_bytes_held_are_the_bytes_predicted() -> None:
    a, b, pair = pair_of(("kv.dtype", "int8"), ("weights", "w8a8"))
    case = case_of(loaded())
    for scenario, side in ((a, pair.a), (b, pair.b)):
        predicted = memory_of(scenario, case.model, case.hardware)
        # The constant scales of INT8 channels, two of [heads, dim] a layer in 16 bits, are in no prediction.
        model, is_int8 = case.model, scenario.optimizations.kv.dtype == "int8"
        scales = 2 * model.layers * model.kv_heads * model.head_dim * 2 if is_int8 else 0
        assert side.kv_cache_bytes == predicted.kv_cache + scales
        assert side.weights_bytes == pytest.approx(predicted.weights, rel=0.01)
    assert pair.b.errors is not None
    assert pair.a.errors is not None
    assert pair.b.errors.relative > 2 * pair.a.errors.relative
    assert (pair.decode_steps, pair.first_context) == (8, 16)
    assert {part: len(turns) for part, turns in pair.repeats.items()} == {"ttft": 2, "tpot": 2}
    assert [turn.a_first for turn in pair.repeats["tpot"]] == [True, False]
    assert all(t.a_ns > 0 and t.b_reference_ns > 0 and t.a_wall_ns > 0 for t in pair.repeats["ttft"])


@pytest.mark.slow
@pytest.mark.usefixtures("few_turns")
def test_the_baseline_stays_and_its_weights_are_shared() -> None:
    bench = Workbench(choose("cpu"), Path())
    scenario = loaded().scenario
    warm = bench.warm_up(scenario)
    assert (warm.part, len(warm.repeats)) == ("tpot", 2 + 3)
    kept = bench._baseline
    assert kept is not None
    weights = kept[1].session.weights
    before = set(weights._kept)
    pair = bench.pair(scenario, set_switch(scenario, "fusion.qkv", False))
    assert pair.a is kept[2]
    assert set(weights._kept) == before  # what the other side made is gone with it
    fork = weights.fork()
    assert all(fork._kept[key] is value for key, value in weights._kept.items())
    again = bench.pair(scenario, scenario)
    assert again.a is kept[2]
    assert again.b is not kept[2]
    assert again.a.errors == again.b.errors


@pytest.mark.slow
@pytest.mark.usefixtures("few_turns")
def test_one_failure_is_one_line_and_the_next_pair_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    given = loaded()
    bench = DeviceBench.of(choose("cpu"), given)
    bench.warm_up(given.scenario)

    def fails(*_: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes\ntrace")

    with monkeypatch.context() as patch:
        patch.setattr(Prepared, "first_pass", fails)
        with pytest.raises(ScenarioError) as caught:
            bench.pair(given.scenario, set_switch(given.scenario, "kv.dtype", "int8"))
    (line,) = caught.value.messages
    assert line.startswith("--backend cpu: out of memory: DefaultCPUAllocator")
    with monkeypatch.context() as patch:
        patch.setattr(Prepared, "first_pass", lambda _: 1 / 0)
        with pytest.raises(ScenarioError, match="--backend cpu: ZeroDivisionError: division by zero"):
            bench.pair(given.scenario, set_switch(given.scenario, "kv.dtype", "int8"))
    assert bench.pair(given.scenario, given.scenario).repeats["tpot"]


@pytest.mark.slow
@pytest.mark.usefixtures("few_turns")
def test_a_plain_program_that_does_not_fit_in_float32_is_run_in_16_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_narrow(session: Session, text: Any) -> Any:
        if session.options.wide:
            raise MemoryError
        return reference_run_of(session, text)

    monkeypatch.setattr("device.experiment.workbench.reference_run_of", only_narrow)
    _, _, pair = pair_of(("fusion.rms_norm", False))
    assert pair.a.held_to == "bf16"
    assert pair.a.errors is not None
    assert pair.a.errors.relative < 0.02


@pytest.mark.study
@pytest.mark.usefixtures("few_turns")
def test_a_plain_program_that_does_not_fit_leaves_the_side_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("device.experiment.workbench.reference_run_of", fails)
    _, _, pair = pair_of(("kv.dtype", "int8"))
    assert pair.b.errors is None
    assert pair.b.unchecked == "--backend cpu: out of memory: take a smaller model, batch or length"


def test_what_a_cpu_lacks_is_refused_before_anything_runs() -> None:
    given = loaded()
    bench = DeviceBench.of(choose("cpu"), given)
    assert bench.refused(given.scenario) == ""
    assert bench.refused(set_switch(given.scenario, "weight_format", "nz")).startswith(
        "optimizations.weight_format: FRACTAL_NZ"
    )


@pytest.mark.parametrize("field", ["pipeline_parallel_size", "data_parallel_size"])
def test_ranks_that_are_not_tensor_parallel_are_refused(field: str) -> None:
    engine = loaded().scenario.engine.model_copy(update={field: 2})
    given = loaded()
    spread = Loaded(given.scenario.model_copy(update={"engine": engine}), given.document, given.path, given.name)
    with pytest.raises(ScenarioError, match=f"engine.{field}: 2 "):
        DeviceBench.of(choose("cpu"), spread)


def test_torchrun_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ScenarioError, match="it starts its ranks itself; run it without torchrun"):
        DeviceBench.of(choose("cpu"), loaded())


def test_a_cold_start_is_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile finds nothing from an earlier run, unless the user has named a cache."""
    import os

    monkeypatch.delenv(COMPILER_CACHE, raising=False)
    with opened("cpu"):
        folder = Path(os.environ[COMPILER_CACHE])
        assert folder.is_dir()
    assert not folder.exists()
    assert COMPILER_CACHE not in os.environ
    monkeypatch.setenv(COMPILER_CACHE, "/elsewhere")
    with opened("cpu"):
        assert os.environ[COMPILER_CACHE] == "/elsewhere"


# ---- text ----


def test_text_is_real_where_the_model_brings_a_tokenizer(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    words = {chr(code): code for code in range(256)}
    model = tokenizers.models.BPE(vocab=words, merges=[], unk_token="?")
    tokenizers.Tokenizer(model).save(str(tmp_path / "tokenizer.json"))
    scenario = loaded().scenario
    text = text_for(scenario, 256, tmp_path)
    assert text.is_given
    assert [len(tokens) for tokens in text.tokens] == [24, 24]
    assert not text_for(scenario, 100, tmp_path).is_given  # ids beyond the model's vocabulary
    assert not text_for(scenario, 256, None).is_given


def test_a_forged_tokenizer_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ScenarioError, match=r"tokenizer\.json: cannot be read"):
        text_for(loaded().scenario, 256, tmp_path)
