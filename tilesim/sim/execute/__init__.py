"""Effects at run time: one executor per kind, composed into the step of an instruction.

An instruction of which every effect has an executor here needs no rule of its own.
"""

from tilesim.sim.execute import barriers, fences, lanes, memory, pool, registers
from tilesim.sim.execute.compose import EXECUTORS, execute

__all__ = ["EXECUTORS", "barriers", "execute", "fences", "lanes", "memory", "pool", "registers"]
