"""Loading kernels: ``file.py``, ``file.py::kernel[stages=2]``, ``package.module``, ``file.tile``.

`load` only finds the kernels; `Target.build` makes the program, so that one kernel that cannot be
built does not hide the others. What a user's file prints while it is loaded goes to stderr.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.errors import (
    InvalidProgram,
    NoKernelError,
    ParseError,
    TargetError,
    TilesimError,
    UsageError,
)
from tilesim.ir.kernel import Kernel
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program
from tilesim.ir.types import numpy_dtype

_SUFFIXES = (".py", ".tile")
#: a comma before the next ``name=``; values may contain commas
_NEXT = re.compile(r",(?=\s*\w+=)")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True)
class Target:
    """One kernel to check or run, not built yet.

    ``id`` names it as the command line would: ``file.py::kernel[stages=2]``. ``kernel`` is None
    for a finished `Program`, and for one in machine form only (``mir``); ``file`` is the file it
    was loaded from, for error messages.
    """

    id: str
    file: str
    kernel: Kernel | None = None
    program: Program | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    mir: Mir | None = None

    def form(self) -> Program | Mir:
        """The program, or its machine form if there is no other; raises like `build`."""
        return self.build() if self.mir is None else self.mir

    def build(self) -> Program:
        """The program.

        Raises:
            InvalidProgram: an operand cannot be expressed.
            TargetError: the kernel's function raises.
        """
        if self.kernel is None:
            assert self.program is not None
            return self.program
        with _user_code(self.file, f"building {self.kernel.name}"):
            return self.kernel.build(**self.params)

    @property
    def arguments(self) -> dict[str, Any]:
        """All parameters of the kernel: the defaults, and those given."""
        return {**self.kernel.params, **self.params} if self.kernel else {}

    def inputs(self, program: Program, seed: int) -> dict[str, NDArray[Any]]:
        """Input arrays: the kernel's own, or small random integers, so that sums are exact.

        Raises:
            TargetError: the kernel's ``inputs`` raises.
        """
        rng = np.random.default_rng(seed)
        if self.kernel is not None and self.kernel.inputs is not None:
            return self._arrays("inputs", self.call(self.kernel.inputs, rng))
        return {
            t.name: rng.integers(0 if t.dtype.kind == "uint" else -3, 4, t.shape).astype(
                numpy_dtype(t.dtype)
            )
            for t in program.tensors
        }

    def expected(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]] | None:
        """What the kernel's reference computes from ``inputs``; None without a reference.

        Raises:
            TargetError: the reference raises.
        """
        if self.kernel is None or self.kernel.reference is None:
            return None
        return self._arrays("reference", self.call(self.kernel.reference, dict(inputs)))

    def _arrays(self, what: str, made: object) -> dict[str, NDArray[Any]]:
        if not isinstance(made, Mapping):
            kind = type(made).__name__
            raise TargetError(f"{what} of {self.id} returns {kind}, not arrays by name")
        return {name: np.asarray(value) for name, value in made.items()}

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls ``inputs`` or ``reference`` of the kernel with its parameters.

        Raises:
            TargetError: it raises.
        """
        name = getattr(function, "__name__", "function")
        with _user_code(self.file, f"calling {name} of {self.id}"):
            return function(*args, **self.arguments)


def load(text: str, params: Mapping[str, str] | None = None) -> tuple[Target, ...]:
    """The kernels that ``text`` names, with ``params`` (unparsed values) set.

    A module with ``CASES`` gives all of them, unless ``params`` are given; else every kernel and
    program it defines.

    Raises:
        TargetError: there is no such file, module or kernel, or it cannot be loaded.
        UsageError: a parameter does not exist or its value does not fit.
        ParseError: a ``.tile`` file is malformed.
        InvalidProgram: a program made while the module is loaded is rejected.
    """
    place, name, bracketed = _split(text)
    given = dict(params or {})
    if _is_file(place):
        path = _existing(place)
        if path.suffix == ".tile":
            return (_load_text(path, name, bool(given or bracketed)),)
        module = _import_file(path)
        file = str(path)
    else:
        module = _import_module(place)
        file = module.__file__ or place
    if name:
        return (_named(module, place, file, name, {**bracketed, **given}),)
    return _all(module, place, file, given)


def load_one(text: str, params: Mapping[str, str] | None = None) -> Target:
    """The one kernel that ``text`` names; as `load`, and a UsageError if it names several."""
    found = load(text, params)
    if len(found) != 1:
        names = ", ".join(target.id for target in found)
        raise UsageError(f"{text} has {len(found)} kernels; name one of {names}")
    return found[0]


def _split(text: str) -> tuple[str, str, dict[str, str]]:
    """``place::name[a=1,b=2]`` taken apart."""
    place, _, name = text.partition("::")
    bracketed: dict[str, str] = {}
    if name.endswith("]") and "[" in name:
        name, _, inside = name[:-1].partition("[")
        for item in filter(None, _NEXT.split(inside)):
            key, equals, value = item.partition("=")
            if not equals:
                raise TargetError(f"{text}: {item!r} in the brackets is not NAME=VALUE")
            bracketed[key.strip()] = value.strip()
    if not place or ("::" in text and not name):
        raise TargetError(
            f"{text!r} names no kernel; write file.py, file.py::kernel, package.module::kernel "
            "or file.tile"
        )
    return place, name, bracketed


