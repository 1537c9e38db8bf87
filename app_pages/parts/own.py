"""The reader's own files: a scenario, a model's config.json, a hardware or an engine profile, wherever a shipped name
can be chosen.

A file is kept under a digest of its content in a folder of this process, which is gone when the process ends; a
question names it `own:DIGEST/NAME`. Who has the link can ask about it while the lab runs; no other file of the machine
can be named.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import streamlit as st

from scenarios.errors import ScenarioError, printable, quoted
from scenarios.files.yaml12 import load_document
from scenarios.loader import load_scenario
from scenarios.models.hf_config import load_model, model_names
from scenarios.schema import Scenario
from sim.engines.profile import EngineFile, engine_names, load_engine
from sim.hardware.profile import ALIASES, ProfileFile, hardware_names, load_hardware

Kind = Literal["scenario", "model", "hardware", "engine"]
MARK = "own:"
#: Largest file, bytes, of what lies next to it (the formats of a checkpoint's weights, one a tensor); and the most that
#: one process keeps.
MAX_BYTES, MAX_NEXT_BYTES, MAX_FILES = 4_000_000, 64_000_000, 200
#: What is said of a file that another one names: no file of this machine is read.
LEFT_OUT = "does not ship, and was not dropped with it"
#: Longest chain of files that extend one another.
MAX_EXTENDS = 8
#: Files of this session, newest last.
MINE = "kept:own"
_REF = re.compile(r"own:[0-9a-f]{12}/[\w.\- ]{1,80}")
#: What a name loses: settings are separated by blanks, and a name stands in them.
_UNSAFE = re.compile(r"[^\w.\-]")
_FIELDS = {
    name: frozenset(form.model_fields)
    for name, form in (("hardware", ProfileFile), ("engine", EngineFile), ("scenario", Scenario))
}
#: Top-level keys that only one kind of file has.
_KEYS: dict[Kind, frozenset[str]] = {
    "hardware": _FIELDS["hardware"] - _FIELDS["engine"] - _FIELDS["scenario"],
    "engine": _FIELDS["engine"] - _FIELDS["hardware"] - _FIELDS["scenario"],
    "scenario": _FIELDS["scenario"] - {"description"},
}


@dataclass(frozen=True, slots=True)
class Own:
    """One kept file. ref: as a question names it. name: as the reader called it."""

    kind: Kind
    ref: str
    name: str


def _read_scenario(place: Path) -> None:
    """Raises ScenarioError where a scenario is refused, or names a file that was not dropped with it."""
    scenario = load_scenario(place).scenario
    shipped = {"model": model_names(), "hardware": [*hardware_names(), *ALIASES], "engine.profile": engine_names()}
    named = {"model": scenario.model, "hardware": scenario.hardware, "engine.profile": scenario.engine.profile or ""}
    for field, value in named.items():
        ships = not value or value.lower() in map(str.lower, shipped[field])
        if not ships and not _lies_below(place.parent, value):
            raise ScenarioError([f"{place.name}: {field}: {quoted(value)} {LEFT_OUT}"])


def _lies_below(folder: Path, name: str) -> bool:
    try:
        target = (folder / name).resolve()
        return target.exists() and target.is_relative_to(folder.resolve())
    except (OSError, ValueError):  # a name too long, a NUL in it
        return False


@dataclass(frozen=True, slots=True)
class _Form:
    """A kind of file. read: reads it as the question will, or raises ScenarioError. inside: what it is called in a
    folder of its name; empty where it has no folder."""

    read: Callable[[Path], object]
    inside: str = ""


_FORMS: dict[Kind, _Form] = {
    "scenario": _Form(_read_scenario),
    "model": _Form(lambda place: load_model(str(place)), "config.json"),
    "hardware": _Form(lambda place: load_hardware(str(place))),
    "engine": _Form(lambda place: load_engine(str(place))),
}


#: The settings that name a file, its kind, and what ships of it.
_TAKES: dict[str, tuple[Kind, Callable[[], list[str]]]] = {
    "model": ("model", model_names),
    "hardware": ("hardware", hardware_names),
    "engine.profile": ("engine", engine_names),
}


@lru_cache(maxsize=1)
def _root() -> Path:
    """The folder of this process's files."""
    folder = Path(tempfile.mkdtemp(prefix="whatif-own-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def add(name: str, data: bytes, next_to: Mapping[str, bytes] | None = None, folder: str = "") -> Own:
    """Keep a file, after the loader that is for it has read it. next_to: what it needs besides itself, by its place
    below the file's folder. folder: what that folder is called, which is a model's name. Raises ScenarioError as the
    command line would, in the file's own name."""
    others = dict(sorted((next_to or {}).items()))
    if len(data) > MAX_BYTES:
        raise ScenarioError([f"{printable(name, 80)}: larger than {MAX_BYTES:,} bytes"])
    if sum(map(len, others.values())) > MAX_NEXT_BYTES:
        raise ScenarioError([f"{printable(name, 80)}: with more than {MAX_NEXT_BYTES:,} bytes next to it"])
    name = _safe(os.path.basename(name.replace("\\", "/"))) or "file"
    kind, called = _kind_of(name, data, others, _safe(folder))
    digest = sha256(data + b"".join(sha256(key.encode() + value).digest() for key, value in others.items()))
    ref = f"{MARK}{digest.hexdigest()[:12]}/{called}"
    if path_of(ref) is None:
        _keep(kind, ref, data, others)
    own = Own(kind, ref, called)
    if own not in mine():
        st.session_state[MINE] = [*mine(), own]
    return own


def _safe(name: str) -> str:
    return _UNSAFE.sub("_", name).lstrip(".")[:80]


def _keep(kind: Kind, ref: str, data: bytes, others: Mapping[str, bytes]) -> None:
    """Write a file, and what it needs, below a folder of its own; nothing stays of what cannot be read."""
    top = _root() / ref.removeprefix(MARK).partition("/")[0]
    if len(list(_root().iterdir())) >= MAX_FILES:
        raise ScenarioError([f"{plain(ref)}: this lab keeps {MAX_FILES} files already; start it again"])
    place = _root() / ref.removeprefix(MARK) / _FORMS[kind].inside
    for path, content in [(place, data), *((place.parent / key, value) for key, value in others.items())]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    try:
        _FORMS[kind].read(_root() / ref.removeprefix(MARK))
    except ScenarioError as error:
        shutil.rmtree(top, ignore_errors=True)
        raise ScenarioError(map(plain, error.messages)) from None


def _kind_of(name: str, data: bytes, others: Mapping[str, bytes], folder: str) -> tuple[Kind, str]:
    """What a file is by its content, and how it is called: a model by itself, all else by its file."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ScenarioError([f"{name}: no text in UTF-8"]) from None
    if text.lstrip().startswith("{"):
        return "model", _model_name(name, text, folder)
    kind = _kind_of_yaml(name, text, others)
    if kind is not None:
        return kind, name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"
    raise ScenarioError(
        [f"{name}: neither a scenario, a hardware or engine profile (YAML) nor a model's config.json (JSON)"]
    )


def _kind_of_yaml(name: str, text: str, others: Mapping[str, bytes], depth: int = 0) -> Kind | None:
    """By the keys that one kind has alone; a profile that has none of them is of the kind that it extends."""
    value: Any = load_document(text, name).root.data()
    keys = set(value) if isinstance(value, dict) else set()
    base = str(PurePosixPath(str(value.get("extends") or ""))) if keys and value.get("extends") else ""
    if kind := next((kind for kind, own in _KEYS.items() if keys & own), None):
        known = {"hardware": [*hardware_names(), *ALIASES], "engine": engine_names()}.get(kind)
        if base and known is not None and base not in known and base not in others:
            raise ScenarioError([f"{name}: extends: {quoted(base)} {LEFT_OUT}"])
        return kind
    if base in (*hardware_names(), *ALIASES):
        return "hardware"
    if base in engine_names():
        return "engine"
    if base in others and depth < MAX_EXTENDS:
        return _kind_of_yaml(base, others[base].decode("utf-8", "replace"), others, depth + 1)
    return "scenario" if base else None


def _model_name(name: str, text: str, folder: str) -> str:
    try:
        config = json.loads(text)
    except RecursionError:
        raise ScenarioError([f"{name}: not JSON: nested too deep"]) from None
    except ValueError as error:
        line, column = getattr(error, "lineno", 1), getattr(error, "colno", 1)
        raise ScenarioError([f"{name}:{line}:{column}: not JSON"]) from None
    if "step" in config and "kernels" in config:
        raise ScenarioError([f"{name}: a result of whatif run --json; the pages Measure and Compare open it"])
    if folder:
        return folder[:60]
    stem = name.removesuffix(".json")
    called = str(config.get("_name_or_path") or "").rstrip("/").rpartition("/")[2]
    return _UNSAFE.sub("_", called or (stem if stem != "config" else str(config.get("model_type") or "model")))[:60]


def mine() -> list[Own]:
    """The files of this session."""
    kept: list[Own] = st.session_state.get(MINE, [])
    return kept


def refs(kind: Kind) -> list[str]:
    """What this session can choose next to the shipped names of a kind."""
    return [own.ref for own in mine() if own.kind == kind]


def named(field: str, value: str) -> str:
    """A value of a setting as the reader wrote it: the newest file of this session that is called so, where the setting
    takes its kind and nothing that ships has the name; else the value."""
    kind, shipped = _TAKES.get(field, (None, list))
    if kind is None or value in shipped():
        return value
    return next((own.ref for own in reversed(mine()) if (own.kind, own.name) == (kind, value)), value)


def adopted(field: str, value: str) -> str:
    """The reverse of `named`, for a link that somebody else was given: a file that this process keeps becomes one of
    this session's, and is called by its name."""
    kind, _ = _TAKES.get(field, (None, list))
    if kind is None or path_of(value) is None:
        return value
    own = Own(kind, value, plain(value))
    if own not in mine():
        st.session_state[MINE] = [*mine(), own]
    return own.name


def path_of(ref: str) -> Path | None:
    """The file or folder of a reference, None where this process keeps none."""
    if not _REF.fullmatch(ref):
        return None
    place = _root() / ref.removeprefix(MARK)
    return place if place.exists() else None


def resolved(value: str) -> str:
    """A value of a setting, a reference as its path. Raises ScenarioError where it is kept no more."""
    if not value.startswith(MARK):
        return value
    path = path_of(value)
    if path is None:
        raise ScenarioError([f"{printable(value, 100)}: this lab keeps no such file; drop it again"])
    return str(path)


def reference(value: Any) -> Any:
    """The reverse of `resolved`: a path below this process's folder as a reference."""
    if isinstance(value, str) and value.startswith(f"{_root()}{os.sep}"):
        return MARK + value.removeprefix(f"{_root()}{os.sep}")
    return value


def plain(text: str) -> str:
    """A text for people: without the folder of this process, and without digests."""
    root = re.escape(str(_root()))
    inside = re.sub(rf"{root}/[0-9a-f]{{12}}/", "", text)
    return re.sub(r"own:[0-9a-f]{12}/", "", re.sub(rf"{root}(/[0-9a-f]{{12}})?", ".", inside))


def plain_all(texts: Iterable[str]) -> list[str]:
    return [plain(text) for text in texts]
