"""A measurement next to its prediction as plain data: the `measured` part of a `run` document."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from device.measure.measure import CAPTURED, WARM_UP, Measurement, Sample, name_of
from device.operators.one_by_one import Places
from device.run.kv_cache import KvTensors
from scenarios.exchange.measured import Predicted
from scenarios.ops.catalogue import op_type_of
from scenarios.timeline import step_time


def document(measurement: Measurement, predicted: Predicted) -> dict[str, Any]:
    """Errors are predicted / measured - 1; those called steady, and all that is, are of times without other programs'
    and at the speed of the machine at which the profile was calibrated (where it says none, of this run's median).
    """
    speed = predicted.reference_ns / measurement.reference.median_ns if predicted.reference_ns else 1.0
    bound = measurement.bound
    ops = [_op(measurement, place, predicted, speed) for place in range(len(bound.units))]
    step = asdict(step_time(measurement.timeline))
    return {
        "kind": "measured",
        **bound.backend.describe(),
        "step": {key.removesuffix("_ns") + "_us": value / 1000 for key, value in step.items()},
        "marked_step": _sample(measurement.marked),
        "unmarked_step": _sample(measurement.unmarked),
        "steady_step": _sample(measurement.steady, speed),
        "steady_steps_us": [ns * speed / 1000 for ns in measurement.steady_steps_ns],
        "on_cpu_share": measurement.on_cpu_share,
        "reference_kernel": _sample(measurement.reference),
        "scaled_by": speed,
        "warm_up": WARM_UP,
        "repeats": measurement.repeats,
        "next_ids": list(measurement.next_ids),
        "weights": bound.weights.checkpoint.origin,
        "memory": _memory(bound.cache),
        **_experts(measurement),
        "op_times": measurement.op_times,
        "units": len(bound.units),
        "kernels": _kernels(measurement, ops),
        "ops": ops,
        "errors": _errors(measurement, ops, predicted, speed),
    }


def _experts(measurement: Measurement) -> dict[str, Any]:
    """Of ungrouped experts: how many the Program drew, and how many the router chose in each layer."""
    if not measurement.chosen:
        return {}
    block = measurement.bound.program.block("layers")
    return {"experts": {"drawn": Places(block.ops).count, "chosen": list(measurement.chosen)}}


def _memory(cache: KvTensors) -> dict[str, int]:
    """The KV cache as it is: bytes of the tensors, tokens that requests have taken of it, and what they waste."""
    return {
        "kv_cache_bytes": cache.bytes,
        "kv_taken_tokens": cache.taken_tokens,
        "kv_wasted_tokens": cache.wasted_tokens,
    }


def _sample(sample: Sample, scale: float = 1.0) -> dict[str, float]:
    names = ("median_us", "low_us", "high_us")
    times = (sample.median_ns, sample.low_ns, sample.high_ns)
    return {name: ns * scale / 1000 for name, ns in zip(names, times, strict=True)}


def _op(measurement: Measurement, place: int, predicted: Predicted, speed: float) -> dict[str, Any]:
    unit, sample = measurement.bound.units[place], measurement.units[place]
    issued, count = unit.issued, len(unit.calls)
    return {
        "index": issued.index,
        "ops": count,
        "layer": issued.layer,
        "block": issued.block.name,
        "name": name_of(unit),
        "kind": issued.op.kind if count == 1 else CAPTURED,
        "form": unit.form,
        "predicted_us": sum(predicted.ops_ns[call.issued.index] for call in unit.calls) / 1000,
        "measured_us": sample.median_ns / 1000,
        "low_us": sample.low_ns / 1000,
        "high_us": sample.high_ns / 1000,
        "steady_us": measurement.steady_units[place].median_ns * speed / 1000,
    }


def _kernels(measurement: Measurement, ops: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ops of one kind and form together, the longest first."""
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for unit, op in zip(measurement.bound.units, ops, strict=True):
        op_type = CAPTURED if op["kind"] == CAPTURED else op_type_of(unit.issued.op, measurement.bound.backend.name)
        key = (op["kind"], op_type, op["form"])
        row = rows.setdefault(
            key,
            dict(zip(("kind", "op_type", "form"), key, strict=True))
            | {"count": 0, "total_us": 0.0, "predicted_us": 0.0},
        )
        row["count"] += 1
        row["total_us"] += op["measured_us"]
        row["predicted_us"] += op["predicted_us"]
    return sorted(rows.values(), key=lambda row: -row["total_us"])


def _errors(
    measurement: Measurement, ops: list[dict[str, Any]], predicted: Predicted, speed: float
) -> dict[str, float]:
    """Of the step and of its ops together (signed); of single ops the median and 90th percentile of the magnitude."""
    steady = [op["predicted_us"] / op["steady_us"] - 1 for op in ops if op["steady_us"] > 0]
    each = [op["predicted_us"] / op["measured_us"] - 1 for op in ops if op["measured_us"] > 0]
    measured = sum(op["measured_us"] for op in ops)
    median, p90 = np.percentile(np.abs(each), (50, 90))
    return {
        "step": predicted.step_ns / measurement.unmarked.median_ns - 1,
        "ops": sum(op["predicted_us"] for op in ops) / measured - 1,
        "op_median": float(median),
        "op_p90": float(p90),
        "op_bias": float(np.median(each)),
        "steady_step": predicted.step_ns / (measurement.steady.median_ns * speed) - 1,
        "steady_ops": sum(op["predicted_us"] for op in ops) / sum(op["steady_us"] for op in ops) - 1,
        "steady_op_median": float(np.median(np.abs(steady))),
    }
