"""Which output tile a CTA computes next: rasterisation, and tiles taken over from others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from tilesim.errors import reject
from tilesim.ir.builder import Builder
from tilesim.ir.dsl.given import as_count
from tilesim.ir.expr import Expr, Operand, as_expr, minimum
from tilesim.ir.loc import caller
from tilesim.ir.memory import SharedTensor
from tilesim.ir.ops.mbarrier import Scope
from tilesim.ir.region import region
from tilesim.lib.pipeline import Pipeline

#: findings name the kernel's lines, not the ones in this file
__tilesim_helper__ = True


def rasterised(tile: Operand, down: int, across: int, width: int) -> tuple[Expr, Expr]:
    """(row, column) of output tile number ``tile`` in a grid of ``down`` x ``across`` tiles.

    The tiles are numbered in vertical strips of ``width`` columns (the last may be narrower),
    within a strip row by row. CTAs with neighbouring numbers then share rows of A and columns of B,
    which makes better use of the L2 cache than whole rows of tiles do.
    """
    number, strip = as_expr(tile), down * width
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
