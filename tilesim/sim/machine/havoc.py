"""Unknown values that decide: all ways through a branch, accesses that may be made, or anywhere.

Accesses of which data decides whether, or where, they are made are made for the sake of what they
may race with, and what they leave is not known. What such an access does wrong is no finding, as it
may not happen: then the value that decides has to be known (docs/soundness/data.md).

A part of the program behind a branch on a value that is not known is gone through on all ways.
Lanes go one way or the other, and each its own: so each instruction there may be made or not. It is
made in all lanes that may come to it, with what their registers hold on each way there, or, where
that is not the same on all of them, with a value that is not known. A loop is gone through
iteration by iteration, until one may be its last: from then on with what registers hold in any.

Arithmetic that a branch on data leads to need not be executed to go on: compilers put slow ways of
logarithms and the like there. What such a branch may set is not known behind it; whatever touches
memory or synchronises has to be known to be executed.

By some branches data makes all threads of a CTA end: ``if (blockIdx.x >= *n) return;``. All of them
go one way (`tilesim.analysis.uniformity`), and no other CTA learns of it. In the run they stay;
that they end is a run of its own for each time that they come to such a branch
(docs/soundness/data.md, "Branches on which a CTA agrees").
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property, partial
from typing import Any, TypeAlias

from tilesim.analysis.cfg import FlowGraph, Loop, sides_that_compute
from tilesim.analysis.solver import closure
from tilesim.analysis.uniformity import uniform_branches
from tilesim.analysis.uses_defs import computed, registers_set, sets
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedTensor
from tilesim.ir.declarations import View
from tilesim.ir.expr import constant
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Branch, Join, Mir, Trap
from tilesim.ir.op import Op
from tilesim.ir.ops.fence import FenceScope
from tilesim.ir.scalars import communicates, word_access, word_accesses
from tilesim.records import dataclass
from tilesim.sim.machine.addressing import AddressedAccess
from tilesim.sim.machine.errors import Fault, OutOfBounds
from tilesim.sim.machine.executable import Facts
from tilesim.sim.machine.expression import assign
from tilesim.sim.machine.footprint import EVERY, Access
from tilesim.sim.machine.interface import Stop
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.operands import Operands
from tilesim.sim.machine.unknown import (
    Unknown,
    UnknownSteers,
    content,
    first_of,
    open_lanes,
    require_known,
    unset_lanes,
)
from tilesim.sim.machine.view_access import ViewAccess


def words_are_observed(mir: Mir) -> bool:
    """Whether a strong load, or a result of an atomic, says what threads leave in memory for each
    other: where none does, reductions order nothing."""
    words = filter(None, word_accesses(mir))
    return any(word.result is not None and word.sem != "weak" for word in words)


def accessing(effects: tuple[fx.Effect, ...]) -> frozenset[str] | None:
    """The registers that an instruction sets which accesses memory, each lane for itself and
    weakly, or in one relaxed step that reads and writes, and does nothing else; None if it does."""
    word = word_access(effects)
    if word is not None and word.combine is not None:
        if word.sem not in ("weak", "relaxed") or not _own(word.view):
            return None
        return frozenset() if word.result is None else frozenset({word.result.name})
    found: set[str] = set()
    for effect in effects:
        match effect:
            case fx.Defines(oracle=""):
                found.add(effect.var.name)
            case fx.Reads() | fx.Writes() if _plain(effect):
                pass
            case _:
                return None
    return None if len(found) == len(effects) else frozenset(found)


def _plain(effect: fx.Reads | fx.Writes) -> bool:
    by_lanes = effect.lanes and effect.proxy == "generic" and not effect.asynchronous
    weak = effect.sem == "weak" and not effect.elsewhere
    combines = isinstance(effect, fx.Writes) and effect.combine is not None
    return bool(by_lanes and weak and not combines and _own(effect.view))


def _own(view: View) -> bool:
    """Whether a view is into no other CTA's shared memory, as far as the text says."""
    space = view.tensor.space if isinstance(view.tensor, AddressedTensor) else ""
    return view.cta is None and space != "shared::cluster"


