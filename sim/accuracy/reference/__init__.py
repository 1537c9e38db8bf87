"""Measured rows of public sources, one CSV a kind; README.md names each source."""

from pathlib import Path

#: Where the files lie, for all who read them.
FOLDER = Path(__file__).parent
