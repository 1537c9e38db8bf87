"""Hardware profiles: strict YAML in, a frozen `HardwareProfile` for the hot code out.

A profile names each number as `{value, source, origin, low?, high?}`. `extends:` takes all numbers of another profile
and replaces some, so a family of chips shares its base. Unknown keys, missing numbers and numbers without a source are
errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, create_model, model_validator

from scenarios.errors import ScenarioError, did_you_mean, quoted
from scenarios.files.document import Document, Entry, Node
from scenarios.files.paths import Stamp, is_file, stamp_of
from scenarios.files.validation import validate
from scenarios.files.yaml12 import read_document
from scenarios.records import dataclass
from sim.hardware.bounds import bounds_of
from sim.hardware.sections import Chip, Collective, Graph, Host, Kernel, KernelParams, Memory, Residual

SHIPPED = Path(__file__).parent

Source = Literal["spec", "measured", "fitted", "assumed"]
#: From the most to the smallest trustworthy.
SOURCES: tuple[Source, ...] = ("spec", "measured", "fitted", "assumed")

#: Other names that measurements and users call the shipped profiles by.
ALIASES = {
    "910b1": "atlas_a2_910b1",
    "910b2": "atlas_a2_910b2",
    "910b3": "atlas_a2_910b3",
    "910b4": "atlas_a2_910b4",
    "910b4-1": "atlas_a2_910b4_64g",
    "atlas_a2_376t": "atlas_a2_910b2",
    "atlas_a3_die_24": "atlas_a3_die",
    "ascend_950pr": "950pr",
}

SECTIONS: dict[str, type[Any]] = {
    "chip": Chip, "memory": Memory, "kernel": Kernel, "host": Host, "residual": Residual, "graph": Graph,
    "collective": Collective,
}  # fmt: skip
#: Kernel programs that the cost model falls back on, so a profile must have them; and the fixed time of an unknown AI
#: CPU kernel.
NEEDED_PROGRAMS = ("elementwise", "row_wise", "matmul", "quant_matmul", "attention", "attention_prefill")
NEEDED_FIXED = ("ai_cpu",)
_MAX_EXTENDS = 8
_Value = Annotated[StrictInt | StrictFloat, Field(ge=0, allow_inf_nan=False)]


class HardwareError(ScenarioError):
    """A profile that does not exist; the message is for the user."""


class ProfilePart(BaseModel):
    """A strict, immutable part of a profile's file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Number(ProfilePart):
    """One number with where it comes from; `low` and `high` are its interval where one is known."""

    value: _Value
    source: Source
    origin: Annotated[str, Field(min_length=3, max_length=500)]
    low: _Value | None = None
    high: _Value | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        low = self.value if self.low is None else self.low
        high = self.value if self.high is None else self.high
        if not low <= self.value <= high:
            raise ValueError(f"value {self.value} lies outside its interval {low} to {high}")
        return self


@lru_cache
def _number(is_count: bool, smallest: float, largest: float) -> type[Number]:
    """A `Number` within these bounds; a whole one where a count is due."""
    kind: Any = Annotated[
        StrictInt if is_count else StrictInt | StrictFloat, Field(ge=smallest, le=largest, allow_inf_nan=False)
    ]
    values: dict[str, Any] = {"value": (kind, ...), "low": (kind | None, None), "high": (kind | None, None)}
    return create_model("Number", __base__=Number, **values)


def number_schema(name: str, section: type[Any], optional: bool = False) -> type[BaseModel]:
    """The file form of a section: the same fields, each a `Number` within the bounds of its unit."""
    names: dict[str, Any] = {}
    for field in fields(section):
        kind = _number(field.type == "int", *bounds_of(section.__name__, field.name))
        names[field.name] = (kind | None, None) if optional else (kind, ...)
    return cast(type[BaseModel], create_model(name, __base__=ProfilePart, **names))


def worst_of(numbers: Iterable[Number]) -> Source:
    """The smallest trustworthy tag of `numbers`."""
    return max((number.source for number in numbers), key=SOURCES.index)


KernelParamsPart = number_schema("KernelParamsPart", KernelParams, optional=True)


