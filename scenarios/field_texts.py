"""What each field of a scenario file is, in words: the text below the field in its class.

Read from the source only where somebody asks (`whatif schema`, the lab): pydantic would read it for each class that is
made, which takes an eighth of the time that all imports of a prediction take.
"""

from __future__ import annotations

import ast
import inspect
from functools import cache
from itertools import pairwise
from textwrap import dedent

from pydantic import BaseModel


@cache
def field_texts(part: type[BaseModel]) -> dict[str, str]:
    """The text of each field of `part` that has one, by name; of what it inherits too."""
    texts: dict[str, str] = {}
    for base in reversed(part.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            texts |= _texts_below(base)
    declared = {name: field.description for name, field in part.model_fields.items()}
    return {name: told for name in declared if (told := declared[name] or texts.get(name))}


def _texts_below(part: type[BaseModel]) -> dict[str, str]:
    """The strings that stand right below the fields of one class; none where the class has no source of its own."""
    try:
        body = ast.parse(dedent(inspect.getsource(part))).body[0]
    except OSError:  # made by `create_model`
        return {}
    texts: dict[str, str] = {}
    for field, below in pairwise(body.body if isinstance(body, ast.ClassDef) else ()):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match below:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    texts[field.target.id] = inspect.cleandoc(text)
    return texts
