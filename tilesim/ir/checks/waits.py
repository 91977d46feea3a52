"""Waits that nobody can end, and that every launch executes."""

from __future__ import annotations

from collections.abc import Iterator

from tilesim.errors import Diagnostic
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers
from tilesim.ir.expr import Expr, Var, constant
from tilesim.ir.memory import Mbarriers
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import ElectSync, Exit
from tilesim.ir.ops.mbarrier import MbarrierWait
from tilesim.ir.program import Break, For, If, Program, Role, Stmt, instructions, walk


def check_waits(program: Program) -> Iterator[Diagnostic]:
    """A wait that blocks is on a barrier array that something arrives on (B003).

    Only waits that are executed for certain: not in a branch that may be empty, nor in a loop that
    may have no trips. Whether others are is for the run to say.
    """
    signalled = {
        _place(program, effect.mbar.array)
        for op in instructions(program)
        for effect in op.effects()
        if isinstance(effect, fx.Arrives)
    }
    if any(isinstance(e, fx.Arrives) and isinstance(e.mbar.array, AddressedMbarriers)
           for op in instructions(program) for e in op.effects()):  # fmt: skip
        return
    waits: dict[Mbarriers | AddressedMbarriers, MbarrierWait] = {}
    for op in _Certain(program).block(program.body):
        if isinstance(op, MbarrierWait) and constant(op.phase) == 0 and op.parity:
            waits.setdefault(op.mbar.array, op)
    for array, wait in waits.items():
        first, end = _place(program, array)
        if array in program.shared and not any(a < end and first < b for a, b in signalled):
            yield Diagnostic(
                "deadlock",
                f"{wait.mnemonic} on {wait.mbar}, but no instruction of the kernel arrives on "
                f"{array.name}",
                wait.loc,
                f"add the arrive that completes {array.name}, or remove the wait",
            )


def _place(program: Program, array: Mbarriers | AddressedMbarriers) -> tuple[int, int]:
    """Where the barriers of an array begin and end: arrays may share them."""
    base = program.placement.get(array.name)
    if base is None or isinstance(array, AddressedMbarriers):
        return 0, 0
    return base, base + array.nbytes


class _Certain:
    """Finds the instructions that some thread executes in every launch."""

    def __init__(self, program: Program) -> None:
        writers: dict[Var, set[type[Op]]] = {}
        for op in instructions(program):
            for effect in op.effects():
                if isinstance(var := getattr(effect, "var", None), Var):
                    writers.setdefault(var, set()).add(type(op))
        self._elected = {var for var, kinds in writers.items() if kinds == {ElectSync}}

    def block(self, body: tuple[Stmt, ...]) -> Iterator[Op]:
        """Those of a region that is entered for certain, up to where threads may leave it."""
        for stmt in body:
            match stmt:
                case Op():
                    yield stmt
                case Role(warps=warps, body=inner) if warps:
                    yield from self.block(inner)
                case For() if _has_trips(stmt):
                    yield from self.block(stmt.body)
                case If() if self._holds(stmt.cond):
                    yield from self.block(stmt.then)
                case _:
                    pass
            if any(isinstance(inner, (Exit, Break)) for inner in walk((stmt,))):
                return

    def _holds(self, cond: Expr) -> bool:
        """True if the condition is true in some lane of whatever warp comes here."""
        return bool(constant(cond)) or cond in self._elected


def _has_trips(loop: For) -> bool:
    start, stop, step = map(constant, (loop.start, loop.stop, loop.step))
    if start is None or stop is None or not step:
        return False
    return start < stop if step > 0 else start > stop