def may_be_made(w: Warp, value: Unknown, act: Callable[[], object]) -> None:
    """``act``, of which ``value`` says whether it is done.

    Raises:
        UnknownSteers: that has to be known.
    """
    before, w.may_access = w.may_access, value
    released, parts = len(w.machine.released), len(w.parts.leaves)
    findings = w.machine.outcome.findings
    found = len(findings)
    try:
        act()
    except (Fault, Stop) as fault:
        steers = UnknownSteers(value, next(iter(findings[found:]), None))
        del findings[found:]
        raise steers from fault
    finally:
        w.may_access = before
    if len(findings) != found:
        finding = findings[found]
        del findings[found:]
        raise UnknownSteers(value, finding)
    if w.machine.plan.words_are_observed and len(w.machine.released) != released:
        raise UnknownSteers(value)  # it would end what others learn from there
    if len(w.parts.leaves) != parts:
        raise UnknownSteers(value)  # its lanes would know less of each other
    forget_written(w, value)


def forget_written(w: Warp, value: Unknown) -> None:
    """Whether what has been stored is there is not known."""
    for footprint, forget in w.may_be_written:
        forget(value)
        if w.havoc_region is not None:
            w.havoc_region.stored.add(footprint)
    w.may_be_written.clear()


def may_be_made_inside(w: Warp, value: Unknown, step: Step) -> None:
    """The same of one instruction: lanes that would leave their buffer do not execute it, which
    ``value`` is taken to see to (`covers` says so)."""
    active = w.mask

    def act() -> None:
        try:
            step(w)
        except OutOfBounds as fault:
            if not fault.lanes:
                raise
            w.machine.outcome.in_bounds[value.source] = None
            w.mask &= ~fault.lanes
            if w.mask:
                step(w)

    try:
        may_be_made(w, value, act)
    finally:
        w.mask = active


# ----------------------------------------------------------- all ways through a part of the program


#: instructions after which a loop has to be one that data ends
_MOST = 1 << 15
#: what registers hold in other clusters, where that differs
Held: TypeAlias = "dict[int, Any]"


@dataclass(frozen=True, eq=False)
class Region:
    """What lanes may execute from an instruction on up to where all of them have come to ``meet``.

    ``points`` are where several ways come together; ``loops`` those in it, by their heads.
    ``forks``: there are branches in it.
    """

    graph: FlowGraph
    number: int
    meet: int
    points: frozenset[int]
    loops: dict[int, tuple[Loop, ...]]
    ends: frozenset[int]
    forks: bool

    def iterations(self, head: int, number: int) -> bool:
        """Whether an instruction is in a loop that has this head."""
        block = self.graph.block_of[number]
        return any(block in loop.blocks for loop in self.loops.get(head, ()))

    def exchanges(self, head: int) -> bool:
        """Whether something in a loop tells what threads leave in memory for each other."""
        blocks = {block for loop in self.loops[head] for block in loop.blocks}
        accesses = word_accesses(self.graph.mir)
        words = filter(None, (accesses[n] for b in blocks for n in self.graph.blocks[b]))
        return any(word.combine is not None and word.result is not None for word in words)

    def left(self, number: int, targets: Collection[int]) -> list[int]:
        """The heads of the loops that a branch may leave."""
        of = self.graph.block_of
        return [
            head
            for head, loops in self.loops.items()
            if (blocks := frozenset[int]().union(*(loop.blocks for loop in loops)))
            and of[number] in blocks
            and any(of[target] not in blocks for target in targets)
        ]


def region(graph: FlowGraph, number: int, targets: Collection[int], meet: int) -> Region | None:
    """What may be executed from ``targets`` on, where instruction ``number`` leads, before lanes
    meet; None if something there is neither made or not nor control flow.

    Where lanes end there, they meet at the end of the program.
    """
    end = len(graph.mir.code)
    inside = _between(graph, targets, meet)
    ends = frozenset(n for n in inside if _ends(graph, n))
    if ends:
        meet = end
        inside = _between(graph, targets, end)
        ends = frozenset(n for n in inside if _ends(graph, n))
    if not all(n in ends or _may_be_passed(graph, n) for n in inside):
        return None
    blocks = {graph.block_of[n] for n in inside}
    found: dict[int, tuple[Loop, ...]] = {}
    for loop in graph.loops:
        if loop.blocks <= blocks:
            head = graph.blocks[loop.head].start
            found[head] = (*found.get(head, ()), loop)
    back = {(loop.tail, loop.head) for loops in found.values() for loop in loops}
    if any(a in blocks and b in blocks for a, b in graph.back_edges - back):
        return None  # a loop with several entries, or that is entered in the middle
    starts = {b: graph.blocks[b].start for b in blocks}
    points = frozenset(n for b, n in starts.items() if len(graph.predecessors[b]) > 1)
    forks = any(
        isinstance(b := graph.mir.code[n].what, Branch) and b.cond is not None for n in inside
    )
    return Region(graph, number, meet, points, found, ends, forks)


