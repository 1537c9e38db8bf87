"""What a step takes by its composition: priced on a grid, interpolated between.

A grid point is a whole step that `sim.predict` has played. Times are in ticks, 2^-20 of a nanosecond, and linear in the
tokens of the cache inside a piece, so that the sum of a thousand steps is exact and equals one after the other.

Decode steps: rows (the captured size, where there is one) on four points to an octave x mean context on one. Steps with
prefills are a sum: matrix products and the rest by tokens (both sides of each tile, then two points to an octave),
attention of the prefills by query-key pairs, and what decoding requests add, by their number (x 4) and mean context
(x 2). A ragged batch counts with its mean; on a CPU, whose attention is called once for each run of requests that are
alike, it is played as one in which no two neighbours are. `docs/serving.md` states the error that
tests/sim/serving/test_prices.py measures.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Protocol

from scenarios.batches import capture_sizes
from scenarios.build import effective_graph
from scenarios.ops.program import Batch, Group
from scenarios.passes.graph import in_pieces
from scenarios.records import dataclass
from scenarios.speculation import draft_passes
from sim.predict.speculation import lookup_ns
from sim.predict.steps import Case, step_ns

TICKS_PER_NS = 1 << 20
#: Shortest mean context of the grid, tokens.
MIN_CONTEXT = 64
#: Rows at which a matrix product takes a tile more: its time jumps behind them, and the grid has a point on each side.
TILE_ROWS = (128, 256)
#: Two points to an octave.
_HALF_OCTAVES = tuple(size for octave in range(4, 24) for size in (1 << octave, 3 << (octave - 1)))
#: Rows of a tile of large products: their times are stairs. Up to TILED tokens the grid has both sides of every step;
#: beyond, where a tile is no longer much of the whole, half a tile on either side of half octaves, at which all tiles
#: are just full: points on these alone lie below the stairs on either side, and came out 1.9 % low on the mean.
TILE, TILED = 128, 1024
HALF_TILE = TILE // 2
#: Tokens of steps with prefills on the grid.
TOKEN_POINTS = tuple(
    sorted(
        {
            *(size for size in _HALF_OCTAVES if size < TILE or size > TILED),
            *(edge + side for edge in range(TILE, TILED + 1, TILE) for side in (0, 1)),
            *(size + half for size in _HALF_OCTAVES if size > TILED for half in (-HALF_TILE, HALF_TILE)),
            TILED + HALF_TILE,
        }
    )
)
#: Decoding requests of such steps on the grid.
EXTRA_POINTS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)
#: What decoding requests add is played in steps of 1,024 tokens, or above so many in steps of four times as many.
MANY_TOKENS = 1024
#: What decoding requests add to a step with prefills: (from how many tokens of context on, and below how many, ns, ns
#: per token of context).
_Extra = tuple[int, int, float, float]
_NOWHERE: _Extra = (0, 0, 0.0, 0.0)
#: A context that no batch reaches.
ENDLESS = 1 << 60


@dataclass(frozen=True, slots=True)
class Piece:
    """Device ticks of a decode step with `tokens` in the cache: base + slope x tokens, for tokens from `start` on and
    below `end`."""

    base: int
    slope: int
    start: int
    end: int

    def ticks(self, tokens: int) -> int:
        return self.base + self.slope * tokens


class StepPrices(Protocol):
    """What the simulator asks for."""

    def decode(self, requests: int, context_tokens: int) -> Piece:
        """The piece in which a decode step of `requests` with `context_tokens` in all their caches lies."""
        ...

    def mixed(self, requests: int, context_tokens: int, tokens: int, pairs: int) -> int:
        """Ticks of a step of `requests` that decode and of prefills of `tokens` tokens in all.

        pairs: of a token and what it attends to, over all chunks.
        """
        ...


@dataclass(frozen=True, slots=True)
class FixedPrices:
    """Every step takes as long as is said: to test queues against formulas."""

    decode_ns: int
    mixed_ns: int

    def decode(self, requests: int, context_tokens: int) -> Piece:
        return Piece(self.decode_ns * TICKS_PER_NS, 0, 0, ENDLESS)

    def mixed(self, requests: int, context_tokens: int, tokens: int, pairs: int) -> int:
        return self.mixed_ns * TICKS_PER_NS


class GridPrices:
    """Prices of `case` by what `play` says a step takes, ns; each grid point is played once.

    factor: multiplies all times (the low or high end of an interval).
    """

    def __init__(self, case: Case, factor: float = 1.0, play: Callable[[Case, Batch], int] = step_ns) -> None:
        self._case, self._factor, self._play = case, factor, play
        self._query = case.scenario.engine.query_tokens
        self._walks_runs = case.hardware.profile.device == "cpu"
        self._grid = batch_points(case)
        self._tokens = token_points(case)
        self._rows: dict[int, int] = {}
        self._pieces: dict[tuple[int, int], Piece] = {}
        self._extras: dict[tuple[int, int, bool], _Extra] = {}
        self._last_many: dict[int, _Extra] = {}  # of each number of requests
        self._last_few: dict[int, _Extra] = {}
        self._prefills: dict[int, tuple[float, float]] = {}
        self._prefill_points: dict[int, tuple[float, float]] = {}
        self._added: dict[tuple[int, int, bool], int] = {}
        self._points: dict[Batch, int] = {}

    def scaled(self, factor: float) -> GridPrices:
        """The same prices with all times `factor` as long; nothing is played again."""
        other = GridPrices(self._case, factor, self._play)
        other._points = self._points
        return other

    @property
    def points(self) -> int:
        """Steps that were played."""
        return len(self._points)

    def rows(self, requests: int) -> int:
        """Rows of a decode step: the captured size that it is padded to, or `requests`."""
        rows = self._rows.get(requests)
        if rows is None:
            rows = effective_graph(self._case.scenario, Batch("decode", (Group(requests, self._query, 1),)))[1]
            rows //= self._query
            self._rows[requests] = rows
        return rows

    def decode(self, requests: int, context_tokens: int) -> Piece:
        rows = self._rows.get(requests) or self.rows(requests)
        place = max(0, (context_tokens // (rows * MIN_CONTEXT)).bit_length() - 1)
        piece = self._pieces.get((rows, place))
        if piece is None:
            piece = self._pieces[rows, place] = self._piece(rows, place)
        return piece

    def _piece(self, rows: int, place: int) -> Piece:
        low, high = MIN_CONTEXT << place, MIN_CONTEXT << (place + 1)
        at_low, at_high = self._decode_ns(rows, low), self._decode_ns(rows, high)
        unit = TICKS_PER_NS * self._factor
        slope = round(unit * (at_high - at_low) / (rows * (high - low)))
        # From zero on in the first piece: shorter contexts lie on the same line.
        return Piece(round(unit * at_low) - slope * rows * low, slope, rows * low if place else 0, rows * high)

    def _decode_ns(self, rows: int, context: int) -> float:
        lower, upper, share = _between(self._grid, rows)
        at_lower = self._ns(Batch("decode", self._decoding(lower, context)))
        if not share:
            return at_lower
        return (1 - share) * at_lower + share * self._ns(Batch("decode", self._decoding(upper, context)))

    def _decoding(self, requests: int, context: int) -> tuple[Group, ...]:
        """Requests that decode, each with `context` tokens in the cache in the mean."""
        if not self._walks_runs:
            return (Group(requests, self._query, context),)
        uneven = [context - 1, context + 1] * (requests // 2) + [context] * (requests % 2)
        return tuple(Group(1, self._query, of_one) for of_one in uneven)

    def unpadded_ns(self, requests: int, context: int) -> float:
        """A decode step of `requests` that is captured for just so many, each with `context` tokens in the cache."""
        return self._factor * self._decode_ns(requests, max(MIN_CONTEXT, context))

    def mixed(self, requests: int, context_tokens: int, tokens: int, pairs: int) -> int:
        total = requests * self._query + tokens
        known = self._prefills.get(total)
        if known is None:
            known = self._prefills[total] = self._prefill(total)
        ns = known[0] + known[1] * pairs
        if requests:
            many = total > MANY_TOKENS
            last = self._last_many if many else self._last_few
            start, end, added, slope = last.get(requests, _NOWHERE)
            if not start <= context_tokens < end:
                start, end, added, slope = last[requests] = self._extra(requests, context_tokens, many)
            ns += added + slope * context_tokens
        return round(ns * self._factor * TICKS_PER_NS)

    def _prefill(self, tokens: int) -> tuple[float, float]:
        """(ns without attention over pairs, ns per pair) of a step of `tokens` rows."""
        lower, upper, share = _between(self._tokens, tokens)
        at_lower, at_upper = self._prefill_point(lower), self._prefill_point(upper)
        return (
            (1 - share) * at_lower[0] + share * at_upper[0],
            (1 - share) * at_lower[1] + share * at_upper[1],
        )

    def _prefill_point(self, tokens: int) -> tuple[float, float]:
        known = self._prefill_points.get(tokens)
        if known is not None:
            return known
        start = max(tokens, 1024)
        alone = self._ns(Batch("prefill", (Group(1, tokens, 0),)))
        later = self._ns(Batch("prefill", (Group(1, tokens, start),)))
        slope = (later - alone) / (tokens * start)
        known = self._prefill_points[tokens] = alone - slope * tokens * (tokens + 1) / 2, slope
        return known

    def _extra(self, requests: int, context_tokens: int, many: bool) -> _Extra:
        """What decoding requests add to a step with prefills."""
        place = max(0, (context_tokens // (requests * MIN_CONTEXT)).bit_length() - 1)
        known = self._extras.get((requests, place, many))
        if known is not None:
            return known
        low, high = MIN_CONTEXT << place, MIN_CONTEXT << (place + 1)
        at_low, at_high = self._extra_ns(requests, low, many), self._extra_ns(requests, high, many)
        slope = (at_high - at_low) / (requests * (high - low))
        start = requests * low if place else 0
        known = self._extras[requests, place, many] = start, requests * high, at_low - slope * requests * low, slope
        return known

    def _extra_ns(self, requests: int, context: int, many: bool) -> float:
        lower, upper, share = _between(EXTRA_POINTS, requests)

        def added(count: int) -> int:
            known = self._added.get((count, context, many))
            if known is not None:
                return known
            rows = count * self._query
            tokens = 4 * max(MANY_TOKENS if many else MANY_TOKENS // 4, rows)
            alone = self._ns(Batch("prefill", (Group(1, tokens, 0),)))
            mixed = self._ns(Batch("mixed", (*self._decoding(count, context), Group(1, tokens - rows, 0))))
            self._added[count, context, many] = mixed - alone
            return mixed - alone

        return added(lower) if not share else (1 - share) * added(lower) + share * added(upper)

    def _ns(self, batch: Batch) -> int:
        ns = self._points.get(batch)
        if ns is None:
            ns = self._points[batch] = with_drafts(self._case, batch, self._play)
        return ns


def whole_ns(ticks: int) -> int:
    """The first whole nanosecond that is not before `ticks`."""
    return -(-ticks // TICKS_PER_NS)


def with_drafts(case: Case, batch: Batch, play: Callable[[Case, Batch], int]) -> int:
    """A step as `play` has it, and the drafts of speculative decoding that follow it, ns."""
    ns = play(case, batch) + lookup_ns(case.scenario.engine, batch)
    for drafted in draft_passes(case.scenario, case.model, batch):
        ns += drafted.count * play(Case(drafted.scenario, drafted.model, case.hardware), drafted.batch)
    return ns


def _between(points: Sequence[int], value: int) -> tuple[int, int, float]:
    """(point below or at, point above or at, share of the way) of a value; outside, the line of the last two goes on
    above, and the first point holds below."""
    right = bisect_left(points, value)
    if right == 0 or len(points) == 1:
        return points[0], points[0], 0.0
    right = min(right, len(points) - 1)
    lower, upper = points[right - 1], points[right]
    return (upper, upper, 0.0) if value == upper else (lower, upper, (value - lower) / (upper - lower))


def token_points(case: Case) -> Sequence[int]:
    """Tokens of steps with prefills on the grid, and where replaying them in pieces ends."""
    if not in_pieces(case.scenario.engine, "mixed"):
        return TOKEN_POINTS
    last = max(capture_sizes(case.scenario.engine))
    return sorted({*TOKEN_POINTS, last, last + 1})


def batch_points(case: Case) -> list[int]:
    """Rows of decode steps on the grid: four points to an octave, on captured sizes, and where capturing ends."""
    scenario = case.scenario
    most, query = scenario.engine.max_num_seqs, scenario.engine.query_tokens
    wanted = {1, 2, 3, most, *(rows + 8 for rows in TILE_ROWS)} | {
        (4 + quarter) << octave for octave in range(most.bit_length()) for quarter in range(4)
    }
    points = set()
    for size in sorted(wanted):
        if size <= most:
            mode, rows = effective_graph(scenario, Batch("decode", (Group(size, query, 1),)))
            points.add(rows // query)
            if mode == "eager" and scenario.optimizations.graph != "eager":
                points.add(max(capture_sizes(scenario.engine)) // query + 1)
    return sorted(points)
