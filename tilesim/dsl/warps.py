"""Warps of a CTA that work together, and named barriers with ids that need not be picked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from tilesim.dsl.methods import records
from tilesim.dsl.region import Region
from tilesim.errors import reject
from tilesim.ir.expr import Expr, Operand, Var, as_expr, constant
from tilesim.ir.loc import Loc, caller
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import BarArrive, BarRed, BarSync

#: a CTA has the named barriers 0 to 15; number 0 is that of ``__syncthreads()``
_IDS = range(1, 16)
_WARP = 32


class Builds(Protocol):
    """What a role is a region of: the builder."""

    def emit(self, op: Op) -> None:
        """Appends an instruction to the open region."""
        ...

    def one_thread(self, warp: int = 0) -> Region[None]:
        """A region for one lane of one warp."""
        ...


class NamedBarriers:
    """The named barriers of a kernel: which ids are taken, and by which line."""

    def __init__(self, builder: Builds) -> None:
        self._k = builder
        self._picked: dict[int, Loc] = {}
        self._given: dict[int, Loc] = {}
        self._of: dict[frozenset[int], NamedBarrier] = {}

    def pick(self, id: Operand, loc: Loc) -> None:
        """The kernel names an id itself.

        Raises:
            InvalidProgram: the id was given to a barrier that has picked none.
        """
        number = constant(as_expr(id))
        if number in self._given:
            raise reject(
                f"named barrier {number} is in use since {self._given[number]}",
                loc, fix="use that barrier's handle, another id, or k.named_barrier(...) here, too",
            )  # fmt: skip
        if number is not None:
            self._picked.setdefault(number, loc)

    def new(self, threads: int | None, loc: Loc) -> NamedBarrier:
        """One of ``threads`` threads with an id that the kernel has not named so far.

        Raises:
            InvalidProgram: all are taken.
        """
        free = next((i for i in _IDS if i not in self._picked and i not in self._given), None)
        if free is None:
            raise reject("all 15 named barriers are in use", loc,
                         fix="warps that join at different times can share one")  # fmt: skip
        self._given[free] = loc
        return NamedBarrier(self._k, free, threads)

    def of(self, warps: Sequence[int], loc: Loc) -> NamedBarrier:
        """The one at which these warps meet, whichever role of theirs asks. Raises like `new`."""
        key = frozenset(warps)
        if key not in self._of:
            self._of[key] = self.new(_WARP * len(warps), loc)
        return self._of[key]


class NamedBarrier:
    """A named barrier (SEMANTICS E.1) of ``threads`` threads, None: all of the CTA.

    ``id`` is one that no other barrier of the kernel has.
    """

    def __init__(self, builder: Builds, id: int, threads: int | None) -> None:
        self._k = builder
        self.id = id
        self.threads = threads

    @property
    def _count(self) -> Expr | None:
        return None if self.threads is None else as_expr(self.threads)

    @records(BarSync)
    def sync(self, *, aligned: bool = False) -> None:
        """``barrier.sync``: arrives and waits until all the barrier's threads have arrived.

        ``aligned``: all lanes of a warp are known to execute it together (``bar.sync``).
        """
        self._k.emit(
            BarSync(id=as_expr(self.id), threads=self._count, aligned=aligned, loc=caller())
        )

    @records(BarArrive)
    def arrive(self, *, aligned: bool = False) -> None:
        """``barrier.arrive``: arrives and goes on; others wait with `sync`."""
        loc = caller()
        count = self._count
        if count is None:
            raise reject("an arrival that does not wait needs the number of threads that join", loc,
                         fix="k.named_barrier(threads)")  # fmt: skip
        self._k.emit(BarArrive(id=as_expr(self.id), threads=count, aligned=aligned, loc=loc))

    @records(BarRed)
    def red(
        self,
        result: Var,
        value: Operand,
        *,
        op: Literal["and", "or", "popc"] = "or",
        aligned: bool = False,
    ) -> None:
        """``barrier.red``: `sync`, and ``result`` is the reduction of all threads' ``value``."""
        self._k.emit(
            BarRed(result=result, id=as_expr(self.id), value=as_expr(value), op=op,
                   threads=self._count, aligned=aligned, loc=caller())
        )  # fmt: skip


class Warps:
    """The warps that execute a role: their own barrier, and one thread of them."""

    def __init__(self, builder: Builds, barriers: NamedBarriers, members: Sequence[int]) -> None:
        self._k = builder
        self._barriers = barriers
        #: numbers of the warps in the CTA
        self.members = tuple(members)

    @property
    def threads(self) -> int:
        """How many threads they have."""
        return _WARP * len(self.members)

    @property
    def barrier(self) -> NamedBarrier:
        """The named barrier of these warps, which gets its id when it is first asked for."""
        return self._barriers.of(self.members, caller())

    def sync(self, *, aligned: bool = False) -> None:
        """A barrier of all threads of these warps: `barrier`."""
        self.barrier.sync(aligned=aligned)

    def one_thread(self, index: int = 0) -> Region[None]:
        """A region for the elected thread of one of these warps; the others pass by it."""
        if not 0 <= index < len(self.members):
            raise reject(f"the role has {len(self.members)} warps, there is no warp {index} of it",
                         caller())  # fmt: skip
        return self._k.one_thread(self.members[index])
