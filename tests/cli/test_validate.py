"""`whatif validate` as its users meet it: exit statuses, tables, files, one line for bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim.accuracy.reference import reference_csv

WhatIf = Callable[..., Any]

KERNELS = "hardware,op_type,input_shapes,dtype,mean_us,scored\n"
NORM = '910b2,RmsNorm,"16,5120;5120",DT_BF16;DT_BF16,9.0,yes\n'
STEPS = "id,hardware,model,phase,batch,query_len,context,step_ms,settings,tp\n"
STEP = "mine,910b2,Qwen3-0.6B,decode,1,1,500,3.0,optimizations.graph=ge_graph,1\n"
LADDERS = "id,hardware,model,phase,batch,query_len,context,base,step,base_ms,step_ms,scored\n"
LADDER = "rung,910b2,Qwen3-0.6B,decode,1,1,500,,optimizations.graph=ge_graph,20,3,yes\n"


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.csv"
    path.write_text(KERNELS + NORM + NORM.replace("RmsNorm", "MadeupMatMul"))
    return path


def test_without_bounds_it_is_done(whatif: WhatIf, kernels: Path) -> None:
    done = whatif("validate", "--kernels", kernels)
    assert (done.status, done.err) == (0, "")
    assert "RmsNorm" in done.out
    assert "Not priced (kernels): 1" in done.out
    assert "MadeupMatMul" in done.out


def test_a_bound_that_holds_and_one_that_does_not(whatif: WhatIf, kernels: Path, tmp_path: Path) -> None:
    assert whatif("validate", "--kernels", kernels, "--max-kernel-median", 10).status == 0
    out = tmp_path / "out.json"
    done = whatif("validate", "--kernels", kernels, "--max-kernel-p90", 0, "--json", out)
    assert done.status == 1
    assert "90th percentile of the error" in done.out
    assert json.loads(out.read_text())["kernels"]["rows"] == 1  # the answer is written all the same


def test_collectives_are_held_against_their_own_bounds(whatif: WhatIf) -> None:
    file = reference_csv("collectives")
    done = whatif("validate", "--collectives", file, "--max-collective-median", 0, "--max-collective-p90", 0)
    assert done.status == 1
    assert "collectives: median error" in done.out
    assert "collectives: 90th percentile of the error" in done.out


def test_the_reference_set_within_the_bounds_of_the_issue(whatif: WhatIf) -> None:
    bounds = ("--max-kernel-median", 0.1, "--max-kernel-p90", 0.3, "--max-step-median", 0.1)
    bounds += ("--max-collective-median", 0.1, "--max-collective-p90", 0.35)
    done = whatif("validate", *bounds)
    assert (done.status, done.err) == (0, "")
    for heading in ("Kernels: predicted", "Steps: predicted", "Ladders: what one"):
        assert heading in done.out


def test_steps_and_ladders_of_ones_own(whatif: WhatIf, tmp_path: Path) -> None:
    steps, ladders, out = (tmp_path / name for name in ("steps.csv", "ladders.csv", "out.json"))
    steps.write_text(STEPS + STEP + STEP.replace("mine", "many").replace("decode", "serving"))
    ladders.write_text(LADDERS + LADDER)
    done = whatif("validate", "--steps", steps, "--ladders", ladders, "--json", out)
    assert (done.status, done.err) == (0, "")
    document = json.loads(out.read_text())
    assert [r["id"] for r in document["steps"]["rows"]] + [u["row"] for u in document["steps"]["unpriced"]] == [
        "mine",
        "many",
    ]
    assert document["ladders"]["rows"][0]["measured_gain"] == pytest.approx(20 / 3)


@pytest.mark.parametrize(
    ("option", "text", "what"),
    [
        ("--kernels", KERNELS + NORM.replace("9.0", "x"), ":2: mean_us: must be a positive number up to 1e12, got 'x'"),
        (
            "--steps",
            STEPS + STEP.replace(",1,1,", ",1.x,1,"),
            ":2: batch: must be a whole number from 0 to 2**53, got '1.x'",
        ),
        (
            "--ladders",
            LADDERS + LADDER.replace(",20,", ",,"),
            ":2: gain_low: must be a positive number up to 1e12, got ''",
        ),
        (
            "--ladders",
            "id\nx\n",
            ":1: no column hardware, model, phase, batch, query_len, context, base, step; found id",
        ),
        ("--kernels", "\x00", ": is binary (byte 0 is zero), not text"),
    ],
)
def test_bad_files_are_one_line_and_status_2(whatif: WhatIf, tmp_path: Path, option: str, text: str, what: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    done = whatif("validate", option, path)
    assert (done.status, done.out) == (2, "")
    assert len(done.problems) == 1
    assert done.problems[0].startswith(f"{path}{what.split(', not text')[0]}")


def test_a_file_that_is_not_there(whatif: WhatIf, tmp_path: Path) -> None:
    done = whatif("validate", "--kernels", tmp_path / "no.csv")
    assert (done.status, done.out, len(done.problems)) == (2, "", 1)
    assert "no.csv" in done.err


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--max-kernel-median", "nan"), "--max-kernel-median: must be a share, 0 or more, such as 0.1, got nan"),
        (("--max-step-median", "-1"), "--max-step-median: must be a share, 0 or more, such as 0.1, got -1.0"),
        (("--plot", "picture.png"), "--plot: picture.png: the picture is SVG: name a file that ends in .svg"),
    ],
)
def test_bad_options_are_one_line_and_status_2(
    whatif: WhatIf, kernels: Path, arguments: tuple[str, str], what: str
) -> None:
    done = whatif("validate", "--kernels", kernels, *arguments)
    assert (done.status, done.out, done.problems) == (2, "", [what])


def test_overlaps_of_ones_own(whatif: WhatIf, tmp_path: Path) -> None:
    path, out = tmp_path / "overlaps.csv", tmp_path / "out.json"
    head = "id,hardware,ranks,m,k,n,dtype,product_us,collective_us,sequential_us,overlapped_us"
    path.write_text(f"{head}\npair,910b2,8,4096,4096,2048,fp16,300,400,700,500\n")
    done = whatif("validate", "--overlaps", path, "--json", out)
    assert done.status == 0
    assert "a product and its all-reduce on two streams" in done.out
    (row,) = json.loads(out.read_text())["overlaps"]["rows"]
    assert row["measured"]["gain"] == pytest.approx(1.4)