def _between(graph: FlowGraph, targets: Collection[int], meet: int) -> set[int]:
    """What may be executed from ``targets`` on before ``meet``, nothing of which comes behind a
    trap."""
    end = graph.block_of[meet]

    def made(block: int) -> range:
        numbers = graph.blocks[block]
        trap = next((n for n in numbers if _traps(graph, n)), numbers.stop)
        return range(numbers.start, min(trap + 1, numbers.stop))

    def after(block: int) -> tuple[int, ...]:
        ends = block == end or any(_traps(graph, n) for n in graph.blocks[block])
        return () if ends else graph.successors[block]

    blocks = closure((graph.block_of[target] for target in targets), after) - {end}
    return {number for block in blocks for number in made(block)}


def _traps(graph: FlowGraph, number: int) -> bool:
    """Whether all lanes that come to an instruction end the launch there."""
    match graph.mir.code[number].what if number < len(graph.mir.code) else None:
        case Trap(aborts=True, cond=cond):
            return bool(constant(cond))
        case _:
            return False


def _ends(graph: FlowGraph, number: int) -> bool:
    what = graph.mir.code[number].what
    return isinstance(what, Op) and any(isinstance(e, fx.Exits) for e in what.effects())


def _may_be_passed(graph: FlowGraph, number: int) -> bool:
    match graph.mir.code[number].what:
        case Op() as op:
            effects = graph.mir.effects[op.number]
            return computed(effects) is not None or accessing(effects) is not None
        case Branch(polls=polls):
            return not polls
        case Trap(aborts=aborts):
            return aborts
        case what:
            return isinstance(what, Join)


@dataclass
class _State:
    """What lanes have that come to an instruction."""

    mask: int
    registers: list[Any]
    elsewhere: Held
    #: what they have surely stored of their own on each way, from where they parted on
    own: frozenset[Any]


