"""What the pages ask of the model, remembered: the newest answers, each under the validated scenario that it is for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from app_pages.parts import own
from app_pages.parts.state import Question
from scenarios.errors import ScenarioError
from scenarios.loader import Loaded, load_scenario
from scenarios.timeline import Timeline
from scenarios.trace import trace_text
from sim.predict.attribution import Attribution, attribution_of
from sim.predict.gains import Progress
from sim.predict.rank_timelines import timelines_of_ranks
from sim.predict.scenario_result import ScenarioResult, first_result, kernel_args, what_ifs
from sim.report.files import to_json

if TYPE_CHECKING:
    from sim.accuracy.nearest import Measured
    from sim.accuracy.validate import Validation

T = TypeVar("T")


class Remembered(Generic[T]):
    """The newest `most` values, by key. Sessions share it; a value is made once or, in a race, twice alike."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of `key`; `make` makes it where it is not remembered. What `make` raises is not remembered."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._most:
                self._values.popitem(last=False)
        return value

    def __len__(self) -> int:
        return len(self._values)


#: An answer with the timeline of thousands of spans takes some megabytes.
ANSWERS: Remembered[ScenarioResult] = Remembered(24)
ATTRIBUTIONS: Remembered[Attribution] = Remembered(50)
RANKS: Remembered[list[Timeline]] = Remembered(4)
MEASURED: Remembered[Measured | None] = Remembered(200)
WHAT_IFS: Remembered[dict[str, Any]] = Remembered(200)


@lru_cache(maxsize=256)
def loaded(question: Question) -> Loaded:
    """The scenario that is asked about. Raises ScenarioError."""
    asked = question.checked()
    pairs = [f"{field}={own.resolved(value)}" for field, value in asked.sets]
    try:
        return load_scenario(own.resolved(asked.scenario), pairs)
    except ScenarioError as error:
        raise ScenarioError(own.plain_all(error.messages)) from None


def key_of(scenario: Loaded) -> tuple[str, str]:
    """The name, and the validated scenario in canonical form."""
    return scenario.name, scenario.scenario.model_dump_json()


def first(question: Question) -> ScenarioResult:
    """The step, without what-ifs. Raises ScenarioError."""
    scenario = loaded(question)

    def make() -> ScenarioResult:
        try:
            return first_result(scenario)
        except ScenarioError as error:
            raise ScenarioError(own.plain_all(error.messages)) from None

    return ANSWERS.get(key_of(scenario), make)


def gains(question: Question, progress: Progress) -> dict[str, Any]:
    """The what-ifs of a question that `first` answers. What `progress` raises stops them."""
    return WHAT_IFS.get(key_of(loaded(question)), lambda: what_ifs(first(question), progress))


def attribution(question: Question, progress: Progress) -> Attribution:
    """The gain of the best set, attributed to its switches. What `progress` raises stops it."""
    case = first(question).prediction.case
    return ATTRIBUTIONS.get(key_of(loaded(question)), lambda: attribution_of(case, progress=progress))


def ranks(question: Question) -> list[Timeline]:
    """The step of every rank, rank 0 first."""
    return RANKS.get(key_of(loaded(question)), lambda: timelines_of_ranks(first(question).prediction))


def measured(question: Question) -> Measured | None:
    """The measured step nearest to the question's; None where none is near."""
    from sim.accuracy.nearest import nearest_measured

    return MEASURED.get(key_of(loaded(question)), lambda: nearest_measured(first(question).prediction.case))


@lru_cache(maxsize=1)
def validation() -> Validation:
    """Every measured row that ships, predicted: some seconds, once a process."""
    from sim.accuracy.validate import Bounds, Measurements, validate

    return validate(Measurements(), "", Bounds())


def json_text(question: Question) -> str:
    """The whole answer as `whatif run --json` writes it."""
    answer = first(question)
    keys = {**answer.result, **gains(question, lambda share: None)}
    order = [key for key in keys if key not in ROOM]
    return own.plain(to_json({key: keys[key] for key in [*order, *ROOM]}))


#: The parts of a document that stand after its what-ifs.
ROOM = ("memory", "capacity", "cold_start", "in_engine")


def trace(question: Question) -> str:
    """The step as a Chrome trace."""
    prediction = first(question).prediction
    return trace_text([prediction.timeline], [kernel_args(prediction)])