class ProfileFile(ProfilePart):
    """One hardware YAML file after `extends:`. device: what kind of device it describes. reference_us: what the
    reference kernel of the microbenchmarks (`device.measure.steady`) took when it was measured, where it was."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    description: Annotated[str, Field(max_length=2000)] = ""
    extends: str | None = None
    device: Literal["npu", "cpu", "cuda"] = "npu"
    reference_us: _number(False, *bounds_of("", "reference_us")) | None = None  # type: ignore[valid-type]
    chip: number_schema("ChipPart", Chip)  # type: ignore[valid-type]
    memory: number_schema("MemoryPart", Memory)  # type: ignore[valid-type]
    kernel: number_schema("KernelPart", Kernel)  # type: ignore[valid-type]
    programs: dict[str, KernelParamsPart]  # type: ignore[valid-type]
    fixed_us: dict[str, _number(False, *bounds_of("", "fixed_us"))]  # type: ignore[valid-type]
    host: number_schema("HostPart", Host)  # type: ignore[valid-type]
    residual: number_schema("ResidualPart", Residual)  # type: ignore[valid-type]
    graph: number_schema("GraphPart", Graph)  # type: ignore[valid-type]
    collective: number_schema("CollectivePart", Collective)  # type: ignore[valid-type]

    @model_validator(mode="after")
    def _usable(self) -> ProfileFile:
        if missing := [p for p in NEEDED_PROGRAMS if p not in self.programs]:
            raise ValueError(f"programs: {', '.join(missing)} missing")
        if missing := [k for k in NEEDED_FIXED if k not in self.fixed_us]:
            raise ValueError(f"fixed_us: {', '.join(missing)} missing")
        if self.chip.hbm_visible_bytes.value > self.chip.hbm_capacity_bytes.value:
            raise ValueError("chip.hbm_visible_bytes is more than chip.hbm_capacity_bytes")
        return self

    def numbers(self) -> dict[str, Number]:
        """Every number under its dotted name: {"chip.cube_cores": Number(...), "programs.swiglu.start_us": ...}."""
        named = {f"{s}.{f.name}": getattr(getattr(self, s), f.name) for s, cls in SECTIONS.items() for f in fields(cls)}
        for name, part in self.programs.items():
            named |= {f"programs.{name}.{f.name}": getattr(part, f.name) for f in fields(KernelParams)}
        named |= {f"fixed_us.{key}": number for key, number in self.fixed_us.items()}
        return {key: number for key, number in named.items() if number is not None}

    def worst_source(self) -> Source:
        """The smallest trustworthy tag among the numbers."""
        return worst_of(self.numbers().values())


@dataclass(frozen=True, slots=True, eq=False)
class HardwareProfile:
    """One device as the simulator reads it.

    Compared by identity: it is a cache key, and a what-if makes a new one by `replace`.
    """

    name: str
    chip: Chip
    memory: Memory
    kernel: Kernel
    programs: dict[str, KernelParams]
    fixed_us: dict[str, float]
    host: Host
    residual: Residual
    graph: Graph
    collective: Collective
    profile: ProfileFile


def hardware_names() -> list[str]:
    """Names of the shipped profiles, sorted."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def load_hardware(name_or_path: str) -> HardwareProfile:
    """The profile called `name_or_path`: a shipped name, an alias, or a YAML file, read again once written again.

    Raises HardwareError with the nearest name where there is none, ScenarioError with file, line and column of every
    mistake in the file.
    """
    path = find_profile(name_or_path)
    return _loaded(path, stamp_of(path))


@lru_cache(maxsize=32)
def _loaded(path: Path, stamp: Stamp) -> HardwareProfile:
    return read_hardware(path)


def read_hardware(path: Path) -> HardwareProfile:
    """The profile in a file, not remembered. Raises as `load_hardware`."""
    return from_profile(validate(resolve_profile(path, find_profile, SHIPPED), ProfileFile))


def from_profile(profile: ProfileFile) -> HardwareProfile:
    """The numbers of `profile` without their sources."""
    parts = {s: cls(**_values(getattr(profile, s), cls)) for s, cls in SECTIONS.items()}
    programs = {name: KernelParams(**_values(part, KernelParams)) for name, part in profile.programs.items()}
    fixed = {key: float(number.value) for key, number in profile.fixed_us.items()}
    return HardwareProfile(name=profile.name, profile=profile, programs=programs, fixed_us=fixed, **parts)


def _values(part: Any, section: type[Any]) -> dict[str, Any]:
    numbers = {f: getattr(part, f.name) for f in fields(section)}
    return {f.name: (int if f.type == "int" else float)(n.value) for f, n in numbers.items() if n is not None}


def find_profile(name: str) -> Path:
    """The file of a shipped profile, an alias or a path. Raises HardwareError with the nearest name."""
    shipped = SHIPPED / f"{ALIASES.get(name, name)}.yaml"
    if "/" not in name and "\\" not in name and is_file(shipped):
        return shipped
    if is_file(path := Path(name)):
        return path
    known = sorted([*hardware_names(), *ALIASES])
    raise HardwareError(
        [f"hardware: {quoted(name)} is no profile and no file{did_you_mean(name, known)}. Known: {', '.join(known)}"]
    )


def resolve_profile(
    path: Path, find: Callable[[str], Path], shipped: Path, children: tuple[Path, ...] = ()
) -> Document:
    """The document of `path`, laid on what it extends.

    find: the file of a profile's name, raising ScenarioError. shipped: the folder whose files are shown by their names.
    """
    shown = path.name if path.parent == shipped else str(path)
    document = read_document(path, shown)
    parent = document.find(("extends",))
    if parent is None or parent.value is None:
        return document
    if not isinstance(parent.value, str):
        raise ScenarioError([f"{parent.mark}: extends: a profile's name or a file is due"])
    if path in children or len(children) >= _MAX_EXTENDS:
        raise ScenarioError(
            [f"{parent.mark}: extends: profiles extend one another in a circle or more than {_MAX_EXTENDS} deep"]
        )
    others = [path.parent / parent.value, path.parent / f"{parent.value}.yaml"]
    try:
        base_path = next((p for p in others if is_file(p)), None) or find(parent.value)
    except ScenarioError as error:
        raise ScenarioError([f"{parent.mark}: extends: {error.messages[0]}"]) from None
    base = resolve_profile(base_path, find, shipped, (*children, path))
    return Document(document.name, _lay(base.root, document.root), (*document.sources, *base.sources))


def _lay(base: Node, over: Node) -> Node:
    """`over` on `base`, number by number.

    A number replaces the other as a whole, so that no source or interval is inherited.
    """
    if not isinstance(base.value, dict) or not isinstance(over.value, dict) or "value" in over.value:
        return over
    merged = dict(base.value)
    for key, entry in over.value.items():
        below = merged.get(key)
        merged[key] = entry if below is None else Entry(entry.key, _lay(below.node, entry.node))
    return Node(over.mark, merged)
