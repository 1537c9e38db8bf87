"""Strict YAML 1.2: text to a `Document`, with the place of every key and value.

PyYAML parses (its C parser where it has one) but only as far as events: what a plain word means is decided here by the
YAML 1.2 core schema, because PyYAML's own YAML 1.1 rules read `on` as true, `012` as 10, `12:30` as 750 and `1e9` as
text. The composer is ours too, because only it can count what aliases expand to before they expand.

Refused, each with its place: duplicate keys, keys that are not text, merge keys, tags outside the core schema, numbers
that are not finite or beyond 64 bits, control characters, a second document, and whatever is over the budgets below.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any

import yaml

from scenarios.errors import ScenarioError, printable, quoted
from scenarios.files.document import Document, Entry, Mark, Node, Path, Scalar, dotted
from scenarios.files.textfile import FORBIDDEN, MAX_BYTES, check_text, decode, read_bytes
from scenarios.files.yaml_scalars import resolve_scalar

#: Nodes, aliases expanded. A scalar counts one more for each 64 characters, so long texts do not multiply either.
MAX_NODES = 50_000
MAX_DEPTH = 32
#: Problems that are reported at once.
MAX_PROBLEMS = 50

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS: dict[str, tuple[type, ...]] = {
    f"{_TAG}null": (type(None),),
    f"{_TAG}bool": (bool,),
    f"{_TAG}int": (int,),
    f"{_TAG}float": (float, int),
}


def load_document(text: str, name: str) -> Document:
    """Parse one YAML document whose top level is a mapping.

    name: the file as messages print it. Raises ScenarioError with every problem found; a syntax error or a budget that
    is exceeded ends the search.
    """
    return _parsed(text, name)


@lru_cache(maxsize=32)  # points of a sweep lie over the same files
def _parsed(text: str, name: str) -> Document:
    check_text(text, name)
    root = _Composer(text, name).document()
    if not isinstance(root.value, dict):
        what = "is empty" if root.value is None else f"the top level is {_kind(root)}"
        raise ScenarioError([f"{root.mark}: {what}: it must be a mapping of keys to values"])
    return Document(name, root, (name,))


def load_value(text: str, name: str) -> Node:
    """The value of a setting on the command line: a plain scalar, or flow syntax (`[1, 2]`, `{a: 1}`, `"text"`).

    Whatever does not start with a bracket or a quote is one plain scalar to its end, so a path such as `C:\\models #1`
    stays whole. name: the setting as messages print it, in place of file, line and column. Raises ScenarioError.
    """
    text = text.strip()
    mark = Mark(name)
    if FORBIDDEN.search(text):
        raise ScenarioError([f"{mark}: control characters are not allowed"])
    if len(text) > MAX_BYTES:
        raise ScenarioError([f"{mark}: larger than {MAX_BYTES} bytes"])
    if text[:1] in ("[", "{", '"', "'"):
        return _Composer(text, name, has_lines=False).document()
    try:
        return Node(mark, resolve_scalar(text))
    except ValueError as error:
        raise ScenarioError([f"{mark}: {error}"]) from None


def read_document(path: FilePath, name: str = "") -> Document:
    """`load_document` of a file; name defaults to the path. Raises ScenarioError also where the file cannot be read."""
    name = name or str(path)
    return load_document(decode(read_bytes(path, name), name), name)


def _kind(node: Node) -> str:
    if isinstance(node.value, dict | tuple):
        return "a mapping" if isinstance(node.value, dict) else "a list"
    return "a single value"


def _weight(text: str) -> int:
    return 1 + len(text) // 64


class _Composer:
    """Events to nodes, under the budgets. Problems that leave the structure readable are raised together at the end."""

    def __init__(self, text: str, name: str, has_lines: bool = True) -> None:
        self.name = name
        self.has_lines = has_lines
        self.events: Iterator[Any] = yaml.parse(text, Loader=_Loader)
        self.anchors: dict[str, Node | None] = {}  # None while the anchored value is still open
        self.weight = 0
        self.problems: list[str] = []

    def document(self) -> Node:
        """The one document of the stream; a null where the stream is empty. Raises ScenarioError."""
        root = Node(self.mark(None), None)
        seen = False
        for event in self._guarded():
            if isinstance(event, yaml.DocumentStartEvent) and seen:
                raise ScenarioError([f"{self.mark(event)}: a second document begins; one file holds one document"])
            if isinstance(event, yaml.NodeEvent):
                root, seen = self.node(event, (), 0), True
        if self.problems:
            raise ScenarioError(self.problems[:MAX_PROBLEMS])
        return root

    def _guarded(self) -> Iterator[Any]:
        try:
            yield from self.events
        except yaml.YAMLError as error:
            raise ScenarioError([self._syntax(error)]) from None

    def advance(self) -> Any:
        try:
            return next(self.events)
        except yaml.YAMLError as error:
            raise ScenarioError([self._syntax(error)]) from None

    def _syntax(self, error: yaml.YAMLError) -> str:
        place = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable")
        if "nesting depth" in problem:  # the C scanner's own limit, met while it looks ahead
            problem = f"nested deeper than {MAX_DEPTH} levels"
        context = getattr(error, "context", None)
        begun = getattr(error, "context_mark", None)
        text = f"not valid YAML: {problem}"
        if context:
            text += f" {context}"
            if begun and self.has_lines and place and begun.line != place.line:
                text += f" that begins at line {begun.line + 1}"
        if "cannot start any token" in problem:
            text += "; indent with spaces, not tabs, and quote a text that begins with a special character"
        mark = Mark(self.name, place.line + 1, place.column + 1) if place and self.has_lines else Mark(self.name)
        return f"{mark}: {printable(text, 300)}"

    def mark(self, event: Any) -> Mark:
        if event is None or not self.has_lines:
            return Mark(self.name)
        return Mark(self.name, event.start_mark.line + 1, event.start_mark.column + 1)

    def problem(self, mark: Mark, path: Path, what: str) -> None:
        self.problems.append(f"{mark}: {dotted(path)}: {what}" if path else f"{mark}: {what}")

    def spend(self, mark: Mark, weight: int) -> None:
        self.weight += weight
        if self.weight > MAX_NODES:
            raise ScenarioError([f"{mark}: more than {MAX_NODES} values, aliases expanded"])

    def node(self, event: Any, path: Path, depth: int) -> Node:
        """The node that starts with `event`, all its events consumed."""
        mark = self.mark(event)
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, mark, path, depth)
        if isinstance(event, yaml.ScalarEvent):
            node = Node(mark, self.scalar(event, mark, path), _weight(event.value))
            self.spend(mark, node.weight)
        else:
            if depth == MAX_DEPTH:
                raise ScenarioError([f"{mark}: nested deeper than {MAX_DEPTH} levels"])
            self.spend(mark, 1)
            if event.anchor:
                self.anchors[event.anchor] = None
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            self.check_collection_tag(event, mark, path, "map" if is_mapping else "seq")
            node = self.mapping(mark, path, depth) if is_mapping else self.sequence(mark, path, depth)
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def alias(self, event: Any, mark: Mark, path: Path, depth: int) -> Node:
        name = quoted(event.anchor)
        if event.anchor not in self.anchors:
            raise ScenarioError([f"{mark}: {dotted(path)}: no anchor {name} stands above this alias"])
        node = self.anchors[event.anchor]
        if node is None:
            raise ScenarioError([f"{mark}: {dotted(path)}: alias {name} contains itself"])
        if depth + node.height > MAX_DEPTH:
            raise ScenarioError([f"{mark}: nested deeper than {MAX_DEPTH} levels, aliases expanded"])
        self.spend(mark, node.weight)
        return Node(mark, node.value, node.weight, node.height)

    def mapping(self, mark: Mark, path: Path, depth: int) -> Node:
        entries: dict[str, Entry] = {}
        weight, height = 1, 0
        while not isinstance(event := self.advance(), yaml.MappingEndEvent):
            key = self.key(event, path)
            key_mark = self.mark(event)
            if key is None:  # not a scalar: its events must be consumed all the same
                self.node(event, path, depth + 1)
                key = ""
            elif key in entries:
                first = entries[key].key.line
                what = f"duplicate key {quoted(key)}" + (f", first given at line {first}" if first else "")
                self.problem(key_mark, (*path, key), what)
            node = self.node(self.advance(), (*path, key), depth + 1)
            entries.setdefault(key, Entry(key_mark, node))
            # A key weighs as a value does: a long one multiplies through aliases just the same.
            weight, height = weight + _weight(key) + node.weight, max(height, node.height)
        return Node(mark, entries, weight, height + 1)

    def key(self, event: Any, path: Path) -> str | None:
        """The key's text; None where it is not a scalar. What is wrong with it goes to the problems."""
        mark = self.mark(event)
        if not isinstance(event, yaml.ScalarEvent):
            self.problem(mark, path, "a key must be plain text, not a list, a mapping or an alias")
            return None
        self.spend(mark, _weight(event.value))
        text = str(event.value)
        if event.anchor:
            self.problem(mark, path, "a key cannot carry an anchor")
        if not event.style and event.tag is None and text == "<<":
            self.problem(mark, path, "merge keys (<<) are not supported; write the keys out")
            return text
        if not isinstance(self.scalar(event, mark, path), str):
            what = f"key {text} is not text; put it in quotes" if text else "a key is missing before ':'"
            self.problem(mark, path, what)
        return text

    def sequence(self, mark: Mark, path: Path, depth: int) -> Node:
        nodes: list[Node] = []
        weight, height = 1, 0
        while not isinstance(event := self.advance(), yaml.SequenceEndEvent):
            node = self.node(event, (*path, len(nodes)), depth + 1)
            nodes.append(node)
            weight, height = weight + node.weight, max(height, node.height)
        return Node(mark, tuple(nodes), weight, height + 1)

    def scalar(self, event: Any, mark: Mark, path: Path) -> Scalar:
        text = str(event.value)
        tag = event.tag
        if FORBIDDEN.search(text):  # by an escape such as "\0"
            self.problem(mark, path, "control characters are not allowed")
        if tag in ("!", f"{_TAG}str") or (event.style and tag is None):
            return text
        if tag is not None and tag not in _SCALAR_TAGS:
            self.problem(mark, path, f"tag {quoted(tag)} is not supported; write a plain value")
            return text
        try:
            value = resolve_scalar(text)
        except ValueError as error:
            self.problem(mark, path, str(error))
            return text
        if tag is not None and type(value) not in _SCALAR_TAGS[tag]:
            self.problem(mark, path, f"{quoted(text)} is not a value of tag {quoted(tag)}")
        return value

    def check_collection_tag(self, event: Any, mark: Mark, path: Path, kind: str) -> None:
        if event.tag not in (None, "!", f"{_TAG}{kind}"):
            self.problem(mark, path, f"tag {quoted(event.tag)} is not supported; write a plain value")
