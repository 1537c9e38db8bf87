"""A scenario file, the files it extends and the settings laid on it: one `Scenario`, and the place of each value."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import field, replace
from functools import lru_cache
from pathlib import Path

from scenarios.checks import check
from scenarios.errors import ScenarioError, did_you_mean, quoted, shown
from scenarios.files.document import Document, Entry, Mark, Node, merge, parse_path
from scenarios.files.paths import listed
from scenarios.files.textfile import FORBIDDEN
from scenarios.files.validation import validate
from scenarios.files.yaml12 import MAX_DEPTH, load_document, load_value, read_document
from scenarios.records import dataclass
from scenarios.schema import Scenario

#: The folder of the scenarios that come with the package.
SHIPPED = Path(__file__).parent
#: Files in one chain of `extends`, the first included.
MAX_CHAIN = 8
EXTENDS = "extends"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A scenario with the document it was read from. path: its file. name: the file's name without its ending."""

    scenario: Scenario
    document: Document
    path: Path
    name: str


@dataclass(frozen=True, slots=True)
class Base:
    """A scenario file composed with those it extends, not validated yet. sources: the files; problems: with them."""

    root: Node
    file: Path
    sources: tuple[str, ...]
    problems: tuple[str, ...]


def load_scenario(path: str | Path, sets: Sequence[str] = (), *, shipped: Path = SHIPPED) -> Loaded:
    """Read, compose, validate and check one scenario.

    path: a file, or the name of a shipped scenario. sets: `key=value` settings with dotted keys, laid on the file in
    their order; null puts a field back to its default. shipped: the folder of shipped scenarios. Raises ScenarioError
    with all problems at once, each with its place.
    """
    return with_settings(read_base(path, shipped=shipped), sets)


def read_base(path: str | Path, *, shipped: Path = SHIPPED) -> Base:
    """What `load_scenario` reads before it lays settings on it, for many settings of one file."""
    file = _find(str(path), shipped)
    reader = _Reader(shipped, (file.parent, shipped))
    root = reader.read(file, ())
    return Base(root, file, tuple(reader.sources), tuple(reader.problems))


def with_settings(base: Base, sets: Sequence[str]) -> Loaded:
    """The scenario of `base` with `key=value` settings, as `load_scenario` says."""
    return _finish(base.root, base.file, sets, [*base.sources], [*base.problems])


def shape_problems(base: Base, sets: Sequence[str]) -> tuple[str, ...]:
    """What is wrong with the keys and the types of `base` with settings: what no other setting makes right."""
    try:
        _validated(base.root, base.file, sets, [*base.sources], [*base.problems])
    except ScenarioError as error:
        return error.messages
    return ()


def load_text(text: str, name: str, sets: Sequence[str] = ()) -> Loaded:
    """A scenario from YAML text that is no file; `name` stands for the file in messages. It may not extend another."""
    document = load_document(text, name)
    return _finish(document.root, Path(name), sets, [document.name], [])


def _finish(root: Node, file: Path, sets: Sequence[str], sources: list[str], problems: list[str]) -> Loaded:
    """Settings laid on, validated and checked. Raises ScenarioError with `problems` and all that is found here."""
    document, scenario = _validated(root, file, sets, sources, problems)
    loaded = Loaded(scenario, document, file, file.stem)
    faults = check(scenario)
    if faults:
        raise ScenarioError(f"{located(loaded, p.where)}: {p.where}: {p.what}" for p in faults)
    return loaded


def _validated(
    root: Node, file: Path, sets: Sequence[str], sources: list[str], problems: list[str]
) -> tuple[Document, Scenario]:
    """Settings laid on, keys and types validated. Raises ScenarioError with `problems` and what is found here."""
    for text in sets:
        try:
            root = merge(root, _setting(text))
        except ScenarioError as error:
            problems += error.messages
        sources.append(_source(text))
    document = Document(str(file), root, tuple(sources))
    try:
        scenario = validate(document, Scenario, extra_keys=(EXTENDS,))
    except ScenarioError as error:
        raise ScenarioError([*problems, *error.messages]) from None
    if problems:
        raise ScenarioError(problems)
    return document, scenario


def located(loaded: Loaded, where: str) -> str:
    """Where the value of a dotted field stands: `file:line:column` or `--set key=value`; of one that is not given, the
    nearest part above it that a file holds."""
    node, above = loaded.document.root, Mark(loaded.document.name)
    for key in parse_path(where):
        above = node.mark if node.mark.line else above
        child = node.child(key)
        if child is None:
            return str(above)
        node = child
    return str(node.mark)


def problem(loaded: Loaded, where: str, what: str) -> ScenarioError:
    """The error that says `what` about the dotted field `where`, for checks that know more than the scenario."""
    return ScenarioError([f"{located(loaded, where)}: {where}: {what}"])


