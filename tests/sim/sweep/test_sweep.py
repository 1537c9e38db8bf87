"""Sweeps: the same table whoever works and however often it is stopped; points that cannot run are rows."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from scenarios.errors import ScenarioError
from scenarios.loader import load_scenario
from sim.predict.scenario_result import case_of
from sim.report.outputs.sweep import sweep_outputs
from sim.serving.result import serve_scenario
from sim.sweep import workers

GRID = """
scenario: tiny_llama_cpu
set: [hardware=atlas_a2_910b2, optimizations.kv.layout=paged]
grid:
  workload.batch: [1, 2, 3, 4, 6, 8, 12, 16]
  optimizations.graph: [eager, ge_graph]
  optimizations.kv.block_size: [64, 100]
"""


def quiet(_: str) -> None:
    """Says nothing."""


def grid(folder: Path, text: str = GRID) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "grid.yaml"
    path.write_text(text)
    return path


def swept(path: Path, out: Path, **options: Any) -> Any:
    return sweep_outputs(
        str(path), out, options.get("jobs", 1), options.get("dask", ""), options.get("shard", ""), quiet
    )[0]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The table of a sweep that nothing stopped, on one process."""
    folder = tmp_path_factory.mktemp("whole")
    swept(grid(folder), folder / "out.csv")
    return (folder / "out.csv").read_bytes()


def test_points_that_cannot_run_are_rows_with_their_reason(tmp_path: Path) -> None:
    result = swept(grid(tmp_path), tmp_path / "out.csv")
    rows = [dict(zip(result.columns, row, strict=True)) for row in result.rows]
    assert [row["place"] for row in rows] == list(range(32))
    assert result.statuses == {"done": 16, "skipped": 16}
    assert {row["status"] for row in rows if row["optimizations.kv.block_size"] == 100} == {"skipped"}
    assert "must be a multiple of 16" in rows[1]["reason"]
    assert list(result.reasons.values()) == [16]
    done = [row for row in rows if row["status"] == "done"]
    assert all(row["tpot_ms_low"] < row["tpot_ms"] < row["tpot_ms_high"] for row in done)
    assert len({row["hash"] for row in done}) == 16


def test_a_fault_of_the_program_is_a_row_and_the_sweep_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr("sim.sweep.point.brief", broken)
    result = swept(grid(tmp_path), tmp_path / "out.csv")
    assert result.statuses == {"failed": 16, "skipped": 16}
    assert ("failed", "ZeroDivisionError: a fault") in result.reasons


def test_two_processes_write_the_same_table(tmp_path: Path, whole: bytes) -> None:
    swept(grid(tmp_path), tmp_path / "out.csv", jobs=2)
    assert (tmp_path / "out.csv").read_bytes() == whole


