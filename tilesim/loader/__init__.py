"""Loading kernels: ``file.py::kernel[stages=2]``, ``package.module``, ``file.tile``, ``file.mir``,
``file.ptx``, and programs, libraries and cubins with PTX in them.

`load` only finds the kernels; `Target.form` makes the program, so that one kernel that cannot be
built does not hide the others. What a user's file prints while it is loaded goes to stderr. Of a
folder `files` names what is in it; nothing in it is run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from tilesim.errors import NoKernelError, TargetError, UsageError
from tilesim.files import show_below, show_file
from tilesim.loader.code_kind import ENDINGS, kind_of
from tilesim.loader.names import split
from tilesim.loader.ptx import DESCRIPTION, PtxKernel, described
from tilesim.loader.ptx import SUFFIX as PTX
from tilesim.loader.python import load_file, load_module
from tilesim.loader.stdin import STDIN, load_stdin
from tilesim.loader.target import Target
from tilesim.loader.text import MIR, TILE, read_file, read_mir, read_tile
from tilesim.ptx.demangle import readable, shown
from tilesim.records import dataclass, field, replace
from tilesim.wording import did_you_mean

if TYPE_CHECKING:  # most targets are no machine code
    from tilesim.loader.machine_code import MachineCode

__all__ = [
    "STDIN", "Given", "Target", "files", "imports_tilesim", "is_code", "is_ptx", "load",
    "load_one", "runs_only_tilesim",
]  # fmt: skip

_SUFFIXES = (".py", TILE, MIR, PTX)
#: folders of packages
_INSTALLED = ("site-packages", "node_modules", "__pycache__")
#: kernels without PTX that are targets one by one
MOST_CLOSED = 64
#: how a file begins that may define kernels; what it imports of these packages is for scripts that
#: launch kernels of other compilers: `tilesim capture` runs them
_SCRIPTS = "capture|cute|tilelang|tilus|triton"
_IMPORTS = re.compile(rf"^\s*(?:import|from) tilesim\b(?!\.(?:{_SCRIPTS})\b)", re.MULTILINE)
#: what of a folder is read; Python files would have to be run
_IN_FOLDERS = (TILE, MIR, PTX, *ENDINGS)
#: modules of the gallery
_GALLERY = re.compile(r"tilesim\.kernels(\.\w+)*", re.ASCII)


@dataclass(frozen=True)
class Given:
    """What is said about targets besides their names: parameters of kernels (unparsed values), the
    launch descriptions of a PTX file, and which of its entries."""

    params: Mapping[str, str] = field(default_factory=dict)
    launches: tuple[Path, ...] = ()
    entry: str | None = None
    #: reports show lines of source files below these folders, too (`tilesim.files`)
    source_roots: tuple[Path, ...] = ()
    #: only kernels of these names, with * and ?
    kernels: tuple[str, ...] = ()


def files(text: str, *, python: bool = False) -> tuple[str, ...]:
    """``text``, or if it is a folder the files with kernels in it and below, in order. No text
    is no folder, not the one that is worked in.

    ``python``: also Python files that import tilesim, but for those in hidden folders and in
    installed packages, and for scripts that are there for `tilesim capture`.

    Raises:
        TargetError: the folder has none.
    """
    if not text or not _is_file(text) or not os.path.isdir(text):
        return (text,)
    inside = [p for p in Path(text).rglob("*") if p.is_file()]
    found = sorted(
        str(p)
        for p in inside
        if (p.suffix in _IN_FOLDERS and not _is_beside_ptx(p))
        or (python and p.suffix == ".py" and _uses_tilesim(p, text))
    )
    if not found:
        hint = ""
        if any(p.suffix == ".py" for p in inside):
            here = text.rstrip(os.sep)
            hint = (f"; Python files are run only if they are named: {here}/*.py, or with --python "
                    "if they import tilesim to define kernels")  # fmt: skip
        kinds = f"{', '.join(_IN_FOLDERS[:-1])} or {_IN_FOLDERS[-1]}"
        raise TargetError(f"{text} is a folder without {kinds} files{hint}")
    return tuple(found)


def _is_beside_ptx(path: Path) -> bool:
    """Whether a file is the machine code of a PTX file beside it, as Triton's cache has both."""
    return path.suffix in ENDINGS and path.with_suffix(PTX).exists()


def _uses_tilesim(path: Path, folder: str) -> bool:
    """Whether a Python file says that it imports what kernels are made with; nothing is run."""
    parts = path.relative_to(folder).parts
    if any(part.startswith(".") or part in _INSTALLED for part in parts):
        return False
    try:
        return imports_tilesim(read_file(path))
    except TargetError:
        return False


