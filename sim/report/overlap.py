"""What running side by side gains, as lines of a report: ideal, predicted, and what is lost between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def overlap_lines(found: Sequence[dict[str, Any]]) -> list[str]:
    """One sentence for each of the `overlaps` of a `run` document."""
    return [_sentence(it) for it in found]


def _sentence(it: dict[str, Any]) -> str:
    places = f"{it['places']:,} place{'' if it['places'] == 1 else 's'}"
    return (
        f"{it['pass']}: ideal {it['ideal_us']:,.1f} us, predicted {it['predicted_us']:,.1f} us, lost to start-up, sync "
        f"and contention {it['lost_us']:,.1f} us; alone {it['first']} {it['first_us']:,.1f} us and {it['second']} "
        f"{it['second_us']:,.1f} us, at {places}"
    )
