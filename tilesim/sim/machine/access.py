"""One recorded memory access: its agent, its kind, and from which clock value on it is ordered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tilesim.ir.effects import Reads
from tilesim.ir.frozen import cached
from tilesim.records import dataclass
from tilesim.sim.machine.clock import NEVER

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from tilesim.arith.byte_set import ByteSet
    from tilesim.ir.declarations import Unsaid
    from tilesim.ir.fragments import Held
    from tilesim.ir.mir import Mir
    from tilesim.ir.op import Op
    from tilesim.ir.ops.fence import FenceScope
    from tilesim.sim.machine.unknown import Unknown
    from tilesim.sim.machine.warp import Agent

#: see `Access.among`
EVERY = -1
#: `Access.stored` of lanes that store different numbers in one place: one of them stays
ONE_OF_SEVERAL = "one of several numbers"


class Touched(Protocol):
    """What is accessed at once."""

    bytes: ByteSet


@dataclass(frozen=True, eq=False, slots=True)
class Left:
    """What lanes leave in memory: by the address where each piece begins, a name of what is there.
    Pieces are of one size and lie at multiples of it."""

    pieces: Mapping[int, bytes]


def leave_the_same(one: Hashable, other: Hashable) -> bool:
    """Whether two of `Access.stored`, by one instruction, are the same wherever they overlap."""
    if isinstance(one, Left) and isinstance(other, Left):
        return all(other.pieces.get(at, name) == name for at, name in one.pieces.items())
    return one == other and one != ONE_OF_SEVERAL


@dataclass(eq=False, slots=True)
class Access:
    """An access by ``warp`` (or an asynchronous operation it issued).

    It happens before an observer whose clock has ``component`` at ``tick`` or later. For an
    asynchronous operation (``in_flight`` until then) the component is the barrier phase or group
    whose completion publishes it. ``scope``: of a relaxed or stronger scalar access, an atomic or a
    reduction; two of them do not race if their scopes include each other's thread (H2, H6). None
    for a weak access.
    """

    warp: Agent
    op: Op
    component: int
    tick: int
    asynchronous: bool
    write: bool
    scope: FenceScope | None = None
    engine: bool = False
    #: those that make it
    lanes: int = 0xFFFFFFFF
    #: lanes of which each touches its own share of the footprint's addresses, in their order;
    #: `EVERY`: each of ``lanes`` touches all of them; 0: it is not known which touches what
    among: int = 0
    #: if not 0, these lanes take so many bytes of the footprint at a time, in turn, or what they
    #: hold of a fragment; each what is not known
    piece: int | Held | Unsaid = 0
    #: which collective instruction of a warp of several parts it belongs to, 0 for others
    iteration: int = 0
    #: by component and bytes the first access that came after it and does not stand in for it: of a
    #: write an asynchronous read, and any write (`tilesim.sim.observers.races`)
    later: dict[tuple[int, Touched], Access] | None = None
    #: of a weak store, to which others by the same instruction need not be ordered (H23): accesses
    #: that it has superseded, which they have to come after all the same, with their footprints
    over: tuple[tuple[Any, Access], ...] = ()
    #: another component that publishes it, and the tick: of a map that a copy reads, and of an
    #: element of a vector that releases
    also: tuple[int, int] | None = None
    #: the number that a weak store leaves in each element, or a name of what it leaves where; None:
    #: that is not known
    stored: Hashable = None
    #: what says whether it is made, if that is not known
    may_access: Unknown | None = None
    #: of a strong write: which one of its machine (`tilesim.sim.machine.word_order`)
    number: int | None = None

    def precedes(self, access: Access, footprint: Touched) -> None:
        """An access to these bytes came after this one."""
        if self.later is None:
            self.later = {}
        self.later.setdefault((access.component, footprint), access)

    @property
    def bridged(self) -> bool:
        """True for a copy of the generic proxy (cp.async) that once complete is taken to be visible
        to the async proxy: a switch of `practice` (U14)."""
        return self.engine and self.asynchronous

    @property
    def in_flight(self) -> bool:
        """True until the operation's completion is assigned to a phase or group."""
        return self.tick == NEVER


# ------------------- loads through a cache that is not coherent with what the grid writes (H25)

# ``ld.global.nc`` is for memory that is read-only for the duration of the kernel (PTX 9.7.9.9), and
# so are constants and parameters. A store reaches that cache at the end of the kernel only:
# barriers, fences, and acquires order nothing there.


@cached
def reads_noncoherently(op: Op) -> bool:
    """Whether what an instruction reads goes through that cache."""
    return any(isinstance(effect, Reads) and effect.noncoherent for effect in op.effects())


@cached
def has_noncoherent_loads(mir: Mir) -> bool:
    """Whether a program has such loads."""
    return any(effect.noncoherent for _, effect in mir.all_of(Reads))


def noncoherent(access: Access, record: Access) -> bool:
    """Whether one of two accesses to the same bytes is such a load and the other a write."""
    return any(
        not one.write and other.write and reads_noncoherently(one.op)
        for one, other in ((access, record), (record, access))
    )
