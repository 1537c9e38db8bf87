"""Every shipped scenario on the device that is here: measured steps and gains inside what is predicted.

A device that is not here is skipped with the reason. `WHATIF_HARDWARE=NAME` says which profile describes this machine
where its chip's own name does not (docs/experiment.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from device.experiment import opened
from device.experiment.bench import DeviceBench
from scenarios.errors import ScenarioError
from scenarios.exchange.bench import Bench
from scenarios.loader import Loaded, load_scenario, shipped_names
from sim.experiment.protocol import Options, experiment
from sim.experiment.result import experiment_result
from sim.hardware.profile import load_hardware
from sim.predict.scenario_result import case_of
from tests.hardware.machine import VARIABLE, backend_here, devices_here, profile_here
from tests.hardware.scaled import settings

pytestmark = pytest.mark.xdist_group("torch")

TABLE = "hardware table"
#: What is tried on a CPU: nothing that torch.compile makes first, for that is a minute each.
ON_CPU = ("fusion.rms_norm", "fusion.attention", "kv.dtype", "kv.layout")
#: Steps on a CPU that its assumed profile does not know, with the reason; their gains are held all the same.
UNKNOWN_ON_CPU = {
    "llama_3_1_70b_w4a16_decode": "torch has no W4A16 product: INT4 is unpacked before each, 32 ms for 4.4 predicted",
    "qwen2_5_0_5b_prefill_ffn": "cpu.yaml has one rate for 16 bits; a core without FP16 units takes five times as long",
}
#: Seconds for one scenario: on an accelerator for all factors, shapes and combinations, on a CPU for a few.
BUDGET_S = {"npu": 600.0, "cuda": 600.0, "cpu": 60.0}


@pytest.mark.npu
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", shipped_names())
def test_on_an_ascend_npu(name: str, record_property: Callable[[str, object], None]) -> None:
    held(name, on_this_machine("npu", name), (), record_property)


@pytest.mark.cuda
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", shipped_names())
def test_on_an_nvidia_gpu(name: str, record_property: Callable[[str, object], None]) -> None:
    held(name, on_this_machine("cuda", name), (), record_property)


@pytest.mark.cpu
@pytest.mark.study
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [name for name in shipped_names() if load_scenario(name).scenario.hardware != "cpu"])
def test_scaled_down_on_this_cpu(name: str, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    on_cpu(name, settings(name, tmp_path), record_property)


@pytest.mark.slow
@pytest.mark.cpu
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [name for name in shipped_names() if load_scenario(name).scenario.hardware == "cpu"])
def test_on_this_cpu(
    name: str, record_property: Callable[[str, object], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("device.experiment.alternating.MAX_TURNS", 8)
    monkeypatch.setattr("device.measure.measure.MAX_REPEATS", 5)
    on_cpu(name, (), record_property, ON_CPU[:1])


def on_cpu(
    name: str, sets: Sequence[str], record_property: Callable[[str, object], None], wanted: Sequence[str] = ON_CPU
) -> None:
    """Hold a scenario on this CPU to its profile, or to the one that WHATIF_HARDWARE names."""
    profile = profile_here("cpu", "")
    loaded = load_scenario(name, (*sets, f"hardware={profile}"))
    case = case_of(loaded)
    known = {item.switch for item in passes_of(case)}
    held(name, ("cpu", loaded), tuple(switch for switch in wanted if switch in known), record_property)


def passes_of(case: Any) -> Any:
    from scenarios.passes.switches import passes_for

    return [item for item in passes_for(case.model) if not (case.model.latent and item.switch == "kv.dtype")]


def on_this_machine(backend: str, name: str) -> tuple[str, Loaded]:
    """The scenario with the profile of the device that is here; skips, with the reason, where it cannot run."""
    result = backend_here(backend)
    if isinstance(result, str):
        pytest.skip(result)
    chip = str(result.describe().get("device", ""))
    profile = profile_here(backend, chip)
    if profile is None:
        pytest.skip(f"no profile is known for {chip!r}: name one with {VARIABLE}")
    if load_hardware(profile).profile.device != backend:
        pytest.skip(f"{VARIABLE}={profile} is a profile for {load_hardware(profile).profile.device}")
    try:
        loaded = load_scenario(name, (f"hardware={profile}",))
        case_of(loaded)
        refused = DeviceBench.of(result, loaded).refused(loaded.scenario)
    except ScenarioError as error:
        pytest.skip(error.messages[0])
    ranks = loaded.scenario.engine.tensor_parallel_size
    if refused or ranks > devices_here(backend):
        pytest.skip(refused or f"{ranks} ranks and {devices_here(backend)} devices")
    return backend, loaded


def held(
    name: str, here: tuple[str, Loaded], wanted: tuple[str, ...], record_property: Callable[[str, object], None]
) -> None:
    """Measure, leave the lines of the error table, and assert that what is measured is inside what is predicted."""
    backend, loaded = here
    with opened(backend) as bench_for:
        bench: Bench = bench_for(loaded)
        result = experiment_result(experiment(loaded, case_of(loaded), bench, Options(wanted, BUDGET_S[backend])))
    lines, problems = table(name, result, at_one_speed(result) if backend == "cpu" else 1.0)
    for line in lines:
        print(line)
        record_property(TABLE, line)
    known = UNKNOWN_ON_CPU.get(name, "") if backend == "cpu" else ""
    if known and all("_ms " in line for line in problems) and problems:
        pytest.xfail(known)
    assert not problems, "\n".join(problems)


def at_one_speed(result: dict[str, Any]) -> float:
    """By what times are scaled to the speed that the profile is of: that of its calibration, or, where it says none,
    a good one that this CPU had while it was measured: the fixed kernel's 10th percentile over its median."""
    calibrated = float(result["profile"]["scaled_by"])
    if calibrated != 1.0:
        return calibrated
    turns = [turn for row in result["factors"] if row["status"] == "measured" for turn in row["turns"]["tpot"]]
    references = [turn[key] for turn in turns for key in ("a_reference_ns", "b_reference_ns")]
    references += [1000 * repeat["reference_us"] for repeat in result["warm_up"]["repeats"]]
    return float(sorted(references)[len(references) // 10] / median(references))


def table(name: str, result: dict[str, Any], speed: float) -> tuple[list[str], list[str]]:
    """(lines of the error table, what lies outside its interval). speed: what measured times are scaled by."""
    head = result["headline"]
    lines, problems = [], []
    for metric in ("ttft_ms", "tpot_ms"):
        measured, predicted = result["metrics"]["measured"][metric] * speed, result["metrics"]["predicted"][metric]
        line = (
            f"{name:34} {metric:22} measured {measured:9.3f}  predicted {predicted['value']:9.3f} "
            f"({predicted['low']:.3f}-{predicted['high']:.3f})  error {predicted['value'] / measured - 1:+.0%}"
        )
        lines.append(line)
        if metric == f"{head}_ms" and not predicted["low"] <= measured <= predicted["high"]:
            problems.append(line)
    slack = 1 + result["smallest_gain_told"]  # two equal sides differ by as much
    for row in result["factors"]:
        if row["status"] != "measured":
            lines.append(f"{name:34} {row['factor']:22} {row['status']}: {row['reason']}")
            continue
        measured, predicted = row["measured"][head], row["predicted"][head]
        line = (
            f"{name:34} {row['factor']:22} measured {measured['value']:8.3f}x ({measured['low']:.3f}-"
            f"{measured['high']:.3f})  predicted {predicted['value']:.3f}x ({predicted['low']:.3f}-"
            f"{predicted['high']:.3f})  {row['verdict']['call']}"
        )
        lines.append(line)
        if measured["low"] > predicted["high"] * slack or measured["high"] < predicted["low"] / slack:
            problems.append(line)
    return lines, problems
