"""The `whatif` command: parses, calls, prints. No logic."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from scenarios.errors import ScenarioError

app = typer.Typer(
    name="whatif",
    help="Predict an LLM inference step on Ascend NPUs: how long, where the time goes, what each optimisation gains.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a scenario field, e.g. --set workload.batch=8. Repeatable."
    ),
]
JsonOut = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the whole answer as JSON.")]
TraceOut = Annotated[
    Path | None, typer.Option("--trace", metavar="FILE", help="Write a Chrome trace (Perfetto, MindStudio Insight).")
]
Order = Annotated[
    str,
    typer.Option(
        "--order",
        metavar="[graph|passes|gain|SWITCH,...]",
        help="What the waterfall switches on first: the graph, as passes are applied, the largest gain, or by name.",
    ),
]
ScenarioFile = Annotated[str, typer.Argument(metavar="SCENARIO", help="A scenario file, or the name of a shipped one.")]


@app.callback()
def _root() -> None:
    """Predict an LLM inference step on Ascend NPUs."""


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(metavar="[scenarios|models|hardware|passes]", help="What to list.")] = "",
) -> None:
    """List what ships: scenarios, models, hardware profiles, optimisation passes."""
    from sim.report import listing, terminal

    terminal.show(lambda console: listing.print_listing(console, what))


@app.command()
def run(
    scenario: ScenarioFile,
    sets: Sets = None,
    backend: Annotated[
        str, typer.Option(help="Who answers: sim predicts; cpu also runs the step and lays both side by side.")
    ] = "sim",
    json: JsonOut = None,
    trace: TraceOut = None,
    profile: Annotated[
        Path | None, typer.Option(metavar="DIR", help="With a device: a new folder for its profiler's files.")
    ] = None,
    bench: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With a device and traffic: write what it served as vllm bench would."),
    ] = None,
    clock: Annotated[
        str,
        typer.Option(
            metavar="[wall|steady]",
            help="With a device and traffic: the wall clock, or without other programs and waiting, at one speed.",
        ),
    ] = "wall",
    order: Order = "graph",
) -> None:
    """Predict one scenario: step time, bottleneck, gains, memory. With a device as backend, measure it too."""
    from sim.report import terminal
    from sim.report.measured import print_measured
    from sim.report.outputs.run import run_outputs
    from sim.report.run import print_run

    if backend == "sim":
        if profile is not None:
            raise ScenarioError(["--profile: sim runs nothing; take --backend cpu or npu, or --trace for a prediction"])
        if bench is not None or clock != "wall":
            option = "--bench" if bench is not None else "--clock"
            raise ScenarioError([f"{option}: sim serves nothing for real; take --backend cpu"])
        run_result = run_outputs(scenario, sets or [], json, trace, order=order)
        terminal.show(lambda console: print_run(console, run_result.result))
        return
    from device.open import measure_on

    device = measure_on(backend, profile, bench=bench, clock=clock)
    run_result = run_outputs(scenario, sets or [], json, trace, device, order)
    terminal.show(lambda console: print_measured(console, run_result.result))


@app.command()
def explain(
    scenario: ScenarioFile,
    sets: Sets = None,
    json: JsonOut = None,
    order: Order = "graph",
    attribution: Annotated[
        bool, typer.Option("--attribution", help="Gain of each optimisation first, last and over all orders.")
    ] = False,
) -> None:
    """Say why the step takes as long as it does, and what to try."""
    from sim.report import terminal
    from sim.report.outputs.run import run_outputs
    from sim.report.run import print_explain

    run_result = run_outputs(
        scenario, sets or [], json, None, order=order, attribution=attribution, at_slo=True, say=terminal.progress
    )
    terminal.show(lambda console: print_explain(console, run_result.result))


@app.command()
def compare(
    a: Annotated[
        str, typer.Argument(metavar="A", help="A scenario, a result of --json, a trace, a profile, or a load test.")
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one; FILE#2 is the second timeline of a file.")],
    sets: Sets = None,
    json: JsonOut = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Draw both timelines, one above the other.")
    ] = None,
) -> None:
    """Lay two steps or two load tests side by side, predicted or measured; --set applies to scenarios."""
    from sim.report import terminal
    from sim.report.compare import print_compare
    from sim.report.outputs.compare import compare_outputs

    result = compare_outputs(a, b, sets or [], json, plot)
    terminal.show(lambda console: print_compare(console, result))


@app.command()
def experiment(
    scenario: ScenarioFile,
    backend: Annotated[str, typer.Option(metavar="[cpu|cuda|npu]", help="The device that is measured.")],
    sets: Sets = None,
    hardware: Annotated[
        str, typer.Option(metavar="NAME", envvar="WHATIF_HARDWARE", help="The profile of this machine.")
    ] = "",
    factors: Annotated[str, typer.Option(metavar="A,B=VALUE", help="Try these switches only.")] = "",
    budget_s: Annotated[float, typer.Option(metavar="SECONDS", help="Time for all of it.")] = 300.0,
    json: JsonOut = None,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write the report: Markdown, JSON, SVG.")] = None,
) -> None:
    """Measure one optimisation after the other next to its prediction, and say which to adopt."""
    from device.experiment import opened
    from sim.experiment.protocol import Options
    from sim.report import terminal
    from sim.report.experiment import print_experiment
    from sim.report.outputs.experiment import experiment_outputs

    wanted = tuple(name for name in factors.split(",") if name.strip())
    given = [*(sets or []), *([f"hardware={hardware}"] if hardware else [])]
    with opened(backend) as bench_for:
        options = Options(wanted, budget_s)
        result = experiment_outputs(
            scenario=scenario,
            sets=given,
            bench_for=bench_for,
            options=options,
            json_file=json,
            folder=out,
            say=terminal.progress,
        )
    terminal.show(lambda console: print_experiment(console, result))


@app.command()
def validate(
    kernels: Annotated[Path | None, typer.Option(metavar="CSV", help="Measured kernels.")] = None,
    collectives: Annotated[Path | None, typer.Option(metavar="CSV", help="Measured collectives.")] = None,
    steps: Annotated[Path | None, typer.Option(metavar="CSV", help="Measured steps.")] = None,
    ladders: Annotated[Path | None, typer.Option(metavar="CSV", help="Measured gains.")] = None,
    overlaps: Annotated[Path | None, typer.Option(metavar="CSV", help="Measured products and collectives.")] = None,
    serving: Annotated[Path | None, typer.Option(metavar="CSV", help="Served benchmarks of deployments.")] = None,
    adopt: Annotated[
        Path | None, typer.Option(metavar="BUNDLE", help="Make rows of a bundle of doctor, a result or a profile.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="With --adopt: where the CSV files go.")] = None,
    calibrated: Annotated[
        bool, typer.Option("--calibrated", help="Also with engines fitted on one row of each deployment.")
    ] = False,
    hardware: Annotated[str, typer.Option(metavar="NAME", help="Price all rows on this profile.")] = "",
    max_kernel_median: Annotated[float | None, typer.Option(metavar="SHARE", help="Bound; exit 1 beyond it.")] = None,
    max_kernel_p90: Annotated[float | None, typer.Option(metavar="SHARE", help="Bound; exit 1 beyond it.")] = None,
    max_step_median: Annotated[float | None, typer.Option(metavar="SHARE", help="Bound; exit 1 beyond it.")] = None,
    max_collective_median: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Bound; exit 1 beyond it.")
    ] = None,
    max_collective_p90: Annotated[float | None, typer.Option(metavar="SHARE", help="Bound; exit 1 beyond it.")] = None,
    json: JsonOut = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Draw predicted against measured.")] = None,
) -> None:
    """Hold predictions against measurements: the given files, or the reference set that is shipped."""
    from sim.accuracy.validate import Bounds, Measurements
    from sim.report import terminal
    from sim.report.outputs.validate import validate_outputs
    from sim.report.validate import print_validation

    bounds = Bounds(max_kernel_median, max_kernel_p90, max_step_median, max_collective_median, max_collective_p90)
    files = Measurements(kernels, collectives, steps, ladders, overlaps, serving)
    if adopt is not None or out is not None:
        from sim.report.adopted import print_adopted
        from sim.report.outputs.adopt import adopt_outputs

        adoption, files = adopt_outputs(adopt, hardware, out, files)
        terminal.show(lambda console: print_adopted(console, adoption, files))
    validation = validate_outputs(files, hardware, bounds, json, plot, calibrated)
    terminal.show(lambda console: print_validation(console, validation.result, validation.broken))
    raise typer.Exit(1 if validation.broken else 0)


@app.command("import")
def import_(
    profile: Annotated[
        str,
        typer.Argument(metavar="PROFILE", help="A profiler's folder (one rank, or several), or its trace or table."),
    ],
    json: JsonOut = None,
    trace: TraceOut = None,
    hardware: Annotated[
        str, typer.Option(metavar="NAME", help="The chip it was measured on: gives each kernel its roofline position.")
    ] = "",
    step: Annotated[str, typer.Option(metavar="ID", help="Which step; by default the one of median length.")] = "",
    step_mark: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The host call or annotation that marks a step, where it is none that engines use: my_step_1.",
        ),
    ] = "",
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            metavar="NAME[:ARGS]",
            help="Replay the step with a change: fuse:add_rms_norm. Repeatable.",
        ),
    ] = None,
) -> None:
    """Read a profile of torch_npu, msprof or PyTorch: where the time went, who waited, what to try."""
    from sim.report import terminal
    from sim.report.imported import print_import
    from sim.report.outputs.imported import import_outputs

    result = import_outputs(
        profile, hardware, step_id=step, json_file=json, trace_file=trace, what_ifs=what_if or [], step_mark=step_mark
    )
    terminal.show(lambda console: print_import(console, result))


@app.command()
def calibrate(
    out: Annotated[Path, typer.Option(metavar="PROFILE.yaml", help="The profile to write.")],
    backend: Annotated[str, typer.Option(metavar="[cpu|cuda|npu]", help="The device to calibrate.")] = "",
    hardware: Annotated[
        str, typer.Option(metavar="NAME", help="The profile that numbers without a measurement are taken from.")
    ] = "",
    budget_s: Annotated[
        float, typer.Option(min=1, max=86_400, metavar="SECONDS", help="Begin no benchmark after this.")
    ] = 240,
    resume: Annotated[bool, typer.Option("--resume", help="Fit to the rows that an earlier run has left.")] = False,
    bench: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A result of vllm bench, guidellm, AIPerf or AISBench: fit an engine."),
    ] = None,
    scenario: Annotated[str, typer.Option(metavar="SCENARIO", help="With --bench: what was deployed.")] = "",
    sets: Sets = None,
) -> None:
    """Measure this machine and fit a hardware profile, or with --bench fit an engine profile to a load test."""
    if bench is not None or scenario or sets:
        _calibrate_engine(bench, scenario, sets or [], out, backend)
        return
    if not backend:
        raise ScenarioError(["calibrate: --backend cpu|cuda|npu measures this machine; --bench FILE fits an engine"])
    from device.open import bench_on
    from sim.fitting.profile_file import ready, write_profile
    from sim.report import terminal
    from sim.report.calibration import print_calibration

    measured_by = bench_on(backend)
    rows, base = ready(backend, out, hardware)
    timings = measured_by(rows, budget_s, resume, terminal.progress)
    terminal.progress("fitting")
    fitted = write_profile(out, timings, base)
    terminal.progress("")
    terminal.show(lambda console: print_calibration(console, fitted, timings, str(out)))


def _calibrate_engine(bench: Path | None, scenario: str, sets: list[str], out: Path, backend: str) -> None:
    from sim.fitting.bench_file import calibrate_engine
    from sim.report import terminal
    from sim.report.engine_calibration import print_engine_calibration

    if backend:
        raise ScenarioError(["--bench: a load test is fitted without a device; leave --backend out"])
    if bench is None or not scenario:
        raise ScenarioError(["calibrate: --bench FILE and --scenario SCENARIO go together"])
    calibration = calibrate_engine(bench, scenario, sets, out)
    terminal.show(lambda console: print_engine_calibration(console, calibration, str(out)))


@app.command()
def sweep(
    grid: Annotated[str, typer.Argument(metavar="GRID.yaml", help="Which settings of which scenario.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The table, .parquet or .csv; results gather next to it.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, max=1024, metavar="N", help="Processes; one per core.")] = None,
    dask: Annotated[str, typer.Option(metavar="ADDRESS", help="Work on a Dask cluster: tcp://host:8786.")] = "",
    shard: Annotated[str, typer.Option(metavar="i/N", help="Only this part of the points, for batch systems.")] = "",
) -> None:
    """Predict every point of a grid of settings: a table, a row per point. What was done before is kept."""
    from sim.report import terminal
    from sim.report.outputs.sweep import sweep_outputs
    from sim.report.sweep import print_sweep

    swept, path = sweep_outputs(grid, out, jobs, dask, shard, terminal.progress)
    terminal.show(lambda console: print_sweep(console, swept, path))


@app.command()
def plan(
    scenario: ScenarioFile,
    cards: Annotated[int, typer.Option(min=1, max=1024, metavar="N", help="Cards that there are: on A3, dies.")],
    slo: Annotated[str, typer.Option(metavar="ttft_ms=T,tpot_ms=T", help="Latencies that must be met.")] = "",
    sets: Sets = None,
    json: JsonOut = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE.yaml", help="Write the best choice as a scenario.")] = None,
) -> None:
    """Say how to deploy a model on some cards under an SLO: the command, how sure, and what to measure."""
    from sim.report import terminal
    from sim.report.outputs.plan import plan_outputs
    from sim.report.plan import print_plan

    result = plan_outputs(
        scenario, cards=cards, slo=slo, sets=sets or [], json_file=json, out=out, say=terminal.progress
    )
    terminal.show(lambda console: print_plan(console, result))
    raise typer.Exit(0 if result["best"] is not None and result["best"]["meets_slo"] else 1)


@app.command()
def doctor(
    backend: Annotated[
        str, typer.Option(metavar="[cpu|cuda|npu]", help="The backend to examine this machine for.")
    ] = "cpu",
    run: Annotated[bool, typer.Option("--run", help="Carry the trials out and pack what they leave.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="BUNDLE.zip", help="With --run: the bundle to write, made to be sent.")
    ] = None,
    only: Annotated[str, typer.Option(metavar="1,3", help="With --run: these trials only.")] = "",
) -> None:
    """Say whether this machine is fit for a backend, what is missing, and what only its hardware can show."""
    from sim.report import terminal

    if run or out is not None or only:
        _doctor_run(backend, run, out, only)
        return
    from device.doctor import examined

    text, passed = examined(backend)
    terminal.write(text)
    raise typer.Exit(0 if passed else 1)


def _doctor_run(backend: str, run: bool, out: Path | None, only: str) -> None:
    from device.doctor import tried
    from sim.report import terminal
    from sim.report.adopted import bundle_text
    from sim.report.outputs.adopt import bundle_outputs

    if not run or out is None:
        raise ScenarioError(["doctor: --run and --out BUNDLE.zip go together"])
    text, passed, adoption = bundle_outputs(out, lambda folder: tried(backend, folder, terminal.progress, only))
    terminal.write(text + bundle_text(adoption, out))
    raise typer.Exit(0 if passed else 1)


@app.command("app")
def app_(
    port: Annotated[int, typer.Option(metavar="N", help="The port on 127.0.0.1 that it listens on.")] = 8501,
    profiles: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Offer the profiles in this folder on the profile page.")
    ] = None,
) -> None:
    """Open the what-if lab: a page on this machine in which every switch of a scenario can be flipped."""
    from app_pages.parts.server import start

    start(port, profiles)


@app.command()
def schema() -> None:
    """Print the JSON Schema of a scenario file, for editors."""
    from scenarios.json_schema import schema_json
    from sim.report import terminal

    terminal.write(schema_json())


def main() -> None:
    """Entry point: one line for bad input and exit status 2, never a traceback."""
    from sim.report import terminal
    from sim.report.command_line import run_command

    terminal.bound_columns()
    try:
        raise SystemExit(run_command(app))
    except ScenarioError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:
        if (reason := terminal.reason_of(error)) is None:
            raise
        print(reason, file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
