"""Step 1 and step 3: what the baseline is, to the last setting, and what limits it, predicted and measured."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from scenarios.errors import printable
from scenarios.loader import Loaded
from scenarios.passes.switches import activation_dtype
from scenarios.schema import Scenario
from sim import __version__
from sim.predict.explain import Diagnosis, diagnose, limit_of
from sim.predict.predict import Prediction
from sim.predict.steps import Case
from sim.step.schedule import launches

#: A measured step whose device is idle for more than this share is bound by its host.
IDLE = 0.5


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
    """predicted, measured: names. shares: of the measured step, by what limits its ops, idle time and collectives."""

    predicted: str
    predicted_evidence: str
    measured: str
    measured_evidence: str
    shares: dict[str, float]

    @property
    def agree(self) -> bool:
        return self.predicted == self.measured


def bottleneck_of(prediction: Prediction, measured: Mapping[str, Any]) -> Bottleneck:
    """Name what limits the baseline. How long an op took is measured; which roof it is under follows from its work.

    measured: the `measured` part of a `run` document.
    """
    told: Diagnosis = diagnose(prediction)
    step = measured["step"]
    total = step["total_us"]
    spent = _by_limit(prediction, measured["ops"])
    if step["communication_us"]:
        spent["communication-bound"] = step["communication_not_overlapped_us"]
    shares = {name: us / total for name, us in spent.items() if us > 0}
    idle = step["free_us"] / total
    name = "host-bound" if idle > IDLE or not shares else max(shares, key=lambda limit: (shares[limit], limit))
    most = f"{shares.get(name, 0.0):.0%} of the measured step is in ops that are {name}"
    evidence = f"the device is idle for {idle:.0%} of the measured step" if name == "host-bound" else most
    if name != "host-bound":
        evidence += f"; between ops it is idle for {idle:.0%}"
    return Bottleneck(told.name, told.evidence, name, evidence, {**shares, "idle": idle})


def _by_limit(prediction: Prediction, ops: list[dict[str, Any]]) -> dict[str, float]:
    """Measured us of computing ops by what limits them. What was captured together is shared out as predicted."""
    kernels = {launch.index: launch for launch in launches(prediction.plan)}
    by_limit: dict[str, float] = {}
    for row in ops:
        mine = [kernels[i] for i in range(row["index"], row["index"] + row["ops"]) if i in kernels]
        total = sum(launch.kernel.duration_ns for launch in mine)
        for launch in mine:
            limit = limit_of(launch.kind, launch.kernel.bound)
            if limit != "communication-bound":
                share = launch.kernel.duration_ns / total if total else 1 / len(mine)
                by_limit[limit] = by_limit.get(limit, 0.0) + row["measured_us"] * share
    return by_limit
