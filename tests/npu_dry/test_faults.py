"""The list of seeded faults is up to date; `-m study` seeds each, which takes minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.npu_dry.faults import FAULTS, ROOT, Fault, catches, copied, sound


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_seeded_and_its_test_is_there(fault: Fault) -> None:
    source = (ROOT / fault.file).read_text(encoding="utf-8")
    seeded, places = fault.seeded(source)
    assert places == 1
    assert seeded != source
    file, _, function = fault.test.partition("::")
    assert f"def {function}(" in (ROOT / "tests" / "npu_dry" / file).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = copied(tmp_path_factory.mktemp("checkout"))
    assert sound(path)
    return path


@pytest.mark.study
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_caught_by_its_test(fault: Fault, copy: Path) -> None:
    assert catches(fault, copy)
