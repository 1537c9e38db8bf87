"""A measured step as the scenario that its row describes."""

from __future__ import annotations

import json
from typing import Any

from scenarios.batches import reported_batch
from scenarios.build import build
from scenarios.errors import ScenarioError
from scenarios.loader import load_text
from scenarios.speculation_settings import MAX_DRAFT
from sim.accuracy.rows.files import StepRow
from sim.predict.scenario_result import case_of
from sim.predict.steps import Case


def case_of_row(row: StepRow, hardware: str = "") -> Case | str:
    """The case to predict, or the reason why there is none. `hardware` replaces the row's."""
    if row.cards != row.tp * row.dp * _stages(row):
        return f"{row.cards} cards are not {row.dp} replicas of {row.tp} ranks" + _in_stages(row)
    if row.ep not in (1, row.cards):
        return f"experts spread over {row.ep} of {row.cards} cards are not modelled"
    if not (row.batch and row.query_len and row.step_ms):
        return "batch, query_len or step_ms is not stated"
    if row.phase not in ("decode", "prefill"):
        return f"phase {row.phase!r} is not decode or prefill"
    if row.phase == "decode" and row.query_len > MAX_DRAFT + 1:
        return f"{row.query_len} query tokens a request are more than a draft of {MAX_DRAFT} and one"
    # JSON is YAML, and quotes whatever the row holds.
    text = json.dumps(
        {
            "model": row.model,
            "hardware": hardware or row.hardware,
            "workload": {
                "phase": row.phase,
                "batch": row.batch,
                "input_tokens": row.query_len if row.phase == "prefill" else max(1, row.context),
                "output_tokens": 1,
                "context_tokens": row.context,
            },
            "engine": {
                "allow_long_max_model_len": True,  # what was measured was run
                "max_num_seqs": max(256, row.batch),
                "max_num_batched_tokens": max(8192, row.batch * row.query_len),
                "tensor_parallel_size": row.tp,
                "data_parallel_size": row.dp,
                "enable_expert_parallel": row.ep > 1,
                **_verifying(row),
            },
        }
    )
    try:
        return case_of(load_text(text, row.id, row.settings))
    except ScenarioError as error:
        return error.messages[0]


def _stages(row: StepRow) -> int:
    """Pipeline stages, which rows have no column for: as their settings say."""
    values = [s.partition("=")[2] for s in row.settings if s.startswith("engine.pipeline_parallel_size=")]
    return int(values[-1]) if values and values[-1].isdecimal() else 1


def _in_stages(row: StepRow) -> str:
    return f" in {_stages(row)} stages" if _stages(row) > 1 else ""


def _verifying(row: StepRow) -> dict[str, Any]:
    """A decode step of several query tokens verifies drafts. What drafted them is not in its columns, and not in its
    time, unless its settings name a method."""
    if row.phase != "decode" or row.query_len == 1:
        return {}
    return {"speculative_config": {"method": "ngram", "num_speculative_tokens": row.query_len - 1}}


def roofline_of(case: Case) -> float:
    """The plain roofline's answer for the case's reported step, us."""
    from sim.accuracy.roofline import program_roofline_us

    return program_roofline_us(build(case.scenario, case.model, reported_batch(case.scenario)), case.hardware)
