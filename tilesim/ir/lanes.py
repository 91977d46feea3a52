"""Which lanes of a warp execute what: values that differ between lanes, and where lanes meet again.

Emitted code has a `bar.warp.sync` where ``elect.sync`` chooses a lane, and behind a region that the
whole warp came to and only some lanes entered, unless a lane may have left for good. `explicit`
writes the latter out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers
from tilesim.ir.expr import Expr, Special, Var, constant
from tilesim.ir.expr import walk as walk_expr
from tilesim.ir.memory import Mbar
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import ElectSync, SyncWarp
from tilesim.ir.program import Break, For, If, Program, Role, Stmt, While, children, walk
from tilesim.ir.registers import defined, operands

_LANE = ("lane_id", "thread_id")


def elected(program: Program, *, meets: bool = False) -> frozenset[str]:
    """Variables that only ``elect.sync`` writes: they hold in one lane.

    ``meets``: only by such before which the lanes meet.
    """
    writers: dict[str, list[Op]] = {}
    for stmt in walk(program.body):
        if isinstance(stmt, Op):
            for var in defined(stmt):
                writers.setdefault(var.name, []).append(stmt)
    return frozenset(
        name
        for name, ops in writers.items()
        if all(isinstance(o, ElectSync) and (o.warp_sync or not meets) for o in ops)
    )


def divergent_variables(program: Program) -> frozenset[str]:
    """Variables whose value may differ between the lanes of a warp."""
    found: set[str] = set()
    while True:
        before = len(found)
        _spread(program.body, found, inside=False)
        if len(found) == before:
            return frozenset(found)


def is_divergent(expr: Expr, divergent: frozenset[str] | set[str]) -> bool:
    """True if the value may differ between the lanes of a warp."""
    return any(
        (isinstance(x, Special) and x.name in _LANE) or (isinstance(x, Var) and x.name in divergent)
        for x in walk_expr(expr)
    )


def _spread(body: tuple[Stmt, ...], found: set[str], *, inside: bool) -> None:
    for stmt in body:
        differs = any(is_divergent(x, found) for x in operands(stmt))
        if isinstance(stmt, Op):
            for effect in stmt.effects():
                if isinstance(effect, fx.Defines) and (inside or differs or effect.divergent):
                    found.add(effect.var.name)
            continue
        split = isinstance(stmt, (If, While)) and differs
        if isinstance(stmt, For) and inside:
            found.discard(stmt.var.name)
        for region in children(stmt):
            _spread(region, found, inside=inside or split)


def leaves(body: tuple[Stmt, ...], *, loops: bool = True) -> bool:
    """True if a lane may leave the region early: by exit, or by a break (``loops``) of it."""
    for stmt in body:
        if isinstance(stmt, Op) and stmt.mnemonic == "exit":
            return True
        if isinstance(stmt, Break) and loops:
            return True
        inner = loops and not isinstance(stmt, (For, While))
        if any(leaves(region, loops=inner) for region in children(stmt)):
            return True
    return False


# ------------------------------------------------------------------ where lanes meet


class Lanes:
    """What a program's branches do to the lanes of its warps."""

    def __init__(self, program: Program) -> None:
        self.divergent = divergent_variables(program)
        self.elected = elected(program)
        self._meets = elected(program, meets=True)

    def splits(self, stmt: Stmt) -> bool:
        """Whether only some lanes may enter the regions of a branch or loop."""
        return isinstance(stmt, If | While) and is_divergent(stmt.cond, self.divergent)

    def meets(self, stmt: Stmt) -> bool:
        """Whether the lanes of a warp that has come to a region as a whole meet behind it."""
        match stmt:
            case If(cond=Var(name=name)) if name in self.elected and name not in self._meets:
                return False
            case If(then=then, orelse=orelse):
                return self.splits(stmt) and not leaves((*then, *orelse))
            case For(body=body):
                return leaves(body) and not leaves(body, loops=False)
            case While(body=body):
                left = leaves(body, loops=False)
                return (self.splits(stmt) or leaves(body)) and not left
            case _:
                return False


class Explicit(NamedTuple):
    """A program whose lanes meet where an instruction says so.

    ``parts``: by number of the warp, into how many parts its lanes may fall in between (see
    `tilesim.sim.machine.parts`); none for a warp that acts as one: where some of its lanes act, all
    have just met, the others wait, and then all meet again.
    """

    program: Program
    parts: dict[int, int]


