"""What `emit` returns: the CUDA text, how to launch it, and which line came from where."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tilesim.ir.loc import Loc
from tilesim.ir.op import Op
from tilesim.ir.program import Dim3, Program

ParamKind = Literal["tensor", "scalar", "map", "mailbox", "budget", "seed", "trace"]


@dataclass(frozen=True)
class Param:
    """One kernel parameter: what it is and the name of the tensor, scalar or map."""

    kind: ParamKind
    name: str


@dataclass(frozen=True)
class Site:
    """A place where a warp can block: the watchdog's records name it by its index."""

    what: str
    mnemonic: str
    role: str
    loc: Loc


@dataclass(frozen=True)
class Source:
    """CUDA C++ of one program.

    ``params`` in the order of the kernel's parameters; ``grid`` counts CTAs (the cluster shape is
    compiled in); ``lines`` gives, per line of ``text``, the kernel's line it came from;
    ``traced`` are the instructions that records of a trace name by index; of those in ``apart``
    every group of lanes leaves a record that happens to execute them together.
    """

    program: Program = field(repr=False)
    text: str = field(repr=False)
    entry: str
    arch: str
    params: tuple[Param, ...]
    grid: Dim3
    block: int
    smem_bytes: int
    sites: tuple[Site, ...] = field(repr=False, default=())
    lines: tuple[Loc | None, ...] = field(repr=False, default=())
    traced: tuple[Op, ...] = field(repr=False, default=())
    apart: frozenset[int] = field(repr=False, default=frozenset())

    def loc(self, line: int) -> Loc | None:
        """The kernel's line behind line ``line`` (from 1) of the text, or the nearest before."""
        for index in range(min(line, len(self.lines)) - 1, -1, -1):
            found = self.lines[index]
            if found is not None:
                return found
        return None
