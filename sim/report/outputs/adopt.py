"""What `whatif validate --adopt` does: a bundle, a result or a profile in, rows of the reference CSVs out."""

from __future__ import annotations

import csv
import io
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scenarios.errors import ScenarioError, printable
from scenarios.files.atomic import write_folder
from scenarios.profile.read import read_captures
from sim import __version__
from sim.accuracy.adopted import COLUMNS, Adopted, Row, joined, of_experiment, of_profile, of_run
from sim.accuracy.validate import Measurements
from sim.hardware.profile import load_hardware

#: The document of a bundle (device/doctor/carry_out.py).
BUNDLE = "bundle.json"
#: Largest bundle when unpacked, and largest result in it, bytes.
MAX_BUNDLE, MAX_RESULT = 4 << 30, 64 << 20


def adopted(path: Path, hardware: str) -> Adopted:
    """The rows of `path`: a bundle of `whatif doctor --run` (packed, or its folder), a result of `whatif run` or
    `whatif experiment`, or a profiler's folder or file.

    hardware: the profile of the chip that it was measured on, "" for the one that each result names. Raises
    ScenarioError, one line, for anything else.
    """
    if hardware:
        load_hardware(hardware)
    name = printable(str(path), 200)
    if not path.exists():
        raise ScenarioError([f"{name}: no such file"])
    if path.is_file() and zipfile.is_zipfile(path):
        with _unpacked(path) as folder:
            return of_bundle(folder, hardware, path.name)
    if (path / BUNDLE).is_file():
        return of_bundle(path, hardware, path.name)
    if path.is_file() and path.suffix == ".json" and (document := _result(path)) is not None:
        return _of_result(document, hardware, f"{path.name}, whatif {__version__}")
    return of_profile(read_captures(str(path)).captures, hardware, f"profile {path.name}")


def of_bundle(folder: Path, hardware: str, name: str) -> Adopted:
    """The rows of all results and profiles in a bundle's folder, with the machine that it tells of as their source."""
    document = _json(folder / BUNDLE, f"{name}: {BUNDLE}")
    if not isinstance(document, dict) or document.get("kind") != "bundle" or document.get("version") != 1:
        raise ScenarioError([f"{printable(name, 200)}: {BUNDLE} is no bundle of `whatif doctor --run`"])
    source = f"bundle {printable(name, 80)}: {_machine(document)}"
    parts: list[Adopted] = []
    chip = hardware
    for file in sorted(folder.glob("*.json")):
        result = None if file.name == BUNDLE else _result(file)
        if result is not None:
            parts.append(_of_result(result, hardware, f"{source}; {file.name}"))
            chip = chip or str(result.get("hardware") or "")
    for profile in sorted(p for p in folder.iterdir() if p.is_dir() and p.name != "rows"):
        parts.append(_of_profile(profile, chip, f"{source}; {profile.name}"))
    left_out = [
        f"trial {trial['number']} ({trial['what']}): {trial['verdict']}: {trial['says']}"
        for trial in document.get("trials", ())
        if trial.get("verdict") != "passed"
    ]
    return joined([*parts, Adopted({}, tuple(printable(line, 300) for line in left_out))])


def csv_texts(adoption: Adopted) -> dict[str, str]:
    """`steps.csv`, ... for the kinds that have rows."""
    return {f"{kind}.csv": _csv(COLUMNS[kind], rows) for kind, rows in adoption.rows.items() if rows}


def adopt_outputs(
    path: Path | None, hardware: str, out: Path | None, others: Measurements
) -> tuple[Adopted, Measurements]:
    """Write the rows of `path` to the folder `out`; them, and the files. others: what else was to be validated.

    Raises ScenarioError where something is missing, where two sets of rows were asked for, and where there is no row.
    """
    if path is None or out is None:
        raise ScenarioError(["validate: --adopt BUNDLE and --out FOLDER go together"])
    if given := [f"--{name}" for name, file in asdict(others).items() if file is not None]:
        raise ScenarioError([f"--adopt: its own rows are validated; leave {', '.join(given)} out"])
    if out.exists() and not out.is_dir():
        raise ScenarioError([f"--out {printable(str(out), 200)}: is a file, not a folder"])
    adoption = adopted(path, hardware)
    if not adoption.count:
        why = f": {adoption.left_out[0]}" if adoption.left_out else ""
        raise ScenarioError([f"{printable(str(path), 200)}: gives no row{why}"])
    texts = csv_texts(adoption)
    write_folder(out, texts)
    return adoption, Measurements(**{name.removesuffix(".csv"): out / name for name in texts})


