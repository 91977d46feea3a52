"""The closed set of effects an instruction can have; analyses match on these, never on classes.

`tilesim.sim.machine.execute` has an executor for each. An instruction's code only computes
values."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Literal

from tilesim.ir.declarations import Fragment, Mbar, TensorMap, Unsaid, View
from tilesim.ir.expr import Expr, Var, constant
from tilesim.ir.tensor_memory import TmemLayout, TmemView, in_lanes
from tilesim.records import dataclass

Proxy = Literal["generic", "async", "tensormap"]
Group = Literal["bulk", "cp.async", "wgmma", "tcgen05", "tcgen05.ld", "tcgen05.st"]
#: which threads a strong operation or fence is about (H1)
Scope = Literal["cta", "cluster", "gpu", "sys"]
#: how strong an access is, and what it hands over (H3)
Sem = Literal["weak", "relaxed", "acquire", "release", "acq_rel"]
#: what a proxy fence takes knowledge from and to: generic accesses, asynchronous ones by state
#: space, the middle of a pair of one-way fences (H10); ``own``: the executing CTA's shared memory
Side = Literal["generic", "async.shared", "async.own", "async.global", "half", "half.own"]
#: the tcgen05 operations that access tensor memory
TmemKind = Literal["mma", "cp", "shift", "ld", "st"]


@dataclass(frozen=True, slots=True)
class Reads:
    """Reads memory through ``proxy``; ``asynchronous`` if it may happen after the instruction.

    ``lanes``: every active lane below it reads the view that its own operands name; 0: the warp
    reads one view, each lane what it holds of the fragment ``held``, if any, or what is not known.
    ``elsewhere``: other devices take part, and it orders nothing here (H22). ``ignored``: so many
    bytes at either end are not read. ``element``: of a vector that acquires or releases, which one
    of how many it is, in the order in which they are executed (H15). ``noncoherent``: through a
    cache that does not see what the grid writes (H25).
    """

    view: View
    proxy: Proxy = "generic"
    asynchronous: bool = False
    lanes: int = 0
    sem: Sem = "weak"
    scope: Scope = "cta"
    held: Fragment | Unsaid | None = None
    elsewhere: bool = False
    ignored: tuple[Expr, Expr] | None = None
    element: tuple[int, int] | None = None
    noncoherent: bool = False


@dataclass(frozen=True, slots=True)
class Writes:
    """Writes memory through ``proxy``; ``asynchronous`` if it may happen after the instruction.

    ``lanes``, ``held``, ``elsewhere``, ``element`` as for `Reads`. ``value``: what is written, or
    the effect that answers it; None: what the instruction computes, or what its copy has read,
    ``combine``d with what is there (``cas``: if that is ``compare``), so many ``times``. ``lost``:
    nothing of use is written, in words: what is there afterwards is not to be read.
    """

    view: View
    proxy: Proxy = "generic"
    asynchronous: bool = False
    lanes: int = 0
    sem: Sem = "weak"
    scope: Scope = "cta"
    value: Expr | Effect | None = None
    combine: str | None = None
    mask: Expr | None = None
    held: Fragment | Unsaid | None = None
    elsewhere: bool = False
    compare: Expr | None = None
    times: int = 1
    element: tuple[int, int] | None = None
    lost: str = ""


@dataclass(frozen=True, slots=True)
class RemoteStore:
    """Writes a peer's shared memory later, through the generic proxy: every lane its ``value``.

    ``combine``: the reduction with what is there; None: a plain store."""

    view: View
    value: Expr
    combine: str | None = None


@dataclass(frozen=True, slots=True)
class ReadsMap:
    """Copies from the global tensor of a tensor map: what ``mode`` says, at run-time ``coords``.

    ``info``: the further operands of the im2col modes."""

    map: TensorMap
    coords: tuple[Expr, ...] = ()
    mode: str = "tile"
    info: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class WritesMap:
    """Copies to the global tensor of a tensor map, as `ReadsMap`, or ``combine``s with it."""

    map: TensorMap
    coords: tuple[Expr, ...] = ()
    mode: str = "tile"
    combine: str | None = None


@dataclass(frozen=True, slots=True)
class Prefetches:
    """Asks for what lies at a view, or what a tensor map selects, to be brought near (a hint)."""

    view: View | None = None
    map: TensorMap | None = None
    coords: tuple[Expr, ...] = ()
    mode: str = "tile"
    info: tuple[Expr, ...] = ()

    @property
    def box(self) -> ReadsMap | None:
        """What a copy of what the map selects would read."""
        return None if self.map is None else ReadsMap(self.map, self.coords, self.mode, self.info)


@dataclass(frozen=True, slots=True)
class Defines:
    """Writes a scalar register in the active lanes.

    ``value``: an expression, the view whose element was read, or the effect that answers it (an
    arrival's token, whether a phase is over); None: what the instruction computes. ``divergent``:
    it may differ between lanes although no operand does. ``chance``: what the value depends on
    besides the operands, so that no run shows all of them; ``elsewhere``: others than this grid
    decide it. ``unknown``: why it is not computed; its value is not known. ``group``: of the
    asynchronous operation that sets it."""

    var: Var
    value: Expr | View | Effect | None = None
    divergent: bool = False
    oracle: str = ""
    elsewhere: bool = False
    unknown: str = ""
    group: Group | None = None


@dataclass(frozen=True, slots=True)
class UsesFragment:
    """Reads (or, if ``write``, overwrites) a register tile.

    ``partly``: only the active lanes' registers of it, with whatever they hold; ``moved``: by a
    move of a constant or a register into them. ``asynchronous``: maybe after the instruction.
    ``product``: the (M, N, K) of an asynchronous product that accumulates in it; those of one shape
    may follow each other (F6). ``keeps``: whether what was there is added. ``value``: what is
    written, as another effect has read it; None: as computed. ``variable``: its registers' name."""

    fragment: Fragment
    write: bool = False
    asynchronous: bool = False
    partly: bool = False
    moved: bool = False
    product: tuple[int, int, int] | None = None
    keeps: Expr | None = None
    value: View | TmemView | None = None
    variable: str = ""


@dataclass(frozen=True, slots=True)
class InitsMbarrier:
    """Starts a barrier object with an expected arrival count."""

    mbar: Mbar
    count: Expr


@dataclass(frozen=True, slots=True)
class InvalidatesMbarrier:
    """Ends the lifetime of a barrier object."""

    mbar: Mbar


@dataclass(frozen=True, slots=True)
class Arrives:
    """Counts arrivals on a barrier, for every active lane; answers the token of its phase (A20).

    ``bytes``: the tx-count is raised by so many in the same step. ``drop``: later phases expect
    so many arrivals fewer. ``partial``: it must not end the phase. ``asynchronous``: later, when
    the operations of ``group`` that the thread has issued are complete; ``lent``: the pending count
    is raised at once by what arrives then. ``multicast``: on the same barrier of every CTA in the
    mask."""

    mbar: Mbar
    count: Expr
    bytes: Expr | None = None
    sem: Sem = "release"
    scope: Scope = "cta"
    drop: bool = False
    partial: bool = False
    asynchronous: bool = False
    group: Group | None = None
    lent: bool = False
    multicast: Expr | None = None


@dataclass(frozen=True, slots=True)
class Expects:
    """Raises a barrier's tx-count, apart from any arrival."""

    mbar: Mbar
    bytes: Expr
    scope: Scope = "cta"


@dataclass(frozen=True, slots=True)
class Completes:
    """Lowers a barrier's tx-count, now or (``asynchronous``) when a copy has landed.

    ``bytes`` None: by a number that is not known. ``multicast`` as for `Arrives`. ``pair``: on the
    barrier of one CTA of each pair (B26, B27)."""

    mbar: Mbar
    bytes: Expr | None
    multicast: Expr | None = None
    asynchronous: bool = False
    pair: bool = False
    scope: Scope = "cta"


@dataclass(frozen=True, slots=True)
class Waits:
    """Blocks until the phase of a barrier that ``phase`` names has completed.

    ``phase``: a parity, or (not ``parity``) a token. ``poll``: it answers whether the phase has
    completed; one that ``suspends`` may first wait for that for a time, and give up."""

    mbar: Mbar
    phase: Expr
    parity: bool = True
    sem: Sem = "acquire"
    scope: Scope = "cta"
    poll: bool = False
    suspends: bool = False


@dataclass(frozen=True, slots=True)
class PendingCount:
    """Answers the pending count that the token of a partial arrival holds (A.4)."""

    token: Expr


@dataclass(frozen=True, slots=True)
class JoinsBarrier:
    """Takes part in a named barrier (``waits``: blocks until it completes).

    ``threads``: how many it waits for, None for all of the CTA. ``aligned``: all lanes of the warp
    execute it together, and all threads of a round the same instruction (E8). ``vote``: a
    predicate; the effect answers, in a barrier that waits, what ``reduction`` makes of all of them.
    """

    id: Expr
    threads: Expr | None
    waits: bool
    aligned: bool = True
    vote: Expr | None = None
    reduction: Literal["and", "or", "popc"] = "or"

    def count(self, all_threads: int) -> int | None:
        """How many threads it waits for, of a CTA of ``all_threads``; None: the run says it."""
        return all_threads if self.threads is None else constant(self.threads)


@dataclass(frozen=True, slots=True)
class JoinsCluster:
    """Arrives at, or waits for, the cluster barrier.

    ``sem``: of the arrival; a relaxed one hands nothing over. ``aligned`` as for `JoinsBarrier`."""

    arrives: bool
    sem: Sem = "release"
    aligned: bool = True


@dataclass(frozen=True, slots=True)
class WaitsGrids:
    """Blocks until the grids that this one depends on have completed (D17)."""


@dataclass(frozen=True, slots=True)
class Issues:
    """The asynchronous operation joins the open group of the executing thread.

    ``piece``: a copy that lanes make together goes in pieces of so many bytes, which they take in
    turn if it is ``shared_out``; else each lane copies all of them. ``real``: how many bytes are
    copied; what is written behind them is zero. None: all.
    ``work``: the (M, N, K) of 16-bit elements that the tensor core of a CTA multiplies meanwhile.
    ``pair``: it works in both CTAs of a pair, at the same addresses (G10)."""

    group: Group
    piece: int = 0
    shared_out: bool = True
    real: Expr | None = None
    work: tuple[int, int, int] | None = None
    pair: bool = False


@dataclass(frozen=True, slots=True)
class Commits:
    """Closes a group of asynchronous operations of the executing thread or warpgroup."""

    group: Group


@dataclass(frozen=True, slots=True)
class WaitsGroup:
    """Blocks until at most ``pending`` newest groups are unfinished."""

    group: Group
    pending: int
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Orders:
    """A fence; the name is the mnemonic.

    ``acquires``, ``releases``: it makes relaxed operations before or after it, of at least
    ``scope``, acquire or release (H3). ``near``: only what concerns shared memory, through
    operations on objects there (H18). ``inits``: of the thread's accesses, only what starts
    mbarriers is handed over (D6). ``sc``: of such fences one comes before the other."""

    fence: str
    acquires: bool = False
    releases: bool = False
    scope: Scope = "cta"
    in_shared: bool = False
    inits: bool = False
    sc: bool = False


@dataclass(frozen=True, slots=True)
class Crosses:
    """A proxy fence: what accesses of ``source`` see becomes visible to those of ``targets``."""

    fence: str
    source: Side
    targets: tuple[Side, ...]


@dataclass(frozen=True, slots=True)
class ReleasesMaps:
    """A fence that hands tensor maps over to the tensormap proxy: all that are known to be written,
    or the one at ``view`` (B14)."""

    scope: Scope
    view: View | None = None


@dataclass(frozen=True, slots=True)
class AcquiresMap:
    """A fence after which copies use the tensor map at ``view`` as it was released (B14)."""

    view: View
    scope: Scope


@dataclass(frozen=True, slots=True)
class Gathers:
    """The lanes of ``mask`` execute the instruction together.

    ``mask`` None: all lanes of the warp that have not exited. ``rule`` is the number of the rule.
    ``orders``: what they did before comes before what any of them does after (E11). ``whole``: all
    32 lanes of the warp, none of which has exited."""

    mask: Expr | None
    rule: str
    orders: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True)
