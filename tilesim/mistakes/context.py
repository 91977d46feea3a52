"""Where each statement of a program is, what uses which barrier, and what a finding is about."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

from tilesim.analysis.executing_warps import executing
from tilesim.analysis.uses_defs import rebuilt
from tilesim.errors import Diagnostic
from tilesim.findings.finding import Finding, Named, Stated, together
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers
from tilesim.ir.declarations import Mbar, Mbarriers, SharedTensor, View
from tilesim.ir.expr import (
    Binary,
    Const,
    Expr,
    Special,
    Var,
    binary,
    constant,
    walk,
)
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Branch, Control, Mir
from tilesim.ir.op import Op, operand_names
from tilesim.ir.program import For, If, Program, Role, Stmt, children
from tilesim.ir.text.printer import value_text
from tilesim.records import dataclass
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.transforms.rewrite import statements, stretches


def array_of(on: object) -> Hashable:
    """What the barriers of one array have in common; None: not an mbarrier."""
    if not isinstance(on, Mbarrier):
        return None
    if on.slot is not None:
        return on.name
    init = None if on.init is None else on.init.op.loc.written
    return on.variable, init


def loop_range(mir: Mir, op: object) -> tuple[int, int] | None:
    """The first and the last instruction of the innermost loop around an instruction."""
    return next(iter(loops_around(mir, op)), None)


def loops_around(mir: Mir, op: object) -> list[tuple[int, int]]:
    """The loops around an instruction but for those that only poll, each by its first and its last
    instruction; the innermost first."""
    if not isinstance(op, Op) or op.number < 0:
        return []
    around = [
        (what.target, number)
        for number, instruction in enumerate(mir.code)
        if isinstance(what := instruction.what, Branch)
        and what.target <= op.number <= number
        and not (what.polls and only_polls(mir, what.target, number))
    ]
    return sorted(around, key=lambda found: found[1] - found[0])


def only_polls(mir: Mir, first: int, last: int) -> bool:
    """Whether a loop does nothing but look whether it may end: what it writes are locks."""
    return all(
        isinstance(e, fx.Defines | fx.Reads | fx.Waits | fx.Elects)
        or (isinstance(e, fx.Writes) and e.combine is not None)
        for effects in mir.effects[first : last + 1]
        for e in effects
    )


def loop_of(mir: Mir, op: Op | None) -> Loc | None:
    """Where the innermost loop around an instruction is written."""
    found = loop_range(mir, op)
    return None if found is None else mir.code[found[1]].loc


def branches_past(mir: Mir, op: Op, first: int = 0) -> Iterator[tuple[int, Branch]]:
    """The conditions, from instruction ``first`` on, that may lead past an instruction behind
    them."""
    for number in range(first, op.number):
        what = mir.code[number].what
        if isinstance(what, Branch) and what.cond is not None and what.target > op.number:
            yield number, what


def branch_past(mir: Mir, op: Op) -> Loc | None:
    """Where the innermost condition under which an instruction is executed is written."""
    around = [branch.loc for _, branch in branches_past(mir, op)]
    return around[-1] if around else None


def simple(expr: Expr) -> Expr:
    """``expr`` without ``^ 1 ^ 1``, which comes of editing it twice."""
    match expr:
        case Binary("^", Binary("^", inner, Const(a)), Const(b)):
            both = int(a) ^ int(b)
            return simple(inner) if not both else binary("^", simple(inner), both)
        case _:
            return expr


def flipped(expr: Expr) -> Expr:
    """The other parity."""
    return simple(binary("^", expr, 1))


def shifted(expr: Expr, by: int, count: int) -> Expr:
    """The slot ``by`` further on in a ring of ``count``."""
    match expr:
        case Binary("%", Binary("+", Binary("%", inner, Const(n)), Const(a)), Const(m)) if n == m:
            by, expr = by + int(a), binary("%", inner, n)
    known = constant(expr)
    if known is not None:
        return Const((known + by) % count)
    return expr if not by % count else binary("%", binary("+", expr, by % count), count)


def at_rank(expr: Expr, rank: int) -> Expr:
    """``expr`` as it is in the CTA of this rank in its cluster."""
    return rebuilt(
        expr, lambda e: Const(rank) if isinstance(e, Special) and e.name == "cluster_rank" else e
    )


def numbers(loops: Sequence[For]) -> Iterator[Expr]:
    """The numbers of the turn that loops around a statement count: each by itself, the innermost
    first, and all of them together, as if they were one loop: ``i * inner + j``."""
    for loop in reversed(loops):
        yield loop.var
    for first in range(len(loops) - 2, -1, -1):
        total = _iterations(loops[first], loops[first].var)
        for loop in loops[first + 1 :]:
            trips = binary("*", total, _iterations(loop, loop.stop))
            total = binary("+", trips, _iterations(loop, loop.var))
        yield total


def _iterations(loop: For, value: Expr) -> Expr:
    """How many turns a loop has made when its counter has a value."""
    span = value if constant(loop.start) == 0 else binary("-", value, loop.start)
    return span if constant(loop.step) == 1 else binary("//", span, loop.step)


def parities(number: Expr, count: int) -> Iterator[Expr]:
    """The parity of use ``number`` of a ring of ``count``, and the other one."""
    use = number if count == 1 else binary("//", number, count)
    parity = binary("&", use, 1)
    yield parity
    yield binary("^", parity, 1)


def numerator(index: Expr) -> Expr | None:
    """``x`` of a slot ``x % n``."""
    match index:
        case Binary("%", number, Const()):
            return number
        case _:
            return None


def matched(loops: tuple[For, ...], others: tuple[For, ...]) -> dict[str, Expr]:
    """By name of a counter of ``loops``, the counter of the loop that stands for it among
    ``others``: as deep, from the inside."""
    pairs = zip(reversed(loops), reversed(others), strict=False)
    return {mine.var.name: other.var for mine, other in pairs}


#: lanes of a warp
LANES = 32


@dataclass(frozen=True)
class Place:
    """A statement: its number, the role and warps that execute it, and the loops around it.

    ``one``: inside a region that a single lane executes.
    """

    number: int
    what: Stmt | Control
    role: str
    warps: tuple[int, ...]
    loops: tuple[For, ...] = ()
    one: bool = False
    #: numbers of the regions around it, the outermost first
    within: tuple[int, ...] = ()

    @property
    def op(self) -> Op:
        """The instruction."""
        assert isinstance(self.what, Op)
        return self.what

    @property
    def stmt(self) -> Stmt:
        """What is in a block: a statement that is no jump."""
        assert not isinstance(self.what, Control)
        return self.what

    @property
    def loc(self) -> Loc:
        """Where it was written."""
        return self.what.loc

    @property
    def arrivals(self) -> int:
        """Lanes of each CTA that execute it; of a region for one lane, one in every warp."""
        return len(self.warps) if self.one else LANES * len(self.warps)


S = TypeVar("S", bound=Stmt | Control)


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
        found: list[Place] = []
        self._walk(self.program.body, ("", tuple(range(self.program.warps)), (), False, ()), found)
        return tuple(found)

    def _walk(self, block: tuple[Stmt, ...], around: _Around, found: list[Place]) -> None:
        """Adds the statements of a block, and what is in them."""
        role, warps, loops, one, within = around
        for stmt in block:
            number = len(found)
            found.append(Place(number, stmt, *around))
            inner = role, warps, loops, one, (*within, number)
            match stmt:
                case Role():
                    own = tuple(w for w in warps if w in stmt.warps)
                    inner = role or stmt.name, own, *inner[2:]
                case For():
                    inner = role, warps, (*loops, stmt), *inner[3:]
                case If():
                    inner = role, warps, loops, one or _is_one(stmt.cond, self.elected), inner[4]
                case _:
                    pass
            for region in children(stmt):
                self._walk(region, inner, found)

    @cached_property
    def ops(self) -> tuple[Place, ...]:
        """The instructions."""
        return tuple(p for p in self.places if isinstance(p.what, Op))

    def of(self, kind: type[S]) -> Iterator[tuple[Place, S]]:
        """The statements of a class."""
        return ((p, p.what) for p in self.places if isinstance(p.what, kind))

    @cached_property
    def waits(self) -> tuple[Place, ...]:
        """The instructions that wait for mbarriers."""
        return tuple(p for p in self.ops if has(p, fx.Waits))

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
            on = (getattr(e, "mbar", None) for e in place.op.effects() if isinstance(e, kinds))
            if any(isinstance(mbar, Mbar) and mbar.array.name == array for mbar in on):
                yield place

    def inside(self, region: int) -> Iterator[Place]:
        """The statements in a region."""
        return (p for p in self.places if region in p.within)


def units_of(block: Sequence[Place]) -> Iterator[tuple[Place, ...]]:
    """What is moved as one: a statement, or an election with the region that it guards."""
    here = 0
    while here < len(block):
        pair = has(block[here], fx.Elects) and any(
            isinstance(p.what, If) for p in block[here + 1 :][:1]
        )
        yield tuple(block[here : here + 1 + pair])
        here += 1 + pair


def mbars(op: Op) -> tuple[Mbar, ...]:
    """The mbarriers that an instruction names."""
    operands = (getattr(op, n) for n in operand_names(type(op)))
    return tuple(v for v in operands if isinstance(v, Mbar) and isinstance(v.array, Mbarriers))


def is_own_address(mbar: Mbar) -> bool:
    """Whether it is the barrier of the executing CTA at an address."""
    return isinstance(mbar.array, AddressedMbarriers) and mbar.array.space == "shared::cta"


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


E = TypeVar("E", bound=fx.Effect)


def effects_of(what: object) -> tuple[fx.Effect, ...]:
    """The effects of an instruction, or of the one that is at a place, or was executed; none of
    anything else."""
    op = what if isinstance(what, Op) else getattr(what, "what", None) or getattr(what, "op", None)
    return op.effects() if isinstance(op, Op) else ()


def effect_of(what: object, kind: type[E], **fields: object) -> E | None:
    """The first effect of an instruction of a class, with these fields."""
    found = (e for e in effects_of(what) if isinstance(e, kind))
    return next((e for e in found if _is(e, (kind,), fields)), None)


def has(what: object, *kinds: type, **fields: object) -> bool:
    """Whether an instruction has an effect of one of these classes, with these fields."""
    return any(_is(e, kinds, fields) for e in effects_of(what))


def _is(effect: fx.Effect, kinds: tuple[type, ...], fields: Mapping[str, object]) -> bool:
    return isinstance(effect, kinds) and all(
        getattr(effect, name, None) == value for name, value in fields.items()
    )


def synchronises(place: Place) -> bool:
    """Whether it waits, arrives, joins or orders, and moves no data."""
    return has(place, *SYNC) and not has(place, *DATA)


#: effects of instructions that synchronise
SYNC = (
    fx.Arrives, fx.Expects, fx.Waits, fx.JoinsBarrier, fx.JoinsCluster, fx.WaitsGroup, fx.Commits,
    fx.Orders, fx.Crosses, fx.OrdersTmem, fx.FencesFragments, fx.Gathers, fx.ReleasesMaps,
    fx.AcquiresMap,
)  # fmt: skip
#: effects of instructions whose work must stay
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
        case _:
            return False


_LANE = frozenset({"lane_id", "thread_id"})


#: what all statements of a block share: their role, warps, loops, whether one lane executes
#: them, the numbers of the regions around them
_Around = tuple[str, tuple[int, ...], tuple[For, ...], bool, tuple[int, ...]]


#: farther than any that is told apart
FAR = 5


@dataclass(frozen=True)
class Focus:
    """The findings (or what the verifier says), the one to begin with first."""

    facts: Facts
    findings: tuple[Finding | Diagnostic, ...]

    @cached_property
    def rules(self) -> tuple[str, ...]:
        """The rules, each once."""
        return tuple(dict.fromkeys(f.rule for f in self.findings))

    @property
    def rule(self) -> str:
        """The first finding's."""
        return self.rules[0] if self.rules else ""

    @property
    def diagnosis(self) -> str:
        """The name of the diagnosis that says what the first finding comes from."""
        return self._first.diagnosis if self._first else ""

    @property
    def culprit(self) -> Loc | None:
        """The line that the cause of the first finding names first."""
        return self._first.culprits[0].loc if self._first and self._first.culprits else None

    @property
    def _first(self) -> Finding | None:
        return next((f for f in self.findings[:1] if isinstance(f, Finding)), None)

    @cached_property
    def lines(self) -> frozenset[Loc]:
        """The lines of the first finding."""
        return frozenset(_locations(self.findings[:1]))

    @cached_property
    def _all_lines(self) -> frozenset[Loc]:
        return frozenset(_locations(self.findings))

    @cached_property
    def _around(self) -> frozenset[int]:
        """The regions around a statement at the lines of the first finding."""
        places = (p for p in self.facts.places if p.loc in self.lines)
        return frozenset(n for p in places for n in p.within)

    @cached_property
    def names(self) -> frozenset[str]:
        """What the first finding names in its sentence and in what its participants do."""
        return together(self._said(self.findings[:1])).names

    @cached_property
    def _noted(self) -> Stated:
        """What all texts of all findings state."""
        notes = (f.noted for f in self.findings if isinstance(f, Finding))
        return together((*self._said(self.findings), *notes))

    def _said(self, findings: Iterable[Finding | Diagnostic]) -> Iterator[Stated]:
        """What the sentences of findings state, and what their participants do."""
        for finding in findings:
            if isinstance(finding, Finding):
                yield from _stated(finding)
            else:
                yield self._at(finding.loc)

    def _at(self, loc: Loc) -> Stated:
        """What is declared, or named by an instruction, at a line."""
        kernel = self.facts.kernel
        declared = (s.name for s in (*kernel.tensors, *kernel.shared) if s.loc == loc)
        used = (n for p in self.facts.ops if p.loc == loc for n in sorted(names(p.op)))
        return Stated(tuple(Named(name, name) for name in (*declared, *used)))

    @cached_property
    def roles(self) -> frozenset[str]:
        """The roles that take part."""
        return frozenset(r for f in self.findings if isinstance(f, Finding) for r in f.roles)

    @cached_property
    def bytes(self) -> tuple[int, ...]:
        """The numbers of bytes that are spoken of."""
        return self._noted.bytes

    @cached_property
    def arrivals(self) -> tuple[int, ...]:
        """The numbers of arrivals that are spoken of."""
        return self._noted.arrivals

    def distance(self, place: Place) -> int:
        """From 0, a line of the first finding, to `FAR`."""
        own = names(place.what) if isinstance(place.what, Op) else frozenset[str]()
        if place.loc in self.lines:
            return 0
        if own & self.names:
            return 1
        if place.loc in self._all_lines or place.loc in self._noted.lines:
            return 2
        if place.number in self._around:
            return 2
        if own & self._noted.names:
            return 3
        return FAR - 1 if place.role in self.roles else FAR

    def distance_of(self, names: Iterable[str]) -> int:
        """The same of what has these names."""
        own = frozenset(names)
        return 1 if own & self.names else 3 if own & self._noted.names else FAR

    def of_edit(self, numbers: Sequence[int]) -> int:
        """The distance of the nearest statement that changes."""
        return min((self.distance(self.facts.places[n]) for n in numbers), default=FAR)


def _locations(findings: Sequence[Finding | Diagnostic]) -> list[Loc]:
    return [loc for f in findings for loc in (f.locations if isinstance(f, Finding) else (f.loc,))]


def _stated(finding: Finding) -> Iterator[Stated]:
    """What its cause and its message state, and what its participants do."""
    yield finding.because
    yield finding.facts
    for p in (*finding.culprits, *finding.participants):
        if p.deed is not None:
            deed = p.deed
            yield Stated(
                named=() if deed.on is None else (deed.on,),
                bytes=(deed.bytes,) if deed.bytes else (),
            )
