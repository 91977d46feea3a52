"""Effects at run time: one executor per kind, composed into the step of an instruction.

An instruction of which every effect has an executor here needs no rule of its own.
"""

from tilesim.sim.machine.compose import EXECUTORS, execute
from tilesim.sim.machine.execute import (
    barriers,
    copies,
    fences,
    groups,
    lanes,
    launch_control,
    mbarrier,
    memory,
    register_pool,
    tensor_memory,
    tensormaps,
    wgmma,
    words,
)

__all__ = [
    "EXECUTORS", "barriers", "launch_control", "mbarrier", "execute", "fences", "wgmma", "groups",
    "copies", "lanes", "memory", "register_pool", "words", "tensor_memory", "tensormaps",
]  # fmt: skip
