"""A plan as plain data: what `whatif plan --json` writes and the terminal shows."""

from __future__ import annotations

from dataclasses import asdict
from shlex import quote
from typing import Any

from scenarios.passes import PASSES
from scenarios.schema import Scenario
from sim.sweep.candidates import REFINEMENTS, Fixed
from sim.sweep.deploy import VERSIONS, command_of, max_graphs, sizes_to_capture
from sim.sweep.deploy_apart import split_commands
from sim.sweep.disaggregate import Split
from sim.sweep.evaluate import Point
from sim.sweep.finalists import Finalist
from sim.sweep.plan import NEAR, Plan

#: What a plan searches; every other field of a scenario is taken as it stands.
SEARCHED = (
    "engine.tensor_parallel_size", "engine.pipeline_parallel_size", "engine.data_parallel_size",
    "engine.enable_expert_parallel", "engine.max_num_seqs", "engine.speculative_config", "engine.sequence_parallel",
    "engine.finegrained_tp_config",
    "workload.batch", "optimizations.weights", "optimizations.kv.dtype", "optimizations.graph",
)  # fmt: skip


def plan_result(plan: Plan, name: str, file: str = "plan.yaml") -> dict[str, Any]:
    """The `plan` document: best{settings, metrics, command}, pareto[], limits, sensitivity[], near_ties[], considered,
    skipped{reason: count}. file: where the best choice is written as a scenario."""
    best = plan.best
    chosen = None if best is None else _finalist(best) | {"command": _commands(best), "verify": _verify(best, file)}
    return {
        "schema_version": 1,
        "scenario": name,
        "model": plan.case.scenario.model,
        "hardware": plan.case.hardware.name,
        "cards": plan.cards,
        "slo": {"ttft_ms": plan.slo.ttft_ms, "tpot_ms": plan.slo.tpot_ms},
        "best": chosen,
        "finalists": [_finalist(finalist) for finalist in plan.finalists],
        "pareto": [_point(point) for point in plan.pareto],
        "disaggregation": _apart(plan),
        "limits": {"refused": plan.refusals, **({} if best is None else _graphs(best))},
        "sensitivity": [
            {
                "number": swing.number, "factor": swing.width, "low": swing.low, "nominal": swing.nominal,
                "high": swing.high, "changes": swing.regret > 0, "regret": swing.regret, "measure": swing.measurement,
            }
            for swing in plan.swings
        ],
        "deciding_measurement": next((s.measurement for s in plan.swings if s.regret > 0), None),
        "near_ties": [{**_finalist(other), "why": why} for other, why in plan.near_ties],
        "considered": plan.considered,
        "played": plan.played,
        "skipped": dict(plan.skipped.most_common()),
        "not_searched": not_searched(plan),
        "fixed": list(plan.fixed),
    }  # fmt: skip


def settings_of(point: Point) -> list[str]:
    """The `--set` pairs that lead from the plan's scenario to that of a point: all that `scenario_of` sets of it."""
    scenario = point.case.scenario
    engine, optimizations = scenario.engine, scenario.optimizations
    pairs: dict[str, object] = {
        "engine.stack": engine.stack,
        "engine.cudagraph_capture_sizes": None,
        "engine.sequence_parallel": engine.sequence_parallel,
        "engine.hccl_op_expansion_mode": engine.hccl_op_expansion_mode,
        "workload.phase": scenario.workload.phase,
        "workload.context_tokens": None,
        "engine.tensor_parallel_size": engine.tensor_parallel_size,
        "engine.pipeline_parallel_size": engine.pipeline_parallel_size,
        "engine.data_parallel_size": engine.data_parallel_size,
        "engine.enable_expert_parallel": engine.enable_expert_parallel,
        "engine.max_num_seqs": engine.max_num_seqs,
        "workload.batch": scenario.workload.batch,
        "optimizations.weights": optimizations.weights,
        "optimizations.kv.dtype": optimizations.kv.dtype,
        "optimizations.graph": optimizations.graph,
    }
    pairs |= {key if key.startswith("engine.") else f"optimizations.{key}": value for key, value in point.choice.extras}
    pairs.pop("engine.finegrained_tp_config", None)
    if engine.finegrained_tp_config is not None:
        sizes = engine.finegrained_tp_config.sizes
        pairs |= {f"engine.finegrained_tp_config.{name}": size for name, size in sizes.items()}
    elif point.case.model.experts:
        pairs["engine.finegrained_tp_config"] = None
    for switch in ("add_rms_norm_quant", "swiglu_quant"):
        pairs[f"optimizations.fusion.{switch}"] = getattr(optimizations.fusion, switch)
    if not point.choice.speculation and engine.speculative_config is None:
        pairs["engine.speculative_config"] = None
    return [f"{key}={_shown(value)}" for key, value in pairs.items()]


