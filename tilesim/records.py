"""Dataclasses whose classes are cheap to make, and whose objects are cheap to make.

`dataclass` here is used as that of `dataclasses`, and its classes behave as those made there. Two
things differ. A method is compiled when it is first looked up: a check imports 400 classes and
makes objects of a third of them, and to compile all methods took 40 % of the time of the import.
``__init__`` of a frozen class fills the dictionary, or the slots, where `dataclasses` goes by
``object.__setattr__`` for each field, which was a seventh of the time of reading PTX.

Not supported, as nothing here needs them: fields that are not parameters, `dataclasses.InitVar`,
``order``. All classes of a hierarchy are made by this `dataclass`.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, FrozenInstanceError, field, fields
from dataclasses import dataclass as _collected
from functools import cache
from typing import TYPE_CHECKING, Any, get_type_hints

__all__ = ["dataclass", "field", "fields", "hints", "replace"]

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass, replace
else:

    def replace(thing: Any, /, **changes: Any) -> Any:
        """As `dataclasses.replace`: an object of the same class, but for these fields."""
        own = {name: getattr(thing, name) for name in _names(type(thing))}
        return type(thing)(**{**own, **changes})

    def dataclass(
        cls: type | None = None, /, *, eq: bool = True, frozen: bool = False, kw_only: bool = False,
        slots: bool = False,
    ) -> Any:  # fmt: skip
        """As `dataclasses.dataclass`: a class with these options, or what makes one of a class."""

        def make(cls: type) -> type:
            explicit = {name for name, value in vars(cls).items() if value is not None}
            made = _collected(cls, init=False, repr=False, eq=False, kw_only=kw_only, slots=slots)
            methods = {"__init__": _Method(made, _init), **_methods_of(_Text)}
            if eq:
                methods["__eq__"] = _Method(made, _eq)
                methods["__hash__"] = _Method(made, _hash) if frozen else None
            if frozen:
                methods |= _methods_of(_Frozen)
            if frozen and slots:
                methods |= _methods_of(_FrozenWithSlots)
            for name, method in methods.items():
                if name not in explicit:
                    setattr(made, name, method)
            return made

        return make if cls is None else make(cls)


def hints(cls: type) -> dict[str, Any]:
    """The types of the fields of a class, by name; not to be changed. To resolve the names in them
    is slow, so it is done once."""
    return _hints(cls)


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


@cache
def _names(cls: type) -> tuple[str, ...]:
    """The names of the fields of a class."""
    return tuple(f.name for f in fields(cls))


def _methods_of(shared: type) -> dict[str, Any]:
    """The methods that a class below gives to the classes that are made."""
    return {name: method for name, method in vars(shared).items() if callable(method)}


class _Method:
    """Stands for a method of ``owner`` until it is looked up: then ``compiled`` makes it."""

    def __init__(self, owner: type, compiled: Callable[[type], Any]) -> None:
        self.owner = owner
        self.compiled = compiled

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        method = self.compiled(self.owner)
        method.__qualname__ = f"{self.owner.__qualname__}.{method.__name__}"
        method.__module__ = self.owner.__module__
        setattr(self.owner, method.__name__, method)
        return method.__get__(instance, owner)


def _compiled(name: str, parameters: str, lines: list[str], known: dict[str, Any]) -> Any:
    """The function of these lines, in which ``known`` has what they name: a line of this file."""
    body = "\n ".join(lines)
    exec(compile(f"def {name}({parameters}):\n {body}", __file__, "exec"), known)
    return known[name]


def _init(cls: type) -> Any:
    """``__init__``: names that begin with two underscores are not those of its parameters."""
    own: tuple[Field[Any], ...] = fields(cls)
    known: dict[str, Any] = {"__name__": cls.__module__, "__missing": _FACTORY}
    positional = [_parameter(f, known) for f in own if not f.kw_only]
    named = [_parameter(f, known) for f in own if f.kw_only]
    parameters = ", ".join(["__self", *positional, *(["*", *named] if named else [])])
    slots = "__slots__" in vars(cls)
    frozen = vars(cls).get("__setattr__") is _Frozen.__setattr__
    lines = ["__own = __self.__dict__"] if frozen and not slots else ["pass"]
    for f in own:
        value = f.name
        if f.default_factory is not MISSING:
            known[f"__make_{f.name}"] = f.default_factory
            value = f"__make_{f.name}() if {f.name} is __missing else {f.name}"
        if not frozen:  # its attributes stay where they are fast: `__dict__` is not asked for
            lines.append(f"__self.{f.name} = {value}")
        elif slots:
            known[f"__set_{f.name}"] = getattr(cls, f.name).__set__
            lines.append(f"__set_{f.name}(__self, {value})")
        else:
            lines.append(f"__own[{f.name!r}] = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("__self.__post_init__()")
    made = _compiled("__init__", parameters, lines, known)
    made.__annotations__ = {**{f.name: f.type for f in own}, "return": None}
    return made


class _Factory:
    """The default of a field that each object makes for itself."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _parameter(f: Field[Any], known: dict[str, Any]) -> str:
    """A parameter of ``__init__``, whose default is put into ``known``."""
    assert f.init, f"{f.name} is not a parameter"
    if f.default_factory is not MISSING:
        return f"{f.name}=__missing"
    if f.default is MISSING:
        return f.name
    known[f"__default_{f.name}"] = f.default
    return f"{f.name}=__default_{f.name}"


def _compared(cls: type, of: str) -> str:
    """The tuple of the fields of ``of`` that are compared."""
    return f"({''.join(f'{of}.{f.name}, ' for f in fields(cls) if f.compare)})"


def _eq(cls: type) -> Any:
    """``__eq__``: of objects of the same class, their fields in order."""
    lines = [
        "if other.__class__ is self.__class__:",
        f" return {_compared(cls, 'self')} == {_compared(cls, 'other')}",
        "return NotImplemented",
    ]
    return _compiled("__eq__", "self, other", lines, {"__name__": cls.__module__})


def _hash(cls: type) -> Any:
    """``__hash__``: of the fields that are compared."""
    lines = [f"return hash({_compared(cls, 'self')})"]
    return _compiled("__hash__", "self", lines, {"__name__": cls.__module__})


class _Text:
    """What every class has. A parameter of a kernel sees by the name that its text is asked for."""

    def __repr__(self) -> str:
        own: Any = self
        values = ", ".join(f"{f.name}={getattr(own, f.name)!r}" for f in fields(own) if f.repr)
        return f"{type(self).__qualname__}({values})"


class _Frozen:
    """What a frozen class has."""

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


class _FrozenWithSlots:
    """What a frozen class with slots has as well: what copies and pickles would assign is set."""

    def __getstate__(self) -> list[Any]:
        own: Any = self
        return [getattr(own, f.name) for f in fields(own)]

    def __setstate__(self, state: list[Any]) -> None:
        own: Any = self
        for f, value in zip(fields(own), state, strict=True):
            object.__setattr__(self, f.name, value)
