"""What a plain word means: the table of YAML 1.2, next to the traps of YAML 1.1 that PyYAML falls into."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
import yaml

from scenarios.files.yaml12 import load_document
from scenarios.files.yaml_scalars import resolve_scalar
from tests.scenarios.loading import refused_document as refused

# The table of the YAML 1.2.2 core schema (section 10.3.2), and the traps of YAML 1.1 next to it.
SCALARS = [
    ("", None),
    ("~", None),
    ("null", None),
    ("Null", None),
    ("NULL", None),
    ("nUll", "nUll"),
    ("true", True),
    ("True", True),
    ("TRUE", True),
    ("false", False),
    ("False", False),
    ("FALSE", False),
    ("tRue", "tRue"),
    ("yes", "yes"),
    ("no", "no"),
    ("NO", "NO"),
    ("on", "on"),
    ("Off", "Off"),
    ("y", "y"),
    ("n", "n"),
    ("0", 0),
    ("-0", 0),
    ("+7", 7),
    ("-19", -19),
    ("012", 12),
    ("0o14", 12),
    ("0o8", "0o8"),
    ("-0o14", "-0o14"),
    ("0x1F", 31),
    ("0xG", "0xG"),
    ("0b101", "0b101"),
    ("1_000", "1_000"),
    ("1,000", "1,000"),
    ("12:30:45", "12:30:45"),
    ("190:20:30.15", "190:20:30.15"),
    ("9223372036854775807", 9223372036854775807),
    ("-9223372036854775808", -9223372036854775808),
    ("1e9", 1e9),
    ("1E9", 1e9),
    ("64e9", 64e9),
    ("1e+3", 1000.0),
    ("12e-3", 0.012),
    ("0.", 0.0),
    ("-0.0", -0.0),
    (".5", 0.5),
    ("+12.5", 12.5),
    ("-2E+05", -200000.0),
    (".", "."),
    ("..5", "..5"),
    ("1.2.3", "1.2.3"),
    ("1e", "1e"),
    ("e9", "e9"),
    ("-", "-"),
    ("+", "+"),
    ("inf", "inf"),
    ("nan", "nan"),
    ("NaN", "NaN"),
    ("2024-01-01", "2024-01-01"),
    ("2001-12-14t21:59:43.10-05:00", "2001-12-14t21:59:43.10-05:00"),
    ("=", "="),
    ("4k", "4k"),
]


@pytest.mark.parametrize(("text", "value"), SCALARS)
def test_a_plain_scalar_means_what_the_core_schema_says(text: str, value: object) -> None:
    got = resolve_scalar(text)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(("text", "value"), [s for s in SCALARS if s[0] not in ("-", "")])
def test_a_scalar_in_a_document_is_the_same(text: str, value: object, parser: Any) -> None:
    assert load_document(f"a: {text}", "f.yaml").data == {"a": value}


def test_pyyaml_itself_falls_into_the_traps() -> None:
    """Why the scalars are ours. If PyYAML ever changes, this says so."""
    assert yaml.safe_load("[012, on, 1e9, '1e9', 12:30:45, 2024-01-01, 1_000]") == [
        10, True, "1e9", "1e9", 45045, datetime.date(2024, 1, 1), 1000,
    ]  # fmt: skip


@pytest.mark.parametrize("text", [".inf", "-.inf", "+.Inf", ".INF", ".nan", ".NaN", ".NAN"])
def test_numbers_that_are_not_finite_are_refused(text: str) -> None:
    assert refused(f"a:\n  b: {text}") == [f"f.yaml:2:6: a.b: {text} is not a finite number"]


def test_numbers_that_are_too_large_are_refused() -> None:
    assert refused("a: 1e400") == ["f.yaml:1:4: a: 1e400 is too large for a number"]
    assert refused("a: 9223372036854775808") == [
        "f.yaml:1:4: a: 9223372036854775808 does not fit 64 bits; put it in quotes if it is text"
    ]
    assert refused("a: 0x8000000000000000")[0].startswith("f.yaml:1:4: a: 0x8000000000000000 does not fit 64 bits")
    assert refused("a: " + "9" * 100_000)[0].endswith("does not fit 64 bits; put it in quotes if it is text")


def test_quoted_and_tagged_scalars(parser: Any) -> None:
    text = "{a: '1', b: \"true\", c: !!str 012, d: ! 5, e: !!int 012, f: !!float 3, g: !!bool true, h: !!null ~}"
    assert load_document(text, "f.yaml").data == {
        "a": "1", "b": "true", "c": "012", "d": "5", "e": 12, "f": 3, "g": True, "h": None,
    }  # fmt: skip


def test_json_is_yaml(parser: Any) -> None:
    text = '{"a": {"b": [1, 2.5, true, null, "x"]}, "c": {}}'
    assert load_document(text, "f.json").data == {"a": {"b": [1, 2.5, True, None, "x"]}, "c": {}}


def test_block_texts_and_comments(parser: Any) -> None:
    text = "# c\na: |\n  one\n  two\nb: >-\n  one\n  two # not a comment\nc: x # a comment\n"
    assert load_document(text, "f.yaml").data == {"a": "one\ntwo\n", "b": "one two # not a comment", "c": "x"}
