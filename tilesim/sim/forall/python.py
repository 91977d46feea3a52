"""What a kernel's Python may make of an open parameter without asking it anything.

``type(n) is int`` asks the object, not the number: while a kernel is built with a number that is
not known, ``type`` says of it what it says of every integer. What the object is (``n is m``), and
what C makes of it, can be asked all the same. So what a kernel makes of such a number is compared
with what it makes of the numbers themselves, where it is most likely that it differs: beside those
that the kernel's code names.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

from tilesim.sim.forall.free import LIBRARY, is_free, is_kernels_own

_DIGITS = re.compile(r"\d{1,18}")
#: functions and classes whose code is looked at, and members of a collection
_MOST, _MEMBERS = 256, 256


class _AnyType(type):
    """The class of `_Type`."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is _Type and len(args) == 1 and not kwargs:
            return int if is_free(args[0]) else type(args[0])
        return type(*args, **kwargs) if cls is _Type else super().__call__(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, type) if cls is _Type else super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, type) if cls is _Type else super().__subclasscheck__(subclass)

    def __eq__(cls, other: object) -> bool:
        return other is cls or (cls is _Type and other is type)

    def __hash__(cls) -> int:
        return hash(type) if cls is _Type else super().__hash__()


class _Type(type, metaclass=_AnyType):
    """``type``, of which an open parameter is an ``int``."""


@contextmanager
def types_of_integers(build: Callable[..., Any]) -> Iterator[None]:
    """While a kernel is built: in its modules, and in the user's others, ``type`` takes an open
    parameter for an integer."""
    names = [vars(module) for module in list(sys.modules.values()) if _is_users(module)]
    function = _function(build)
    if function is not None and function.__globals__ not in names:
        names.append(function.__globals__)
    changed = [space for space in names if "type" not in space]
    for space in changed:
        space["type"] = _Type
    try:
        yield
    finally:
        for space in changed:
            if space.get("type") is _Type:
                del space["type"]


def numbers_in(build: Callable[..., Any], given: Mapping[str, Any]) -> tuple[int, ...]:
    """The integers that the code of a kernel names, in order: constants, global ones, those in what
    it refers to, and in the functions and classes of the user's that it calls; then those it is
    ``given``."""
    found: dict[int, None] = {}
    left: list[object] = [getattr(build, "function", build), dict(given)]
    seen: set[int] = set()
    while left and len(seen) < _MOST:
        one = left.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        match one:
            case bool():
                pass
            case int():
                found[one] = None
            case str():
                found |= dict.fromkeys(map(int, _DIGITS.findall(one)))
            case Enum():
                left.append(one.value)
            case tuple() | list() | set() | frozenset() if len(one) <= _MEMBERS:
                seen.discard(id(one))
                found |= dict.fromkeys(n for n in one if type(n) is int)
                left += [n for n in one if type(n) is not int]
            case dict() if len(one) <= _MEMBERS:
                left += [list(one), list(one.values())]
            case FunctionType() if _is_users_file(one.__code__.co_filename):
                left += [one.__code__, one.__defaults__, one.__kwdefaults__]
                left += (cell.cell_contents for cell in one.__closure__ or () if _is_set(cell))
                left += _referred(one.__code__, one.__globals__)
            case CodeType():
                left += one.co_consts
            case type() if _is_users(sys.modules.get(one.__module__)):
                left += vars(one).values()
            case partial():
                left += [one.func, one.args, one.keywords]
            case MethodType():
                left += [one.__func__, getattr(one.__self__, "__dict__", None)]
            case _ if callable(one):
                if isinstance(wrapped := _function(one), FunctionType):
                    left.append(wrapped)
                elif _is_users(sys.modules.get(type(one).__module__)):
                    left += [type(one).__call__, getattr(one, "__dict__", None)]
    return tuple(found)


def _referred(code: CodeType, names: dict[str, Any]) -> Iterator[object]:
    """The global things that code, or code in it, names."""
    yield from (names[name] for name in code.co_names if name in names)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _referred(const, names)


def _is_set(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _function(build: Callable[..., Any]) -> FunctionType | None:
    """The function that makes programs."""
    found: Any = getattr(build, "function", build)
    while isinstance(found, partial):
        found = found.func
    found = inspect.unwrap(found)
    return found if isinstance(found, FunctionType) else getattr(found, "__func__", None)


def _is_users(module: object) -> bool:
    """Whether a module is neither tilesim's, but for its kernels, nor of a library."""
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and _is_users_file(file)


def _is_users_file(file: str) -> bool:
    library = os.path.abspath(file).startswith(LIBRARY) or "-packages" + os.sep in file
    return is_kernels_own(file) and not library
