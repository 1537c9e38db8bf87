"""`dataclass` of the standard library, made quickly: frozen ones with slots get their methods when they are first used.

A command imports some two hundred of them and uses a third. The standard library writes and compiles six methods of
each at once, which took a fifth of the command; here a method is written where it is called first, and an `__init__`
sets its slots without looking them up by name, which makes an instance in a third of the time. All else is as there:
fields, replace, asdict, pickling, comparison by value, FrozenInstanceError. Other dataclasses, and those that inherit
from one, go to the standard library.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")

_EQ = "def __eq__(self, other):\n if other.__class__ is not self.__class__:\n  return NotImplemented\n return {} == {}"


@overload
def dataclass(cls: type[T], /) -> type[T]: ...
@overload
def dataclass(
    *, frozen: bool = False, slots: bool = False, eq: bool = True, kw_only: bool = False
) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(
    cls: type[Any] | None = None,
    /,
    *,
    frozen: bool = False,
    slots: bool = False,
    eq: bool = True,
    kw_only: bool = False,
) -> Any:
    """As `dataclasses.dataclass`."""

    def decorate(of: type[Any]) -> type[Any]:
        inherits = any(dataclasses.is_dataclass(base) for base in of.__mro__[1:])
        if frozen and slots and not inherits:
            return _made(of, eq, kw_only)
        return dataclasses.dataclass(frozen=frozen, slots=slots, eq=eq, kw_only=kw_only)(of)

    return decorate if cls is None else decorate(cls)


def _made(bare: type[Any], eq: bool, kw_only: bool) -> type[Any]:
    """A frozen dataclass with slots that writes its methods on first use."""
    own = dict(vars(bare))
    dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(bare)  # finds the fields, writes nothing
    params = bare.__dataclass_params__
    params.init = params.repr = params.frozen = True
    params.eq = eq
    names = tuple(field.name for field in dataclasses.fields(bare))
    members = {key: value for key, value in vars(bare).items() if key not in (*names, "__dict__", "__weakref__")}
    meta: Any = type(bare)
    cls: type[Any] = meta(bare.__name__, bare.__bases__, {**members, "__slots__": names})
    cls.__qualname__ = bare.__qualname__
    writers = {"__init__": _write_init, "__repr__": _write_repr}
    if eq:
        writers |= {"__eq__": _write_eq, "__hash__": _write_hash}
    if own.get("__hash__", own) is None:  # Python's own doing, where a class says when it is equal
        del own["__hash__"]
    for name, write in writers.items():
        if name not in own:
            setattr(cls, name, _on_first_use(cls, name, write))
    refuses = {"__setattr__": _refusal(cls, names, "assign to"), "__delattr__": _refusal(cls, names, "delete")}
    for name, method in {**refuses, "__getstate__": _state, "__setstate__": _set_state}.items():
        if name not in own:
            setattr(cls, name, method)
    return cls


def _on_first_use(cls: type[Any], name: str, write: Callable[[type[Any]], Callable[..., Any]]) -> Callable[..., Any]:
    """A method that writes the real one into its place, and calls it."""

    def first(self: Any, *args: Any, **kwargs: Any) -> Any:
        method = write(cls)
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)
        return method(self, *args, **kwargs)

    return first


def _compiled(name: str, text: str, known: dict[str, Any]) -> Callable[..., Any]:
    space: dict[str, Any] = {}
    exec(text, known, space)
    method: Callable[..., Any] = space[name]
    return method


def _write_init(cls: type[Any]) -> Callable[..., Any]:
    """`__init__`, which sets each slot by its descriptor: no name is looked up."""
    known: dict[str, Any] = {"_unset": _UNSET}
    taken, keyword, body = ["self"], list[str](), list[str]()
    for field in dataclasses.fields(cls):
        name = field.name
        known[f"_set_{name}"] = cls.__dict__[name].__set__
        known[f"_default_{name}"] = field.default
        if not field.init:
            value = f"_default_{name}"
            if field.default is dataclasses.MISSING:
                if field.default_factory is dataclasses.MISSING:
                    continue
                known[f"_make_{name}"], value = field.default_factory, f"_make_{name}()"
            body.append(f" _set_{name}(self, {value})")
            continue
        parameter = name if field.default is dataclasses.MISSING else f"{name}=_default_{name}"
        if field.default_factory is not dataclasses.MISSING:
            known[f"_make_{name}"], parameter = field.default_factory, f"{name}=_unset"
            body.append(f" if {name} is _unset:\n  {name} = _make_{name}()")
        (keyword if field.kw_only else taken).append(parameter)
        body.append(f" _set_{name}(self, {name})")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    parameters = ", ".join([*taken, *(["*", *keyword] if keyword else [])])
    return _compiled("__init__", "\n".join([f"def __init__({parameters}):", *body, " return None"]), known)


def _write_eq(cls: type[Any]) -> Callable[..., Any]:
    return _compiled("__eq__", _EQ.format(_values("self", cls), _values("other", cls)), {})


def _write_hash(cls: type[Any]) -> Callable[..., Any]:
    return _compiled("__hash__", f"def __hash__(self):\n return hash({_values('self', cls)})", {})


def _values(of: str, cls: type[Any]) -> str:
    """The tuple of the fields of `of` that are compared, as text."""
    return f"({''.join(f'{of}.{field.name},' for field in dataclasses.fields(cls) if field.compare)})"


def _write_repr(cls: type[Any]) -> Callable[..., Any]:
    from reprlib import recursive_repr

    names = [field.name for field in dataclasses.fields(cls) if field.repr]

    def shown(self: Any) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({inside})"

    return recursive_repr()(shown)


def _refusal(cls: type[Any], names: tuple[str, ...], what: str) -> Callable[..., Any]:
    """`__setattr__` or `__delattr__`, which refuse the fields, and all names on the class itself."""
    plain = "__delattr__" if what == "delete" else "__setattr__"

    def refuse(self: Any, name: str, *value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")
        getattr(super(cls, self), plain)(name, *value)

    return refuse


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


_UNSET = object()
