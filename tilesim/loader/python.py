"""Kernels of Python files and modules."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tilesim.dsl.kernel import Kernel
from tilesim.errors import NoKernelError, TargetError, UsageError
from tilesim.files import MAX_SOURCE, read_regular
from tilesim.ir.program import Program
from tilesim.loader.target import Target
from tilesim.loader.user_code import user_code
from tilesim.wording import did_you_mean

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def load_file(
    path: Path, place: str, name: str, bracketed: Mapping[str, str], given: Mapping[str, str]
) -> tuple[Target, ...]:
    """The kernels of a Python file, or the one called ``name``.

    Raises:
        TargetError: it cannot be loaded, or has no such kernel.
        UsageError: a parameter does not exist or its value does not fit.
        InvalidProgram: a program made while the module is loaded is rejected.
    """
    return of_module(_import_file(path), place, str(path), name, bracketed, given)


def load_module(
    place: str, name: str, bracketed: Mapping[str, str], given: Mapping[str, str]
) -> tuple[Target, ...]:
    """The kernels of an importable module, or the one called ``name``; raises like `load_file`."""
    module = _import_module(place)
    return of_module(module, place, module.__file__ or place, name, bracketed, given)


def of_module(
    module: ModuleType, place: str, file: str, name: str, bracketed: Mapping[str, str],
    given: Mapping[str, str],
) -> tuple[Target, ...]:  # fmt: skip
    """The kernels of a module that was loaded, or the one called ``name``; raises like
    `load_file`."""
    if name:
        return (_named(module, place, file, name, {**bracketed, **given}),)
    return _all(module, place, file, given)


class _FromText(SourceFileLoader):
    """Loads a file by its text. Bytecode that Python keeps counts as that of the file if size and
    time, in seconds, are the same: an edit right after a check would not be seen."""

    def __init__(self, name: str, path: str, text: bytes) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self._text, self.get_filename(fullname))


def _import_file(path: Path) -> ModuleType:
    try:
        text = read_regular(path, MAX_SOURCE)
    except OSError as error:
        raise TargetError(f"{path} cannot be read: {error.strerror}") from error
    absolute = path.resolve()
    name = f"_tilesim_target_{len(sys.modules)}_{path.stem}"
    loader = _FromText(name, str(absolute), text)
    spec = importlib.util.spec_from_file_location(name, absolute, loader=loader)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with user_code(str(path), f"loading {path}"), _neighbours(str(absolute.parent)):
        spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> ModuleType:
    with user_code("", f"loading {name}"), _neighbours(os.getcwd()):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing = error.name or ""
            if name == missing or name.startswith(f"{missing}."):
                raise TargetError(f"there is no file and no module {name}") from error
            raise
        except (TypeError, ValueError) as error:
            if name.startswith(".") or not name.replace(".", "_").isidentifier():
                raise TargetError(f"there is no file {name}, and no such module name") from error
            raise


@contextmanager
def _neighbours(folder: str) -> Iterator[None]:
    """Lets a target import its neighbours while it is loaded.

    They come last: a kernel in ``copy.py`` must not stand in for the library's ``copy``, here or in
    a process started later.
    """
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _named(
    module: ModuleType, place: str, file: str, name: str, params: Mapping[str, str]
) -> Target:
    available = _exposed(module)
    item = available.get(name)
    if item is None:
        raise TargetError(
            f"{place} has no kernel {name!r}{did_you_mean(name, list(available))}; "
            f"it has {', '.join(available) or 'none'}"
        )
    return _target(place, file, name, item, params)


def _all(
    module: ModuleType, place: str, file: str, params: Mapping[str, str]
) -> tuple[Target, ...]:
    cases = getattr(module, "CASES", ())
    if cases and not params:
        found = {t.id: t for t in _from_cases(module, place, file, cases)}
        return tuple(found.values())
    available = _exposed(module)
    own = {n: item for n, item in available.items() if _defined_in(item, module)} or available
    once = {id(item): (n, item) for n, item in reversed(own.items())}
    if not own:
        raise NoKernelError(
            f"{place} defines no kernel; a kernel is a function with the decorator tilesim.kernel "
            "(or a Program)"
        )
    ordered = reversed(once.values())
    return tuple(_target(place, file, name, item, params) for name, item in ordered)


def _from_cases(module: ModuleType, place: str, file: str, cases: object) -> Iterator[Target]:
    names = {id(item): name for name, item in _exposed(module).items()}
    if not isinstance(cases, (tuple, list)):
        raise TargetError(f"{place}: CASES is not a tuple of cases")
    for case in cases:
        kernel, params = getattr(case, "kernel", None), getattr(case, "params", None)
        if not isinstance(kernel, Kernel) or not isinstance(params, Mapping):
            raise TargetError(f"{place}: {case!r} in CASES has no kernel and params")
        name = names.get(id(kernel), kernel.name)
        yield Target(identify(f"{place}::{name}", kernel, params), file, kernel, params=params)


def _exposed(module: ModuleType) -> dict[str, Kernel | Program]:
    """Kernels and programs of a module by the name of their variable, in source order."""
    return {n: item for n, item in vars(module).items() if isinstance(item, Kernel | Program)}


def _defined_in(item: Kernel | Program, module: ModuleType) -> bool:
    if isinstance(item, Program):
        return True
    return getattr(item.function, "__module__", "") == module.__name__


def _target(
    place: str, file: str, name: str, item: Kernel | Program, params: Mapping[str, str]
) -> Target:
    if isinstance(item, Program):
        if params:
            raise UsageError(f"{place}::{name} is a finished program, it has no parameters")
        return Target(f"{place}::{name}", file, program=item)
    scalars = _scalars(file, item, params)
    values = {key: _value(item, scalars, key, text) for key, text in params.items()}
    return Target(identify(f"{place}::{name}", item, values), file, item, params=values)


def identify(name: str, kernel: Kernel, params: Mapping[str, Any]) -> str:
    """A name, ``place::kernel``, with the parameters that differ from the defaults in brackets."""
    defaults = kernel.params
    changed = [
        f"{key}={value}"
        for key, value in params.items()
        if key not in defaults or defaults[key] != value
    ]
    return name + (f"[{','.join(changed)}]" if changed else "")


def _scalars(file: str, kernel: Kernel, params: Mapping[str, str]) -> dict[str, int]:
    """The scalars that a kernel declares, if one of ``params`` may be one; it is built for that."""
    if params.keys() <= kernel.params.keys():
        return {}
    own = {n: _value(kernel, {}, n, text) for n, text in params.items() if n in kernel.params}
    with user_code(file, f"building {kernel.name}"):
        return kernel.scalars(**own)


def _value(kernel: Kernel, scalars: Mapping[str, int], name: str, text: str) -> Any:
    """``text`` as a value of the type that the parameter's default has."""
    known = {**scalars, **kernel.params}
    if name not in known:
        raise UsageError(
            f"kernel {kernel.name} has no parameter {name!r}{did_you_mean(name, known)}; "
            f"it has {', '.join([*kernel.params, *scalars]) or 'none'}"
        )
    default = known[name]
    try:
        return _parse(text, default)
    except ValueError as error:
        kind = "true or false" if isinstance(default, bool) else f"of type {type(default).__name__}"
        raise UsageError(f"parameter {name} of {kernel.name}: {text!r} is not {kind}") from error


def _parse(text: str, default: object) -> Any:
    match default:
        case bool():
            if text.lower() not in (*_TRUE, *_FALSE):
                raise ValueError(text)
            return text.lower() in _TRUE
        case int():
            return int(text, 0)
        case float():
            return float(text)
        case str():
            return text
        case _:
            try:
                return ast.literal_eval(text)
            except (ValueError, SyntaxError):
                return text
