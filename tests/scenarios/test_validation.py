"""Errors of any pydantic model, all at once, in words for people. The models here know nothing of scenarios."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from scenarios.errors import ScenarioError, nearest, printable
from scenarios.files import validation
from scenarios.files.model_walk import known_keys, known_words, slots_at, unit
from scenarios.files.validation import validate
from scenarios.files.yaml12 import load_document


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Curve(Strict):
    points: list[float]
    source: Literal["spec", "measured"] = "measured"


class Matmul(Strict):
    kind: Literal["matmul"] = "matmul"
    rows: int = 1


class Collective(Strict):
    kind: Literal["all_reduce"] = "all_reduce"
    bytes_: int = Field(0, alias="bytes")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Core(Strict):
    cubes: Annotated[int, Field(ge=1, le=48)] = 20
    l2: Annotated[int, Field(json_schema_extra={"unit": "bytes"})] = 0
    launch_ns: int = 0
    rate_gbps: float = 1.0
    block: Annotated[int, Field(multiple_of=16)] = 16
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5


class Chip(Strict):
    name: Annotated[str, Field(min_length=1, max_length=8)] = "x"
    core: Core = Core()
    curve: float | Curve = 1.0
    depth: int | Literal["auto"] = "auto"
    colour: Colour = Colour.RED
    efficiency: dict[str, float] = {}
    latency_us: dict[str, Curve] = {}
    ops: list[Annotated[Matmul | Collective, Field(discriminator="kind")]] = []
    sizes: Annotated[tuple[int, ...], Field(max_length=3)] | None = None
    pair: tuple[int, str] = (1, "a")
    mode: Literal["slow", "fast"] | None = None
    turbo: bool = False
    words: list[str] = []

    @field_validator("words")
    @classmethod
    def _no_spaces(cls, words: list[str]) -> list[str]:
        if any(" " in word for word in words):
            raise ValueError("words must not hold\nspaces")
        return words

    @model_validator(mode="after")
    def _turbo_is_fast(self) -> Chip:
        if self.turbo and self.mode == "slow":
            raise ValueError("turbo needs mode: fast")
        return self


class Needy(Strict):
    must: int
    inner: Curve | None = None


def errors(text: str, model: type[BaseModel] = Chip, **keywords: Any) -> list[str]:
    with pytest.raises(ScenarioError) as error:
        validate(load_document(text, "f.yaml"), model, **keywords)
    return list(error.value.messages)


def test_a_valid_document_becomes_the_model() -> None:
    text = """
