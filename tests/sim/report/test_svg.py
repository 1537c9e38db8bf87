"""Pictures as SVG text: what each element says, equal bytes for equal input, and names that are never markup."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from sim.report import svg

NAMES = ("a & b", "<script>", "\"'", "\x00\x1b[2J\x0b\ufffe", "\ud800", "norm\nand more", "矩阵", "")


def test_a_line_goes_through_its_points() -> None:
    assert svg.line([(0, 1), (2.5, 3.146), (4, 5)], svg.BLUE, 2, "4 4") == (
        '<path d="M0 1L2.5 3.15L4 5" fill="none" stroke="#0072b2" stroke-width="2" stroke-dasharray="4 4"/>'
    )
    assert svg.line([(0, 0), (1, 1)]) == '<path d="M0 0L1 1" fill="none" stroke="#e3e3e3"/>'


def test_a_dot_is_full_hollow_or_faint() -> None:
    assert svg.circle(10, 20, 4, svg.GREEN) == '<circle cx="10" cy="20" r="4" fill="#009e73"/>'
    assert svg.circle(1, 2, 4, svg.GREEN, hollow=True) == (
        '<circle cx="1" cy="2" r="4" fill="#ffffff" stroke="#009e73" stroke-width="2"/>'
    )
    assert svg.circle(1, 2, 3, svg.GREY, "it", 0.7) == (
        '<circle cx="1" cy="2" r="3" fill="#777777" fill-opacity="0.7"><title>it</title></circle>'
    )


def test_a_box_has_hundredths_of_a_pixel() -> None:
    assert svg.box(0.125, 2, 100.004, 0.4, svg.SKY, opacity=0.25) == (
        '<rect x="0.12" y="2" width="100" height="0.4" fill="#56b4e9" fill-opacity="0.25"/>'
    )


def test_text_is_turned_around_its_place_and_bold() -> None:
    upwards = svg.text(18, 150.5, "up", "middle", svg.DARK, 14, bold=True, upwards=True)
    assert upwards == (
        '<text x="18" y="150.5" text-anchor="middle" fill="#333333" font-size="14" font-weight="bold" '
        'transform="rotate(-90 18 150.5)">up</text>'
    )
    assert svg.text(1, 2, "plain") == '<text x="1" y="2" text-anchor="start">plain</text>'


@pytest.mark.parametrize("name", NAMES)
def test_names_are_text_and_the_file_is_well_formed(name: str) -> None:
    parts = [svg.text(0, 0, name), svg.box(0, 0, 1, 1, svg.BLUE, name), svg.circle(0, 0, 1, svg.BLUE, name)]
    whole = svg.picture(100, 50, name, parts)
    root = ElementTree.fromstring(whole.encode())
    assert root.get("viewBox") == "0 0 100 50"
    assert [child.tag.rpartition("}")[2] for child in root] == ["rect", "text", "rect", "circle"]
    said = [root.get("aria-label"), root[1].text or "", *(title.text for mark in root[2:] for title in mark)]
    shown = name if name.isprintable() else name.encode("unicode_escape").decode()
    assert set(said) == {shown}
    assert whole == svg.picture(100, 50, name, parts)