class HavocRegion:
    """A warp whose lanes go all ways through a region: which one each goes says ``value``."""

    def __init__(self, w: Warp, value: Unknown, within: Region) -> None:
        self._w = w
        self._value = value
        self._region = within
        self._mask = w.mask
        #: by instruction, lanes that have yet to go on there
        self._waiting: dict[int, _State] = {}
        #: by head of a loop: what it was entered with last, and how much had been stored
        self._iterations: dict[int, tuple[_State, int]] = {}
        #: by head of a loop that data may end in any iteration, the lanes for which it may
        self._open: dict[int, int] = {}
        self.end = len(within.graph.mir.code)
        self.stored: set[object] = set()
        self.own: frozenset[Any] = frozenset()
        self._executed = 0

    def go(self, starts: Collection[int]) -> None:
        """From ``starts`` on to where all lanes meet.

        Raises:
            UnknownSteers: the value has to be known.
        """
        w = self._w
        w.machine.irregular += self._region.forks
        outer, w.havoc_region = w.havoc_region, self
        if outer is not None:
            self.own = outer.own
        try:
            for start in starts:
                self._wait(start)
            while (place := self._next()) is not None:
                self._follow(place)
        finally:
            w.havoc_region = outer
        last = self._waiting.pop(self._region.meet, None)
        # no lane is in a loop for ever (`_wait`), but some may trap on each way
        if last is None or last.mask != self._mask:
            raise UnknownSteers(self._value)
        self._become(last)
        if outer is not None:
            outer.own = last.own
        else:
            for footprint in last.own:
                w.machine.globals.memories[footprint.tensor].table.note_write(footprint, None)
        w.pc = self._region.meet

    def stores(self, footprint: object, number: int) -> None:
        """The active lanes store into what each has for itself, by this instruction."""
        if self._region.graph.mir.code[number].guard is None:
            self.own |= {footprint}

    def branch(self, number: int, target: int, taken: int | Unknown) -> None:
        """Lanes come to a branch: ``taken`` are those that go on at its target, if that is known.

        ``number`` is the instruction behind it.
        """
        w = self._w
        if type(taken) is Unknown:
            self._may_leave(number - 1, (number, target))
            self._wait(number, number - 1)
            self._wait(target, number - 1)
            w.mask = 0
            return
        mask = w.mask
        if len(w.acting) > 1 and taken not in (0, mask):
            raise UnknownSteers(self._value)
        for place, lanes in ((number, mask & ~taken), (target, mask & taken)):
            if lanes and lanes != mask:
                w.mask = lanes
                self._wait(place, number - 1)
            elif lanes:
                w.pc = place
                return
        w.mask = 0

    def trap(self, lanes: int) -> None:
        """``lanes`` end the launch: nothing has to be said of what they do on this way."""
        if len(self._w.acting) > 1 and lanes != self._w.mask:
            raise UnknownSteers(self._value)
        self._w.mask &= ~lanes

    def _may_leave(self, number: int, targets: Collection[int]) -> None:
        """Whether a branch leaves a loop is not known: it is taken to be data that ends it.

        Raises:
            UnknownSteers: it could be what others leave in memory.
        """
        heads = self._region.left(number, targets)
        if any(self._region.exchanges(head) for head in heads):
            raise UnknownSteers(self._value)
        for head in heads:
            self._open[head] = self._open.get(head, 0) | self._w.mask
        if heads:
            loc = self._region.graph.mir.code[number].loc
            self._w.machine.outcome.data_loops[loc] = None

    def _next(self) -> int | None:
        """Where lanes go on that have waited: first where others may still come after them; a
        loop goes on when all in it have come to the end of their iteration."""
        region, waiting = self._region, self._waiting
        places = [n for n in waiting if n != region.meet]
        places = [n for n in places if not any(region.iterations(n, p) for p in places if p != n)]
        return min(places, key=region.graph.ranks.__getitem__, default=None)

    def _follow(self, place: int) -> None:
        """Goes on from an instruction to the next one where ways come together or part."""
        w, region = self._w, self._region
        state = self._waiting.pop(place)
        if place in region.loops:
            self._iterations[place] = state, len(self.stored)
        self._become(state)
        w.pc = place
        code, mir = w.machine.code, region.graph.mir.code
        while w.mask:
            number = w.pc
            w.pc += 1
            self._count()
            match mir[number].what:
                case Op() if number not in region.ends:
                    may_be_made_inside(w, self._value, code[number][0])
                case Op() | Branch() | Trap():
                    code[number][0](w)
                case _:
                    pass
            if w.mask and (w.pc == region.meet or w.pc in region.points):
                self._wait(w.pc, number)
                return

    def _count(self) -> None:
        self._executed += 1
        if self._executed > _MOST:
            raise UnknownSteers(self._value)
        if self._executed % 64 == 0:
            self._w.machine.look_at_clock()

    def _wait(self, place: int, before: int | None = None) -> None:
        """The active lanes wait at an instruction for others that may come there.

        Raises:
            UnknownSteers: some of them stay for ever in a loop that data ends for others only.
        """
        w, region = self._w, self._region
        mirror = w.elsewhere
        held = {} if mirror is None else mirror.saved()
        state = _State(w.mask, list(w.registers), held, self.own)
        iterations = before is not None and region.iterations(place, before)
        if iterations and place in self._open and place in self._iterations:
            earlier, stored = self._iterations[place]
            state = self._either(earlier, state)
            if stored == len(self.stored) and _covers(earlier, state):
                if w.mask & ~self._open[place]:
                    raise UnknownSteers(self._value)
                return
        other = self._waiting.get(place)
        self._waiting[place] = state if other is None else self._either(other, state)

    def _become(self, state: _State) -> None:
        w = self._w
        w.registers[:] = state.registers
        if w.elsewhere is not None:
            w.elsewhere.restore(state.elsewhere)
        w.mask, self.own = state.mask, state.own

    def _either(self, one: _State, other: _State) -> _State:
        """What lanes hold that have come one way or the other."""
        registers = []
        elsewhere: Held = {}
        for slot, (a, b) in enumerate(zip(one.registers, other.registers, strict=True)):
            far, away = one.elsewhere.get(slot), other.elsewhere.get(slot)
            if far is not away or not _same_registers(a, b):
                registers.append(self._value.opened(unset_lanes(a) & unset_lanes(b)))
                continue
            registers.append(a)
            if far is not None:
                elsewhere[slot] = far
        return _State(one.mask | other.mask, registers, elsewhere, one.own & other.own)


