"""What strong operations on memory hand over, and in which scopes: release patterns (H1-H4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilesim.ir.effects import Orders, Waits
from tilesim.ir.mir import Mir
from tilesim.ir.ops.fence import FenceScope
from tilesim.ir.scalars import word_accesses
from tilesim.sim.machine.clock import Clock, Components, join, joined

if TYPE_CHECKING:
    from tilesim.sim.machine.labels import Place

_WIDTH: dict[FenceScope, int] = {"cta": 0, "cluster": 1, "gpu": 2, "sys": 3}

#: an address of a memory, and a lane of a warp
_Thread = tuple[int, int, int, int]
#: what was published at an address: by scope, and by the CTA that released it
Released = dict[tuple[FenceScope, "Place"], Clock]


def includes(scope: FenceScope, cta: Place, other: Place) -> bool:
    """Whether ``scope``, seen from a thread of ``cta``, includes the threads of ``other`` (H1)."""
    match scope:
        case "cta":
            return cta is other
        case "cluster":
            return cta.cluster is other.cluster
        case _:
            return True


def mutual(scope: FenceScope, cta: Place, other_scope: FenceScope, other: Place) -> bool:
    """Whether two strong operations include each other's thread: morally strong (H2)."""
    return includes(scope, cta, other) and includes(other_scope, other, cta)


def asks_for_senders(mir: Mir) -> bool:
    """Whether some strong access, or what acquires, is of a scope narrower than the GPU: what is
    learned is up to which CTA has released it."""
    words = filter(None, word_accesses(mir))
    strong = (word.scope for word in words if word.sem != "weak")
    fences = (e.scope for _, e in mir.all_of(Orders) if e.acquires or e.in_shared)
    waits = (e.scope for _, e in mir.all_of(Waits) if e.sem == "relaxed")
    return any(_WIDTH[scope] < _WIDTH["gpu"] for scope in (*strong, *fences, *waits))


def narrower(first: FenceScope, second: FenceScope) -> FenceScope:
    """The scope that is included in the other one."""
    return min(first, second, key=_WIDTH.__getitem__)


