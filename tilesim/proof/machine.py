"""One cluster, executed in one canonical schedule: control flow, and what its parts share.

Warps take turns. Of a warp, the lanes that are furthest behind go first; lanes at one instruction
execute it one after another, each as an agent of its own. An asynchronous operation happens when it
is issued. Effects are executed by `tilesim.proof.effects`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import reduce
from operator import or_
from time import monotonic
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tilesim.ir import effects as fx
from tilesim.ir.addresses import begins_with
from tilesim.ir.expr import Const, Expr, ScalarParam
from tilesim.ir.fragments import by_lane
from tilesim.ir.mir import Branch, Join, Mir, Switch, Trap
from tilesim.ir.op import Op
from tilesim.proof.counters import Word
from tilesim.proof.many import ALL_LANES, Many
from tilesim.proof.memory import (
    Bytes,
    MayBeEqual,
    Memory,
    Names,
    Ranges,
    Record,
    Strong,
    Where,
    Work,
    all_apart,
    exists,
    written_before,
)
from tilesim.proof.moving import Box
from tilesim.proof.operands import (
    LANES,
    Address,
    Asked,
    Chosen,
    Handed,
    MbarrierAt,
    Named,
    Operands,
    Place,
    Value,
    exactly,
    lane_of,
    many_of,
    need,
    undecided,
    value_in,
)
from tilesim.proof.order import Lanes, Order, Positions, Row
from tilesim.proof.phases import ClusterBarrier, Look, Mbarrier, NamedBarrier, PhaseOver, Token
from tilesim.proof.regions import Region
from tilesim.proof.rules import NotCovered, Refuted, rule
from tilesim.proof.spins import iterations, spins
from tilesim.proof.state import State
from tilesim.proof.tensor_memory import Pool, TmemAccess
from tilesim.records import dataclass, field

#: lanes of a cluster: their knowledge takes memory that grows with the square
MOST_LANES = 3072
#: CTAs that are executed together: knowledge grows with them, too
MOST_TOGETHER = 16
#: warps of clusters and repetitions for which the executed ones stand: each has registers
MOST_SHADOWS = 1 << 17
#: executed instructions, counted by warp
MOST_STEPS = 3_000_000
#: strong accesses of words that are waited for: each change is compared with each wait
MOST_COUNTED = 8192
_SCOPES = ("cta", "cluster", "gpu", "sys")
_POINTER = 8  # bytes


class Issued(NamedTuple):
    """An asynchronous access, or a part of it, the lane of the warp that has issued it, and where
    it is made; ``past``: of a warpgroup's, what comes before it in time."""

    lane: int
    place: Place
    record: Record
    part: int | None = None
    past: Positions = np.zeros(0, np.int32)

    def ends_with(self, fact: int) -> None:
        """One more fact by which it is known to be over."""
        self.record.ends_with(fact, self.part)


X = TypeVar("X")

#: a place, a byte there, and how many
Bits: TypeAlias = tuple[Place, int, int]
#: lanes, and the bytes that each of them accesses
Piece: TypeAlias = tuple[Sequence[int], Bytes]


class Undecided(NotCovered):
    """Which lanes go where depends on data: on a number that is not known."""


class Shadow:
    """The registers of the same warp in another cluster of the class, or in a later repetition:
    those that differ, over the executed one's."""

    shadows: Sequence[Any] = ()
    differing: frozenset[str] = frozenset()

    def __init__(
        self, warp: Warp, cluster: int, repetition: int = 0,
        registers: dict[str, Value] | None = None, *, every: bool = False,
    ) -> None:  # fmt: skip
        """``every``: it stands for all programs of a family, in all turns."""
        self.cluster, self.rank, self.repetition = cluster, warp.rank, repetition
        self.warp = warp
        self.base, self.every = warp.base, every
        #: what makes its accesses in global memory
        self.instance = (cluster, repetition) if repetition else cluster
        #: its place in `Warp.each`
        self.index = 0
        self.registers = _Over(self)
        self.registers |= {n: v for n, v in (registers or {}).items() if v != warp.registers.get(n)}
        self.values: dict[int, Any] = {}
        self._cta = coordinates(warp.machine.program, cluster, warp.rank - warp.base)

    @property
    def side(self) -> str:
        """That of the executed warp."""
        return self.warp.side

    @property
    def detours(self) -> dict[int, tuple[Look, int]]:
        """Those of the executed warp."""
        return self.warp.detours

    def special(self, name: str) -> Value:
        """A special register."""
        return self.warp.special_in(name, self.cluster, self._cta)

    def literal(self, e: Const | ScalarParam) -> Value:
        """A literal."""
        return self.warp.machine.operands.grown(e) if self.every else self.warp.literal(e)


class _Over(dict[str, Value]):
    def __init__(self, of: Shadow) -> None:
        super().__init__()
        self._of = of

    def get(self, name: str, default: Any = None) -> Any:
        warp = self._of.warp
        if name in self:
            return self[name]
        if name in warp.many:
            return value_in(warp.many[name], self._of.index)
        return warp.registers.get(name, default)


