"""What Python code can reach that may change: variables, attributes, elements, iterators.

`reach` lists the things that hold values, each under the path by which it was found, so that those
of two runs of one function can be compared and what one has left can be put into the other.
"""

from __future__ import annotations

import ctypes
import itertools
import pickle
import random
import sys
import sysconfig
import warnings
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from enum import Enum
from functools import cache, partial
from types import (
    BuiltinMethodType,
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple, TypeGuard

#: how a value is reached from what holds it: the kind of the step, and a name, key or index
Step = tuple[str, Any]
Path = tuple[Step, ...]
Items = dict[Step, Any]

#: things looked at per loop, elements per thing: what is larger is not a kernel's state
_THINGS, _ELEMENTS = 2000, 4096
_SIDE_BY_SIDE = (list, deque, bytearray, array)
_PLAIN = (bool, int, float, complex, str, bytes, range, type(None), type(Ellipsis), slice, Enum)
_ITERABLES: tuple[Iterable[object], ...] = (
    [], (), range(0), range(1 << 70), {}, {}.values(), {}.items(), set(), "",
)  # fmt: skip
_ITERATORS: tuple[type, ...] = (
    enumerate, zip, map, filter, reversed, *(type(iter(one)) for one in _ITERABLES),
    *(kind for kind in vars(itertools).values() if isinstance(kind, type)),
)  # fmt: skip
#: how far an iterator is moved to where another one is
_AHEAD = 256


class Held(NamedTuple):
    """A thing that holds values, and what it held."""

    thing: Any
    items: Items


def reach(frames: list[FrameType]) -> dict[Path, Held]:
    """The things that functions being executed reach, the innermost first."""
    found: dict[Path, Held] = {}
    seen: set[int] = set()
    todo: deque[tuple[Path, Any]] = deque(((("frame", n),), f) for n, f in enumerate(frames))
    while todo and len(found) < _THINGS:
        path, thing = todo.popleft()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        items = None
        with suppress(Exception):  # users' objects may do anything when they are looked at
            items = _items(thing)
        if items is not None:
            found[path] = Held(thing, items)
            todo.extend(((*path, step), v) for step, v in items.items() if not is_value(v))
    return found


def is_value(thing: object) -> bool:
    """Whether it is a value that does not change: a number, a text, what the DSL gives."""
    if isinstance(thing, tuple | frozenset):
        return all(map(is_value, thing))
    cls: Any = type(thing)
    return _is_of_values(cls)


@cache
def _is_of_values(cls: Any) -> bool:
    if issubclass(cls, _PLAIN) or _root(cls) == "tilesim":
        return True
    # a number of NumPy's; its arrays have elements that can be set
    return _root(cls) == "numpy" and hasattr(cls, "item") and not hasattr(cls, "__setitem__")


def put(held: Held, items: Mapping[Step, Any], gone: set[Step]) -> None:
    """Sets some of the values of a thing and takes out those that are ``gone``."""
    thing = held.thing
    if isinstance(thing, _SIDE_BY_SIDE):
        new = {**held.items, **items}
        values = [value for step, value in new.items() if step not in gone]
        thing.clear() if isinstance(thing, deque) else thing.__delitem__(slice(None))
        thing.extend(values)
    elif isinstance(thing, MutableMapping):
        thing.update({key: value for (_, key), value in items.items()})
        for _, key in gone:
            thing.pop(key, None)
    elif isinstance(thing, set):
        for members in items.values():
            thing.clear()
            thing.update(members)
    elif isinstance(thing, FrameType):
        _set_variables(thing, items)
    elif isinstance(thing, FunctionType):
        cells = dict(zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=False))
        for (kind, name), value in items.items():
            if kind == "cell":
                cells[name].cell_contents = value
            else:
                thing.__globals__[name] = value
    elif _is_iterator(thing):
        for where in items.values():
            _move(thing, where)
    elif (state := _random_state(thing)) is not None:
        for numbers in items.values():
            state[1](pickle.loads(numbers))
    elif _is_numpy(thing):
        for (_, index), value in items.items():
            thing.flat[index] = value
    else:
        put_attribute = type.__setattr__ if isinstance(thing, type) else object.__setattr__
        for (_, name), value in items.items():
            put_attribute(thing, name, value)


