"""The small pieces of pages: what a file says is shown as text."""

from __future__ import annotations

import pytest

from app_pages.parts.page import literal


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("aten::add", "`aten::add`"),
        ("__init__", "`__init__`"),
        ("![x](http://127.0.0.1:9911/e.png)", "`![x](http://127.0.0.1:9911/e.png)`"),
        ("a`b``c", "```a`b``c```"),
        ("`a`", "`` `a` ``"),
        ("one\ntwo  \x1b[2J", "`one`  \n`two \\x1b[2J`"),
        ("", ""),
    ],
)
def test_a_name_of_a_file_is_a_code_span_whatever_it_holds(name: str, shown: str) -> None:
    assert literal(name) == shown
