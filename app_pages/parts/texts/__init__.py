"""Every sentence of the lab in both languages: one table a page, `key: (English, Chinese)`.

A page takes its texts with `say = speaker(TABLE, language)` and shows `say("key", name=value)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

Language = Literal["en", "zh"]
#: Each language with its own name.
LANGUAGES: dict[Language, str] = {"en": "English", "zh": "中文"}

Table = Mapping[str, tuple[str, str]]
Say = Callable[..., str]


def speaker(table: Table, language: Language) -> Say:
    """A function from a key of `table`, and values for the braces in its text, to the text in `language`."""
    place = list(LANGUAGES).index(language)

    def say(key: str, **values: object) -> str:
        text = table[key][place]
        return text.format(**values) if values else text

    return say