# ------------------------------------------------------------------ what things hold


def _items(thing: Any) -> Items | None:
    """The values that a thing holds; None for what is not looked into."""
    if isinstance(thing, _SIDE_BY_SIDE):
        return {("item", n): v for n, v in enumerate(thing)} if len(thing) <= _ELEMENTS else None
    if isinstance(thing, tuple):
        return {("item", n): v for n, v in enumerate(thing[:_ELEMENTS])}
    if isinstance(thing, MutableMapping) and _root(type(thing)) in _CONTAINERS:
        return {("item", key): v for key, v in thing.items()} if len(thing) <= _ELEMENTS else None
    if isinstance(thing, set):
        return {("members", ""): frozenset(thing)}
    if _is_iterator(thing):
        return {("iterator", ""): _where(thing), **_delegated(thing)}
    if _is_numpy(thing):
        return {("item", n): v for n, v in enumerate(thing.ravel().tolist())}
    if (state := _random_state(thing)) is not None:
        return {("random", ""): pickle.dumps(state[0]())}
    if isinstance(thing, ModuleType) and (own := _shared_numbers(thing)) is not None:
        return {("module", ""): own}
    if isinstance(thing, BuiltinMethodType):
        return {("function", ""): thing.__self__}
    if isinstance(thing, MethodType | partial):
        function = thing.__func__ if isinstance(thing, MethodType) else thing.func
        bound = {("attr", "__self__"): thing.__self__} if isinstance(thing, MethodType) else {}
        return {("function", ""): function, **bound}
    if isinstance(thing, FrameType):
        return _of_frame(thing)
    if isinstance(thing, FunctionType):
        return _of_function(thing) if _is_users(thing.__module__) else None
    if isinstance(thing, property):
        return {("function", n): f for n, f in enumerate((thing.fget, thing.fset)) if f}
    if isinstance(thing, staticmethod | classmethod):
        return {("function", ""): thing.__func__}
    return _attributes(thing)


def _attributes(thing: Any) -> Items | None:
    """Those of modules, classes and objects of users."""
    name = thing.__name__ if isinstance(thing, ModuleType) else None
    cls = thing if isinstance(thing, type) else type(thing)
    simple = type(thing).__name__ == "SimpleNamespace"
    if not simple and not _is_users(cls.__module__ if name is None else name):
        return None
    held = dict(getattr(thing, "__dict__", {}))
    for slot in () if isinstance(thing, type) else _slots(cls):
        with suppress(AttributeError):
            held[slot] = getattr(thing, slot)
    items = {("attr", n): v for n, v in held.items() if not (n.startswith("__") and n[-2:] == "__")}
    if name is None and not isinstance(thing, type) and not simple:
        items["class", ""] = cls
    return items


def _slots(cls: type) -> Iterator[str]:
    for base in cls.__mro__:
        slots = vars(base).get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots


def _of_frame(frame: FrameType) -> Items:
    values = frame.f_locals
    own = {} if values is frame.f_globals else values
    items = {("local", n): v for n, v in own.items()}
    return items | _globals(frame.f_code, frame.f_globals)


