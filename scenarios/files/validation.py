"""A document against a pydantic model: every error at once, each with its place, in words for people."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from scenarios.errors import ScenarioError
from scenarios.files.document import Document, Mark, Path, dotted
from scenarios.files.model_walk import slots_at
from scenarios.files.wording import DUE, Finding, describe, unknown_key
from scenarios.records import dataclass

M = TypeVar("M", bound=BaseModel)

#: Errors that are reported at once.
MAX_ERRORS = 50


def validate(document: Document, model: type[M], extra_keys: Sequence[str] = ()) -> M:
    """The document as a `model`.

    Types are strict (text is never read as a number, nor true as 1), except that a whole number may stand where a
    float is due. extra_keys: keys that the caller takes from the top level itself; messages name them among the known
    ones. Raises ScenarioError with all errors in the order of their places.
    """
    try:
        # By way of JSON, because pydantic's strict mode takes a list for a tuple only there.
        return model.model_validate_json(json.dumps(document.data), strict=True)
    except ValidationError as invalid:
        errors = [_read(document, e) for e in invalid.errors(include_url=False, include_input=False)]
    errors = _narrowed(errors)
    order = {source: rank for rank, source in enumerate(document.sources)}
    errors.sort(key=lambda e: (order.get(e.mark.source, len(order)), e.mark.line, e.mark.column))
    lines = [_line(document, model, extra_keys, e) for e in errors[:MAX_ERRORS]]
    if len(errors) > MAX_ERRORS:
        lines.append(f"{Mark(document.name)}: and {len(errors) - MAX_ERRORS} more errors")
    raise ScenarioError(dict.fromkeys(lines))


@dataclass(frozen=True, slots=True)
class _Error:
    """A pydantic error and its place. branch: where a union stands, and which of its members the error comes from."""

    type: str
    context: Mapping[str, Any]
    message: str
    path: Path
    mark: Mark
    branch: tuple[Path, str] | None = None


def _read(document: Document, error: Any) -> _Error:
    """Follow pydantic's location through the document: what the document does not have names a member of a union."""
    node = document.root
    path: Path = ()
    branch: tuple[Path, str] | None = None
    location, missing = error["loc"], error["type"] == "missing"
    for key in location[:-1] if missing else location:
        child = node.child(key)
        if child is None:
            branch = branch or (path, str(key))
        else:
            node, path = child, (*path, key)
    mark = document.key_mark(path) if missing or error["type"] == "extra_forbidden" else node.mark
    if missing:
        path = (*path, location[-1])
    return _Error(error["type"], error.get("ctx", {}), error["msg"], path, mark, branch)


def _narrowed(errors: list[_Error]) -> list[_Error]:
    """One story for each union: that of the member whose shape the value has, or what all its members want."""
    kept = [e for e in errors if e.branch is None]
    unions: dict[Path, dict[str, list[_Error]]] = defaultdict(lambda: defaultdict(list))
    for error in errors:
        if error.branch:
            unions[error.branch[0]][error.branch[1]].append(error)
    for path, members in unions.items():
        shaped = [group for group in members.values() if not any(_other_type(e, path) for e in group)]
        if shaped:
            nearest: list[_Error] = min(shaped, key=len)
            kept += nearest
        else:
            everything = [e for group in members.values() for e in group if _other_type(e, path)]
            due = " or ".join(dict.fromkeys(DUE[e.type] for e in everything if e.type in DUE))
            kept.append(_Error("union", {"due": due}, "", path, everything[0].mark))
    return kept


def _other_type(error: _Error, path: Path) -> bool:
    """Whether the value at `path` is of the wrong type altogether for this member."""
    return error.path == path and (error.type in DUE or error.type == "literal_error")


def _line(document: Document, model: type[BaseModel], extra_keys: Sequence[str], error: _Error) -> str:
    if error.type == "extra_forbidden":
        what = unknown_key(model, error.path, extra_keys)
    else:
        node = document.find(error.path)
        value = node.data() if node else None
        what = describe(
            Finding(error.type, error.context, error.message, error.path, value, slots_at(model, error.path))
        )
    return f"{error.mark}: {dotted(error.path)}: {what}" if error.path else f"{error.mark}: {what}"