def explicit(program: Program) -> Explicit:
    """``program`` with a `bar.warp.sync` where emitted code has one behind a region."""
    lanes = Lanes(program)
    operands = (getattr(op, "mbar", None) for op in walk(program.body))
    at_addresses = any(isinstance(m, Mbar) and isinstance(m.array, AddressedMbarriers)
                       for m in operands)  # fmt: skip
    sites = _Sites(lanes, at_addresses=at_addresses)
    sites.visit(program.body, frozenset(range(program.warps)), whole=True, repeats=False)
    sites.note_crowds()
    if not sites.counts:
        return Explicit(program, {})
    body = _with_meetings(program.body, lanes, whole=True)
    return Explicit(replace(program, body=body), sites.counts)


class _Sites:
    """Counts, per warp, the places where its lanes part other than for an elected one's work."""

    def __init__(self, lanes: Lanes, *, at_addresses: bool) -> None:
        self._lanes = lanes
        #: by warp: the parts there may be
        self.counts: dict[int, int] = {}
        #: by array of barriers: the counts of their inits, and warps of which many lanes arrive
        self._inits: dict[str, list[Expr]] = {}
        self._crowds: dict[str, set[int]] = {}
        #: an address may be that of any barrier: all are one array then
        self._at_addresses = at_addresses

    def visit(
        self, body: tuple[Stmt, ...], warps: frozenset[int],
        *, whole: bool, repeats: bool, single: bool = False,
    ) -> None:  # fmt: skip
        """``whole``: all lanes come here, ``single``: one does; ``repeats``: more than once."""
        before: Stmt | None = None
        for stmt in body:
            inside = frozenset(stmt.warps) & warps if isinstance(stmt, Role) else warps
            split = self._lanes.splits(stmt)
            if split and not (whole and self._simple(stmt, before)):
                self._add(inside, 32 if repeats or isinstance(stmt, While) else 2)
            if isinstance(stmt, Op):
                self._note_barrier(stmt, inside, single=single)
                if _own_barriers(stmt, self._lanes.divergent):
                    self._add(inside, 32)
            cond = stmt.cond if isinstance(stmt, If) else None
            alone = isinstance(cond, Var) and cond.name in self._lanes.elected
            loops = isinstance(stmt, For | While)
            for number, region in enumerate(children(stmt)):
                self.visit(
                    region, inside, whole=whole and not split, repeats=repeats or loops,
                    single=single or (alone and not number),
                )  # fmt: skip
            before = stmt

    def note_crowds(self) -> None:
        """Lanes of one arrive may end a phase and others begin the next; what they then publish is
        what they know of each other, which only warps that have parts keep account of."""
        for name, warps in self._crowds.items():
            known = [constant(count) for count in self._inits.get(name, [])]
            if any(count is None or count % 32 for count in known):
                self._add(warps, 1)

    def _note_barrier(self, op: Op, warps: frozenset[int], *, single: bool) -> None:
        mbar, count = getattr(op, "mbar", None), getattr(op, "count", None)
        if not isinstance(mbar, Mbar):
            return
        name = "" if self._at_addresses else mbar.array.name
        if op.mnemonic == "mbarrier.init" and isinstance(count, Expr):
            self._inits.setdefault(name, []).append(count)
        elif "arrive" in op.mnemonic and not single:
            self._crowds.setdefault(name, set()).update(warps)

    def _simple(self, stmt: Stmt, before: Stmt | None) -> bool:
        """Whether the other lanes do nothing from one meeting of all to the next."""
        met = isinstance(before, SyncWarp) or (isinstance(before, ElectSync) and before.warp_sync)
        return met and isinstance(stmt, If) and not stmt.orelse and self._lanes.meets(stmt)

    def _add(self, warps: Iterable[int], factor: int) -> None:
        for warp in warps:
            self.counts[warp] = min(32, self.counts.get(warp, 1) * factor)


def _own_barriers(op: Op, divergent: frozenset[str]) -> bool:
    """Whether lanes may name barriers or phases of their own."""
    return op.mnemonic.startswith("mbarrier.") and any(
        is_divergent(x, divergent) for x in operands(op)
    )


def _with_meetings(body: tuple[Stmt, ...], lanes: Lanes, *, whole: bool) -> tuple[Stmt, ...]:
    result: list[Stmt] = []
    for stmt in body:
        inner = whole and not lanes.splits(stmt)
        match stmt:
            case If(then=then, orelse=orelse):
                stmt = replace(
                    stmt,
                    then=_with_meetings(then, lanes, whole=inner),
                    orelse=_with_meetings(orelse, lanes, whole=inner),
                )
            case Role() | For() | While():
                stmt = replace(stmt, body=_with_meetings(stmt.body, lanes, whole=inner))
            case _:
                pass
        result.append(stmt)
        if whole and lanes.meets(stmt):
            result.append(SyncWarp(loc=stmt.loc))
    return tuple(result)
