"""The profile page without a browser: an upload is diagnosed and replayed, and what is no profile is one line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from app_pages.parts import profiles
from app_pages.parts.palette import BY_FAMILY, CLASSES
from scenarios.errors import ScenarioError
from scenarios.loader import load_scenario
from scenarios.trace import trace_text
from sim.compare import classes
from sim.predict.scenario_result import first_result, kernel_args

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def trace() -> bytes:
    """A step of ours as a trace: eager, so that a graph would gain."""
    prediction = first_result(load_scenario("qwen3_0_6b_decode", ["optimizations.graph=eager"])).prediction
    return trace_text([prediction.timeline], [kernel_args(prediction)]).encode()


def html(at: Any) -> str:
    return "\n".join(item.value for item in at.get("html"))


def evidence(trace: bytes) -> str:
    result = profiles.shown(profiles.uploaded([("trace.json", trace)]), "", "", "").result
    return str(result["bottleneck"]["evidence"])[1:]  # the page starts it with a capital


def upload(at: Any, *files: tuple[str, bytes]) -> Any:
    for name, data in files:
        next(item for item in at.get("file_uploader") if item.key == "profile:files").upload(name, data)
    at.run()
    assert not at.exception, [item.value for item in at.exception]
    return at


def test_an_upload_is_diagnosed(lab: Open, trace: bytes) -> None:
    at = upload(lab("profile", lang="en"), ("trace.json", trace))
    assert not at.error
    values = re.findall(r'class="wi-value">([^<]*)<', html(at))
    assert len(values) == 4
    assert evidence(trace) in unescape(html(at))
    assert "predicted" in html(at)  # it is a trace of ours, and is not taken for a measurement
    assert len(at.get("vega_lite_chart")) == 2
    assert "remove_host_gaps" in at.selectbox(key="what_if").options


def test_a_what_if_draws_the_step_that_it_makes(lab: Open, trace: bytes) -> None:
    at = upload(lab("profile", lang="en"), ("trace.json", trace))
    at.selectbox(key="what_if").set_value("remove_host_gaps").run()
    assert not at.exception
    given = profiles.uploaded([("trace.json", trace)])
    shown = profiles.shown(given, "", "", "remove_host_gaps")
    assert shown.changed is not None
    before, after = (item.end_ns - item.start_ns for item in (shown.timelines[0], shown.changed))
    assert after < before / 1.5
    (row,) = shown.result["chosen"]
    assert all(line in unescape(html(at)) for line in row["assumed"])


def test_every_family_of_foreign_spans_has_a_colour() -> None:
    families = {value for name, value in vars(classes).items() if name.isupper() and isinstance(value, str)}
    assert families == set(BY_FAMILY)
    assert set(BY_FAMILY.values()) <= set(CLASSES)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("trace.json", b"", "is empty"),
        ("notes.csv", b"a,b\n1,2\n", "notes.csv"),
        ("trace.json", b'[{"ph": "X", "name": "a', "trace.json"),
        ("x.db", b"no database", "x.db"),
    ],
)
def test_what_is_no_profile_is_one_line(lab: Open, name: str, data: bytes, said: str) -> None:
    at = upload(lab("profile", lang="en"), (name, data))
    assert said in at.error[0].value
    assert "/tmp" not in at.error[0].value
    assert len(at.error) == 1


def test_names_of_uploads_cannot_leave_their_folder() -> None:
    given = profiles.uploaded([("../../etc/x.json", b"{}"), ("a\\b\\y.json", b"{}")])
    assert [name for name, _ in given.files] == ["x.json", "a/b/y.json"]
    with pytest.raises(ScenarioError, match="two files of that name"):
        profiles.uploaded([("a/x.json", b"1"), ("a/x.json", b"2")])
    with pytest.raises(ScenarioError, match=f"at most {profiles.MAX_FILES}"):
        profiles.uploaded([(f"{n}.json", b"") for n in range(profiles.MAX_FILES + 1)])


def test_only_the_servers_folder_is_offered(
    lab: Open, trace: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert profiles.offered() == {}
    folder = tmp_path / "job" / "rank"
    folder.mkdir(parents=True)
    (folder / "trace.json").write_bytes(trace)
    monkeypatch.setenv(profiles.FOLDER, str(tmp_path))
    (name,) = profiles.offered()
    at = lab("profile", lang="en", profile=name)
    assert not at.error
    assert evidence(trace) in unescape(html(at))
    with pytest.raises(ScenarioError, match="offers no such profile"):
        profiles.placed("../elsewhere")


def test_the_ranks_of_a_folder_are_read_together(trace: bytes) -> None:
    names = [f"job/rank{n}_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json" for n in range(2)]
    given = profiles.uploaded([(name, trace) for name in names])
    assert given.name == "job"
    assert len(profiles.read(given).captures) == 2


def test_the_same_upload_is_read_once(trace: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    first = profiles.read(profiles.uploaded([("trace.json", trace)]))
    monkeypatch.setattr(profiles, "_read", lambda given: pytest.fail("read again"))
    assert profiles.read(profiles.uploaded([("trace.json", trace)])) is first


def test_the_document_of_a_profile_can_be_kept(trace: bytes) -> None:
    result = profiles.shown(profiles.uploaded([("trace.json", trace)]), "", "", "").result
    assert json.loads(json.dumps(result))["step"] == result["step"]


def test_the_sample_opens_at_once_and_says_that_it_is_predicted(lab: Open) -> None:
    at = lab("profile", lang="en")
    at.button(key="profile:sample").click().run()
    assert not at.exception
    assert "predicted" in html(at)
    assert len(at.get("vega_lite_chart")) == 2
