"""Kernels in PTX files as targets of commands, each with its launch description."""

from __future__ import annotations

from pathlib import Path

from tilesim.errors import TargetError, UsageError
from tilesim.loader import Target
from tilesim.ptx.description import loads
from tilesim.ptx.launch import Launch
from tilesim.ptx.lowering import Unsupported
from tilesim.ptx.program import lower
from tilesim.ptx.reader import read
from tilesim.ptx.syntax import Module
from tilesim.report.result import Checked
from tilesim.report.unsupported import unsupported

SUFFIX = ".ptx"


def is_ptx(text: str) -> bool:
    """Whether a target names a PTX file."""
    return text.partition("::")[0].endswith(SUFFIX)


def load_ptx(text: str, launch: Path | None) -> Target | Checked:
    """The kernel that ``file.ptx`` or ``file.ptx::entry`` names, with its launch description, by
    default the ``.json`` file beside it. What is not modelled is a result already.

    Raises:
        PtxError: the text is no PTX.
        LaunchError: the description is malformed or contradicts the kernel.
        TargetError: a file cannot be read, or has no such entry.
    """
    place, _, name = text.partition("::")
    path = Path(place)
    module = read(read_file(path), place)
    described = path.with_suffix(".json") if launch is None else launch
    if launch is None and not described.exists():
        raise TargetError(
            f"{place} says nothing of its launch: give --launch FILE; "
            f"`tilesim launch-template {place}` writes what is to be filled in"
        )
    known = loads(read_file(described), str(described))
    return _target(module, known, place, name)


def _target(module: Module, known: Launch, place: str, name: str) -> Target | Checked:
    if name and name != known.entry:
        raise UsageError(f"the launch description is for {known.entry}, not {name}")
    names = [e.name for e in module.entries]
    if known.entry not in names:
        raise TargetError(
            f"{place} has no entry {known.entry}; it has {', '.join(names) or 'none'}"
        )
    entry = module.entries[names.index(known.entry)]
    target = f"{place}::{entry.name}"
    try:
        return Target(target, place, mir=lower(module, entry, known))
    except Unsupported as error:
        return Checked(target, module.target, unsupported(entry.name, error))


def read_file(path: Path) -> str:
    """The text of a file.

    Raises:
        TargetError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TargetError(f"{path} cannot be read: {error}") from error
