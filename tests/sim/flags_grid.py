"""Flags of several clusters: what is released through them, and who has observed which access."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.sim.steps import Scope

Clock = tuple[int, ...]
#: whether a scope of one warp and a scope of another include each other's thread (H2)
Mutual = Callable[[int, Scope, int, Scope], bool]


class Touch(NamedTuple):
    """A strong access of a warp to a flag with some scope.

    A write that whoever reads the flag now observes is ``read``; ``seen``: since when warps have
    observed it (warp, time).
    """

    warp: int
    scope: Scope
    writes: bool
    time: int
    read: bool = False
    seen: tuple[tuple[int, int], ...] = ()

    def known(self, clock: Clock) -> bool:
        """Whether it comes before what has this clock: in base causality, after at most one step
        of observation (H5)."""
        return any(clock[w] >= time for w, time in ((self.warp, self.time), *self.seen))


class Flag(NamedTuple):
    """A flag: value, what was released through it (scope, warp, clock), who touched it, and by
    whom and with which scope it was written last."""

    value: int = 0
    sent: tuple[tuple[Scope, int, Clock], ...] = ()
    touched: tuple[Touch, ...] = ()
    last: tuple[int, Scope] | None = None

    def accessed(self, new: Touch, mutual: Mutual, *, reads: bool, chain: bool) -> Flag:
        """After a strong access.

        What ``reads`` observes the last write, and through a ``chain`` of RMWs those before: they,
        and nothing before them, come before whatever comes after the read.
        """
        warp, scope, writes = new[:3]
        goes_on = chain and self.last is not None and mutual(warp, scope, *self.last)
        touched = [new._replace(read=writes)]
        for old in self.touched:
            seen = old.seen
            if old.read and reads and goes_on and warp not in dict(seen):
                seen = tuple(sorted((*seen, (warp, new.time))))
            read = old.read and (goes_on or not writes)
            # who comes after the new one, in whichever way, comes after this one
            if old[:3] != new[:3] or (writes and not read):
                touched.append(old._replace(read=read, seen=seen))
        last = (warp, scope) if writes else self.last
        return self._replace(touched=tuple(sorted(touched)), last=last)
