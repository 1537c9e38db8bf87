"""Names of kernels: short enough to be read next to numbers, and what they say about the work.

A C++ kernel's name may have thousands of characters. What it is called is kept; parameters of templates and arguments
are not.
"""

from __future__ import annotations

import re
from functools import lru_cache

#: Longest name in a sentence or a table, characters.
MAX_NAME = 48

_TAIL = re.compile(r"\(.*|<.*")


@lru_cache(maxsize=8192)
def short_name(name: str, limit: int = MAX_NAME) -> str:
    """A name of at most `limit` characters: `void at::native::vectorized_elementwise_kernel<4, ...>(int)` is
    `vectorized_elementwise_kernel`; what is still too long keeps its start and its end."""
    if len(name) <= limit:
        return name
    plain = _TAIL.sub("", name.removeprefix("void ").replace("(anonymous namespace)::", "")).rsplit("::", 1)[-1].strip()
    plain = plain or name
    if len(plain) <= limit:
        return plain
    end = limit // 4
    return f"{plain[: limit - end - 3]}...{plain[-end:]}"
