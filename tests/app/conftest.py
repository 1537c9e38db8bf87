"""The lab driven without a browser: its pages as AppTest runs them, one set of what-ifs for all questions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app_pages.parts import answers
from app_pages.parts.state import Question
from scenarios.loader import load_scenario
from sim.predict.scenario_result import first_result, what_ifs

Open = Callable[..., Any]


@pytest.fixture(scope="session")
def some_gains() -> dict[str, Any]:
    """What-ifs of a small scenario."""
    return what_ifs(first_result(load_scenario("qwen3_0_6b_decode")))


@pytest.fixture
def quick_gains(some_gains: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The page asks the model some fifty times for its gains; tests of other things take one answer for all."""

    def gains(question: Question, progress: Callable[[float], None]) -> dict[str, Any]:
        progress(0.5)
        return some_gains

    monkeypatch.setattr(answers, "gains", gains)


@pytest.fixture
def lab(root: Path) -> Iterator[Open]:
    """Opens the lab, or another page of app_pages/, with parameters of the URL, with a group of widgets expanded."""
    from streamlit.testing.v1 import AppTest

    def opened(page: str = "lab", expanded: str = "", **params: str) -> Any:
        at = AppTest.from_file(str(root / "app.py"), default_timeout=60)
        if expanded:
            at.session_state[f"group:{expanded}"] = True
        at.run()
        if page:
            at.switch_page(f"app_pages/{page}.py")
            for key, value in params.items():
                at.query_params[key] = value
            at.run()
        assert not at.exception, [item.value for item in at.exception]
        return at

    with warnings.catch_warnings():
        yield opened
