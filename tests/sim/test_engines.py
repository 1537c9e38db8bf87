"""Engine profiles: the law of a step on a host, what is shipped, and what is wrong with a file."""

from __future__ import annotations

import re
from math import exp, hypot, log, prod, sqrt
from pathlib import Path

import pytest

from scenarios.errors import ScenarioError
from scenarios.loader import load_text
from sim.engines.costs import EngineCosts
from sim.engines.ends import ends, moved
from sim.engines.profile import SHIPPED, EngineProfile, engine_names, engine_of, load_engine, shipped_engine_of
from sim.engines.write import engine_text
from sim.hardware.profile import SHIPPED as HARDWARE
from sim.hardware.profile import load_hardware

MS = 1_000_000


def bounds(name: str) -> tuple[EngineCosts, EngineCosts]:
    """(fastest, slowest) of a step of eight requests that takes the device 20 ms."""
    fast, slow = ends(load_engine(name), 1, lambda costs, _: costs.step_ns(20 * MS, 8))
    return fast.costs, slow.costs


def test_a_synchronous_engine_adds_its_host_time_to_the_step() -> None:
    costs = EngineCosts(per_step_ns=30 * MS, per_request_ns=1 * MS, hidden_share=0.0)
    assert costs.step_ns(19 * MS, requests=5) == 54 * MS


def test_an_asynchronous_engine_takes_the_longer_of_host_and_device() -> None:
    costs = EngineCosts(per_step_ns=40 * MS, hidden_share=1.0)
    assert costs.step_ns(26 * MS, requests=11) == 40 * MS  # a second card would not help
    assert costs.step_ns(90 * MS, requests=256) == 90 * MS


def test_what_only_a_share_hides_the_rest_is_added() -> None:
    costs = EngineCosts(per_step_ns=10 * MS, per_chunk_ns=2 * MS, hidden_share=0.5)
    assert costs.step_ns(20 * MS, requests=8, chunks=1) == 20 * MS + 6 * MS
    assert costs.step_ns(3 * MS, requests=8, chunks=1) == 3 * MS + 12 * MS - 3 * MS


def test_a_deployment_whose_device_is_slower_than_the_profile_says() -> None:
    assert EngineCosts(device_scale=1.1).step_ns(20 * MS, requests=1) == 22 * MS


def test_the_shipped_profiles() -> None:
    assert engine_names() == [
        "healthy",
        "mindie_2_2",
        "plain",
        "starved",
        "typical",
        "unknown",
        "vllm_ascend_0_10",
        "vllm_ascend_0_11",
        "vllm_ascend_0_18",
        "vllm_ascend_0_19",
        "vllm_ascend_0_20",
        "vllm_ascend_0_23",
        "vllm_ascend_0_8",
    ]
    for name in engine_names():
        profile = load_engine(name)
        low, high = bounds(name)
        assert profile.name == name
        assert low.step_ns(20 * MS, 8) <= profile.costs().step_ns(20 * MS, 8) <= high.step_ns(20 * MS, 8)


def test_unknown_is_a_healthy_host_whose_interval_holds_a_starved_one() -> None:
    low, high = bounds("unknown")
    for other in ("healthy", "starved"):
        step_ns = load_engine(other).costs().step_ns(20 * MS, 8)
        assert low.step_ns(20 * MS, 8) <= step_ns <= high.step_ns(20 * MS, 8)


UNSURE = """name: unsure
extends: plain
step:
  schedule_us: {value: 10000, source: assumed, origin: "a story", low: 5000, high: 20000}
  inputs_us: {value: 0, source: assumed, origin: "a story", low: 0, high: 0}
  metadata_us: {value: 0, source: assumed, origin: "a story", low: 0, high: 0}
  launch_us: {value: 0, source: assumed, origin: "a story", low: 0, high: 0}
request:
  output_us: {value: 0, source: assumed, origin: "a story", low: 0, high: 0}
device:
  scale: {value: 1, source: assumed, origin: "a story", low: 0.9, high: 1.2}
  dispatch_scale: {value: 1, source: assumed, origin: "a story", low: 1, high: 3}
"""


def unsure(folder: Path) -> EngineProfile:
    file = folder / "unsure.yaml"
    file.write_text(UNSURE, encoding="utf-8")
    return load_engine(str(file))


