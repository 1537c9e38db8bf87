"""What a page was asked, kept in the URL: so that a link says everything, and back and forward work.

The parameters are those of the command line: `scenario`, and one for each `--set`. One change writes the URL once, as
one step of the browser's history. (With Streamlit's own `bind="query-params"` it would not be one, and would hold what
the reader's language calls a value.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import parse_qsl, urlencode

import streamlit as st

from app_pages.parts import own
from app_pages.parts.texts import LANGUAGES, Language
from scenarios.errors import ScenarioError, did_you_mean, quoted
from scenarios.loader import shipped_names
from scenarios.models.hf_config import model_names
from scenarios.schema import Scenario
from sim.engines.profile import engine_names
from sim.hardware.profile import hardware_names

FIRST_SCENARIO = "qwen3_8b_decode"
PREFIX = "set."
#: Longest value that is read from a URL.
MAX_VALUE = 200


@dataclass(frozen=True, slots=True)
class Question:
    """A shipped scenario and what is set on it: (dotted field, value as `--set` takes it), in the order of the fields'
    names."""

    scenario: str = FIRST_SCENARIO
    sets: tuple[tuple[str, str], ...] = ()

    @property
    def pairs(self) -> tuple[str, ...]:
        """As `--set` takes them."""
        return tuple(f"{field}={value}" for field, value in self.sets)

    @property
    def params(self) -> dict[str, str]:
        """As the URL has it; nothing for the scenario that the lab opens with."""
        named = {} if self.scenario == FIRST_SCENARIO else {"scenario": self.scenario}
        return {**named, **{param_of(field): value for field, value in self.sets}}

    @property
    def command(self) -> str:
        """The same on the command line."""
        return own.plain(" ".join(["whatif run", self.scenario, *(f"--set {pair}" for pair in self.pairs)]))

    def packed(self) -> str:
        """In one parameter."""
        return urlencode({"scenario": self.scenario, **self.params})

    def checked(self) -> Question:
        """Itself. Raises ScenarioError where it names what neither ships nor was dropped here: no link reads files of
        this machine."""
        named = {"scenario": (self.scenario, shipped_names())}
        sets = dict(self.sets)
        for field, known in (
            ("model", model_names()),
            ("hardware", hardware_names()),
            ("engine.profile", engine_names()),
        ):
            if field in sets:
                named[field] = (sets[field], known)
        for field, (name, known) in named.items():
            if name not in known and own.path_of(name) is None:
                raise ScenarioError([f"{field}: {quoted(own.plain(name))} does not ship{did_you_mean(name, known)}"])
        return self


def param_of(field: str) -> str:
    """The parameter of a field: its dotted name; one without a dot, which other pages may use, gets one."""
    return field if "." in field else f"{PREFIX}{field}"


def is_question(param: str) -> bool:
    """Whether a parameter of the URL belongs to a question."""
    return param == "scenario" or "." in param


def question_of(params: Mapping[str, str]) -> Question:
    """The question in the parameters of a URL: `scenario`, and every parameter that is named like a field."""
    sets = {key.removeprefix(PREFIX): value[:MAX_VALUE] for key, value in params.items() if "." in key}
    return Question(params.get("scenario", FIRST_SCENARIO)[:MAX_VALUE], tuple(sorted(sets.items())))


def unpacked(text: str) -> Question:
    """The question that `Question.packed` wrote."""
    return question_of(dict(parse_qsl(text)))


def written(value: object) -> str:
    """A field's value as `--set` takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def value_of(scenario: Scenario, field: str) -> object:
    """The value of a dotted field."""
    value: object = scenario
    for part in field.split("."):
        value = getattr(value, part)
    return value


def language() -> Language:
    """The language of this session: the URL's, else the last one chosen, else the browser's."""
    asked = st.query_params.get("lang", "")
    if asked not in LANGUAGES:
        preferred = "zh" if (st.context.locale or "").lower().startswith("zh") else "en"
        asked = st.session_state.get("kept:lang", preferred)
    st.session_state["kept:lang"] = asked
    return cast(Language, asked)


def write(params: Mapping[str, str | None]) -> None:
    """Change parameters of the URL, None removes; one step of the browser's history, none where nothing changes."""
    before = st.query_params.to_dict()
    if any(value is None and key in before for key, value in params.items()):
        st.query_params.from_dict({key: value for key, value in {**before, **params}.items() if value is not None})
        return
    changed = {key: value for key, value in params.items() if value is not None and before.get(key) != value}
    if changed:
        st.query_params.update(changed)


def arrive(page: str, mine: Callable[[str], bool] = lambda key: False) -> None:
    """Called first by each page. What a page was asked when the reader left it is asked again when he comes back by the
    menu; a link that asks something wins. mine: whether a parameter of the URL is the page's own."""
    kept = st.session_state.setdefault("kept:params", {})
    params = {key: value for key, value in st.query_params.to_dict().items() if mine(key)}
    if st.session_state.get("kept:page") not in (None, page) and not params and kept.get(page):
        params = kept[page]
        write(params)
    st.session_state["kept:page"] = page
    kept[page] = params
