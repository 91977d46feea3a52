"""Stores of unknown data, told apart by what it is made of (SEMANTICS H23).

What the lanes of a warp hold has a value number where it is not known. Two that are equal stand for
equal data: each is made of what an instruction does and of the value numbers of what it does that
with. 0 stands for what has none. `number_stores` finds the instructions that what is stored comes
from; while a machine runs, each of them numbers the registers that it sets.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from tilesim.analysis.solver import closure
from tilesim.analysis.uses_defs import expressions_in, operand_expressions, registers_set
from tilesim.ir.effects import (
    Defines,
    Effect,
    Gathers,
    GathersWarps,
    Issues,
    Reads,
    Shuffles,
    UsesFragment,
    Writes,
)
from tilesim.ir.expr import Base, Expr, Special, Var, walk
from tilesim.ir.op import Op, Rearranges, Symmetric
from tilesim.records import dataclass
from tilesim.sim.machine.assignment_jit import take_apart
from tilesim.sim.machine.errors import FAULTS
from tilesim.sim.machine.executable import Leaf, Operand
from tilesim.sim.machine.expression import evaluator
from tilesim.sim.machine.footprint import EVERY, ONE_OF_SEVERAL, Access, Footprint, Left
from tilesim.sim.machine.lanes import FULL, Lanes, mask_array, mask_bits, shuffled_from
from tilesim.sim.machine.machine import Code, Step, Warp
from tilesim.sim.machine.unknown import Open, Unknown
from tilesim.sim.observers.races import RaceDetector

if TYPE_CHECKING:
    from tilesim.sim.machine.clock import Clock
    from tilesim.sim.machine.interface import Core
    from tilesim.sim.machine.memory import GlobalMemory, Memory
    from tilesim.sim.machine.tickets import Tickets
    from tilesim.sim.machine.warp import Agent


#: what differs between the CTAs of a grid
_OF_GRID = frozenset({"cta_x", "cta_y", "cta_z", "cluster_rank", "cluster_id"})


class Numbers:
    """The value numbers of what the 32 lanes of a warp hold; of equal ones there is one object, so
    that its identity tells them."""

    __slots__ = ("lanes",)

    def __init__(self, lanes: NDArray[np.int64]) -> None:
        self.lanes = lanes


class Numbering:
    """Gives value numbers."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._lanes: dict[bytes, Numbers] = {}
        self._made: dict[Hashable, Numbers] = {}
        #: of what has no value number in any lane
        self.nothing = self.of([0] * 32)

    def number(self, what: Hashable) -> int:
        """A number for that alone, from 1 on."""
        return self._numbers.setdefault(what, len(self._numbers) + 1)

    def of(self, lanes: Sequence[int] | NDArray[np.int64]) -> Numbers:
        """These value numbers."""
        array = np.asarray(lanes, dtype=np.int64)
        name = array.tobytes()
        known = self._lanes.get(name)
        if known is None:
            known = self._lanes[name] = Numbers(array)
        return known

    def each(self, lanes: Sequence[Hashable]) -> Numbers:
        """The value numbers of what each lane has of these."""
        return self.of([self.number(lane) for lane in lanes])

    def value(self, value: Any) -> Numbers:
        """Those of a register's value that is known: a number, or one per lane."""
        if type(value) is int:
            found = self._made.get(value)
            if found is None:
                found = self._made[value] = self.each([_constant(value)] * 32)
            return found
        if type(value) is Unknown:
            return self.nothing
        held = mask_array(value.bits) if type(value) is Lanes else np.asarray(value)
        return self.each([_constant(one) for one in np.broadcast_to(held, 32)])

    def computed(
        self, what: Hashable, parts: Sequence[Numbers], *, symmetric: bool = False
    ) -> Numbers:
        """Those of what each lane computes of ``parts`` by itself; ``symmetric``: of two,
        whichever comes first."""
        key = (what, *map(id, parts))
        found = self._made.get(key)
        if found is None:
            rows = np.sort(rows_of(parts)) if symmetric and len(parts) == 2 else rows_of(parts)
            each = [self.number((what, r.tobytes())) if r.all() else 0 for r in rows]
            found = self._made[key] = self.of(each)
        return found

    def gathered(self, what: Hashable, parts: Sequence[Numbers], mask: int) -> Numbers:
        """Those of what each lane of a mask gets of what all of them have."""
        key = (what, mask, *map(id, parts))
        found = self._made.get(key)
        if found is None:
            rows = rows_of(parts)[mask_array(mask)]
            whole = self.number((what, mask, rows.tobytes())) if rows.all() else 0
            each = [self.number((what, whole, lane)) if whole else 0 for lane in range(32)]
            found = self._made[key] = self.of(each)
        return found

    def merged(self, mask: int, one: Numbers, other: Numbers) -> Numbers:
        """The first in the lanes of a mask, the other in the rest."""
        if mask == FULL or one is other:
            return one
        return self.of(np.where(mask_array(mask), one.lanes, other.lanes))


