"""Predicates of a program in machine form, which faults are about as they are about the conditions
of a tree."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr, Special, Var, walk
from tilesim.ir.mir import Branch, Mir, condition
from tilesim.ir.op import Op

#: special registers that differ between the lanes of a warp
_LANES = frozenset({"lane_id", "thread_id"})


class Predicates:
    """What decides in a program in machine form whether instructions are executed."""

    def __init__(self, mir: Mir) -> None:
        self.mir = mir

    def skips(self) -> Iterator[int]:
        """The branches over code that other agents can observe or wait for."""
        code = self.mir.code
        for number, instruction in enumerate(code):
            match instruction.what:
                case Branch(target=target, cond=Expr(), polls=False) if target > number:
                    inside = (i.what for i in code[number + 1 : target])
                    if any(isinstance(what, Op) and what.synchronises for what in inside):
                        yield number
                case _:
                    pass

    def guarded(self) -> Iterator[int]:
        """The predicated instructions that other agents can observe or wait for."""
        for number, instruction in enumerate(self.mir.code):
            what = instruction.what
            if instruction.guard is not None and isinstance(what, Op) and what.synchronises:
                yield number

    def chooses_lanes(self, number: int) -> bool:
        """Whether the predicate of an instruction holds in some lanes of a warp only."""
        cond = condition(self.mir.code[number])
        return cond is not None and self._divergent(cond)

    def _divergent(self, expr: Expr) -> bool:
        return any(
            (isinstance(e, Special) and e.name in _LANES)
            or (isinstance(e, Var) and e.name in self._differ)
            for e in walk(expr)
        )

    @cached_property
    def _differ(self) -> frozenset[str]:
        """Registers that an election or a number of the lane has gone into by plain arithmetic."""
        found: set[str] = set()
        sources: dict[str, set[str]] = {}
        for op in self.mir.ops():
            effects = op.effects()
            if any(isinstance(e, fx.Elects) for e in effects):
                found |= {e.var.name for e in effects if isinstance(e, fx.Defines)}
            for effect in effects:
                if isinstance(effect, fx.Defines) and isinstance(effect.value, Expr):
                    parts = list(walk(effect.value))
                    if any(isinstance(e, Special) and e.name in _LANES for e in parts):
                        found.add(effect.var.name)
                    names = {e.name for e in parts if isinstance(e, Var)}
                    sources.setdefault(effect.var.name, set()).update(names)
        while more := {n for n, of in sources.items() if not of.isdisjoint(found)} - found:
            found |= more
        return frozenset(found)
