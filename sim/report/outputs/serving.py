"""The part of a run about its traffic: requests predicted, and with a device served; the files of both."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from scenarios.errors import ScenarioError
from scenarios.exchange.bench_result import bench_result
from scenarios.exchange.measured import Measure
from scenarios.exchange.served import Deployed
from sim.predict.scenario_result import ScenarioResult, predicted_of
from sim.report.files import write_json
from sim.serving.at_slo import compare_at_slo
from sim.serving.measured import measured_block, measured_outcome, serving_errors
from sim.serving.outcome import ServingOutcome
from sim.serving.result import serve_scenario, serving_block
from sim.serving.simulate import serving_capacity
from sim.serving.trace import write_request_trace


class ServedRequests:
    """The traffic of a run, whose result gets `serving`."""

    def __init__(self, run: ScenarioResult) -> None:
        self._run = run
        self._served = serve_scenario(run.loaded, run.prediction.case)
        self._measured: ServingOutcome | None = None
        run.result["serving"] = serving_block(self._served)

    def measure(self, device: Measure) -> dict[str, Any]:
        """Serve the same requests on a device and write its bench file; `serving` and `serving_errors` of the result's
        part `measured`."""
        run, case = self._run, self._run.prediction.case
        deployed = Deployed(serving_capacity(case).kv_tokens, predicted_of(run.prediction).reference_ns)
        served = device.serve(run.loaded, deployed)
        self._measured = measured_outcome(served)
        if not self._measured.counted.any():
            raise ScenarioError([f"--backend {device.device}: no request past the warm-up was completed"])
        block = measured_block(served, case.scenario.slo)
        errors = serving_errors(run.result["serving"], block)
        if device.bench is not None:
            write_json(device.bench, bench_result(served, case.scenario))
        return {"serving": block, "serving_errors": errors}

    def compare_at_slo(self) -> None:
        """The highest rate with and without each optimisation, where there is an SLO; a second for each."""
        compared = compare_at_slo(self._run.loaded, self._run.prediction.case)
        if compared is not None:
            self._run.result["serving"]["at_slo"] = asdict(compared)

    def write_trace(self, path: Path) -> None:
        """A Chrome trace of the requests, predicted and measured."""
        write_request_trace(path, self._served.outcome, self._run.loaded.name, self._measured)
