"""The results of a sweep in SQLite: a row per point as it is done, so that a sweep that was killed goes on.

`results` is keyed by the hash of the resolved scenario: points that come to the same scenario are predicted once.
`points` says which hash each place of the grid has. Nothing in it depends on who worked, when, or in which order.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from scenarios.errors import ScenarioError, printable
from sim.sweep.point import Result

_TABLES = """
CREATE TABLE IF NOT EXISTS about (grid TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS results (hash TEXT PRIMARY KEY, status TEXT NOT NULL, reason TEXT NOT NULL, metrics TEXT NOT
NULL); CREATE TABLE IF NOT EXISTS points (place INTEGER PRIMARY KEY, hash TEXT NOT NULL REFERENCES results(hash));
"""


class Store:
    """The file of one sweep, or of one shard of it. Raises ScenarioError, one line, where it cannot be used."""

    def __init__(self, path: Path, grid: str) -> None:
        """grid: the digest of the grid's points; a file of another grid is refused and left as it is."""
        self.path = path
        try:
            self._db = sqlite3.connect(path)
            self._db.execute("PRAGMA journal_mode=WAL")
            # A power cut may lose the last commits, never the file; the points lost are predicted again.
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_TABLES)
            known = self._db.execute("SELECT grid FROM about").fetchone()
            if known is None:
                self._db.execute("INSERT INTO about VALUES (?)", (grid,))
                self._db.commit()
        except sqlite3.Error as error:
            raise ScenarioError([f"{printable(str(path), 200)}: cannot hold the sweep's results: {error}"]) from None
        if known is not None and known[0] != grid:
            self.close()
            raise ScenarioError(
                [
                    f"{printable(str(path), 200)}: holds the results of another grid, or of a "
                    "scenario that has changed; name another --out, or remove it"
                ]
            )

    def add(self, rows: Iterable[tuple[int, Result]]) -> None:
        """Keep (place, result) pairs, all or none of them."""
        results, points = [], []
        for place, (key, status, reason, metrics) in rows:
            results.append((key, status, reason, json.dumps(metrics, ensure_ascii=False)))
            points.append((place, key))
        with self._db:
            self._db.executemany("INSERT OR REPLACE INTO results VALUES (?, ?, ?, ?)", results)
            self._db.executemany("INSERT OR REPLACE INTO points VALUES (?, ?)", points)

    def places(self) -> set[int]:
        """The places that have a result."""
        return {place for (place,) in self._db.execute("SELECT place FROM points")}

    def adopt(self, other: Path) -> None:
        """Take in the results of a shard's file."""
        with closing(sqlite3.connect(other)) as shard:
            rows = shard.execute("SELECT place, hash, status, reason, metrics FROM points JOIN results USING (hash)")
            self.add((place, (key, status, reason, json.loads(text))) for place, key, status, reason, text in rows)

    def rows(self) -> Iterator[tuple[int, str, str, str, dict[str, Any]]]:
        """(place, hash, status, reason, metrics) in the grid's order."""
        query = "SELECT place, hash, status, reason, metrics FROM points JOIN results USING (hash) ORDER BY place"
        for place, key, status, reason, text in self._db.execute(query):
            yield place, key, status, reason, json.loads(text)

    def close(self) -> None:
        """Close the file; what is in its write-ahead log goes into it."""
        self._db.close()


def grid_of(path: Path) -> str | None:
    """The digest of the grid that a file holds results of; None where it is no such file."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            row = db.execute("SELECT grid FROM about").fetchone()
    except sqlite3.Error:
        return None
    return str(row[0]) if row else None