class Fences:
    """The fences of a warp, each with what relaxed operations around it hand over (H3).

    Lanes that have met know the same, but by the text each has its own fences and has made its own
    reads: those that only some of them have are kept ``apart``.
    """

    __slots__ = ("_acquirable", "_apart", "_gathered", "_of_one", "_released")

    def __init__(self) -> None:
        #: by lanes, what only these have
        self._apart: dict[int, Fences] = {}
        #: what they release, by scope, and whether for shared memory alone (H18)
        self._released: dict[tuple[FenceScope, bool], Clock] = {}
        #: what one of the lanes releases without the others, if that is less
        self._of_one: dict[tuple[FenceScope, bool], Clock] = {}
        #: what was observed of a CTA, anywhere or in shared memory
        self._acquirable: dict[tuple[Place, bool], Clock] = {}
        #: what elements of a vector have read, which the thread acquires after the last one (H15)
        self._gathered: Clock | None = None

    def __bool__(self) -> bool:
        return bool(self._released or self._acquirable or self._apart)

    @property
    def releases(self) -> bool:
        """Whether relaxed operations hand something over."""
        return bool(self._released) or any(fences.releases for fences in self._apart.values())

    @property
    def clocks(self) -> list[Clock]:
        """What each hands over."""
        own = (*self._released.values(), *self._of_one.values(), *self._acquirable.values())
        return [*own, *(clock for fences in self._apart.values() for clock in fences.clocks)]

    def mapped(self, change: Callable[[Clock], Clock]) -> Fences:
        """These fences with ``change`` applied to what each hands over."""
        result = Fences()
        result._released = {key: change(clock) for key, clock in self._released.items()}
        result._of_one = {key: change(clock) for key, clock in self._of_one.items()}
        result._acquirable = {key: change(clock) for key, clock in self._acquirable.items()}
        result._apart = {mask: fences.mapped(change) for mask, fences in self._apart.items()}
        return result

    def of(self, mask: int) -> Fences:
        """Those of the lanes of ``mask``, some of those whose fences these are."""
        result = self._of_some()
        for owners, fences in self._apart.items():
            if both := mask & owners:
                some = fences if both == owners else fences._of_some()
                if both == mask:
                    result._learn_own(some)
                else:
                    result._add_apart(both, some)
        return result

    def of_each(self, change: Callable[[Clock], Clock]) -> Fences:
        """The same where these lanes have met: by itself, one of them then has what ``change``
        leaves of what they knew when they fenced together."""
        result = Fences()
        result._learn_own(self)
        result._apart = dict(self._apart)
        for key, known in self._released.items():
            if key not in result._of_one and not key[1]:
                result._of_one[key] = change(known)
        return result

    def differ(self, change: Callable[[Clock], Clock]) -> bool:
        """Whether ``change`` takes something from what a fence covers that lanes made together."""
        together = (c for k, c in self._released.items() if k not in self._of_one and not k[1])
        return any((change(clock) != clock).any() for clock in together)

    def add(self, mask: int, fences: Fences) -> None:
        """Takes in those of the lanes of ``mask``, which others do not have."""
        for owners, others in fences._apart.items():
            self._add_apart(owners, others)
        own = Fences()
        own._learn_own(fences)
        if own:
            self._add_apart(mask, own)

    def _add_apart(self, mask: int, fences: Fences) -> None:
        known = Fences()
        for one in (self._apart.get(mask), fences):
            if one is not None:
                known._learn_own(one)
        self._apart[mask] = known

    def _of_some(self) -> Fences:
        """What all lanes have, if it is only some of them that go on."""
        result = Fences()
        result._learn_own(self)
        result._released |= result._of_one
        result._of_one = {}
        return result

    @property
    def observers(self) -> list[int]:
        """Lanes whose relaxed reads have observed what others of these lanes have not."""
        return [mask for mask, fences in self._apart.items() if fences._acquirable]

    def learn(self, other: Fences) -> None:
        """Takes over what the fences of ``other`` hand over, and what its reads observed."""
        for fences in (other, *other._apart.values()):
            self._learn_own(fences)

    def _learn_own(self, other: Fences) -> None:
        pairs: tuple[tuple[dict[Any, Clock], dict[Any, Clock]], ...] = (
            (self._of_one, other._of_one), (self._released, other._released),
            (self._acquirable, other._acquirable),
        )  # fmt: skip
        for own, others in pairs:
            for key, clock in others.items():
                own[key] = joined(own.get(key), clock)

    def release(self, scope: FenceScope, clock: Clock) -> None:
        """A releasing fence: relaxed operations after it publish ``clock``."""
        self._released[scope, False] = clock.copy()
        self._of_one.pop((scope, False), None)

    def release_in_shared(self, clock: Clock) -> None:
        """A releasing fence for shared memory: relaxed operations there publish ``clock``."""
        key: tuple[FenceScope, bool] = "cluster", True
        self._released[key] = joined(self._released.get(key), clock)

    def hand_over(self, scope: FenceScope, clock: Clock) -> None:
        """A fence that releases only part of what its thread knows: relaxed operations after it
        publish that as well."""
        key = scope, False
        if key in self._of_one:
            join(self._of_one[key], clock)
        self._released[key] = joined(self._released.get(key), clock)

    def released(self, scope: FenceScope) -> Clock | None:
        """What a relaxed operation publishes at least as far as ``scope``; None if nothing."""
        if self._apart:
            whole = Fences()
            whole.learn(self)
            return whole.released(scope)
        known: Clock | None = None
        for (fenced, _), clock in self._released.items():
            if _WIDTH[fenced] >= _WIDTH[scope]:
                known = joined(known, clock)
        return known

    def saw(self, cta: Place, clock: Clock, *, in_shared: bool = False) -> None:
        """A relaxed read observed what ``cta`` released, anywhere or in shared memory."""
        key = cta, in_shared
        self._acquirable[key] = joined(self._acquirable.get(key), clock)

    def seen(self, cta: Place, entry: int) -> int:
        """An entry of the clock that relaxed reads have observed from ``cta``."""
        known = self._acquirable.get((cta, False))
        return 0 if known is None else int(known[entry])

    def gather(self, clock: Clock) -> None:
        """An element of a vector that acquires has read what ``clock`` released."""
        self._gathered = joined(self._gathered, clock)

    def gathered(self) -> Clock | None:
        """What the elements of a vector have read, all of which are; None if nothing."""
        clock, self._gathered = self._gathered, None
        return clock

    def acquire(self, scope: FenceScope, cta: Place, clock: Clock) -> None:
        """An acquiring fence in ``cta``: ``clock`` learns what relaxed reads have observed."""
        senders = [s for s, in_shared in self._acquirable if not in_shared]
        for sender in senders:
            if includes(scope, cta, sender):
                join(clock, self._acquirable.pop((sender, False)))

    def acquire_in_shared(self, cta: Place, clock: Clock, components: Components) -> None:
        """An acquiring fence for shared memory, of the cluster (H18)."""
        for (sender, in_shared), known in self._acquirable.items():
            if in_shared and includes("cluster", cta, sender):
                join(clock, components.of_shared(known))

    def publish(
        self, released: Released, scope: FenceScope, sender: Callable[[FenceScope], Place],
        size: int, *, in_shared: bool,
    ) -> None:  # fmt: skip
        """A relaxed write of ``scope``, maybe to shared memory: what the fences before it
        release through it; ``sender``: see `tilesim.sim.machine.warp.Agent`."""
        rows = slice(size, None)
        for fences in self._apart.values():  # whichever of them writes
            fences.publish(released, scope, sender, size, in_shared=in_shared)
        for (fenced, only_shared), clock in self._released.items():
            if in_shared or not only_shared:
                sent = narrower(fenced, scope)
                add(released, (sent, sender(sent)), clock, rows)


class ReleasePatterns:
    """What threads have released where: a strong write of the same thread to the same place hands
    it over once more, whatever comes between (H3)."""

    __slots__ = ("_own",)

    def __init__(self) -> None:
        self._own: dict[_Thread, Released] = {}

    def note(self, thread: _Thread, scope: FenceScope, cta: Place, clock: Clock) -> None:
        """A thread has released ``clock`` there, for ``cta``."""
        add(self._own.setdefault(thread, {}), (scope, cta), clock)

    def carry(self, thread: _Thread, released: Released, scope: FenceScope) -> None:
        """The thread writes there, strongly at ``scope``: ``released`` is what it hands over."""
        for (sent, cta), clock in self._own.get(thread, {}).items():
            add(released, (narrower(sent, scope), cta), clock)


def add(
    released: Released, key: tuple[FenceScope, Place], clock: Clock, rows: slice = slice(None)
) -> None:
    """Joins these rows of ``clock`` into the entry of ``released``."""
    entry = released.get(key)
    if entry is None:
        entry = released[key] = np.zeros_like(clock)
        entry[rows] = clock[rows]
    else:
        join(entry[rows], clock[rows])
