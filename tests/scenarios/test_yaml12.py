"""YAML 1.2 as we read it: scalars, places, what is refused and in which words."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.errors import ScenarioError
from scenarios.files import yaml12
from scenarios.files.document import Mark
from scenarios.files.yaml12 import load_document, load_value, read_document
from tests.scenarios.loading import refused_document as refused


def test_every_key_and_value_knows_its_place(parser: Any) -> None:
    text = "é: 1\nworkload:\n  batch: 8\n  sizes: [1, {x: 2}]\n  'quoted key': |\n    text\n"
    document = load_document(text, "dir/f.yaml")
    at = lambda line, column: Mark("dir/f.yaml", line, column)  # noqa: E731
    assert document.mark(("é",)) == at(1, 4)
    assert document.key_mark(("workload",)) == at(2, 1)
    assert document.mark(("workload",)) == at(3, 3)
    assert document.key_mark(("workload", "batch")) == at(3, 3)
    assert document.mark(("workload", "batch")) == at(3, 10)
    assert document.mark(("workload", "sizes", 0)) == at(4, 11)
    assert document.mark(("workload", "sizes", 1, "x")) == at(4, 18)
    assert document.key_mark(("workload", "sizes", 1, "x")) == at(4, 15)
    assert document.mark(("workload", "quoted key")) == at(5, 17)
    # What is absent is at its nearest ancestor.
    assert document.mark(("workload", "absent", "deeper")) == at(3, 3)
    assert document.find(("workload", "absent")) is None
    assert str(at(3, 10)) == "dir/f.yaml:3:10"


def test_windows_line_ends_count_once(parser: Any) -> None:
    assert load_document("a: 1\r\nb: 2\r\n", "f.yaml").mark(("b",)) == Mark("f.yaml", 2, 4)


def test_an_alias_stands_where_it_is_used_and_its_parts_where_they_are_written(parser: Any) -> None:
    document = load_document("a: &x\n  b: 1\nc: *x\nd: *x\n", "f.yaml")
    assert document.data == {"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 1}}
    assert document.mark(("c",)) == Mark("f.yaml", 3, 4)
    assert document.mark(("c", "b")) == Mark("f.yaml", 2, 6)


def test_duplicate_keys_name_both_lines(parser: Any) -> None:
    text = "a: 1\nw:\n  batch: 1\n  input: 2\n  batch: 3\na: 2\n'a': 3\n"
    assert refused(text) == [
        "f.yaml:5:3: w.batch: duplicate key 'batch', first given at line 3",
        "f.yaml:6:1: a: duplicate key 'a', first given at line 1",
        "f.yaml:7:1: a: duplicate key 'a', first given at line 1",
    ]


def test_keys_must_be_text(parser: Any) -> None:
    assert refused("a:\n  1: x\n  true: y\n  ~: z\n  1.5: u\n") == [
        "f.yaml:2:3: a: key 1 is not text; put it in quotes",
        "f.yaml:3:3: a: key true is not text; put it in quotes",
        "f.yaml:4:3: a: key ~ is not text; put it in quotes",
        "f.yaml:5:3: a: key 1.5 is not text; put it in quotes",
    ]
    assert refused("? \n: x") == ["f.yaml:1:2: a key is missing before ':'"]
    assert refused("? [a, b]\n: 1\n") == ["f.yaml:1:3: a key must be plain text, not a list, a mapping or an alias"]
    assert refused("a: &x k\n*x : 1\n") == ["f.yaml:2:1: a key must be plain text, not a list, a mapping or an alias"]
    assert refused("&x a: 1") == ["f.yaml:1:1: a key cannot carry an anchor"]
    assert load_document("'1': x\non: y\n", "f.yaml").data == {"1": "x", "on": "y"}


def test_merge_keys_are_not_supported(parser: Any) -> None:
    assert refused("a: &x {b: 1}\nc:\n  <<: *x\n") == [
        "f.yaml:3:3: c: merge keys (<<) are not supported; write the keys out"
    ]


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("a: !!python/object/apply:os.system ['true']", "tag:yaml.org,2002:python/object/apply:os.system"),
        ("a: !mine 1", "!mine"),
        ("a: !!binary aGk=", "tag:yaml.org,2002:binary"),
        ("a: !!set {x}", "tag:yaml.org,2002:set"),
        ("a: !!timestamp 2024-01-01", "tag:yaml.org,2002:timestamp"),
        ("a: !!map [1]", "tag:yaml.org,2002:map"),
    ],
)
def test_unknown_tags_are_refused(text: str, tag: str, parser: Any) -> None:
    assert refused(text) == [f"f.yaml:1:4: a: tag '{tag}' is not supported; write a plain value"]


@pytest.mark.parametrize(("tag", "word"), [("int", "x"), ("int", "true"), ("bool", "1"), ("null", "0"), ("float", "y")])
def test_a_core_tag_must_fit_its_value(tag: str, word: str) -> None:
    assert refused(f"a: !!{tag} {word}") == [f"f.yaml:1:4: a: '{word}' is not a value of tag 'tag:yaml.org,2002:{tag}'"]


def test_all_problems_of_a_readable_structure_come_at_once() -> None:
    assert refused("a: .nan\nb: !x 1\na: 2\n7: 1\n") == [
        "f.yaml:1:4: a: .nan is not a finite number",
        "f.yaml:2:4: b: tag '!x' is not supported; write a plain value",
        "f.yaml:3:1: a: duplicate key 'a', first given at line 1",
        "f.yaml:4:1: key 7 is not text; put it in quotes",
    ]
    assert len(refused("a: 1\n" * 1000)) == yaml12.MAX_PROBLEMS


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "f.yaml: is empty: it must be a mapping of keys to values"),
        ("# only a comment\n", "f.yaml: is empty: it must be a mapping of keys to values"),
        ("---\n...\n", "f.yaml:2:1: is empty: it must be a mapping of keys to values"),
        ("- 1\n- 2\n", "f.yaml:1:1: the top level is a list: it must be a mapping of keys to values"),
        ("just words", "f.yaml:1:1: the top level is a single value: it must be a mapping of keys to values"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2:1: a second document begins; one file holds one document"),
        ("a: *x", "f.yaml:1:4: a: no anchor 'x' stands above this alias"),
        ("a: &x [1, *x]", "f.yaml:1:11: a[1]: alias 'x' contains itself"),
        ("a: &x {b: {c: *x}}", "f.yaml:1:15: a.b.c: alias 'x' contains itself"),
    ],
)
def test_documents_that_are_no_mapping(text: str, what: str, parser: Any) -> None:
    assert refused(text) == [what]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: [1, 2\nb: 3\n", "f.yaml:2:2: not valid YAML: "),
        ("a: b: c", "f.yaml:1:5: not valid YAML: "),
        ("a:\n\tb: 1", "f.yaml:2:1: not valid YAML: "),
        ("a: 'x", "f.yaml:1:6: not valid YAML: "),
        ("a: 1\n b: 2", "f.yaml:2:3: not valid YAML: "),
        ("a: @x", "f.yaml:1:4: not valid YAML: "),
        ("a:\n  - 1\n b: 2", "f.yaml:3:2: not valid YAML: "),
        ("{a: 1}}", "f.yaml:1:7: not valid YAML: "),
        ("%YAML 3.0\n---\na: 1", "f.yaml:1:1: not valid YAML: "),
    ],
)
def test_syntax_errors_are_located(text: str, place: str, parser: Any) -> None:
    (message,) = refused(text)
    assert message.startswith(place)
    assert len(message) > len(place)


def test_a_tab_gets_advice(parser: Any) -> None:
    assert "indent with spaces, not tabs" in refused("a:\n\tb: 1")[0]


def test_what_was_open_is_named_by_its_line(parser: Any) -> None:
    assert refused("a: [1, 2\nb: 3\n")[0].endswith("while parsing a flow sequence that begins at line 1")


@pytest.mark.parametrize(
    ("character", "what"),
    [
        ("\0", "character U+0000 is not allowed"),
        ("\x1b", "character U+001B is not allowed"),
        ("\x7f", "character U+007F is not allowed"),
        ("\x85", "character U+0085 is not allowed"),
        ("\u2028", "character U+2028 is not allowed"),
        ("\ud800", "character U+D800 is not allowed"),
        ("\uffff", "character U+FFFF is not allowed"),
        ("\ufeff", "byte-order mark (U+FEFF) is not allowed; save the file as UTF-8 without BOM"),
    ],
)
def test_control_characters_are_refused(character: str, what: str) -> None:
    assert refused(f"a: 1\r\nb: x{character}y\n") == [f"f.yaml:2:5: {what}"]


def test_control_characters_by_escape_are_refused_too(parser: Any) -> None:
    assert refused('a: "x\\0y"') == ["f.yaml:1:4: a: control characters are not allowed"]
    assert load_document('a: "x\\ty\\n\\u00e9"', "f.yaml").data == {"a": "x\ty\né"}


def bomb(width: int, levels: int, leaf: str = "x") -> str:
    lines = [f"a0: &a0 [{', '.join([leaf] * width)}]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, levels)]
    return "\n".join(lines)


def test_alias_bombs_are_refused_before_they_expand(parser: Any) -> None:
    # a0 has 11 values, a1 111, a2 1111, a3 11111; next to them the top level and its keys.
    assert load_document(bomb(10, 4), "f.yaml").root.weight == 1 + 4 + 11 + 111 + 1111 + 11111
    # a4 stands at 12,351 before its aliases of 11,111 each: the fourth passes 50,000.
    assert refused(bomb(10, 12)) == ["f.yaml:5:25: more than 50000 values, aliases expanded"]


def test_long_texts_do_not_multiply_either() -> None:
    for anchored in ("x" * 6400, f"{{{'x' * 900}: 1}}"):
        text = f"a: &a {anchored}\nb: [{', '.join(['*a'] * 4000)}]"
        assert refused(text)[0].endswith("more than 50000 values, aliases expanded")


def test_too_many_values_are_refused() -> None:
    assert refused("a: [" + "1," * 60_000 + "]")[0].endswith("more than 50000 values, aliases expanded")


@pytest.mark.parametrize(
    "text", ["a: " + "[" * 3000 + "]" * 3000, "? " * 3000 + "x", "- " * 3000 + "x", "a: " + "{a: " * 3000]
)
def test_deep_nesting_is_refused(text: str, parser: Any) -> None:
    (message,) = refused(text)
    assert "nested deeper than 32 levels" in message
    assert message.startswith("f.yaml:1:")


def test_the_depth_that_is_allowed(parser: Any) -> None:
    text = "a: " + "[" * 31 + "]" * 31
    assert load_document(text, "f.yaml").root.height == 32
    assert refused("a: " + "[" * 32 + "]" * 32) == ["f.yaml:1:35: nested deeper than 32 levels"]


def test_depth_counts_through_aliases(parser: Any) -> None:
    text = "a: &a " + "[" * 20 + "]" * 20 + "\nb: " + "[" * 12 + "*a" + "]" * 12
    assert refused(text) == ["f.yaml:2:16: nested deeper than 32 levels, aliases expanded"]


def test_a_file_over_a_megabyte_is_refused(tmp_path: Path) -> None:
    assert refused("#" * (1 << 20) + "\n") == ["f.yaml: larger than 1048576 bytes"]
    assert refused("é" * (1 << 19) + "x") == ["f.yaml: larger than 1048576 bytes"]
    path = tmp_path / "big.yaml"
    path.write_bytes(b"a: 1\n" + b"#" * (1 << 20))
    with pytest.raises(ScenarioError, match=r"^big: larger than 1048576 bytes$"):
        read_document(path, "big")


def file_refused(path: Path, data: bytes | None = None) -> str:
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ScenarioError) as error:
        read_document(path, "f.yaml")
    (message,) = error.value.messages
    return message


def test_files_that_are_not_utf8_text(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    assert file_refused(path, b"a: 1\nb: caf\xe9\n") == "f.yaml:2:7: byte 0xe9 is not UTF-8"
    assert file_refused(path, "é: é\nb: ".encode() + b"\xff") == "f.yaml:2:4: byte 0xff is not UTF-8"
    assert file_refused(path, b"\x7fELF\x02\0\0") == "f.yaml: is binary (byte 5 is zero), not YAML text"
    assert file_refused(path, "a: 1".encode("utf-16")) == "f.yaml: is UTF-16; save it as UTF-8"
    bom = "f.yaml:1:1: byte-order mark (U+FEFF) is not allowed; save the file as UTF-8 without BOM"
    assert file_refused(path, b"\xef\xbb\xbfa: 1") == bom


def test_things_that_are_not_files(tmp_path: Path) -> None:
    assert file_refused(tmp_path) == "f.yaml: is a folder, not a YAML file"
    assert file_refused(tmp_path / "absent.yaml") == "f.yaml: no such file"
    assert file_refused(tmp_path / "nul\0.yaml") == "f.yaml: is not a possible file name"
    assert file_refused(tmp_path / ("x" * 5000)) == "f.yaml: cannot be read: File name too long"
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert file_refused(tmp_path / "loop") == "f.yaml: cannot be read: Too many levels of symbolic links"
    os.mkfifo(tmp_path / "pipe")  # must not wait for a writer
    assert file_refused(tmp_path / "pipe") == "f.yaml: is not a regular file"


def test_a_name_is_printed_on_one_line() -> None:
    with pytest.raises(ScenarioError) as error:
        load_document("", "a\nb\x1b[31m.yaml")
    assert str(error.value) == "a\\nb\\x1b[31m.yaml: is empty: it must be a mapping of keys to values"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4", 4),
        (" 1e3 ", 1000.0),
        ("on", "on"),
        ("", None),
        ("[1, 2]", [1, 2]),
        ("{a: 1, b: [x]}", {"a": 1, "b": ["x"]}),
        ('"4"', "4"),
        ("a: b", "a: b"),
        ("C:\\models #1", "C:\\models #1"),
        ("*x", "*x"),
        ("- 1", "- 1"),
        ("!!int 4", "!!int 4"),
    ],
)
def test_values_of_settings(text: str, value: object, parser: Any) -> None:
    node = load_value(text, "--set a=...")
    assert node.data() == value
    assert node.mark == Mark("--set a=...")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[1, 2", "--set a: not valid YAML: "),
        ("[1] 2", "--set a: not valid YAML: "),
        ("[.nan]", "--set a: [0]: .nan is not a finite number"),
        (".inf", "--set a: .inf is not a finite number"),
        ("{a: 1, a: 2}", "--set a: a: duplicate key 'a'"),
        ("x\0", "--set a: control characters are not allowed"),
        ("[" * 40 + "]" * 40, "--set a: nested deeper than 32 levels"),
    ],
)
def test_values_of_settings_that_are_refused(text: str, what: str) -> None:
    with pytest.raises(ScenarioError) as error:
        load_value(text, "--set a")
    assert str(error.value).startswith(what) if what.endswith("YAML: ") else str(error.value) == what


SYNTAX = "ab:,[]{}-?!&*#|>'\"%@` \n\t0123.eE+~<=\\x/u"


def data_or_error(text: str) -> Any:
    try:
        return load_document(text, "f.yaml").data
    except ScenarioError as error:
        odd = [m for m in error.messages or ("",) if not m.startswith("f.yaml:") or not m.isprintable()]
        if odd:
            pytest.fail(f"not one located line each: {odd}")
        return error


@settings(max_examples=600, deadline=None)
@given(st.text(alphabet=SYNTAX, max_size=40))
def test_no_text_raises_anything_else(text: str) -> None:
    data_or_error(text)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=30) | st.binary(max_size=30).map(lambda b: b.decode("latin-1")))
def test_no_characters_raise_anything_else(text: str) -> None:
    data_or_error(text)


@pytest.mark.skipif(not hasattr(yaml, "CSafeLoader"), reason="this PyYAML has no C parser")
@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=SYNTAX, max_size=40))
def test_both_parsers_read_the_same(text: str) -> None:
    results = []
    for loader in (yaml.SafeLoader, yaml.CSafeLoader):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(yaml12, "_Loader", loader)
            results.append(data_or_error(text))
    # They differ in what they accept (tabs between tokens, for one), never in what an accepted text means.
    if not any(isinstance(result, ScenarioError) for result in results):
        assert results[0] == results[1]


JSON_LIKE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(alphabet="abcxyz_", min_size=1, max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(alphabet="abcxyz_", min_size=1, max_size=6), JSON_LIKE, min_size=1, max_size=4))
def test_json_text_comes_back_as_it_was(data: dict[str, Any]) -> None:
    assert load_document(json.dumps(data), "f.json").data == data
