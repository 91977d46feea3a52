"""What is known of the turns of one loop in which a repetition is looked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tilesim.sim.expression import plain
from tilesim.sim.machine.footprint import Footprint
from tilesim.sim.machine.machine import Machine
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.named_barrier import NamedBarrier
from tilesim.sim.steady.bounds import UNBOUNDED
from tilesim.sim.steady.fields import is_number
from tilesim.sim.steady.period import Register
from tilesim.sim.steady.remaining import Registers
from tilesim.sim.steady.shifts import Shift
from tilesim.sim.steady.snapshot import Snapshot

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
class Turn:
    """A turn of a loop that a description was made of: its number, how many instructions had been
    executed and skipped, and what the registers of all warps held; by warp, ``arrays`` of that in
    all clusters, where it differs."""

    number: int
    executed: int
    skipped: int
    registers: list[Registers]
    arrays: dict[int, dict[int, Any]]


def register_shifts(machine: Machine, before: Turn, now: Turn) -> dict[Register, Shift] | None:
    """As `Snapshot.register_shifts`, if nothing else is known of two turns."""
    return _held(machine, now).register_shifts(_held(machine, before))


def _held(machine: Machine, turn: Turn) -> Snapshot:
    """The registers of warps at a turn, as a state has them."""
    found = Snapshot(machine.components.size)
    for warp, registers in zip(machine.warps, turn.registers, strict=True):
        for slot, register in enumerate(registers):
            if is_number(register):
                found.registers[id(warp), slot] = [register]
        for slot, array in turn.arrays.get(warp.index, {}).items():
            found.arrays[id(warp), slot] = plain(array)
    return found


@dataclass(eq=False)
class Level:
    """The search for what repeats with the turns of one loop."""

    place: Place | None = None
    turn: int = 0
    #: the turn at which to look again
    next: int = FIRST
    #: by description, when it was met last
    seen: dict[Any, Turn] = field(default_factory=dict)
    attempts: int = 0
    #: what the search has cost, in instructions
    cost: float = 0
    #: while a repetition is looked for: its length in turns, and the states at its multiples
    length: int = 0
    states: list[tuple[Turn, Snapshot]] = field(default_factory=list)
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

    def choose(self, place: Place, *, next: int = 1) -> None:
        """Looks at this loop from now on."""
        self.place = place
        self.turn = self.length = 0
        self.rests = False
        self.next = next
        self.seen.clear()
        self.states.clear()

    def forget(self) -> None:
        """Looks for what repeats from this turn on only."""
        self.seen.clear()
        if self.length or self.rests:
            self.length, self.rests = 0, False
            self.next = self.turn + 1
            self.states.clear()

    def rest(self) -> None:
        """Looks at nothing until the loop is entered again."""
        self.seen.clear()
        self.rests = True
        self.next = UNBOUNDED

    def give_up(self) -> None:
        """Nothing more is looked for in this loop."""
        self.over = True
        self.length = 0
        self.next = UNBOUNDED
        self.seen.clear()
        self.states.clear()
