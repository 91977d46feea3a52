"""The CTA's register pool behind setmaxnreg (SEMANTICS E.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilesim.ir.program import Program
    from tilesim.sim.machine.warp import Warp

#: registers are allocated per thread in units of 8 (I2)
_UNIT = 8
_MAX_PER_THREAD = 255


def launch_registers(program: Program) -> int:
    """Registers per thread at launch: as declared, else the most one CTA per SM can have."""
    if program.registers is not None:
        return program.registers
    share = program.target.registers // (32 * program.warps)
    return min(share, _MAX_PER_THREAD) // _UNIT * _UNIT


class RegisterPool:
    """Registers given back by setmaxnreg.dec and not yet taken by .inc (E14: starts empty).

    As long as all that was taken had been given back by warps that wait for no .inc, every .inc is
    granted in every schedule. Otherwise who comes first may decide (E18): not `certain`.
    """

    def __init__(self, program: Program) -> None:
        self.launch = launch_registers(program)
        self.free = 0
        self.waiters: list[Warp] = []
        self._taken: list[tuple[int, int]] = []
        self._surplus = 0

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
