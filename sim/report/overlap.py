"""What running side by side gains, as lines of a report: ideal, predicted, and what is lost between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def overlap_lines(result: Sequence[dict[str, Any]]) -> list[str]:
    """One sentence for each of the `overlaps` of a `run` document."""
    return [_sentence(row) for row in result]


def _sentence(row: dict[str, Any]) -> str:
    places = f"{row['places']:,} place{'' if row['places'] == 1 else 's'}"
    return (
        f"{row['pass']}: ideal {row['ideal_us']:,.1f} us, predicted {row['predicted_us']:,.1f} us, lost to start-up, "
        f"sync and contention {row['lost_us']:,.1f} us; alone {row['first']} {row['first_us']:,.1f} us and "
        f"{row['second']} {row['second_us']:,.1f} us, at {places}"
    )
