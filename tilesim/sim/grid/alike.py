"""What of a step's expressions can be told to be the same in all clusters, once for many times.

``(tile // ctas * iterations + kt) % stages`` steers, and ``tile`` differs between clusters; ``tile
// ctas`` mostly does not, and all else is the same in all of them. So it is enough to look at the
greatest parts of an expression that depend on nothing but what differs: as long as they are the
same in all clusters, so is the whole, whatever the other registers hold.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

from tilesim.arith.sums import Sums
from tilesim.ir.arithmetic import Typing
from tilesim.ir.expr import Binary, Expr, Select, Unary, Var, walk
from tilesim.sim.expression import Evaluate, compile_expr
from tilesim.sim.grid.mirror import Mirror
from tilesim.sim.grid.plan import Plan
from tilesim.sim.grid.values import Values, differs, of_active
from tilesim.sim.grid.varying import varies
from tilesim.sim.machine.lanes import FULL
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.unknown import Unknown


class Alike:
    """Tells which steps evaluate the same in all clusters, as registers differ now.

    ``reads``: by identity of a plan the registers in what it evaluates; ``vary``: whether not all
    clusters that take the same steps have the same value.
    """

    def __init__(
        self, slots: Mapping[str, int], typing: Typing, reads: Mapping[int, tuple[int, ...]],
        vary: Callable[[Values], bool],
    ) -> None:  # fmt: skip
        self._slots = slots
        self._typing = typing
        self._reads = reads
        self._vary = vary
        #: by identity of a plan and registers
        self._parts: dict[tuple[int, frozenset[int]], tuple[Evaluate, ...] | None] = {}
        #: by identity of an expression: its registers, and whether it names the CTA
        self._read: dict[int, tuple[tuple[int, ...], bool, Expr]] = {}
        #: what holds of a step or an expression, with the arrays that are named by their identity
        self._known: dict[Hashable, tuple[bool, list[Values]]] = {}

    def forget(self) -> None:
        """Forgets what steps evaluated to."""
        self._known.clear()

    def holds(self, plan: Plan, w: Warp, mirror: Mirror) -> bool:
        """Whether all clusters evaluate what the one that runs does, whatever registers hold that
        are the same in all of them; and set the same."""
        differing = mirror.registers.differing
        if not differing.keys().isdisjoint(plan.slots):
            return False
        slots = [slot for slot in self._reads[id(plan)] if slot in differing]
        if not slots and not plan.of_grid:
            return True
        arrays = [differing[slot] for slot in slots]
        warp = w.number if plan.by_warp else -1
        key = id(plan), mirror.cta.rank, w.mask, warp, *slots, *map(id, arrays)
        found = self._known.get(key)
        if found is None:
            parts = self._of(plan, frozenset(slots))
            alike = parts is not None and all(self._same(p, mirror, w.mask) for p in parts)
            found = self._known[key] = alike, arrays
        return found[0]

    def is_same(self, expr: Expr, mirror: Mirror) -> bool:
        """Whether an expression is in all clusters, in all lanes, what it is in the one that runs,
        whatever registers hold that are the same in all of them."""
        read = self._read.get(id(expr))
        if read is None:
            names = {part.name for part in walk(expr) if isinstance(part, Var)}
            slots = tuple(self._slots[name] for name in names)
            read = self._read[id(expr)] = slots, varies(expr, ()), expr
        differing = mirror.registers.differing
        slots = tuple([slot for slot in read[0] if slot in differing])
        if not slots:
            return not read[1]
        arrays = [differing[slot] for slot in slots]
        key = id(expr), mirror.cta.rank, mirror.number, *slots, *map(id, arrays)
        found = self._known.get(key)
        if found is None:
            parts = self._compiled([expr], frozenset(slots))
            same = parts is not None and all(self._same(p, mirror, FULL) for p in parts)
            found = self._known[key] = same, arrays
        return found[0]

    def _same(self, part: Evaluate, mirror: Mirror, mask: int) -> bool:
        """Whether an expression has the same value in all clusters."""
        try:
            value = mirror.value(part)
        except ArithmeticError:
            return False
        if not differs(value):
            return type(value) is not Unknown
        return not self._vary(value if type(value) is Sums else of_active(value, mask))

    def _of(self, plan: Plan, differing: frozenset[int]) -> tuple[Evaluate, ...] | None:
        """The greatest parts of what a step evaluates that depend on registers which differ, and
        on no others; None if what differs is itself evaluated somewhere."""
        key = id(plan), differing
        if key not in self._parts:
            self._parts[key] = self._compiled(plan.expressions, differing)
        return self._parts[key]

    def _compiled(
        self, expressions: Iterable[Expr], differing: frozenset[int]
    ) -> tuple[Evaluate, ...] | None:
        found = {id(p): p for e in expressions for p in self._within(e, differing)}
        if any(not isinstance(part, Unary | Binary | Select) for part in found.values()):
            return None
        return tuple(compile_expr(p, self._slots, self._typing) for p in found.values())

    def _within(self, expr: Expr, differing: frozenset[int]) -> Iterator[Expr]:
        names = {part.name for part in walk(expr) if isinstance(part, Var)}
        mine = {name for name in names if self._slots[name] in differing}
        if not varies(expr, mine):
            return
        if mine == names:
            yield expr
            return
        match expr:
            case Unary(operand=operand):
                yield from self._within(operand, differing)
            case Binary(lhs=lhs, rhs=rhs):
                yield from self._within(lhs, differing)
                yield from self._within(rhs, differing)
            case Select(cond=cond, then=then, other=other):
                for part in (cond, then, other):
                    yield from self._within(part, differing)
            case _:
                yield expr