name: die
core: {cubes: 24, rate_gbps: 2, share: 0.25}
curve: {points: [1, 2.5]}
depth: 3
colour: blue
efficiency: {matmul: 0.8}
ops: [{kind: matmul, rows: 2}, {kind: all_reduce, bytes: 4}]
sizes: [1, 2]
pair: [3, b]
mode: fast
"""
    chip = validate(load_document(text, "f.yaml"), Chip)
    assert (chip.name, chip.core.cubes, chip.core.rate_gbps, chip.depth) == ("die", 24, 2.0, 3)
    assert chip.curve == Curve(points=[1.0, 2.5])
    assert (chip.colour, chip.efficiency, chip.sizes, chip.pair) == (Colour.BLUE, {"matmul": 0.8}, (1, 2), (3, "b"))
    assert chip.ops == [Matmul(rows=2), Collective(bytes=4)]
    assert chip.core.model_fields_set == {"cubes", "rate_gbps", "share"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # keys
        ("nam: x", "1:1: nam: unknown key 'nam'. Did you mean 'name'?"),
        ("core: {cubs: 1}", "1:8: core.cubs: unknown key 'cubs'. Did you mean 'cubes'?"),
        ("launch_ns: 1", "1:1: launch_ns: unknown key 'launch_ns'. It belongs under 'core'"),
        ("core: {turbo: true}", "1:8: core.turbo: unknown key 'turbo'. It belongs at the top level"),
        ("points: []", "1:1: points: unknown key 'points'. It belongs under 'curve'"),
        ("lanch_ns: 1", "1:1: lanch_ns: unknown key 'lanch_ns'. Did you mean 'launch_ns'? It belongs under 'core'"),
        ("core.cubes: 1", "1:1: core.cubes: unknown key 'core.cubes'. Nest it: put 'cubes' under 'core'"),
        (
            "core: {zzz: 1}",
            "1:8: core.zzz: unknown key 'zzz'. Known keys: cubes, l2, launch_ns, rate_gbps, block, share",
        ),
        (
            "core: {'a b\\nc': 1}",
            "1:8: core.a b\\nc: unknown key 'a b\\nc'. Known keys: cubes, l2, launch_ns, rate_gbps, block, share",
        ),
        # whole numbers
        ("core: {cubes: two}", "1:15: core.cubes: must be a whole number, got 'two'"),
        ("core: {cubes: 4.5}", "1:15: core.cubes: must be a whole number, got 4.5"),
        ("core: {cubes: 1e1}", "1:15: core.cubes: must be a whole number, got 10.0. Write 10"),
        ("core: {cubes: true}", "1:15: core.cubes: must be a whole number, got true"),
        ("core: {cubes: '4'}", "1:15: core.cubes: must be a whole number, got the text '4'. Remove the quotes"),
        ("core: {l2: 1_000}", "1:12: core.l2: must be a whole number of bytes, got the text '1_000'. Write 1000"),
        ("core: {cubes: 1.2.3}", "1:15: core.cubes: must be a whole number, got '1.2.3'"),
        ("core: {cubes: }", "1:15: core.cubes: must be a whole number, got nothing"),
        ("core: {cubes: [1]}", "1:15: core.cubes: must be a whole number, got a list"),
        ("core: {cubes: {}}", "1:15: core.cubes: must be a whole number, got a mapping"),
        # units
        (
            "core: {cubes: 4k}",
            "1:15: core.cubes: must be a plain number, got '4k'. Write the number alone, without 'k'",
        ),
        (
            "core: {l2: 8 GB}",
            "1:12: core.l2: must be a plain number of bytes, got '8 GB'. Write the number alone, without 'GB'",
        ),
        (
            "core: {launch_ns: 14ms}",
            "1:19: core.launch_ns: must be a plain number of nanoseconds, got '14ms'. "
            "Write the number alone, without 'ms'",
        ),
        (
            "core: {rate_gbps: 1.5e3 GB/s}",
            "1:19: core.rate_gbps: must be a plain number of GB/s, got '1.5e3 GB/s'. "
            "Write the number alone, without 'GB/s'",
        ),
        ("core: {rate_gbps: fast}", "1:19: core.rate_gbps: must be a number of GB/s, got 'fast'"),
        (
            "core: {share: 90%}",
            "1:15: core.share: must be a plain number, got '90%'. Write the number alone, without '%'",
        ),
        # bounds
        ("core: {cubes: 0}", "1:15: core.cubes: must be at least 1, got 0"),
        ("core: {cubes: 49}", "1:15: core.cubes: must be at most 48, got 49"),
        ("core: {block: 17}", "1:15: core.block: must be a multiple of 16, got 17"),
        ("core: {share: 0}", "1:15: core.share: must be greater than 0, got 0"),
        ("core: {share: 1.0}", "1:15: core.share: must be less than 1, got 1.0"),
        ("name: ''", "1:7: name: must not be empty"),
        ("name: 123456789x", "1:7: name: must have at most 8 characters, got 10"),
        ("sizes: [1, 2, 3, 4]", "1:8: sizes: must have at most 3 entries, got 4"),
        # words
        ("mode: fst", "1:7: mode: 'fst' is not one of slow, fast. Did you mean 'fast'?"),
        ("mode: FAST", "1:7: mode: 'FAST' is not one of slow, fast. Did you mean 'fast'?"),
        ("mode: quick", "1:7: mode: 'quick' is not one of slow, fast"),
        ("mode: 3", "1:7: mode: '3' is not one of slow, fast"),
        ("mode: [fast]", "1:7: mode: must be one of slow, fast, got a list"),
        ("colour: redd", "1:9: colour: 'redd' is not one of red, blue. Did you mean 'red'?"),
        # true and false
        ("turbo: on", "1:8: turbo: must be true or false, got 'on'. Did you mean true?"),
        ("turbo: No", "1:8: turbo: must be true or false, got 'No'. Did you mean false?"),
        ("turbo: 1", "1:8: turbo: must be true or false, got 1. Did you mean true?"),
        ("turbo: maybe", "1:8: turbo: must be true or false, got 'maybe'"),
        # text, mappings, lists
        ("name: 3", "1:7: name: must be text, got 3. Put it in quotes"),
        ("name:", "1:6: name: must be text, got nothing"),
        ("core: 3", "1:7: core: must be a mapping with keys such as cubes, l2, launch_ns, rate_gbps, got 3"),
        (
            "core:",
            "1:6: core: must be a mapping with keys such as cubes, l2, launch_ns, rate_gbps, got nothing. "
            "Remove the key to take the defaults",
        ),
        ("efficiency: []", "1:13: efficiency: must be a mapping, got a list"),
        ("efficiency: {matmul: x}", "1:22: efficiency.matmul: must be a number, got 'x'"),
        (
            "latency_us: {a: {points: [1, 2us]}}",
            "1:30: latency_us.a.points[1]: must be a plain number, got '2us'. Write the number alone, without 'us'",
        ),
        ("sizes: 3", "1:8: sizes: must be a list such as [1, 2], got 3"),
        ("sizes: [1, x]", "1:12: sizes[1]: must be a whole number, got 'x'"),
        ("pair: [a, b]", "1:8: pair[0]: must be a whole number, got 'a'"),
        # unions
        ("curve: x", "1:8: curve: must be a number or a mapping, got 'x'"),
        ("curve: {points: [x]}", "1:18: curve.points[0]: must be a number, got 'x'"),
        ("curve: {}", "1:1: curve.points: required key 'points' is missing"),
        ("depth: many", "1:8: depth: must be a whole number or one of auto, got 'many'"),
        ("ops: [{kind: matmull}]", "1:7: ops[0]: 'matmull' is not one of matmul, all_reduce. Did you mean 'matmul'?"),
        ("ops: [{rows: 1}]", "1:7: ops[0]: required key 'kind' is missing: it says which kind this is"),
        ("ops: [{kind: matmul, rws: 1}]", "1:22: ops[0].rws: unknown key 'rws'. Did you mean 'rows'?"),
        (
            "ops: [{kind: matmul, bytes: 1}]",
            "1:22: ops[0].bytes: unknown key 'bytes': another kind of entry takes it, not this one",
        ),
        # the model's own words
        ("words: [a b]", "1:8: words: words must not hold\\nspaces"),
        ("turbo: true\nmode: slow", "1:1: turbo needs mode: fast"),
    ],
)
def test_each_kind_of_error(text: str, message: str) -> None:
    assert errors(text) == [f"f.yaml:{message}"]


def test_missing_keys_stand_at_their_section() -> None:
    assert errors("inner:\n  source: spec\n", Needy) == [
        "f.yaml:1:1: must: required key 'must' is missing",
        "f.yaml:1:1: inner.points: required key 'points' is missing",
    ]


def test_all_errors_come_in_the_order_of_their_places() -> None:
    text = "turbo: maybe\nzzz: 1\ncore:\n  share: 2\n  cubes: 0\nname: 3\n"
    assert [message.split(": ")[0] for message in errors(text)] == [
        "f.yaml:1:8",
        "f.yaml:2:1",
        "f.yaml:4:10",
        "f.yaml:5:10",
        "f.yaml:6:7",
    ]


def test_many_errors_are_cut_and_counted() -> None:
    text = "".join(f"k{i}: 1\n" for i in range(70))
    messages = errors(text)
    assert len(messages) == validation.MAX_ERRORS + 1
    assert messages[-1] == "f.yaml: and 20 more errors"


def test_keys_that_the_caller_takes_are_known_at_the_top_only() -> None:
    assert errors("extend: x", extra_keys=("extends",)) == [
        "f.yaml:1:1: extend: unknown key 'extend'. Did you mean 'extends'?"
    ]
    assert "Did you mean" not in errors("core: {extends: x}", extra_keys=("extends",))[0]


def test_long_values_are_quoted_in_part() -> None:
    (message,) = errors(f"turbo: {'x' * 500}")
    assert message == f"f.yaml:1:8: turbo: must be true or false, got '{'x' * 30}...{'x' * 20}'"


def test_the_model_answers_by_path() -> None:
    assert known_keys(slots_at(Chip, ("ops", 0))) == ["kind", "rows", "bytes"]
    assert known_words(slots_at(Chip, ("mode",))) == ["slow", "fast"]
    assert unit(slots_at(Chip, ("core", "l2"))) == "bytes"
    assert unit(slots_at(Chip, ("core", "launch_ns"))) == "nanoseconds"
    assert slots_at(Chip, ("core", "absent")) == []
    assert slots_at(Chip, ("pair", 7)) == []


def test_the_nearest_word() -> None:
    words = ["eager", "aclgraph", "npugraph_ex", "ge_graph"]
    assert nearest("gegraph", words) == "ge_graph"
    assert nearest("ACLGRAPH", words) == "aclgraph"
    assert nearest("npu", words) == "npugraph_ex"
    assert nearest("", words) is None
    assert nearest("x" * 10_000, words) is None


def test_printable_text_is_one_line() -> None:
    assert printable("a\nb\tc\x1b\ud800é😀") == "a\\nb\\tc\\x1b\\ud800é😀"
