"""Put numbers into a profile's file, line by line, so that its comments, its order and its other numbers stay."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_LINE = re.compile(r"^( *)([\w-]+):(.*)$")
_ORIGIN = re.compile(r'origin: "([^"]*)"')


def rounded(value: float) -> float:
    """Three significant digits: no fit knows more."""
    shown = float(f"{value:.3g}")
    return int(shown) if shown >= 100 else shown


def write_numbers(path: Path, values: Mapping[str, float], intervals: Mapping[str, tuple[float, float]]) -> None:
    """Replace the numbers of `path` under dotted names; names that the file does not have are left out.

    values: by dotted name, as `Profile.numbers` spells it. intervals: (low, high) where known, else none is written.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    place: list[str] = []
    for number, line in enumerate(lines):
        match = _LINE.match(line)
        if not match:
            continue
        place = [*place[: len(match[1]) // 2], match[2]]
        name = ".".join(place)
        if name in values and match[3].strip():
            origin = _ORIGIN.search(match[3])
            lines[number] = (
                f"{match[1]}{match[2]}: {_flow(values[name], origin[1] if origin else '', intervals.get(name))}"
            )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _flow(value: float, origin: str, interval: tuple[float, float] | None) -> str:
    shown = rounded(value)
    text = f'{{value: {shown}, source: fitted, origin: "{origin}"'
    if interval:
        text += f", low: {min(rounded(interval[0]), shown)}, high: {max(rounded(interval[1]), shown)}"
    return text + "}"
