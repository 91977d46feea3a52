"""One repetition, watched: does every decision come out the same in those that follow?

Each instruction that is executed has to be the same in every repetition but for what it moves to
registers, and for where it reads global memory that is never written.

How often a loop still turns is an estimate, on which nothing but the time it takes depends. What
leads out of a loop is mostly a branch whose condition is one of registers that grow by the same
from turn to turn. So the condition is evaluated with these moved on, further and further, until it
says that the loop ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias, cast

import numpy as np

from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr, Var
from tilesim.ir.loc import UNKNOWN, Loc
from tilesim.ir.mir import Branch
from tilesim.ir.op import Op
from tilesim.records import dataclass, field
from tilesim.sim.affine.cluster_classes import Follower
from tilesim.sim.affine.evaluator import (
    Moving,
    Register,
    ShiftEvaluator,
    flat,
    looking,
    registers_in,
)
from tilesim.sim.affine.free_parameter import UNBOUNDED, Obstacle
from tilesim.sim.affine.loop_places import Free, Moved, Touched, Way, free_operands, window
from tilesim.sim.affine.shifts import (
    Carried,
    Computed,
    Later,
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
from tilesim.sim.machine.access import Access
from tilesim.sim.machine.expression import fit_register, plain
from tilesim.sim.machine.footprint import Footprint
from tilesim.sim.machine.lanes import mask_array
from tilesim.sim.machine.machine import Code, Entry, Machine, Warp
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.memory import Memory
from tilesim.sim.machine.named_barrier import NamedBarrier
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
        self.touched = Touched()
        self.later: list[Way] = []
        #: what decides how often clusters repeat this, if not equally often
        self.decides: tuple[str, Loc] = "how often a loop turns", UNKNOWN
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
        if isinstance(ends, Later) and ends is not carried:
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

    def _movable(self, op: Op, w: Warp, mask: int) -> list[tuple[Expr, Free]]:
        seen = self._seen(w)
        return free_operands(self.machine, op, lambda expr: window(self.values, expr, seen, mask))

    def _decide(self, cond: Expr, w: Warp, moving: Moving) -> None:
        limits = self.values.limits
        super()._decide(cond, w, moving)
        if self.values.limits is not limits and type(self.values.limits) is not int:
            self.decides = str(cond), self.machine.plan.mir.code[self.pc].loc

    def _lost(self, var: Var, value: Expr, w: Warp, moving: Moving, why: NoShift) -> Lost:
        """It can be computed in the repetitions to come, perhaps."""
        typing = self.values.typing
        fit = fit_register(var.dtype, value, typing, token=var.name in typing.tokens)
        evaluate = self.values.evaluate(value)
        try:
            return Computed(evaluate, fit, self._seen(w), self.slots_in(value), moving, why)
        except NoShift:
            return Lost(why)

    def _unplaced(
        self, expr: Expr, free: Free, w: Warp, mask: int, moving: Moving, why: NoShift
    ) -> None:
        """Where to it moves is found when it is known how often."""
        seen = self._seen(w)
        later = Computed(self.values.evaluate(expr), None, seen, self.slots_in(expr), moving, why)
        now = np.asarray(self.values.value(expr, seen))
        if now.dtype.kind not in "iu":
            raise why
        now = now if now.ndim == 2 else now.reshape(1, -1)
        way = Way(free, later=later, now=now, lanes=mask_array(mask))
        self.later.append(way)
        if free.memory is not None:
            self.places.append(way)

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
        ways = tuple(way for way in self.places if way.free.memory is memory)
        if not ways:
            self.touched.still[footprint] = None
            return
        noted = None
        if self._follower is not None:
            noted = self._follower.noted
            if noted is None:
                raise NoShift(f"what clusters access in {memory.label}")
        self.touched.moved.append(Moved(memory, footprint, access, ways, noted))


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
Place: TypeAlias = "tuple[int, int]"
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
    return _held(machine, now).register_shifts(_held(machine, before))


def _held(machine: Machine, iteration: Iteration) -> Snapshot:
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

    place: Place | None = None
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

    def choose(self, place: Place) -> None:
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
