"""What-ifs by name: what is asked for and understood, what is refused, and the table that comes out."""

from __future__ import annotations

import json

import pytest

from scenarios.errors import ScenarioError
from scenarios.timeline import Timeline
from sim.compare.classes import MATMUL
from sim.imported.replay.whatif import asked, what_if
from tests.sim.imported.replay.steps import as_set, call, collective, kernel, step


def measured() -> Timeline:
    names = ["MatMulV2", "Swish", "Mul", "MatMulV2"]
    spans = []
    for number, op_type in enumerate(names):
        spans += [call(50 * number, 50 * number + 40), kernel(50 * number + 45, 50 * number + 60, op_type, 2 * number)]
    return step(*spans)


def test_a_what_if_has_a_name_a_subject_and_options() -> None:
    item = asked("scale:matrix_products,factor=0.25")
    assert (item.name, item.subject, dict(item.options)) == ("scale", MATMUL, {"factor": 0.25})
    assert asked("scale:MatMulV2").subject == "MatMulV2"
    assert asked("remove_host_gaps:gap_us=0.5").number("gap_us", 1.0) == 0.5


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("fuze", "--what-if fuze: 'fuze' is not one of remove_host_gaps, fuse,"),
        ("fuse:add_rmsnorm", "Did you mean 'add_rms_norm'?"),
        ("quantise:factor=x", "--what-if quantise:factor=x: factor is 'x', not a number from 0 to 1e9"),
        ("quantise:factor=-1", "not a number from 0 to 1e9"),
        ("quantise:factor=nan", "not a number from 0 to 1e9"),
        ("quantise:fator=1", "Did you mean 'factor'?"),
        ("quantise:matmul", "quantise takes no 'matmul'"),
        ("", "'' is not one of"),
    ],
)
def test_what_is_no_what_if_is_refused_in_a_line(text: str, line: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        asked(text)
    [message] = refused.value.messages
    assert line in message


def test_a_family_or_op_type_that_no_kernel_has_is_refused_with_the_nearest() -> None:
    for text, nearest in (("scale:MatMulV3", "MatMulV2"), ("scale:matrix_product", "matrix_products")):
        with pytest.raises(ScenarioError, match=f"Did you mean '{nearest}'"):
            what_if([measured()], [text])


def test_a_collective_is_chosen_by_what_it_does() -> None:
    reduced = collective(11, 61, "hcom_allReduce__1_0_1", by=0)
    both = step(call(0, 1), kernel(1, 11, by=0), reduced, collective(61, 91, "hcom_allGather__1_1_1", by=0))
    [row] = what_if([both], ["remove_collectives:allreduce"]).rows
    assert (row["made"], row["predicted_us"]) == (1, 0.041)


def test_without_a_wish_all_that_apply_are_listed_by_gain() -> None:
    result = what_if([measured()])
    assert [row["what_if"] for row in result.rows] == sorted(
        (row["what_if"] for row in result.rows),
        key=lambda name: -next(r["alone_ratio"] for r in result.rows if r["what_if"] == name),
    )
    assert {"fuse:swiglu", "quantise", "remove_host_gaps"} <= {row["what_if"] for row in result.rows}
    assert all(row["made"] and row["assumed"] for row in result.rows)
    assert result.replay["error"] == 0


def test_the_waterfall_sums_to_the_changed_step() -> None:
    result = what_if([measured()], ["fuse:swiglu", "scale:factor=0.5", "remove_host_gaps"])
    total = sum(row["waterfall_us"] for row in result.rows)
    [changed] = result.changed
    assert total == pytest.approx(result.replay["measured_us"] - changed.end_ns / 1000)
    assert changed.label == "SIMULATED"


def test_a_bound_that_nobody_asked_for_is_not_applied() -> None:
    spans = [call(0, 1), kernel(1, 11, "MatMulV2", 0), collective(11, 61, by=0), kernel(61, 71, "Mul", 0)]
    listed = {row["what_if"]: row["waterfall_us"] for row in what_if([step(*spans)]).rows}
    assert listed["remove_collectives"] is listed["shrink_collectives"] is None
    assert listed["quantise"] == 0.004
    [row] = what_if([step(*spans)], ["remove_collectives"]).rows
    assert row["waterfall_us"] == 0.05


def test_what_finds_nothing_says_so() -> None:
    [row] = what_if([measured()], ["fuse:rope"]).rows
    assert (row["made"], row["verdict"], row["alone_ratio"], row["assumed"]) == (0, "not applicable", 1.0, [])


def test_the_same_step_gives_the_same_bytes() -> None:
    one, two = what_if([measured()]), what_if([measured()])
    assert json.dumps([one.rows, one.replay]) == json.dumps([two.rows, two.replay])
    assert [as_set(t.spans) for t in one.changed] == [as_set(t.spans) for t in two.changed]
