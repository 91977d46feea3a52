"""Small programs: what each warp does, as data. The reference runs them, `small` translates them.

A program has one or two CTAs of the same shape. Words of shared memory are 16 bytes, every CTA has
its own, and so has it its own barriers. In a loop, ``stages`` > 1 makes a step walk a ring of
barriers (and words): iteration i uses number ``barrier + i % stages``; a ``carried`` parity is the
one of the ring's round, i // stages. Iterations count on through the loops around.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from tests.sim.steps_grid import Cancel as Cancel
from tests.sim.steps_grid import Forever as Forever
from tests.sim.steps_grid import Get as Get
from tests.sim.steps_grid import If as If
from tests.sim.steps_grid import Leave as Leave
from tests.sim.steps_grid import Put as Put
from tests.sim.steps_grid import Query as Query
from tests.sim.steps_grid import Sem as Sem
from tests.sim.steps_grid import SpinTicket as SpinTicket
from tests.sim.steps_grid import Ticket as Ticket
from tests.sim.steps_grid import Tiles as Tiles
from tests.sim.steps_lanes import CpAsync as CpAsync
from tests.sim.steps_lanes import CpWait as CpWait
from tests.sim.steps_lanes import Elect as Elect
from tests.sim.steps_lanes import Gather as Gather
from tests.sim.steps_lanes import Lanes as Lanes
from tests.sim.steps_lanes import Own as Own
from tests.sim.steps_lanes import WarpSync as WarpSync
from tests.sim.steps_tensor import Cp as Cp
from tests.sim.steps_tensor import Ld as Ld
from tests.sim.steps_tensor import Mma as Mma
from tests.sim.steps_tensor import St as St
from tests.sim.steps_tensor import TensorCommit as TensorCommit
from tests.sim.steps_tensor import TensorFence as TensorFence
from tests.sim.steps_tensor import TensorWait as TensorWait
from tests.sim.steps_wgmma import WgCommit as WgCommit
from tests.sim.steps_wgmma import WgFence as WgFence
from tests.sim.steps_wgmma import WgMma as WgMma
from tests.sim.steps_wgmma import WgUse as WgUse
from tests.sim.steps_wgmma import WgWait as WgWait

#: bytes of one word: what a copy writes and completes
WORD = 16

Family = Literal["mbarriers", "tensor", "scopes", "reductions", "lanes", "grids", "wgmma"]
Scope = Literal["cta", "cluster", "gpu", "sys"]
Space = Literal["global", "shared::cta", "shared::cluster", "release", "acquire"]


@dataclass(frozen=True)
class Arrive:
    """mbarrier.arrive by one lane, or by all if ``full``; ``relaxed`` publishes nothing.

    ``lanes``: so many are all, if these are not the whole warp (or warpgroup).
    ``cta``: in the CTA of this rank. ``partial``: the form that must not end the phase
    (.noComplete). ``drop``: mbarrier.arrive_drop.
    """

    barrier: int
    count: int = 1
    relaxed: bool = False
    full: bool = False
    cta: int | None = None
    partial: bool = False
    drop: bool = False
    stages: int = 1
    lanes: int = 0


@dataclass(frozen=True)
class ArriveExpect:
    """mbarrier.arrive.expect_tx for this many words."""

    barrier: int
    words: int = 1
    stages: int = 1


@dataclass(frozen=True)
class Expect:
    """mbarrier.expect_tx for this many words."""

    barrier: int
    words: int = 1
    stages: int = 1


@dataclass(frozen=True)
class Complete:
    """mbarrier.complete_tx for this many words: bytes without a copy."""

    barrier: int
    words: int = 1
    stages: int = 1


@dataclass(frozen=True)
class Copy:
    """cp.async.bulk into ``words`` words from ``word`` on, tracked by a barrier.

    ``mask``: into the CTAs of these ranks (multicast), each with its own barrier.
    """

    barrier: int
    word: int
    words: int = 1
    mask: int | None = None
    stages: int = 1


@dataclass(frozen=True)
class Later:
    """cp.async.mbarrier.arrive: an arrival that comes later.

    ``inc``: the phase is made to expect it when the instruction is executed.
    """

    barrier: int
    inc: bool = False
    stages: int = 1


@dataclass(frozen=True)
class Wait:
    """A wait for a parity; ``carried``: it alternates with the iteration (or round of the ring).

    ``relaxed``: it learns of no memory.
    """

    barrier: int
    parity: int
    carried: bool = False
    stages: int = 1
    relaxed: bool = False


@dataclass(frozen=True)
class Peek:
    """test_wait, whose answer only decides whether the next `WaitUnless` waits."""

    barrier: int
    parity: int
    carried: bool = False
    stages: int = 1


@dataclass(frozen=True)
class WaitUnless:
    """A wait, unless the last `Peek` answered yes."""

    barrier: int
    parity: int
    carried: bool = False
    stages: int = 1


@dataclass(frozen=True)
class Poll:
    """test_wait (try_wait if ``blocking``) with a branch on its answer."""

    barrier: int
    parity: int
    then: tuple[Step, ...] = ()
    orelse: tuple[Step, ...] = ()
    blocking: bool = False
    carried: bool = False
    stages: int = 1


@dataclass(frozen=True)
class Init:
    """mbarrier.init."""

    barrier: int
    count: int


@dataclass(frozen=True)
class Inval:
    """mbarrier.inval."""

    barrier: int


@dataclass(frozen=True)
class Read:
    """A load of one word, of the CTA of rank ``cta``; relaxed at ``scope``, weak without one."""

    word: int
    stages: int = 1
    cta: int | None = None
    scope: Scope | None = None
    cell: int | None = None


@dataclass(frozen=True)
class Write:
    """A store to one word, of the CTA of rank ``cta``; relaxed at ``scope``, weak without one.

    ``cell``, of programs of lanes, which otherwise access a cell of their own.
    """

    word: int
    stages: int = 1
    cta: int | None = None
    scope: Scope | None = None
    cell: int | None = None


@dataclass(frozen=True)
class Store:
    """cp.async.bulk from one word to a place of global memory, in the warp's open group."""

    word: int
    place: int
    stages: int = 1


