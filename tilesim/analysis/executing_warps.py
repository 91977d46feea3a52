"""Which warps of a CTA may execute an instruction.

Roles are branches over nothing but the number of the warp, or of the thread: in the DSL a test of
``%warp_id``, in compilers' code whatever they make of ``%tid``, often by way of registers and of a
shuffle by which the compiler knows that all lanes agree. Where such a branch sends a warp is known
before it runs, and so are the warps that come to each instruction.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilesim.analysis.cfg import graph_of
from tilesim.analysis.thread_values import Threads
from tilesim.ir.effects import Exits
from tilesim.ir.expr import Expr
from tilesim.ir.frozen import cached
from tilesim.ir.mir import Branch, Instruction, Mir
from tilesim.ir.op import Op


@cached
def executing(mir: Mir) -> tuple[tuple[int, ...], ...]:
    """By number of an instruction, the warps that may come to it, in ascending order.

    Where none comes it is those that would if the branch before it went the other way, or no warp
    ended before it: reports say which warps an instruction was meant for.
    """
    flow = _warp_flow(mir)
    every = (1 << mir.kernel.warps) - 1
    found = [mask or other or every for mask, other in zip(flow.coming, flow.meant, strict=True)]
    names = {mask: tuple(w for w in range(mir.kernel.warps) if mask >> w & 1) for mask in {*found}}
    return tuple([names[mask] for mask in found])


@cached
def never(mir: Mir) -> frozenset[int]:
    """The numbers of instructions that no lane executes, whatever data and scalars are: behind a
    comparison of a pointer to nothing with null, say."""
    flow = _warp_flow(mir)
    return frozenset(n for n, i in enumerate(mir.code) if not flow.executes(n, i))


@cached
def _warp_flow(mir: Mir) -> _WarpFlow:
    return _WarpFlow(mir)


class _WarpFlow:
    """Where branches send the warps of a CTA; sets of warps are masks."""

    def __init__(self, mir: Mir) -> None:
        self._mir, self._graph = mir, graph_of(mir)
        self._threads = Threads(self._graph)
        self._every = (1 << mir.kernel.warps) - 1
        #: by block, the warps that may come there, and by number; at first from the beginning
        self._at_start = [0] * len(self._graph.blocks)
        self.coming = [0] * len(mir.code)
        self._through([(0, self._every)], self.coming)
        #: by number, those that would on ways that none of them goes
        self.meant = [0] * len(mir.code)
        blocks = range(len(self._at_start))
        while todo := [way for b in blocks if self._at_start[b] for way in self._not_taken(b)]:
            self._through(todo, self.meant)

    def executes(self, number: int, instruction: Instruction) -> bool:
        """Whether some lane may execute an instruction."""
        guard = instruction.guard
        some = self._every if guard is None else self._decided(guard, number)[0]
        return bool(self.coming[number] and some)

    def _through(self, todo: list[tuple[int, int]], found: list[int]) -> None:
        """Follows warps from blocks on, but not to where others have come before; ``found``: by
        number, those that come there."""
        known = [*self._at_start]
        while todo:
            block, coming = todo.pop()
            coming &= ~self._at_start[block]
            if known[block] or not coming:
                continue
            self._at_start[block] |= coming
            for number in self._graph.blocks[block]:
                if not coming:
                    break
                found[number] |= coming
                coming &= ~self._leaving(number)
            todo += self._after(block, coming)

    def _not_taken(self, block: int) -> list[tuple[int, int]]:
        """The blocks that follow one, or are written behind it, and to which no warp comes."""
        after = {*self._graph.successors[block], min(block + 1, len(self._at_start) - 1)}
        coming = self._at_start[block]
        return [(other, coming) for other in sorted(after) if not self._at_start[other]]

    def _after(self, block: int, coming: int) -> list[tuple[int, int]]:
        """The blocks that may follow one, with those of the warps ``coming`` through it that go
        on there."""
        graph = self._graph
        number = graph.blocks[block][-1] if graph.blocks[block] else -1
        what = self._mir.code[number].what if number >= 0 else None
        if not isinstance(what, Branch) or what.cond is None:
            return [(following, coming) for following in graph.successors[block]]
        true, false = self._decided(what.cond, number)
        taking, others = (true, false) if what.sense else (false, true)
        flow = ((what.target, taking), (number + 1, others))
        return [(graph.block_of[n], coming & some) for n, some in flow if coming & some]

    def _leaving(self, number: int) -> int:
        """The warps of which all lanes end at an instruction, if it does not end all of them."""
        instruction = self._mir.code[number]
        if instruction.guard is None or not isinstance(instruction.what, Op):
            return 0
        if not any(isinstance(effect, Exits) for effect in self._mir.effects[number]):
            return 0
        _, false = self._decided(instruction.guard, number)
        return self._every & ~false

    def _decided(self, cond: Expr, number: int) -> tuple[int, int]:
        """The warps in which a condition may hold in some lane, and those in which it may not."""
        value = self._threads.value(cond, number)
        if value is None:
            return self._every, self._every
        if isinstance(value, int):
            return (self._every, 0) if value else (0, self._every)
        holds = value != 0
        return _mask(holds.any(axis=1)), _mask(~holds.all(axis=1))


def _mask(warps: NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(warps, bitorder="little").tobytes(), "little")
