"""Measured rows of public sources, one CSV a kind; README.md names each source."""

from pathlib import Path

#: Where the files lie.
FOLDER = Path(__file__).parent


def reference_csv(name: str) -> Path:
    """The file of one kind of rows: `kernels`, `collectives`, `exchange`, `steps`, `ladders`, `overlaps`."""
    return FOLDER / f"{name}.csv"
