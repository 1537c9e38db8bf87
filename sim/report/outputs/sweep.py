"""What `whatif sweep` writes: results as they come in SQLite, the table as Parquet (or CSV) at the end."""

from __future__ import annotations

import csv
from collections.abc import Callable
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

from scenarios.errors import ScenarioError, printable
from scenarios.files.atomic import write_bytes, write_text
from sim.report.files import refuse_overwriting
from sim.sweep.space import grid_file, read_space
from sim.sweep.sweep import Swept, shard_of, shard_path, sweep
from sim.sweep.workers import cores

FORMS = (".parquet", ".csv")


def sweep_outputs(
    grid: str, out: Path | None, jobs: int | None, dask: str, shard_text: str, say: Callable[[str], None]
) -> tuple[Swept, Path]:
    """Sweep the points of `grid`, a file or a shipped name, and write their table; and where it is.

    out: the table, `GRID.parquet` in the working folder where none is named; results gather in a file of the same name
    that ends in .sqlite. A shard leaves its results there and writes no table. Raises ScenarioError.
    """
    file = grid_file(grid)
    table = out or Path(f"{file.stem}.parquet")
    if table.suffix not in FORMS:
        name = printable(str(table), 200)
        raise ScenarioError([f"--out {name}: a table ends in {' or '.join(FORMS)}"])
    if table.suffix == ".parquet":
        _arrow()  # said before the work, not after it
    if dask and jobs is not None:
        raise ScenarioError(["--jobs: counts processes of this machine; with --dask the cluster's workers work"])
    shard = shard_of(shard_text) if shard_text else None
    store = table.with_suffix(".sqlite")
    refuse_overwriting([str(file)], {"--out": table})
    space = read_space(file)
    path = shard_path(store, shard) if shard else store
    swept = sweep(space, path, shard, jobs or cores(), dask, say)
    if shard is not None:
        return swept, path
    _write(table, swept)
    return swept, table


def _write(path: Path, swept: Swept) -> None:
    if path.suffix == ".csv":
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(swept.columns)
        writer.writerows(swept.rows)
        write_text(path, text.getvalue())
        return
    arrow = _arrow()
    columns = zip(*swept.rows, strict=True) if swept.rows else ([] for _ in swept.columns)
    arrays = {name: _typed(list(values)) for name, values in zip(swept.columns, columns, strict=True)}
    sink = arrow.BufferOutputStream()
    import_module("pyarrow.parquet").write_table(arrow.table(arrays), sink)
    write_bytes(path, sink.getvalue().to_pybytes())


def _typed(values: list[Any]) -> list[Any]:
    """Values of one type, as a column needs: numbers as floats where some are; text where types differ."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} and float in kinds:
        return [None if value is None else float(value) for value in values]
    if len(kinds) > 1:
        return [None if value is None else str(value) for value in values]
    return values


def _arrow() -> Any:
    try:
        return import_module("pyarrow")
    except ModuleNotFoundError:
        what = "pyarrow, which writes Parquet, is not installed; pip install 'ascend-whatif[sweep]', or name a .csv"
        raise ScenarioError([f"--out: {what}"]) from None
