"""A prediction as plain data, with the keys of the command contract: what `--json` writes and reports read."""

from __future__ import annotations

from dataclasses import asdict
from hashlib import sha256
from typing import Any

from sim import __version__
from sim.hardware.profile import HardwareProfile
from sim.predict.explain import Advice, Diagnosis
from sim.predict.gains import Gains
from sim.predict.overlap import Overlap, overlaps
from sim.predict.pipeline_steps import Pipeline
from sim.predict.predict import Metric, Prediction
from sim.predict.stored import notes_of, notes_of_hardware

SCHEMA_VERSION = 1


def run_result(
    prediction: Prediction, diagnosis: Diagnosis, gains: Gains, advice: tuple[Advice, ...], name: str
) -> dict[str, Any]:
    """The `run` document. Times as their key's suffix says; shares and ratios are plain fractions."""
    return {
        **_about_step(prediction, diagnosis, name),
        **what_if_result(gains, advice),
        **_about_room(prediction),
    }


def step_result(prediction: Prediction, diagnosis: Diagnosis, name: str) -> dict[str, Any]:
    """The `run` document without its what-ifs, which take ten times as long."""
    return {**_about_step(prediction, diagnosis, name), **_about_room(prediction)}


def what_if_result(gains: Gains, advice: tuple[Advice, ...]) -> dict[str, Any]:
    """The part of the `run` document that asks what other switches would do."""
    return {
        "gains": [{"pass": g.switch, **{k: v for k, v in asdict(g).items() if k != "switch"}} for g in gains.gains],
        "waterfall": {
            "baseline_us": gains.baseline_us,
            "scenario_us": gains.scenario_us,
            "target_us": gains.target_us,
            "baseline_fits": gains.baseline_fits,
            "scenario_fits": gains.scenario_fits,
            "target_fits": gains.target_fits,
            "order": list(gains.order),
            "best_settings": list(gains.best_settings),
            "losers": [
                {"pass": g.switch, "state": g.state, "loss_us": -g.alone_us, "verdict": g.verdict}
                for g in gains.gains
                if g.alone_us < 0 and not g.in_best
            ],
        },
        "advice": [asdict(a) for a in advice],
    }


def _about_step(prediction: Prediction, diagnosis: Diagnosis, name: str) -> dict[str, Any]:
    case = prediction.case
    return {
        "schema_version": SCHEMA_VERSION,
        "scenario": {"name": name, **case.scenario.model_dump(mode="json")},
        "hardware": case.hardware.name,
        "device": case.hardware.profile.device,
        "provenance": _provenance(prediction),
        "seed": case.scenario.protocol.seed,
        "notes": [
            *notes_of(case.scenario, case.model),
            *notes_of_hardware(case.scenario, case.model, case.hardware),
        ],
        "graph": prediction.graph,
        "batch": {
            "phase": prediction.batch.phase,
            "requests": prediction.batch.requests,
            "tokens": prediction.batch.tokens,
            "groups": [asdict(g) for g in prediction.batch.groups],
        },
        "metrics": {k: _metric(m) for k, m in prediction.metrics.items()},
        "ttft_of": ttft_of(case.scenario.workload.batch),
        "step": _step(prediction),
        "kernels": [asdict(row) for row in diagnosis.kernels],
        "roofs": roofs_of(case.hardware),
        "kernel_count": diagnosis.kernel_count,
        "launches": diagnosis.host_launches,
        "hbm_bytes": diagnosis.hbm_bytes,
        "global_memory_bytes": diagnosis.gm_bytes,
        "ranks": prediction.case.model.cards,
        "waits_us": {str(rank): ns / 1000 for rank, ns in prediction.waits_ns.items()},
        "pipeline": _pipeline(prediction.pipeline),
        "busy": asdict(diagnosis.busy),
        "bottleneck": {
            "name": diagnosis.name,
            "evidence": diagnosis.evidence,
            "shares": diagnosis.shares,
            "limits_us": diagnosis.limits,
        },
        "overlaps": [_overlap(overlap) for overlap in overlaps(prediction)],
        **({"speculation": asdict(prediction.speculation)} if prediction.speculation else {}),
    }


def _about_room(prediction: Prediction) -> dict[str, Any]:
    return {
        "memory": _memory(prediction),
        "capacity": _capacity(prediction),
        "cold_start": asdict(prediction.cold_start),
    }


def roofs_of(hardware: HardwareProfile) -> dict[str, float]:
    """The roofs that kernels lie under: HBM on paper and as kernels sustain it, GB/s; the cube on 16-bit and INT8
    inputs, TFLOPS."""
    cube = hardware.chip.cube_flops_per_ns / 1000
    return {
        "hbm_peak_gbps": hardware.memory.hbm_peak_gbps,
        "hbm_sustained_gbps": hardware.memory.hbm_gbps,
        "cube_tflops": cube,
        "cube_int8_tflops": 2 * cube,
    }


