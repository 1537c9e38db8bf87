"""Times of a capture as integer nanoseconds, from the digits of the file.

A time since the epoch in microseconds has 16 digits before the point: a float would keep a quarter of a microsecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import numpy as np

from scenarios.errors import printable, quoted
from scenarios.profile.table import Int64

#: Beyond this an int64 of nanoseconds does not hold a start plus a duration.
MAX_NS = 2**62


class NotATime(ValueError):
    """What a text is instead of a time."""


def ns_of_us(text: str) -> int:
    """`"1736408883688177.930\\t"`, microseconds, as 1736408883688177930 ns; what is below a nanosecond is rounded.

    Raises NotATime for what is no number, is negative, not finite, or beyond MAX_NS.
    """
    stripped = text.strip()
    try:
        value = Decimal(stripped)
    except InvalidOperation:
        raise NotATime(f"{quoted(stripped[:40])} is not a number") from None
    if not value.is_finite():
        raise NotATime(f"{printable(stripped[:40])} is not a finite number")
    if value < 0:
        raise NotATime(f"{printable(stripped[:40])} is negative")
    if value * 1000 >= MAX_NS:
        raise NotATime(f"{printable(stripped[:40])} is too large")
    return int((value * 1000).to_integral_value())


def all_ns_of_us(texts: Sequence[str]) -> Int64:
    """`ns_of_us` of many texts, at once where they all have one form. Raises NotATime with `index` set."""
    ns = _of_one_form(texts)
    if ns is not None:
        return ns
    times = np.empty(len(texts), dtype=np.int64)
    for i, text in enumerate(texts):
        try:
            times[i] = ns_of_us(text)
        except NotATime as error:
            error.args = (error.args[0], i)
            raise
    return times


def _of_one_form(texts: Sequence[str]) -> Int64 | None:
    """The times where every text is as long as the first and has its point three digits before the end; else None."""
    if not texts:
        return np.empty(0, dtype=np.int64)
    width = len(texts[0])
    if not 5 <= width <= 20:
        return None
    joined = "".join(texts)
    if len(joined) != width * len(texts) or not joined.isascii():
        return None
    signs = np.frombuffer(joined.encode("ascii"), dtype=np.uint8).reshape(len(texts), width)
    digits = np.delete(signs, width - 4, axis=1) - ord("0")  # what is no digit is above 9: uint8 wraps
    # One text may be longer by what another lacks, so that the point is looked for in every row.
    if (signs[:, width - 4] != ord(".")).any() or (digits > 9).any():
        return None
    powers = 10 ** np.arange(width - 2, -1, -1, dtype=np.int64)
    times: Int64 = digits.astype(np.int64) @ powers
    return times


def ns_of_us_numbers(durations: Sequence[float | str]) -> Int64:
    """Durations in microseconds, JSON numbers, as ns; a double keeps any duration below 100 days to the nanosecond.

    Raises NotATime with the index of what is negative, not finite or too long.
    """
    try:
        values = np.asarray(durations, dtype=np.float64)
    except (TypeError, ValueError):
        return all_ns_of_us([str(d) for d in durations])
    bad = ~(np.isfinite(values) & (values >= 0) & (values < MAX_NS / 1000))
    if bad.any():
        at = int(np.argmax(bad))
        what = "negative" if values[at] < 0 else "not finite or too large"
        raise NotATime(f"{printable(str(durations[at]))} is {what}", at)
    ns: Int64 = np.rint(values * 1000).astype(np.int64)
    return ns
