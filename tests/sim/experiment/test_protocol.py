"""The seven steps on a bench whose gains are known: they come back, verdicts follow, nothing is left out in silence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scenarios.errors import ScenarioError
from scenarios.loader import load_scenario
from scenarios.passes import PASSES
from scenarios.passes.base import set_switch
from sim.experiment.factors import factors_of
from sim.experiment.protocol import Options, experiment
from sim.experiment.record import bottleneck_of
from sim.experiment.result import experiment_result
from sim.predict.scenario_result import case_of, first_result
from sim.report.experiment_markdown import markdown
from sim.report.outputs.experiment import report
from sim.step.schedule import launches
from tests.sim.experiment.fake import FakeBench, heard

TINY = "tiny_llama_cpu"
#: What the machine of these tests gains by each switch.
KNOWN = {
    "fusion.rms_norm": 1.3, "fusion.rope": 1.2, "fusion.swiglu": 1.1, "fusion.add_rms_norm": 0.8, "weights": 1.5,
    "kv.layout": 0.9, "fusion.qkv": 1.0,
}  # fmt: skip


def made(bench: FakeBench, options: Options | None = None, sets: tuple[str, ...] = ()) -> dict[str, Any]:
    loaded = load_scenario(TINY, sets)
    return experiment_result(experiment(loaded, case_of(loaded), bench, options or Options(budget_s=1000)))


def by_name(result: dict[str, Any]) -> dict[str, Any]:
    return {row["factor"]: row for row in result["factors"]}


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    return made(FakeBench(KNOWN, drift=0.02, refuses={"fusion.ffn": "no such kernel"}))


def test_known_gains_come_back_and_verdicts_follow(whole: dict[str, Any]) -> None:
    rows = by_name(whole)
    for switch, gain in KNOWN.items():
        row = rows[next(name for name in rows if name.partition("=")[0] == switch)]
        measured = row["measured"]["tpot"]
        assert measured["low"] <= gain <= measured["high"], switch
    calls = {name: row["verdict"]["call"] for name, row in rows.items() if row["verdict"]}
    assert calls["fusion.rms_norm"] == calls["fusion.rope"] == calls["weights=w8a8"] == "adopt"
    assert calls["fusion.add_rms_norm"] == calls["kv.layout=paged"] == "do not adopt"
    assert calls["fusion.qkv"] == calls["fusion.attention"] == "not distinguishable"
    assert "it is for room, not for speed" in rows["kv.layout=paged"]["verdict"]["reason"]


def test_every_switch_of_the_model_has_a_row(whole: dict[str, Any]) -> None:
    model = case_of(load_scenario(TINY)).model
    wanted = {item.switch for item in PASSES if not item.idle(model)}
    assert {row["switch"] for row in whole["factors"]} == wanted
    for row in whole["factors"]:
        assert (row["status"] == "measured") == (row["verdict"] is not None)
        assert row["status"] == "measured" or row["reason"]
    assert by_name(whole)["fusion.ffn"]["reason"] == "no such kernel"


def test_what_to_set_follows_from_the_verdicts() -> None:
    wanted = ("weights", "fusion.rope", "fusion.attention", "fusion.rms_norm", "fusion.add_rms_norm")
    result = made(FakeBench({**KNOWN, "fusion.attention": 0.7}), Options(wanted, budget_s=1000))
    assert result["recommended"][0] == "optimizations.weights=w8a8"
    assert "optimizations.fusion.rope=true" in result["recommended"]
    assert "optimizations.fusion.attention=false" in result["recommended"]  # on, and it costs time
    assert not any("fusion.rms_norm" in s or "add_rms_norm=" in s for s in result["recommended"])


def test_factors_that_do_not_touch_have_an_excess_of_one(whole: dict[str, Any]) -> None:
    together = {tuple(row["factors"]): row for row in whole["combinations"]}
    everything = together["weights=w8a8", "fusion.rope", "fusion.swiglu"]
    assert everything["together"]["value"] == pytest.approx(1.5 * 1.2 * 1.1, rel=0.03)
    assert all(row["excess"]["low"] <= 1 <= row["excess"]["high"] for row in whole["combinations"])
    assert {len(names) for names in together} == {2, 3}


def test_adopted_factors_are_taken_to_another_batch_and_another_length(whole: dict[str, Any]) -> None:
    rows = [row for row in whole["shapes"] if row["factor"] == "fusion.rms_norm"]
    assert [row["shape"] for row in rows] == ["batch=8", "input_tokens=256"]
    assert all(row["measured"]["low"] <= 1.3 <= row["measured"]["high"] for row in rows)


def test_ruined_numbers_are_not_adopted_however_fast() -> None:
    row = by_name(made(FakeBench({"weights": 2.0}, bad=["weights"]), Options(("weights",), 1000)))["weights=w8a8"]
    assert row["measured"]["tpot"]["low"] > 1.9
    assert (row["verdict"]["call"], row["numerics"]["state"]) == ("do not adopt", "not acceptable")


def test_a_baseline_whose_own_numbers_are_ruined_is_in_doubt() -> None:
    result = made(FakeBench(KNOWN, bad=["fusion.attention"]), Options(("fusion.rms_norm",), 1000))
    (warning,) = result["warnings"]
    assert warning.startswith("the baseline itself is 0.05 nats from the plain program, more than 0.01")
    assert not made(FakeBench(KNOWN), Options(("fusion.rms_norm",), 1000))["warnings"]


def test_a_plain_program_that_cannot_run_leaves_nothing_adopted() -> None:
    result = made(FakeBench(KNOWN, unchecked="out of memory"), Options(("fusion.rms_norm", "weights"), 1000))
    assert all(row["verdict"]["call"] != "adopt" for row in result["factors"] if row["verdict"])


def test_a_factor_that_fails_is_a_row_and_not_the_end() -> None:
    reason = "--backend cpu: torch.compile failed (CppCompileError): check the C++ compiler"
    wanted = Options(("fusion.rope", "fusion.swiglu"), 1000)
    rows = by_name(made(FakeBench(KNOWN, fails={"fusion.rope": reason}), wanted))
    assert (rows["fusion.rope"]["status"], rows["fusion.rope"]["reason"]) == ("failed", reason)
    assert rows["fusion.swiglu"]["status"] == "measured"


def test_what_there_is_no_time_for_is_named() -> None:
    lines, say = heard()
    loaded = load_scenario(TINY)
    result = experiment_result(
        experiment(loaded, case_of(loaded), FakeBench(KNOWN, cost_s=10.0), Options(budget_s=60), say)
    )
    rows = result["factors"]
    left = [row["factor"] for row in rows if row["status"] == "left out"]
    assert left
    assert {f"factor {name}" for name in left} <= set(result["left_out"])
    assert all(row["predicted"]["tpot"]["value"] > 0 for row in rows if row["status"] == "left out")
    assert result["elapsed_s"] <= 60
    assert any(line.startswith("factor 1 of ") for line in lines)

    def effect(status: str) -> list[float]:
        return [abs(row["predicted"]["tpot"]["value"] - 1) for row in rows if row["status"] == status]

    assert max(effect("measured")) >= max(effect("left out"))
    assert result["left_out_s"] == pytest.approx(10.0 * len(result["left_out"]))
    assert result["budget_for_all_s"] >= result["elapsed_s"] + result["left_out_s"]


def test_each_factor_has_its_share_of_the_time_that_is_left() -> None:
    loaded = load_scenario(TINY)
    bench = FakeBench(KNOWN, cost_s=5.0)
    result = experiment_result(experiment(loaded, case_of(loaded), bench, Options(budget_s=200)))
    measured = [row for row in result["factors"] if row["verdict"]]
    assert len(measured) >= 8
    control, first, *_ = bench.seconds
    assert control is None  # what all is held against is not hurried
    factors = sum(row["status"] in ("measured", "left out") for row in result["factors"])
    assert first == pytest.approx((0.7 * 200 - 5.0) / factors)
    assert all(seconds is not None and seconds >= 0 for seconds in bench.seconds[1 : factors + 1])


def test_what_compiles_is_tried_behind_what_does_not_and_gains_as_much() -> None:
    loaded = load_scenario(TINY)

    def order(bench: FakeBench) -> list[str]:
        lines, say = heard()
        experiment(loaded, case_of(loaded), bench, Options(budget_s=2000), say)
        return [line.partition(": ")[2] for line in lines if line.startswith("factor ")]

    plain = order(FakeBench(KNOWN))
    assert plain.index("kv.layout=paged") < plain.index("fusion.rms_norm")
    slow = order(FakeBench(KNOWN, compiled=("kv.layout",)))
    assert set(slow) == set(plain)
    assert slow.index("kv.layout=paged") > plain.index("kv.layout=paged") or slow.index("kv.layout=paged") == 0
    assert order(FakeBench(KNOWN, compiled=("kv.dtype",))).index("kv.dtype=int8") > plain.index("kv.dtype=int8")


def test_a_baseline_that_the_backend_lacks_is_refused() -> None:
    with pytest.raises(ScenarioError, match="the baseline does not run here: none"):
        made(FakeBench(refuses={"fusion.rms_norm": "none"}))


def test_the_same_measurements_give_the_same_report() -> None:
    def texts() -> dict[str, str]:
        loaded = load_scenario(TINY)
        wanted = Options(("fusion.rms_norm", "fusion.rope", "weights"), 1000)
        result = experiment(loaded, case_of(loaded), FakeBench(KNOWN, drift=0.05), wanted)
        return report(result, experiment_result(result))

    assert texts() == texts()


def test_a_graph_mode_that_is_lacking_is_replaced_by_one_that_is_there() -> None:
    given = load_scenario(TINY).scenario

    class OnlyAclgraph(FakeBench):
        def refused(self, scenario: Any) -> str:
            if set_switch(scenario, "graph", "eager") != given:
                return "not of interest"
            return "not here" if scenario.optimizations.graph in ("ge_graph", "npugraph_ex") else ""

    rows = by_name(made(OnlyAclgraph({"graph": 1.4})))
    assert rows["graph=ge_graph"]["reason"] == "not here"
    assert rows["graph=aclgraph"]["verdict"]["call"] == "adopt"
    assert "graph=npugraph_ex" not in rows


@pytest.mark.parametrize("phase", ["prefill", "mixed"])
def test_the_verdict_is_of_the_step_that_the_scenario_reports(phase: str) -> None:
    result = made(FakeBench(KNOWN), Options(("fusion.rms_norm",), 100), (f"workload.phase={phase}",))
    assert result["headline"] == {"prefill": "ttft", "mixed": "step"}[phase]
    assert by_name(result)["fusion.rms_norm"]["verdict"]["call"] == "adopt"
    assert "fusion.rms_norm" in markdown(result)


# ---- which factors ----


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ("fusion.rop", "--factors: 'fusion.rop' is no optimisation switch. Did you mean 'fusion.rope'?"),
        ("fusion.moe_routing", "--factors: fusion.moe_routing has no effect here: "),
        ("graph=eager", "--factors: graph=eager: that is the switch off; name the value to try"),
        ("weights=w9a9", "--factors: weights=w9a9: Input should be "),
        ("kv.dtype={", "--factors kv.dtype: "),
    ],
)
def test_wrong_factors_are_named(wanted: str, problem: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        factors_of(case_of(load_scenario(TINY)), [wanted])
    assert caught.value.messages[0].startswith(problem), caught.value.messages


def test_a_factor_may_name_its_value_and_comes_with_what_it_needs() -> None:
    case = case_of(load_scenario(TINY))
    aclgraph, quant = factors_of(case, ["graph=aclgraph", "optimizations.fusion.add_rms_norm_quant"])
    assert (aclgraph.name, aclgraph.setting) == ("graph=aclgraph", "optimizations.graph=aclgraph")
    assert aclgraph.without == case.scenario
    assert quant.given == ("fusion.add_rms_norm", "weights")
    assert quant.without.optimizations.weights == quant.with_it.optimizations.weights == "w8a8"
    assert not quant.without.optimizations.fusion.add_rms_norm_quant


# ---- the report ----


def test_the_report_tells_all_seven_steps(whole: dict[str, Any]) -> None:
    text = markdown(whole)
    for number in range(1, 8):
        assert f"\n## {number}. " in text
    assert "NaN" not in json.dumps(whole, allow_nan=False)
    assert "cannot be judged" in text
    for row in whole["factors"]:
        assert f"`{row['factor']}`" in text
    assert whole["baseline"]["scenario_sha256"] in json.dumps(whole)
    assert whole["baseline"]["precision"] == {"activations": "bf16", "weights": "bf16", "kv_cache": "bf16"}
    assert all(line.count("|") == 8 for line in text.splitlines() if line.startswith("| `fusion.r") and "**" in line)


def test_trained_weights_are_judged_by_perplexity() -> None:
    result = made(FakeBench(KNOWN, trained=True), Options(("weights",), 100))
    assert "Perplexity is with / without" in markdown(result)
    assert by_name(result)["weights=w8a8"]["numerics"]["perplexity"] == 1.0


def test_the_pictures_are_svg_with_a_mark_for_each_measured_factor(whole: dict[str, Any]) -> None:
    from xml.etree import ElementTree

    loaded = load_scenario(TINY)
    result = experiment(loaded, case_of(loaded), FakeBench(KNOWN), Options(budget_s=1000))
    texts = report(result, experiment_result(result))
    assert sorted(texts) == ["gains.svg", "report.json", "report.md", "warm_up.svg"]
    root = ElementTree.fromstring(texts["gains.svg"])
    titles = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}title")]
    measured = [row for row in result.rows if row.compared]
    assert sum(" predicted: " in title for title in titles) == len(measured)
    assert sum(" measured: " in title for title in titles) == len(measured)
    assert all("nan" not in text for text in texts.values() if text.startswith("<svg"))


@pytest.mark.parametrize(
    ("idle_us", "exposed_us", "waiting_us", "name"),
    [
        (500, 0, 0, "HBM-bound"),  # a third of the step; the products lead
        (3000, 0, 0, "host-bound"),
        (960, 0, 0, "mixed"),  # within 5 % of the step of the products
        (100, 1800, 1500, "communication-bound"),
    ],
)
def test_a_measured_step_is_named_by_the_rule_of_predicted_ones(
    idle_us: float, exposed_us: float, waiting_us: float, name: str
) -> None:
    """1,000 us of products that read HBM, and idle or exposed time next to them."""
    prediction = first_result(load_scenario("qwen3_0_6b_decode")).prediction
    matmuls = [launch for launch in launches(prediction.plan) if launch.kernel.bound == "hbm"]
    ops = [{"index": launch.index, "ops": 1, "measured_us": 1000 / len(matmuls)} for launch in matmuls]
    step = {
        "total_us": 1000 + idle_us + exposed_us,
        "computing_us": 1000.0,
        "communication_us": exposed_us,
        "communication_not_overlapped_us": exposed_us,
        "communication_wait_us": waiting_us,
        "free_us": idle_us,
    }
    told = bottleneck_of(prediction, {"step": step, "ops": ops})
    assert told.measured == name
    assert sum(told.shares.values()) == pytest.approx(1)
    assert told.shares["host late"] == pytest.approx(idle_us / step["total_us"])
    assert f"idle for {idle_us / step['total_us']:.0%}" in told.measured_evidence
