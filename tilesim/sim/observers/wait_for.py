"""The wait-for graph: which warp could still release which.

It leads from blocked warps to the warps that still come to what wakes them: a warp that waits would
still execute what lies ahead of where it stands, with what its registers hold.

The way ahead is walked as if no wait kept a warp: control flow and the registers that it depends
on are computed, everything else is passed over. A register that memory or another warp decides is
unknown, and a branch on it goes both ways, so what is found is never too little. That makes "could
release it" true: an arrival counts for the barrier, CTA and id that it names from there on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence, Set
from typing import Any

from tilesim.analysis.executing_warps import executing
from tilesim.analysis.solver import closure
from tilesim.analysis.uses_defs import registers_set
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers
from tilesim.ir.addresses import RANK_SHIFT
from tilesim.ir.declarations import Mbar
from tilesim.ir.expr import Expr
from tilesim.ir.mir import Branch, Switch
from tilesim.ir.op import Op
from tilesim.records import dataclass
from tilesim.sim.machine.control import computes, lanes_where, shadow, value_of
from tilesim.sim.machine.cta import Cta
from tilesim.sim.machine.lanes import Lanes
from tilesim.sim.machine.machine import Code, Machine, Warp
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.named_barrier import NamedBarrier
from tilesim.sim.machine.register_pool import RegisterPool, partition_of
from tilesim.sim.machine.tensor_memory import Tmem, TmemPool
from tilesim.sim.machine.unknown import Unknown, content
from tilesim.sim.machine.warp import Agent
from tilesim.sim.machine.warpgroup import Warpgroup

#: instructions that are looked at for each warp, and for those together that need more: some
#: seconds. Behind them everything that is written may come
_FAR, _FARTHER = 4_000, 400_000
#: ways that unknown conditions open at most
_MOST_BRANCHES = 64
_OFFSET = (1 << RANK_SHIFT) - 1
#: what an instruction acts on that wants more registers
TAKES = "registers"


@dataclass(frozen=True)
class Bytes:
    """The bytes that a barrier counts, apart from its arrivals."""

    on: Mbarrier


@dataclass(frozen=True, eq=False)
class Coming:
    """An instruction that a warp will come to, and what it acts on from there: a barrier, its
    `Bytes`, or the kind of effect (a class) on what the CTA or the SM has one of."""

    op: Op
    on: frozenset[object]


@dataclass
class _Way:
    """Lanes of a warp that go one way, as far as they have been followed."""

    warp: Any
    pc: int
    mask: int


class _Walk:
    """The ways ahead of one warp."""

    def __init__(self, graph: WaitFor, warp: Agent) -> None:
        self._graph, self._plan = graph, graph.code
        self._code = graph.code.mir.code
        self._start = warp.pc
        self._branches = [
            _Way(shadow(warp), pc, mask)
            for pc, mask in ((warp.pc, warp.mask), *_pending_lanes(warp))
            if mask & ~warp.exited_lanes
        ]
        self._seen: set[object] = set()
        self._found: dict[tuple[int, frozenset[object]], Coming] = {}
        self._left = _FAR
        self._opened = self._known = len(self._branches)

    def all(self) -> tuple[Coming, ...]:
        """What is found on all ways."""
        while self._branches:
            self._follow(self._branches.pop())
        return tuple(self._found.values())

    def _follow(self, way: _Way) -> None:
        end = len(self._code)
        while way.pc < end and way.mask:
            self._left -= 1
            if self._left < 0 and not self._may_go_farther():
                self._rest(way)
                return
            way.warp.mask = way.mask
            what = self._code[way.pc].what
            match what:
                case Branch():
                    if not self._branch(way, what):
                        return
                case Switch(targets=targets):
                    for target in targets[1:]:
                        self._open(way, target, way.mask)
                    way.pc = targets[0]
                case Op():
                    self._pass(way, what)
                    way.pc += 1
                case _:
                    way.pc += 1

    def _may_go_farther(self) -> bool:
        """Whether all went one way so far: a loop that an unknown condition ends need not end."""
        return self._opened == self._known and self._graph.look_farther()

    def _branch(self, way: _Way, branch: Branch) -> bool:
        """Goes on behind a branch; False if the warp has been there like this."""
        if branch.cond is None:
            taken: int | None = way.mask
        else:
            lanes = lanes_where(branch.cond, way.warp)
            taken = None if lanes is None else way.mask & (lanes if branch.sense else ~lanes)
        if (taken is None or branch.target <= way.pc) and not self._new(way):
            return False
        if taken is None:
            self._open(way, branch.target, way.mask)
            way.pc += 1
        elif taken == way.mask:
            way.pc = branch.target
        else:
            if taken:
                self._open(way, branch.target, taken)
                way.mask &= ~taken
            way.pc += 1
        return True

    def _new(self, way: _Way) -> bool:
        key = (way.pc, way.mask, tuple(content(r, one_unknown=True) for r in way.warp.registers))
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def _open(self, way: _Way, target: int, mask: int) -> None:
        """Another way, to be followed later."""
        self._opened += 1
        other = _Way(shadow(way.warp), target, mask)
        if self._opened > _MOST_BRANCHES:
            self._rest(other)
        else:
            self._branches.append(other)

    def _pass(self, way: _Way, op: Op) -> None:
        """An instruction: notes what others may wait for, and sets registers."""
        number, warp = way.pc, way.warp
        guard, mask = self._code[number].guard, way.mask
        lanes = mask if guard is None else lanes_where(guard, warp)
        warp.mask = mask if lanes is None else mask & lanes
        if not warp.mask:
            return
        effects = self._plan.mir.effects[number]
        if any(isinstance(effect, fx.Exits) for effect in effects) and lanes is not None:
            way.mask &= ~lanes
            return
        targets = self._graph.targets(op, warp)
        waits = number == self._start and warp.blocked is not None and TAKES not in targets
        if targets and not waits:
            self._found.setdefault((number, targets), Coming(op, targets))
        self._set(number, op, warp, sure=lanes is not None)

    def _set(self, number: int, op: Op, warp: Any, *, sure: bool) -> None:
        """The registers of an instruction: what it computes, or unknown."""
        results = registers_set(op)
        if not results:
            return
        if sure and computes(op, number, warp):
            return
        elected = any(isinstance(effect, fx.Elects) for effect in op.effects())
        for var in results:
            value: object = Unknown(op.mnemonic, loc=op.loc)
            if elected and sure:
                value = Lanes(warp.mask & -warp.mask)
            warp.registers[self._plan.slots[var.name]] = value

    def _rest(self, way: _Way) -> None:
        """Too far to follow: whatever is written on the way may be executed, on any barrier."""
        graph = self._plan.graph
        warp = shadow(way.warp)
        warp.registers = [Unknown("what lies ahead")] * len(warp.registers)
        for block in sorted(closure([graph.block_of[way.pc]], graph.successors.__getitem__)):
            for number in graph.blocks[block]:
                op = self._code[number].what
                if isinstance(op, Op) and warp.number in executing(graph.mir)[number]:
                    targets = self._graph.targets(op, warp)
                    if targets:
                        self._found.setdefault((number, targets), Coming(op, targets))


def _pending_lanes(warp: Agent) -> Iterator[tuple[int, int]]:
    """Other lanes of a warp that go on when those that act now are through."""
    for frame in warp.frames:
        yield from frame.pending


# ------------------------------------------------------- from blocked warps to those that wake them


def state_of(warp: Agent, cta: int | None = None) -> str:
    """What ``warp`` is doing: has exited, waits (for what, where), or is running; in a text that
    speaks of one ``cta``, or of none."""
    if warp.exited:
        return "has exited"
    if warp.blocked is not None:
        return f"{warp.blocked.seen_from(cta)} at {warp.blocked.loc}"
    return "is running"


class WaitFor:
    """Which warps could release which: from blocked warps to those that still come to an
    instruction which counts for what they wait for."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        #: the program that is loaded
        self.code: Code = machine.loaded
        self._coming_of: dict[Agent, tuple[Coming, ...]] = {}
        self._known: dict[Agent, list[tuple[Agent, Op]]] = {}
        self._farther = _FARTHER

    def look_farther(self) -> bool:
        """Whether one more instruction may be looked at for a warp of which `_FAR` have been."""
        self._farther -= 1
        return self._farther >= 0

    def coming(self, warp: Agent) -> tuple[Coming, ...]:
        """Instructions that others may wait for, in the order in which ``warp`` comes to them."""
        known = self._coming_of.get(warp)
        if known is None:
            known = _Walk(self, warp).all() if not warp.exited else ()
            self._coming_of[warp] = known
        return known

    def suppliers(self, warp: Agent) -> list[tuple[Agent, Op]]:
        """Other live warps that could release ``warp``, each with the first such instruction."""
        known = self._known.get(warp)
        if known is None:
            known = self._known[warp] = self._suppliers(warp)
        return known

    def _suppliers(self, warp: Agent) -> list[tuple[Agent, Op]]:
        on = warp.blocked.on if warp.blocked else None
        match on:
            case Mbarrier():
                bytes_, credits = not on.pending, on.current.credits
                what = {Bytes(on) if bytes_ else on}
                made = {
                    (c.warp, c.op.number) for c in credits if (c.tx < 0 if bytes_ else c.arrivals)
                }
                return [*self._coming(warp, what, made)]
            case NamedBarrier():
                joined = {(j.warp, None) for j in on.current.joins}
                return [*self._coming(warp, {on}, joined)]
            case Warpgroup():
                assert warp.blocked is not None
                assert warp.blocked.op is not None
                late = [w for w in on.missing(warp, 0) if not w.exited]
                return [(w, warp.blocked.op) for w in late]
            case RegisterPool():
                # a warp that takes registers before it gives some gives back what it has taken, and
                # so do the others of the warpgroup, which take theirs together (E15)
                return [
                    (other, op)
                    for other, op in self._coming(warp, {fx.Registers, TAKES}, set())
                    if partition_of(other) == partition_of(warp)
                    and any(isinstance(e, fx.Registers) and not e.increase for e in op.effects())
                ]
            case TmemPool():
                return [*self._coming(warp, {fx.FreesTmem}, set())]
            case Tmem():
                return [*self._coming(warp, {fx.FreesTmem, fx.AllocatesTmem}, set())]
            case _:
                return []

    def _coming(
        self, warp: Agent, what: Set[object], but: Set[tuple[Agent, int | None]]
    ) -> Iterator[tuple[Agent, Op]]:
        """The first instruction of each other warp that acts on one of ``what``, ``but`` for some
        (None: all of a warp's)."""
        for other in self.agents_of_cluster(warp, own=fx.Registers in what):
            if other is warp or (other, None) in but:
                continue
            for coming in self.coming(other):
                if not coming.on.isdisjoint(what) and (other, coming.op.number) not in but:
                    yield other, coming.op
                    break

    def agents_of_cluster(self, warp: Agent, *, own: bool = False) -> Iterator[Agent]:
        """The agents of the warp's cluster; ``own``: of its CTA."""
        home = self._machine.ctas[warp.cta.index]
        for cta in [home] if own else home.cluster.ctas:
            yield from cta.warps
        for split_off in self._machine.split_groups:
            if split_off.cta is home or (not own and split_off.cta.cluster is home.cluster):
                yield split_off

    def cycle(self, blocked: Sequence[Agent]) -> list[Agent]:
        """A shortest cycle of waiting warps through the first of them that is in one, or an empty
        list: each could be released by the next one alone, or by others that wait as well."""
        stuck = set(blocked)
        for start in blocked:
            before: dict[Agent, Agent] = {}
            todo = deque([start])
            while todo:
                current = todo.popleft()
                for other, _ in self.suppliers(current):
                    if other is start:
                        return _path(before, current)
                    if other in stuck and other not in before:
                        before[other] = current
                        todo.append(other)
        return []

    # ------------------------------------------------------------------ what an instruction acts on

    def targets(self, op: Op, warp: Warp) -> frozenset[object]:
        """What the effects of an instruction act on that others may wait for."""
        found: set[object] = set()
        for effect in op.effects():
            match effect:
                case fx.Arrives(mbar=mbar, multicast=mask):
                    found.update(self._mbarriers(mbar, mask, warp))
                case fx.Completes(mbar=mbar, multicast=mask):
                    found.update(map(Bytes, self._mbarriers(mbar, mask, warp)))
                case fx.JoinsBarrier(id=number):
                    found.update(self._named(number, warp))
                case fx.JoinsCluster(arrives=True):
                    found.add(warp.cta.cluster.barrier)
                case fx.FreesTmem() | fx.AllocatesTmem():
                    found.add(type(effect))
                case fx.Registers(increase=increase):
                    found.add(TAKES if increase else fx.Registers)
                case _:
                    pass
        return frozenset(found)

    def _named(self, number: Expr, warp: Warp) -> Iterator[object]:
        value, named = value_of(number, warp), warp.cta.named
        yield from named.values() if type(value) is not int else [named.get(value)]

    def _mbarriers(self, mbar: Mbar, mask: Expr | None, warp: Warp) -> Iterator[Mbarrier]:
        """The barriers that an operand may name; all of its array where that is not known."""
        ctas = self._ctas(mbar, mask, warp)
        array = mbar.array
        if isinstance(array, AddressedMbarriers):
            address = value_of(array.address, warp)
            places = [address & _OFFSET] if type(address) is int else None
            if type(address) is int and array.space == "shared::cluster" and mask is None:
                rank = address >> RANK_SHIFT & 0xFF
                cluster = warp.cta.cluster.ctas
                ctas = [cluster[rank]] if rank < len(cluster) else []
        else:
            first = self._machine.program.placement[array.name]
            index = value_of(mbar.index, warp)
            numbers = [index] if type(index) is int else range(array.count)
            places = [first + 8 * n for n in numbers]
        for cta in ctas:
            for address in cta.mbarriers if places is None else places:
                if address in cta.mbarriers:
                    yield cta.mbarriers[address]

    def _ctas(self, mbar: Mbar, mask: Expr | None, warp: Warp) -> list[Cta]:
        ctas = warp.cta.cluster.ctas
        which = mask if mask is not None else mbar.cta
        if which is None:
            return [warp.cta]
        value = value_of(which, warp)
        if type(value) is not int:
            return ctas
        if mask is not None:
            return [cta for cta in ctas if value >> cta.rank & 1]
        return ctas[value : value + 1]


def _path(before: dict[Agent, Agent], last: Agent) -> list[Agent]:
    """From where a search began to ``last``."""
    path = [last]
    while path[-1] in before:
        path.append(before[path[-1]])
    return path[::-1]