def _covers(earlier: _State, state: _State) -> bool:
    """Whether all that a state says, which is ``earlier`` merged with what came after it, has been
    gone on from: what is another number in some cluster is not known by then."""
    return all(map(_same_registers, earlier.registers, state.registers))


def _same_registers(one: Any, other: Any) -> bool:
    """Whether registers hold the same, bit by bit, and are open in the same lanes; what is not
    known is like anything else that is not known."""
    return one is other or content(one, one_unknown=True) == content(other, one_unknown=True)


# ------------------------------------------------------------- arithmetic that need not be executed


def forget(w: Warp, slots: Collection[int], value: Unknown) -> None:
    """Whether the active lanes set these registers is not known."""
    for slot in slots:
        assign(w, slot, value)


def led_to(graph: FlowGraph, start: int) -> int:
    """The first instruction from one on that does more than to compute registers, or asks where to
    go on; the end of the program, if that is first."""
    number, passed = start, set[int]()
    while number < len(graph.mir.code) and number not in passed:
        passed.add(number)
        match graph.mir.code[number].what:
            case Branch(cond=None, target=target):
                number = target
            case Op() if computed(graph.mir.effects[number]) is not None:
                number += 1
            case Join():
                number += 1
            case _:
                break
    return number


def _leads_to_end(graph: FlowGraph, number: int) -> bool:
    """Whether threads end at an instruction."""
    code = graph.mir.code
    return number == len(code) or (_ends(graph, number) and code[number].guard is None)


# ------------------------------------------------------------------ all that lanes may do


#: how often a CTA may come to a branch by which it may end
_MOST_STAYS = 16


class Undecided:
    """A branch, or an exit, of lanes of which it is not known whether they go on at ``target``;
    those that it splits meet at ``meet``. All ways of this file are tried, the simplest first."""

    def __init__(self, code: Facts, number: int, target: int, meet: int) -> None:
        self._code, self._graph, self._forgets = code, code.graph, code.forgets
        self._number, self._target, self._meet = number, target, meet

    def _one_side(self, leads: Callable[[FlowGraph, int], bool]) -> tuple[int, int] | None:
        """The side that ``leads`` somewhere by arithmetic alone, and the other one, which does
        not."""
        sides = ((self._number + 1, self._target), (self._target, self._number + 1))
        found = [side for side in sides if leads(self._graph, led_to(self._graph, side[0]))]
        return found[0] if len(found) == 1 else None

    @property
    def spared(self) -> tuple[Loc, int] | None:
        """The trap to which one side leads, which does nothing else, and where lanes go on.

        With the trap the launch ends: nothing comes behind it, and what comes before or beside it
        comes in an execution without it as well (docs/soundness/data.md, traps).
        """
        sides = self._one_side(_traps) if self._forgets else None
        if sides is None:
            return None
        return self._graph.mir.code[led_to(self._graph, sides[0])].what.loc, sides[1]

    @cached_property
    def _skipped(self) -> list[int] | None:
        """The registers that may be set before lanes meet; None if they may do anything else, or
        anything again and again."""
        inside = sides_that_compute(self._graph, self._number) if self._forgets else None
        if inside is None or self._meet == len(self._graph.mir.code):
            return None
        names = {name for n in inside for name in sets(self._graph.mir, n)}
        return [self._code.slots[name] for name in sorted(names)]

    def _keeps_some(self, w: Warp) -> bool:
        """Whether some lanes, and not others, have set a register that may be set before all
        meet: which of them do is seen where they go all ways."""
        assert self._skipped is not None
        asked = w.machine.plan.open_registers.intersection(self._skipped)
        return self._region is not None and any(open_lanes(w.registers[n]) for n in asked)

    @cached_property
    def _leaving(self) -> tuple[int, int] | None:
        """Where threads end by a branch by which all of a CTA do, and where they stay."""
        mir = self._graph.mir
        if mir.kernel.cluster_size > 1 or communicates(mir) or mir.all_of(fx.Cancels):
            return None
        sides = self._one_side(_leads_to_end)
        return sides if self._number in uniform_branches(self._graph) else None

    def _leaves(self, w: Warp, value: Unknown) -> bool:
        """The active lanes end or stay, as the run is told; False if that would not be what all
        threads of the CTA do, as far as one knows."""
        if self._leaving is None or w.mask != w.live_mask or w.origin is not w:
            return False
        machine, iteration = w.machine, w.stayed
        if iteration >= _MOST_STAYS:
            return False
        number, _ = machine.outcome.leaves.setdefault(iteration, (self._number, value))
        if number != self._number:
            return False  # another warp has come to another branch
        machine.irregular += 1
        w.stayed += 1
        end, stay = self._leaving
        w.pc = end if iteration == machine.options.leaves else stay
        return True

    @cached_property
    def _region(self) -> Region | None:
        sides = self._number + 1, self._target
        return region(self._graph, self._number, sides, self._meet) if self._forgets else None

    def goes_on(self, w: Warp, value: Unknown) -> bool:
        """The active lanes go on; False if it has to be known where."""
        if self._skipped is not None and not self._keeps_some(w):
            forget(w, self._skipped, value)
            w.pc = self._meet
        elif self._leaves(w, value):
            pass
        elif self._region is not None:
            way = HavocRegion(w, value, self._region)
            may_be_made(w, value, partial(way.go, (w.pc, self._target)))
        else:
            return False
        return True