def coordinates(program: Any, cluster: int, rank: int) -> tuple[int, ...]:
    """The coordinates in the grid of the CTA ``rank`` of a cluster."""
    x, y, _ = program.cluster
    across, down = program.grid[0] // x, program.grid[1] // y
    at = (cluster % across, cluster // across % down, cluster // across // down)
    inner = (rank % x, rank // x % y, rank // x // y)
    return tuple(a * n + i for a, n, i in zip(at, program.cluster, inner, strict=True))


class Warp:
    """A warp: where its lanes are, and what its registers hold."""

    def __init__(self, machine: Machine, rank: int, number: int, clusters: Sequence[int]) -> None:
        p = machine.program
        self.machine, self.rank, self.number = machine, rank, number
        #: the first CTA of its cluster
        self.base = rank // p.cluster_size * p.cluster_size
        self.cluster, self.instance = clusters[self.base and rank // p.cluster_size], clusters[0]
        self.every = False
        self.repetition = 0
        #: its first lane in the cluster
        self.first = (rank * p.warps + number) * LANES
        self._all = np.arange(self.first, self.first + LANES)
        self.at = [0] * LANES
        self.alive = set(range(LANES))
        #: what a lane waits for: a named barrier, or a round of the cluster barrier
        self.blocked: dict[int, NamedBarrier | int] = {}
        self.registers: dict[str, Value] = {}
        #: by the identity of an expression, registers that it had, and its value then
        self.values: dict[int, tuple[list[Value], Value]] = {}
        #: registers that differ between the clusters of the class
        self.differing: set[str] = set()
        #: of these, what all of them hold, where arrays have it: shadows have none of their own
        self.many: dict[str, Many] = {}
        self.index = 0
        shadows = [Shadow(self, c) for c in clusters[1:] if not machine.whole]
        if machine.operands.family is not None:
            shadows += [Shadow(self, c, every=True) for c in clusters]
        self.stands_for(shadows)
        #: by register tile: its uses since the last wgmma.fence; its products' groups, and how
        self.tiles: dict[str, tuple[frozenset[Any], frozenset[tuple[int, Any]]]] = {}
        #: by register or register tile, the lanes that have set it, as bits
        self.set_in: dict[str, int] = {}
        #: by register and lane, the poll behind whose answer no it has last set it
        self.set_behind: dict[tuple[str, int], Look] = {}
        self.fenced = self.jumps_back = False
        #: by register, of which registers that loads of tensor memory have set it is made (U33)
        self.made: dict[str, frozenset[tuple[TmemAccess, str]]] = {}
        #: by register, in each lane the number that only equal data has, if it has one (H23)
        self.names: dict[str, list[int | None]] = {}
        #: by lane that has gone on as if its poll had answered no, that poll, and where it would
        #: have gone on if it had answered yes; it has not come there yet
        self.detours: dict[int, tuple[Look, int]] = {}
        #: by lane that has found what it waits for in a word, the branch by which it leaves, and
        #: what the condition there is
        self.leaving: dict[int, tuple[int, bool]] = {}
        #: by jump with .uni, the part of its lanes that has executed it
        self.parts: dict[int, tuple[int, ...]] = {}
        #: lanes that have executed something since all that had not ended were together, and where
        #: such lanes have ended (E8)
        self.astray, self.ended = set[int](), dict[int, int]()
        #: whether an election has set its first lane apart; which lanes execute then (`Chosen`)
        self.apart, self.side = False, ""
        #: what has set its lanes apart in what they did since they last met: an election, or their
        #: numbers; and the same of what they did with each kind of groups and fences (E12)
        self.apart_by, self.kinds = set[str](), dict[str, str]()
        self._cta = coordinates(p, self.cluster, rank - self.base)

    def stands_for(self, shadows: Sequence[Shadow]) -> None:
        """It stands for these from now on."""
        self.shadows = shadows
        #: itself, and its shadows
        self.each: tuple[Any, ...] = (self, *shadows)
        self.many.clear()
        self._specials = dict[str, Many | None]()
        #: by the identity of an expression, what its registers held in all, and what it was then
        self.arrays = dict[int, tuple[list[object], Many | None]]()
        for n, one in enumerate(shadows):
            one.index = n + 1
        self.differing |= {name for one in shadows for name in one.registers}

    def many_of(self, name: str) -> Many | None:
        """What a register holds in itself and all shadows, if arrays can have it."""
        if name not in self.differing:
            return many_of([self.registers.get(name)])
        if name not in self.many:
            found = many_of(self.held(name))
            if found is None:
                return None
            self.hold_many(name, found)
        return self.many.get(name, many_of([self.registers.get(name)]))

    def held_in_all(self, names: Iterable[str]) -> list[object]:
        """What says what registers hold in itself and all shadows: each a thing that is the same
        as long as that is."""
        return [self.many[n] if n in self.many else object() if n in self.differing
                else self.registers.get(n) for n in names]  # fmt: skip

    def held_by_all(self, name: str) -> Many | list[Value]:
        """What a register holds in itself and all shadows."""
        found = self.many_of(name)
        return self.held(name) if found is None else found

    def hold_many(self, name: str, many: Many) -> None:
        """It holds that from now on."""
        if name in self.differing and name not in self.many:
            for one in self.shadows:
                one.registers.pop(name, None)
        many = many.reduced()
        self.registers[name] = value_in(many, 0)
        if many.numbers is None or len(many.numbers) == 1:
            self.many.pop(name, None)
            self.differing.discard(name)
        else:
            self.many[name] = many
            self.differing.add(name)

    def state(self, s: State) -> None:
        """Tells all but registers, of which only tokens and polls are told."""
        m, first = self.machine, self.first - self.number % 4 * LANES
        now = m.group("wgmma", first).number
        s.same(list(self.at), sorted(self.alive), sorted(self.leaving.items()))
        s.same(self.fenced, sorted(self.tiles), self.apart,
               self.side, sorted(self.apart_by), sorted(self.kinds.items()),
               sorted(self.parts.items()), sorted(self.astray))  # fmt: skip
        s.points((self.first + i, position) for i, position in sorted(self.ended.items()))
        s.same(sorted(self.set_in.items()), sorted(self.set_behind))
        for _, look in sorted(self.set_behind.items(), key=lambda one: one[0]):
            look.state(s)
        for _, (uses, products) in sorted(self.tiles.items()):
            s.same(sorted(map(repr, uses)), sorted((n - now, repr(how)) for n, how in products))
        for i, on in sorted(self.blocked.items()):
            s.same(i, on - m.cluster_barrier(self).round if isinstance(on, int) else on.name)
        for _, value in sorted(self.registers.items()):
            for x in value if isinstance(value, list) else [value]:
                for one in x if isinstance(x, Chosen) else (x,):
                    if isinstance(one, Token):
                        s.points([(one.life.column, one.phase + 1)])
                    if isinstance(one, Asked):
                        one.look.state(s)
        for i, (look, to) in sorted(self.detours.items()):
            s.same(i, to)
            look.state(s)
        for name, loaded in sorted(self.made.items()):
            s.same(name)
            for load, register in sorted(loaded, key=lambda one: (one[0].position, one[1])):
                s.same(register)
                load.state(s)

    def has_set(self, name: str, lanes: Sequence[int]) -> None:
        """Lanes set a register, or one of a tile."""
        these = ALL_LANES if len(lanes) == LANES else sum(1 << i for i in lanes)
        self.set_in[name] = self.set_in.get(name, 0) | these

    def held(self, name: str) -> list[Value]:
        """What a register holds, in the warp and in each shadow."""
        if name not in self.differing:
            return [self.registers.get(name)] * len(self.each)
        return [one.registers.get(name) for one in self.each]

    def hold(self, name: str, values: Sequence[Value]) -> None:
        """It holds that from now on."""
        self.many.pop(name, None)
        for one, value in zip(self.each, values, strict=True):
            one.registers[name] = value
        self.differing.add(name)
        if all(x is values[0] or exactly(x) == exactly(values[0]) for x in values):
            self.differing.discard(name)
            for s in self.shadows:
                s.registers.pop(name, None)

    def lanes(self, lanes: Sequence[int]) -> Lanes:
        """Their numbers in the cluster."""
        return self._all if len(lanes) == LANES else np.array(lanes, np.int64) + self.first

    def literal(self, e: Const | ScalarParam) -> Value:
        """A literal of the program that is executed."""
        return int(e.value)

    def special(self, name: str) -> Value:
        """A special register, in its lanes."""
        return self.special_in(name, self.cluster, self._cta)

    def special_in_all(self, name: str) -> Many | None:
        """The same in itself and all shadows, if arrays can have it."""
        if name not in self._specials:
            self._specials[name] = many_of([one.special(name) for one in self.each])
        return self._specials[name]

    def special_in(self, name: str, cluster: int, cta: tuple[int, ...]) -> Value:
        """The same in another cluster."""
        p, lanes = self.machine.program, range(LANES)
        known: dict[str, Value] = {
            "warp_id": self.number, "lane_id": list(lanes), "cluster_id": cluster,
            "thread_id": [self.number * LANES + i for i in lanes],
            "cluster_rank": self.rank - self.base,
            "cluster_size": p.cluster_size, **{f"cta_{c}": cta["xyz".index(c)] for c in "xyz"},
            **{f"grid_{c}": p.grid["xyz".index(c)] for c in "xyz"},
        }  # fmt: skip
        if name not in known:
            raise NotCovered(f"special register {name}")
        value, own = known[name], name == "cluster_id" or name.startswith("cta_")
        launches = self.machine.operands.launches
        return Handed(value, 0) if own and launches and isinstance(value, int) else value


@dataclass
class Execution:
    """One instruction while lanes of a warp execute it; ``issued``: its asynchronous accesses;
    ``answers``: what effects answer, by the effect's `id`; ``warps``: of a warpgroup, all four;
    ``unless``: by lane, the poll that has to have answered no for the lane to execute it;
    ``words``: integers in shared memory before it; ``settled``: no schedule lets a strong read of
    it find anything else there; ``may``: data decides which of the lanes execute it; ``found``: by
    lane, which writes of which memory it has found; ``sources``: by lane, of what it makes what it
    sets."""

    machine: Machine
    warp: Warp
    number: int
    op: Op
    lanes: list[int]
    where: Where
    warps: list[Warp] = field(default_factory=list)
    issued: list[Issued] = field(default_factory=list)
    answers: dict[int, Value] = field(default_factory=dict)
    computed: dict[int, list[Value]] = field(default_factory=dict)
    unless: dict[int, Look] = field(default_factory=dict)
    words: dict[Bits, int | None] = field(default_factory=dict)
    settled: bool = False
    may: bool = False
    found: dict[int, list[Hashable]] = field(default_factory=dict)
    sources: list[Hashable] | None = None

    @property
    def effects(self) -> tuple[fx.Effect, ...]:
        """All of its effects."""
        return self.machine.mir.effects[self.number]

    @property
    def all(self) -> Lanes:
        """The lanes' numbers in the cluster."""
        return self.warp.lanes(self.lanes)

    def each(self, e: Expr, what: str) -> dict[int, Any]:
        """By lane, an operand that decides something."""
        value = self.machine.operands.decides(e, self.warp)
        return {i: need(lane_of(value, i), what) for i in self.lanes}

    def static(self, of: Callable[..., X], *more: Any) -> X:
        """What a function says of the instruction, whichever lanes execute it."""
        known, key = self.machine.static, (self.number, of, *more)
        if key not in known:
            known[key] = of(self, *more)
        found: X = known[key]
        return found

    def has(self, *kinds: type) -> bool:
        """Whether it has effects of these kinds."""
        return self.static(_has, *kinds)

    def effect(self, kind: type) -> Any:
        """Its effect of a kind, if it has one."""
        return self.static(_effect, kind)


def _has(x: Execution, *kinds: type) -> bool:
    return any(isinstance(e, kinds) for e in x.effects)


def _effect(x: Execution, kind: type) -> Any:
    return next((e for e in x.effects if isinstance(e, kind)), None)


class Change(NamedTuple):
    """A setmaxnreg of a warp, of which ``lane`` is the first in the cluster; ``place``: in the
    code; ``past``: what comes before it in time."""

    rank: int
    warp: int
    registers: int
    increase: bool
    place: int
    lane: int
    position: int
    past: Positions


class Group:
    """The asynchronous operations of a thread or warpgroup: the open group and those committed,
    without the first ones, so many as are ``over``."""

    def __init__(self) -> None:
        self.open: list[Issued] = []
        self.committed: list[list[Issued]] = []
        self.over = 0

    @property
    def number(self) -> int:
        """Of the open group."""
        return self.over + len(self.committed)

    def commit(self) -> None:
        """Ends the open group."""
        self.committed.append(self.open)
        self.open = []

    def state(self, s: State, places: dict[int, int]) -> None:
        """Tells its accesses of shared memory that others may be compared with; waits count groups
        from the last one on, so first ones without any are left out."""
        groups = [
            [(i, places.get(id(i.record.whole), -1)) for i in some if i.place[0] == "shared"
             and (len(i.past) or id(i.record.whole) in places)]
            for some in (*self.committed, self.open)
        ]  # fmt: skip
        while groups and not groups[0]:
            del groups[0]
        s.same([[(i.lane, i.place, place) for i, place in some] for some in groups])
        for i, _ in (one for some in groups for one in some):
            s.vectors(i.past)

    @property
    def every(self) -> list[Issued]:
        """All that no wait has found to be over."""
        return [*self.open, *(i for some in self.committed for i in some)]


class Machine:
    """A cluster of a launch, and the clusters of which it is said that they do the same; or all
    clusters ``together``, of which each waits for others."""

    def __init__(
        self, operands: Operands, clusters: Sequence[int],
        execute: Callable[[Execution], Sequence[int]], until: float | None = None,
        most: int = MOST_STEPS, *, together: bool = False,
    ) -> None:  # fmt: skip
        """``execute`` executes an instruction, and returns the lanes that are through with it;
        ``until``: when to give up, in seconds of `time.monotonic`; ``most``: the same in
        instructions."""
        self._executes, self.most = execute, most
        self.mir: Mir = operands.mir
        self.program = p = self.mir.kernel
        self.operands, self.ptx = operands, operands.ptx
        #: how many CTAs are executed
        self.size, self.in_cta = p.ctas if together else p.cluster_size, LANES * p.warps
        self.whole = together
        if self.size * self.in_cta > MOST_LANES or (together and self.size > MOST_TOGETHER):
            raise NotCovered(f"{self.size * self.in_cta} threads in a cluster")
        if together and operands.launches:
            raise NotCovered("launch control, of clusters that wait for each other")
        if len(clusters) * self.size * p.warps > MOST_SHADOWS:
            raise NotCovered(f"a class of {len(clusters)} clusters")
        halves = any("half.own" in e.targets or e.source == "half"
                     for _, e in self.mir.all_of(fx.Crosses))  # fmt: skip
        self.order = Order(self.size * self.in_cta, self.size, halves=halves, ptx=self.ptx)
        self.warps = [Warp(self, r, w, clusters) for r in range(self.size) for w in range(p.warps)]
        self.shared = [
            Memory(f"the shared memory of CTA {r}", p.smem_used) for r in range(self.size)
        ]
        self.tensors = {t.name: t for t in p.tensors}
        #: by tensor, and of its accesses a `move` or a number that launch control hands out
        self.globals: dict[tuple[str, int | None], Memory] = {}
        #: by how many bytes accesses of each cluster, or repetition, are moved, with their numbers
        self._moves: dict[bytes, int] = {}
        #: of a family: what is accessed in tensors that are written, and in which repetition
        self.boxes: dict[Box, None] = {}
        self.within: tuple[int, int, int] | None = None
        self.repetitions = 0
        self.pools = [Pool.of(r) for r in range(self.size)]
        self.mbarriers: dict[MbarrierAt, Mbarrier] = {}
        self.lives: list[tuple[MbarrierAt, Mbarrier]] = []
        self.named: dict[tuple[int, int], NamedBarrier] = {}
        self.cluster_barriers = [
            ClusterBarrier(self.order.nothing()) for _ in range(self.size // p.cluster_size)
        ]
        self.groups: dict[tuple[str, int], Group] = {}
        #: (CTA, lane): the last position at which the lane has touched that CTA's memory
        self.touched: dict[tuple[int, int], int] = {}
        #: whether lanes have loaded from or stored to the memory of other CTAs
        self.at_peers = False
        self.register_changes: list[Change] = []
        #: clusters that launch control has handed out, how it answers the request that waits, and
        #: whether one waits, one has failed
        self.granted, self.asked, self.failed = 0, False, False
        self.answer: bool | None = None
        self.work: dict[str, Work] = {}
        self._names: dict[Hashable, int] = {}
        self.read_only = operands.read_only
        self._begins = {t.name: begins_with(p, t) for t in p.tensors} | dict(operands.inputs)
        #: whether what some tensor holds is known
        self.any_given = any(self._begins.values())
        self.deciding = operands.deciding()
        #: by instruction and function, `Execution.static`
        self.static: dict[tuple[Any, ...], Any] = {}
        #: register tiles of which a lane holds whole rows
        self.rows_in_lanes = by_lane(self.mir.ops())
        self.spins, self.iterations = spins(operands), iterations(operands)
        # fences that are restricted hand on nothing by words in global memory (H18)
        self.restricted = any(e.in_shared for _, e in self.mir.all_of(fx.Orders))
        self._all_global = bool(self.iterations) and self.size == p.ctas and not self.restricted
        #: accesses of words that are waited for
        self.counted = 0
        self.steps, self.looks, self.rounds, self.until = 0, 0, 0, until

    # ------------------------------------------------------------------ the schedule

    def ends(self) -> Iterator[Machine]:
        """Until all lanes have ended: itself, and before that, for each number of clusters that
        launch control may hand out, a copy that gets no more (D18).

        Raises: Refuted: some lanes cannot go on."""
        while any(w.alive for w in self.warps):
            if self._round():
                continue
            if self.granted < self.program.ctas // self.size - 1:
                same = (self.mir, self.program, self.operands, self.tensors, self.work)
                ends = deepcopy(self, {id(one): one for one in same})
                ends.answer = False
                yield from ends.ends()
                self.granted, self.answer, self.steps = self.granted + 1, True, ends.steps
            else:
                self.answer = False
        yield self

    @rule("D18", "a request to cancel a cluster comes behind answers that are all successes")
    def asks(self) -> bool:
        """Whether a request may go on: when nothing else does, and it is known how it is answered.

        Raises: NotCovered: one before it has failed."""
        if self.failed:
            raise NotCovered("clusterlaunchcontrol.try_cancel behind one that has failed")
        self.asked = True
        return self.answer is not None

    def rounds_until(self, number: int) -> None:
        """The same, until so many rounds are over, if there are so many."""
        while self.rounds < number and any(w.alive for w in self.warps):
            self._round()

    @rule("deadlock", "every thread of the canonical schedule ends")
    def _round(self) -> bool:
        """Each warp moves until it waits, or jumps back. Returns whether any has moved; if not, one
        asks launch control."""
        moved = self.asked = False
        for w in self.warps:
            w.jumps_back = False
            while w.alive and not w.jumps_back and self._step(w):
                moved = True
        if not moved and not self.asked:
            raise Refuted("deadlock", self._stuck())
        self.rounds += 1
        return moved

    def name(self, of: Hashable) -> int:
        """A number for data that is made so, which other data does not have (H23)."""
        return self._names.setdefault(of, len(self._names))

    def forget_names(self) -> None:
        """From now on no data is known to be that of before."""
        self._names.clear()
        for w in self.warps:
            w.names.clear()
        for memory in (*self.shared, *self.globals.values()):
            memory.forget_names()

    def state(self) -> State:
        """What decides how the cluster goes on, but for registers and global memory; names of data
        are none of it."""
        self.forget_names()
        s = State(self.order.past.shape[1], (-1, *self.order.of_cta * self.restricted))
        self.order.state(s)
        for rank, memory in enumerate(self.shared):
            memory.asynchronous = self.under_way(rank)
            memory.state(s, memory.asynchronous)
        for pool in self.pools:
            pool.state(s)
        places = s.places()
        for w in self.warps:
            w.state(s)
        for at, life in self.lives:
            s.same(at, self.mbarriers.get(at) is life)
            life.state(s)
        for key, barrier in sorted(self.named.items()):
            s.same(key)
            barrier.state(s)
        for cluster_barrier in self.cluster_barriers:
            cluster_barrier.state(s)
        for name, group in sorted(self.groups.items()):
            s.same(name)
            group.state(s, places)
        s.same(sorted(self.touched), self.at_peers, len(self.register_changes), self.granted,
               self.answer, self.asked, self.failed, self.counted)  # fmt: skip
        s.points((lane, position) for (_, lane), position in sorted(self.touched.items()))
        s.points((change.lane, change.position) for change in self.register_changes)
        for change in self.register_changes:
            s.vectors(change.past)
        s.over()
        return s

    def under_way(self, rank: int) -> list[Record]:
        """The asynchronous accesses of a CTA's memory that none of its threads knows to be over."""
        lanes = range(rank * self.in_cta, (rank + 1) * self.in_cta)
        known = reduce(or_, map(self.order.known_in_time, lanes))
        return [x for x in self.shared[rank].asynchronous if not x.is_over(known)]

    def _stuck(self) -> str:
        """Raises: NotCovered: lanes of a warp wait for each other at different instructions, where
        they may meet: of one kind and mask, or at one barrier (E2, D3, E11)."""
        code, all_of = self.mir.code, self.mir.all_of
        places: dict[int, object] = {
            n: (type(code[n].what), e.mask) for n, e in all_of(fx.Gathers) if e.mask is not None
        }
        places |= {n: e.id for n, e in all_of(fx.JoinsBarrier) if not e.aligned}
        places |= {n: e.arrives for n, e in all_of(fx.JoinsCluster) if not e.aligned}
        for w in self.warps:
            at = places.keys() & {w.at[i] for i in w.alive}
            if len(at) > len({places[n] for n in at}):
                raise NotCovered("lanes of a warp that may meet at several instructions")
        found = {(w.rank, w.number, w.at[i]): None for w in self.warps for i in sorted(w.alive)}
        return ", ".join(f"CTA {c} warp {n} at {at}" for c, n, at in list(found)[:6])

    def _step(self, w: Warp) -> bool:
        self._leave_cluster_barrier(w)
        if not w.blocked and len(w.alive) == w.at.count(w.at[0]) == LANES:
            return self._execute(w, w.at[0], list(range(LANES)))
        groups: dict[int, list[int]] = {}
        for lane in sorted(w.alive.difference(w.blocked)):
            groups.setdefault(w.at[lane], []).append(lane)
        return any(self._execute(w, at, groups[at]) for at in sorted(groups))

    def counts(self) -> None:
        """One more instruction is executed.

        Raises: NotCovered: these are too many, or take too long."""
        self.steps += 1
        if self.steps > min(self.most, MOST_STEPS):
            raise NotCovered(f"more than {min(self.most, MOST_STEPS)} executed instructions")
        if self.until is not None and monotonic() >= self.until:
            raise NotCovered("time")

    def _execute(self, w: Warp, at: int, lanes: list[int]) -> bool:
        """Lanes at one instruction go on, if they can, those at a branch on data to where its ways
        meet. Returns whether any has."""
        self.counts()
        try:
            return self._goes_on(w, at, lanes)
        except Undecided as why:
            if w.apart or (w.detours.keys() | w.leaving.keys()) & {*lanes}:
                raise
            if self.operands.family is not None:
                raise NotCovered(f"{why.what}, for every value of a parameter") from why
            to = Region(self, w, at, why.what).execute(lanes)
        for i in lanes:
            w.at[i] = to
        w.jumps_back = to <= at
        return True

    def _goes_on(self, w: Warp, at: int, lanes: list[int]) -> bool:
        detours: dict[int, Look] = {}
        if w.detours:
            w.detours = {i: x for i, x in w.detours.items() if i not in lanes or x[1] != at}
            detours = {i: w.detours[i][0] for i in lanes if i in w.detours}
        if at >= len(self.mir.code):
            need([Asked(look, 0, 1) for look in detours.values()], "whether lanes end")
            self.exit(w, lanes)
            return True
        instruction = self.mir.code[at]
        on = self.together(w, lanes)
        unless: dict[int, Look] = {}
        if instruction.guard is not None:
            need([Asked(look, 0, 1) for look in detours.values()], f"the guard of {at}")
            guard = self._decided(w, instruction.guard, lanes, f"the guard of {at}", unless)
            on = self.together(w, [i for i in lanes if guard[i]])
            for i in set(lanes) - set(on):
                w.at[i] = at + 1
        moved = len(on) < len(lanes)
        if not on:
            return True
        if isinstance(instruction.what, Op):
            if len(lanes) == len(w.alive):
                w.astray = set()
            elif any(not isinstance(e, fx.Defines | fx.Exits) for e in self.mir.effects[at]):
                w.astray = {*w.astray, *on}
            through = self.executes(w, at, on, unless=unless | detours)
            for i in through:
                w.at[i] = at + 1
            return moved or bool(through)
        need([Asked(look, 0, 1) for look in unless.values()], f"the guard of {at}")
        if not isinstance(instruction.what, Branch) and instruction.what != Join():
            need([Asked(look, 0, 1) for look in detours.values()], f"what is at {at}")
        if isinstance(instruction.what, Join):
            if instruction.what.syncs and set(on) != w.alive:
                return moved
            if instruction.what.syncs:
                self.order.step(w.lanes(on))
                self.order.meet(w.lanes(on))
                w.apart_by.clear()
            for i in on:
                w.at[i] = at + 1
            return True
        self._jump(w, at, on)
        return True

    def executes(self, w: Warp, at: int, lanes: list[int], **how: Any) -> Sequence[int]:
        """Lanes execute an instruction. Returns those that are through with it; ``how``: more of
        the `Execution`."""
        op: Any = self.mir.code[at].what
        where = Where(at, op.mnemonic, w.rank, w.number)
        return self._executes(Execution(self, w, at, op, lanes, where, **how))

    def together(self, w: Warp, lanes: list[int]) -> list[int]:
        """Notes which lanes execute now, of those that an election has told apart."""
        w.apart &= len(lanes) < LANES
        alone = lanes == [0]
        if w.apart and not alone and set(lanes) != w.alive - {0}:
            raise NotCovered("lanes that part while one of them is elected")
        w.side = ("leader" if alone else "rest") if w.apart and lanes else ""
        return lanes

    def _decided(
        self, w: Warp, e: Expr, lanes: Sequence[int], what: str,
        unless: dict[int, Look] | None = None, polls: dict[int, Asked] | None = None,
        found: Mapping[int, bool] = MappingProxyType({}),
    ) -> dict[int, Any]:  # fmt: skip
        """What an expression is in lanes that it may part. ``unless`` gets, of lanes where it holds
        if a poll has answered no, and only then, the poll. ``polls`` gets what a poll decides, of
        which the answer no is taken. ``found``: what it is in lanes that leave a wait."""
        self.reads(w, e, [i for i in lanes if i not in found], what)
        value = self.operands.decides(e, w)
        if type(value) is int and not found:
            return dict.fromkeys(lanes, value)
        row = {i: lane_of(value, i) for i in lanes}
        first = row[lanes[0]]
        if isinstance(first, Chosen) and len(row) == LANES and len(set(row.values())) == 1:
            w.apart, row = True, {i: first.rest if i else first.leader for i in lanes}
        if unless is not None:
            in_vain = {i: x for i, x in row.items() if isinstance(x, Asked)
                       and x.no and isinstance(x.yes, int) and not x.yes}  # fmt: skip
            unless |= {i: x.look for i, x in in_vain.items()}
            row |= dict.fromkeys(in_vain, 1)
        row |= found
        if polls is not None:
            polls |= {i: x for i, x in row.items() if isinstance(x, Asked)
                      and isinstance(x.yes, int) and i not in w.detours}  # fmt: skip
            row |= {i: x.no for i, x in polls.items()}
        try:
            return {i: need(x, what) for i, x in row.items()}
        except NotCovered as why:
            raise (Undecided(why.what) if any(map(undecided, row.values())) else why) from None

    def reads(self, w: Warp, e: Expr, lanes: Sequence[int], what: str) -> None:
        """Lanes read the registers of an expression that decides what they execute."""
        unless = {i: look for i, (look, _) in w.detours.items()}
        for name in sorted(self.operands.names(e) - {"", "lane"}):
            is_set(w, name, lanes, what, unless)

    def _jump(self, w: Warp, at: int, lanes: list[int]) -> None:
        self._go(w, at, lanes)
        w.jumps_back = min(w.at[i] for i in lanes) <= at

    def _go(self, w: Warp, at: int, lanes: list[int]) -> None:
        match self.mir.code[at].what:
            case Branch(target=target, cond=None):
                for i in lanes:
                    w.at[i] = target
            case Branch(target=target, cond=cond, sense=sense) if cond is not None:
                polls: dict[int, Asked] = {}
                found = {i: c for i, (n, c) in w.leaving.items() if n == at and i in lanes}
                decided = self._decided(
                    w, cond, lanes, f"the branch at {at}", polls=polls, found=found
                )
                w.leaving = {i: x for i, x in w.leaving.items() if i not in found}
                _one_target(w, at, lanes, [bool(taken) for taken in decided.values()])
                for i, taken in decided.items():
                    w.at[i] = target if bool(taken) == sense else at + 1
                for i, x in polls.items():
                    w.detours[i] = x.look, target if bool(x.yes) == sense else at + 1
            case Switch(index=index, targets=targets):
                chosen = self._decided(w, index, lanes, f"the switch at {at}")
                _one_target(w, at, lanes, [*chosen.values()])
                for i, index_ in chosen.items():
                    w.at[i] = _target(targets, index_, at)
            case Trap(cond=cond, what=why):
                for i, traps in self._decided(w, cond, lanes, f"the trap at {at}").items():
                    _no_trap(traps, why)
                    w.at[i] = at + 1

    def exit(self, w: Warp, lanes: Sequence[int]) -> None:
        """Lanes end, which barriers of their CTA and cluster no longer wait for (E9, D5)."""
        w.ended |= {i: int(self.order.position[w.first + i]) for i in w.astray.intersection(lanes)}
        self.order.step(w.lanes(lanes))
        w.alive.difference_update(lanes)
        for (rank, _), barrier in list(self.named.items()):
            if rank == w.rank:
                self.complete_named(rank, barrier)
        self.complete_cluster_barrier(w)

    # ------------------------------------------------------------------ barriers of many warps

    def complete_named(self, rank: int, barrier: NamedBarrier) -> None:
        """Ends the round of a named barrier if all have joined; the lanes that wait go on."""
        own = [w for w in self.warps if w.rank == rank]
        alive = {w.number for w in own if w.alive}
        ended = {w.number: self.order.past[w.lanes(range(LANES))].max(0)
                 for w in own if not w.alive}  # fmt: skip
        over = barrier.complete(alive, ended)
        if over is None:
            return
        for w in self.warps:
            self._leave(w, [i for i, on in w.blocked.items() if on is barrier], over)

    def _leave(self, w: Warp, lanes: Sequence[int], over: PhaseOver) -> None:
        if not lanes:
            return
        g = w.lanes(lanes)
        width = len(over.past)
        self.order.past[g, :width] = np.maximum(self.order.past[g, :width], over.past)
        self.order.learn(g, over.knowledge[0])
        for i in lanes:
            del w.blocked[i]

    def cluster_barrier(self, w: Warp) -> ClusterBarrier:
        """That of a warp's cluster."""
        return self.cluster_barriers[w.rank // self.program.cluster_size]

    def complete_cluster_barrier(self, of: Warp) -> None:
        """Ends the round of the cluster barrier of a warp if all have arrived."""
        own = [w for w in self.warps if w.base == of.base]
        alive = np.array([w.first + i for w in own for i in w.alive], np.int64)
        every = np.arange(own[0].first, own[-1].first + LANES)
        self.cluster_barrier(of).complete(alive, np.setdiff1d(every, alive), self.order.past)

    def _leave_cluster_barrier(self, w: Warp) -> None:
        barrier = self.cluster_barrier(w)
        waiting = [i for i, on in w.blocked.items() if isinstance(on, int) and on < barrier.round]
        if waiting and barrier.over is not None:
            self._leave(w, waiting, barrier.over)

    # ------------------------------------------------------------------ accesses

    def memory(self, place: Place) -> Memory:
        """A CTA's shared memory, or a tensor, of which the clusters of a class share the records.

        Raises: Refuted: the cluster has no such CTA."""
        if place[0] == "shared":
            rank = int(place[1])
            exists(0 <= rank < self.size, f"CTA {rank} of a cluster of {self.size}")
            return self.shared[rank]
        name = str(place[1])
        key = name, place[3] if len(place) == 4 else None
        if key not in self.globals:
            t = self.tensors[name]
            self.globals[key] = Memory(name, t.nbytes, shared_by_clusters=True, private=t.private)
            if not t.pointers:
                self.globals[key].begins = self._begins[name]
        return self.globals[key]

    def move(self, first: NDArray[np.int64]) -> int | None:
        """A number for how a warp and its shadows move, one a row, of which it is said where lanes
        access a tensor: each as the warp itself, so many bytes further; None: they do not.

        What moves alike has a memory of its own, where accesses of the executed one are compared:
        those of each shadow lie to each other as these, and come in the same order. What different
        ones access, or one of them in several memories, has to be apart (`apart`). So many shadows
        are always the same clusters and repetitions."""
        by = first[:, :1] - first[0, 0]
        if not self.operands.moves or (first != first[0] + by).any():
            return None
        return self._moves.setdefault(by.tobytes(), len(self._moves))

    def accessed(self) -> Iterator[tuple[str, Ranges]]:
        """What all clusters of the class access, by tensors."""
        moves, alone = [np.frombuffer(by, np.int64) for by in self._moves], np.zeros(1, np.int64)
        for (name, number), memory in self.globals.items():
            yield name, memory.ranges(moves[number] if number is not None else alone)

    def _of_a_cluster(self, y: Record, place: Place) -> None:
        """An access of global memory, in a launch of which launch control may hand out clusters."""
        if len(place) < 3 or not self.operands.launches:
            return
        if y.strong is not None:
            raise NotCovered(f"{y.where}: a strong access where launch control hands out clusters")
        name = str(place[1])
        if name not in self.work:
            self.work[name] = Work(self.tensors[name].nbytes)
        self.work[name].access(y, place[2])

    @rule("inputs", "what a tensor holds is known only if no instruction of the launch writes it")
    def given(self, name: str, first: int, size: int) -> int | None:
        """The integer that so many bytes of a tensor hold; None: it is not known."""
        found = self._begins[name][first : first + size] if name in self.read_only else b""
        pointers = self.tensors[name].pointers
        crossed = [p for p in pointers if first - _POINTER < p.at < first + size]
        if len(found) < size or any(p.at != first or size != _POINTER for p in crossed):
            return None
        number = int.from_bytes(found, "little")
        return Address(number, crossed[0].to) if crossed else number

    @rule("read-only", "what is taken to be only read is written by no instruction")
    def writes(self, x: Execution, place: Place) -> None:
        """Raises: NotCovered: the first look at the program has missed it."""
        if place[0] == "global" and place[1] in self.read_only:
            raise NotCovered(f"{x.where}: an address in {place[1]} that is not seen to be one")

    def tracks(self, place: Place) -> bool:
        """Whether the machine makes all accesses of a memory, and may wait for words there."""
        return place[0] == "shared" or self._all_global

    def word(self, named: Named) -> Word:
        """What is known of a word that may be waited for."""
        place, first, size = named.place, int(named.bytes[0, 0]), named.bytes.size
        if not self.tracks(place):
            raise NotCovered(
                f"a word of {place[1]} is waited for that others may change, or fences leave out"
            )
        if self.counted > MOST_COUNTED:
            raise NotCovered(f"more than {MOST_COUNTED} accesses of words that are waited for")
        memory = self.memory(place)
        known, name = memory.integer(first, size), f"the word at byte {first} of {memory.name}"
        start = known if type(known) is int else None
        given = place[0] != "global" or self.tensors[str(place[1])].contents or memory.begins
        if self.operands.zeros and not given:
            start = 0 if not memory.written[first : first + size].any() else start
        word = memory.words.setdefault(first, Word(name, start, 8 * size))
        if word.bits != 8 * size:
            raise NotCovered(f"{name}, of several sizes")
        return word

    def seen(self, i: int, place: Place) -> Positions:
        """Up to where a lane knows the accesses of each lane to a memory."""
        row = Row.GENERIC if place[0] == "shared" else Row.GENERIC_GLOBAL
        seen: Positions = self.order.rows[i, row].copy()
        return seen

    def reaches_all(self, scope: str) -> bool:
        """Whether a scope has all lanes in it."""
        narrow = "gpu" if len(self.cluster_barriers) > 1 else "cluster" if self.size > 1 else "cta"
        return _SCOPES.index(scope) >= _SCOPES.index(narrow)

    def access(
        self, x: Execution, pieces: Sequence[Piece], place: Place, write: bool, *,
        strong: Strong | None = None, holders: Sequence[Lanes] | None = None,
        number: int | None = None, adds: bool = False, decides: bool = False,
        names: Names | None = None,
    ) -> bool:  # fmt: skip
        """One access by the generic proxy: of each piece, its lanes access all of its bytes, or
        the elements that ``holders`` has of each. ``number``, ``names``, ``adds``, ``decides``: as
        a `Record` has them, the last if it comes after all writes so far. Returns whether it does.

        Raises: Refuted, NotCovered: lanes store to one place."""
        lanes = [i for some, _ in pieces for i in some]
        if holders is None:
            flat = np.concatenate([np.tile(at.reshape(-1), len(some)) for some, at in pieces])
            lane = np.concatenate([np.repeat(x.warp.lanes(some), at.size) for some, at in pieces])
        else:
            rows, (_, at) = [holders[i] for i in lanes], pieces[0]
            flat = np.concatenate([at[r].reshape(-1) for r in rows])
            lane = np.repeat(x.warp.lanes(lanes), [len(r) * at.shape[1] for r in rows])
        memory, instance = self.memory(place), (*place, None)[2]
        if place[0] == "shared":
            self._shared(x, lanes, int(place[1]), flat, write)
            self.at_peers |= int(place[1]) != x.warp.rank
        if write:
            self.writes(x, place)
        position = self.order.position[lane]
        record = Record(
            flat, write, "generic", strong, x.where, lane, position, instance, number, may=x.may
        )
        record.names = names
        if write and holders is None:
            self._lanes_apart(record)
        ordered = self._ordered(None, "generic", place)
        plain = Record(flat, False, "generic", None, x.where, lane, position, instance)
        settled = strong is not None and memory.settled(plain, ordered, adds=adds)
        if decides and settled:
            record = plain
        record.adds, record.decides = adds, decides and settled
        memory.access(record, ordered)
        self._of_a_cluster(record, place)
        return settled

    def issue(
        self, x: Execution, lanes: Sequence[int], place: Place, at: Bytes, write: bool, proxy: str,
        *, strong: Strong | None = None, issuers: Lanes | None = None, as_one: bool = False,
        ends: Place | None = None,
    ) -> Record:  # fmt: skip
        """An asynchronous access that each of some lanes issues a part of, or ``issuers`` of
        several warps issue as one; ``ends``: where it is over, if not where it is made.
        ``as_one``: lanes that have come together make it, so it comes after what all of them know
        or have all done: each of them its own.
        """
        memory, instance = self.memory(place), (*place, None)[2]
        if write:
            self.writes(x, place)
        if place[0] == "shared":
            # a strong write is a reduction, which reads as well
            self._shared(x, lanes, int(place[1]), at, write and not strong)
        parts = len(lanes) if issuers is None and not as_one else 1
        issuers = x.warp.lanes(lanes) if issuers is None else issuers
        record = Record(
            at if at.ndim == 1 else at.reshape(-1), write, proxy, strong, x.where,
            instance=instance, parts=parts,
        )  # fmt: skip
        memory.access(record, self._ordered(issuers, proxy, place, as_one=as_one))
        self._of_a_cluster(record, place)
        x.issued += [Issued(lane, ends or place, record, n) for n, lane in enumerate(lanes[:parts])]
        return record

    def _lanes_apart(self, y: Record) -> None:
        """What lanes of one instruction store lies apart, or is the same, or all of it is strong
        (H2, H6)."""
        apart = y.number is not None or all_apart(y.bytes)
        if apart or (y.strong and self._morally_strong(y, y)):
            return
        names = y.names
        _, first, index = np.unique(y.bytes, return_index=True, return_inverse=True)
        again = first[index] != np.arange(len(index))
        if names is None or ((names != names[first[index]]) | (names < 0))[again].any():
            raise MayBeEqual(f"{y.where}: lanes store to one place, which may be equal values")

    def _shared(
        self, x: Execution, lanes: Sequence[int], rank: int, at: Bytes, write: bool
    ) -> None:
        memory = self.shared[rank]
        memory.in_bounds(at, x.where)
        if rank != x.warp.rank:
            if x.may:
                raise NotCovered(f"{x.where}: data decides whether it accesses CTA {rank}")
            self.touch(x.warp, lanes, rank)
        _no_mbarrier(memory, at, x.where)
        if not write:
            written_before(memory.written[at], x.where)

    def touch(self, w: Warp, lanes: Sequence[int], rank: int) -> None:
        """Lanes touch the memory of another CTA."""
        self.has_started(w, lanes, rank)
        for i in w.lanes(lanes):
            self.touched[rank, int(i)] = int(self.order.position[i])

    @rule("D8", "a CTA has started before another CTA accesses its shared memory or its barriers")
    def has_started(self, w: Warp, lanes: Sequence[int], rank: int) -> None:
        """Raises: Refuted: nothing of that CTA need have happened."""
        of_cta = slice(rank * self.in_cta, (rank + 1) * self.in_cta)
        if not self.order.past[w.lanes(lanes), of_cta].any(1).all():
            raise Refuted("D8", f"CTA {rank} need not have started")

    def _ordered(
        self, issuers: Lanes | None, proxy: str, place: Place, *, as_one: bool = False
    ) -> Any:
        """Whether bytes of an access come after those of an earlier one: ``ordered`` of `Memory`.

        ``issuers``: of an asynchronous access, the lanes that have issued it; ``as_one``: it comes
        after what all of them know, or what each of them has done."""
        shared, order = place[0] == "shared", self.order
        generic = Row.GENERIC if shared else Row.GENERIC_GLOBAL
        rows: list[int] = [generic]
        if proxy != "generic":  # fences of .shared::cta are about the memory of their CTA
            rows = [Row.ASYNC_SHARED, order.own(int(place[1]))] if shared else [Row.ASYNC_GLOBAL]

        known = dict[int, list[int]]()  # by the first of some rows, what issuers know to be over

        def over(lanes: Lanes, seen: Sequence[int]) -> list[int]:
            facts: list[int] = reduce(or_, (order.facts[lanes, row] for row in seen)).tolist()
            return facts

        def ordered(y: Record, x: Record, own: Any, theirs: Any) -> bool:
            if x.strong is not None and y.strong is not None and self._morally_strong(x, y):
                return True
            if x.instance != y.instance:  # nothing orders clusters
                return False
            asked: Any = issuers if y.lane is None else y.lane[own]
            seen = [generic] if x.proxy == "generic" and self._unfenced(x, y) else rows
            if theirs is None:
                if y.lane is not None:
                    facts = over(np.flatnonzero(np.bincount(asked)), seen)
                elif (facts := known.get(seen[0], [])) == []:
                    facts = known[seen[0]] = over(asked, seen)
                told = (x.is_over(some) for some in {*facts})  # most lanes know the same
                return any(told) if as_one else all(told)
            lane, position = theirs
            if issuers is None:
                return bool((order.rows[asked, generic, lane] >= position).all())
            least, each = order.rows[np.ix_(asked, seen)].max(1), as_one and {*asked} <= {*lane}
            return bool(((least.max(0) if each else least.min(0))[lane] >= position).all())

        return ordered

    @rule("H24", "in practice, a copy over what was read, or over the word of tcgen05.alloc, needs"
          " no proxy fence")  # fmt: skip
    def _unfenced(self, x: Record, y: Record) -> bool:
        """Whether a write ``y`` needs no fence behind an access ``x`` that is handed over (U12);
        a reduction reads what it writes."""
        word = any(isinstance(e, fx.AllocatesTmem) for e in self.mir.effects[x.where.number])
        return y.write and not self.ptx and (not x.write or (word and not y.strong))

    @rule("H2", "strong accesses of one size and proxy whose scopes include each other do not race")
    def _morally_strong(self, x: Record, y: Record) -> bool:
        assert x.strong is not None
        assert y.strong is not None
        lanes = [r.lane for r in (x, y) if r.lane is not None]
        ctas = {int(i) // self.in_cta for some in lanes for i in some}
        apart = len(ctas) > 1 or x.asynchronous or y.asynchronous
        wide = "gpu" if x.instance != y.instance or (apart and self.whole) else (
            "cluster" if apart else "cta"
        )  # fmt: skip
        narrow = min(_SCOPES.index(x.strong[1]), _SCOPES.index(y.strong[1]))
        alike = x.strong[0] == y.strong[0] and x.proxy == y.proxy
        return alike and narrow >= _SCOPES.index(wide)

    # ------------------------------------------------------------------ mbarriers

    @rule("A6", "an operation on an mbarrier finds one that is live")
    def mbarrier(self, at: MbarrierAt, w: Warp, lanes: Sequence[int]) -> Mbarrier:
        """The mbarrier on which lanes operate.

        Raises: Refuted: there is none, or its init need not come before the operation."""
        found = self.mbarriers.get(at)
        if found is None:
            raise Refuted("A6", f"no mbarrier at byte {at[1]} of CTA {at[0]}")
        self._after_init(found, w.lanes(lanes))
        return found

    @rule("A7", "mbarrier.init comes before every other operation, in time and in memory")
    def _after_init(self, mbarrier: Mbarrier, lanes: Lanes) -> None:
        lane, position = mbarrier.init
        seen = np.maximum(*(self.order.rows[lanes, row, lane] for row in (Row.GENERIC, Row.INIT)))
        if min(self.order.past[lanes, lane].min(), seen.min()) < position:
            raise Refuted("A7", f"{mbarrier.name}: its init need not come before")

    @rule("A5", "mbarrier.init makes one mbarrier, in the own CTA, with a count in range")
    def init_mbarrier(self, x: Execution, at: MbarrierAt, count: int, lanes: Sequence[int]) -> None:
        """A lane starts an mbarrier.

        Raises: Refuted: several lanes do, or it is another CTA's, live, or misaligned."""
        if len(lanes) != 1 or at[0] != x.warp.rank or at in self.mbarriers or at[1] % 8:
            raise Refuted("A5", f"{x.where}: byte {at[1]} of CTA {at[0]}")
        if not 1 <= count < 1 << 20:
            raise Refuted("A5", f"{x.where}: a count of {count}")
        self.bytes_of_mbarrier(x, at, lanes, live=True)
        i = x.warp.first + lanes[0]
        life = Mbarrier(
            f"the mbarrier at byte {at[1]} of CTA {at[0]}", self.order.new_column(), count,
            (i, int(self.order.position[i])), self.order.nothing(), ptx=self.ptx,
        )  # fmt: skip
        self.mbarriers[at] = life
        self.lives.append((at, life))

    def bytes_of_mbarrier(
        self, x: Execution, at: MbarrierAt, lanes: Sequence[int], *, live: bool
    ) -> None:
        """Its bytes are written, as a life begins or ends (A6)."""
        place: Place = ("shared", at[0])
        bytes_ = np.arange(at[1], at[1] + 8)[None, :]
        memory = self.memory(place)
        memory.in_bounds(bytes_, x.where)
        memory.mbarriers[bytes_] = False
        self.access(x, [(lanes, bytes_)], place, True)
        memory.mbarriers[bytes_] = live

    @rule("I", "every operation on an mbarrier is over before it is invalidated, or its CTA ends")
    def over_before(self, life: Mbarrier, lanes: Lanes, what: str, *, own: bool = False) -> None:
        """``own``: also asynchronous arrivals of this CTA, which end with it at `practice` (A8).

        Raises: Refuted: an operation on it need not come before one of the lanes is here."""
        issued = ((lane, position) for lane, (position, _) in life.issued.items())
        for lane, position in (*life.operations.items(), *issued):
            if not (self.order.past[lanes, lane] >= position).any():
                raise Refuted("I", f"{life.name}: an operation need not come before {what}")
        open_ = max(life.last_asynchronous[: 1 + own])
        if open_ >= 0 and not (self.order.past[lanes, life.column] > open_).any():
            raise Refuted("I", f"{life.name}: a copy need not land before {what}")

    @rule("A6-order", "memory is handed over from each operation on an mbarrier to its end")
    def handed_over(self, life: Mbarrier, i: int) -> None:
        """``i`` invalidates it, which is a write. A wait that acquires comes behind all that the
        phase counts, copies among it.

        Raises: NotCovered: an operation comes before in time, and nothing else is known."""
        seen = self.order.rows[i, Row.GENERIC]
        waited = any(seen[lane] >= position for lane, position in life.acquired)
        copies = [(lane, position) for lane, (position, phase) in life.issued.items()
                  if not (waited and phase == life.phase - 1)]  # fmt: skip
        for lane, position in (*life.operations.items(), *copies):
            # in practice lanes of a warp may have met where memory is not ordered
            own = lane // LANES == i // LANES and not self.ptx
            if not own and seen[lane] < position:
                raise NotCovered(f"{life.name}: its end comes after an operation in time only")

    def group(self, kind: str, i: int) -> Group:
        """The asynchronous operations of a thread, or of the warpgroup that begins with it."""
        return self.groups.setdefault((kind, int(i)), Group())


def _target(targets: tuple[int, ...], index: int, at: int) -> int:
    if not 0 <= index < len(targets):
        raise NotCovered(f"the switch at {at} goes nowhere")
    return targets[index]


@rule("uniform", "lanes that execute a jump with .uni go one way: all of a warp, or always these")
def _one_target(w: Warp, at: int, lanes: Sequence[int], targets: Sequence[int]) -> None:
    """Of several parts of a warp, each of which goes one way, other schedules may let two execute
    it together.

    Raises: Refuted: they go several ways; NotCovered: they are another part of the warp."""
    if not getattr(w.machine.mir.code[at].what, "uniform", False):
        return
    if len(set(targets)) > 1:
        raise Refuted("uniform", f"lanes go several ways at {at}")
    if len(lanes) < LANES and w.parts.setdefault(at, tuple(lanes)) != tuple(lanes):
        raise NotCovered(f"several parts of a warp at the jump at {at}, which has .uni")


@rule("trap", "no thread traps")
def _no_trap(traps: int, what: str) -> None:
    if traps:
        raise Refuted("trap", what)


@rule("A6-bytes", "nothing but operations on it accesses a live mbarrier")
def _no_mbarrier(memory: Memory, at: Bytes, where: object) -> None:
    if memory.mbarriers[at].any():
        raise Refuted("A6-bytes", f"{where}: bytes of an mbarrier")


@rule("unset", "a register, or a register tile, is set before it is read")
def is_set(
    w: Warp, name: str, lanes: Sequence[int], where: object, unless: Mapping[int, Look]
) -> None:
    """Raises: Refuted: lanes read what they have not set, or only if a poll has answered no where
    they read it in both cases; ``unless``: the polls of lanes that read it only then."""
    if (set_in := w.set_in.get(name, 0)) == ALL_LANES:
        return
    others = [i for i in lanes if not set_in >> i & 1]
    if any(i not in unless or w.set_behind.get((name, i)) is not unless[i] for i in others):
        raise Refuted("unset", f"{where}: {name}, which nothing has set")
