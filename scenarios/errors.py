"""What is wrong with an input file, said in lines that a person can act on."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

#: Longest quotation of what the user wrote, characters.
MAX_QUOTE = 60
#: Longest line of a problem, characters: a name or a value from a file may have any length.
MAX_LINE = 1_000


class ScenarioError(Exception):
    """Bad input: one line for each problem, `file:line:column: where: what. Did you mean ...?`; exit status 2."""

    def __init__(self, messages: Iterable[str]) -> None:
        # What a file holds may be of any length, or what a terminal takes for a command.
        self.messages = tuple(printable(message, MAX_LINE) for message in messages)
        # The only argument, so that the exception survives pickling on its way out of a worker process.
        super().__init__(self.messages)

    def __str__(self) -> str:
        return "\n".join(self.messages)


def printable(text: str, limit: int = MAX_QUOTE) -> str:
    """`text` on one line: control characters and lone surrogates escaped, cut in the middle beyond `limit`."""
    if len(text) > limit:
        text = f"{text[: limit // 2]}...{text[-(limit // 3) :]}"
    return escaped(text)


def escaped(text: str) -> str:
    """`text` with control characters and lone surrogates escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def quoted(text: str) -> str:
    """`text` in single quotes, printable."""
    return f"'{printable(text)}'"


def shown(value: object) -> str:
    """A value as its writer thinks of it: `true`, `4.5`, `'two'`, `nothing`, `a list`, `a mapping`."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, int | float):
        return repr(value)
    return "a mapping" if isinstance(value, dict) else "a list"


def nearest(word: str, options: Sequence[str]) -> str | None:
    """The option that `word` was probably meant to be, or None."""
    if not word or len(word) > MAX_QUOTE:
        return None
    by_lower = {option.lower(): option for option in options}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    if close:
        return by_lower[close[0]]
    starts = [option for option in options if option.lower().startswith(word.lower())]
    return starts[0] if len(starts) == 1 and len(word) >= 3 else None


def did_you_mean(word: str, options: Sequence[str]) -> str:
    """`. Did you mean 'x'?`, or nothing where no option is near."""
    option = nearest(word, options)
    return f". Did you mean '{printable(option)}'?" if option is not None else ""
