"""Engine profiles: what the host of a serving engine pays around each step, strict YAML in, `EngineCosts` out.

A profile has the form of a hardware profile: each number is `{value, source, origin, low?, high?}`, `extends:` takes
all numbers of another profile and replaces some. Unknown keys, missing numbers and numbers without a source are errors.

`defaults` says what a deployment of the engine runs with where it does not say: names of `--set` and their values, each
with its source. Rows of served benchmarks that leave them open get them; scenarios have defaults of their own.

The law. One step of an engine that runs `n` requests, `p` of them in prefill, keeps its host busy for

    host = slowdown x (step + n x request + p x chunk)

and the device for `device`. Asynchronous scheduling prepares the next step while the device works, a share of the
host's work hides behind it, and the step takes max(device, hidden) + the rest (`sim.engines.costs`): a share of 1 gives
max(device, host), as vLLM's asynchronous scheduling does (the default since 0.14), a share of 0 the sum, as one thread
that schedules, launches and waits. slowdown = max(1, cores that the engine's threads want / cores of the container).
"""

from __future__ import annotations

import re
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StrictInt, StrictStr, model_validator

from scenarios.errors import ScenarioError, did_you_mean, quoted
from scenarios.files.paths import Stamp, stamp_of
from scenarios.files.validation import validate
from scenarios.loader import Loaded, folder_of, located
from scenarios.records import dataclass
from sim.engines.costs import EngineCosts
from sim.hardware.profile import Number, ProfilePart, Source, number_schema, resolve_profile, worst_of

SHIPPED = Path(__file__).parent
#: The profile of a scenario that names none.
DEFAULT = "unknown"
WHERE = "engine.profile"


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Host time of one step, µs, however many requests it runs.

    schedule: which requests run. inputs: token ids, positions, slots. metadata: attention's block tables and lengths.
    launch: sampler, copies of results and what else is issued around the model.
    """

    schedule_us: float
    inputs_us: float
    metadata_us: float
    launch_us: float


@dataclass(frozen=True, slots=True)
class RequestCosts:
    """Host time of one step for each request that it runs, µs: sampling parameters, stop conditions, detokenising."""

    sampling_us: float
    output_us: float
    detokenise_us: float


@dataclass(frozen=True, slots=True)
class PrefillCosts:
    """chunk_us: host time of a step for each prefill chunk in it, µs. receive_us: from a request's arrival to the
    scheduler and from its first token to the client (HTTP, tokenising, first detokenising), µs; it delays the request
    and nobody else."""

    chunk_us: float
    receive_us: float


@dataclass(frozen=True, slots=True)
class Overlap:
    """hidden_share: share of a step's host time that the device's step can hide, 0 to 1."""

    hidden_share: float


@dataclass(frozen=True, slots=True)
class Device:
    """What this deployment's steps are over what the hardware profile says. scale: all device times, and with them the
    step. dispatch_scale: the host's time for each op or graph that it launches."""

    scale: float
    dispatch_scale: float


@dataclass(frozen=True, slots=True)
class Cpu:
    """cores: CPU cores of the container. threads: busy threads of the engine whatever its size. threads_per_rank: busy
    threads of each worker process on this host."""

    cores: float
    threads: float
    threads_per_rank: float


SECTIONS: dict[str, type[Any]] = {
    "step": StepCosts, "request": RequestCosts, "prefill": PrefillCosts, "overlap": Overlap, "device": Device,
    "cpu": Cpu,
}  # fmt: skip


DefaultName = Literal[
    "graph",
    "cudagraph_mode",
    "synchronize",
    "max_num_batched_tokens",
    "max_num_seqs",
    "prefix_sharing",
    "scheduler_reserve_full_isl",
    "prefill_first",
    "cudagraph_capture_sizes",
]
#: Values of defaults that depend on the model.
WITHOUT_MLA, MAX_MODEL_LEN, BY_STREAMS = "without_mla", "max_model_len", "by_streams"


class Default(ProfilePart):
    """What a setting of a scenario is where a deployment does not say."""

    value: StrictStr | StrictInt
    source: Source
    origin: Annotated[str, Field(min_length=3, max_length=500)]


