"""The ends of asynchronous copies: a view, or what a tensor map selects."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol

from numpy.typing import NDArray

from tilesim.ir import effects as fx
from tilesim.ir.boxes import fields_of
from tilesim.ir.expr import Expr
from tilesim.ir.memory import SharedTensor
from tilesim.ir.op import Op
from tilesim.sim.execute.compose import Operands
from tilesim.sim.machine.boxes import Box
from tilesim.sim.machine.footprint import Footprint
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.memory import ViewAccess, read_elements, uniform, write_elements
from tilesim.sim.machine.misuse import BarrierError
from tilesim.sim.machine.storage import Memory

Combine = Callable[[Any, Any], Any]


class Piece(Protocol):
    """One end of one copy: ``nbytes`` of ``memory``, of which ``footprint`` is touched.

    Without a footprint nothing is touched that could race.
    """

    memory: Memory
    footprint: Footprint | None
    nbytes: int

    def load(self) -> NDArray[Any]:
        """The elements."""
        ...

    def store(self, values: NDArray[Any], combine: Combine | None) -> None:
        """Writes elements, combined with what is there if asked."""
        ...


class _Range:
    """A contiguous range."""

    __slots__ = ("_view", "footprint", "memory", "nbytes")

    def __init__(self, view: ViewAccess, memory: Memory, footprint: Footprint) -> None:
        self._view = view.view
        self.memory = memory
        self.footprint: Footprint | None = footprint
        self.nbytes = view.view.nbytes

    def load(self) -> NDArray[Any]:
        assert self.footprint is not None
        return read_elements(self.memory, self.footprint, self._view.dtype)

    def store(self, values: NDArray[Any], combine: Combine | None) -> None:
        assert self.footprint is not None
        values = values.reshape(self.footprint.addresses.shape)
        if combine is not None:
            values = combine(self.load(), values)
        write_elements(self.memory, self.footprint, self._view.dtype, values)


class _Selected:
    """What a tensor map selects."""

    __slots__ = ("_box", "footprint", "memory", "nbytes")

    def __init__(self, box: Box, memory: Memory, footprint: Footprint | None) -> None:
        self._box = box
        self.memory = memory
        self.footprint = footprint
        self.nbytes = box.nbytes

    def load(self) -> NDArray[Any]:
        return self._box.load(self.memory)

    def store(self, values: NDArray[Any], combine: Combine | None) -> None:
        self._box.store(self.memory, values, combine)


End = Callable[[Warp], Piece]


def range_end(c: Operands, op: Op, effect: fx.Reads | fx.Writes) -> End:
    """One contiguous, unswizzled, 16-byte aligned range (B6)."""
    view = c.view(effect.view)

    def end(w: Warp) -> Piece:
        memory = view.memory(w)
        footprint = view.footprint_in(w, memory)
        require_contiguous(op, view, footprint)
        return _Range(view, memory, footprint)

    return end


def map_end(c: Operands, op: Op, effect: fx.ReadsMap | fx.WritesMap) -> End:
    """What a tensor map selects; a store starts inside of the tensor."""
    tensor, fields, mode = effect.map.tensor, fields_of(effect.map), effect.mode
    writes = isinstance(effect, fx.WritesMap)
    key: tuple[Hashable, ...] = ("map", effect.map.name, mode)
    coords = numbers(c, effect.coords)
    info = numbers(c, effect.info if isinstance(effect, fx.ReadsMap) else ())

    def end(w: Warp) -> Piece:
        memory = w.machine.globals.memories[tensor.name]
        at, more = coords(w), info(w)
        if writes and any(x < 0 for x in at):
            raise BarrierError(
                "out-of-bounds", f"{op.mnemonic} at negative coordinates {at} (B19)",
                "stores may stick out past the end of the tensor, not before its start",
            )  # fmt: skip
        box = Box(fields, tensor, mode, at, more)
        footprint = box.footprint(memory, (*key, at, more)) if memory.tracked else None
        return _Selected(box, memory, footprint)

    return end


def numbers(c: Operands, operands: tuple[Expr, ...]) -> Callable[[Warp], tuple[int, ...]]:
    """Operands as integers, the same in all active lanes."""
    functions = [c.expr(x) for x in operands]
    if not functions:
        return lambda w: ()

    def values(w: Warp) -> tuple[int, ...]:
        found = [f(w) for f in functions]
        return tuple([v if type(v) is int else uniform(v, w) for v in found])

    return values


def require_contiguous(op: Op, view: ViewAccess, footprint: Footprint) -> None:
    """A non-tensor bulk copy moves one contiguous, unswizzled, 16-byte aligned range (B6)."""
    size = footprint.addresses.size * footprint.itemsize
    straight = footprint.high - footprint.low == size
    swizzled = isinstance(view.tensor, SharedTensor) and view.tensor.swizzle
    if not straight or swizzled:
        raise BarrierError(
            "unsupported" if swizzled else "out-of-bounds",
            f"{op.mnemonic} of {footprint.name}, which is not one contiguous range (B.3)",
            "copy row by row, or through a tensor map",
        )
    if footprint.low % 16:
        raise BarrierError(
            "out-of-bounds",
            f"{op.mnemonic} of {footprint.name} at byte {footprint.low}, not 16-byte aligned (B6)",
            "align both ends to 16 bytes",
        )
