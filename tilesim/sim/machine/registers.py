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
    """Registers given back by setmaxnreg.dec and not yet taken by .inc (E14: starts empty)."""

    def __init__(self, program: Program) -> None:
        self.launch = launch_registers(program)
        self.free = 0
        self.waiters: list[Warp] = []

    def take(self, registers: int) -> bool:
        """Takes ``registers`` (of a whole warp) from the pool; False if it has too few."""
        if registers > self.free:
            return False
        self.free -= registers
        return True
