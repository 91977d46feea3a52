"""Which tiles of queries a persistent CTA of the Hopper attention computes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from tilesim.dsl.builder import Builder
from tilesim.ir.expr import Expr, Operand, Var, as_expr, minimum, select


@dataclass(frozen=True)
class Tile:
    """A tile of queries: head, first query, and number of blocks of keys; ``round``: how many
    tiles the CTA had before. ``edge``: keys of the last block, None if all or a mask hides others.
    Its sequence has keys from row ``first`` on and queries up to row ``end``, or all of them. With
    a causal mask the query in row i sees as many keys as i + 1 + ``ahead``."""

    head: Expr
    query: Expr
    blocks: Expr
    round: Var
    edge: Operand | None = None
    first: Operand = 0
    end: Operand | None = None
    ahead: Operand = 0


@dataclass(frozen=True)
class Rounds(ABC):
    """Which tiles each of ``ctas`` CTAs computes, in rounds of one tile per CTA.

    Every other round runs through the CTAs backwards, so that each gets long and short ones.
    """

    k: Builder
    ctas: int

    @property
    @abstractmethod
    def total(self) -> Operand:
        """Tiles of all heads."""

    @abstractmethod
    def tile(self, number: Expr, turn: Var, role: str) -> Tile:
        """The tile with this number, which is its CTA's in round ``turn``."""

    @contextmanager
    def tiles(self, role: str) -> Iterator[Tile]:
        """A loop of ``role`` over the tiles of the executing CTA."""
        k, total = self.k, self.total
        with k.loop((total + (self.ctas - 1)) // self.ctas, name="round") as number:
            place = select((number & 1).eq(1), self.ctas - 1 - k.cta_x, k.cta_x)
            tile = number * self.ctas + place
            with k.if_(tile < total):
                yield self.tile(tile, number, role)


@dataclass(frozen=True)
class Schedule(Rounds):
    """The tiles of heads of equal length.

    Tiles are numbered over ``band`` heads at a time, those with most keys first. ``band`` is the
    smallest number that divides ``heads`` and leaves the busiest CTA with least to do.
    """

    heads: int
    queries: int
    keys: int
    height: int
    block: int
    causal: bool

    @cached_property
    def across(self) -> int:
        """Tiles of a head; the last one may reach over its end."""
        return -(-self.queries // self.height)

    @property
    def total(self) -> int:
        """Tiles of all heads."""
        return self.heads * self.across

    @cached_property
    def blocks(self) -> int:
        """Blocks of keys; the last one may reach over their end."""
        return -(-self.keys // self.block)

    @cached_property
    def band(self) -> int:
        """Heads whose tiles are computed together."""
        if not self.causal:
            return 1
        divisors = [n for n in range(1, self.heads + 1) if self.heads % n == 0]
        return min(divisors, key=self.longest)

    def longest(self, band: int) -> int:
        """Blocks that the busiest CTA computes; a tile costs about one more than it has."""
        work = [0] * self.ctas
        for number in range(self.total):
            turn, place = divmod(number, self.ctas)
            row = self.across - 1 - number % (band * self.across) // band
            seen = -(-(row + 1) * self.height // self.block)
            work[self.ctas - 1 - place if turn % 2 else place] += min(seen, self.blocks) + 1
        return max(work)

    def tile(self, number: Expr, turn: Var, role: str) -> Tile:
        """The tile with this number."""
        within = number % (self.band * self.across)
        head = number // (self.band * self.across) * self.band + within % self.band
        query = (self.across - 1 - within // self.band) * self.height
        if not self.causal:
            edge = self.keys % self.block or None
            return Tile(head, query, as_expr(self.blocks), turn, edge)
        return Tile(head, query, minimum(seen(query, self.height, self.block), self.blocks), turn)


@dataclass(frozen=True)
class Ragged(Rounds):
    """The tiles of sequences that lie one behind the other in each head.

    ``ends`` and ``key_ends``: the row behind the queries and keys of each. A sequence's tiles of
    all heads follow each other, in each head those with most keys first.
    """

    heads: int
    height: int
    block: int
    causal: bool
    ends: Sequence[Expr]
    key_ends: Sequence[Expr]

    @property
    def total(self) -> Expr:
        """Tiles of all sequences and heads."""
        first, last = self._before[-1], self._across[-1] * self.heads
        return first + last

    @cached_property
    def _across(self) -> tuple[Expr, ...]:
        """Tiles of a head, by sequence; the last one may reach over its end."""
        rows = zip((as_expr(0), *self.ends), self.ends, strict=False)
        return tuple((end - start + (self.height - 1)) // self.height for start, end in rows)

    @cached_property
    def _before(self) -> tuple[Expr, ...]:
        """How many tiles the sequences before each have."""
        found = [as_expr(0)]
        for across in self._across[:-1]:
            found.append(found[-1] + across * self.heads)
        return tuple(found)

    def tile(self, number: Expr, turn: Var, role: str) -> Tile:
        """The tile with this number; a mask of all later keys also hides other sequences'.

        What its sequence has is in registers of ``role``: computing it takes a while.
        """
        of_each: dict[str, Sequence[Expr]] = {
            "before": self._before, "across": self._across,
            "start": (as_expr(0), *self.ends[:-1]), "end": self.ends,
            "first": (as_expr(0), *self.key_ends[:-1]), "last": self.key_ends,
        }  # fmt: skip
        before, across, start, end, first, last = (
            self.k.var(f"{role}_{name}", self._of(number, values))
            for name, values in of_each.items()
        )
        within, keys = number - before, last - first
        query = (across - 1 - within % across) * self.height
        blocks = (keys + (self.block - 1)) // self.block
        edge: Operand | None = keys - (blocks - 1) * self.block
        more = keys - (end - start)
        if self.causal:
            blocks, edge = minimum(seen(query + more, self.height, self.block), blocks), None
        head, row = within // across, start + query
        return Tile(head, row, blocks, turn, edge, first, end, more - start)

    def _of(self, number: Expr, values: Sequence[Expr]) -> Expr:
        """One value per sequence: that of the one which has tile ``number``."""
        found = values[0]
        for before, value in zip(self._before[1:], values[1:], strict=True):
            found = select(number >= before, value, found)
        return found


def seen(query: Expr, height: int, block: int) -> Expr:
    """Blocks of keys up to the last query of a tile."""
    return (query + (height + block - 1)) // block
