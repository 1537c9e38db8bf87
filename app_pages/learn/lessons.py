"""The lessons in the order of the menu, one for each claim that the lab teaches: each is a folder of this one.

A lesson's own `__init__.py` gives its PLACE in the menu and its ICON, its `texts.py` what it says, its `page.py` draws.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from app_pages.parts.texts import Table

HERE = Path(__file__).parent


def _found() -> dict[str, tuple[str, Table]]:
    names = [page.parent.name for page in HERE.glob("*/page.py")]
    packages = {name: import_module(f"{__package__}.{name}") for name in names}
    ordered = sorted(names, key=lambda name: (packages[name].PLACE, name))
    return {name: (packages[name].ICON, import_module(f"{__package__}.{name}.texts").TEXTS) for name in ordered}


#: Icon and texts by the name of its folder.
LESSONS: dict[str, tuple[str, Table]] = _found()
