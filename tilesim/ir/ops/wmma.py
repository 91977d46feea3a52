"""Matrices of a warp in memory and in its registers: wmma."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesim.ir.declarations import Unsaid, View
from tilesim.ir.effects import Defines, Effect, Gathers, Reads, Writes
from tilesim.ir.expr import Expr, Var
from tilesim.ir.op import Inputs, Op, UnknownResult
from tilesim.records import dataclass

if TYPE_CHECKING:
    from tilesim.ir.op import PerLane


@dataclass(frozen=True, kw_only=True)
class WmmaLoad(Op):
    """``wmma.load``: a matrix, or a part of it, from memory to the registers of a warp."""

    mnemonic = "ptx.wmma.load"
    cycles = 30

    results: tuple[Var, ...]
    matrix: View
    form: str

    def effects(self) -> tuple[Effect, ...]:
        why = "which elements of a matrix wmma.load gives a lane"
        results = (Defines(r, divergent=True, unknown=why) for r in self.results)
        return (
            Gathers(None, "E26", whole=True),
            Reads(self.matrix, held=Unsaid(self.form)),
            *results,
        )


@dataclass(frozen=True, kw_only=True)
class WmmaStore(Op):
    """``wmma.store``: the registers of a warp to a matrix in memory, or to a part of it."""

    mnemonic = "ptx.wmma.store"
    cycles = 30
    data = frozenset({"values"})

    matrix: View
    values: tuple[Expr, ...]
    form: str

    def effects(self) -> tuple[Effect, ...]:
        return (Gathers(None, "E26", whole=True), Writes(self.matrix, held=Unsaid(self.form)))

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        raise UnknownResult("where wmma.store puts what a lane has", self.loc)