def test_shards_write_the_same_table(tmp_path: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    path = grid(tmp_path)
    for shard in ("1/3", "2/3", "3/3"):
        swept(path, tmp_path / "out.csv", shard=shard)
    assert not (tmp_path / "out.csv").exists()
    monkeypatch.setattr(workers, "predict_part", None)  # nothing is left to predict
    result = swept(path, tmp_path / "out.csv")
    assert result.kept == 32
    assert (tmp_path / "out.csv").read_bytes() == whole


def test_a_sweep_that_was_killed_goes_on_and_writes_the_same_table(tmp_path: Path, whole: bytes, root: Path) -> None:
    path, out, store = grid(tmp_path), tmp_path / "out.csv", tmp_path / "out.sqlite"
    code = (
        "import sim.sweep.workers as w; w.PART = 1; real = w.predict_part\n"
        "import time\n"
        "w.predict_part = lambda s, p: (time.sleep(0.05), real(s, p))[1]\n"
        "from pathlib import Path; from sim.report.outputs.sweep import sweep_outputs\n"
        f"sweep_outputs({str(path)!r}, Path({str(out)!r}), 1, '', '', lambda _: None)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], cwd=root)
    for _ in range(600):
        if _count(store) >= 4:
            break
        time.sleep(0.05)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert not out.exists()
    result = swept(path, out)
    assert 4 <= result.kept < 32
    assert out.read_bytes() == whole


def _count(store: Path) -> int:
    if not store.exists():
        return 0
    try:
        db = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
        try:
            return int(db.execute("SELECT COUNT(*) FROM points").fetchone()[0])
        finally:
            db.close()
    except sqlite3.Error:
        return 0


@pytest.mark.slow
def test_a_cluster_writes_the_same_table(tmp_path: Path, whole: bytes) -> None:
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, protocol="tcp://", dashboard_address="127.0.0.1:0"
    ) as cluster:
        swept(grid(tmp_path), tmp_path / "out.csv", jobs=None, dask=cluster.scheduler_address)
    assert (tmp_path / "out.csv").read_bytes() == whole


def test_parquet_holds_the_same_as_csv(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    result = swept(grid(tmp_path), tmp_path / "out.parquet")
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.column_names == list(result.columns)
    assert table.column("workload.batch").to_pylist() == [row[2] for row in result.rows]
    again = tmp_path / "again"
    swept(grid(again), again / "out.parquet")
    assert (again / "out.parquet").read_bytes() == (tmp_path / "out.parquet").read_bytes()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"shard": "3/2"}, "--shard: '3/2' is no i/N such as 2/8, with i from 1 to N"),
        ({"jobs": 2, "dask": "tcp://127.0.0.1:1"}, "--jobs: counts processes of this machine"),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError, match=said.replace("(", r"\(")):
        swept(grid(tmp_path), tmp_path / "out.csv", **options)


def test_results_of_another_grid_are_left_alone(tmp_path: Path) -> None:
    swept(grid(tmp_path), tmp_path / "out.csv")
    with pytest.raises(ScenarioError, match="holds the results of another grid"):
        swept(grid(tmp_path, GRID.replace("[1, 2,", "[2,")), tmp_path / "out.csv")


def test_requests_in_time_are_served_in_each_point(tmp_path: Path) -> None:
    """A sweep over the rate says of each what `whatif run` says of that scenario; a rate moves what is served."""
    text = (
        "scenario: serve_qwen3_14b_910b3\nset: [workload.traffic.requests=30, workload.traffic.warmup_requests=0]\n"
        "grid: {workload.traffic.rate: [0.5, 2.0]}\n"
    )
    result = swept(grid(tmp_path, text), tmp_path / "out.csv")
    rows = [dict(zip(result.columns, row, strict=True)) for row in result.rows]
    sets = [f"workload.traffic.{pair}" for pair in ("requests=30", "warmup_requests=0", "rate=0.5")]
    loaded = load_scenario("serve_qwen3_14b_910b3", sets)
    metrics = serve_scenario(loaded, case_of(loaded)).metrics
    assert rows[0]["serving_ttft_ms_p99"] == metrics.ttft_ms.p99
    assert rows[0]["serving_tpot_ms_low"] <= rows[0]["serving_tpot_ms_mean"] <= rows[0]["serving_tpot_ms_high"]
    assert rows[0]["serving_output_throughput_per_card"] == metrics.output_throughput
    assert rows[0]["serving_output_throughput"] < rows[1]["serving_output_throughput"]


def test_a_rate_behind_a_full_client_has_no_highest() -> None:
    """With two requests in flight at most every rate meets the SLO: 65,536 requests/s was said to be the highest."""
    sets = [f"workload.traffic.{pair}" for pair in ("requests=8", "warmup_requests=0", "concurrency=2")]
    loaded = load_scenario("serve_qwen3_14b_910b3", sets)
    assert serve_scenario(loaded, case_of(loaded)).highest is None


BATCHES = "scenario: tiny_llama_cpu\ngrid: {workload.batch: [1, 2]}\n"