def test_independent_numbers_are_not_at_their_worst_at_once(tmp_path: Path) -> None:
    """Host 10 ms (5 to 20) and device 10 ms (9 to 12) add up to 20. Alone they reach 30 and 22 above, together
    sqrt(log(30/20)^2 + log(22/20)^2), 30.3 where all at once would be 32. Below 14.9, not 14: the host alone reaches
    15, and the device takes a fifteenth of that, more than its twentieth alone."""

    def step_ms(costs: EngineCosts, factors: tuple[float, ...]) -> float:
        return costs.step_ns(10 * MS * prod(factors), 1) / MS

    fast, slow = ends(unsure(tmp_path), 1, step_ms)
    assert step_ms(slow.costs, ()) == pytest.approx(20 * exp(hypot(log(30 / 20), log(22 / 20))), rel=2e-3)
    assert step_ms(fast.costs, ()) == pytest.approx(20 * exp(-hypot(log(15 / 20), log(14 / 15))), rel=2e-3)
    # A number of the caller's own is one more.
    fast, slow = ends(unsure(tmp_path), 1, step_ms, [(0.8, 1.25)])
    wider = hypot(log(30 / 20), log(22 / 20), log(22.5 / 20))
    assert step_ms(slow.costs, slow.factors) == pytest.approx(20 * exp(wider), rel=2e-3)


def test_what_changes_nothing_stays_at_its_value(tmp_path: Path) -> None:
    """The device hides the host: the interval is the device's own, whatever the host is like."""
    asynchronous = unsure(tmp_path)
    hidden = asynchronous.profile.overlap.hidden_share.model_copy(update={"value": 1.0, "low": 1.0, "high": 1.0})
    overlap = asynchronous.profile.overlap.model_copy(update={"hidden_share": hidden})
    engine = EngineProfile("hides", asynchronous.profile.model_copy(update={"overlap": overlap}))
    fast, slow = ends(engine, 1, lambda costs, _: costs.step_ns(100 * MS, 1))
    assert (fast.costs.device_scale, slow.costs.device_scale) == pytest.approx((0.9, 1.2))
    assert (fast.costs.per_step_ns, slow.costs.per_step_ns) == (10 * MS, 10 * MS)


def test_a_device_that_the_host_hides_counts_at_the_fast_end() -> None:
    """A host of 10 ms hides a device of 6: at its fast end the device shows."""
    fast, _ = ends(load_engine("vllm_ascend_0_18"), 8, lambda costs, _: costs.step_ns(6 * MS, 1))
    assert 0.85 * 6 * MS <= fast.costs.step_ns(6 * MS, 1) < 0.99 * 6 * MS


def test_a_slow_host_is_slow_in_issuing_too(tmp_path: Path) -> None:
    """Twice the step's time is its root in issuing; of an interval up to 3 the rest of the square is issuing's own."""
    engine = unsure(tmp_path)
    assert moved(engine, "high", {"host": 1.0}).dispatch_scale == pytest.approx(2**0.5)
    own = exp(sqrt(log(3) ** 2 - log(2**0.5) ** 2))
    assert moved(engine, "high", {"issuing": 1.0}).dispatch_scale == pytest.approx(own)
    assert moved(engine, "high", {"host": 0.5}).per_step_ns == round(10 * MS * 2**0.5)
    assert moved(engine, "low", {"host": 1.0}).dispatch_scale == 1.0
    assert moved(engine, "high", {}) == engine.costs()


def test_few_cores_stretch_all_host_times(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(
        'name: small\nextends: healthy\ncpu:\n  cores: {value: 4, source: measured, origin: "nproc"}\n',
        encoding="utf-8",
    )
    small, roomy = load_engine(str(file)), load_engine("healthy")
    # Eight workers of two threads and three threads of the engine want 19 cores.
    assert small.costs(ranks=8).per_step_ns == round(roomy.costs(ranks=8).per_step_ns * 19 / 4)
    assert roomy.costs(ranks=8) == roomy.costs(ranks=1)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("name: x\nextends: helthy\n", "x.yaml:2:10: extends: 'helthy' is no engine profile"),
        ("name: x\nextends: healthy\nsteps: {}\n", "x.yaml:3:1: steps: unknown key 'steps'. Did you mean 'step'?"),
        (
            'name: x\nextends: healthy\nstep:\n  schedule_us: {value: 5, origin: "a guess"}\n',
            "x.yaml:4:3: step.schedule_us.source: required key 'source' is missing",
        ),
    ],
)
def test_mistakes_in_a_file_are_located(tmp_path: Path, text: str, line: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError) as error:
        load_engine(str(file))
    assert line in str(error.value)


def test_a_share_beyond_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(
        'name: x\nextends: healthy\noverlap:\n  hidden_share: {value: 2, source: assumed, origin: "no share"}\n',
        encoding="utf-8",
    )
    with pytest.raises(ScenarioError, match=r"hidden_share.*must be at most 1"):
        load_engine(str(file))


def test_the_nearest_profile_is_named() -> None:
    with pytest.raises(ScenarioError, match="Did you mean 'vllm_ascend_0_18'"):
        load_engine("vllm_ascend_018")


