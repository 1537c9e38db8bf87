"""Names that a profile brings are shown as text on every page: no image, no link, no emphasis of theirs."""

from __future__ import annotations

import json

import pytest

from tests.app.conftest import Open
from tests.app.test_profile import upload

IMAGE = "![x](http://127.0.0.1:9911/e.png) __init__"


def test_the_call_that_the_device_waits_for_is_text(lab: Open) -> None:
    def row(cat: str, name: str, tid: int, ts: float, dur: float, correlation: int) -> dict[str, object]:
        args = {"correlation": correlation}
        return {"ph": "X", "cat": cat, "name": name, "pid": tid, "tid": tid, "ts": ts, "dur": dur, "args": args}

    events = [row("cpu_op", IMAGE, 100, 10 + 1000 * n, 900, 0) for n in range(3)]
    for n in range(3):
        events.append(row("cuda_runtime", "cudaLaunchKernel", 100, 800 + 1000 * n, 5, n + 1))
        events.append(row("kernel", f"{IMAGE}<script>", 7, 830 + 1000 * n, 30, n + 1))
    trace = json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()
    at = upload(lab("profile", lang="en"), ("trace.json", trace))
    assert not at.exception
    [calls] = [table for table in at.table if "e.png" in str(table.value)]
    cells = [str(cell) for cell in calls.value.iloc[:, 0]]
    assert cells == [f"`{IMAGE}`"]
    assert not [markdown for markdown in at.markdown if "e.png" in markdown.value]


@pytest.mark.parametrize("page", ["profile", "compare"])
def test_an_error_line_quotes_a_file_as_text(lab: Open, page: str) -> None:
    table = b"a,![x](http://127.0.0.1:9911/e.png),b\n1,2,3\n"
    at = lab(page, lang="en")
    if page == "profile":
        upload(at, ("notes.csv", table))
    else:
        at.segmented_control(key="compare:b_from").set_value("file").run()
        next(item for item in at.get("file_uploader") if item.key not in ("drop:files", "drop:folder")).upload(
            "notes.csv", table
        ).run()
    [error] = at.error
    quoted = error.value[error.value.index("`") : error.value.rindex("`")]
    assert "![x](http://127" in quoted  # a long name is shortened in its middle
