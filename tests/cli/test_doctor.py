"""`whatif doctor` and `--backend npu` on a machine without the device: one line each, no traceback."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch

WhatIf = Callable[..., Any]

pytestmark = pytest.mark.xdist_group("torch")


@pytest.mark.slow
def test_doctor_examines_this_cpu(whatif: WhatIf) -> None:
    done = whatif("doctor")
    assert done.err == ""
    assert done.out.startswith("doctor cpu: ")
    assert done.status == int("MISSING" in done.out)


def test_doctor_npu_lists_what_is_missing_and_what_to_try(whatif: WhatIf) -> None:
    done = whatif("doctor", "--backend", "npu")
    assert (done.status, done.err) == (1, "")
    assert sum(line.startswith("  MISSING") for line in done.out.splitlines()) >= 4
    assert "What only the hardware can show" in done.out
    assert "--set optimizations.graph=aclgraph" in done.out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.study  # seven imports of torch; tests/device/test_doctor.py asks the same of machines that are made up
def test_doctor_cuda_lists_what_is_missing_and_what_to_try(whatif: WhatIf) -> None:
    done = whatif("doctor", "--backend", "cuda")
    assert (done.status, done.err) == (1, "")
    assert sum(line.startswith("  MISSING") for line in done.out.splitlines()) >= 4
    assert "What only the hardware can show" in done.out
    assert "--set optimizations.graph=aclgraph" in done.out


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch is built for CUDA")
def test_a_run_with_a_torch_without_cuda_is_one_line(whatif: WhatIf) -> None:
    done = whatif("run", "llama_3_1_8b_h200_decode", "--backend", "cuda")
    assert (done.status, done.out) == (2, "")
    (line,) = done.problems
    assert line == (
        f"--backend cuda: torch {torch.__version__} is built without CUDA; install a build for it (pytorch.org says "
        "how); `whatif doctor --backend cuda` says what is missing"
    )


def test_doctor_of_an_unknown_backend(whatif: WhatIf) -> None:
    done = whatif("doctor", "--backend", "gpu")
    assert (done.status, done.out) == (2, "")
    assert len(done.problems) == 1


@pytest.mark.skipif(find_spec("torch_npu") is not None, reason="torch_npu is installed here")
def test_a_run_without_torch_npu_is_one_line(whatif: WhatIf) -> None:
    done = whatif("run", "tiny_llama_cpu", "--backend", "npu")
    assert (done.status, done.out) == (2, "")
    assert done.problems == [
        "--backend npu: torch_npu is not installed; `whatif doctor --backend npu` says what is missing and which "
        "version this machine's CANN wants"
    ]


def test_a_bundle_needs_its_name_and_its_trials(whatif: WhatIf, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.zip").write_text("x")
    for arguments, line in (
        (("--run",), "doctor: --run and --out BUNDLE.zip go together"),
        (("--out", "b.zip"), "doctor: --run and --out BUNDLE.zip go together"),
        (("--only", "1"), "doctor: --run and --out BUNDLE.zip go together"),
        (("--run", "--out", "b.tar"), "--out b.tar: a bundle is packed: name a file that ends in .zip"),
        (("--run", "--out", "there.zip"), "--out there.zip: is there already; name a new file"),
        (("--run", "--out", "no/b.zip"), "--out no/b.zip: cannot be written: its folder does not exist"),
        (("--run", "--out", "b.zip", "--only", "99"), "--only: 99 is no trial; there are 1 to 4"),
        (
            ("--backend", "gpu", "--run", "--out", "b.zip"),
            "--backend: 'gpu' cannot be examined; one of cpu, cuda, npu. Did you mean 'npu'?",
        ),
    ):
        done = whatif("doctor", *arguments)
        assert (done.status, done.out) == (2, "")
        assert done.problems == [line]
    assert [path.name for path in tmp_path.iterdir()] == ["there.zip"]


@pytest.mark.slow
def test_a_bundle_of_this_cpu_is_made_and_adopted(
    whatif: WhatIf, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One measured step, without its profile and with the smallest trial: `--run` and `--adopt` from end to end."""
    from device.doctor import BACKENDS
    from device.doctor.checks import Trial, present

    monkeypatch.chdir(tmp_path)
    step = Trial("a step", "whatif run tiny_llama_cpu --backend cpu --json step.json", "a table", 5)
    refused = Trial("too large", "whatif run tiny_llama_cpu --set workload.batch=60000 --set engine.max_num_seqs=60000",
                    "one line; status 2", 5, status=2)  # fmt: skip
    monkeypatch.setitem(BACKENDS, "cpu", (lambda machine: [present("torch", "here")], (step, refused)))
    done = whatif("doctor", "--backend", "cpu", "--run", "--out", "b.zip")
    assert done.status == 0, done.out + done.err
    assert "b.zip: rows 1 of steps" in done.out
    assert done.problems[0] == "cpu: checks, then 2 trials, about 10 seconds"
    done = whatif("validate", "--adopt", "b.zip", "--out", "rows", "--json", "v.json")
    assert (done.status, done.err) == (0, "")
    assert "Adopted 1 rows" in done.out
    assert "tiny_llama_cpu_decode_" in done.out
    assert sorted(path.name for path in (tmp_path / "rows").iterdir()) == ["steps.csv"]
