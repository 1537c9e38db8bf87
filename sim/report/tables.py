"""Tables that fit: where the terminal is narrow the smallest important columns go, and those that stay are whole."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Group
from rich.table import Table
from rich.text import Text

from scenarios.records import dataclass

#: Cells between two columns: on a wide terminal, and below NARROW columns.
GAP, SMALL_GAP = 2, 1
NARROW = 100
#: A column of sentences never needs more than this; it takes what room there is.
WRAPPED_WIDTH = 28


@dataclass(frozen=True, slots=True)
class Column:
    """A title and its cells, top to bottom.

    rank: 0 always stays; of the others the highest goes first. wraps: sentences, which may take several lines.
    """

    title: str
    cells: Sequence[str | Text]
    right: bool = False
    rank: int = 0
    wraps: bool = False

    @property
    def width(self) -> int:
        """Terminal cells that the column needs."""
        widest = max((_width(cell) for cell in (self.title, *self.cells)), default=0)
        if not self.wraps:
            return widest
        words = (word for cell in self.cells for word in str(cell).split())
        return min(widest, max(WRAPPED_WIDTH, *map(cell_len, words), 0))


def fitted(title: str, columns: Sequence[Column], width: int, notes: Sequence[str] = ()) -> Group:
    """A title, a table of at most `width` cells as long as the columns of rank 0 fit, notes, and a line of space."""
    gap = GAP if width >= NARROW else SMALL_GAP
    kept = _fitting(columns, width, gap)
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for column in kept:
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=not column.wraps,
            min_width=column.width if column.wraps else None,
        )
    for row in zip(*(column.cells for column in kept), strict=True):
        table.add_row(*row)
    return Group(Text(title, style="bold"), table, *(Text(note, style="dim") for note in notes), Text())


def _fitting(columns: Sequence[Column], width: int, gap: int) -> list[Column]:
    kept = list(columns)
    while sum(c.width for c in kept) + gap * (len(kept) - 1) > width:
        smallest = max(range(len(kept)), key=lambda i: kept[i].rank)
        if kept[smallest].rank == 0:
            break
        del kept[smallest]
    return kept


def _width(cell: str | Text) -> int:
    return cell.cell_len if isinstance(cell, Text) else cell_len(cell)
