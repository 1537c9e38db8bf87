"""One word for one thing, the field's where it has one: the table below holds names, comments, docstrings, documents.

Where a word is meant (a published name, a key that files have already), the file stands in `MEANT` with the reason.
"""

from __future__ import annotations

import io
import re
import tokenize
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest

#: Whole names (of variables, functions, classes, files) that say nothing or the wrong thing -> what to write.
NAMES = {
    "it|found|made": "the thing's own name: config, result, plan, op",
    "luck": "jitter, noise sample",
    "Exposure": "sensitivity",
    "Played": "simulated schedule",
    "meet|Meeting|among": "rendezvous, group",
    "unfold|unfolds|unfolded": "expand",
    "Lean|leave_out|gone": "bound, remove",
    "Laboratory|Truth|in_turn|ladder|rung": "session, reference run, alternating A/B, ablation, step",
    r"\w*_turning|\w*_still|turned": "rotary dims, pass-through dims; transposed",
    r"(?:LEAST|MOST)_\w+|\w+_(?:LEAST|MOST)": "MIN_, MAX_",
    "greatest|least|beside|begin|begins|anew": "largest, smallest, alongside, start, again",
    "Profile|ProfileSet|ProfileError|read_profiles": "HardwareProfile (a chip), Capture (what a profiler wrote)",
}
#: Phrases in comments, docstrings, documents and the texts of the app -> what to write.
PHRASES = {
    r"luck(?:y)?": "jitter, noise sample",
    r"hangs? on": "depends on",
    r"greatest": "largest",
    r"(?<!at )(?<!at the )(?<!or at )least(?! squares)(?!-squares)": "smallest",
    r"beside": "alongside, next to",
    r"beg(?:in|ins|an|un|inning)": "start",
    r"(?:made )?anew": "again, recreated",
    r"(?:is|are|be|was|were) told|told apart|tells? apart": "is reported, distinguished",
    r"nobody asked": "not requested",
    r"(?:row|scale|trace|file|line|page|group) an? (?:token|row|rank|head|channel|block|page|device|layer|step|op)":
        "per token, per row, per rank",
    r"(?:row|column)[- ]splits?": "row-parallel, column-parallel",
    r"unfold(?:s|ed|ing)?": "expand (HCCL_OP_EXPANSION_MODE)",
    r"experts? one by one|experts? spread|spread experts?": "ungrouped (per-expert loop), expert-parallel",
    r"late ranks|(?:start|begin)s? late": "rank skew, straggler",
    r"rungs?|ladders?": "step, ablation",
}  # fmt: skip
#: Files where a word is meant -> the words, and why.
MEANT: dict[str, tuple[set[str], str]] = {
    "tests/test_words.py": ({"*"}, "it holds the list"),
    "scenarios/exchange/bench.py": ({"greatest"}, "a key of the experiment's JSON"),
    "device/experiment/reference_run.py": ({"greatest"}, "the same key"),
    "tests/device/test_correctness.py": ({"greatest"}, "the same key"),
    "tests/device/test_experiment.py": ({"greatest"}, "the same key"),
    "app_pages/parts/texts/captures.py": ({"begin", "beside"}, "patterns of the notes of other rooms"),
    "app_pages/parts/texts/refusals.py": ({"beside"}, "patterns of the refusals of other rooms"),
}

#: The folders that are held to the list, and the top itself.
HELD = (".", "app_pages", "benchmarks", "device", "docs", "scenarios", "sim", "tests")
#: What a test calls the one thing that it makes and looks at.
OF_TESTS = {"it", "found", "made"}

_NAME = re.compile("|".join(NAMES))
_PHRASE = re.compile(rf"(?<![\w`/.-])(?:{'|'.join(PHRASES)})(?![\w`/(-])", re.IGNORECASE)
_CODE = re.compile(r"`[^`\n]*`")


def remedy(table: dict[str, str], word: str) -> str:
    return next(write for pattern, write in table.items() if re.fullmatch(pattern, word, re.IGNORECASE))


def in_prose(text: str, first_line: int) -> Iterator[tuple[int, str, str]]:
    """Line, phrase and what to write; code in backticks is not prose, and a phrase may cross a line's end."""
    lines = [re.sub(r"^#:? ", "", line.strip()) for line in text.split("\n")]
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    plain = _CODE.sub(lambda code: "`" * len(code[0]), " ".join(lines))
    for hit in _PHRASE.finditer(plain):
        yield first_line + bisect_right(starts, hit.start()) - 1, hit[0], remedy(PHRASES, hit[0])


def in_code(source: str, is_texts: bool) -> Iterator[tuple[int, str, str]]:
    """Offences among names, comments and docstrings; of a file of texts, in all its strings."""
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and _NAME.fullmatch(token.string):
            yield token.start[0], token.string, remedy(NAMES, token.string)
        elif token.type == tokenize.COMMENT:
            yield from in_prose(token.string, token.start[0])
        elif token.type == tokenize.STRING:
            opens = before in (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
            if is_texts or (opens and '"""' in token.string[:4]):
                yield from in_prose(token.string, token.start[0])
        if token.type != tokenize.COMMENT:
            before = token.type


def offences(path: Path, root: Path) -> list[str]:
    name = path.relative_to(root).as_posix()
    text = path.read_text(encoding="utf-8")
    hits = in_prose(text, 1) if path.suffix == ".md" else in_code(text, "texts" in name)
    meant, _ = MEANT.get(name, (set(), ""))
    meant = meant | OF_TESTS if name.startswith("tests/") else meant
    return [f"{name}:{line}: '{word}': write {write}" for line, word, write in hits if not meant & {"*", word.lower()}]


def files_of(root: Path, top: str) -> list[Path]:
    """The files of one folder, or of the top itself."""
    patterns = ("*.py", "*.md")
    if top == ".":
        return sorted(path for pattern in patterns for path in root.glob(pattern))
    return sorted(path for pattern in patterns for path in (root / top).rglob(pattern))


@pytest.mark.parametrize("top", HELD)
def test_words(top: str, root: Path) -> None:
    files = files_of(root, top)
    assert files
    hits = [line for path in files for line in offences(path, root)]
    assert not hits, "\n".join([f"{len(hits)} words", *hits])


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("found = plan()", ["found"]),
        ("self.found_ns = 1", []),
        ('"""Jitter\n\n    of late\n    ranks."""', ["late ranks"]),
        ("# at least two, by least squares\n# the least of three", ["least"]),
        ("# `beside` is a name, beside is none", ["beside"]),
        ("MOST_RANKS = 2", ["MOST_RANKS"]),
        ('text = "begin"', []),
    ],
)
def test_words_are_seen_where_they_count(source: str, words: list[str]) -> None:
    assert [word for _, word, _ in in_code(source, is_texts=False)] == words


def test_what_is_meant_is_there(root: Path) -> None:
    assert [name for name in MEANT if not (root / name).is_file()] == []