def imports_tilesim(source: str) -> bool:
    """Whether a Python text says that it imports what kernels are made with; nothing is run."""
    return _IMPORTS.search(source) is not None


def is_code(text: str) -> bool:
    """Whether ``text`` names what Python runs to load it, or may do so; a folder's files are read.

    Nothing is opened to find out.
    """
    place = split(text)[0]
    return text == STDIN or not _is_file(place) or Path(place).suffix == ".py"


def runs_only_tilesim(text: str) -> bool:
    """Whether loading ``text`` runs no code but tilesim's own: it names a file that is only read
    (no folder), or a module of the gallery.

    Raises:
        TargetError: it is no name of a target.
    """
    place = split(text)[0]
    if _is_file(place):
        return Path(place).suffix in _IN_FOLDERS and not os.path.isdir(place)
    return _GALLERY.fullmatch(place) is not None


def is_ptx(text: str) -> bool:
    """Whether ``text`` names a PTX file or a file of machine code, or a kernel in one."""
    place = split(text)[0]
    return Path(place).suffix == PTX or kind_of(place) is not None


def load(text: str, given: Given | Mapping[str, str] | None = None) -> tuple[Target, ...]:
    """The kernels that ``text`` names, with what is ``given`` (a mapping: parameters).

    A module with ``CASES`` gives all of them, unless parameters are given; else every kernel and
    program it defines. PTX gives one kernel per launch that is described.

    Raises:
        TargetError: there is no such file, module or kernel, or it cannot be loaded.
        UsageError: a parameter does not exist or its value does not fit.
        ParseError: a ``.tile`` file is malformed.
        LaunchError: a launch description is malformed.
        InvalidProgram: a program made while the module is loaded is rejected.
    """
    said = given if isinstance(given, Given) else Given(given or {})
    if said.source_roots:
        show_below(said.source_roots)
    found = _load(text, said)
    if not said.kernels:
        return found
    named = [(target, split(target.id)[1]) for target in found]
    chosen = tuple(t for t, name in named if any(fnmatchcase(name, k) for k in said.kernels))
    if not chosen:
        wanted = ", ".join(said.kernels)
        names = list(dict.fromkeys(name for _, name in named))
        raise NoKernelError(
            f"{text} has no kernel {wanted}{did_you_mean(said.kernels[0], names)}; it has "
            f"{', '.join(names)}"
        )
    return chosen


def _load(text: str, said: Given) -> tuple[Target, ...]:
    """All kernels that ``text`` names."""
    if text == STDIN:
        return load_stdin(said.params)
    place, name, bracketed = split(text)
    if not _is_file(place):
        _only_ptx(text, said)
        return load_module(place, name, bracketed, said.params)
    path = _existing(place)
    if path.is_dir():
        return tuple(target for file in files(place) for target in _load(file, said))
    if kind_of(path) == "dump":
        return _load_dump(path, place, name, bracketed, said)
    if path.suffix not in _SUFFIXES:
        return _load_code(path, place, name, bracketed, said)
    if path.suffix == PTX:
        return _load_ptx(path, place, name, bracketed, said)
    _only_ptx(text, said)
    if path.suffix in (TILE, MIR):
        if said.params or bracketed:
            raise UsageError(
                f"{path}: a {path.suffix} file holds a finished program, it has no parameters"
            )
        if path.suffix == MIR:
            mir = read_mir(path, name)
            return (Target(f"{path}::{mir.kernel.name}", str(path), machine=mir),)
        program = read_tile(path, name)
        return (Target(f"{path}::{program.name}", str(path), program=program),)
    return load_file(path, place, name, bracketed, said.params)


def load_one(text: str, given: Given | Mapping[str, str] | None = None) -> Target:
    """The one kernel that ``text`` names; as `load`, and a UsageError if it names several."""
    found = load(text, given)
    if len(found) != 1:
        names = ", ".join(target.id for target in found)
        raise UsageError(f"{text} has {len(found)} kernels; name one of {names}")
    return found[0]


def _load_ptx(
    path: Path, place: str, name: str, bracketed: Mapping[str, str], said: Given
) -> tuple[Target, ...]:
    """The kernels of a PTX file, one per launch."""
    values = {**bracketed, **said.params}
    number = values.pop("launch", None)
    kernels = described(path, said.launches, _entry(place, name, said), number)
    return tuple(_passing(place, label, kernel, values) for label, kernel in kernels)


def _load_dump(
    path: Path, place: str, name: str, bracketed: Mapping[str, str], said: Given
) -> tuple[Target, ...]:
    """The launches in a core dump of a GPU."""
    from tilesim.loader.dumps import kernels  # what only dumps need

    if said.launches:
        raise UsageError(f"{path} is a dump, which has its launches itself: without --launch")
    values = {**bracketed, **said.params}
    number = values.pop("launch", None)
    return tuple(
        _passing(place, label, one, values)
        if isinstance(one, PtxKernel) else Target(label, place, closed=one)
        for label, one in kernels(path, _entry(place, name, said), number)
    )  # fmt: skip