class GathersWarps:
    """The four warps of a warpgroup execute the instruction together, each with all its lanes, and
    name the same shared operands (F1, F10)."""


@dataclass(frozen=True, slots=True)
class Shuffles:
    """Answers ``value`` of the lane ``lane``, or of the one that far up, down or across (bfly);
    it executes the instruction, too (PTX 9.7.9.6)."""

    value: Expr
    lane: Expr
    mode: Literal["idx", "up", "down", "bfly"]


@dataclass(frozen=True, slots=True)
class Agrees:
    """An operand that is the same in all active lanes."""

    value: Expr


@dataclass(frozen=True, slots=True)
class FencesFragments:
    """What the thread has done with register tiles comes before its later wgmma (F3)."""


@dataclass(frozen=True, slots=True)
class Elects:
    """Answers 1 in one of the active lanes, 0 in the others; which one is unspecified (E12)."""


@dataclass(frozen=True, slots=True)
class Exits:
    """The active lanes end."""


@dataclass(frozen=True, slots=True)
class Cancels:
    """Asks to cancel a cluster that has not been launched; what is written says which (D18)."""


@dataclass(frozen=True, slots=True)
class Queries:
    """Answers a part of the response to such a request (D19): whether a cluster was cancelled, or a
    coordinate of its first CTA. The instruction reads it from memory, or it is in ``registers``,
    two of 64 bits."""

    part: Literal["canceled", "x", "y", "z"]
    registers: tuple[Expr, Expr] | None = None


