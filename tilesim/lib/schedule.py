"""Which output tile a CTA computes next: rasterisation, and tiles taken over from others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from tilesim.dsl.arguments import as_count
from tilesim.dsl.builder import Builder
from tilesim.dsl.region import region
from tilesim.errors import reject
from tilesim.ir.declarations import GlobalTensor, SharedTensor
from tilesim.ir.expr import Expr, Operand, as_expr, minimum
from tilesim.ir.loc import caller
from tilesim.ir.ops.mbarrier import Scope
from tilesim.lib.pipeline import Pipeline
from tilesim.records import dataclass, field

#: findings name the kernel's lines, not the ones in this file
__tilesim_helper__ = True


def rasterised(tile: Operand, down: Operand, across: int, width: int) -> tuple[Expr, Expr]:
    """(row, column) of output tile number ``tile`` in a grid of ``down`` x ``across`` tiles.

    The tiles are numbered in vertical strips of ``width`` columns (the last may be narrower),
    within a strip row by row. CTAs with neighbouring numbers then share rows of A and columns of B,
    which makes better use of the L2 cache than whole rows of tiles do.
    """
    number, strip = as_expr(tile), as_expr(down) * width
    first = number // strip * width
    inside, columns = number % strip, minimum(width, across - first)
    return inside // columns, first + inside % columns


@dataclass(frozen=True)
class Striding:
    """The tiles of a persistent CTA: its own number, and every ``ctas``-th after it.

    In clusters of ``cluster`` CTAs the tiles are those of a cluster, and ``ctas`` are clusters.

    ::

        tiles = Striding(k, down * across, ctas)
        with tiles.each() as tile, k.loop(iterations) as kt:
            slot = pipe[tiles.turn(tile) * iterations + kt]
    """

    k: Builder = field(repr=False)
    tiles: Operand
    ctas: int
    cluster: int = 1

    called: ClassVar[str] = "tiles"

    def __post_init__(self) -> None:
        as_expr(self.tiles)
        for what, number in (("ctas", self.ctas), ("cluster", self.cluster)):
            if as_count(number, what, caller()) < 1:
                raise reject(f"{what} is {number}, there is at least one", caller())

    @property
    def recorder(self) -> Builder:
        """What records the statements of the kernel."""
        return self.k

    @region
    def each(self, name: str = "tile") -> Iterator[Expr]:
        """A loop over the tile numbers; every role that works on tiles has one."""
        own = self.k.cta_x if self.cluster == 1 else self.k.cluster_id
        with self.k.loop(own, self.tiles, self.ctas, name=name) as tile:
            yield tile

    def turn(self, tile: Expr) -> Expr:
        """How many tiles this CTA has done before ``tile``: rings count on from tile to tile."""
        return tile // self.ctas


@dataclass(frozen=True)
class GroupTile:
    """A tile of one of several groups of rows.

    ``row`` and ``column`` count tiles, ``row`` within the group, whose rows are ``begin`` up to
    before ``end``. ``turn``: how many tiles this CTA has done before, in all groups.
    """

    group: Expr
    row: Expr
    column: Expr
    begin: Expr
    end: Expr
    turn: Expr


@dataclass(frozen=True)
class Grouped:
    """The tiles of a persistent CTA in groups of rows, each of its own height.

    ``ends`` has for every group the number of the row after its last one, in memory: they may
    change from launch to launch, and never fall from group to group. A group has as many tiles of
    ``height`` rows as cover it (none if it is empty), ``across`` next to each other, in strips of
    ``width`` (`rasterised`). They are numbered over all groups and go to the CTAs as in `Striding`.

    ::

        tiles = Grouped(k, ends, 128, across, ctas)
        with tiles.each("producer") as tile, k.loop(iterations) as kt:
            slot = pipe[tile.turn * iterations + kt]
    """

    k: Builder = field(repr=False)
    ends: GlobalTensor
    height: int
    across: int
    ctas: int
    width: int = 8

    called: ClassVar[str] = "tiles"

    def __post_init__(self) -> None:
        if len(self.ends.shape) != 1 or self.ends.dtype.kind not in ("int", "uint"):
            raise reject(f"{self.ends.name} is not a vector of integers", caller())
        for what in ("height", "across", "ctas", "width"):
            number = getattr(self, what)
            if as_count(number, what, caller()) < 1:
                raise reject(f"{what} is {number}, there is at least one", caller())

    @property
    def recorder(self) -> Builder:
        """What records the statements of the kernel."""
        return self.k

    @region
    def each(self, role: str) -> Iterator[GroupTile]:
        """A loop of ``role`` over the tiles; every role that works on tiles has one."""
        k, dtype = self.k, self.ends.dtype
        begin, end = k.var(f"{role}_begin", 0, dtype), k.var(f"{role}_end", 0, dtype)
        passed, turn = k.var(f"{role}_passed", 0), k.var(f"{role}_turn", 0)
        with k.loop(self.ends.shape[0], name="group") as group:
            k.mem.load(end, self.ends[group])
            down = (end - begin + (self.height - 1)) // self.height
            # the CTA whose turn it is after the tiles of the groups before is number ``passed``
            first = (k.cta_x + self.ctas - passed) % self.ctas
            with k.loop(first, down * self.across, self.ctas, name="tile") as tile:
                row, column = rasterised(tile, down, self.across, self.width)
                yield GroupTile(group, row, column, begin, end, turn)
                k.assign(turn, turn + 1)
            k.assign(passed, (passed + down * self.across) % self.ctas)
            k.assign(begin, end)


@dataclass(frozen=True)
class Stealing:
    """The tiles of a cluster: its own first, then those of the clusters it cancels.

    ``answers`` is the ring of responses, ``response`` their storage. In a cluster of several CTAs
    every CTA has the answers, and they are given back to CTA 0, which asks.
    """

    k: Builder = field(repr=False)
    answers: Pipeline
    response: SharedTensor
    ctas: int = 1

    called: ClassVar[str] = "tiles"

    @property
    def recorder(self) -> Builder:
        """What records the statements of the kernel."""
        return self.k

    @region
    def each(self, role: str) -> Iterator[Expr]:
        """A loop of ``role`` over the tile numbers; after each tile it reads the next answer."""
        k = self.k
        tile, more = k.var(f"{role}_tile", self._number(k.cta_x)), k.var(f"{role}_more", 1)
        reading = self.answers.cursor(role)
        with k.while_(more.ne(0)):
            yield tile
            answer, response = reading.slot, self.response[reading.stage]
            answer.wait(scope=self._scope)
            k.clc.query_is_canceled(more, response)
            with k.if_(more.ne(0)):
                k.clc.query_first_ctaid(tile, response)
                k.assign(tile, self._number(tile))
            k.fence.proxy_async("shared::cta")  # the reads, before the next response is written
            with k.elected():
                if self.ctas == 1:
                    answer.release()
                else:
                    answer.release_at(0)
            reading.advance()

    def ask(self, role: str) -> None:
        """The scheduler's loop: one request per tile, until it reads that nothing was cancelled."""
        k, asking = self.k, self.answers.cursor("ask")
        with self.each(role):
            with k.elected():
                answer = asking.slot
                answer.acquire(scope=self._scope)
                if self.ctas == 1:
                    answer.commit(16)
                else:
                    answer.commit_at(16, range(self.ctas))
                k.clc.try_cancel(self.response[asking.stage], answer.full, multicast=self.ctas > 1)
            asking.advance()

    def _number(self, cta: Expr) -> Expr:
        return cta if self.ctas == 1 else cta // self.ctas

    @property
    def _scope(self) -> Scope:
        return "cta" if self.ctas == 1 else "cluster"
