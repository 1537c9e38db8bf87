"""The faults of `make faults` fit the code as it is: their places, what they make of it, and the tests that are run."""

from __future__ import annotations

import ast

import pytest

from tests.faults import AREAS, ROOT, chosen, faults_of


@pytest.mark.parametrize("module", AREAS)
def test_a_fault_changes_what_it_says_and_leaves_code(module: str) -> None:
    source = (ROOT / module).read_text(encoding="utf-8")
    faults = list(faults_of(module, source))
    assert len(faults) >= 4
    for fault in faults:
        assert source[fault.start : fault.end] == fault.before != fault.text
        assert source[: fault.start].count("\n") + 1 == fault.line
        ast.parse(source[: fault.start] + fault.text + source[fault.end :])
    assert all((ROOT / tests).exists() for tests in AREAS[module])


def test_the_same_seed_draws_the_same_faults_of_all_modules() -> None:
    faults = chosen(50, 0, "")
    assert len(faults) == 50
    assert faults == chosen(50, 0, "")
    assert {fault.module for fault in faults} == set(AREAS)
    assert {fault.module for fault in chosen(5, 0, "sim/step/sharing")} == {"sim/step/sharing.py"}
