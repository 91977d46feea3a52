"""What repairs are made of: where each statement is, and who uses which barrier."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tilesim.analysis.executing_warps import executing
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers
from tilesim.ir.edits import statements, stretches
from tilesim.ir.expr import Binary, Const, Expr, Special, Var, walk
from tilesim.ir.loc import Loc
from tilesim.ir.memory import Mbar, Mbarriers, SharedTensor, View
from tilesim.ir.mir import Control, Mir
from tilesim.ir.op import Op, operand_names
from tilesim.ir.program import For, If, Program, Role, Stmt, children
from tilesim.ir.text.statement import value_text

#: lanes of a warp
LANES = 32


@dataclass(frozen=True)
class Place:
    """A statement: its number, the role and warps that execute it, and the loops around it.

    ``one``: inside a region that a single lane executes. ``top``: in no role.
    """

    number: int
    what: Stmt | Control
    role: str
    warps: tuple[int, ...]
    loops: tuple[For, ...] = ()
    one: bool = False
    top: bool = True
    #: numbers of the regions around it, the outermost first
    within: tuple[int, ...] = ()

    @property
    def op(self) -> Op:
        """The instruction."""
        assert isinstance(self.what, Op)
        return self.what

    @property
    def loc(self) -> Loc:
        """Where it was written."""
        return self.what.loc

    @property
    def lanes(self) -> int:
        """How many lanes of each CTA execute it once."""
        return 1 if self.one else LANES * len(self.warps)

    @property
    def arrivals(self) -> int:
        """Lanes of each CTA that execute it; of a region for one lane, one in every warp."""
        return len(self.warps) if self.one else LANES * len(self.warps)


@dataclass(frozen=True)
class Facts:
    """A program and what is said about its statements."""

    program: Program | Mir

    @property
    def kernel(self) -> Program:
        """The launch and the declarations."""
        return self.program.kernel if isinstance(self.program, Mir) else self.program

    def shown(self, value: object) -> str:
        """An operand as text."""
        return value_text(self.kernel, value)

    def fresh(self, name: str) -> str:
        """A register's name that is not used."""
        used = {v.name for v in self.kernel.variables}
        number = 1
        while f"{name}_r{number}" in used:
            number += 1
        return f"{name}_r{number}"

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """All statements by number."""
        if isinstance(self.program, Mir):
            warps = executing(self.program)
            return tuple(
                Place(n, i.what, i.role or "", warps[n], one=_is_one(i.guard, self.elected))
                for n, i in enumerate(self.program.code)
            )
        tree = _Tree(self.program, self.elected)
        tree.block(self.program.body, _Around(warps=tuple(range(self.program.warps))))
        return tuple(tree.places)

    @cached_property
    def ops(self) -> tuple[Place, ...]:
        """The instructions."""
        return tuple(p for p in self.places if isinstance(p.what, Op))

    @cached_property
    def elected(self) -> frozenset[str]:
        """Registers that say whether a lane has been elected."""
        return frozenset(
            effect.var.name
            for what in statements(self.program)
            if isinstance(what, Op)
            for effect in what.effects()
            if isinstance(effect, fx.Defines) and isinstance(effect.value, fx.Elects)
        )

    @cached_property
    def blocks(self) -> tuple[tuple[Place, ...], ...]:
        """Statements that are executed one after another."""
        return tuple(tuple(self.places[n] for n in s) for s in stretches(self.program))

    @cached_property
    def block_of(self) -> dict[int, tuple[Place, ...]]:
        """By number of a statement, the block it is in."""
        return {p.number: block for block in self.blocks for p in block}

    @cached_property
    def arrays(self) -> dict[str, tuple[Place, ...]]:
        """By name of an array of mbarriers, the instructions that use it."""
        found: dict[str, list[Place]] = {}
        for place in self.ops:
            for mbar in mbars(place.op):
                found.setdefault(mbar.array.name, []).append(place)
        return {name: tuple(places) for name, places in found.items()}

    def using(self, array: str, *kinds: type) -> Iterator[Place]:
        """The instructions that have an effect of one of these classes on an array."""
        for place in self.arrays.get(array, ()):
            if any(isinstance(e, kinds) and _array(e) == array for e in place.op.effects()):
                yield place

    def inside(self, region: int) -> Iterator[Place]:
        """The statements in a region."""
        return (p for p in self.places if region in p.within)