@dataclass(frozen=True, slots=True)
class Registers:
    """Returns registers to, or takes them from, the CTA's pool (setmaxnreg)."""

    count: int
    increase: bool


@dataclass(frozen=True, slots=True)
class UsesTmem:
    """Reads or writes tensor memory asynchronously, ordered only as SEMANTICS G.5 and G.6 say.

    ``layout``: which cells; None: a row of ``view`` per lane. ``called``: what findings call the
    operand, if not by its name. ``keeps``: whether what was there is used, too, where it is
    written. ``product``: what identifies a form of product; those of one form that accumulate in
    the same place execute in order (G19). ``value``: the register tile that is written; None: what
    the instruction computes."""

    view: TmemView
    kind: TmemKind
    write: bool = False
    layout: TmemLayout | None = None
    called: str = ""
    keeps: Expr | None = None
    product: Hashable = None
    value: Fragment | None = None

    @property
    def cells(self) -> TmemLayout:
        """Which cells of it."""
        return in_lanes(self.view) if self.layout is None else self.layout

    @property
    def spans(self) -> tuple[TmemView, ...]:
        """Views of consecutive lanes that have all cells, and maybe more."""
        return tuple(self.cells.spans(self.view))


@dataclass(frozen=True, slots=True)
class OrdersTmem:
    """What the thread has issued on tensor memory is part of what it hands over next (``before``),
    or what has been handed to it comes before what it issues next (G22)."""

    before: bool


