"""A parsed document that remembers where each key and value stands, and documents laid over one another.

A node carries its own source, so a document may be composed of several files and command-line settings and every later
error still points to the place that must be changed.
"""

from __future__ import annotations

import re
from dataclasses import field

from scenarios.errors import printable
from scenarios.records import dataclass

Scalar = str | int | float | bool | None
Data = Scalar | dict[str, "Data"] | list["Data"]
Path = tuple[str | int, ...]

#: Largest length of a source's name in a message, characters.
MAX_SOURCE = 200


@dataclass(frozen=True, slots=True)
class Mark:
    """A place: 1-based line and column of a file, or line 0 where the source has no lines (a `--set`)."""

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        source = printable(self.source, MAX_SOURCE)
        return f"{source}:{self.line}:{self.column}" if self.line else source


@dataclass(frozen=True, slots=True)
class Node:
    """A value and its place. weight: nodes in it with aliases expanded, itself included. height: levels beneath it."""

    mark: Mark
    value: Scalar | dict[str, Entry] | tuple[Node, ...]
    weight: int = 1
    height: int = 0

    def data(self) -> Data:
        """The value as plain dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {key: entry.node.data() for key, entry in self.value.items()}
        if isinstance(self.value, tuple):
            return [node.data() for node in self.value]
        return self.value

    def child(self, key: str | int) -> Node | None:
        """The value under a mapping's key or at a list's index; None where there is none."""
        if isinstance(self.value, dict):
            entry = self.value.get(key) if isinstance(key, str) else None
            return entry.node if entry else None
        if isinstance(self.value, tuple) and isinstance(key, int) and 0 <= key < len(self.value):
            return self.value[key]
        return None


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a mapping: where the key stands, and its value."""

    key: Mark
    node: Node


@dataclass(frozen=True, slots=True)
class Document:
    """A whole document. name: its file. sources: all files and settings it is composed of, in order of reading."""

    name: str
    root: Node
    sources: tuple[str, ...] = field(default=())

    @property
    def data(self) -> Data:
        return self.root.data()

    def find(self, path: Path) -> Node | None:
        """The value at `path`, or None where the document does not give it."""
        node: Node | None = self.root
        for key in path:
            node = node.child(key) if node else None
        return node

    def mark(self, path: Path) -> Mark:
        """Where the value at `path` stands; where it is absent, its nearest ancestor that is there."""
        node = self.root
        for key in path:
            child = node.child(key)
            if child is None:
                break
            node = child
        return node.mark

    def key_mark(self, path: Path) -> Mark:
        """Where the last key of `path` stands; its value's place in a list, its nearest ancestor's where absent."""
        parent = self.find(path[:-1]) if path else None
        if parent and isinstance(parent.value, dict) and path[-1] in parent.value:
            return parent.value[str(path[-1])].key
        return self.mark(path)


def merge(base: Node, over: Node) -> Node:
    """`over` laid on `base`: mappings merge key by key, anything else replaces.

    A null over a scalar or a list takes the key away, so a field goes back to its default; over a mapping it stays and
    is refused later, because an emptied section is more often an accident than a wish. A section of a file stays where
    the file has it, whatever a `--set` adds to it.
    """
    if not isinstance(base.value, dict) or not isinstance(over.value, dict):
        return over
    merged = dict(base.value)
    for key, entry in over.value.items():
        below = merged.get(key)
        if below is None:
            merged[key] = entry
        elif entry.node.value is None and not isinstance(below.node.value, dict):
            del merged[key]
        else:
            merged[key] = Entry(entry.key, merge(below.node, entry.node))
    return Node(over.mark if over.mark.line or not base.mark.line else base.mark, merged)


_STEP = re.compile(r"\[(\d+)\]|([^.\[]+)")


def parse_path(where: str) -> Path:
    """`engine.cudagraph_capture_sizes[2]` -> ("engine", "cudagraph_capture_sizes", 2)."""
    return tuple(int(index) if index else key for index, key in _STEP.findall(where))


def dotted(path: Path) -> str:
    """The path as messages print it, the inverse of `parse_path` for keys that are plain words."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        else:
            text += ("." if text else "") + (printable(key) or "''")
    return text
