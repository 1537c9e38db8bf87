"""`whatif calibrate`: rows in, a profile out, and a line for everything that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scenarios.exchange.timings import Timings, pieces_of
from tests.sim.timing_maker import machine, plain_trials, timings

pytestmark = pytest.mark.xdist_group("torch")

TINY = "scenarios/tiny_llama_cpu.yaml"


@pytest.fixture(scope="module")
def rows() -> Timings:
    return timings(machine(), plan=plain_trials()[:4])


def put(out: Path, rows: Timings) -> Path:
    (out.parent / f"{out.stem}.rows.json").write_text("".join(pieces_of(rows)))
    return out


@pytest.mark.slow
def test_a_profile_from_rows_that_are_there(whatif: Callable[..., Any], tmp_path: Path, rows: Timings) -> None:
    out = put(tmp_path / "mine.yaml", rows)
    done = whatif("calibrate", "--backend", "cpu", "--out", out, "--resume")
    assert done.status == 0
    assert done.err.splitlines()[0] == "fitting"
    assert "Calibrated cpu  a CPU of a test" in done.out
    assert "Programs, errors with whole shapes held out" in done.out
    assert f"take it: --set hardware={out}" in done.out
    run = whatif("run", TINY, "--set", f"hardware={out}")
    assert (run.status, run.err) == (0, "")
    assert "mine" in run.out
    before = out.read_bytes()
    assert whatif("calibrate", "--backend", "cpu", "--out", out, "--resume").status == 0
    assert out.read_bytes() == before  # the same rows, the same bytes


# ---- bad input ----


def test_nothing_is_measured_where_it_could_not_be_kept(whatif: Callable[..., Any], tmp_path: Path) -> None:
    done = whatif("calibrate", "--backend", "cpu", "--out", tmp_path / "none" / "p.yaml")
    expected = f"{tmp_path}/none/p.rows.json: cannot be written: its folder does not exist"
    assert (done.status, done.out, done.problems) == (2, "", [expected])
    done = whatif("calibrate", "--backend", "cpu", "--out", tmp_path)
    assert (done.status, done.problems) == (2, [f"--out {tmp_path}: cannot be written: is a folder"])


def test_a_half_file_is_no_measurement(whatif: Callable[..., Any], tmp_path: Path, rows: Timings) -> None:
    out = put(tmp_path / "mine.yaml", rows)
    half = tmp_path / "mine.rows.json"
    half.write_text(half.read_text()[:5000])
    done = whatif("calibrate", "--backend", "cpu", "--out", out)
    (line,) = done.problems
    assert done.status == 2
    assert line.startswith(f"{half}:")
    assert line.endswith("; delete it to begin anew")
    assert not out.exists()


def test_a_backend_that_is_not_there(whatif: Callable[..., Any], tmp_path: Path) -> None:
    done = whatif("calibrate", "--backend", "cpi", "--out", tmp_path / "p.yaml")
    (line,) = done.problems
    assert done.status == 2
    assert line.startswith("--backend: 'cpi' is not available")
    assert list(tmp_path.iterdir()) == []


def test_a_base_that_is_not_there(whatif: Callable[..., Any], tmp_path: Path) -> None:
    done = whatif("calibrate", "--backend", "cpu", "--out", tmp_path / "p.yaml", "--hardware", "cpuu")
    (line,) = done.problems
    assert done.status == 2
    assert "cpuu" in line
    assert "Did you mean 'cpu'?" in line


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("torch", "--backend cpu: torch is not installed; pip install 'ascend-whatif[device]'"),
        ("scipy.optimize", "calibrate: scipy is not installed; pip install 'ascend-whatif[fit]'"),
    ],
)
def test_what_is_not_installed(
    whatif: Callable[..., Any], tmp_path: Path, absent: Callable[[str], None], module: str, said: str
) -> None:
    absent(module)
    done = whatif("calibrate", "--backend", "cpu", "--out", tmp_path / "p.yaml")
    assert (done.status, done.out, done.problems) == (2, "", [said])
    assert list(tmp_path.iterdir()) == []
