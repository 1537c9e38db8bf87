"""Words of the field with what they mean, shown on hover where a page uses one."""

from __future__ import annotations

import re
from html import escape

from app_pages.parts.texts import Language
from app_pages.parts.texts.glossary import WORDS

_FOUND = re.compile(rf"(?<![\w.])({'|'.join(sorted(map(re.escape, WORDS), key=len, reverse=True))})(?![\w.])")


def glossed(text: str, language: Language) -> str:
    """`text` as HTML in which the first place of each word of the glossary says on hover what it means."""
    place = 0 if language == "en" else 1
    seen: set[str] = set()

    def marked(match: re.Match[str]) -> str:
        word = match[1]
        if word in seen:
            return word
        seen.add(word)
        return f'<abbr title="{escape(WORDS[word][place])}" tabindex="0">{word}</abbr>'

    return _FOUND.sub(marked, escape(text, quote=False))
