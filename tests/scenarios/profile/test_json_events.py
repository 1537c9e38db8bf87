"""The fast reader of events gives what a plain JSON parser gives, whatever the form; where it cannot, ijson does."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.profile.read import CaptureError, json_events
from scenarios.profile.read.json_events import slabs

TEXT = st.text(alphabet='ab"{}[],: \\\n\u4e2d', max_size=12)
EVENTS = st.lists(
    st.fixed_dictionaries(
        {"ph": st.sampled_from(["X", "C", "M", "s"]), "name": TEXT, "ts": st.integers(0, 10**18).map(str)},
        optional={
            "dur": st.floats(0, 1e9, allow_nan=False),
            "args": st.dictionaries(TEXT, st.one_of(TEXT, st.lists(st.dictionaries(TEXT, st.integers())))),
        },
    ),
    min_size=1,
    max_size=20,
)


def read(path: Path) -> list[tuple[str, str, str, Any]]:
    return [(e.ph, e.name, e.ts, e.dur) for slab in slabs(path) for e in slab]


def expected(events: list[dict[str, Any]]) -> list[tuple[str, str, str, Any]]:
    return [(e["ph"], e["name"], e["ts"], e.get("dur")) for e in events]


@settings(max_examples=60)
@given(events=EVENTS, indent=st.sampled_from([None, 1]), slab=st.sampled_from([17, 64, 1 << 20]), wrapped=st.booleans())
def test_any_form_gives_the_events_of_a_plain_parser(
    tmp_path_factory: pytest.TempPathFactory, events: list[dict[str, Any]], indent: int | None, slab: int, wrapped: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "events.json"
    more = [{"a": "},{"}, {"b": "]"}]
    document: object = {"x": more, "traceEvents": events, "y": more} if wrapped else events
    path.write_text(json.dumps(document, indent=indent), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_events, "SLAB_BYTES", slab)
        assert read(path) == expected(events)


def test_separators_and_spaces_of_any_kind(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(
        b'\n [ {"ph":"X","ts":"1","name":"a"}\r\n ,\t{"ph":"X","ts":"2","name":"b"},'
        b'{"ph":"X","ts":"3","name":"}, {"} ]\n'
    )
    assert [(name, ts) for _, name, ts, _ in read(path)] == [("a", "1"), ("b", "2"), ("}, {", "3")]


def test_times_that_are_numbers_keep_their_digits(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(
        '[{"ph":"X","name":"a","ts":1736405443863674.401},{"ph":"X","name":"b","ts":17e3},{"ph":"X","name":"c","ts":5}]'
    )
    assert [ts for _, _, ts, _ in read(path)] == ["1736405443863674.401", "17000", "5"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"ph":"X","ts":"1","name":"a"},{"ph":"X","ts":"2","na', "event 1: the file is cut off"),
        ('[{"ph":"X","ts":"1","name":"a"}', "event 1: the file is cut off"),
        ('[{"ph":"X","ts":"1","name":"a"},', "event 1: the file is cut off"),
        ('[{"ph":"X","ts":"1","name":"a","dur":NaN}]', "event 0: holds NaN or Infinity, which are no JSON numbers"),
        ('[{"ph":"X","ts":"1","name":"a"},{"ph":1}]', "event 1: Expected `str`, got `int`, at `.ph`"),
        ('[{"ph":"X","ts":["1"],"name":"a"}]', "event 0: Expected `str`, got `array`, at `.ts`"),
        ('[{"ph":"X","ts":"1","pid":[]}]', "event 0: Expected `int | str`, got `array`, at `.pid`"),
        ('[{"ph":"X","ts":"1"}, 7]', "event 1: is not an object"),
        ("[]", "holds no events"),
        ('{"a": 1}', "holds no events"),
        ("hello", "is not JSON: it begins with neither [ nor {"),
        ("", "is empty"),
        ('[{"ph":"X"} {"ph":"X"}]', "event"),
        ('[{"ph":"X","name":"\\q"}]', "event 0: is not JSON"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(CaptureError) as error:
        read(path)
    [line] = error.value.messages
    assert line.startswith(f"{path}: {said}") or said in line
    assert "\n" not in line


def test_bytes_that_are_no_utf8_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'[{"ph":"X","ts":"1","name":"\xff\xfe"}]')
    with pytest.raises(CaptureError, match="event 0"):
        read(path)


def test_nesting_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"ph":"X","ts":"1","args":' + '{"a":' * 200_000 + "1" + "}" * 200_000 + "}]")
    with pytest.raises(CaptureError):
        read(path)


@pytest.mark.parametrize("text", ['{"a":' * 20_000, "[" * 20_000, '[{"args": [' + '{"a":' * 20_000 + "1"])
def test_nesting_is_refused_before_it_is_read(tmp_path: Path, text: str) -> None:
    """Reading event by event keeps the path of every object: gigabytes for a file of a hundred kilobytes."""
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(CaptureError, match="nested too deeply"):
        read(path)


def test_an_event_without_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_events, "MAX_EVENT_BYTES", 4 << 20)
    path = tmp_path / "a.json"
    path.write_text('[{"ph":"X","ts":"1","name":"' + "a" * (8 << 20) + '"}]')
    with pytest.raises(CaptureError, match="longer than 4 MiB"):
        read(path)


def test_gzip_is_unpacked_as_it_is_read_and_a_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    events = [{"ph": "X", "name": f"name {i * 7919 % 1000}", "ts": str(i * 31337)} for i in range(1000)]
    path.write_bytes(gzip.compress(json.dumps(events).encode()))
    assert read(path) == expected(events)
    path.write_bytes(gzip.compress(b"[" + b" " * 30_000_000 + b"]"))
    with pytest.raises(CaptureError, match="refused as a bomb"):
        read(path)
    whole = gzip.compress(json.dumps(events).encode())
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CaptureError, match="cut off"):
        read(path)
    path.write_bytes(whole[:20] + b"\0\0\0\0" + whole[24:])
    with pytest.raises(CaptureError):
        read(path)
