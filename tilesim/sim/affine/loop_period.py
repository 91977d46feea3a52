"""One repetition, watched: does every decision come out the same in those that follow?

Each instruction that is executed has to be the same in every repetition but for what it moves to
registers, and for where it reads global memory that is never written.

How often a loop still turns is an estimate, on which nothing but the time it takes depends. What
leads out of a loop is mostly a branch whose condition is one of registers that grow by the same
from turn to turn. So the condition is evaluated with these moved on, further and further, until it
says that the loop ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from operator import is_not
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr, Var
from tilesim.ir.loc import UNKNOWN, Loc
from tilesim.ir.mir import Branch
from tilesim.ir.op import Op
from tilesim.records import dataclass, field
from tilesim.sim.affine.cluster_classes import Follower
from tilesim.sim.affine.cluster_plan import Integers
from tilesim.sim.affine.cluster_values import moved
from tilesim.sim.affine.evaluator import (
    Moving,
    Register,
    ShiftEvaluator,
    flat,
    looking,
    registers_in,
)
from tilesim.sim.affine.free_parameter import UNBOUNDED, Obstacle
from tilesim.sim.affine.loop_places import (
    IterationAccesses,
    MovableOperand,
    MovingAccess,
    OperandMotion,
    free_operands,
    window,
)
from tilesim.sim.affine.shifts import (
    Carried,
    Computed,
    FutureValue,
    Lost,
    NoShift,
    Shift,
    Shifted,
    Shifts,
    clusters_of,
    is_moving,
)
from tilesim.sim.affine.snapshot import Snapshot, difference
from tilesim.sim.affine.state_fields import is_number
from tilesim.sim.machine.expression import fit_register
from tilesim.sim.machine.footprint import Access, Footprint, Past
from tilesim.sim.machine.lanes import mask_array
from tilesim.sim.machine.machine import Code, Entry, Machine, Warp
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.memory import Memory
from tilesim.sim.machine.moving_boxes import Course, Family, may_conflict
from tilesim.sim.machine.named_barrier import NamedBarrier
from tilesim.sim.machine.unknown import plain
from tilesim.sim.machine.warp import Agent


class Watched(ShiftEvaluator):
    """Watches a machine from one moment to the next; ``shifts``: by how much the registers of
    warps have moved up to now since the repetition before.

    ``obstacle`` is what is found to differ between repetitions.
    """

    def __init__(
        self, machine: Machine, plain: list[Entry], shifts: Mapping[Register, Shift],
        computed: Collection[Register], follower: Follower | None,
    ) -> None:  # fmt: skip
        """``computed``: registers that are said to move otherwise than by a shift; so are those
        whose shift is None. ``follower``: of the clusters that the machine stands for."""
        same = None if follower is None else follower.same
        values = Shifts(machine.plan.slots, machine.plan.mir.typing, same)
        values.uniform = None if follower is None else follower.uniform
        super().__init__(machine, values, {})
        self._carried: dict[Register, Carried] = {}
        self._began = dict(shifts)
        for (warp, slot), shift in shifts.items():
            if shift is None or (warp, slot) in computed:
                shift = self._carried[warp, slot] = Carried(NoShift("a register"))
            self.moving.setdefault(warp, {})[slot] = shift
        self._follower = follower
        #: accesses to global memory, and places that move by no shift
        self.touched = IterationAccesses()
        self.later: list[OperandMotion] = []
        #: what decides how often clusters repeat this, if not equally often
        self.decides: tuple[str, Loc] = "the trip count of a loop", UNKNOWN
        #: the warp that stores something that moves, by where
        self._data_moves: dict[Footprint, Agent] = {}
        #: what the machine is to execute meanwhile
        self.steps = looking(machine, plain, self.look, self._looked)

    def _looked(self, _pc: int, several: bool) -> None:
        if several:
            self.obstacle = Obstacle("several instructions at once")

    def ends_as_it_began(self, shifts: Mapping[Register, Shift]) -> set[Register] | None:
        """None if the shifts that were followed are those that are found in the end, as in the
        beginning; else the registers of which that is not so."""
        wrong: set[Register] = set()
        moving = flat(self.moving)
        for key in {*moving, *shifts, *self._began}:
            followed, found = moving.get(key, 0), shifts.get(key, 0)
            if key in self._carried:
                if not self._goes_on(key, followed):
                    wrong.add(key)
            elif (
                isinstance(followed, Lost)
                or found is None
                or np.any(followed != found)
                or np.any(self._began.get(key, 0) != found)
            ):
                wrong.add(key)
        return wrong or None

    def _goes_on(self, key: Register, ends: Shift) -> bool:
        """Whether it is known what a register holds in the repetitions to come that begins them
        otherwise than by a shift; ``ends``: what was followed."""
        carried = self._carried[key]
        if isinstance(ends, FutureValue) and ends is not carried:
            carried.source = ends
        elif not isinstance(ends, Lost):
            warp = self._seen(next(w for w in self.machine.warps if id(w) == key[0]))
            value = plain(warp.registers[key[1]])
            if isinstance(value, int | np.ndarray):
                carried.source = Shifted(value, ends, clusters_of(warp), carried.why)
        return carried.source is not None

    # ------------------------------------------------------------------ what is followed

    def _seen(self, w: Warp) -> Warp:
        """In all clusters, if it stands for others."""
        return w if self._follower is None else cast(Warp, self._follower.mirrors[w.index])

    def _differing(self, w: Warp) -> Mapping[int, Any]:
        if self._follower is None:
            return {}
        return self._follower.mirrors[w.index].registers.differing

    def _movable(self, op: Op, w: Warp, mask: int) -> list[tuple[Expr, MovableOperand]]:
        seen = self._seen(w)
        return free_operands(self.machine, op, lambda expr: window(self.values, expr, seen, mask))

    def _decide(self, cond: Expr, w: Warp, moving: Moving) -> None:
        limits = self.values.limits
        super()._decide(cond, w, moving)
        if self.values.limits is not limits and type(self.values.limits) is not int:
            self.decides = str(cond), self.machine.plan.mir.code[self.pc].loc

    def _lost(self, var: Var, value: Expr, w: Warp, moving: Moving, why: NoShift) -> Lost:
        """A value to be computed in the repetitions to come, if it can be."""
        typing = self.values.typing
        fit = fit_register(var.dtype, value, typing, token=var.name in typing.tokens)
        evaluate = self.values.evaluate(value)
        try:
            return Computed(evaluate, fit, self._seen(w), self.slots_in(value), moving, why)
        except NoShift:
            return Lost(why)

    def _unplaced(
        self, expr: Expr, free: MovableOperand, w: Warp, mask: int, moving: Moving, why: NoShift
    ) -> None:
        """Where to it moves is found when it is known how often."""
        seen = self._seen(w)
        later = Computed(self.values.evaluate(expr), None, seen, self.slots_in(expr), moving, why)
        now = np.asarray(self.values.value(expr, seen))
        if now.dtype.kind not in "iu":
            raise why
        now = now if now.ndim == 2 else now.reshape(1, -1)
        motion = OperandMotion(free, later=later, now=now, lanes=mask_array(mask))
        self.later.append(motion)
        if free.memory is not None:
            self.places.append(motion)

    # ------------------------------------------------------------------ global memory

    def touch(self, memory: Memory, footprint: Footprint, access: Access) -> None:
        """The machine accesses global memory."""
        if not memory.tracked or self.obstacle is not None:
            return
        try:
            self._touch(memory, footprint, access)
        except NoShift as why:
            self.obstacle = Obstacle(str(why), access.op.loc)

    def _touch(self, memory: Memory, footprint: Footprint, access: Access) -> None:
        if access.op is not self.op:
            raise NoShift(f"an access of {access.op.mnemonic} at another time")
        if memory.table.meets_past(footprint):
            raise NoShift(f"an access to what earlier repetitions accessed in {memory.label}")
        for other in footprint.overlaps:
            if self._data_moves.get(other, access.warp) is not access.warp:
                raise NoShift("what is stored, where another warp accesses it")
        if self.stores:
            self._data_moves[footprint] = access.warp
            if any(r.warp is not access.warp for o in footprint.overlaps for r in o.writes):
                raise NoShift("what is stored, where another warp has stored")
            spread = footprint.addresses
            if self.stores == "anything" and np.unique(spread).size < spread.size:
                raise NoShift("what is stored by several lanes")
        motions = tuple(motion for motion in self.places if motion.free.memory is memory)
        if not motions:
            self.touched.still[footprint] = None
            return
        noted = None
        if self._follower is not None:
            noted = self._follower.noted
            if noted is None:
                raise NoShift(f"what clusters access in {memory.label}")
        self.touched.moved.append(MovingAccess(memory, footprint, access, motions, noted))


# ------------------------------------------------------------------ how often a loop still turns


#: what registers of a warp hold, by slot
Registers: TypeAlias = "list[Any]"


class Remaining:
    """Estimates for the loops of a program; ``heads``: by number of a branch that goes back, where
    to."""

    def __init__(self, plan: Code, heads: dict[int, int]) -> None:
        self._plan = plan
        self._heads = heads
        self._values = Shifts(plan.slots, plan.mir.typing)
        #: by branch that goes back: per way out, what decides it and the registers in that
        self._exits: dict[int, list[tuple[list[Expr], frozenset[int]]]] = {}

    def repetitions(self, w: Warp, back: int, before: Registers) -> int | None:
        """How often what has happened since the registers of a warp held ``before`` happens again
        until a loop ends that goes back at ``back``, or one around it: while all that leads out
        comes out the same. None if that is not known."""
        moving: dict[int, Shift] = {}
        for slot, (then, now) in enumerate(zip(before, w.registers, strict=True)):
            by = None if then is now else difference(plain(now), plain(then))
            if by is not None and is_moving(by):
                moving[slot] = by
        self._values.return_to(UNBOUNDED)
        for other, head in self._heads.items():
            if head <= self._heads[back] and back <= other:
                for decides, reads in self._of(other, head):
                    if not any(w.registers[slot] is None for slot in reads):
                        self._bound(decides, w, moving)
        return None if self._values.limit == UNBOUNDED else self._values.limit

    def _bound(self, decides: list[Expr], w: Warp, moving: dict[int, Shift]) -> None:
        limits = self._values.limits
        try:
            for expr in decides:
                self._values.require_fixed(expr, w, w.mask, moving)
        except NoShift:
            self._values.return_to(limits)

    def _of(self, back: int, head: int) -> list[tuple[list[Expr], frozenset[int]]]:
        known = self._exits.get(back)
        if known is None:
            known = self._exits[back] = []
            for number in range(head, back + 1):
                match self._plan.mir.code[number].what:
                    case Branch(cond=Expr() as cond, target=target):
                        if number == back or not head <= target <= back:
                            known.append(self._decides(cond, head, back))
                    case _:
                        pass
        return known

    def _decides(self, cond: Expr, head: int, back: int) -> tuple[list[Expr], frozenset[int]]:
        """A condition, and what the predicates in it are set to in the loop."""
        decides, needed = [cond], registers_in(cond)
        for number in range(back, head - 1, -1):
            what = self._plan.mir.code[number].what
            for effect in what.effects() if isinstance(what, Op) else ():
                match effect:
                    case fx.Defines(var=var, value=Expr() as value):
                        if var.name in needed and var.dtype.kind == "pred":
                            decides.append(value)
                            needed |= registers_in(value)
                    case _:
                        pass
        return decides, frozenset(self._plan.slots[name] for name in needed)


# ----------------------------------------------------------- what is known of the turns of one loop


#: a place where a loop goes back: the warp, and the number of the instruction
BackEdge: TypeAlias = "tuple[int, int]"
#: turns of a loop before it is looked at
FIRST = 6


@dataclass
class Counts:
    """What has been counted up to a moment."""

    steps: int
    time: float
    by_parts: int
    executed: list[int]
    phases: list[int]
    rounds: list[int]

    @classmethod
    def of(
        cls, machine: Machine, barriers: Iterable[Mbarrier], named: Iterable[NamedBarrier]
    ) -> Counts:
        """Those of now."""
        return cls(
            machine.steps, machine.env.now, machine.by_parts,
            [w.executed for w in machine.warps], [b.phase for b in barriers],
            [b.number for b in named],
        )  # fmt: skip


@dataclass(frozen=True)
class Iteration:
    """A turn of a loop that a description was made of: its number, how many instructions had been
    executed and skipped, and what the registers of all warps held; by warp, ``arrays`` of that in
    all clusters, where it differs."""

    number: int
    executed: int
    skipped: int
    registers: list[Registers]
    arrays: dict[int, dict[int, Any]]


def register_shifts(
    machine: Machine, before: Iteration, now: Iteration
) -> dict[Register, Shift] | None:
    """As `Snapshot.register_shifts`, if nothing else is known of two turns."""
    return _register_snapshot(machine, now).register_shifts(_register_snapshot(machine, before))


def _register_snapshot(machine: Machine, iteration: Iteration) -> Snapshot:
    """The registers of warps at a turn, as a state has them."""
    found = Snapshot(machine.components.size)
    for warp, registers in zip(machine.warps, iteration.registers, strict=True):
        for slot, register in enumerate(registers):
            if is_number(register):
                found.registers[id(warp), slot] = [register]
        for slot, array in iteration.arrays.get(warp.index, {}).items():
            found.arrays[id(warp), slot] = plain(array)
    return found


@dataclass(eq=False)
class Level:
    """The search for what repeats with the turns of one loop."""

    place: BackEdge | None = None
    iteration: int = 0
    #: the turn at which to look again
    next: int = FIRST
    #: by description, when it was met last
    seen: dict[Any, Iteration] = field(default_factory=dict)
    attempts: int = 0
    #: what the search has cost, in instructions
    cost: float = 0
    #: while a repetition is looked for: its length in turns, and the states at its multiples
    length: int = 0
    states: list[tuple[Iteration, Snapshot]] = field(default_factory=list)
    #: how many more repetitions are executed before one is watched, and what registers move by
    whole: int = 0
    shifts: dict[Register, Shift] = field(default_factory=dict)
    #: what is accessed again and again in global memory, and has been since the last state
    places: dict[Footprint, None] = field(default_factory=dict)
    touched: dict[Footprint, None] = field(default_factory=dict)
    #: registers that were found to move otherwise than by a shift
    computed: set[Register] = field(default_factory=set)
    #: whether what is watched begins with shifts that no two states have shown
    guessed: bool = False
    #: whether a look is about to be taken
    due: bool = False
    #: whether too few turns remain for anything to be worth it
    rests: bool = False
    over: bool = False

    def choose(self, place: BackEdge) -> None:
        """Looks at this loop from now on."""
        self.place = place
        self.iteration, self.rests = 0, False
        self.restart(1)

    def restart(self, next: int) -> None:
        """Looks for what repeats from a later turn on only."""
        self.length, self.next = 0, next
        self.guessed = False
        self.seen.clear()
        self.states.clear()

    def forget(self) -> None:
        """Looks for what repeats from this turn on only."""
        self.seen.clear()
        if self.length or self.rests:
            self.rests = False
            self.restart(self.iteration + 1)

    def rest(self) -> None:
        """Looks at nothing until the loop is entered again."""
        self.rests = True
        self.restart(UNBOUNDED)

    def give_up(self) -> None:
        """Nothing more is looked for in this loop."""
        self.over = True
        self.restart(UNBOUNDED)


# ------------------------------------------------------------------ repetitions are skipped


#: repetitions at once in which places are computed one by one, accesses of other clusters that are
#: noted one by one, and families of accesses to one tensor
_COMPUTED, _NOTED, _FAMILIES = 2048, 1 << 15, 64


@dataclass
class Jump:
    """So many repetitions that can be skipped, with what they access in global memory.

    ``each``: in each cluster that the machine stands for, if these are not ``times`` in all.
    """

    machine: Machine
    watched: Watched
    times: int
    follower: Follower | None
    each: Integers | None
    #: by access that moves: how far, (1 + times, clusters, dimensions), if that is listed
    listed: dict[int, Any]
    families: list[tuple[Memory, Past]]
    #: what registers hold in the end that do not move by a shift, in all clusters
    ends: dict[Register, NDArray[Any]]

    @classmethod
    def over(
        cls, machine: Machine, watched: Watched, times: int, follower: Follower | None
    ) -> Jump:
        """The longest jump over at most so many repetitions, the same in all clusters.

        Raises:
            NoShift: accesses of different repetitions may conflict, or are too many.
        """
        same = None if follower is None else follower.same
        if watched.later or any(isinstance(s, FutureValue) for s in watched.moving.values()):
            times = min(times, _COMPUTED)
        for motion in watched.later if times else ():
            stays = motion.inside(times)
            times = min(times, int((stays if same is None else stays[same]).min()))
            if not times:
                break
        jump = cls(machine, watched, times, follower, None, {}, [], {})
        if times:
            jump._find()
        return jump

    @classmethod
    def apart(cls, machine: Machine, watched: Watched, follower: Follower) -> Jump | None:
        """A jump in which each cluster makes as many repetitions as it can; None if that may not
        be: all that then differs has to be looked at."""
        limits = watched.values.limits
        if type(limits) is int or not limits[0] or int(limits.max()) > _COMPUTED:
            return None
        each = np.full(len(follower.clusters), limits[0], dtype=np.int64)
        each[follower.same] = limits
        moving = {slot for (_, slot), shift in flat(watched.moving).items() if is_moving(shift)}
        if (each == each[0]).all() or not follower.looks_at(moving):
            return None
        try:
            most = int(each.max())
            if any((motion.inside(most) < each)[follower.same].any() for motion in watched.later):
                return None
            jump = cls(machine, watched, int(each[0]), follower, each, {}, [], {})
            jump._find()
        except NoShift:
            return None
        return jump

    def _find(self) -> None:
        for key, shift in flat(self.watched.moving).items():
            if isinstance(shift, FutureValue):
                self.ends[key] = self._at_the_end(shift)
        self._list()
        self._gather()
        self._require_apart()

    def _at_the_end(self, shift: FutureValue) -> NDArray[Any]:
        """What a register holds in the end, in all clusters."""
        last = [self.times] if self.each is None else self.each
        many, which = np.unique(last, return_inverse=True)
        values = shift.at(many)
        values = values.reshape(len(many), -1, values.shape[-1])
        ends: NDArray[Any] = values[which.ravel(), np.arange(values.shape[1])]
        return ends

    @property
    def most(self) -> int:
        """How many repetitions any cluster makes."""
        return self.times if self.each is None else int(self.each.max())

    # ------------------------------------------------------------------ what is accessed

    def _list(self) -> None:
        moved = self.watched.touched.moved
        for number, access in enumerate(moved):
            if self.follower is not None or any(motion.later for motion in access.motions):
                if self.most * len(moved) > _NOTED:
                    raise NoShift("too many places in global memory")
                self.listed[number] = self._further(access, access.memory.table.by_element)

    def _further(self, access: MovingAccess, by_element: bool) -> Any:
        """How much further it lies in each repetition, in elements or in bytes:
        (1 + most, clusters, dimensions)."""
        many = np.arange(1, self.most + 1, dtype=np.int64)
        clusters = 1 if self.follower is None else len(self.follower.clusters)
        tensor = next(t for t in self.machine.program.tensors if t.name == access.memory.label)
        shape = self.most + 1, clusters, len(tensor.shape) if by_element else 1
        result = np.zeros(shape, dtype=np.int64)
        for motion in access.motions:
            further = motion.further(many)
            if by_element:
                result[1:, :, motion.free.dim] += further
            else:
                result[1:, :, 0] += further * motion.free.stride
        return result

    def _gather(self) -> None:
        """Accesses of the same kind to the same bytes are one family."""
        known: dict[tuple[Footprint, Course, bool], list[int]] = defaultdict(list)
        moved = self.watched.touched.moved
        for number, access in enumerate(moved):
            course = self._course(number, access)
            known[access.footprint, course, access.access.write].append(number)
        for (_, course, write), numbers in known.items():
            first = moved[numbers[0]]
            family = Family(*first.memory.table.corners(first.footprint), course, write)
            accesses = tuple(moved[n].access for n in numbers)
            self.families.append((first.memory, Past(family, accesses)))

    def _course(self, number: int, access: MovingAccess) -> Course:
        """How an access moves in the cluster that is run."""
        table = access.memory.table
        iteration = [0] * table.corners(access.footprint)[0].shape[1]
        still = tuple(iteration)
        if any(motion.later for motion in access.motions):
            own = self.listed[number][: self.times + 1, 0].tolist()
            return Course(still, still, self.times, tuple(map(tuple, own)))
        for motion in access.motions:
            if table.by_element:
                iteration[motion.free.dim] += motion.by
            else:
                iteration[0] += motion.by * motion.free.stride
        return Course(tuple(iteration), still, self.times)

    def _require_apart(self) -> None:
        """No access conflicts with one of another repetition, or with one from before."""
        own = {m.footprint for m in self.watched.touched.moved}
        by_memory: dict[Memory, list[Family]] = defaultdict(list)
        for memory, past in self.families:
            by_memory[memory].append(past.family)
        for memory, families in by_memory.items():
            table = memory.table
            others = [f for f in table.recorded if f not in own or f in self.watched.touched.still]
            before = [past.family for past in table.past]
            for write in (False, True):
                near = [table.corners(f) for f in others if bool(f.writes) is write]
                if near:
                    lows, highs = (np.concatenate(c) for c in zip(*near, strict=True))
                    before.append(Family.at_rest(lows, highs, write=write))
            apart = len(table.past) + len(families) <= _FAMILIES
            apart = apart and not may_conflict(families)
            if not apart or any(
                one.meets(other) for one in families for other in before
                if one.write or other.write
            ):  # fmt: skip
                raise NoShift(
                    f"accesses to {memory.label} of different iterations, which may overlap"
                )

    # ------------------------------------------------------------------ the jump

    def make(self) -> None:
        """Skips the repetitions."""
        for m in self.watched.touched.moved:
            for records in (m.footprint.writes, m.footprint.reads):
                records.keep(partial(is_not, m.access))
        for memory, past in self.families:
            memory.table.past.append(past)
        places = self.watched.touched.places()
        for memory in self.machine.globals.memories.values():
            table = memory.table
            table.skipped |= bool(table.past) or any(f not in places for f in table.recorded)
        if self.follower is not None:
            self._note(self.follower)
        self._move()

    def _note(self, follower: Follower) -> None:
        """What the other clusters access meanwhile."""
        moved = self.watched.touched.moved
        motions = []
        for access in moved:
            touches = access.noted[0]
            far = any(touches is other for other in follower.far.values())
            motions.append(self._further(access, by_element=not far))
        for k in range(1, self.most + 1):
            where = None if self.each is None or (self.each >= k).all() else self.each >= k
            for access, further in zip(moved, motions, strict=True):
                touches, kind, boxes, by = access.noted
                own = further[k, 0].tolist()
                moved_boxes = tuple(
                    tuple((a + s, b + s) for (a, b), s in zip(box, own, strict=True))
                    for box in boxes
                )
                touches.add(kind, moved_boxes, by + further[k] - further[k, 0], where)

    def _move(self) -> None:
        """Registers hold what they will hold."""
        machine, follower = self.machine, self.follower
        warps = {id(w): w for w in (*machine.warps, *machine.split_groups)}
        for (identity, slot), shift in flat(self.watched.moving).items():
            if not is_moving(shift):
                continue
            warp = warps.get(identity)
            if warp is None:
                continue  # lanes that have met the others since had the registers of their warp
            # what they held when a turn began matters to tell one that did nothing
            now = warp.effects, machine.version
            idle = (lap for lap in warp.laps.values() if (lap.effects, lap.version) == now)
            for registers in (warp.registers, *(lap.registers for lap in idle)):
                if not isinstance(shift, FutureValue) and registers[slot] is not None:
                    registers[slot] = _further(registers[slot], self.times * shift)
            if follower is not None:
                self._move_all(follower, warp, slot, shift)
            if isinstance(shift, FutureValue):
                own = self.ends[identity, slot][0]
                warp.registers[slot] = own.item() if len(own) == 1 else own.copy()

    def _move_all(self, follower: Follower, warp: Warp, slot: int, shift: Shift) -> None:
        """A register of all clusters; that of the one that runs has moved already, by a shift."""
        differing = follower.mirrors[warp.index].registers.differing
        if isinstance(shift, FutureValue):
            follower.move(warp, slot, self.ends[id(warp), slot])
        elif self.each is not None and warp.registers[slot] is not None:
            own = warp.registers[slot]
            before = differing.get(slot, np.atleast_1d(own - self.times * shift)[None])
            follower.move(warp, slot, plain(before) + self.each[:, None] * np.atleast_1d(shift))
        elif slot in differing:
            by, before = self.times * shift, differing[slot]
            after = _further(plain(before), by) if _is_far(by) else moved(before, by)
            follower.move(warp, slot, after)


def _further(values: Any, by: Any) -> Any:
    """What a register holds after it has moved: it stays in the range of its type, but what it has
    moved by may be no number of 64 bits."""
    if _is_far(by) and isinstance(values, np.ndarray):
        return (values.astype(object) + by).astype(values.dtype)
    return values + by


def _is_far(by: Any) -> bool:
    return type(by) is int and abs(by) >= 1 << 63
