"""The CTA's register pool behind setmaxnreg (SEMANTICS E.3)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from tilesim.ir.ops.bar import Setmaxnreg
from tilesim.ir.program import Role, children

if TYPE_CHECKING:
    from tilesim.ir.program import Program, Stmt
    from tilesim.sim.machine.warp import Warp

#: registers are allocated per thread in units of 8 (I2)
_UNIT = 8
_MAX_PER_THREAD = 255


def launch_registers(program: Program) -> int:
    """Registers per thread at launch: as declared, else the most one CTA per SM can have.

    ptxas decides what was not declared: not more than the first setmaxnreg.inc of a warp asks for,
    which may not lower the count (E13).
    """
    if program.registers is not None:
        return program.registers
    share = program.target.registers // (32 * program.warps)
    most = min(share, _MAX_PER_THREAD) // _UNIT * _UNIT
    first = _first_counts(program.body, frozenset(range(program.warps)), set())
    return min([most, *(op.count for op in first if op.action == "inc")])


def _first_counts(
    body: tuple[Stmt, ...], warps: frozenset[int], done: set[int]
) -> Iterator[Setmaxnreg]:
    """Every setmaxnreg that may be the first of one of ``warps``; adds them to ``done``."""
    for stmt in body:
        match stmt:
            case Setmaxnreg():
                if warps - done:
                    yield stmt
                done |= warps
            case Role():
                yield from _first_counts(stmt.body, warps.intersection(stmt.warps), done)
            case _:
                arms = [(arm, set(done)) for arm in children(stmt)]
                for arm, seen in arms:
                    yield from _first_counts(arm, warps, seen)
                    done |= seen


class RegisterPool:
    """Registers given back by setmaxnreg.dec and not yet taken by .inc (E14: starts empty).

    As long as all that was taken had been given back by warps that wait for no .inc, every .inc is
    granted in every schedule. Otherwise who comes first may decide (E18): not `certain`.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self.free = 0
        self.waiters: list[Warp] = []
        self._taken: list[tuple[int, int]] = []
        self._surplus = 0

    @cached_property
    def launch(self) -> int:
        """Registers per thread before the first setmaxnreg."""
        return launch_registers(self._program)

    def give(self, warp: Warp, registers: int) -> None:
        """A .dec by ``warp`` returns ``registers`` (of a whole warp) to the pool."""
        self.free += registers
        if not any(warp.clock[component] >= tick for component, tick in self._taken):
            self._surplus += registers

    def take(self, warp: Warp, registers: int) -> bool:
        """An .inc by ``warp`` takes ``registers`` from the pool; False if it has too few."""
        if registers > self.free:
            return False
        self.free -= registers
        self._surplus -= registers
        if registers:
            self._taken.append((warp.component, warp.tick))
        return True

    @property
    def certain(self) -> bool:
        """True if every .inc so far is granted in every schedule."""
        return self._surplus >= 0
