"""Numbers as the lab shows them: as many digits as help, thousands apart, and the unit with them."""

from __future__ import annotations

GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10
#: What a typesetter puts for minus, between a number and its unit, and between the ends of an interval.
MINUS, THIN, DASH = "−", "\u2009", "–"


def number(value: float) -> str:
    """Three to four significant digits: 0.403, 14.70, 152.3, 2,771."""
    size = abs(value)
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 3
    return f"{value:,.{digits}f}".replace("-", MINUS)


def whole(value: float) -> str:
    return f"{value:,.0f}".replace("-", MINUS)


def ms(us: float) -> str:
    """Microseconds as milliseconds."""
    return f"{number(us / 1000)}{THIN}ms"


def seconds(ms_: float) -> str:
    """Milliseconds as seconds."""
    return f"{number(ms_ / 1000)}{THIN}s"


def time(us: float) -> str:
    """Microseconds, or milliseconds where there are many."""
    return ms(us) if abs(us) >= 1000 else f"{number(us)}{THIN}µs"


def size(count_bytes: float) -> str:
    """Bytes as GiB, MiB or KiB, whichever says most."""
    for unit, smallest, name in ((GIB, GIB / 10, "GiB"), (MIB, MIB, "MiB"), (KIB, KIB, "KiB")):
        if count_bytes >= smallest:
            return f"{count_bytes / unit:,.1f}{THIN}{name}"
    return f"{count_bytes:,.0f}{THIN}B"


def percent(share: float, signed: bool = False) -> str:
    """A share as percent, with a decimal below 10 %."""
    digits = 1 if 0 < abs(share) < 0.0995 else 0
    return f"{share * 100:{'+' if signed else ''}.{digits}f}{THIN}%".replace("-", MINUS)


def ratio(value: float) -> str:
    return f"{value:.2f}×"


def ends(low: float, high: float) -> str:
    """The ends of a ratio's interval, in as many digits as keep them apart and on their side of 1; nothing where they
    are equal, since what nothing uncertain went into has no interval."""
    shown = ("", "")
    for digits in (2, 3, 4):
        shown = f"{low:.{digits}f}", f"{high:.{digits}f}"
        kept = all(_side(end) == _side(float(text)) for end, text in zip((low, high), shown, strict=True))
        if shown[0] != shown[1] and kept:
            break
    return interval(*shown) if shown[0] != shown[1] else ""


def _side(value: float) -> int:
    """Of 1: below, on it, above."""
    return (value > 1) - (value < 1)


def interval(low: str, high: str) -> str:
    return f"{low}{DASH}{high}"
