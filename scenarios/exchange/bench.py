"""What an experiment asks of a device, and what it gets back: plain data, the same whichever device measured it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from scenarios.exchange.measured import Measured, Predicted
from scenarios.loader import Loaded
from scenarios.records import dataclass
from scenarios.schema import Scenario

#: What is timed. ttft: prefill of all requests, the mean of their ends. tpot: several decode steps of a growing cache,
#: the mean of one. step: the mixed step of a scenario that reports one.
Part = Literal["tpot", "ttft", "step"]


@dataclass(frozen=True, slots=True)
class Repeat:
    """One turn of two sides, ns. references: the fixed kernel right before each side. a_first: who went first.

    wall: by the clock on the wall. The others leave out what other programs had of the processor, where the device can
    tell; ranks that wait for each other are timed by the wall alone.
    """

    a_ns: float
    b_ns: float
    a_reference_ns: float
    b_reference_ns: float
    a_wall_ns: float
    b_wall_ns: float
    a_first: bool


@dataclass(frozen=True, slots=True)
class Errors:
    """Logits of a side against those of the plain program, on the same tokens.

    largest: of one logit. relative: norm of all differences over the norm of the plain logits. kl_nats: mean
    divergence of the next token's distribution from the plain one. nll_nats, plain_nll_nats: mean negative log
    likelihood of the text under the side and under the plain program. first_other: (step, request) of the first greedy
    token that differs, None where all are equal. rows: distributions compared.
    is_finite: whether all logits are numbers; where one is not, the other fields say nothing.
    """

    greatest: float
    relative: float
    kl_nats: float
    nll_nats: float
    plain_nll_nats: float
    first_other: tuple[int, int] | None
    rows: int
    is_finite: bool = True


@dataclass(frozen=True, slots=True)
class Side:
    """One of two scenarios that were measured in turn.

    load_ms: weights, cache and binding. first_ms: the first pass through all steps of each part, with whatever is
    captured or compiled at its first call; second_ms: the same once more. Bytes are counted from the tensors held:
    values are what the largest step leaves behind. errors: None where the plain program could not be run, and then
    `unchecked` says why. held_to: the precision in which it ran.
    """

    load_ms: float
    first_ms: Mapping[Part, float]
    second_ms: Mapping[Part, float]
    weights_bytes: int
    kv_cache_bytes: int
    values_bytes: int
    errors: Errors | None
    held_to: str = "float32"
    unchecked: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two scenarios measured in turn: A B, B A, A B ... decode_steps: decode steps behind one tpot; first_context:
    tokens in the cache before the first of them."""

    a: Side
    b: Side
    repeats: Mapping[Part, tuple[Repeat, ...]]
    decode_steps: int
    first_context: int


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The baseline from cold to warm. repeats: (fixed kernel, side), ns, in their order; the first two are the passes
    that filled the cache, the very first of them with all that is captured or compiled."""

    part: Part
    repeats: tuple[tuple[float, float], ...]
    side: Side


class Bench(Protocol):
    """A device with a clock, for an experiment. All but `machine` and `elapsed_s` raise ScenarioError, one line, for
    what cannot be measured."""

    device: str

    def machine(self) -> dict[str, str | int]:
        """Where and with what is measured: processor, versions, threads, date."""

    def weights(self, loaded: Loaded) -> str:
        """Where the weights come from: `seeded random`, or the checkpoint."""

    def refused(self, scenario: Scenario) -> str:
        """Why the backend does not run `scenario`, by name, or an empty string. Runs nothing."""

    def warm_up(self, scenario: Scenario) -> WarmUp:
        """Prepare `scenario` as the baseline and run it from cold to warm."""

    def profile(self, loaded: Loaded, predicted: Predicted) -> Measured:
        """The reported step op by op, as `whatif run --backend` measures it."""

    def compiles(self, scenario: Scenario) -> bool:
        """Whether kernels are compiled at the first call of `scenario`, which takes several times as long as the
        measurement."""

    def pair(self, a: Scenario, b: Scenario, seconds: float | None = None) -> Pair:
        """Measure two scenarios in turn; they differ in what is being tried, or not at all. seconds: what both should
        take with all that prepares them; fewer turns are made then, though never too few to tell anything."""

    def elapsed_s(self) -> float:
        """Seconds since the experiment started."""