def ttft_of(requests: int) -> str:
    """What the TTFT is the time of: one request on an idle engine, or the mean of several that arrive at once. No
    queue of a running service is in it."""
    return "one request alone" if requests == 1 else f"mean of {requests} requests that arrive at once"


def _metric(metric: Metric) -> dict[str, float]:
    return {"value": metric.value, "low": metric.low, "high": metric.high}


def _step(prediction: Prediction) -> dict[str, float]:
    step = prediction.step
    return {key.removesuffix("_ns") + "_us": value / 1000 for key, value in asdict(step).items()}


def _pipeline(pipeline: Pipeline | None) -> dict[str, Any] | None:
    """Stages and micro-batches of the step, or None where the model is not split in depth.

    bubble_us: of a stage on average; a stage is busy in the rest of the step, with kernels, transfers or its host.
    """
    if pipeline is None:
        return None
    round_ = pipeline.round
    stages = [
        {
            "layers": layers,
            "busy_us": (round_.total_ns - bubble.total_ns) / 1000,
            "bubble_us": bubble.total_ns / 1000,
            "receive_wait_us": bubble.receive_ns / 1000,
            "send_wait_us": bubble.send_ns / 1000,
            "idle_us": bubble.idle_ns / 1000,
            "memory_bytes": memory.total,
        }
        for layers, bubble, memory in zip(pipeline.layers, round_.bubbles, pipeline.memory, strict=True)
    ]
    return {
        "stages": stages,
        "micro_batches": len(pipeline.requests),
        "micro_batch_requests": list(pipeline.requests),
        "bubble_us": round_.share * round_.total_ns / 1000,
        "bubble_share": round_.share,
    }


def _overlap(overlap: Overlap) -> dict[str, Any]:
    return {
        "pass": overlap.switch,
        **{k: v for k, v in asdict(overlap).items() if k != "switch"},
        "lost_us": overlap.lost_us,
    }


#: Numbers of a profile that a rank alone never meets: the links, and what tensor-parallel ranks wait for.
LINKS = ("collective.",)
ONLY_BETWEEN_RANKS = ("host.rank_skew_us", "residual.rank_skew_sigma", "kernel.jitter_")


def _provenance(prediction: Prediction) -> dict[str, Any]:
    """Where the numbers come from: the result is a prediction, as good as the worst number it rests on."""
    profile = prediction.case.hardware.profile
    numbers = profile.numbers()
    model = prediction.case.model
    unused = (() if model.cards > 1 else LINKS) + (() if model.tensor_parallel > 1 else ONLY_BETWEEN_RANKS)
    counts: dict[str, int] = {}
    for name, number in numbers.items():
        if not name.startswith(unused):
            counts[number.source] = counts.get(number.source, 0) + 1
    digest = sha256(repr(sorted((k, n.value) for k, n in numbers.items())).encode()).hexdigest()[:16]
    return {
        "kind": "predicted",
        "worst_source": profile.worst_source(),
        "sources": dict(sorted(counts.items())),
        "tool_version": __version__,
        "hardware_digest": digest,
    }


def _memory(prediction: Prediction) -> dict[str, int]:
    memory = prediction.memory
    return {
        "weights_bytes": memory.weights,
        "kv_cache_bytes": memory.kv_cache,
        "activations_bytes": memory.activations,
        "graph_pool_bytes": memory.graph_pool,
        "runtime_bytes": memory.runtime,
        "hccl_buffers_bytes": memory.hccl_buffers,
        "total_bytes": memory.total,
        "usable_bytes": memory.usable,
        "visible_bytes": prediction.case.hardware.chip.hbm_visible_bytes,
        "capacity_bytes": prediction.case.hardware.chip.hbm_capacity_bytes,
    }


def _capacity(prediction: Prediction) -> dict[str, Any]:
    memory = prediction.memory
    return {
        "kv_tokens": memory.capacity.kv_tokens,
        "max_concurrent_requests": memory.capacity.max_concurrent_requests,
        "max_running_requests": min(
            memory.capacity.max_concurrent_requests, prediction.case.scenario.engine.max_num_seqs
        ),
        "kv_bytes_per_token": memory.capacity.bytes_per_token,
        "request_bytes": memory.capacity.request_bytes,
        "kinds": [asdict(kind) for kind in memory.kinds],
        "layouts": {f"{c.layout}_{c.dtype}": asdict(c) for c in memory.others},
    }