def rows_of(parts: Sequence[Numbers]) -> NDArray[np.int64]:
    """A row of value numbers for each lane."""
    if not parts:
        return np.ones((32, 1), dtype=np.int64)  # nothing that could be something else
    return np.stack([part.lanes for part in parts], axis=1)


def _constant(value: Any) -> Hashable:
    """A number, told apart from any other: zero has two signs, and no number is its own."""
    if isinstance(value, float | np.floating):
        return "float", np.float64(value).tobytes()
    if isinstance(value, np.generic) and value.dtype.kind == "V":
        return str(value.dtype), value.tobytes()
    return "integer", int(value)


# ------------------------------------------------------------------ what lanes hold


@dataclass(frozen=True)
class Making:
    """What an instruction makes the registers in ``slots`` of.

    ``known``: nothing but what ``operands`` say, what it loads, and what the registers hold that
    stand for several of which it sets one (``partly``). ``loads``: it reads memory, at what the
    ``places`` say; ``gathers``: what a lane gets is made of what all lanes have; ``moves``: it gets
    what its operand is; ``symmetric``: which of two comes first does not matter; ``shuffles``: how
    a lane finds the one (``lane``) whose operand it gets. ``product``: of a warpgroup, which adds
    to what is there if ``keeps``.
    """

    number: int
    slots: tuple[int, ...]
    known: bool
    operands: tuple[Operand, ...] = ()
    places: tuple[Operand, ...] = ()
    guard: Operand | None = None
    loads: bool = False
    gathers: bool = False
    moves: bool = False
    symmetric: bool = False
    shuffles: Literal["idx", "up", "down", "bfly"] | None = None
    lane: Operand | None = None
    partly: bool = False
    product: bool = False
    keeps: Operand | None = None


class _Registers(list[Any]):
    """The registers of a warp, with value numbers of what some of them hold.

    An instruction that sets a register takes its number away, so that none outlives what it stands
    for; the instructions that are followed give it another one.
    """

    def __init__(self, registers: Sequence[Any]) -> None:
        super().__init__(registers)
        self.numbers: dict[int, Numbers] = {}

    def __setitem__(self, slot: Any, value: Any) -> None:
        if type(slot) is int:
            self.numbers.pop(slot, None)
        else:
            self.numbers.clear()
        super().__setitem__(slot, value)