# -------------------------------------------------------- accesses made for what they may race with


class MayAccess:
    """An instruction of which it is not known where it accesses memory, or whether it does."""

    def __init__(self, c: Operands, op: Op) -> None:
        self._operands, self._op = c, op
        word = word_access(op.effects())
        #: whether it reads and writes in one step
        self.reduces = word is not None and word.combine is not None

    @cached_property
    def _accesses(self) -> list[tuple[ViewAccess, fx.Reads | fx.Writes]]:
        kinds = fx.Writes if self.reduces else fx.Reads | fx.Writes
        effects = (e for e in self._op.effects() if isinstance(e, kinds))
        return [(self._operands.view(e.view), e) for e in effects]

    def lost(self, w: Warp) -> Unknown | None:
        """An address that is not known, if it has one."""
        return first_of(*(view.lost(w) for view, _ in self._accesses))

    def make(self, w: Warp) -> None:
        """Made where it may be made: what it leaves, in memory and in registers, is not known.

        Raises:
            UnknownSteers: that has to be known.
        """
        value = w.may_access
        assert value is not None
        for view, effect in self._accesses:
            self._touch(w, view, effect, value)
        for var in registers_set(self._op):
            assign(w, self._operands.slot(var), value)

    def _touch(
        self, w: Warp, view: ViewAccess, effect: fx.Reads | fx.Writes, value: Unknown
    ) -> None:
        address, among, write = view.lost(w), w.mask, isinstance(effect, fx.Writes)
        scope: FenceScope | None = None if effect.sem == "weak" else effect.scope
        if address is None:
            # lanes that name several memories end it, as what is done wrong does (`may_be_made`)
            memory, footprint, _ = view.lane_footprint(w)
        else:
            assert isinstance(view, AddressedAccess)
            w.machine.outcome.in_bounds[address.source] = None
            w.machine.irregular += 1
            memory, among = view.memory_at(w, address), EVERY
            footprint = view.whole(w, memory)
            if memory.label in w.machine.plan.of_threads:
                if write:
                    w.may_be_written.append((footprint, partial(memory.forget, footprint.bytes)))
                    memory.table.note_write(footprint, value)
                return
            if write and scope is None and w.lanes > 1:
                if w.machine.options.ptx:
                    require_known(value)
                w.machine.lean("H23", self._op, surely=True)
        if scope is not None and not w.machine.timed:
            require_known(value)  # of several orders each has to be seen
        access = Access(
            w, self._op, w.component, w.tick, False, write, scope, lanes=w.mask, among=among
        )
        check = w.machine.races.write if write else w.machine.races.read
        check(memory, footprint, access, w.clock)
        if write:
            w.effects += 1
            w.machine.changed()


def where_not_known(step: Step, access: MayAccess) -> Step:
    """``step`` of an instruction that accesses memory; ``access``: what it is if it is not
    known where, or whether it is made and others could learn from it."""

    def run(w: Warp) -> bool | None:
        if w.may_access is not None and access.reduces:
            access.make(w)
            return None
        try:
            return step(w)
        except UnknownSteers:
            address = access.lost(w)
            if address is None:
                raise
            may_be_made(w, address, partial(access.make, w))
            return None

    return run