@dataclass(frozen=True, slots=True)
class AllocatesTmem:
    """Takes columns of tensor memory once they are free; answers their address. ``pair`` (G9)."""

    columns: int
    pair: bool = False


@dataclass(frozen=True, slots=True)
class FreesTmem:
    """Gives columns of tensor memory back; ``pair`` as for `AllocatesTmem`."""

    address: Expr
    columns: int
    pair: bool = False


@dataclass(frozen=True, slots=True)
class RelinquishesTmem:
    """The CTA will take no more columns of tensor memory; ``pair`` as for `AllocatesTmem`."""

    pair: bool = False


Effect = (
    Reads | Writes | RemoteStore | ReadsMap | WritesMap | Prefetches | Defines | UsesFragment
    | InitsMbarrier | InvalidatesMbarrier | Arrives | Expects | Completes | Waits | PendingCount
    | JoinsBarrier | JoinsCluster | WaitsGrids | Issues | Commits | WaitsGroup | Orders | Crosses
    | ReleasesMaps | AcquiresMap | Gathers | GathersWarps | Shuffles | Agrees | FencesFragments
    | Elects | Exits | Cancels | Queries | Registers | UsesTmem | OrdersTmem | AllocatesTmem
    | FreesTmem | RelinquishesTmem
)  # fmt: skip