def folder_of(loaded: Loaded, where: str) -> Path:
    """The folder that a relative path in field `where` starts from: its file's, or the working folder for a `--set`."""
    node = loaded.document.find(parse_path(where))
    if node is not None and node.mark.line == 0:
        return Path()
    return Path(node.mark.source if node else loaded.document.name).parent


def shipped_names(shipped: Path = SHIPPED) -> list[str]:
    """Names of the shipped scenarios, sorted."""
    return [path.stem for path in listed(shipped, "*.yaml")]


@dataclass(slots=True)
class _Reader:
    """Reads a chain of files. roots: folders that bases must lie in. What is wrong with a base hides nothing else."""

    shipped: Path
    roots: tuple[Path, ...]
    sources: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def read(self, file: Path, above: tuple[Path, ...]) -> Node:
        """The file over its bases. above: the files that extend it, the first one first. Raises ScenarioError."""
        document = read_document(file)
        self.sources.append(document.name)
        assert isinstance(document.root.value, dict)
        keys = dict(document.root.value)
        entry = keys.pop(EXTENDS, None)
        if entry is None:
            return document.root
        own = replace(document.root, value=keys)
        try:
            base = self._base(file, entry.node, (*above, file))
            return merge(self.read(base, (*above, file)), own)
        except ScenarioError as error:
            self.problems += error.messages
            return own

    def _base(self, file: Path, node: Node, chain: tuple[Path, ...]) -> Path:
        where, value = f"{node.mark}: {EXTENDS}", node.value
        if not isinstance(value, str) or not value.strip():
            raise ScenarioError(
                [f"{where}: must be a file or the name of a shipped scenario, got {shown(node.data())}"]
            )
        base = file.parent / value
        # os.path and not Path: these answer False where a name is too long, and never raise.
        if not os.path.isfile(base) and _is_bare(value) and value in shipped_names(self.shipped):
            base = _as_displayed(self.shipped / f"{value}.yaml")
        real = _real(base)
        if not any(real.is_relative_to(_real(root)) for root in self.roots):
            folder = quoted(str(self.roots[0]))
            raise ScenarioError([f"{where}: {quoted(value)} lies outside {folder}, the folder of the first file"])
        if not os.path.exists(base):
            raise ScenarioError([f"{where}: no such file {quoted(value)}{_instead(base, self.shipped)}"])
        if real in [_real(path) for path in chain]:
            circle = " -> ".join(str(path) for path in (*chain, base))
            raise ScenarioError([f"{where}: goes in a circle: {circle}"])
        if len(chain) == MAX_CHAIN:
            raise ScenarioError([f"{where}: more than {MAX_CHAIN} files extend one another"])
        return base


def _find(given: str, shipped: Path) -> Path:
    if not given.strip():
        raise ScenarioError(["no scenario given: name a file or a shipped scenario"])
    file = Path(given)
    if _is_bare(given) and not os.path.isfile(given) and given in shipped_names(shipped):
        return _as_displayed(shipped / f"{given}.yaml")
    if not os.path.lexists(file):
        raise ScenarioError([f"{Mark(given)}: no such scenario{_instead(file, shipped)}"])
    return file


def _is_bare(name: str) -> bool:
    return not any(sign in name for sign in ("/", "\\", ".yaml", ".yml"))


def _instead(file: Path, shipped: Path) -> str:
    """What a missing file was probably meant to be: a file next to it, or a shipped scenario."""
    try:
        neighbours = sorted(p.name for p in file.parent.iterdir() if p.suffix in (".yaml", ".yml"))
    except (OSError, ValueError):
        neighbours = []
    names = shipped_names(shipped)
    listed = f". Shipped scenarios: {', '.join(names)}" if names else ""
    return did_you_mean(file.name, neighbours) or did_you_mean(file.stem, names) or listed


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _as_displayed(path: Path) -> Path:
    """Relative to the working folder where it lies inside, so that messages stay short."""
    try:
        return path.relative_to(Path.cwd())
    except (OSError, ValueError):
        return path


def _source(text: str) -> str:
    return f"--set {text}"


@lru_cache(maxsize=1024)  # the points of a sweep share most of theirs
def _setting(text: str) -> Node:
    """`workload.batch=4` as a document of one value. Raises ScenarioError."""
    mark = Mark(_source(text))
    key, equals, value = text.partition("=")
    keys = [part.strip() for part in key.split(".")]
    if FORBIDDEN.search(text):
        raise ScenarioError([f"{mark}: control characters are not allowed"])
    if not equals or not all(keys):
        raise ScenarioError([f"{mark}: must be key=value with a dotted key, such as workload.batch=4"])
    if len(keys) > MAX_DEPTH:
        raise ScenarioError([f"{mark}: nested deeper than {MAX_DEPTH} levels"])
    if keys[0] == EXTENDS:
        raise ScenarioError([f"{mark}: {EXTENDS} can only stand in a file"])
    node = load_value(value, mark.source)
    for part in reversed(keys):
        node = Node(mark, {part: Entry(mark, node)})
    return node