WRONG_EVERYWHERE = {
    "scenario": (
        "scenario: tiny_lama_cpu\ngrid: {workload.batch: [1]}\n",
        ":1:11: scenario: tiny_lama_cpu: no such sce",
    ),
    "key": (f"set: [hardware=cpu, workload.bach=3]\n{BATCHES}", ":1:21: set: workload.bach: unknown key 'bach'. Did"),
    "form": (f"set: [workload.input_tokens]\n{BATCHES}", ":1:7: set: must be key=value"),
    "word": (f"set: [workload.phase=decod]\n{BATCHES}", ":1:7: set: workload.phase: 'decod' is not one of"),
    "set": (f"set: [workload.batch=3]\n{BATCHES}", ":3:8: workload.batch: set has it already"),
    "unknown": (f"{BATCHES}list: [{{workload.bach: 1}}]\n", ":3:9: unknown key 'workload.bach'. Did"),
    "list": (f"{BATCHES}list: [{{hardware: cpu}}, {{workload.batch: 4}}]\n", ":3:26: workload.batch: grid has it"),
    "zip": (f"{BATCHES}zip: [{{workload.batch: [1]}}]\n", ":3:8: workload.batch: grid has it already"),
}


@pytest.mark.parametrize("wrong", WRONG_EVERYWHERE)
def test_what_is_wrong_in_every_point_is_said_before_the_first(tmp_path: Path, wrong: str) -> None:
    text, said = WRONG_EVERYWHERE[wrong]
    with pytest.raises(ScenarioError) as error:
        swept(grid(tmp_path, text), tmp_path / "out.csv")
    assert said in str(error.value)
    assert len(error.value.messages) == 1
    assert not (tmp_path / "out.sqlite").exists()


def test_a_value_may_be_a_whole_part_or_none(tmp_path: Path) -> None:
    """Speculation on and off in one grid; the table has the part as JSON, and nothing where there is none."""
    text = (
        "scenario: serve_tiny_cpu\nset: [workload.traffic=null, slo=null, engine.profile=null]\ngrid:\n"
        "  engine.speculative_config: [null, {method: ngram, num_speculative_tokens: 3, acceptance: 0.9}]\n"
    )
    result = swept(grid(tmp_path, text), tmp_path / "out.csv")
    assert result.statuses == {"done": 2}, result.reasons
    rows = [dict(zip(result.columns, row, strict=True)) for row in result.rows]
    assert rows[0]["engine.speculative_config"] is None
    assert rows[1]["engine.speculative_config"] == '{"method": "ngram", "num_speculative_tokens": 3, "acceptance": 0.9}'
    assert rows[1]["tpot_ms"] < rows[0]["tpot_ms"]


def test_a_reason_is_counted_without_its_numbers_and_names_keep_theirs(tmp_path: Path) -> None:
    text = (
        "scenario: qwen3_8b_decode\nset: [engine.max_num_seqs=4000]\n"
        "zip: [{workload.batch: [2400, 2500, 1], model: [Qwen3-8B, Qwen3-8B, Qwen3-9B]}]\n"
    )
    reasons = [reason for _, reason in swept(grid(tmp_path, text), tmp_path / "out.csv").reasons]
    assert len(reasons) == 2
    assert "on atlas_a3_die_20: N GiB too much; at most N requests" in reasons[0]
    assert "'Qwen3-9B'" in reasons[1]


def test_results_of_a_scenario_that_was_edited_are_left_alone(tmp_path: Path) -> None:
    """A sweep goes on where it was only over the same scenario: kept rows of the old one would stand among the new."""
    own = tmp_path / "own.yaml"
    own.write_text("extends: tiny_llama_cpu\nworkload: {input_tokens: 64}\n")
    path = grid(tmp_path, "scenario: own.yaml\ngrid: {workload.batch: [1, 2]}\n")
    first = swept(path, tmp_path / "out.csv")
    assert swept(path, tmp_path / "out.csv").kept == 2
    own.write_text("extends: tiny_llama_cpu\nworkload: {input_tokens: 128}\n")
    with pytest.raises(ScenarioError, match="a scenario that has changed; name another --out, or remove it"):
        swept(path, tmp_path / "out.csv")
    assert swept(path, tmp_path / "again.csv").rows != first.rows
