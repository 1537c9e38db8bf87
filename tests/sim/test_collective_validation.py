"""Collectives against measurements: the shipped reference, the shared file, points that a fit has not seen."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from statistics import median

import pytest
from typer.testing import CliRunner

from cli import app
from scenarios.errors import ScenarioError
from sim.accuracy.collectives import arrival_spread_ns, op_of, predicted_us, price_collectives
from sim.accuracy.reference import reference_csv
from sim.accuracy.rows.files import CollectiveRow, read_collectives
from sim.accuracy.score import percentile
from sim.accuracy.validate import Bounds, Measurements, validate
from sim.collective.choose import CollectiveError
from sim.fitting.collectives import FAMILIES, fit, held_out, points, with_links
from sim.hardware import load_hardware

A3 = load_hardware("atlas_a3_die")
HEADER = "hardware,op,ranks,bytes,bytes_semantics,mean_us,measure_kind,scored\n"


def write(folder: Path, *lines: str) -> Path:
    path = folder / "mine.csv"
    path.write_text(HEADER + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("allGather", "all_gather"),
        ("hcom_allReduce__612_4_1@58622", "all_reduce"),
        ("reduce_scatter", "reduce_scatter"),
        ("hcom_alltoallv_", "all_to_all"),
        ("broadcast", "broadcast"),
        ("hcom_batchSendRecv__128_3_1", "send_recv"),
    ],
)
def test_names_of_operations(name: str, op: str) -> None:
    assert op_of(name) == op


def test_an_operation_that_is_not_modelled() -> None:
    with pytest.raises(CollectiveError, match="'barrier' is no collective"):
        op_of("barrier")


def test_a_row_in_a_network_has_its_wait_and_its_slower_bytes(tmp_path: Path) -> None:
    bare, inside = read_collectives(
        write(
            tmp_path,
            "atlas_a3_die,allGather,16,284880,per-rank shard,31.3,microbench:kernel,yes",
            "atlas_a3_die,allGather,16,284880,per-rank shard,46.5,in-network profiler,yes",
        )
    )
    transfer = predicted_us(bare, A3) - A3.kernel.start_us - A3.collective.aiv_step_us - A3.collective.hccs_us
    wait = arrival_spread_ns(A3) / 1000
    assert predicted_us(inside, A3) == pytest.approx(
        predicted_us(bare, A3) + A3.collective.aiv_busy_share * transfer + wait, abs=0.01
    )
    # Where hosts jitter the mean is another matter.
    assert arrival_spread_ns(A3, "mean") == 60_000


def test_rows_are_read_by_what_their_columns_mean(tmp_path: Path) -> None:
    rows = read_collectives(
        write(
            tmp_path,
            "910b2,allReduce,8,1048576,message_bytes,100,microbench:event,no",
            "910b2,allGather,8,1048576,full output tensor,100,microbench:alternating,",
        )
    )
    assert [(r.shard, r.idle, r.waited, r.scored) for r in rows] == [
        (False, True, False, False),
        (False, False, False, True),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("910b2,allReduce,eight,1024,full,5,microbench,yes", "ranks: must be a whole number"),
        ("910b2,allReduce,8,many,full,5,microbench,yes", "bytes: must be a whole number"),
        ("910b2,allReduce,8,1024,full,-5,microbench,yes", "mean_us: must be a positive number"),
    ],
)
def test_mistakes_are_located(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=rf"mine\.csv:2: {message}"):
        read_collectives(write(tmp_path, line))


def test_rows_that_cannot_be_priced_are_listed_with_the_reason(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "910x,allReduce,8,1024,full,5,microbench,yes",
        "910b2,barrier,8,1024,full,5,microbench,yes",
        "910b2,allReduce,0,1024,full,5,microbench,yes",
        "910b2,allReduce,8,1024,full,5,microbench,yes",
    )
    scored, skipped = price_collectives(read_collectives(path))
    assert [row.label for row in scored] == ["5 allReduce 8 ranks 1024 bytes"]
    assert "'910x' is no profile" in skipped[0].reason
    assert "no collective" in skipped[1].reason
    assert "1 or more" in skipped[2].reason


def test_validate_takes_a_collectives_file(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "atlas_a3_die,allGather,16,284880,per-rank shard,31.3,microbench:kernel,yes",
        "atlas_a3_die,allReduce,16,655360,message_bytes,412.5,test literal,no",
    )
    out = tmp_path / "out.json"
    done = CliRunner().invoke(app, ["validate", "--collectives", str(path), "--json", str(out)])
    assert done.exit_code == 0, done.output
    result = json.loads(out.read_text())
    outcome = result["collectives"]
    assert (outcome["rows"], outcome["unscored"], outcome["unpriced"]) == (1, 1, [])
    assert outcome["by_kind"].keys() == {"all_gather 16"}
    assert outcome["median"] < 0.1
    assert result["coverage"]["collectives"] == 1.0
    assert result["files"]["collectives"] == str(path)
    assert result["kernels"]["rows"] == 0
    assert "all_gather 16" in done.output


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["validate", "--collectives", str(tmp_path / "none.csv")])
    assert isinstance(done.exception, ScenarioError)


def test_the_shared_measurements(shared: Path) -> None:
    path = shared / "measured" / "hccl_a3.csv"
    result = validate(Measurements(collectives=path), "", Bounds()).result
    part = result["collectives"]
    assert (part["rows"], part["unscored"], part["unpriced"]) == (40, 19, [])
    assert part["median"] <= 0.10
    assert part["p90"] <= 0.35
    assert part["median"] < part["roofline_median"] / 4
    assert result["coverage"]["collectives"] >= 0.8


def test_the_shipped_reference_is_what_is_validated_by_default() -> None:
    scored, skipped = price_collectives(read_collectives(reference_csv("collectives")))
    assert skipped == []
    errors = sorted(abs(r.error) for r in scored if r.scored)
    assert median(errors) <= 0.05
    assert percentile(errors, 0.9) <= 0.20


def test_each_reference_row_names_its_source() -> None:
    with reference_csv("collectives").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 72
    assert [row for row in rows if len(row["source"]) < 8] == []


def test_the_reference_holds_the_shared_file(shared: Path) -> None:
    def values(path: Path) -> set[tuple[str, ...]]:
        with path.open(newline="") as file:
            return {
                (r["op"], r["ranks"], r["bytes"], r["mean_us"], r["measure_kind"], r["scored"])
                for r in csv.DictReader(file)
            }

    assert values(shared / "measured" / "hccl_a3.csv") <= values(reference_csv("collectives"))


def test_a_fit_finds_the_numbers_that_made_the_times() -> None:
    pytest.importorskip("scipy", reason="fitting needs the extra `fit`")
    links = FAMILIES[0]
    rows = [row for seen in points(links).values() for row in seen]
    truth = {**links.parameters, "hccs_gbps": 150.0, "step_us": 4.0, "aiv_gbps": 120.0}
    result = with_links(A3, truth)
    outcome = fit(links, [_timed(row, predicted_us(row, result)) for row in rows], A3)
    assert outcome["hccs_gbps"] == pytest.approx(150, rel=0.02)
    assert outcome["aiv_gbps"] == pytest.approx(120, rel=0.03)
    assert outcome["step_us"] == pytest.approx(4, rel=0.1)


def _timed(row: CollectiveRow, mean_us: float) -> CollectiveRow:
    return CollectiveRow(
        row.label, row.hardware, row.op, row.ranks, row.bytes, row.shard, mean_us, row.mode, row.algorithm, row.idle,
        row.waited, row.scored,
    )  # fmt: skip


@pytest.mark.slow
def test_points_that_the_fit_has_not_seen() -> None:
    pytest.importorskip("scipy", reason="fitting needs the extra `fit`")
    errors = sorted(error for _, error in held_out(FAMILIES[0], A3))
    assert len(errors) == 47
    assert median(errors) <= 0.07
    assert percentile(errors, 0.9) <= 0.25


@pytest.mark.slow
def test_the_shipped_numbers_are_those_that_the_fit_finds() -> None:
    pytest.importorskip("scipy", reason="fitting needs the extra `fit`")
    for links in FAMILIES:
        hw = load_hardware(links.into)
        values = fit(links, [row for rows in points(links).values() for row in rows], with_links(hw, links.parameters))
        for name, value in values.items():
            number = hw.profile.numbers()[f"collective.{name}"]
            assert number.source == "fitted"
            assert number.value == pytest.approx(value, rel=0.02), name
