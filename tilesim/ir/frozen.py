"""Frozen objects: made quickly, and with cached answers about them.

A check makes tens of thousands of frozen dataclasses. `dataclasses` gives such a class an
``__init__`` that goes by ``object.__setattr__`` for each field: that was a seventh of the time of
reading PTX. The one that `quick` gives it takes half the time: it fills the object's dictionary, or
its slots, and is the same otherwise.

Answers about objects that never change are kept in these objects: no table, nothing to clear.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


T = TypeVar("T", bound="DataclassInstance")


def quick(cls: type[T]) -> type[T]:
    """``cls``, a frozen dataclass without ``__post_init__``, with a faster ``__init__``.

    All its fields are parameters; names that begin with two underscores are not theirs.
    """
    assert not hasattr(cls, "__post_init__"), cls
    known: dict[str, Any] = {}
    own = fields(cls)
    assert all(field.init and not field.name.startswith("__") for field in own), cls
    positional = [_parameter(field, known) for field in own if not field.kw_only]
    named = [_parameter(field, known) for field in own if field.kw_only]
    parameters = ", ".join(["__self", *positional, *(["*", *named] if named else [])])
    slots = "__slots__" in vars(cls)
    lines = [] if slots else ["__own = __self.__dict__"]
    for field in own:
        value = field.name
        if field.default_factory is not MISSING:
            known[f"__make_{field.name}"] = field.default_factory
            value = f"__make_{field.name}() if {field.name} is __missing else {field.name}"
        if slots:
            known[f"__set_{field.name}"] = getattr(cls, field.name).__set__
            lines.append(f"__set_{field.name}(__self, {value})")
        else:
            lines.append(f"__own[{field.name!r}] = {value}")
    body = "\n ".join(lines or ["pass"])
    exec(f"def __init__({parameters}):\n {body}", known)
    made = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__module__ = cls.__module__
    made.__annotations__ = cls.__init__.__annotations__
    setattr(cls, "__init__", made)  # noqa: B010 (mypy has no other way)
    return cls


def _parameter(field: Field[Any], known: dict[str, Any]) -> str:
    """A parameter of ``__init__``, whose default is put into ``known``."""
    if field.default_factory is not MISSING:
        known["__missing"] = MISSING
        return f"{field.name}=__missing"
    if field.default is MISSING:
        return field.name
    known[f"__default_{field.name}"] = field.default
    return f"{field.name}=__default_{field.name}"


K = TypeVar("K")
R = TypeVar("R")

#: names of what is kept begin so, as those of fields cannot
_MARK = "."


def cached(function: Callable[[K], R]) -> Callable[[K], R]:
    """``function`` of one object, which is asked once: the object has the answer from then on.

    The object has a ``__dict__``. What `dataclasses.replace` makes of it begins without answers.
    """
    key = f"{_MARK}{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def answer(owner: K) -> R:
        known: dict[str, R] = owner.__dict__
        if key not in known:
            known[key] = function(owner)
        return known[key]

    return answer


class Keeper:
    """Base of what many answers are kept in: its copies and pickles go without them."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith(_MARK)}
