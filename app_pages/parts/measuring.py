"""What the measure page reads: results with a measured part, load tests, and a run on this machine's CPU."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from app_pages.parts import own
from app_pages.parts.answers import Remembered
from app_pages.parts.dropped import one_of, plain_of
from app_pages.parts.measured_form import check
from scenarios.errors import ScenarioError, printable
from sim.fitting.bench_file import CalibratedEngine, calibrate_engine
from sim.hardware.profile import load_hardware

#: The scenario that a CPU measures in some seconds, the profile that predicts it, and how long it may take, s.
SMALL, CHIP, MAX_S = "tiny_llama_cpu", "cpu", 180
MAX_MB = 50

_BENCHES: Remembered[Fitted] = Remembered(8)


@dataclass(frozen=True, slots=True)
class Fitted:
    """A load test next to the model: what `whatif calibrate --bench` finds, and the engine profile that it writes."""

    calibration: CalibratedEngine
    text: str


def result_of(name: str, data: bytes) -> dict[str, Any]:
    """A result with a measured part. Raises ScenarioError in the file's own name, `not_result` or `not_measured`."""
    try:
        result = json.loads(data)
    except (ValueError, RecursionError):
        result = None
    if not isinstance(result, dict) or "step" not in result or "kernels" not in result:
        raise ScenarioError([f"{printable(name, 80)}: no result of whatif run --json"])
    measured = result.get("measured")
    if not isinstance(measured, dict) or not measured.get("ops"):
        raise ScenarioError(
            [f"{printable(name, 80)}: a result without a measured part; write it with --backend cpu, cuda or npu"]
        )
    check(name, result)
    return result


def can_measure() -> bool:
    """Whether torch is installed next to the lab."""
    return importlib.util.find_spec("torch") is not None


def offered() -> list[str]:
    """What can be measured here: the small scenario, and the reader's own."""
    return [SMALL, *own.refs("scenario")]


def chips() -> list[str]:
    """What can be predicted for this CPU: the shipped profile, and the reader's own of a CPU."""
    mine = own.refs("hardware")
    return [CHIP, *(ref for ref in mine if load_hardware(own.resolved(ref)).profile.device == CHIP)]


def measure_here(scenario: str = SMALL, chip: str = CHIP) -> dict[str, Any]:
    """A scenario on this CPU, in a process of its own. Raises ScenarioError where it does not end well."""
    named = own.plain(scenario)
    with TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        command = [sys.executable, "-m", "cli", "run", own.resolved(scenario), "--backend", "cpu", "--json", str(out)]
        command += ["--set", f"hardware={own.resolved(chip)}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=MAX_S, check=False)
        except subprocess.TimeoutExpired:
            raise ScenarioError([f"{named}: not done after {MAX_S} s"]) from None
        if done.returncode or not out.is_file():
            lines = done.stderr.strip().splitlines()
            said = own.plain(lines[-1]) if lines else f"{named}: ended without a result"
            raise ScenarioError([printable(said, 300)])
        return result_of(named, out.read_bytes())


def fitted(files: Sequence[tuple[str, bytes]], scenario: str) -> Fitted:
    """A load test next to the model of `scenario`; AISBench writes one in two files. Raises ScenarioError in the file's
    own name."""
    digest = sha256(b"".join(sha256(name.encode() + b"\0" + data).digest() for name, data in files)).hexdigest()
    return _BENCHES.get((scenario, digest), lambda: _fitted(files, scenario))


def _fitted(files: Sequence[tuple[str, bytes]], scenario: str) -> Fitted:
    with TemporaryDirectory() as folder:
        bench = one_of(files, Path(folder))
        out = Path(folder) / "engine.yaml"
        try:
            calibration = calibrate_engine(bench, scenario, (), out)
        except ScenarioError as error:
            raise ScenarioError([own.plain(plain_of(line, folder)) for line in error.messages]) from None
        return Fitted(calibration, out.read_text(encoding="utf-8"))
