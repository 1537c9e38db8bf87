"""Replayed what-ifs against what the simulator predicts for the switched scenario: docs/replay.md shows the same rows.

The replay sees only what a trace holds: spans, launches, shapes. It knows nothing of the Program, of passes or of a
rank's jitter. Kernels and calls that it must price come from the same hardware profile, so agreement shows that the
graph is right, and says nothing of how right the profile is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from scenarios.timeline import Timeline
from sim.hardware.profile import load_hardware
from sim.imported.replay.whatif import what_if

EAGER = "qwen3_8b_910b2_eager"
UNFUSED = tuple(f"optimizations.fusion.{name}=false" for name in ("add_rms_norm", "rms_norm", "rope", "swiglu"))


class Case(NamedTuple):
    """A what-if on a trace, and the switch that means the same. within: of the step."""

    what_if: str
    switch: str
    within: float


class Step(NamedTuple):
    """A scenario run op by op, and what is tried on it."""

    scenario: str
    base: tuple[str, ...]
    hardware: str
    cases: tuple[Case, ...]


#: Within 1 %, but where docs/replay.md says what is different.
STEPS = (
    Step(
        EAGER,
        (),
        "atlas_a2_910b2",
        (
            Case("fuse:rms_norm", "fusion.rms_norm=true", 0.01),
            Case("fuse:add_rms_norm", "fusion.add_rms_norm=true", 0.01),
            Case("fuse:rope", "fusion.rope=true", 0.01),
            Case("fuse:swiglu", "fusion.swiglu=true", 0.02),
            Case("quantise", "weights=w8a8", 0.01),
            Case("remove_host_gaps", "graph=aclgraph", 0.02),
            Case("remove_host_gaps:gap_us=0.03", "graph=ge_graph", 0.25),
        ),
    ),
    Step(
        "qwen3_8b_tp2_decode",
        ("optimizations.graph=eager", *UNFUSED),
        "atlas_a3_die",
        (
            Case("fuse:add_rms_norm", "fusion.add_rms_norm=true", 0.01),
            Case("remove_host_gaps", "graph=aclgraph", 0.30),
        ),
    ),
    Step(
        "qwen3_8b_prefill",
        ("optimizations.graph=eager", *UNFUSED),
        "atlas_a2_910b2",
        (
            Case("fuse:add_rms_norm", "fusion.add_rms_norm=true", 0.01),
            Case("quantise", "weights=w8a8", 0.01),
        ),
    ),
)


def switched(step: Step, case: Case) -> tuple[str, ...]:
    key = f"optimizations.{case.switch.partition('=')[0]}="
    return (*(pair for pair in step.base if not pair.startswith(key)), f"optimizations.{case.switch}")


def compared(step: Step, predicted: Callable[..., Timeline]) -> Iterator[tuple[Case, dict[str, Any], int, str]]:
    """(Case, row of the table, simulated step in ns, row of docs/replay.md)."""
    before = predicted(step.scenario, *step.base)
    rows = what_if([before], [case.what_if for case in step.cases], load_hardware(step.hardware)).rows
    for case, row in zip(step.cases, rows, strict=True):
        after_ns = predicted(step.scenario, *switched(step, case)).end_ns
        error = row["predicted_us"] * 1000 / after_ns - 1
        shown = f"{row['alone_ratio']:.3f}x ({row['low']:.3f}-{row['high']:.3f})"
        line = (
            f"| {step.scenario} | `{case.what_if}` | `{case.switch}` | {before.end_ns / after_ns:.3f}x | {shown} | "
            f"{error:+.1%} |"
        )
        yield case, row, after_ns, line


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.scenario)
def test_what_ifs_agree_with_the_switches(step: Step, predicted: Callable[..., Timeline], root: Path) -> None:
    docs = (root / "docs" / "replay.md").read_text(encoding="utf-8")
    for case, row, after_ns, line in compared(step, predicted):
        assert row["predicted_us"] * 1000 == pytest.approx(after_ns, rel=case.within), case
        assert line in docs


def test_unpriced_the_direction_is_right_and_the_error_is_told(predicted: Callable[..., Timeline]) -> None:
    """Without a hardware profile the call of a fused kernel is taken for one of its primitives' calls."""
    before, after = predicted(EAGER), predicted(EAGER, "optimizations.fusion.add_rms_norm=true")
    [row] = what_if([before], ["fuse:add_rms_norm"]).rows
    assert row["verdict"] == "gain"
    assert row["predicted_us"] * 1000 == pytest.approx(after.end_ns, rel=0.06)
    assert "by their bytes" in row["assumed"][1]
