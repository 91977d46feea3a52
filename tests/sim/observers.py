"""Random programs of one flag that some write strongly and others observe, and write narrowly."""

from __future__ import annotations

from collections.abc import Callable

from tests.sim import steps as s
from tests.sim.steps import Scope, Small, Step

Choose = Callable[[int], int]

_SCOPES: tuple[Scope, ...] = ("gpu", "gpu", "sys", "cluster", "cta")
#: the flag that is observed, one that says so, and one that hands on
_SEEN, _TOLD, _HANDED = 0, 1, 2


def observers(choose: Choose) -> Small:
    """One warp of CTA 0, or two, store to a flag or add to it, again and again. One of CTA 1 waits
    for some of that, perhaps hands on, and somebody writes the flag with a scope that may be too
    narrow: that comes after those writes alone that were observed, or released."""
    some = 1 + choose(2)
    warps: list[list[Step]] = [[] for _ in range(2 * some)]
    value = _write(choose, warps[:some])
    if not choose(3):
        warps[choose(some)].append(s.Set(_TOLD, 1, choose(2) > 0, _scope(choose), 0))
        warps[some].append(s.Spin(_TOLD, 1, choose(2) > 0, _scope(choose), 0))
    for _ in range(1 + choose(2)):
        least = max(1, value - max(0, choose(5) - 2))
        look = s.Spin(_SEEN, least, choose(2) > 0, _scope(choose), 0)
        warps[some].insert(choose(1 + len(warps[some])), look)
        warps[some] += _fence(choose)
    last = some
    if choose(2):
        last = choose(2 * some)
        if last != some:
            warps[some].append(s.Set(_HANDED, 1, choose(3) > 0, _scope(choose), 0))
            warps[last].append(s.Spin(_HANDED, 1, choose(3) > 0, _scope(choose), 0))
    warps[last] += [*_fence(choose), s.Set(_SEEN, 9, False, _scope(choose), 0)]
    if choose(2):
        warps[last].append(s.Set(_SEEN, 9, False, "cta", 0))
    end = (s.ClusterArrive(not choose(3)), s.ClusterWait())
    return Small(tuple((*steps, *end) for steps in warps), (), 1, ctas=2, flags=3)


def _scope(choose: Choose) -> Scope:
    return _SCOPES[choose(len(_SCOPES))]


def _fence(choose: Choose) -> list[Step]:
    return [] if choose(4) else [s.MemoryFence(_scope(choose))]


def _write(choose: Choose, warps: list[list[Step]]) -> int:
    """Raises the flag, in one order if they take turns; returns its last value."""
    value, writer = 0, 0
    for _ in range(1 + choose(4)):
        if value and len(warps) > 1 and choose(2):
            writer = 1 - writer
            warps[writer].append(s.Spin(_SEEN, value, choose(2) > 0, _scope(choose), 0))
        warps[writer] += _fence(choose)
        value += 1
        release, scope = choose(5) < 2, _scope(choose)
        adds = not choose(4)
        warps[writer].append(
            s.Add(_SEEN, release, scope, 0) if adds else s.Set(_SEEN, value, release, scope, 0)
        )
    return value
