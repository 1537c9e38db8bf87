"""What the measure page reads: results with a measured part, load tests, and a run on this machine's CPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from app_pages.parts.answers import Remembered
from scenarios.errors import ScenarioError, printable
from sim.fitting.bench_file import CalibratedEngine, calibrate_engine

#: The scenario that a CPU measures in some seconds, and how long it may take, s.
SMALL, MAX_S = "tiny_llama_cpu", 180
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
    return result


def can_measure() -> bool:
    """Whether torch is installed next to the lab."""
    return importlib.util.find_spec("torch") is not None


def measure_here() -> dict[str, Any]:
    """The small scenario on this CPU, in a process of its own. Raises ScenarioError where it does not end well."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        command = [sys.executable, "-m", "cli", "run", SMALL, "--backend", "cpu", "--json", str(out)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=MAX_S, check=False)
        except subprocess.TimeoutExpired:
            raise ScenarioError([f"{SMALL}: not done after {MAX_S} s"]) from None
        if done.returncode or not out.is_file():
            lines = done.stderr.strip().splitlines()
            raise ScenarioError([printable(lines[-1] if lines else f"{SMALL}: ended without a result", 300)])
        return result_of(SMALL, out.read_bytes())


def fitted(name: str, data: bytes, scenario: str) -> Fitted:
    """A load test next to the model of `scenario`. Raises ScenarioError in the file's own name."""
    return _BENCHES.get((scenario, sha256(data).hexdigest()), lambda: _fitted(name, data, scenario))


def _fitted(name: str, data: bytes, scenario: str) -> Fitted:
    with TemporaryDirectory() as folder:
        bench = Path(folder) / (os.path.basename(name.replace("\\", "/")).lstrip(".") or "bench.json")
        out = Path(folder) / "engine.yaml"
        bench.write_bytes(data)
        try:
            calibration = calibrate_engine(bench, scenario, (), out)
        except ScenarioError as error:
            raise ScenarioError([line.replace(f"{folder}{os.sep}", "") for line in error.messages]) from None
        return Fitted(calibration, out.read_text(encoding="utf-8"))
