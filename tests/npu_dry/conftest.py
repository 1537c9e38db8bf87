"""Tier 1: torch_npu's real wheel in this process, over stand-ins for CANN. A missing wheel fails; it does not skip."""

from __future__ import annotations

from tests.npu_dry import stubs

stubs.load(stubs.built("stub"))

import pytest  # noqa: E402
import torch  # noqa: E402
import torch_npu  # noqa: E402

from tests.npu_dry import references  # noqa: E402

TIERS = {
    1: "the wheel's schemas and meta kernels",
    2: "the wheel on a dry runtime, which keeps books and computes nothing",
    3: "the wheel on a dry runtime, with the project's own CPU kernels for numbers",
}


def pytest_configure(config: pytest.Config) -> None:
    torch.set_num_threads(1)
    references.register()


def pytest_report_header() -> list[str]:
    tiers = [f"tier {number}: {what}" for number, what in TIERS.items()]
    return [f"torch_npu {torch_npu.__version__} with no NPU and no CANN; nothing below was measured on Ascend", *tiers]