@dataclass(frozen=True)
class Commit:
    """cp.async.bulk.commit_group."""


@dataclass(frozen=True)
class WaitGroup:
    """cp.async.bulk.wait_group; ``read``: for the sources only."""

    pending: int = 0
    read: bool = False


@dataclass(frozen=True)
class Red:
    """A reduction of one word that returns nothing, relaxed: red."""

    word: int
    scope: Scope = "gpu"
    op: Literal["add", "max"] = "add"
    cta: int | None = None
    stages: int = 1


@dataclass(frozen=True)
class Remote:
    """A word of the CTA of rank ``cta`` is written later, with bytes on its barrier.

    ``form``: st.async, red.async, or from the own word ``source`` cp.async.bulk to a peer or
    cp.reduce.async.bulk.
    """

    form: Literal["st", "red", "copy", "reduce"]
    barrier: int
    word: int
    cta: int
    source: int = 0
    stages: int = 1


@dataclass(frozen=True)
class Set:
    """A strong store of ``value`` to a flag (of the CTA of rank ``cta``)."""

    flag: int
    value: int = 1
    release: bool = True
    scope: Scope = "cta"
    cta: int | None = None


@dataclass(frozen=True)
class Add:
    """red.add of 1 to a flag."""

    flag: int
    release: bool = True
    scope: Scope = "cta"
    cta: int | None = None


@dataclass(frozen=True)
class Spin:
    """Strong loads of a flag until it is ``least`` or more."""

    flag: int
    least: int = 1
    acquire: bool = True
    scope: Scope = "cta"
    cta: int | None = None


@dataclass(frozen=True)
class MemoryFence:
    """fence.acq_rel."""

    scope: Scope = "cta"


@dataclass(frozen=True)
class Fence:
    """fence.proxy.async, of one state ``space`` or of all; of a cluster, one of its two halves."""

    space: Space | None = None


@dataclass(frozen=True)
class Join:
    """bar.sync, or (not ``waits``) bar.arrive, of this many warps of the CTA."""

    id: int
    warps: int
    waits: bool = True


@dataclass(frozen=True)
class ClusterArrive:
    """barrier.cluster.arrive."""

    relaxed: bool = False


@dataclass(frozen=True)
class ClusterWait:
    """barrier.cluster.wait."""


@dataclass(frozen=True)
class When:
    """Steps of the iterations that leave ``rest`` when divided by ``modulus``."""

    modulus: int
    rest: int
    body: tuple[Step, ...]


@dataclass(frozen=True)
class Loop:
    """A run-time loop."""

    trips: int
    body: tuple[Step, ...]


Step = (
    Arrive | ArriveExpect | Expect | Complete | Copy | Later | Wait | Peek | WaitUnless | Poll
    | Init | Inval | Read | Write | Store | Commit | WaitGroup | Fence | Join
    | ClusterArrive | ClusterWait | When | Loop
    | Red | Remote | Set | Add | Spin | MemoryFence
    | Mma | Cp | Ld | St | TensorWait | TensorFence | TensorCommit
    | Lanes | Elect | WarpSync | Gather | Own | CpAsync | CpWait
    | WgFence | WgMma | WgCommit | WgWait | WgUse
    | Put | Get | Ticket | SpinTicket | If | Tiles | Forever | Leave | Cancel | Query
)  # fmt: skip


