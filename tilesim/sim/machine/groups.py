"""What a warp has issued and committed: groups of asynchronous operations, initialisations."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilesim.ir.op import Op
from tilesim.sim.machine.clock import Clock

#: what a warp has stored of all that it loaded from tensor memory (`tilesim.sim.drained`): ``done``
#: counts loads
DRAINED = "tcgen05.ld.drained"


@dataclass(slots=True)
class Groups:
    """Committed groups of one kind of asynchronous operation.

    ``opened`` counts operations issued, ``committed`` holds the operation count at each commit and
    ``done`` how many operations are known complete; ``component`` publishes that count.
    """

    component: int
    opened: int = 0
    committed: list[int] = field(default_factory=list)
    done: int = 0
    finish: float = 0.0

    def issue(self, count: int = 1) -> int:
        """The sequence number of the first of some new operations in the open group."""
        self.opened += count
        return self.opened - count + 1

    def commit(self) -> None:
        """Closes the open group (which may be empty)."""
        self.committed.append(self.opened)

    def wait(self, pending: int) -> int:
        """How many operations are complete once at most ``pending`` groups remain."""
        if pending < len(self.committed):
            self.done = max(self.done, self.committed[len(self.committed) - 1 - pending])
            if pending:
                del self.committed[:-pending]
            else:
                self.committed.clear()
        return self.done


@dataclass(slots=True)
class FragmentUse:
    """A wgmma that uses a fragment: its number, and how many wgmma.fence came before it.

    ``accumulator`` is the shape of the instruction if the fragment is D, None if it is A.
    """

    sequence: int
    op: Op
    accumulator: tuple[int, int, int] | None
    fenced: int


class Inits:
    """The mbarrier.init of a warp, which fence.mbarrier_init hands over without its other writes.

    ``component`` publishes how many were made.
    """

    __slots__ = ("_lanes", "component")

    def __init__(self, component: int) -> None:
        self.component = component
        self._lanes: list[int] = []

    def add(self, lanes: int) -> int:
        """An init by ``lanes``; returns its number, from 1."""
        self._lanes.append(lanes)
        return len(self._lanes)

    def made_by(self, lanes: int) -> int:
        """How many, from the first on, are all of ``lanes``: a fence covers its own thread's."""
        others = (n for n, mask in enumerate(self._lanes) if mask & ~lanes)
        return next(others, len(self._lanes))


@dataclass(slots=True)
class Issued:
    """The mma, cp and shift that one lane has issued: their number. ``component`` publishes how
    many of them are complete, ``order`` how many have been issued."""

    component: int
    order: int
    count: int = 0


@dataclass(slots=True)
class Issuer:
    """What a warp has done with tensor cores.

    ``seen``: by lanes, row S at their last fence::after_thread_sync. ``spares``: components for the
    operations of lanes, as `Issued` has them; ``own``: by lane the operations that have such.
    ``runs``: (last sequence number, lanes) of the other mma, cp and shift, merged while the same
    lanes issue them; ``latest``: by lanes that have issued such, and ld and st, where they were
    then (component, tick). ``granted``: the address a pending alloc got, ``met``: the partner has
    carried out what it waits for with it. ``loaded``: by number of a tcgen05.ld its last execution;
    ``given``: those of which the next tcgen05.st stores something that is made of all registers
    (U33).
    """

    seen: dict[int, Clock] = field(default_factory=dict)
    spares: list[tuple[int, int]] = field(default_factory=list)
    own: dict[int, Issued] = field(default_factory=dict)
    runs: list[tuple[int, int]] = field(default_factory=list)
    latest: dict[int, tuple[int, int]] = field(default_factory=dict)
    granted: int | None = None
    met: bool = False
    loaded: dict[int, int] = field(default_factory=dict)
    given: frozenset[int] = frozenset()
    finish: float = 0.0

    def own_of(self, lane: int) -> Issued | None:
        """What a lane issues apart from the others, as long as there are components for it."""
        if lane not in self.own and self.spares:
            self.own[lane] = Issued(*self.spares.pop())
        return self.own.get(lane)

    def see(self, lanes: int, clock: Clock) -> None:
        """``lanes`` execute fence::after_thread_sync with row S of ``clock``."""
        for earlier in [mask for mask in self.seen if not mask & ~lanes]:
            del self.seen[earlier]
        self.seen[lanes] = clock

    def saw(self, lanes: int, component: int, count: int) -> bool:
        """Whether a lane that acts alone may rely on so much of a component since its last fence;
        of lanes that act together, one of them."""
        several = bool(lanes & (lanes - 1))
        return any(
            bool(clock[component] >= count) and (several or bool(mask & lanes))
            for mask, clock in self.seen.items()
        )

    def issued(self, sequence: int, lanes: int) -> None:
        """Records that ``lanes`` issued operation ``sequence``."""
        if self.runs and self.runs[-1][1] == lanes:
            self.runs.pop()
        self.runs.append((sequence, lanes))

    def tracked(self, lane: int) -> int:
        """How many operations a commit by ``lane`` knows to be complete when it fires (G26)."""
        count = 0
        for last, lanes in self.runs:
            if not lanes >> lane & 1:
                break
            count = last
        return count