def _of_function(function: FunctionType) -> Items:
    items = _globals(function.__code__, function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        with suppress(ValueError):  # not set yet
            items["cell", name] = cell.cell_contents
    return items


def _globals(code: CodeType, values: dict[str, Any]) -> Items:
    """The variables of the module that a function names."""
    return {("global", n): values[n] for n in _names(code) if n in values}


@cache
def _names(code: CodeType) -> tuple[str, ...]:
    inner = (name for c in code.co_consts if isinstance(c, CodeType) for name in _names(c))
    return tuple(dict.fromkeys((*code.co_names, *inner)))


def _set_variables(frame: FrameType, items: Mapping[Step, Any]) -> None:
    for (kind, name), value in items.items():
        if kind == "global":
            frame.f_globals[name] = value
        else:
            frame.f_locals[name] = value
            if sys.version_info < (3, 13):  # f_locals is a copy
                ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


# ------------------------------------------------------------------ iterators


def _is_iterator(thing: object) -> bool:
    return isinstance(thing, (GeneratorType, *_ITERATORS))


def _delegated(thing: Any) -> Items:
    """What a generator waits for in ``yield from``."""
    inner = thing.gi_yieldfrom if isinstance(thing, GeneratorType) else None
    return {} if inner is None else {("delegated", ""): inner}


def _where(thing: Any, depth: int = 0) -> Any:
    """How far an iterator is, as values that can be compared."""
    if is_value(thing) or depth > 6:
        return thing if is_value(thing) else id(thing)
    if isinstance(thing, GeneratorType):
        frame = thing.gi_frame
        if frame is None:
            return ("ended",)
        values = {n: _where(v, depth + 1) for n, v in frame.f_locals.items()}
        return (frame.f_lasti, *values.items())
    if isinstance(thing, list | tuple):
        return tuple(_where(item, depth + 1) for item in thing[:_ELEMENTS])
    if not isinstance(thing, _ITERATORS):
        return id(thing)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            state = tuple(thing.__reduce__())[1:]
        except TypeError:
            return id(thing)
    return tuple(_where(part, depth + 1) for part in state)


def _move(iterator: Any, where: object) -> None:
    """Takes elements until the iterator is where another one was."""
    for _ in range(_AHEAD):
        if _where(iterator) == where:
            return
        next(iterator, None)


# ------------------------------------------------------------------ random numbers


def _random_state(thing: Any) -> tuple[Callable[[], Any], Callable[[Any], object]] | None:
    """What gets and sets the state of a generator of random numbers, of Python or of NumPy."""
    if isinstance(thing, random.Random) and not isinstance(thing, random.SystemRandom):
        return thing.getstate, thing.setstate
    if _root(type(thing)) == "numpy":
        if hasattr(thing, "bit_generator"):
            thing = thing.bit_generator
        if hasattr(thing, "random_raw"):
            return (lambda: thing.state), partial(setattr, thing, "state")
        if hasattr(thing, "set_state"):
            return partial(thing.get_state, legacy=False), thing.set_state
    return None


def _shared_numbers(module: ModuleType) -> object:
    """The generator behind the functions of a module such as ``random`` and ``numpy.random``."""
    if module is random:
        return getattr(random.randint, "__self__", None)
    if module.__name__ not in ("numpy", "numpy.random"):
        return None
    numbers = vars(module).get("random", module)
    return getattr(getattr(numbers, "rand", None), "__self__", None)


# ------------------------------------------------------------------ whose things they are

_CONTAINERS = ("builtins", "collections")
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


def _root(cls: type) -> str:
    """The package of a class; that of the gallery's are users' classes."""
    module: str = cls.__module__
    return "" if module.startswith("tilesim.kernels.") else module.partition(".")[0]


@cache
def _is_users(module: str | None) -> bool:
    """Whether a module is neither Python's, nor tilesim's, nor installed; None: of no module."""
    if module is None:
        return True
    root = module.partition(".")[0]
    if root in sys.stdlib_module_names and root != "__main__":
        return False
    if root == "tilesim":
        return module.startswith("tilesim.kernels.")
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return not file.startswith(_INSTALLED)


def _is_numpy(thing: object) -> TypeGuard[Any]:
    size: Callable[[], object] | int | None = getattr(thing, "size", None)
    return (
        _root(type(thing)) == "numpy" and hasattr(thing, "flat")
        and isinstance(size, int) and size <= _ELEMENTS
    )  # fmt: skip