#: steps on a slot of tensor memory
ON_SLOT = (Mma, Cp, Ld, St)


#: steps of warpgroups
OF_GROUPS = (WgFence, WgMma, WgCommit, WgWait, WgUse)


@dataclass(frozen=True)
class Small:
    """A program: the steps of each warp and the arrival count of each mbarrier.

    Barriers with count 0 are not initialised at the start. Words are written by warp 0 before
    everything else; ``fenced``: and made known to the async proxy. With two ``ctas`` the first half
    of the warps is in CTA 0. There may be several ``clusters`` of them, which all are resident if
    the launch is ``cooperative``. ``flags`` are shared memory that starts as 0, ``slots`` are
    accumulators in tensor memory, which all warps free together at the end. ``floats``: words are
    of a floating-point type. ``family`` names the kind of steps that it is made of.
    """

    warps: tuple[tuple[Step, ...], ...]
    counts: tuple[int, ...]
    words: int = 1
    fenced: bool = True
    ctas: int = 1
    flags: int = 0
    slots: int = 0
    floats: bool = False
    family: Family = "mbarriers"
    clusters: int = 1
    cooperative: bool = False

    @property
    def operands(self) -> bool:
        """Whether words are operands of matrix products, of bf16."""
        return bool(self.slots) or self.family == "wgmma"

    @property
    def size(self) -> int:
        """Number of steps."""
        return sum(1 for steps in self.warps for _ in every(steps))

    @property
    def width(self) -> int:
        """Warps per CTA."""
        return len(self.warps) // self.ctas // self.clusters


def every(steps: tuple[Step, ...]) -> Iterator[Step]:
    """The steps and what is in them."""
    for step in steps:
        yield step
        for part in parts(step):
            yield from every(part)


def parts(step: Step) -> tuple[tuple[Step, ...], ...]:
    """The bodies of a step that has some."""
    match step:
        case (
            Loop(body=body) | When(body=body) | Elect(body=body) | If(body=body)
            | Tiles(body=body) | Forever(body=body)
        ):  # fmt: skip
            return (body,)
        case Poll(then=then, orelse=orelse) | Lanes(body=then, orelse=orelse):
            return (then, orelse)
        case _:
            return ()


def with_parts(step: Step, bodies: tuple[tuple[Step, ...], ...]) -> Step:
    """The step with other bodies."""
    match step, bodies:
        case Loop() | When() | Elect() | If() | Tiles() | Forever(), (body,):
            return replace(step, body=body)
        case Poll(), (then, orelse):
            return replace(step, then=then, orelse=orelse)
        case Lanes(), (then, orelse):
            return replace(step, body=then, orelse=orelse)
        case _:
            return step


def unrolled(steps: tuple[Step, ...], trip: int | None = None) -> Iterator[Step]:
    """The steps as executed in iteration ``trip``: no loops, no rings; polls keep their arms."""
    for step in steps:
        match step:
            case Loop(trips=trips, body=body):
                for i in range(trips):
                    yield from unrolled(body, (trip or 0) * trips + i)
            case When(modulus=modulus, rest=rest, body=body):
                if (trip or 0) % modulus == rest:
                    yield from unrolled(body, trip)
            case Poll(then=then, orelse=orelse):
                arms = tuple(unrolled(then, trip)), tuple(unrolled(orelse, trip))
                yield _settled(replace(step, then=arms[0], orelse=arms[1]), trip or 0)
            case Lanes() | Elect():
                arms_ = tuple(tuple(unrolled(part, trip)) for part in parts(step))
                yield with_parts(step, arms_)
            case Own(step=inner):
                settled = _settled(inner, trip or 0)
                assert isinstance(settled, type(inner))
                yield Own(settled)
            case _:
                yield _settled(step, trip or 0)


def _settled(step: Step, trip: int) -> Step:
    """The step with the barrier, word and parity of an iteration."""
    stages = getattr(step, "stages", 1)
    change: dict[str, Any] = {}
    if stages > 1:
        for name in ("barrier", "word", "place"):
            if hasattr(step, name):
                change[name] = getattr(step, name) + trip % stages
        change["stages"] = 1
    slots = getattr(step, "slots", 1)
    if slots > 1:
        change |= {"slot": getattr(step, "slot", 0) + trip % slots, "slots": 1}
    if isinstance(step, (Wait, Peek, WaitUnless, Poll)) and step.carried:
        change |= {"parity": step.parity ^ (trip // stages & 1), "carried": False}
    return replace(step, **change) if change else step


def mapped(steps: tuple[Step, ...], change: Callable[[Step], Step]) -> tuple[Step, ...]:
    """The steps, each replaced by ``change`` of it, inner ones first."""
    return tuple(
        change(with_parts(step, tuple(mapped(part, change) for part in parts(step))))
        for step in steps
    )
