"""Trials carried out: what each ended with, what is kept, and that nothing is left behind by what hangs."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from device.doctor import BACKENDS, outcomes_text, tried
from device.doctor.about import about
from device.doctor.carry_out import Outcome, carried_out, chosen_trials, estimate
from device.doctor.checks import Trial, missing, present
from device.doctor.machine import Machine
from scenarios.errors import ScenarioError


def trial(code: str, status: int = 0, seconds: int = 1) -> Trial:
    return Trial(f"what {code}", f'python -c "{code}"', "as told", seconds, status)


def carry_out(folder: Path, *trials: Trial, limit_s: float = 60.0) -> list[Outcome]:
    numbered = chosen_trials(trials, "")
    return carried_out("cpu", [present("a", "b")], numbered, folder, lambda text: None, limit_s=limit_s)


@pytest.mark.parametrize(
    ("code", "expected", "verdict", "says"),
    [
        ("print(3)", 0, "passed", "3"),
        ("print(3); raise SystemExit(1)", 0, "failed", "3"),
        ("print(4); raise SystemExit(2)", 0, "refused", "4"),
        ("raise SystemExit(2)", 2, "passed", ""),
        ("print(5)", 2, "broke", "5"),
        ("import os; os.kill(os.getpid(), 9)", 0, "broke", ""),
    ],
)
def test_how_a_trial_ended(tmp_path: Path, code: str, expected: int, verdict: str, says: str) -> None:
    (outcome,) = carry_out(tmp_path, trial(code, expected))
    assert (outcome.verdict, outcome.says) == (verdict, says)
    assert outcome.good == (verdict in ("passed", "refused"))
    assert (tmp_path / outcome.output).read_text(encoding="utf-8").strip() == says


def test_all_are_tried_and_the_document_tells(tmp_path: Path) -> None:
    outcomes = carry_out(tmp_path, trial("raise SystemExit(1)"), trial("open('kept.json', 'w').write('{}')"))
    assert [o.verdict for o in outcomes] == ["failed", "passed"]
    assert (tmp_path / "kept.json").read_text(encoding="utf-8") == "{}"
    document = json.loads((tmp_path / "bundle.json").read_text(encoding="utf-8"))
    assert (document["kind"], document["version"], document["backend"]) == ("bundle", 1, "cpu")
    assert document["checks"] == [{"name": "a", "passed": True, "says": "b"}]
    assert [t["verdict"] for t in document["trials"]] == ["failed", "passed"]
    text = outcomes_text(outcomes)
    assert "1. failed" in text
    assert "expected: as told; it said: " in text


@pytest.mark.slow
def test_what_hangs_is_stopped_with_all_that_it_started(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
        "print(p.pid, flush=True); p.wait()"
    )
    (outcome,) = carry_out(tmp_path, trial(code), limit_s=4.0)
    assert (outcome.verdict, outcome.good) == ("stopped", False)
    text = (tmp_path / outcome.output).read_text(encoding="utf-8")
    assert "no end within 4 s" in text
    child = int(text.split()[0])
    for _ in range(100):
        if not _lives(child):
            break
        time.sleep(0.1)
    assert not _lives(child)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/status")
    return not status.exists() or "State:\tZ" not in status.read_text(encoding="utf-8")


def test_some_trials_and_how_long_they_take() -> None:
    trials = [trial("1", seconds=30), trial("2", seconds=100), trial("3", seconds=20)]
    assert [number for number, _ in chosen_trials(trials, " 3,1 ")] == [1, 3]
    assert estimate(chosen_trials(trials, "")) == "3 trials, about 2 minutes"
    assert estimate(chosen_trials(trials, "1")) == "1 trial, about 30 seconds"
    for wrong in ("4", "0", "x", "1,,9" * 9, "-1", "9" * 5000):
        with pytest.raises(ScenarioError, match="is no trial; there are 1 to 3"):
            chosen_trials(trials, wrong)


def test_checks_and_trials_of_a_backend_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    for passed, status, good in ((True, 0, True), (False, 0, False), (True, 1, False)):
        check = present("one", "there") if passed else missing("one", "install it")
        trials = (trial(f"raise SystemExit({status})"),)
        monkeypatch.setitem(BACKENDS, "cpu", (lambda m, c=check: [c], trials))
        text, all_well = tried("cpu", tmp_path, said.append)
        assert all_well == good
        assert text.startswith(f"doctor cpu: {int(passed)} of 1 checks passed")
    assert said[0] == "cpu: checks, then 1 trial, about 1 seconds"


def test_a_machine_is_told_without_names_and_paths(tmp_path: Path) -> None:
    home = tmp_path / "opt" / "cann"
    home.mkdir(parents=True)
    (home / "version.info").write_text("Version=9.0.0\n", encoding="utf-8")
    environment = {
        "HCCL_OP_EXPANSION_MODE": "AIV",
        "HCCL_IF_IP": "10.0.0.1",
        "ASCEND_HOME_PATH": "/opt/cann",
        "USER": "somebody",
        "TASK_QUEUE_ENABLE": "1",
    }
    told = about(Machine(tmp_path, environment))
    assert told["cann"] == "9.0.0"
    assert told["variables"] == {"HCCL_OP_EXPANSION_MODE": "AIV", "TASK_QUEUE_ENABLE": "1"}
    text = json.dumps(told)
    for secret in ("10.0.0.1", "somebody", "/opt/cann", str(tmp_path)):
        assert secret not in text
    assert told["python"]
    assert told["cores"] >= 1
