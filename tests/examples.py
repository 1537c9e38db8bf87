"""How many examples the slow properties try: a quarter by default, all of them with HYPOTHESIS_PROFILE=full."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hypothesis import settings

#: Examples are derandomised, so the default run always tries the same ones; `make properties` tries all.
SHARE = 1 if os.environ.get("HYPOTHESIS_PROFILE") in ("full", "explore") else 4


def examples(count: int) -> Callable[[Any], Any]:
    """Try `count` examples in a full run, a share of them by default; 5 at least."""
    return settings(max_examples=max(5, count // SHARE))
