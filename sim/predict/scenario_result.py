"""From a scenario file to its result: what `whatif run` and `explain` do, as one call for command, app and tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from scenarios.batches import decode_batch
from scenarios.errors import ScenarioError, printable
from scenarios.exchange.measured import Predicted
from scenarios.files.paths import is_file
from scenarios.loader import Loaded, folder_of, load_scenario, located
from scenarios.lowering.parallel import shard_of
from scenarios.lowering.stages import split_depth
from scenarios.models.hf_config import load_model
from scenarios.models.model import Model
from scenarios.records import dataclass
from scenarios.schema import Scenario
from scenarios.timeline import COMPUTE
from sim.engines.profile import EngineProfile, engine_of
from sim.engines.workers import workers_on_a_host
from sim.hardware.profile import HardwareError, HardwareProfile, hardware_names, load_hardware
from sim.predict.attribution import attribution_of, attribution_result
from sim.predict.device_terms import spoken
from sim.predict.explain import advise, diagnose
from sim.predict.gains import Progress, gains_of
from sim.predict.in_engine import in_engine
from sim.predict.predict import Prediction, check, predict
from sim.predict.result import run_result, step_result, what_if_result
from sim.predict.speculation import yielded_tokens
from sim.predict.steps import Case
from sim.predict.stored import with_stored_weights
from sim.step.schedule import launches


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """A scenario, its prediction, and the result as plain data."""

    loaded: Loaded
    prediction: Prediction
    result: dict[str, Any]


def scenario_result(path: str | Path, sets: Sequence[str] = (), order: str = "graph") -> ScenarioResult:
    """Predict one scenario file (or shipped name) with `--set` pairs. order: of the waterfall.

    Raises ScenarioError with located lines for everything that is wrong with the input.
    """
    loaded = load_scenario(path, sets)
    loaded, prediction = _predicted(loaded)
    gains = gains_of(prediction.case, order=order)
    diagnosis = diagnose(prediction)
    result = run_result(prediction, diagnosis, gains, advise(prediction, gains), _name(loaded))
    return ScenarioResult(loaded, prediction, {**result, **_served(loaded, prediction)})


def first_result(loaded: Loaded) -> ScenarioResult:
    """The result without its what-ifs: a tenth of the time. Raises ScenarioError as `scenario_result` does."""
    loaded, prediction = _predicted(loaded)
    result = step_result(prediction, diagnose(prediction), _name(loaded))
    return ScenarioResult(loaded, prediction, {**result, **_served(loaded, prediction)})


def _served(loaded: Loaded, prediction: Prediction) -> dict[str, Any]:
    """What an engine's host makes of the TPOT: `in_engine` of the result, None where no engine profile is of the
    device's kind."""
    case = prediction.case
    if case.hardware.profile.device != "npu":
        return {"in_engine": None}
    requests = decode_batch(case.scenario).requests
    ranks = workers_on_a_host(case.model.cards // case.model.data_parallel, case.hardware)
    asynchronous = case.scenario.engine.async_scheduling
    tokens = yielded_tokens(case.scenario.engine)
    served = in_engine(engine_of(loaded), prediction.metrics["tpot_ms"], requests, ranks, asynchronous, tokens)
    return {"in_engine": asdict(served)}


def _predicted(loaded: Loaded) -> tuple[Loaded, Prediction]:
    """The prediction, and the scenario as it was predicted: what measures it next runs the same weights."""
    case = case_of(loaded)
    return replace(loaded, scenario=case.scenario), predict(case)


def what_ifs(first: ScenarioResult, progress: Progress = lambda share: None, order: str = "graph") -> dict[str, Any]:
    """What `first_result` left out: gains, waterfall and advice. order: of the waterfall.

    progress: told the share that is done, 0 to 1, between what-ifs; what it raises stops them.
    """
    gains = gains_of(first.prediction.case, progress, order)
    return what_if_result(gains, advise(first.prediction, gains))


def attributed(first: ScenarioResult, progress: Progress = lambda share: None) -> dict[str, Any]:
    """What each switch of the best set gains first, last and on the mean over all orders, and the pairs that are no
    sum: the part `attribution` of a result (`sim.predict.attribution`). Seconds, for many ranks half a minute.

    progress: as for `what_ifs`.
    """
    return attribution_result(attribution_of(first.prediction.case, progress=progress))


def _name(loaded: Loaded) -> str:
    return printable(loaded.name, 200)


def looked_up(loaded: Loaded) -> Case:
    """The case of a loaded scenario with its whole model, not split and not checked.

    Where the scenario gives no weights, the case has those nearest to the model's checkpoint.
    """
    scenario = loaded.scenario
    problems: list[str] = []
    model = hardware = None
    try:
        model = load_model(scenario.model, folder_of(loaded, "model"))
    except ScenarioError as error:
        problems += [f"{located(loaded, 'model')}: model: {line}" for line in error.messages]
    try:
        others = folder_of(loaded, "hardware") / scenario.hardware
        hardware = load_hardware(str(others) if is_file(others) else scenario.hardware)
    except HardwareError as error:  # its line names the field by itself
        problems += [f"{located(loaded, 'hardware')}: {line}" for line in error.messages]
    except ScenarioError as error:
        problems += [f"{located(loaded, 'hardware')}: hardware: {line}" for line in error.messages]
    engine = None
    try:
        engine = engine_of(loaded)
    except ScenarioError as error:
        problems += error.messages
    if problems or model is None or hardware is None or engine is None:
        raise ScenarioError(problems)
    return Case(_admitting(with_stored_weights(loaded, model).scenario, engine, model), model, hardware)


def _admitting(scenario: Scenario, engine: EngineProfile, model: Model) -> Scenario:
    """`scenario` with the engine's rules for letting requests in, where its traffic leaves them open."""
    if scenario.workload.traffic is None:
        return scenario
    rules: dict[str, Any] = {
        name: engine.profile.is_on(name, has_latent=model.latent is not None)
        for name in ("scheduler_reserve_full_isl", "prefill_first")
        if getattr(scenario.engine, name) is None and name in engine.profile.defaults
    }
    if scenario.engine.disaggregated_prefill is not None:
        rules.pop("prefill_first", None)  # no instance has both prompts and decodes
    return scenario.model_copy(update={"engine": scenario.engine.model_copy(update=rules)}) if rules else scenario


def case_of(loaded: Loaded) -> Case:
    """Look up the model and the hardware of a loaded scenario and check them against each other.

    Where the scenario gives no weights, the case has those nearest to the model's checkpoint.
    """
    whole = looked_up(loaded)
    scenario, model, hardware = whole.scenario, whole.model, whole.hardware
    engine = scenario.engine

    def spread(model: Model, degree: int) -> Model:
        return shard_of(engine, model, degree, engine.data_parallel_size)

    for where, split, degree in (
        ("engine.tensor_parallel_size", spread, engine.tensor_parallel_size),
        ("engine.pipeline_parallel_size", split_depth, engine.pipeline_parallel_size),
    ):
        try:
            model = split(model, degree)
        except ScenarioError as error:
            raise ScenarioError([f"{located(loaded, where)}: {where}: {line}" for line in error.messages]) from None
    case = Case(scenario, model, hardware)
    wrong = check(case)
    if wrong:
        raise ScenarioError([f"{located(loaded, where)}: {where}: {what}" for where, what in wrong])
    return case


def refuse_another_device(loaded: Loaded, hardware: HardwareProfile, device: str) -> None:
    """Raise ScenarioError where the prediction is of one kind of device and the measurement would be of another."""
    if hardware.profile.device != device:
        known = [n for n in hardware_names() if load_hardware(n).profile.device == device]
        hint = f"; set it to {known[0]}" if known else ""
        what = f"{hardware.name} is a profile for {hardware.profile.device}, and --backend measures {device}{hint}"
        raise ScenarioError([f"{located(loaded, 'hardware')}: hardware: {what}"])


def predicted_of(prediction: Prediction) -> Predicted:
    """The times of the reported step and of each of its ops; an op's waiting for ranks left out."""
    times: dict[int, int] = {}
    for span in prediction.timeline.spans:
        if span.index >= 0 and not span.is_wait and span.process in (*COMPUTE, "Communication"):
            times[span.index] = times.get(span.index, 0) + span.duration_ns
    reference = prediction.case.hardware.profile.reference_us
    return Predicted(prediction.step.total_ns, times, 1000 * float(reference.value) if reference else 0.0)


def kernel_args(prediction: Prediction) -> dict[int, dict[str, str | int | float]]:
    """What a trace shows of each kernel next to its time: shapes, types, bytes, flops, cores, what bounds it, and the
    time that peak compute and peak HBM would allow over the time taken."""
    args: dict[int, dict[str, str | int | float]] = {}
    device = prediction.case.hardware.profile.device
    for issued, launch in zip(prediction.program, launches(prediction.plan), strict=True):
        op, kernel = issued.op, launch.kernel
        args[launch.index] = {
            **({"Task Type": kernel.accelerator} if device == "npu" else {}),  # cores that only an NPU has
            "Input Shapes": ";".join(",".join(map(str, t.shape)) for t in op.inputs),
            "Input Data Types": ";".join(t.dtype for t in op.inputs),
            "Output Shapes": ";".join(",".join(map(str, t.shape)) for t in op.outputs),
            "Block Dim": kernel.cores,
            "bytes": kernel.gm_bytes,
            "hbm_bytes": kernel.hbm_bytes,
            "flops": kernel.flops,
            "bound": spoken(kernel.bound, device),
            "roofline_share": round(kernel.roofline_ns / max(1, kernel.duration_ns), 3),
        }
    return args
