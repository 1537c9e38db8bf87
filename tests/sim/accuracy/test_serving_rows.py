"""Served benchmarks: the file, the case of a row, the scores, and engines fitted on one row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from scenarios.errors import ScenarioError
from sim.accuracy.rows.serving import read_serving
from sim.accuracy.serving import Answer, deployed_of, priced, split
from sim.accuracy.serving_score import serving_result
from sim.engines.profile import load_engine
from sim.fitting.engine import Factors, Measured, fit_engine
from sim.fitting.served import served_results

HEAD = (
    "id,deployment,engine,hardware,model,settings,input_tokens,output_tokens,arrival,rate,concurrency,prompts,"
    "duration_s,ttft_ms,tpot_ms,itl_ms,output_tok_s,saturated,scored\n"
)
GRAPH = "optimizations.graph=aclgraph;engine.max_model_len=2048"


def file_of(folder: Path, *rows: str) -> Path:
    path = folder / "served.csv"
    path.write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def row(number: int, clients: int, tpot: float, ttft: str = "", more: str = "no,yes") -> str:
    return (
        f"r{number},mine,vllm-ascend 0.18.0,910b2,Qwen3-0.6B,{GRAPH},128,64,closed,,{clients},,,{ttft},{tpot},,,{more}"
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (row(1, 4, 20).replace("closed", "close"), "served.csv:2: arrival: 'close' is none of constant"),
        (row(1, 4, 20).replace("closed,,4", "closed,,"), "served.csv:2: concurrency: closed arrivals need"),
        (row(1, 4, 20).replace("closed", "constant"), "served.csv:2: rate: constant arrivals need a rate"),
        (row(1, 4, 20).replace("128,64", "128,0"), "served.csv:2: output_tokens: must be at least 1"),
        (row(1, 4, -20), "served.csv:2: tpot_ms: must be a positive number"),
    ],
)
def test_mistakes_are_located(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(ScenarioError) as error:
        read_serving(file_of(tmp_path, text))
    assert line in str(error.value)


def test_a_row_that_cannot_be_read_leaves_the_others(tmp_path: Path) -> None:
    wrong = row(2, 4, 20).replace("closed", "gamma")
    rows, refused = read_serving(file_of(tmp_path, row(1, 4, 20), wrong))
    assert [one.id for one in rows] == ["r1"]
    assert refused[0]["id"] == "r2"
    assert "served.csv:3: arrival: 'gamma' is none of" in refused[0]["reason"]
    listed = served_results(rows, refused, calibrate=False)["serving"]["unpriced"]
    assert listed == refused


@pytest.mark.parametrize("text", ["", "-", "unstated", "n/a", "NaN", "inf"])
def test_a_number_that_is_not_stated_is_none(tmp_path: Path, text: str) -> None:
    (one,), _ = read_serving(file_of(tmp_path, row(1, 4, 20, ttft=text)))
    assert (one.ttft_ms, one.tpot_ms) == (None, 20.0)


def engine_settings(folder: Path, settings: str, conditions: str = "") -> tuple[str | None, str, int, str]:
    """(cudagraph_mode, graph, max_num_batched_tokens, where the host waits) of a row of vLLM-Ascend 0.18."""
    path = file_of(folder, row(1, 4, 20).replace(GRAPH, settings))
    text = path.read_text(encoding="utf-8").replace(",scored\n", ",scored,conditions\n").rstrip("\n")
    path.write_text(f"{text},{conditions}\n", encoding="utf-8")
    deployed = deployed_of(read_serving(path)[0][0])
    assert not isinstance(deployed, str)
    scenario = deployed.bench.case.scenario
    engine = scenario.engine
    waits = scenario.protocol.synchronize
    return engine.cudagraph_mode, scenario.optimizations.graph, engine.max_num_batched_tokens, waits


def test_what_a_row_leaves_open_is_the_default_of_its_engine(tmp_path: Path) -> None:
    assert engine_settings(tmp_path, "") == ("PIECEWISE", "aclgraph", 2048, "layer")
    assert engine_settings(tmp_path, GRAPH, "graph mode unstated; a note") == ("PIECEWISE", "aclgraph", 2048, "layer")
    # A row that names its graph means decode steps replayed whole, as a scenario does.
    assert engine_settings(tmp_path, GRAPH) == (None, "aclgraph", 2048, "step")
    said = f"{GRAPH};engine.cudagraph_mode=NONE;engine.max_num_batched_tokens=4096"
    assert engine_settings(tmp_path, said) == ("NONE", "aclgraph", 4096, "step")
    # Defaults that do not go with the row's settings are left out.
    assert engine_settings(tmp_path, f"{GRAPH};engine.max_num_seqs=4096")[2] == 8192


def test_graphs_in_pieces_are_captured_for_the_sizes_that_streams_hold(tmp_path: Path) -> None:
    def sizes(settings: str, engine: str = "0.13.0") -> tuple[int, ...] | None:
        text = row(1, 8, 20).replace("Qwen3-0.6B", "Qwen3-32B").replace("0.18.0", engine).replace(GRAPH, settings)
        deployed = deployed_of(read_serving(file_of(tmp_path, text))[0][0])
        assert not isinstance(deployed, str)
        return deployed.bench.case.scenario.engine.cudagraph_capture_sizes

    unsaid = "engine.tensor_parallel_size=4"
    assert sizes(unsaid) == (1, 32, 80, 136, 184, 232, 320, 416, 512)  # a batch of 8 is padded to 32
    piecewise = f"{unsaid};{GRAPH};engine.cudagraph_mode=PIECEWISE"
    assert sizes(piecewise) == sizes(unsaid)
    assert sizes(f'"{piecewise};engine.cudagraph_capture_sizes=[8,16]"') == (8, 16)
    assert sizes(f"{unsaid};{GRAPH}") is None  # decode steps replayed whole
    assert sizes(unsaid, "0.23.0") is None


def test_a_client_without_a_temperature_leaves_sampling_to_the_model(tmp_path: Path) -> None:
    def sampling(conditions: str, settings: str = GRAPH) -> str:
        path = file_of(tmp_path, row(1, 4, 20).replace(GRAPH, settings))
        text = path.read_text(encoding="utf-8").replace(",scored\n", ",scored,conditions\n").rstrip("\n")
        path.write_text(f"{text},{conditions}\n", encoding="utf-8")
        deployed = deployed_of(read_serving(path)[0][0])
        assert not isinstance(deployed, str)
        return deployed.bench.case.scenario.workload.sampling

    assert sampling("guidellm constant rate; 300 s") == "top_k_top_p"
    assert sampling("AIPerf closed loop") == "top_k_top_p"
    assert sampling("vllm bench serve random") == "greedy"
    assert sampling("guidellm constant rate", f"{GRAPH};workload.sampling=greedy") == "greedy"


def test_a_cache_keeps_blocks_and_lets_in_as_the_engine_of_its_date_did(tmp_path: Path) -> None:
    def settings_of(engine: str) -> tuple[bool, bool | None]:
        good, _ = split(read_serving(file_of(tmp_path, row(1, 4, 20).replace("0.18.0", engine)))[0])
        scenario = good[0].bench.case.scenario
        return scenario.optimizations.kv.prefix_sharing, scenario.engine.scheduler_reserve_full_isl

    assert settings_of("0.18.0") == (True, False)
    assert settings_of("0.23.0") == (True, True)


def test_rows_of_what_is_not_shipped_are_listed_with_their_reason(tmp_path: Path) -> None:
    rows, _ = read_serving(
        file_of(tmp_path, row(1, 4, 20).replace("Qwen3-0.6B", "GLM-9"), row(2, 4, 20).replace("910b2", "910x"))
    )
    good, bad = split(rows)
    assert not good
    assert [item["id"] for item in bad] == ["r1", "r2"]
    assert "GLM-9" in bad[0]["reason"]
    assert "910x" in bad[1]["reason"]


def test_the_engine_is_the_named_one_or_that_of_the_source(tmp_path: Path) -> None:
    named = row(2, 4, 20).replace(GRAPH, GRAPH + ";engine.profile=healthy")
    good, _ = split(read_serving(file_of(tmp_path, row(1, 4, 20), named))[0])
    assert [deployed.engine.name for deployed in good] == ["vllm_ascend_0_18", "healthy"]


def test_saturated_and_unscored_rows_do_not_count_for_tpot(tmp_path: Path) -> None:
    rows = [row(1, 4, 12), row(2, 4, 99, more="yes,yes"), row(3, 4, 99, more="no,no")]
    good, _ = split(read_serving(file_of(tmp_path, *rows))[0])
    answers: list[Answer] = [priced(deployed, deployed.engine) for deployed in good]
    result = serving_result(answers, [])
    assert result["tpot"]["rows"] == 1
    assert len(result["rows"]) == 3
    assert result["rows"][0]["tpot_error"] == pytest.approx(answers[0].value.tpot_ms / 12 - 1)


def test_one_row_of_a_starved_host_tells_the_others(tmp_path: Path) -> None:
    """A host four times as slow as the prior is found from one row, and what it takes at other loads follows."""
    good, _ = split(read_serving(file_of(tmp_path, row(1, 4, 20), row(2, 32, 20)))[0])
    first, second = (deployed.bench for deployed in good)
    prior = load_engine("vllm_ascend_0_18")
    truth = Factors(step=4.0, admission=1.5).on(prior.costs())
    seen = first.expect(truth)
    fitted = fit_engine([Measured(first, seen.tpot_ms, seen.ttft_ms, None)], prior, "mine", "a made-up host")
    assert fitted.factors.step == pytest.approx(4.0, rel=0.03)
    expected, actual = second.expect(fitted.profile.costs()), second.expect(truth)
    assert expected.tpot_ms == pytest.approx(actual.tpot_ms, rel=0.03)
    number = fitted.profile.profile.step.schedule_us
    assert number.source == "fitted"
    assert number.origin == "a made-up host"
    assert number.low < number.value < number.high


def test_a_row_with_its_requests_is_fitted_as_they_are_served(tmp_path: Path) -> None:
    """One client: the closed form counts its own prefill among the steps between its tokens, serving does not."""
    (deployed,), _ = split(read_serving(file_of(tmp_path, row(1, 1, 20)))[0])
    prior = load_engine("vllm_ascend_0_18")
    truth = Factors(step=3.0).on(prior.costs())
    seen = deployed.bench.simulate(truth, deployed.load)
    measured = Measured(deployed.bench, seen.tpot_ms, seen.ttft_ms, None)
    apart, served = (
        fit_engine([one], prior, "mine", "a made-up host").profile.costs()
        for one in (measured, replace(measured, load=deployed.load))
    )
    errors = [
        abs(deployed.bench.simulate(costs, deployed.load).tpot_ms / seen.tpot_ms - 1) for costs in (apart, served)
    ]
    assert errors[1] < 0.005 < errors[0]


def test_a_hidden_host_keeps_its_prior_and_a_wide_interval(tmp_path: Path) -> None:
    """Where the device is slower than any healthy host, a benchmark bounds the host from above only."""
    slow = row(1, 1, 20).replace("Qwen3-0.6B", "Qwen3-8B")
    good, _ = split(read_serving(file_of(tmp_path, slow))[0])
    bench, prior = good[0].bench, load_engine("vllm_ascend_0_18")
    seen = bench.expect(prior.costs())
    assert seen.tpot_ms > 12
    fitted = fit_engine([Measured(bench, seen.tpot_ms, None, None)], prior, "mine", "a made-up host")
    low, high = fitted.intervals["step"]
    assert low < 0.3
    assert high < 2.5


def test_calibrated_rows_are_scored_on_the_others(tmp_path: Path) -> None:
    """Long answers: few steps hold a prefill, so that made-up times may be flat."""
    made = [
        row(n, clients, tpot).replace("128,64", "128,1024")
        for n, clients, tpot in ((1, 4, 40), (2, 8, 41), (3, 16, 42))
    ]
    rows, refused = read_serving(file_of(tmp_path, *made))
    result = served_results(rows, refused, calibrate=True)
    assert result["serving"]["tpot"]["rows"] == 3
    assert result["serving_calibrated"]["tpot"]["rows"] == 2
    assert result["serving_calibrated"]["rows"][0]["fitted"]
    assert result["serving_calibrated"]["tpot"]["median"] < 0.02 < result["serving"]["tpot"]["median"]
    (host,) = result["serving_calibrated"]["hosts"]
    assert (host["deployment"], host["fitted_on"], host["profile"]) == ("mine", "r1", "vllm_ascend_0_18")
    assert host["low"] < host["host_factor"] < host["high"]
    assert host["host_factor"] == pytest.approx(4.0, rel=0.1)  # 40 ms where the profile says 10
    assert not host["healthy"]
    assert result["serving_calibrated"]["healthy"]["rows"] == 0


def test_healthy_hosts_are_scored_before_the_fit(tmp_path: Path) -> None:
    """A deployment that takes what its profile says is healthy, and its first row counts, as nothing was fitted yet."""
    good, _ = split(read_serving(file_of(tmp_path, row(1, 4, 20), row(2, 8, 20)))[0])
    seen = [priced(deployed, deployed.engine).value.tpot_ms for deployed in good]
    rows, refused = read_serving(file_of(tmp_path, row(1, 4, seen[0]), row(2, 8, seen[1])))
    fitted = served_results(rows, refused, calibrate=True)["serving_calibrated"]
    assert fitted["hosts"][0]["healthy"]
    assert fitted["hosts"][0]["host_factor"] == pytest.approx(1.0, rel=0.05)
    assert fitted["healthy"]["rows"] == 2
    assert fitted["healthy"]["median"] < 1e-6


def test_a_deployment_without_a_row_to_fit_is_unpriced(tmp_path: Path) -> None:
    rows, refused = read_serving(file_of(tmp_path, row(1, 4, 40, more="yes,yes")))
    result = served_results(rows, refused, calibrate=True)["serving_calibrated"]
    assert result["unpriced"][0]["id"] == "r1"
    assert "none to calibrate on" in result["unpriced"][0]["reason"]


def test_the_prefix_cache_spares_prefill(tmp_path: Path) -> None:
    path = file_of(tmp_path, row(1, 4, 20).replace("128,64", "1900,64").replace("Qwen3-0.6B", "Qwen3-8B"))
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace("duration_s,", "duration_s,prefix_cache_hit,").replace("closed,,4,,,", "closed,,4,,,0.9,")
    )
    hit = deployed_of(read_serving(path)[0][0])
    path.write_text(text, encoding="utf-8")
    missed = deployed_of(read_serving(path)[0][0])
    assert not isinstance(hit, str)
    assert not isinstance(missed, str)
    assert priced(hit, hit.engine).value.ttft_ms < 0.9 * priced(missed, missed.engine).value.ttft_ms


def answer_of(folder: Path, text: str) -> Answer | str:
    deployed = deployed_of(read_serving(file_of(folder, text))[0][0])
    return deployed if isinstance(deployed, str) else priced(deployed, deployed.engine)


def test_prompts_prefilled_elsewhere_are_in_no_decode_step(tmp_path: Path) -> None:
    """Prefill instances take the prompts out of the steps between tokens: TPOT falls."""
    text = row(1, 4, 20).replace("128,64", "1024,64")
    together = answer_of(tmp_path, text)
    apart = answer_of(tmp_path, text.replace(GRAPH, GRAPH + ";engine.disaggregated_prefill={instances: 2}"))
    assert isinstance(together, Answer)
    assert isinstance(apart, Answer)
    assert apart.value.tpot_ms < 0.97 * together.value.tpot_ms
    assert apart.value.ttft_ms != together.value.ttft_ms


def test_a_duration_does_not_cut_a_closed_load(tmp_path: Path) -> None:
    """As many requests are served as are enough, and the rate is over the time that they took."""
    plain = answer_of(tmp_path, row(1, 4, 20))
    timed = answer_of(tmp_path, row(1, 4, 20).replace("closed,,4,,,", "closed,,4,,300,"))
    assert isinstance(plain, Answer)
    assert isinstance(timed, Answer)
    assert timed.value.output_throughput == plain.value.output_throughput