def _is_file(place: str) -> bool:
    if place.isidentifier() and Path(place, "__init__.py").exists():
        return False
    return place.endswith(_SUFFIXES) or os.sep in place or Path(place).exists()


def _existing(place: str) -> Path:
    path = Path(place)
    if path.is_dir():
        raise TargetError(f"{place} is a directory; name a .py or .tile file, or a module")
    if not path.exists():
        folder = path.parent
        beside = [p.name for p in folder.glob("*") if p.suffix in _SUFFIXES]
        raise TargetError(f"{place}: no such file{_suggest(path.name, beside)}")
    if path.suffix not in _SUFFIXES:
        raise TargetError(f"{place} is neither a .py nor a .tile file")
    return path


def _load_text(path: Path, name: str, has_params: bool) -> Target:
    from tilesim.ir import text

    if has_params:
        raise UsageError(f"{path}: a .tile file holds a finished program, it has no parameters")
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TargetError(f"{path} cannot be read: {error}") from error
    program = text.parse(source, str(path))
    if name and name != program.name:
        raise TargetError(f"{path} has no kernel {name!r}; it holds {program.name}")
    return Target(f"{path}::{program.name}", str(path), program=program)


def _import_file(path: Path) -> ModuleType:
    absolute = path.resolve()
    name = f"_tilesim_target_{len(sys.modules)}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, absolute)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with _user_code(str(path), f"loading {path}"), _neighbours(str(absolute.parent)):
        spec.loader.exec_module(module)
    return module


def _import_module(name: str) -> ModuleType:
    with _user_code("", f"loading {name}"), _neighbours(os.getcwd()):
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


@contextmanager
def _user_code(file: str, doing: str) -> Iterator[None]:
    """Turns what the user's code raises into a `TargetError` with the line; no traceback."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (InvalidProgram, TargetError, ParseError):
        raise
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno else ""
        where = f"{_short(error.filename or file)}{line}"
        raise TargetError(f"{where}: SyntaxError: {error.msg}") from error
    except TilesimError as error:
        raise type(error)(f"{_line_of(error, file)}: {doing}: {error}") from error
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise TargetError(f"{_line_of(error, file)}: {doing} raises {what}") from error


def _line_of(error: BaseException, file: str) -> str:
    """``file:line`` of the innermost frame in the user's file (else in any code but ours)."""
    frames = extract_tb(error.__traceback__)
    wanted = os.path.realpath(file) if file else ""
    here = [f for f in frames if os.path.realpath(f.filename) == wanted]
    foreign = [f for f in frames if not _is_ours(f.filename)]
    for candidates in (here, foreign):
        if candidates:
            frame = candidates[-1]
            return f"{_short(frame.filename)}:{frame.lineno}"
    return file or "<unknown>"


def _is_ours(filename: str) -> bool:
    package = os.path.dirname(os.path.abspath(__file__)) + os.sep
    gallery = os.path.join(package, "kernels") + os.sep
    ours = filename.startswith(package) and not filename.startswith(gallery)
    return ours or filename.startswith("<frozen") or f"{os.sep}importlib{os.sep}" in filename


def _short(path: str) -> str:
    here = os.getcwd() + os.sep
    return path[len(here) :] if path.startswith(here) else path


def _named(
    module: ModuleType, place: str, file: str, name: str, params: Mapping[str, str]
) -> Target:
    available = _exposed(module)
    item = available.get(name)
    if item is None:
        raise TargetError(
            f"{place} has no kernel {name!r}{_suggest(name, list(available))}; "
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
        raise TargetError(f"{place}: CASES is no tuple of cases")
    for case in cases:
        kernel, params = getattr(case, "kernel", None), getattr(case, "params", None)
        if not isinstance(kernel, Kernel) or not isinstance(params, Mapping):
            raise TargetError(f"{place}: {case!r} in CASES has no kernel and params")
        name = names.get(id(kernel), kernel.name)
        yield Target(_identify(place, name, kernel, params), file, kernel, params=params)


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
    values = {key: _value(item, key, text) for key, text in params.items()}
    return Target(_identify(place, name, item, values), file, item, params=values)


def _identify(place: str, name: str, kernel: Kernel, params: Mapping[str, Any]) -> str:
    """``place::name`` with the parameters that differ from the defaults in brackets."""
    defaults = kernel.params
    changed = [
        f"{key}={value}"
        for key, value in params.items()
        if key not in defaults or defaults[key] != value
    ]
    return f"{place}::{name}" + (f"[{','.join(changed)}]" if changed else "")


def _value(kernel: Kernel, name: str, text: str) -> Any:
    """``text`` as a value of the type that the parameter's default has."""
    if name not in kernel.params:
        raise UsageError(
            f"kernel {kernel.name} has no parameter {name!r}{_suggest(name, list(kernel.params))}; "
            f"it has {', '.join(kernel.params) or 'none'}"
        )
    default = kernel.params[name]
    try:
        return _parse(text, default)
    except ValueError as error:
        kind = type(default).__name__
        raise UsageError(f"parameter {name} of {kernel.name}: {text!r} is no {kind}") from error


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


def _suggest(name: str, available: list[str]) -> str:
    others = [other for other in available if other != name]
    close = get_close_matches(name, others, n=2, cutoff=0.5)
    return f" (did you mean {' or '.join(close)}?)" if close else ""