class NumberingDetector(RaceDetector):
    """Knows besides what the stores in `Facts.named` leave.

    Instructions that it comes from (`Making`) are followed: what they set is numbered by what they
    do and by the value numbers of what they do it with, and what they load by where from, and how
    often that has been written. So equal ones are of equal data, however often a loop has turned.
    """

    def __init__(
        self,
        machine: Core,
        warps: Sequence[Agent],
        shared: Sequence[Memory],
        global_: GlobalMemory,
        tickets: Tickets,
    ) -> None:
        super().__init__(machine, warps, shared, global_, tickets)
        self._numbering = Numbering()
        #: of registers that nothing has set
        self._unset = self._numbering.each(["unset"] * 32)
        #: by bytes: how often some of them have been written
        self._versions: dict[Footprint, int] = {}
        self._written: set[Memory] = set()
        #: what the instruction that is followed has read so far
        self._seen: list[_Seen] | None = None
        #: whether a part of a store is looked at
        self._inside = False
        for warp in warps:
            warp.registers = _Registers(warp.registers)

    # ------------------------------------------------------------------ what is accessed

    def read(
        self, memory: Memory, footprint: Footprint, access: Access, clock: Clock,
        *, again: bool = False, ordered: bool = False,
    ) -> None:  # fmt: skip
        """See `RaceDetector.read`."""
        seen, self._seen = self._seen, None  # parts of it are no reads of their own
        if seen is not None:
            seen.append(_Seen(self._contents(memory, footprint, access), footprint, access))
        super().read(memory, footprint, access, clock, again=again, ordered=ordered)
        self._seen = seen

    def knows_writes(self, near: Sequence[Footprint], clock: Clock) -> bool:
        """See `RaceDetector.knows_writes`; here each warp is asked what it reads."""
        return self._seen is None and super().knows_writes(near, clock)

    def write(self, memory: Memory, footprint: Footprint, access: Access, clock: Clock) -> None:
        """See `RaceDetector.write`."""
        data = self.machine.plan.named.get(access.op.number)
        if data is not None and access.stored is None and not self._inside:
            access.stored = self._name(data, footprint, access)
        self._written.add(memory)
        for other in footprint.overlaps:
            self._versions[other] = self._versions.get(other, 0) + 1
        inside, self._inside = self._inside, True
        super().write(memory, footprint, access, clock)
        self._inside = inside

    def _contents(self, memory: Memory, footprint: Footprint, access: Access) -> int:
        """A number for what memory holds there now; 0 if that cannot be told."""
        # once addresses stand for any in a tensor, one does not tell what is read there
        if self.machine.outcome.in_bounds or access.among == EVERY:
            return 0
        if memory.mbarriers is None and memory.tracked:
            return 0
        of: Hashable = memory
        if memory in self._written or memory.mbarriers is not None:
            of = footprint, self._versions.get(footprint, 0)
        return self._numbering.number(of)

    # ------------------------------------------------------------------ instructions

    def execute(self, making: Making, step: Callable[[Any], bool | None], w: Agent) -> bool | None:
        """An instruction that is followed: ``step``, and what the registers hold that it sets."""
        registers = w.registers
        if (
            not isinstance(registers, _Registers)
            or w.may_access is not None
            or w.havoc_region is not None
        ):
            stopped = step(w)
            if isinstance(w.registers, _Registers):
                for slot in making.slots:
                    w.registers.numbers.pop(slot, None)
            return stopped
        mask, may_access = self._executes(making, w) if making.known else (0, None)
        parts, places = self._parts(making.operands, w), self._places(making, w)
        before = [self._now(registers, slot) for slot in making.slots]
        unset = [registers[slot] is None for slot in making.slots]
        keeps = making.keeps is None or self._keeps(making.keeps, w)
        source = self._source(making, w)
        self._seen = [] if making.loads else None
        try:
            stopped = step(w)
        finally:
            seen, self._seen = self._seen or [], None
        for place, slot in enumerate(() if stopped else making.slots):
            new, old = self._numbering.nothing, before[place]
            if making.known and may_access is not None and places is not None:
                kept = making.partly or (making.product and keeps)
                sources = [*parts, *places, *[self._unset if unset[place] else old] * kept]
                new = self._made(making, place, sources, seen, mask, source, w.number)
                if may_access:
                    new = self._numbering.computed(
                        (making.number, "may access"), [*may_access, new, old]
                    )
                new = self._numbering.merged(mask, new, old)
            registers.numbers[slot] = new
        return stopped

    def _made(
        self, making: Making, place: int, parts: list[Numbers], seen: list[_Seen], mask: int,
        source: NDArray[np.int64] | None, warp: int,
    ) -> Numbers:  # fmt: skip
        """What a lane gets in one of the registers that an instruction sets."""
        numbering, what = self._numbering, (making.number, place)
        if making.product:
            if not all(s.contents for s in seen):
                return numbering.nothing
            read = tuple((s.contents, s.footprint) for s in seen)
            return numbering.gathered((what, warp % 4, read), parts, FULL)
        if making.loads:
            where, there = self._loaded(seen, mask)
            if making.gathers:
                return numbering.gathered(what, [*parts, where, there], mask)
            return numbering.computed(what, [*parts, where, there])
        if making.moves and len(parts) == 1:
            return parts[0]
        if making.shuffles is not None:
            return self._shuffled(making, parts, mask, source)
        if making.gathers:
            return numbering.gathered(what, parts, mask)
        return numbering.computed(what, parts, symmetric=making.symmetric)

    def _source(self, making: Making, w: Agent) -> NDArray[np.int64] | None:
        """The lane from which each lane gets an operand; None if that is not known."""
        if making.shuffles is None or making.lane is None or making.lane.evaluate is None:
            return None
        by = None if self._differs(making.lane, w) else self._evaluated(making.lane, w)
        return None if by is None or type(by) is Unknown else shuffled_from(making.shuffles, by)

    def _shuffled(
        self, making: Making, parts: list[Numbers], mask: int, source: NDArray[np.int64] | None
    ) -> Numbers:
        """What each lane gets of another one that executes the shuffle."""
        if source is None:
            return self._numbering.nothing
        (value,) = parts if len(parts) == 1 else [self._numbering.computed(making.number, parts)]
        there = mask_array(mask)[source]
        return self._numbering.of(np.where(there, value.lanes[source], 0))

    def _loaded(self, seen: list[_Seen], mask: int) -> tuple[Numbers, Numbers]:
        """Where from each lane has loaded, and what was there."""
        addresses, contents = np.zeros(32, dtype=np.int64), np.zeros(32, dtype=np.int64)
        for one in seen:
            starts = _starts(one.footprint, one.access)
            # lanes that load for each other: the bytes that all of them name, in their order
            together = starts is None and len(seen) == 1
            lanes = mask_array(FULL if together else one.access.lanes)
            addresses[lanes] = (
                self._numbering.number(one.footprint) if starts is None else starts + 1
            )
            contents[lanes] = one.contents
        contents[~mask_array(mask)] = 0
        return self._numbering.of(addresses), self._numbering.of(contents)

    def _executes(self, making: Making, w: Agent) -> tuple[int, list[Numbers] | None]:
        """The lanes that may execute an instruction, and what tells whether they do, if that is not
        known; None if it cannot be told either."""
        guard = making.guard
        if guard is None:
            return w.mask, []
        if guard.evaluate is not None:
            if self._differs(guard, w) is not None:
                return w.mask, None
            held = self._evaluated(guard, w)
            if type(held) is Lanes:
                return w.mask & held.bits, []
            if held is not None and type(held) is not Unknown:
                return w.mask & mask_bits(np.broadcast_to(np.asarray(held) != 0, 32)), []
        if making.loads or making.gathers:
            return w.mask, None
        return w.mask, [self._leaf(leaf, w) for leaf in guard.leaves]

    def _keeps(self, operand: Operand, w: Agent) -> bool:
        """Whether a product may add to what is there."""
        if operand.evaluate is None or self._differs(operand, w) is not None:
            return True
        value = self._evaluated(operand, w)
        return value is None or type(value) is not int or bool(value)

    def _places(self, making: Making, w: Agent) -> list[Numbers] | None:
        """What differs between clusters of where an instruction reads: the addresses in this one
        are told by themselves."""
        found = []
        for operand in making.places:
            if operand.evaluate is None:
                return None
            differing = self._differs(operand, w)
            if differing is not None:
                found.append(self._numbering.each(differing))
        return found

    # ------------------------------------------------------------------ operands

    def _parts(self, operands: Sequence[Operand], w: Agent) -> list[Numbers]:
        """What tells what operands are."""
        return [one for operand in operands for one in self._operand(operand, w)]

    def _operand(self, operand: Operand, w: Agent) -> list[Numbers]:
        if operand.evaluate is not None:
            known = self._value(operand, w)
            if known is not None:
                return [known]
        return [self._leaf(leaf, w) for leaf in operand.leaves]

    def _leaf(self, leaf: Leaf, w: Agent) -> Numbers:
        if leaf.special:
            return self._numbering.nothing
        if leaf.held is not None:
            known = self._value(leaf.held, w)
            if known is not None:
                return known
        return self._now(w.registers, leaf.slot)

    def _now(self, registers: Any, slot: int) -> Numbers:
        """The value number of what a register holds."""
        found: Numbers | None = registers.numbers.get(slot)
        return self._numbering.nothing if found is None else found

    def _value(self, operand: Operand, w: Agent) -> Numbers | None:
        """Those of a value that is known, in all clusters that take the same steps."""
        differing = self._differs(operand, w)
        if differing is not None:
            return self._numbering.each(differing)
        value = self._evaluated(operand, w)
        return None if value is None or type(value) is Unknown else self._numbering.value(value)

    def _evaluated(self, operand: Operand, w: Agent) -> Any:
        assert operand.evaluate is not None
        try:
            value = operand.evaluate(w)
        except FAULTS:  # of the instruction, which is about to raise it
            return None
        return None if type(value) is Open else value

    def _differs(self, operand: Operand, w: Agent) -> Sequence[Hashable] | None:
        """What tells the values of an operand in all clusters, for each lane; None if all have
        what the one that runs has."""
        return None if w.elsewhere is None else w.elsewhere.value_names(operand)

    # ------------------------------------------------------------------ stores

    def _name(self, data: Sequence[Operand], footprint: Footprint, access: Access) -> Hashable:
        """What a store leaves; None if that is not known."""
        w = access.warp
        if (
            not isinstance(w.registers, _Registers)
            or w.may_access is not None
            or w.havoc_region is not None
        ):
            return None
        gathers = _gathers(access)
        lanes = mask_array(FULL if gathers else access.lanes)
        of = rows_of(self._parts(data, w))[lanes]
        if not of.all():
            return None
        starts = _starts(footprint, access)
        if starts is not None:
            return _by_place(footprint, starts, of)
        if footprint.common and not _agree(footprint, access, of):
            return ONE_OF_SEVERAL
        return footprint, of.shape, of.tobytes()


