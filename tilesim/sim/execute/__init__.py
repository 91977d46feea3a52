"""Effects at run time: one executor per kind, composed into the step of an instruction.

An instruction of which every effect has an executor here needs no rule of its own.
"""

from tilesim.sim.execute import (
    barriers,
    cancels,
    credits,
    fences,
    fragments,
    groups,
    lane_copies,
    lanes,
    memory,
    pool,
    products,
    registers,
    remote,
    scalars,
    shuffles,
    tensor_allocations,
    tensor_commits,
    tensor_memory,
    tensormaps,
    transfers,
    waits,
)
from tilesim.sim.execute.compose import EXECUTORS, execute

__all__ = [
    "EXECUTORS", "barriers", "cancels", "credits", "execute", "fences", "fragments", "groups",
    "lane_copies", "lanes", "memory", "pool", "products", "registers", "remote", "scalars",
    "shuffles", "tensor_allocations", "tensor_commits", "tensor_memory", "tensormaps", "transfers",
    "waits",
]  # fmt: skip
