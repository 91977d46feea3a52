"""What a recorded run did, and when: the data behind traces, stories and pictures.

`tilesim.sim.record` makes it. A run that nobody records pays nothing for this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilesim.ir.loc import Loc
from tilesim.sim.findings import Named
from tilesim.sim.machine.trace import Kind

#: slices and points kept per cluster unless the caller says otherwise
LIMIT = 200_000
#: what the times of a timeline count: simulated cycles or (under a chosen schedule) instructions;
#: nanoseconds of a GPU, or cycles if its clock could not be measured
Unit = Literal["cycle", "step", "ns"]
SliceKind = Literal["run", "wait", "engine"]
FlowKind = Literal["arrive", "issue", "complete"]
#: an instruction that a warp executes: its CTA, its warp, the instruction's number in the machine's
#: program, the how-manieth
Instance = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Track:
    """A warp of a CTA, or (``warp`` None) one of its engines, called ``role``.

    Operations of an engine that overlap are on different ``lane``s.
    """

    cta: int
    role: str
    warp: int | None
    lane: int = 0

    def __str__(self) -> str:
        if self.warp is None:
            return f"{self.role} {self.lane + 1}" if self.lane else self.role
        own = f"warp {self.warp}"
        return own if self.role == own else f"{self.role} {own}"


@dataclass(frozen=True, slots=True)
class Slice:
    """Something that takes time: an instruction, a wait, an operation of an engine.

    ``stuck``: it has not ended when the run ends.
    """

    track: Track
    kind: SliceKind
    name: str
    start: float
    end: float
    loc: Loc
    stuck: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of an mbarrier from ``time`` on; ``bytes`` is its tx-count."""

    cta: int
    barrier: str
    time: float
    phase: int
    pending: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Flow:
    """An arrow from the instruction or operation that causes something to what it causes.

    ``woke``: what it leads to had been waiting.
    """

    kind: FlowKind
    start: Track
    start_time: float
    end: Track
    end_time: float
    woke: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """One touch of a synchronisation object, or (``on`` empty) any other instruction.

    ``engine`` is the engine that acted for the warp, empty if it acted itself. ``named`` is the
    object as findings name it, ``alike`` what ``text`` says, but for numbers that depend on others.
    """

    time: float
    kind: Kind
    on: str
    phase: int
    track: Track
    engine: str
    text: str
    loc: Loc
    named: Named | None = None
    alike: tuple[bool, int] | None = None


@dataclass(frozen=True, slots=True)
class Releaser:
    """Warps that could release a waiter, where they would do it, and what they are doing."""

    name: str
    role: str
    cta: int
    instruction: str
    loc: Loc
    state: str


@dataclass(frozen=True, slots=True)
class Waiter:
    """Warps of one role that wait for ever at one place, and what they wait for."""

    name: str
    role: str
    cta: int
    text: str
    loc: Loc
    on: str
    state: str
    releasers: tuple[Releaser, ...]


@dataclass(frozen=True)
class Timeline:
    """The recording of one cluster (or of the whole grid, if its clusters communicate).

    ``truncated``: the limit was reached at ``end``; ``waiters`` are those of a deadlock.
    """

    unit: Unit
    ctas: tuple[int, ...]
    tracks: tuple[Track, ...]
    slices: tuple[Slice, ...]
    samples: tuple[Sample, ...]
    flows: tuple[Flow, ...]
    points: tuple[Point, ...]
    waiters: tuple[Waiter, ...]
    end: float
    truncated: bool = False
