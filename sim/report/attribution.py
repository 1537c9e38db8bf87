"""Which optimisation gains what, on a terminal: first, last, on the mean over all orders; pairs that are no sum."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType

from sim.report.tables import Column, fitted


def attribution_part(result: dict[str, Any], width: int) -> list[RenderableType]:
    """The table of `result["attribution"]`, nothing where it was not asked for."""
    attribution = result.get("attribution")
    if attribution is None:
        return []
    shares = sorted(attribution["shares"], key=lambda share: -share["shapley_us"])
    sampled = attribution["method"] == "sampled"
    columns = [
        Column("optimisation", [f"{share['switch']}={share['value']}" for share in shares]),
        Column("first ms", [_ms(share["first_us"]) for share in shares], right=True),
        Column("last ms", [_ms(share["last_us"]) for share in shares], right=True),
        Column("Shapley ms", [_ms(share["shapley_us"]) for share in shares], right=True),
    ]
    if sampled:
        columns.append(Column("+-", [f"{share['error_us'] / 1000:.3f}" for share in shares], right=True, rank=1))
    title = (
        f"Attribution: {attribution['baseline_us'] / 1000:.3f} ms with none to {attribution['best_us'] / 1000:.3f} ms "
        f"at best, {attribution['played']:,} steps"
    )
    notes = [
        f"{' and '.join(pair['pair'])} {_KINDS[pair['kind']]} by {abs(pair['overlap_us']) / 1000:.3f} ms"
        for pair in attribution["interactions"]
    ]
    how = "from 64 seeded orders, with the standard error" if sampled else "over all orders, exact"
    notes.append(
        f"first: on top of nothing. last: from the best set. Shapley: the mean {how}; it sums to the whole way."
    )
    return [fitted(title, columns, width, notes)]


_KINDS = {"overlap": "overlap", "reinforce": "reinforce each other"}


def _ms(us: float) -> str:
    return f"{-us / 1000:+.3f}"
