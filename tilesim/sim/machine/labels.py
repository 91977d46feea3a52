"""A warp and its CTA, as reports, traces and scopes name them."""

from __future__ import annotations

from typing import Protocol

from tilesim.ir.loc import Loc
from tilesim.ir.op import Op


class Numbered(Protocol):
    """A cluster."""

    number: int

    @property
    def exited(self) -> bool:
        """True once all CTAs have exited."""
        ...


class Place(Protocol):
    """A CTA: ``number`` is its place in the grid, ``rank`` in its cluster, ``index`` in the
    machine."""

    number: int
    rank: int
    index: int

    @property
    def memory(self) -> object:
        """Its shared memory."""
        ...

    @property
    def cluster(self) -> Numbered:
        """The cluster that it belongs to."""
        ...


class AgentLike(Protocol):
    """A warp, or lanes of one: ``number`` counts the warps of its CTA, ``index`` all of them."""

    number: int
    index: int
    role: str

    @property
    def cta(self) -> Place:
        """Where it runs."""
        ...

    def last_op(self) -> Op | Loc:
        """The instruction before its position."""
        ...

    def woken(self) -> None:
        """It waits for nothing any more."""
        ...

    def run(self, _event: object = None) -> None:
        """Executes up to the next scheduling point."""
        ...
