"""Effects at run time: one executor per kind, composed into the step of an instruction.

An instruction of which every effect has an executor here needs no rule of its own.
"""

from tilesim.sim.execute import (
    barriers,
    fences,
    groups,
    lanes,
    memory,
    pool,
    registers,
    transfers,
)
from tilesim.sim.execute.compose import EXECUTORS, execute

__all__ = [
    "EXECUTORS", "barriers", "execute", "fences", "groups", "lanes", "memory", "pool",
    "registers", "transfers",
]  # fmt: skip
