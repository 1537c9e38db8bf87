"""Measured pairs of a product and its all-reduce: read strictly, priced from the profile and from measured parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.errors import ScenarioError
from scenarios.ops.catalogue import work_of
from sim.accuracy.overlaps import (
    COLUMNS,
    PairRow,
    Times,
    overlapped_us,
    overlaps_result,
    pair_of,
    price_overlaps,
    read_overlaps,
)
from sim.accuracy.reference import reference_csv
from sim.hardware.profile import load_hardware
from sim.kernel.price import price

HEAD = ",".join((*COLUMNS, "not_modelled", "scored"))
GOOD = "pair,910b2,8,4096,4096,2048,fp16,300,400,700,500,,yes"
A2 = load_hardware("atlas_a2_910b2")


def rows(folder: Path, *lines: str) -> list[PairRow]:
    path = folder / "overlaps.csv"
    path.write_text("\n".join((HEAD, *lines)) + "\n")
    return list(read_overlaps(path))


def test_a_row_is_a_shape_and_four_times(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, GOOD)
    assert (row.ranks, row.m, row.k, row.n, row.dtype) == (8, 4096, 4096, 2048, "fp16")
    assert row.times == Times(300.0, 400.0, 700.0, 500.0)
    assert (row.scored, row.not_modelled) == (True, "")
    product, reduction = pair_of(row)
    assert work_of(product).cube_flops == 2 * 4096 * 4096 * 2048
    assert (reduction.out.bytes, reduction.attr("ranks")) == (4096 * 2048 * 2, 8)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (GOOD.replace(",700,", ",,"), ":2: sequential_us: must be a positive number up to 1e12, got ''"),
        (GOOD.replace(",500,", ",-5,"), ":2: overlapped_us: must be a positive number up to 1e12, got '-5'"),
        (GOOD.replace("fp16", "fp12"), ":2: dtype: 'fp12' is no type"),
        (GOOD.replace(",2048,", ",many,"), ":2: n: must be a whole number"),
        (GOOD.replace(",8,", ",0,"), ":2: ranks, m, k and n must be 1 or more"),
    ],
)
def test_what_is_no_row_is_refused_with_its_place(tmp_path: Path, line: str, what: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        rows(tmp_path, line)
    assert what in refused.value.messages[0]


def test_a_pair_that_nothing_overlaps_takes_the_sum(tmp_path: Path) -> None:
    product, reduction = pair_of(*rows(tmp_path, GOOD))
    alone = [price(work_of(op), A2).duration_ns / 1000 for op in (product, reduction)]
    assert overlapped_us(product, reduction, 1, A2) == pytest.approx(sum(alone))
    assert overlapped_us(product, reduction, 1, A2, (2.0, 0.5)) == pytest.approx(2 * alone[0] + alone[1] / 2, abs=0.002)
    assert max(alone) < overlapped_us(product, reduction, 4, A2) < sum(alone)


def test_from_the_measured_parts_only_the_overlap_is_left_to_be_wrong(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, GOOD)
    (priced,), skipped = price_overlaps([row])
    assert skipped == []
    assert priced.times.sequential_us == priced.times.product_us + priced.times.collective_us
    assert 400 < priced.from_parts_us < 700  # between the longer part and both in turn
    assert priced.scored.measured_us == 500.0


def test_what_no_switch_expresses_and_unknown_hardware_are_listed_with_the_reason(tmp_path: Path) -> None:
    gather = "gather,910b2,2,2048,2048,1024,fp16,,,,297,no switch,no"
    priced, skipped = price_overlaps(rows(tmp_path, GOOD, gather, GOOD.replace("910b2", "910x")))
    result = overlaps_result(priced, skipped)
    assert [row["id"] for row in result["rows"]] == ["pair"]
    assert [item["row"] for item in result["unpriced"]] == ["gather", "pair"]
    assert result["unpriced"][0]["reason"] == "no switch"
    assert result["scored"] == 1
    assert result["median"] == abs(result["rows"][0]["error"])


def test_the_measured_overlap_of_eight_cards() -> None:
    """809 us in turn and 561 overlapped: the gain within a tenth, and the overlap by itself within 10 %."""
    priced, _ = price_overlaps(read_overlaps(reference_csv("overlaps")))
    by_id = {row["id"]: row for row in overlaps_result(priced, [])["rows"]}
    cards = by_id["gemm_all_reduce_910b"]
    assert cards["measured"]["gain"] == pytest.approx(808.9 / 560.6)
    assert cards["predicted"]["gain"] == pytest.approx(cards["measured"]["gain"], rel=0.1)
    assert abs(cards["error"]) < 0.15
    assert all(abs(row["from_parts_error"]) < 0.1 for row in by_id.values())