def mbars(op: Op) -> tuple[Mbar, ...]:
    """The mbarriers that an instruction names."""
    operands = (getattr(op, n) for n in operand_names(type(op)))
    return tuple(v for v in operands if isinstance(v, Mbar) and isinstance(v.array, Mbarriers))


def is_own_address(mbar: Mbar) -> bool:
    """Whether it is the barrier of the executing CTA at an address."""
    return isinstance(mbar.array, AddressedMbarriers) and mbar.array.space == "shared::cta"


def _array(effect: fx.Effect) -> str | None:
    mbar = getattr(effect, "mbar", None)
    return mbar.array.name if isinstance(mbar, Mbar) else None


def shared(op: Op) -> tuple[tuple[str, View], ...]:
    """The operands of an instruction that are views of named shared memory."""
    found = ((n, getattr(op, n)) for n in operand_names(type(op)))
    return tuple(
        (n, v) for n, v in found if isinstance(v, View) and isinstance(v.tensor, SharedTensor)
    )


def names(op: Op) -> frozenset[str]:
    """The barriers and tensors that an instruction names."""
    views = (getattr(op, n) for n in operand_names(type(op)))
    tensors = {v.tensor.name for v in views if isinstance(v, View)}
    return frozenset(tensors | {m.array.name for m in mbars(op)})


def has(place: Place, *kinds: type) -> bool:
    """Whether a statement is an instruction with such an effect."""
    return isinstance(place.what, Op) and any(isinstance(e, kinds) for e in place.what.effects())


def synchronises(place: Place) -> bool:
    """Whether it waits, arrives, joins or orders, and moves no data."""
    return has(place, *SYNC) and not has(place, *DATA)


#: effects of instructions that synchronise
SYNC = (
    fx.Arrives, fx.Expects, fx.Waits, fx.JoinsBarrier, fx.JoinsCluster, fx.WaitsGroup, fx.Commits,
    fx.Orders, fx.Crosses, fx.OrdersTmem, fx.FencesFragments, fx.Gathers, fx.ReleasesMaps,
    fx.AcquiresMap,
)  # fmt: skip
#: effects of those whose work must stay
DATA = (
    fx.Reads, fx.Writes, fx.RemoteStore, fx.ReadsMap, fx.WritesMap, fx.UsesFragment, fx.UsesTmem,
    fx.Issues, fx.Defines,
)  # fmt: skip


def is_election(facts: Facts, cond: Expr) -> bool:
    """Whether a condition holds in the elected lane alone."""
    return isinstance(cond, Var) and cond.name in facts.elected


def variables(exprs: Iterable[Expr]) -> frozenset[str]:
    """The registers in some expressions."""
    return frozenset(e.name for expr in exprs for e in walk(expr) if isinstance(e, Var))


def _is_one(cond: Expr | None, elected: frozenset[str]) -> bool:
    """Whether a condition holds in one lane only."""
    match cond:
        case Var(name=name):
            return name in elected
        case Binary("==", lhs, Const()):
            return any(isinstance(e, Special) and e.name in _LANE for e in walk(lhs))
        case Binary("and", lhs, rhs):
            return _is_one(lhs, elected) or _is_one(rhs, elected)
        case _:
            return False


_LANE = frozenset({"lane_id", "thread_id"})


@dataclass(frozen=True)
class _Around:
    warps: tuple[int, ...]
    role: str = ""
    loops: tuple[For, ...] = ()
    one: bool = False
    within: tuple[int, ...] = ()


@dataclass
class _Tree:
    """Walks a tree of regions."""

    program: Program
    elected: frozenset[str]
    places: list[Place] = field(default_factory=list)

    def block(self, block: tuple[Stmt, ...], around: _Around) -> None:
        """Adds the statements of a block and what is in them."""
        for stmt in block:
            number = len(self.places)
            self.places.append(Place(
                number, stmt, around.role, around.warps, around.loops, around.one,
                not around.role, around.within,
            ))  # fmt: skip
            inner = self._inside(stmt, around, number)
            for region in children(stmt):
                self.block(region, inner)

    def _inside(self, stmt: Stmt, around: _Around, number: int) -> _Around:
        within = (*around.within, number)
        loops, one = around.loops, around.one
        match stmt:
            case Role(name=name, warps=warps):
                own = tuple(w for w in around.warps if w in warps)
                return _Around(own, around.role or name, loops, one, within)
            case For():
                loops = (*loops, stmt)
            case If(cond=cond):
                one = one or _is_one(cond, self.elected)
            case _:
                pass
        return _Around(around.warps, around.role, loops, one, within)
