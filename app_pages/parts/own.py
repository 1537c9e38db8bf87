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
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import streamlit as st

from scenarios.errors import ScenarioError, printable
from scenarios.files.yaml12 import load_document
from scenarios.loader import load_scenario
from scenarios.models.hf_config import load_model
from scenarios.schema import Scenario
from sim.engines.profile import EngineFile, load_engine
from sim.hardware.profile import ProfileFile, load_hardware

Kind = Literal["scenario", "model", "hardware", "engine"]
MARK = "own:"
#: Largest file, bytes; and the most that one process keeps.
MAX_BYTES, MAX_FILES = 4_000_000, 200
#: Files of this session, newest last.
MINE = "kept:own"
_REF = re.compile(r"own:[0-9a-f]{12}/[\w.\- ]{1,80}")
_UNSAFE = re.compile(r"[^\w.\- ]")
_FIELDS = {
    name: frozenset(form.model_fields)
    for name, form in (("hardware", ProfileFile), ("engine", EngineFile), ("scenario", Scenario))
}
#: Top-level keys that only one kind of file has.
_KEYS: dict[Kind, frozenset[str]] = {
    "hardware": _FIELDS["hardware"] - _FIELDS["engine"] - _FIELDS["scenario"],
    "engine": _FIELDS["engine"] - _FIELDS["hardware"] - _FIELDS["scenario"],
    "scenario": _FIELDS["scenario"] - {"description"} | {"extends"},
}


@dataclass(frozen=True, slots=True)
class Own:
    """One kept file. ref: as a question names it. name: as the reader called it."""

    kind: Kind
    ref: str
    name: str


@dataclass(frozen=True, slots=True)
class _Form:
    """A kind of file. read: reads it as the question will, or raises ScenarioError. inside: what it is called in a
    folder of its name; empty where it has no folder."""

    read: Callable[[Path], object]
    inside: str = ""


_FORMS: dict[Kind, _Form] = {
    "scenario": _Form(load_scenario),
    "model": _Form(lambda place: load_model(str(place)), "config.json"),
    "hardware": _Form(lambda place: load_hardware(str(place))),
    "engine": _Form(lambda place: load_engine(str(place))),
}


@lru_cache(maxsize=1)
def _root() -> Path:
    """The folder of this process's files."""
    folder = Path(tempfile.mkdtemp(prefix="whatif-own-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def add(name: str, data: bytes) -> Own:
    """Keep a file, after the loader that is for it has read it. Raises ScenarioError as the command line would, in the
    file's own name."""
    if len(data) > MAX_BYTES:
        raise ScenarioError([f"{printable(name, 80)}: larger than {MAX_BYTES:,} bytes"])
    name = _UNSAFE.sub("_", os.path.basename(name.replace("\\", "/"))).lstrip(".")[:80] or "file"
    kind, called = _kind_of(name, data)
    digest = sha256(data).hexdigest()[:12]
    folder = _root() / digest
    ref = f"{MARK}{digest}/{called}"
    if path_of(ref) is None:
        if len(list(_root().iterdir())) >= MAX_FILES:
            raise ScenarioError([f"{name}: this lab keeps {MAX_FILES} files already; start it again"])
        place = folder / called / _FORMS[kind].inside
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        try:
            _FORMS[kind].read(folder / called)
        except ScenarioError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise ScenarioError(map(plain, error.messages)) from None
    own = Own(kind, ref, called)
    if own not in mine():
        st.session_state[MINE] = [*mine(), own]
    return own


def _kind_of(name: str, data: bytes) -> tuple[Kind, str]:
    """What a file is by its content, and how it is called: a model by itself, all else by its file."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ScenarioError([f"{name}: no text in UTF-8"]) from None
    if text.lstrip().startswith("{"):
        return "model", _model_name(name, text)
    keys = _keys(name, text)
    named = name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"
    for kind, own in _KEYS.items():
        if keys & own:
            return kind, named
    raise ScenarioError(
        [f"{name}: neither a scenario, a hardware or engine profile (YAML) nor a model's config.json (JSON)"]
    )


def _keys(name: str, text: str) -> set[str]:
    value: Any = load_document(text, name).root.data()
    return set(value) if isinstance(value, dict) else set()


def _model_name(name: str, text: str) -> str:
    try:
        config = json.loads(text)
    except ValueError as error:
        line, column = getattr(error, "lineno", 1), getattr(error, "colno", 1)
        raise ScenarioError([f"{name}:{line}:{column}: not JSON"]) from None
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
    return re.sub(r"own:[0-9a-f]{12}/", "", re.sub(rf"{re.escape(str(_root()))}/[0-9a-f]{{12}}/", "", text))


def plain_all(texts: Iterable[str]) -> list[str]:
    return [plain(text) for text in texts]
