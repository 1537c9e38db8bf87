"""CSV tables of a capture, row by row: the columns that are needed, bounded, every fault with its line."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from scenarios.errors import did_you_mean, printable
from scenarios.profile.read.files import LIMITS, fail, regular
from scenarios.profile.read.times import NotATime, ns_of_us

#: What torch_npu writes where it knows nothing.
UNKNOWN = ("N/A", "", "NA")


def table_rows(
    path: Path, needed: Sequence[str], optional: Sequence[str] = (), renamed: dict[str, str] | None = None
) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, cells by column) of each row. renamed: other names of a column, `{"Block Num": "Block Dim"}`.

    Raises CaptureError where a needed column is missing (with the nearest that is there), a row has more or fewer
    fields than the header, or the file is no CSV.
    """
    regular(path)
    csv.field_size_limit(LIMITS.cell_chars)
    line = 1
    try:
        with path.open(encoding="utf-8-sig", newline="", errors="strict") as file:
            reader = csv.reader(file, strict=True)
            header = [(renamed or {}).get(name.strip(), name.strip()) for name in next(reader, [])]
            places = _places(path, header, needed, optional)
            for cells in reader:
                line = reader.line_num
                if not cells:
                    continue
                if len(cells) != len(header):
                    fail(f"{path}:{line}", f"has {len(cells)} fields where the header has {len(header)} columns")
                if line > LIMITS.csv_rows:
                    fail(path, f"has more than {LIMITS.csv_rows:,} rows")
                yield line, {name: cells[at].strip() for name, at in places}
    except csv.Error as error:
        fail(f"{path}:{line + 1}", f"is not CSV: {error}")
    except UnicodeDecodeError as error:
        fail(path, f"byte 0x{error.object[error.start]:02x} behind line {line} is not UTF-8")
    except OSError as error:
        fail(path, f"cannot be read: {error.strerror or error}")


def _places(
    path: Path, header: list[str], needed: Sequence[str], optional: Sequence[str]
) -> tuple[tuple[str, int], ...]:
    for name in needed:
        if name not in header:
            names = ", ".join(printable(h, 30) for h in header[:12]) + (", ..." if len(header) > 12 else "")
            fail(f"{path}:1", f"has no column '{name}'; found: {names or 'nothing'}{did_you_mean(name, header)}")
    for name in needed:
        if header.count(name) > 1:
            fail(f"{path}:1", f"has the column '{name}' twice")
    return tuple((name, header.index(name)) for name in (*needed, *optional) if name in header)


def us_cell(path: Path, line: int, row: dict[str, str], column: str) -> int:
    """A time in microseconds as ns. Raises CaptureError where it is none."""
    try:
        return ns_of_us(row[column])
    except NotATime as error:
        fail(f"{path}:{line}", f"{column}: {printable(str(error))}")


def known(cell: str) -> str:
    """The cell, "" where torch_npu knows nothing; without the quotation marks it puts around shapes."""
    text = cell.strip('"')
    return "" if text in UNKNOWN else text


def whole_cell(cell: str) -> int:
    """A count, 0 where it is none."""
    return int(cell) if cell.isascii() and cell.isdigit() and len(cell) < 10 else 0