class EngineFile(ProfilePart):
    """One engine YAML file after `extends:`."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    description: Annotated[str, Field(max_length=2000)] = ""
    extends: str | None = None
    step: number_schema("StepPart", StepCosts)  # type: ignore[valid-type]
    request: number_schema("RequestPart", RequestCosts)  # type: ignore[valid-type]
    prefill: number_schema("PrefillPart", PrefillCosts)  # type: ignore[valid-type]
    overlap: number_schema("OverlapPart", Overlap)  # type: ignore[valid-type]
    device: number_schema("DevicePart", Device)  # type: ignore[valid-type]
    cpu: number_schema("CpuPart", Cpu)  # type: ignore[valid-type]
    defaults: dict[DefaultName, Default] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _usable(self) -> EngineFile:
        share = self.overlap.hidden_share
        if max(share.value, share.high or 0) > 1:
            raise ValueError("overlap.hidden_share must be a share, 0 to 1")
        for name in ("scale", "dispatch_scale"):
            number = getattr(self.device, name)
            if not number.value or number.low == 0:
                raise ValueError(f"device.{name} must be greater than 0")
        if not self.cpu.cores.value or self.cpu.cores.low == 0:
            raise ValueError("cpu.cores must be greater than 0")
        return self

    def numbers(self) -> dict[str, Number]:
        """Every number under its dotted name: {"step.schedule_us": Number(...), ...}."""
        return {f"{s}.{f.name}": getattr(getattr(self, s), f.name) for s, cls in SECTIONS.items() for f in fields(cls)}

    def is_on(self, name: DefaultName, has_latent: bool) -> bool:
        """Whether a switch is on where a deployment of a model with or without latent attention does not say."""
        default = self.defaults.get(name)
        return default is not None and default.value in ("true", *(() if has_latent else (WITHOUT_MLA,)))

    def worst_source(self) -> Source:
        """The smallest trustworthy tag of the numbers."""
        return worst_of(self.numbers().values())


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """One engine: its numbers with their sources, and the costs that they come to."""

    name: str
    profile: EngineFile

    def costs(self, ranks: int = 1) -> EngineCosts:
        """The costs on a host that runs `ranks` workers. Those at the ends of an interval: `sim.engines.ends`."""
        values = {name: float(number.value) for name, number in self.profile.numbers().items()}
        wanted = values["cpu.threads"] + ranks * values["cpu.threads_per_rank"]
        slowdown = max(1.0, wanted / values["cpu.cores"])

        def ns(*names: str) -> int:
            return round(1000 * slowdown * sum(values[name] for name in names))

        return EngineCosts(
            per_step_ns=ns(*(f"step.{f.name}" for f in fields(StepCosts))),
            per_request_ns=ns(*(f"request.{f.name}" for f in fields(RequestCosts))),
            per_chunk_ns=ns("prefill.chunk_us"),
            admission_ns=ns("prefill.receive_us"),
            hidden_share=values["overlap.hidden_share"],
            device_scale=values["device.scale"],
            dispatch_scale=values["device.dispatch_scale"],
        )


def engine_names() -> list[str]:
    """Names of the shipped profiles, sorted."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def load_engine(name_or_path: str) -> EngineProfile:
    """The engine profile called `name_or_path`: a shipped name, or a YAML file, read again when it was written again.

    Raises ScenarioError with the nearest name where there is none, with file, line and column of every mistake in the
    file.
    """
    path = find_engine(name_or_path)
    return _loaded(path, stamp_of(path))


@lru_cache(maxsize=32)
def _loaded(path: Path, stamp: Stamp) -> EngineProfile:
    file = validate(resolve_profile(path, find_engine, SHIPPED), EngineFile)
    return EngineProfile(file.name, file)


def find_engine(name: str) -> Path:
    """The file of a shipped profile or a path. Raises ScenarioError with the nearest name."""
    shipped = SHIPPED / f"{name}.yaml"
    if "/" not in name and "\\" not in name and shipped.is_file():
        return shipped
    if (path := Path(name)).is_file():
        return path
    known = engine_names()
    what = f"{quoted(name)} is no engine profile and no file{did_you_mean(name, known)}. Known: {', '.join(known)}"
    raise ScenarioError([what])


def engine_of(loaded: Loaded) -> EngineProfile:
    """The engine of a scenario; a file's name starts from the folder of the file that names it.

    Raises ScenarioError with the place in the scenario, or in the profile.
    """
    name = loaded.scenario.engine.profile or DEFAULT
    file = folder_of(loaded, WHERE) / name
    try:
        return load_engine(str(file) if file.is_file() else name)
    except ScenarioError as error:
        raise ScenarioError([f"{located(loaded, WHERE)}: {WHERE}: {line}" for line in error.messages]) from None


#: Releases of vLLM-Ascend from which on a profile fits, with the first month of a main branch that has what is new.
_VLLM_ASCEND = (
    ((0, 21), "2026-06", "vllm_ascend_0_23"),
    ((0, 20), "2026-05", "vllm_ascend_0_20"),
    ((0, 19), "2026-04", "vllm_ascend_0_19"),
    ((0, 14), "2026-01", "vllm_ascend_0_18"),
    ((0, 9), "2025-06", "vllm_ascend_0_11"),
    ((0, 0), "", "vllm_ascend_0_8"),
)


def shipped_engine_of(engine: str) -> str:
    """The shipped profile that fits an engine as a benchmark names it: "vllm-ascend v0.18.0-openeuler" ->
    vllm_ascend_0_18; `unknown` where none does.

    vLLM-Ascend replays graphs by default since 0.9.1 (June 2025), schedules asynchronously since 0.14 (January 2026,
    with vLLM), lets in requests with room for all their tokens since 0.19 (April 2026, with vLLM), no longer waits
    between pieces since 0.20.2 (May) and replays decode steps whole by default since 0.21 (June); a main branch is
    judged by its date.
    """
    text = re.sub(r"\bcann\s*[\d.]+", "", engine.lower())
    if "vllm" not in text:
        return "mindie_2_2" if "mindie" in text else DEFAULT
    if date := re.search(r"\b(20\d\d-\d\d)\b", text):
        return next(name for _, month, name in _VLLM_ASCEND if date[1] >= month)
    if version := re.search(r"\b(?:v|ascend |vllm )?(\d+)\.(\d+)", text):
        return next(name for first, _, name in _VLLM_ASCEND if (int(version[1]), int(version[2])) >= first)
    return DEFAULT
