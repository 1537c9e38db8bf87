"""Step 1 and step 3: what the baseline is, to the last setting, and what limits it, predicted and measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from scenarios.errors import printable
from scenarios.loader import Loaded
from scenarios.passes.switches import activation_dtype
from scenarios.records import dataclass
from scenarios.schema import Scenario
from sim import __version__
from sim.predict.explain import Diagnosis, diagnose
from sim.predict.parts import computes, part_of
from sim.predict.predict import Prediction
from sim.predict.shares import Part, in_shares, shares_of
from sim.predict.shares import bottleneck_of as named
from sim.predict.steps import Case
from sim.step.schedule import launches


def scenario_hash(scenario: Scenario) -> str:
    """SHA-256 of every setting, defaults included; two files that mean the same have the same."""
    text = json.dumps(scenario.model_dump(mode="json", exclude={"description"}), sort_keys=True, ensure_ascii=True)
    return sha256(text.encode()).hexdigest()


def baseline_record(loaded: Loaded, case: Case, weights: str, machine: Mapping[str, str | int]) -> dict[str, Any]:
    """What must be said of the baseline for the experiment to be done again."""
    scenario, model = loaded.scenario, case.model
    workload, optimizations = scenario.workload, scenario.optimizations
    act = activation_dtype(scenario, model)
    kv = optimizations.kv
    return {
        "scenario": {"name": printable(loaded.name, 200), **scenario.model_dump(mode="json")},
        "scenario_sha256": scenario_hash(scenario),
        "model": {"name": model.name, "layers": model.layers, "hidden": model.hidden, "vocab": model.whole_vocab},
        "weights": weights,
        "precision": {
            "activations": act,
            "weights": optimizations.weights if optimizations.weights not in ("bf16", "fp16") else act,
            "kv_cache": act if kv.dtype == "auto" else kv.dtype,
        },
        "lengths": {
            "input_tokens": workload.input_tokens, "output_tokens": workload.output_tokens,
            "decode_context_tokens": scenario.decode_context_tokens,
        },
        "concurrency": workload.batch,
        "sampling": workload.sampling,
        "seed": scenario.protocol.seed,
        "hardware": case.hardware.name,
        "hardware_worst_source": case.hardware.profile.worst_source(),
        "tool_version": __version__,
        "machine": dict(machine),
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """predicted, measured: names, by one rule. shares: the parts of the measured step, which sum to 1."""

    predicted: str
    predicted_evidence: str
    measured: str
    measured_evidence: str
    shares: dict[str, float]

    @property
    def agree(self) -> bool:
        return self.predicted == self.measured


def bottleneck_of(prediction: Prediction, measured: Mapping[str, Any]) -> Bottleneck:
    """Name what limits the baseline, predicted and measured by the rule of `sim.predict.shares`. How long an op took is
    measured; which roof it is under follows from its work.

    measured: the `measured` part of a `run` document.
    """
    told: Diagnosis = diagnose(prediction)
    step = measured["step"]
    parts = _measured_ns(prediction, measured)
    total_ns = round(1000 * step["total_us"])
    name, _ = named(parts, total_ns)
    idle = f"the device is idle for {step['free_us'] / step['total_us']:.0%} of the measured step"
    evidence = f"{in_shares(parts, total_ns).removesuffix(' of the step')} of the measured step; {idle}"
    return Bottleneck(told.name, told.evidence, name, evidence, shares_of(parts, total_ns))


def _measured_ns(prediction: Prediction, measured: Mapping[str, Any]) -> dict[Part, float]:
    """The parts of the measured step, ns. The backends issue ops one after the other, so idle time is a late host's."""
    step = measured["step"]
    spent = _by_part(prediction, measured["ops"])
    busy = sum(spent.values())
    parts = {part: 1000 * step["computing_us"] * us / busy for part, us in spent.items()} if busy else {}
    exposed_us = step["communication_not_overlapped_us"]
    waiting_us = min(exposed_us, step.get("communication_wait_us", 0.0))
    idle: dict[Part, float] = {
        "waiting for ranks": 1000 * waiting_us,
        "communication: transfer": 1000 * (exposed_us - waiting_us),
        "host late": 1000 * step["free_us"],
    }
    return {part: ns for part, ns in (parts | idle).items() if ns > 0}


def _by_part(prediction: Prediction, ops: list[dict[str, Any]]) -> dict[Part, float]:
    """Measured us of computing ops by what limits them. What was captured together is shared out as predicted."""
    kernels = {launch.index: launch for launch in launches(prediction.plan)}
    by_part: dict[Part, float] = {}
    for row in ops:
        mine = [kernels[i] for i in range(row["index"], row["index"] + row["ops"]) if i in kernels]
        total = sum(launch.kernel.duration_ns for launch in mine)
        for launch in mine:
            if computes(launch.kernel):
                part = part_of(launch.kind, launch.kernel)
                share = launch.kernel.duration_ns / total if total else 1 / len(mine)
                by_part[part] = by_part.get(part, 0.0) + row["measured_us"] * share
    return by_part