class _Seen:
    """What an instruction has read: a number for what was there, and where."""

    __slots__ = ("access", "contents", "footprint")

    def __init__(self, contents: int, footprint: Footprint, access: Access) -> None:
        self.contents = contents
        self.footprint = footprint
        self.access = access


def _gathers(access: Access) -> bool:
    return any(isinstance(effect, Gathers) for effect in access.op.effects())


def _starts(footprint: Footprint, access: Access) -> NDArray[np.int64] | None:
    """Where what each lane accesses begins; None if lanes do not access each its own."""
    count = access.lanes.bit_count()
    if _gathers(access) or footprint.addresses.size % count:
        return None
    return footprint.addresses.reshape(count, -1)[:, 0]


def _by_place(footprint: Footprint, starts: NDArray[np.int64], of: NDArray[np.int64]) -> Hashable:
    """What lanes leave, each at its place, if those at one place leave the same; None if pieces
    may overlap in part."""
    if (starts % (footprint.itemsize * (footprint.addresses.size // len(starts)))).any():
        return None
    left: dict[int, bytes] = {}
    for start, row in zip(starts.tolist(), of, strict=True):
        if left.setdefault(start, row.tobytes()) != row.tobytes():
            return ONE_OF_SEVERAL
    return Left(left)


def _agree(footprint: Footprint, access: Access, of: NDArray[np.int64]) -> bool:
    """Whether lanes of ``stmatrix`` that store rows to one place store the same there.

    The rows are of what all lanes have; here that is numbers which tell by their halves what they
    are made of, and in which matrix.
    """
    if not isinstance(access.op, Rearranges):
        return False
    _, alike = np.unique(of, axis=0, return_inverse=True)
    halves = [2 * (alike.reshape(32) + 32 * i) for i in range(access.op.count)]
    rows = access.op.rows([low | (low + 1) << 16 for low in halves])[mask_array(access.lanes)]
    first: dict[int, bytes] = {}
    starts = footprint.addresses.reshape(len(rows), -1)[:, 0]
    return all(
        first.setdefault(start, row.tobytes()) == row.tobytes()
        for start, row in zip(starts.tolist(), rows, strict=True)
    )


# --------------------------------------------------------- which instructions have to be followed


def number_stores(code: Code, stores: Iterable[int]) -> None:
    """From now on, machines that run ``code`` say what these stores leave, if that can be said of
    any."""
    naming = _Sources(code)
    for number in stores:
        what = code.mir.code[number].what
        if isinstance(what, Op) and (data := _stored(what)):
            code.named[number] = tuple(naming.operand(number, expr) for expr in data)
            naming.follow(data)
    if code.named:
        code.detector = NumberingDetector
    _watch(code, naming.makings)


def _stored(op: Op) -> list[Expr]:
    """What a weak store of lanes stores, or of a warp together; nothing of others."""
    for effect in op.effects():
        match effect:
            case Writes(proxy="generic", sem="weak", combine=None, asynchronous=False):
                pass
            case Gathers():
                pass
            case _:
                return []
    return [expr for name in op.data for expr in expressions_in(getattr(op, name))]


class _Sources:
    """Finds the instructions that what is stored comes from."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self.makings: dict[int, Making] = {}
        self._setters = code.mir.setters
        #: by name of a register tile, the variable that stands for its registers, and the other way
        self._variables: dict[str, str] = {}
        self._products: dict[str, list[int]] = {}
        for number, instruction in enumerate(code.mir.code):
            if not isinstance(instruction.what, Op):
                continue
            for effect in code.mir.effects[number]:
                if isinstance(effect, UsesFragment) and effect.variable:
                    self._variables[effect.fragment.name] = effect.variable
        for number, effects in enumerate(code.mir.effects):
            into = _product(effects)
            if into is not None and into.fragment.name in self._variables:
                variable = self._variables[into.fragment.name]
                self._products.setdefault(variable, []).append(number)

    def follow(self, exprs: Iterable[Expr]) -> None:
        """Notes all instructions that these expressions come from."""

        def sources(name: str) -> Iterator[str]:
            for number in (*self._setters.get(name, ()), *self._products.get(name, ())):
                if number not in self.makings:
                    self.makings[number], names = self._making(number)
                    yield from names

        closure(_variables(exprs), sources)

    def operand(self, number: int, expr: Expr) -> Operand:
        """What tells what an expression is for this instruction."""
        parts = [*walk(expr)]
        names = dict.fromkeys(part.name for part in parts if isinstance(part, Var))
        special = {part.name for part in parts if isinstance(part, Special | Base)}
        leaves = (
            *(self._leaf(number, name) for name in names),
            *(Leaf(special=True) for _ in special),
        )
        held = all(self._is_computed(number, name) for name in names)
        evaluate = evaluator(self._code, expr) if held else None
        return Operand(evaluate, leaves, not _OF_GRID.isdisjoint(special))

    def _is_computed(self, number: int, name: str) -> bool:
        """Whether a register holds what the program computes when an instruction reads it."""
        flow = self._code.flow
        setters = flow.setters(number, name)
        return bool(setters) and all(flow.decides(name, setter) for setter in setters)

    def _leaf(self, number: int, name: str) -> Leaf:
        slot = self._code.slots[name]
        if not self._is_computed(number, name):
            return Leaf(slot)
        return Leaf(slot, held=Operand(lambda w: w.registers[slot], (Leaf(slot),)))

    def _making(self, number: int) -> tuple[Making, list[str]]:
        """How an instruction makes registers, and the variables that these come from."""
        instruction, effects = self._code.mir.code[number], self._code.mir.effects[number]
        op = instruction.what
        assert isinstance(op, Op)
        into = _product(effects)
        if into is not None:
            return self._product(number, op, into)
        slots = tuple(self._code.slots[var.name] for var in registers_set(op))
        sources = operand_expressions(op)
        if not sources or not _is_followed(effects):
            return Making(number, slots, known=False), []
        guard = None if instruction.guard is None else self.operand(number, instruction.guard)
        operands = tuple(self.operand(number, source) for source in sources)
        tiles = {*self._variables.values()}
        partly = not tiles.isdisjoint(var.name for var in registers_set(op))
        gathers = any(isinstance(e, Gathers | Shuffles) for e in effects)
        if any(isinstance(e, Reads) for e in effects):
            making = Making(
                number, slots, known=True, places=operands, guard=guard, loads=True,
                gathers=gathers, partly=partly,
            )  # fmt: skip
            return making, []
        match effects:
            case (*_, Shuffles(value=value, lane=lane, mode=mode), Defines()):
                making = Making(
                    number, slots, known=True, operands=(self.operand(number, value),),
                    guard=guard, gathers=True, shuffles=mode, lane=self.operand(number, lane),
                )  # fmt: skip
                return making, [*_variables(sources)]
            case _:
                pass
        making = Making(
            number, slots, known=True, operands=operands, guard=guard, gathers=gathers,
            moves=_moves(op) and tiles.isdisjoint(_variables(sources)), partly=partly,
            symmetric=isinstance(op, Symmetric) and op.symmetric,
        )  # fmt: skip
        guards = () if instruction.guard is None else (instruction.guard,)
        return making, [*_variables((*sources, *guards))]

    def _product(self, number: int, op: Op, into: UsesFragment) -> tuple[Making, list[str]]:
        """A product of a warpgroup: of what is in shared memory, and in other registers."""
        effects = self._code.mir.effects[number]
        others = [e.fragment.name for e in effects if isinstance(e, UsesFragment) and e is not into]
        result = self._variables[into.fragment.name]
        sources = [self._variables.get(name, "") for name in others]
        slots = (self._code.slots[result],)
        plain = self._code.mir.code[number].guard is None
        if not plain or "" in sources:
            return Making(number, slots, known=False), []
        making = Making(
            number, slots, known=True,
            operands=tuple(Operand(None, (self._leaf(number, name),)) for name in sources),
            places=tuple(self.operand(number, e) for e in operand_expressions(op)), loads=True,
            product=True,
            keeps=None if into.keeps is None else self.operand(number, into.keeps),
        )  # fmt: skip
        return making, sources


def _variables(exprs: Iterable[Expr]) -> Iterator[str]:
    return (part.name for expr in exprs for part in walk(expr) if isinstance(part, Var))


def _product(effects: tuple[Effect, ...]) -> UsesFragment | None:
    """What a product of a warpgroup adds to; None if an instruction is none."""
    match effects:
        case (GathersWarps(), UsesFragment(product=(_, _, _)) as into, *rest) if any(
            isinstance(e, Issues) for e in rest
        ):
            return into
        case _:
            return None


def _moves(op: Op) -> bool:
    """Whether an instruction sets a register to what another one of its type holds."""
    match op.effects():
        case (Defines(var=var, value=Var() as value),):
            return var.dtype == value.dtype
        case _:
            return False


def _is_followed(effects: tuple[Effect, ...]) -> bool:
    """Whether what an instruction sets is said by its operands, and by the memory that it reads."""
    for effect in effects:
        match effect:
            case Gathers() | Shuffles() | Defines(oracle="", elsewhere=False):
                pass
            case Reads(proxy="generic", sem="weak", asynchronous=False, elsewhere=False):
                pass
            case _:
                return False
    return True


def _watch(code: Code, makings: Mapping[int, Making]) -> None:
    """Each of these instructions is a step by itself, which numbers what it sets."""
    numbers = makings.keys()
    take_apart(code, code.steps, numbers)
    code.rows = {row: step for row, step in code.rows.items() if numbers.isdisjoint(row)}
    code.assigned &= code.rows.keys()
    for number, making in makings.items():
        step, sync, cycles = code.steps[number]
        code.steps[number] = code.alone[number] = partial(_step, making, step), sync, cycles


def _step(making: Making, step: Step, w: Warp) -> bool | None:
    races = w.machine.races
    assert isinstance(races, NumberingDetector)
    return races.execute(making, step, w)
