"""What `whatif plan` writes: the plan as JSON, and the scenario of its best choice as YAML."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scenarios.errors import ScenarioError, did_you_mean, printable, quoted
from scenarios.files.atomic import write_text
from scenarios.loader import Loaded, load_scenario
from sim.predict.scenario_result import looked_up
from sim.report.files import refuse_overwriting, write_json
from sim.sweep.candidates import Fixed
from sim.sweep.evaluate import Slo
from sim.sweep.plan import plan
from sim.sweep.plan_result import plan_result

LIMITS = ("ttft_ms", "tpot_ms")
MAX_CARDS = 1024


def plan_outputs(
    scenario: str,
    cards: int,
    slo: str,
    sets: Sequence[str],
    json_file: Path | None,
    out: Path | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """The plan of a scenario on `cards` cards under `slo`, written to the files asked for.

    What `sets` name is taken as it is set, not searched. out: the best choice as a scenario file. Raises ScenarioError.
    """
    limits = slo_of(slo)
    loaded = load_scenario(scenario, sets)
    refuse_overwriting(loaded.document.sources, {"--json": json_file, "--out": out})
    fixed = Fixed(frozenset(text.partition("=")[0].strip() for text in sets))
    case = looked_up(_unsplit(loaded, fixed))
    if case.hardware.profile.device == "cpu":
        raise ScenarioError(["plan: needs the profile of an accelerator; set hardware to one (whatif list hardware)"])
    planned = plan(case, case.model, cards, limits, fixed, say)
    result = plan_result(planned, printable(loaded.name, 200), "plan.yaml" if out is None else str(out))
    if out is not None:
        write_text(out, scenario_yaml(loaded, sets, result))
    write_json(json_file, result)
    return result


def slo_of(text: str) -> Slo:
    """`ttft_ms=500,tpot_ms=50`. Raises ScenarioError."""
    limits: dict[str, float] = {}
    for pair in text.split(",") if text.strip() else []:
        key, _, value = (part.strip() for part in pair.partition("="))
        if key not in LIMITS:
            meant = did_you_mean(key, LIMITS)
            raise ScenarioError([f"--slo: no limit {quoted(key)}{meant}; give ttft_ms=..., tpot_ms=..."])
        if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", value) or not float(value):
            raise ScenarioError([f"--slo: {key} must be milliseconds above 0, got {quoted(value)}"])
        limits[key] = float(value)
    return Slo(**limits)


def _unsplit(loaded: Loaded, fixed: Fixed) -> Loaded:
    """The scenario without its own layout, but for what is fixed of it: other layouts have no use for parts of it."""
    layout: dict[str, object] = {
        "tensor_parallel_size": 1, "pipeline_parallel_size": 1, "data_parallel_size": 1,
        "enable_expert_parallel": False, "sequence_parallel": False, "hccl_op_expansion_mode": "auto",
    }  # fmt: skip
    searched = {name: value for name, value in layout.items() if f"engine.{name}" not in fixed.keys}
    engine = loaded.scenario.engine.model_copy(update=searched)
    return replace(loaded, scenario=loaded.scenario.model_copy(update={"engine": engine}))


def scenario_yaml(loaded: Loaded, sets: Sequence[str], result: dict[str, Any]) -> str:
    """A scenario file of the best choice, which extends nothing: that of the plan with `sets`, and the choice's own."""
    best = result["best"]
    if best is None:
        raise ScenarioError(["--out: no choice can run, so there is no scenario to write"])
    import yaml

    tree = load_scenario(str(loaded.path), [*sets, *best["settings"]]).scenario.model_dump(
        mode="json", exclude_defaults=True
    )
    what = f"{best['name']}, {best['batch']} requests"
    tree["description"] = f"{result['scenario']} on {result['cards']} cards, planned: {what}"
    return yaml.safe_dump(tree, sort_keys=False, width=110)
