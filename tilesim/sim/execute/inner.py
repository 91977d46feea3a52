"""Ranges of global memory that a copy reads without some bytes at their ends (SEMANTICS B38)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.types import DType, numpy_dtype
from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr
from tilesim.ir.op import Op
from tilesim.sim.execute.combine import Combine
from tilesim.sim.execute.compose import Operands
from tilesim.sim.execute.ends import CHUNK, End, require_contiguous
from tilesim.sim.execute.tensormaps import MapInMemory
from tilesim.sim.expression import Evaluate
from tilesim.sim.machine.footprint import Footprint
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.memory import ViewAccess, read_elements, uniform
from tilesim.sim.machine.misuse import BarrierError
from tilesim.sim.machine.storage import Memory
from tilesim.sim.machine.unknown import Unknown


class Inner:
    """What is read of a range, ``left`` elements from its start, as an end of a copy of all."""

    __slots__ = ("_left", "dtype", "footprint", "memory", "nbytes", "through")

    def __init__(
        self, dtype: DType, nbytes: int, memory: Memory, footprint: Footprint | None, left: int
    ) -> None:
        self.dtype = dtype
        self.nbytes = nbytes
        self.memory = memory
        self.footprint = footprint
        self.through: MapInMemory | None = None
        self._left = left

    def other(self, w: Warp, view: ViewAccess, memory: Memory) -> Footprint:
        """All of the other end is written."""
        return view.footprint_in(w, memory)

    def load(self) -> NDArray[Any]:
        """The elements; zeros for those that are ignored."""
        found = np.zeros(self.nbytes // self.dtype.bytes, numpy_dtype(self.dtype))
        if self.footprint is not None:
            read = read_elements(self.memory, self.footprint, self.dtype).ravel()
            found[self._left : self._left + read.size] = read
        return found

    def store(self, values: NDArray[Any], combine: Combine | None) -> None:
        """Such copies only read global memory."""
        raise TypeError("bytes are ignored where a copy reads")

    def spoil(self, op: Op, memory: Memory, target: Footprint) -> None:
        """Nobody knows what the ignored bytes are where they have been copied to."""
        addresses = target.addresses.ravel()
        count = 0 if self.footprint is None else self.footprint.addresses.size
        left = self._left if count else addresses.size
        ignored = np.concatenate([addresses[:left], addresses[left + count :]])
        if ignored.size:
            source = f"bytes that {op.mnemonic} ignores"
            memory.forget_at(ignored, target.itemsize, Unknown(source, loc=op.loc))


def inner_end(c: Operands, op: Op, effect: fx.Reads, ignored: tuple[Expr, Expr]) -> End:
    """The end of a copy that reads a view without so many bytes at its ends."""
    view, size = effect.view, effect.view.dtype.bytes
    sides = tuple(map(c.expr, ignored))
    known: dict[tuple[int, int], ViewAccess] = {}

    def end(w: Warp) -> Inner:
        left, right = (_bytes(w, op, side) // size for side in sides)
        if left + right >= view.size:
            some = known.setdefault((0, 0), c.view(view.inner(0, 0)))
            return Inner(view.dtype, view.nbytes, some.memory(w), None, 0)
        if (left, right) not in known:
            known[left, right] = c.view(view.inner(left, right))
        part = known[left, right]
        memory = part.memory(w)
        footprint = part.footprint_in(w, memory)
        require_contiguous(op, part, footprint, skipped=left * size)
        return Inner(view.dtype, view.nbytes, memory, footprint, left)

    return end


def _bytes(w: Warp, op: Op, side: Evaluate) -> int:
    count = uniform(side(w), w)
    if not 0 <= count < CHUNK:
        raise BarrierError(
            "out-of-bounds",
            f"{op.mnemonic} of {w} ignores {count} bytes at one end, more than {CHUNK - 1} (B38)",
            "copy less",
        )
    return count