def bundle_outputs(out: Path, fill: Callable[[Path], tuple[str, bool]]) -> tuple[str, bool, Adopted]:
    """Let `fill` carry trials out in a folder, add the rows that they give, and pack all as `out`, whole or not at all.

    fill: what to print, and whether all went well. Raises ScenarioError before anything is run where `out` cannot be
    written.
    """
    name = printable(str(out), 200)
    if out.suffix != ".zip":
        raise ScenarioError([f"--out {name}: a bundle is packed: name a file that ends in .zip"])
    if out.exists():
        raise ScenarioError([f"--out {name}: is there already; name a new file"])
    if not out.absolute().parent.is_dir():
        raise ScenarioError([f"--out {name}: cannot be written: its folder does not exist"])
    if not os.access(out.absolute().parent, os.W_OK):
        raise ScenarioError([f"--out {name}: cannot be written: permission denied"])
    with TemporaryDirectory(prefix="whatif-bundle-") as temporary:
        folder = Path(temporary)
        text, passed = fill(folder)
        adoption = rows_into(folder, out.name)
        pack(folder, out)
    return text, passed, adoption


def rows_into(folder: Path, name: str) -> Adopted:
    """Write `rows/*.csv` into a bundle's folder, so that who gets it sees at once what is in it."""
    adoption = of_bundle(folder, "", name)
    (folder / "rows").mkdir(exist_ok=True)
    for file, text in csv_texts(adoption).items():
        (folder / "rows" / file).write_text(text, encoding="utf-8")
    return adoption


@contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    """A bundle's files in a folder for a while. Raises ScenarioError for an archive that is damaged, too large or
    names files outside of it."""
    name = printable(str(path), 200)
    with TemporaryDirectory(prefix="whatif-bundle-") as temporary:
        try:
            with zipfile.ZipFile(path) as archive:
                infos = archive.infolist()
                if sum(info.file_size for info in infos) > MAX_BUNDLE:
                    raise ScenarioError([f"{name}: larger than {MAX_BUNDLE >> 30} GiB when unpacked"])
                if BUNDLE not in archive.namelist():
                    raise ScenarioError([f"{name}: holds no {BUNDLE}, so is no bundle of `whatif doctor --run`"])
                archive.extractall(temporary)  # takes the names below the folder, whatever they are
        except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError, ValueError) as error:
            raise ScenarioError([f"{name}: a damaged archive: {printable(str(error), 100)}"]) from None
        yield Path(temporary)


def _of_result(document: dict[str, Any], hardware: str, source: str) -> Adopted:
    try:
        if document.get("kind") == "experiment":
            return of_experiment(document, hardware, source)
        return of_run(document, hardware, source)
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # pydantic's errors are ValueErrors
        what = printable(str(error).partition("\n")[0], 100)
        return Adopted({}, (f"{printable(source, 120)}: no result of this version ({what})",))


def _of_profile(folder: Path, hardware: str, source: str) -> Adopted:
    try:
        return of_profile(read_captures(str(folder)).captures, hardware, source)
    except ScenarioError as error:
        return Adopted({}, (error.messages[0].replace(f"{folder.parent}{os.sep}", ""),))


def _result(path: Path) -> dict[str, Any] | None:
    """A result of this program, None for any other JSON."""
    if path.stat().st_size > MAX_RESULT:
        return None
    document = _json(path, str(path))
    known = isinstance(document, dict) and "schema_version" in document
    return document if known and ("scenario" in document or document.get("kind") == "experiment") else None


def _json(path: Path, name: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ScenarioError([f"{printable(name, 200)}: not JSON: {printable(str(error), 100)}"]) from None


def _machine(document: dict[str, Any]) -> str:
    machine = document.get("machine") or {}
    facts = [f"{key} {machine[key]}" for key in ("tool", "cann", "driver", "firmware", "cpu") if machine.get(key)]
    packages = [f"{key} {value}" for key, value in (machine.get("packages") or {}).items()]
    return printable(", ".join([*facts, *packages]), 300)


def _csv(columns: tuple[str, ...], rows: Any) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    row: Row
    for row in rows:
        writer.writerow({key: " ".join(str(row.get(key, "")).split()) for key in columns})
    return text.getvalue()


def pack(folder: Path, out: Path) -> None:
    """Pack a bundle's folder as `out`, whole or not at all."""
    partial = out.with_name(f".{out.name}.{os.getpid()}.partial")
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(p for p in folder.rglob("*") if p.is_file()):
                archive.write(file, file.relative_to(folder).as_posix())
        os.replace(partial, out)
    except OSError as error:
        why = error.strerror or str(error)
        raise ScenarioError([f"--out {printable(str(out), 200)}: cannot be written: {why.lower()}"]) from None
    finally:
        partial.unlink(missing_ok=True)