def test_a_scenario_names_an_engine_and_a_wrong_name_is_located() -> None:
    traffic = "\nworkload: {traffic: {arrival: poisson, rate: 1}}"
    assert engine_of(load_text(f"engine: {{profile: healthy}}{traffic}", "s.yaml")).name == "healthy"
    with pytest.raises(ScenarioError, match=r"^s.yaml:1:19: engine.profile: 'heathy' is no .*mean 'healthy'"):
        engine_of(load_text(f"engine: {{profile: heathy}}{traffic}", "s.yaml"))


@pytest.mark.parametrize(
    ("engine", "profile"),
    [
        ("vllm-ascend v0.18.0-openeuler", "vllm_ascend_0_18"),
        ("vllm-ascend main 2025-09", "vllm_ascend_0_11"),
        ("vllm-ascend 0.14", "vllm_ascend_0_18"),
        ("vllm-ascend v0.9.2rc1", "vllm_ascend_0_11"),
        ("MindIE 2.1RC1", "mindie_2_2"),
        ("vllm-ascend 0.7.3 + MindIE Turbo", "vllm_ascend_0_8"),
        ("vllm-ascend v0.19.1rc1", "vllm_ascend_0_19"),
        ("vllm-ascend v0.20.2rc1", "vllm_ascend_0_20"),
        ("vllm-ascend v0.21.0rc1", "vllm_ascend_0_23"),
        ("vllm-ascend main 2026-05", "vllm_ascend_0_20"),
        ("vllm-ascend 0.27.1", "vllm_ascend_0_23"),
        ("vllm-ascend main 2026-08", "vllm_ascend_0_23"),
        ("vllm-ascend nightly (vLLM 0.23.0)", "vllm_ascend_0_23"),
        ("vllm-ascend nightly (CANN 9.0.1)", "unknown"),
        ("SGLang", "unknown"),
    ],
)
def test_an_engine_as_a_benchmark_names_it(engine: str, profile: str) -> None:
    assert shipped_engine_of(engine) == profile


def test_a_profile_says_what_a_deployment_runs_with_where_it_does_not_say() -> None:
    """Defaults by version, each with its source; a written profile keeps them."""
    defaults = {
        name: {key: default.value for key, default in load_engine(name).profile.defaults.items()}
        for name in engine_names()
    }
    assert defaults["vllm_ascend_0_8"]["graph"] == "eager"
    assert defaults["vllm_ascend_0_11"]["cudagraph_mode"] == "PIECEWISE"
    assert defaults["vllm_ascend_0_18"] == defaults["vllm_ascend_0_11"]
    assert defaults["vllm_ascend_0_18"]["scheduler_reserve_full_isl"] == "false"
    assert defaults["vllm_ascend_0_19"] == {**defaults["vllm_ascend_0_18"], "scheduler_reserve_full_isl": "true"}
    assert defaults["vllm_ascend_0_20"] == {**defaults["vllm_ascend_0_19"], "synchronize": "step"}
    assert defaults["vllm_ascend_0_23"] == {**defaults["vllm_ascend_0_20"], "cudagraph_mode": "FULL_AND_PIECEWISE"}
    assert defaults["vllm_ascend_0_10"] == {
        **defaults["vllm_ascend_0_11"], "prefill_first": "without_mla", "max_num_batched_tokens": "max_model_len"
    }  # fmt: skip
    assert defaults["mindie_2_2"] == {"prefill_first": "true", "max_num_batched_tokens": 8192, "max_num_seqs": 200}
    assert defaults["unknown"] == {}
    text = engine_text(load_engine("vllm_ascend_0_23"))
    assert "cudagraph_mode: {value: FULL_AND_PIECEWISE, source: spec" in text


@pytest.mark.parametrize("name", engine_names())
def test_a_written_profile_is_read_again(name: str, tmp_path: Path) -> None:
    file = tmp_path / "again.yaml"
    file.write_text(engine_text(load_engine(name)), encoding="utf-8")
    complete = load_engine(name).profile.model_copy(update={"extends": None})
    assert load_engine(str(file)).profile == complete


def test_a_profile_that_was_written_again_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = (SHIPPED / "healthy.yaml").read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    before = load_engine(str(path))
    assert load_engine(str(path)) is before
    path.write_text(text.replace("name: healthy", "name: another"), encoding="utf-8")
    assert (before.name, load_engine(str(path)).name) == ("healthy", "another")


def test_a_hardware_profile_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = (HARDWARE / "generic.yaml").read_text(encoding="utf-8")
    for name in ("one", "another"):
        path.write_text(re.sub("^name: .*$", f"name: {name}", text, flags=re.MULTILINE), encoding="utf-8")
        assert load_hardware(str(path)).name == name
