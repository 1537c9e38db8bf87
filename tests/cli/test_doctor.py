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
