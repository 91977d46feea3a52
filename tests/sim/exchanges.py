"""Two CTAs of which rank 0 alone signals both: arrivals of consecutive uses may change places."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.sim import steps as s
from tests.sim.pipelines import Choose, Steps, mutated
from tests.sim.steps import Small


def nothing(choose: Choose) -> Steps:
    """The releases follow each other."""
    return ()


def something(choose: Choose) -> Steps:
    """What a reader may do when it has released onto one CTA: mostly too late."""
    return ((), (s.Read(0),), (s.Fence(),), (s.Read(1),), (s.Write(1),))[choose(5)]


def exchange(choose: Choose, between: Callable[[Choose], Steps] = nothing) -> Small:
    """Rank 0 fills for both CTAs, each of which also needs its own warp; readers release onto both.

    Which of two arrivals of consecutive uses a release counts as is up to the schedule.
    """
    fill, trips = (_copies, _arrivals, _arrivals)[choose(3)], 2 + choose(2)
    meet = (s.ClusterArrive(), s.ClusterWait())
    warps: list[Steps] = []
    for cta in (0, 1):
        first = choose(2)
        here, there = (s.Arrive(1, cta=rank) for rank in (first, 1 - first))
        release = (here, *between(choose), there)
        filler = (s.Wait(1, 1, carried=True), *fill(cta))
        reader = (s.Wait(0, 0, carried=True), s.Read(0), *release)
        warps += [(s.Loop(trips, filler), *meet), (s.Loop(trips, reader), *meet)]
    return Small(tuple(warps), (1 if fill is _copies else 2, 2), 2, ctas=2)


def _copies(cta: int) -> Steps:
    """Its own word by a copy; the other word by a copy of rank 0 to both."""
    both = (s.Copy(0, 1, mask=3),) if cta == 0 else ()
    return (s.ArriveExpect(0, 2), s.Copy(0, 0), *both)


def _arrivals(cta: int) -> Steps:
    """Its own word by a store; rank 0 has to arrive in both."""
    return (s.Write(0), s.Arrive(0), s.Arrive(0, cta=1 - cta if cta == 0 else None))


def changed(choose: Choose) -> Small:
    """The same with up to two changes."""
    small = exchange(choose, something)
    for _ in range(choose(3)):
        small = mutated(choose, small)
    return replace(small, words=max(small.words, 2))


def with_a_read_between(cta: int) -> Small:
    """Readers of one CTA read again between their releases, of which the first is the peer's."""
    for seed in range(100):
        small = exchange(random.Random(seed).randrange)
        releases = [x for x in s.every(small.warps[2 * cta + 1]) if isinstance(x, s.Arrive)]
        if releases[0].cta != cta:
            break
    loop = small.warps[2 * cta + 1][0]
    assert isinstance(loop, s.Loop)
    *before, last = loop.body
    warps = list(small.warps)
    warps[2 * cta + 1] = (s.Loop(loop.trips, (*before, s.Read(0), last)), *warps[2 * cta + 1][1:])
    return Small(tuple(warps), small.counts, small.words, ctas=2)