def _shown(value: object) -> str:
    """A value as `--set` takes it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def not_searched(plan: Plan) -> list[str]:
    """Switches and engine fields that were taken as the scenario has them."""
    tried = {*SEARCHED, *(key if key.startswith("engine.") else f"optimizations.{key}" for key, _ in REFINEMENTS)}
    switches = [f"optimizations.{item.switch}" for item in PASSES]
    engine = [f"engine.{name}" for name in type(plan.case.scenario.engine).model_fields]
    fixed = Fixed(frozenset(plan.fixed))
    return sorted(key for key in (*switches, *engine) if key not in tried or fixed.names(key))


def _finalist(finalist: Finalist) -> dict[str, Any]:
    prediction = _point(finalist.point)
    return {
        **prediction,
        "metrics": {
            "tokens_per_second_per_card": finalist.tokens_per_card,
            "tokens_per_second_per_user": 1000 / finalist.tpot_ms,
            "ttft_ms": finalist.ttft_ms,
            "tpot_ms": finalist.tpot_ms,
        },
        "meets_slo": finalist.meets,
        "decided_by": finalist.decided_by,
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "name": point.choice.name,
        "batch": point.batch,
        "settings": settings_of(point),
        "recurrence": {
            "tokens_per_second_per_card": point.tokens_per_card,
            "tokens_per_second_per_user": point.per_user,
            "ttft_ms": point.ttft_ms,
            "tpot_ms": point.tpot_ms,
        },
        "memory_bytes": point.memory.total,
    }


def _apart(plan: Plan) -> dict[str, Any] | None:
    """Prefill and decode on cards of their own, and how that is to the choice (`ratio` of tokens/s a card)."""
    if plan.split is None:
        return None
    split, run = plan.split
    front = split.scenario().engine.disaggregated_prefill
    assert front is not None
    fields = ("instances", "tensor_parallel_size")
    own = [pair for pair in settings_of(split.decode) if not pair.startswith("engine.data_parallel_size=")]
    meets = plan.slo.met(run.ttft_ms, run.tpot_ms)
    ratio = None if plan.best is None else run.tokens_per_card / plan.best.tokens_per_card
    return {
        "prefill": _point(split.prefill), "decode": _point(split.decode),
        "prefill_instances": split.prefill_instances, "decode_instances": split.decode_instances, "cards": split.cards,
        "tokens_per_second_per_card": run.tokens_per_card, "ttft_ms": run.ttft_ms, "tpot_ms": run.tpot_ms,
        "meets_slo": meets, "ratio": ratio, "better": meets and ratio is not None and ratio > 1 + NEAR,
        "settings": [
            *own, f"engine.data_parallel_size={split.decode_instances}",
            *(f"engine.disaggregated_prefill.{name}={getattr(front, name)}" for name in fields),
        ],
        "command": _split_commands(split), "decided_by": "serving simulation",
    }  # fmt: skip


def _split_commands(split: Split) -> dict[str, Any]:
    if not _on_ascend(split.decode):
        return {}
    commands = {version: split_commands(split, version) for version in VERSIONS}
    return {version: asdict(command) for version, command in commands.items()}


def _on_ascend(point: Point) -> bool:
    """vLLM-Ascend runs nowhere else."""
    return point.case.hardware.profile.device == "npu"


def _commands(best: Finalist) -> dict[str, Any]:
    if not _on_ascend(best.point):
        return {}
    commands = {version: command_of(best.point.case, version) for version in VERSIONS}
    return {version: {"text": command.text, "notes": list(command.notes)} for version, command in commands.items()}


def _graphs(best: Finalist) -> dict[str, Any]:
    case = best.point.case
    return {
        "graphs": {
            version: {"most": max_graphs(case, version), "capture_sizes": list(sizes_to_capture(case, version))}
            for version in VERSIONS
        }
    }


def _verify(best: Finalist, file: str) -> list[str]:
    """How to see whether the plan holds, with its scenario in `file`."""
    workload: Scenario = best.point.case.scenario
    clients = best.point.batch * best.point.choice.data_parallel
    bench = (
        f"vllm bench serve --model {workload.model} --dataset-name random --random-input-len "
        f"{workload.workload.input_tokens} --random-output-len {workload.workload.output_tokens} --num-prompts "
        f"{8 * clients} --max-concurrency {clients} --ignore-eos --save-result --result-filename bench.json"
    )
    return [bench, f"whatif calibrate --bench bench.json --scenario {quote(file)} --out engine.yaml"]
