"""Measured results as rows of the reference CSVs, each with where it comes from.

A run measured next to its prediction is a row of steps, a factor of an experiment is a row of ablations, and the
kernels of a profile, by op type, shapes and types, are rows of kernels. Nothing was fitted to such a row (`fit` no).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from statistics import fmean
from typing import Any

import numpy as np

from scenarios.errors import printable
from scenarios.profile.table import Capture, Kind
from scenarios.records import dataclass
from scenarios.resolved import settings_of
from scenarios.schema import Scenario

Row = dict[str, str]

#: Columns by kind of row, in the order of the files.
COLUMNS: dict[str, tuple[str, ...]] = {
    "steps": (
        "id", "hardware", "model", "phase", "batch", "query_len", "context", "tp", "dp", "ep", "cards", "step_ms",
        "settings", "scored", "fit", "conditions", "source",
    ),
    "ladders": (
        "id", "hardware", "model", "phase", "batch", "query_len", "context", "base", "step", "base_ms", "step_ms",
        "scored", "fit", "conditions", "source",
    ),
    "kernels": (
        "hardware", "software", "mode", "op_type", "input_shapes", "output_shapes", "dtype", "block_num", "mean_us",
        "samples", "scored", "fit", "source",
    ),
}  # fmt: skip
#: A measured step whose thread had a processor for less of it than this tells more of other programs.
MIN_ON_CPU = 0.5


@dataclass(frozen=True, slots=True)
class Adopted:
    """rows by kind (a key of COLUMNS). left_out: what gave no row and why, one line each."""

    rows: Mapping[str, Sequence[Row]]
    left_out: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return sum(map(len, self.rows.values()))


def joined(parts: Iterable[Adopted]) -> Adopted:
    """All rows together; of two with one id, the first."""
    rows: dict[str, list[Row]] = {kind: [] for kind in COLUMNS}
    left_out: list[str] = []
    for part in parts:
        left_out += part.left_out
        for kind, more in part.rows.items():
            known = {row["id"] for row in rows[kind] if "id" in row}
            rows[kind] += [row for row in more if row.get("id") not in known]
    return Adopted(rows, tuple(left_out))


def of_run(result: Mapping[str, Any], hardware: str, source: str) -> Adopted:
    """The step of a `run` result that was measured. hardware: a profile's name, "" for the one it was predicted on.

    On a CPU the step counts without other programs' time and at the machine's usual speed, elsewhere by the wall clock.
    """
    measured = result.get("measured")
    name = printable(str(result["scenario"].get("name", "")), 80)
    if not measured:
        return Adopted({}, (f"{name}: predicted and not measured",))
    groups = result["batch"]["groups"]
    if len(groups) != 1 or result["batch"]["phase"] not in ("decode", "prefill"):
        return Adopted({}, (f"{name}: requests of several lengths in one step: a row has one length",))
    scenario, group = scenario_of(result["scenario"]), groups[0]
    on_cpu = measured["backend"] == "cpu"
    step = measured["steady_step" if on_cpu else "unmarked_step"]
    share = float(measured.get("on_cpu_share", 1.0))
    whole = measured["ranks"]["measured"] == measured["ranks"]["in_scenario"]
    conditions = (
        f"step {'without other programs at the usual speed' if on_cpu else 'by the wall clock'}, median of "
        f"{measured['repeats']} ({step['low_us'] / 1000:.4g}-{step['high_us'] / 1000:.4g} ms); its thread had a "
        f"processor for {share:.0%}; {measured['ranks']['measured']} of {measured['ranks']['in_scenario']} ranks; "
        f"weights {measured['weights']}; torch {measured.get('torch', 'unknown')}"
    )
    row = {
        **_about(scenario, hardware or result["hardware"], group, name),
        **_cards(scenario),
        "step_ms": f"{step['median_us'] / 1000:.6g}",
        "settings": ";".join(settings_of(scenario)),
        "scored": "yes" if whole and (share >= MIN_ON_CPU or on_cpu) else "no",
        "fit": "no",
        "conditions": conditions,
        "source": source,
    }
    return Adopted({"steps": [row]})


def of_experiment(result: Mapping[str, Any], hardware: str, source: str) -> Adopted:
    """Each measured factor of an `experiment` result: the time without it, and that by the gain of the alternating
    turns, in which what drifts cancels; the ratio of the two medians has the drift in it."""
    baseline = result["baseline"]
    scenario = scenario_of(baseline["scenario"])
    name = printable(str(baseline["scenario"].get("name", "")), 80)
    headline = result["headline"]
    key = {"tpot": "tpot_ms", "ttft": "ttft_ms"}.get(headline)
    if key is None:
        return Adopted({}, (f"{name}: an experiment on mixed steps has no row",))
    rows, left_out = [], []
    for factor in result["factors"]:
        if "metrics" not in factor or "settings" not in factor:
            left_out.append(f"{name}: {factor['factor']}: {factor.get('reason') or factor.get('status')}")
            continue
        base, step = factor["settings"]["without"], factor["settings"]["with"]
        group = {"count": scenario.workload.batch, "query": 1, "context": baseline["lengths"]["decode_context_tokens"]}
        if headline == "ttft":
            group |= {"query": scenario.workload.input_tokens, "context": 0}
        base_ms, gain = factor["metrics"]["without"][key], factor["measured"][headline]
        about = _about(scenario, hardware or baseline["hardware"], group, f"{name} {factor['factor']}")
        rows.append(
            {
                **about,
                "base": ";".join(base),
                "step": ";".join(pair for pair in step if pair not in base) or ";".join(_undone(base, step)),
                "base_ms": f"{base_ms:.6g}",
                "step_ms": f"{base_ms / gain['value']:.6g}",
                "scored": "yes" if scenario.engine.tensor_parallel_size == 1 else "no",
                "fit": "no",
                "conditions": f"step_ms by the gain {gain['value']:.4g} ({gain['low']:.4g}-{gain['high']:.4g}) of "
                f"{gain['turns']} alternating turns; {(factor['verdict'] or {}).get('call', 'no verdict')}; weights "
                f"{baseline['weights']}",
                "source": source,
            }
        )
    return Adopted({"ladders": rows}, tuple(left_out))


def of_profile(captures: Sequence[Capture], hardware: str, source: str) -> Adopted:
    """The kernels of an imported profile by op type, shapes and types. hardware: the profile of its chip."""
    rows: list[Row] = []
    left_out: list[str] = []
    for capture in captures:
        if not hardware:
            left_out.append(f"{printable(capture.source, 80)}: kernels of which chip? name it: --hardware NAME")
            continue
        kernels = _kernels(capture, hardware, source)
        rows += kernels
        if not kernels:
            left_out.append(f"{printable(capture.source, 80)}: its kernels have no shapes")
    return Adopted({"kernels": rows}, tuple(left_out))


def _kernels(capture: Capture, hardware: str, source: str) -> list[Row]:
    events = capture.events
    groups: dict[tuple[str, ...], list[float]] = {}
    for row in map(int, events.rows(Kind.KERNEL)):
        op_type, shapes = capture.text(row, "op_type"), capture.text(row, "shapes")
        if not op_type or not shapes.strip('"; '):
            continue
        cores = int(np.asarray(events.facts.block_dim)[events.fact[row]])
        outputs = capture.text(row, "output_shapes")
        key = (op_type, shapes.strip('"'), outputs.strip('"'), capture.text(row, "dtypes"), str(cores or ""))
        groups.setdefault(key, []).append(int(events.duration_ns[row]) / 1000)
    software = ", ".join(f"{key} {value}" for key, value in capture.metadata.items() if "version" in key.lower())
    return [
        {
            "hardware": hardware,
            "software": software,
            "mode": capture.kind,
            "op_type": op_type,
            "input_shapes": shapes,
            "output_shapes": outputs,
            "dtype": dtypes,
            "block_num": cores,
            "mean_us": f"{fmean(times):.6g}",
            "samples": str(len(times)),
            "scored": "yes",
            "fit": "no",
            "source": source,
        }
        for (op_type, shapes, outputs, dtypes, cores), times in sorted(groups.items())
    ]


def scenario_of(document: Mapping[str, Any]) -> Scenario:
    """The scenario of a result, whose `scenario` has its name next to its fields."""
    return Scenario.model_validate({key: value for key, value in document.items() if key != "name"})


def _about(scenario: Scenario, hardware: str, group: Mapping[str, Any], name: str) -> Row:
    text = f"{scenario.model_dump_json()} {hardware} {group['query']} {group['context']} {name}"
    phase = "prefill" if group["query"] > 1 else "decode"
    label = re.sub(r"[^a-z0-9]+", "_", f"{name} {phase}".lower()).strip("_")
    return {
        "id": f"{label}_{sha256(text.encode()).hexdigest()[:8]}",
        "hardware": hardware,
        "model": scenario.model,
        "phase": phase,
        "batch": str(group["count"]),
        "query_len": str(group["query"]),
        "context": str(group["context"]),
    }


def _cards(scenario: Scenario) -> Row:
    engine = scenario.engine
    cards = engine.tensor_parallel_size * engine.data_parallel_size
    return {
        "tp": str(engine.tensor_parallel_size),
        "dp": str(engine.data_parallel_size),
        "ep": str(cards if engine.enable_expert_parallel else 1),
        "cards": str(cards),
    }


def _undone(base: Sequence[str], step: Sequence[str]) -> list[str]:
    """What `step` says by saying nothing: pairs of `base` that it has at their default again."""
    plain = Scenario()
    changed = [pair.partition("=")[0] for pair in base if pair not in step]
    pairs = []
    for where in changed:
        value: Any = plain
        for part in where.split("."):
            value = getattr(value, part)
        pairs.append(f"{where}={str(value).lower() if isinstance(value, bool) else value}")
    return pairs
