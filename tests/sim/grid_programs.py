"""Programs of several clusters that are right in every execution."""

from __future__ import annotations

from collections.abc import Callable

from tests.sim import steps as s
from tests.sim.steps import Small, Step

Choose = Callable[[int], int]
Steps = tuple[Step, ...]


def _grid(
    *warps: Steps, clusters: int, counts: tuple[int, ...] = (), flags: int = 2, ctas: int = 1,
    cooperative: bool = False,
) -> Small:  # fmt: skip
    return Small(
        warps, counts, ctas=ctas, flags=flags, family="grids", clusters=clusters,
        cooperative=cooperative,
    )  # fmt: skip


def _apart(choose: Choose) -> Small:
    """Every CTA writes a place of its own, and may read one that nobody writes."""
    clusters, ctas = 2 + choose(2), 1 + choose(2)
    count = clusters * ctas
    extra: Steps = (s.Get(count),) if choose(2) else ()
    return _grid(*[(s.Put(i), *extra) for i in range(count)], clusters=clusters, ctas=ctas)


def _tiles(choose: Choose) -> Small:
    """Tiles by an atomic counter: each is taken by somebody."""
    clusters, limit = 2 + choose(2), 1 + choose(3)
    body: Steps = (s.Put(0, by=True),)
    if choose(2):
        body = (s.Put(0, by=True), s.Get(0, by=True))
    return _grid(*[(s.Tiles(0, limit, body),)] * clusters, clusters=clusters)


def _last(choose: Choose) -> Small:
    """Split-K: the holder of the last ticket reads what all have written."""
    clusters, ctas = ((2, 1), (3, 1), (1, 2), (1, 4), (2, 2))[choose(5)]
    count = clusters * ctas
    reads = tuple(s.Get(i) for i in range(count))
    if choose(2):
        take: Steps = (s.Ticket(0, "acq_rel"), s.If(count - 1, reads))
    else:
        take = (s.MemoryFence("gpu"), s.Ticket(0), s.If(count - 1, (s.MemoryFence("gpu"), *reads)))
    return _grid(*[(s.Put(i), *take) for i in range(count)], clusters=clusters, ctas=ctas)


def _turns(choose: Choose) -> Small:
    """All change one place in the order of their tickets: they wait for ones that have started."""
    clusters = 2 + choose(2)
    turn = (s.Ticket(0), s.SpinTicket(1), s.Get(0), s.Put(0), s.Add(1, scope="gpu"))
    return _grid(*[turn] * clusters, clusters=clusters, cooperative=True)


def _fixed_turns(choose: Choose) -> Small:
    """The same in the order of their numbers, so all have to be resident."""
    clusters = 2 + choose(2)
    warps = [
        (*((s.Spin(0, i, scope="gpu"),) if i else ()), s.Get(0), s.Put(0), s.Add(0, scope="gpu"))
        for i in range(clusters)
    ]
    return _grid(*warps[:: 1 - 2 * choose(2)], clusters=clusters, cooperative=True)


def _meeting(choose: Choose) -> Small:
    """A grid barrier: everybody writes, then everybody reads."""
    clusters = 2 + choose(2)
    meet = (s.Add(0, scope="gpu"), s.Spin(0, clusters, scope="gpu"))
    warps = [(s.Put(i), *meet, s.Get((i + 1) % clusters)) for i in range(clusters)]
    return _grid(*warps, clusters=clusters, cooperative=True)


def _within(choose: Choose) -> Small:
    """CTAs of one cluster wait for each other; there are several such clusters."""
    clusters, ctas = 1 + choose(2), 2 + choose(1 + choose(2))
    scope: s.Scope = "cluster" if choose(2) else "gpu"
    warps: list[Steps] = []
    for c in range(clusters):
        first = c * ctas
        warps.append((s.Put(first), s.Add(c, scope="cluster")))
        warps += [(s.Spin(c, 1, scope=scope), s.Get(first))] * (ctas - 1)
    return _grid(*warps, clusters=clusters, ctas=ctas)


def _arrivals(choose: Choose) -> Small:
    """CTAs of a cluster tell each other by arrivals."""
    clusters, ctas = ((1, 2), (1, 3), (1, 4), (2, 2))[choose(4)]
    warps: list[Steps] = []
    for c in range(clusters):
        first = c * ctas
        warps.append((s.Wait(0, 0), *(s.Get(first + i) for i in range(1, ctas))))
        warps += [(s.Put(first + i), s.Arrive(0, cta=0)) for i in range(1, ctas)]
    return _grid(*warps, clusters=clusters, ctas=ctas, counts=(ctas - 1,))


def _steal(choose: Choose) -> Small:
    """A CTA works on its own tile and on those of clusters that it cancels."""
    clusters = 2 + choose(2)
    ask: Steps = (s.ArriveExpect(0), s.Cancel(0, 0))
    loop = s.Forever((
        *(ask if choose(2) else ask[::-1]), s.Wait(0, 0, carried=True), s.Query(0), s.Leave(),
        s.Put(0, by=True),
    ))  # fmt: skip
    return _grid(*[(s.Put(i), loop) for i in range(clusters)], clusters=clusters, counts=(1,))


def _mailbox(choose: Choose) -> Small:
    """One warp asks, another one works; answers in a ring that the worker empties."""
    clusters, n = 2, 1 + choose(2)
    scheduler = s.Forever((
        s.Wait(n, 1, carried=True, stages=n), s.ArriveExpect(0, stages=n), s.Cancel(0, 0, n),
        s.Wait(0, 0, carried=True, stages=n), s.Query(0, n), s.Leave(),
    ))  # fmt: skip
    worker = s.Forever((
        s.Wait(0, 0, carried=True, stages=n), s.Query(0, n), s.Arrive(n, stages=n), s.Leave(),
        s.Put(0, by=True),
    ))  # fmt: skip
    warps: list[Steps] = []
    for i in range(clusters):
        warps += [(scheduler,), (s.Put(i), worker)]
    return _grid(*warps, clusters=clusters, counts=(1,) * 2 * n)


#: how to make a program of several clusters that is right
GRID_STYLES: tuple[Callable[[Choose], Small], ...] = (
    _apart, _tiles, _last, _last, _turns, _fixed_turns, _meeting, _within, _arrivals, _steal,
    _mailbox,
)  # fmt: skip