def _load_code(
    path: Path, place: str, name: str, bracketed: Mapping[str, str], said: Given
) -> tuple[Target, ...]:
    """The kernels of a file of machine code: one per launch, or without PTX one each."""
    from tilesim.loader.machine_code import read  # what only machine code needs

    code = read(path)
    values = {**bracketed, **said.params}
    number = values.pop("launch", None)
    arch = bracketed.get("arch")
    if arch is not None:
        values.pop("arch")
    entry = _entry(place, name, said)
    if not said.launches and not path.with_suffix(DESCRIPTION).exists():
        return _not_described(code, place, entry)
    found: list[Target] = []
    for label, kernel in described(path, said.launches, entry, number):
        wanted = kernel.launch.entry
        embedded = code.ptx(wanted, arch)
        if embedded is None:
            found += _closed(code, place, wanted)
            continue
        label = label if arch is None else _with(label, {"arch": arch})
        found.append(_passing(place, label, kernel.inside(code, embedded), values))
    return tuple(found)


def _not_described(code: MachineCode, place: str, entry: str | None) -> tuple[Target, ...]:
    """The kernels of a file of which no launch is described: without PTX they need none."""
    open_ = [name for name in code.with_ptx if entry in (None, name, readable(name))]
    if open_:
        from tilesim.loader.programs import without_launch  # what only a mistake needs

        raise TargetError(without_launch(code))
    return _closed(code, place, entry)


def _closed(code: MachineCode, place: str, entry: str | None) -> tuple[Target, ...]:
    """The kernels without PTX; of more than can be read they are only counted.

    Raises:
        NoKernelError: there is none, or none of this name.
    """
    found = [*code.closed(entry)]
    if not found:
        if not code.kernels:
            from tilesim.loader.programs import without_kernels  # what only a mistake needs

            raise NoKernelError(without_kernels(code))
        has = ", ".join(shown(code.kernels).values())
        hint = did_you_mean(entry or "", code.kernels)
        raise NoKernelError(f"{place} has no kernel {entry}{hint}; it has {has}")
    names = shown(one.name for one in found)
    targets = tuple(Target(f"{place}::{names[one.name]}", place, closed=one) for one in found)
    if len(targets) <= MOST_CLOSED:
        return targets
    return (Target(place, place, closed=replace(found[0], others=len(found) - 1)),)


def _entry(place: str, name: str, said: Given) -> str | None:
    """The kernel that is asked for; None: all of them."""
    if name and said.entry not in (None, name):
        raise UsageError(f"{place}::{name} is not the entry {said.entry}")
    return name or said.entry


def _passing(place: str, label: str, kernel: PtxKernel, values: Mapping[str, str]) -> Target:
    """A kernel of PTX with other numbers passed by value."""
    if values:
        label, kernel = _with(label, kernel.named(values)), kernel.passing(values)
    return Target(label, place, ptx=kernel)


def _with(label: str, values: Mapping[str, str]) -> str:
    """The name of a kernel of PTX, with the numbers that are passed instead of its launch's."""
    own = ",".join(f"{name}={value}" for name, value in values.items())
    return f"{label[:-1]},{own}]" if label.endswith("]") else f"{label}[{own}]"


def _only_ptx(text: str, said: Given) -> None:
    for option, value in (("--launch", said.launches), ("--entry", said.entry)):
        if value:
            raise UsageError(f"{option} is for PTX files only, and {text} is not one")


def _is_file(place: str) -> bool:
    """Nothing is a file of which the system refuses the name (`os.path` says so, `Path` raises)."""
    if place.isidentifier() and os.path.exists(os.path.join(place, "__init__.py")):
        return False
    known = (*_SUFFIXES, *ENDINGS)
    return place.endswith(known) or os.sep in place or os.path.exists(place)


def _existing(place: str) -> Path:
    path = Path(place)
    if not os.path.exists(place):
        names = os.listdir(path.parent) if os.path.isdir(path.parent) else []
        endings = (*_SUFFIXES, *ENDINGS)
        beside = [name for name in names if Path(name).suffix in endings]
        raise TargetError(f"{place}: no such file{did_you_mean(path.name, beside)}")
    if not path.is_dir() and path.suffix not in _SUFFIXES and kind_of(path) is None:
        from tilesim.loader.programs import advice  # what only a mistake needs

        known = advice(path)
        if known is not None:
            raise TargetError(known)
        raise TargetError(f"{place} is not a {', '.join(_SUFFIXES)} file, a program or a cubin")
    show_file(path)
    return path
