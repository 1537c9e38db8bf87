"""What `whatif run` and `whatif explain` write: a scenario's result as JSON, its timelines as a trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from scenarios.errors import ScenarioError
from scenarios.exchange.measured import Measure
from sim.predict.scenario_result import (
    ScenarioResult,
    attributed,
    kernel_args,
    predicted_of,
    refuse_another_device,
    scenario_result,
)
from sim.report.files import refuse_overwriting, write_json


def run_outputs(
    scenario: str,
    sets: Sequence[str],
    json_file: Path | None,
    trace_file: Path | None,
    measure: Measure | None = None,
    order: str = "graph",
    attribution: bool = False,
    at_slo: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> ScenarioResult:
    """The result of a scenario, written to the files asked for.

    order: of the waterfall. attribution: the result gets a part `attribution`, and `say` shows how far it is. measure:
    runs the step on a device too; the result gets a part `measured`, the trace a second set of lanes. A scenario with
    traffic is served as well: the result gets a part `serving`, and the trace shows its requests.
    at_slo: with an SLO, `serving` gets the highest rate with and without each optimisation.
    """
    run = scenario_result(scenario, sets, order)
    traffic = run.loaded.scenario.workload.traffic
    bench_file = None
    if measure is not None:
        refuse_another_device(run.loaded, run.prediction.case.hardware, measure.device)
        bench_file = measure.bench
        if bench_file is not None and traffic is None:
            raise ScenarioError(["--bench: the scenario serves no requests; it needs workload.traffic"])
    refuse_overwriting(run.loaded.document.sources, {"--json": json_file, "--trace": trace_file, "--bench": bench_file})
    if attribution:
        run.result["attribution"] = attributed(run, lambda share: say(f"attribution: {share:.0%}"))
        say("")
    requests = None
    if traffic is not None:
        from sim.report.outputs.serving import ServedRequests  # a step alone needs no numpy

        requests = ServedRequests(run)
        if at_slo:
            requests.compare_at_slo()
    timelines, args = [run.prediction.timeline], [kernel_args(run.prediction)]
    if measure is not None:
        served = requests.measure(measure) if requests is not None else {}
        measured = measure.run(run.loaded, predicted_of(run.prediction))
        run.result["measured"] = measured.document | served
        timelines.append(measured.timeline)
        args.append({})
    if trace_file is not None and requests is not None:
        requests.write_trace(trace_file)
    elif trace_file is not None:
        from scenarios.trace import write_trace

        write_trace(trace_file, timelines, args)
    write_json(json_file, run.result)
    return run
