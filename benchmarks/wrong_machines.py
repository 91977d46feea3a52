"""Machines that are wrong on purpose, and whether recorded launches refute them.

Strict ones claim an order that the real machine does not have; a launch that goes against it
refutes them. Lax ones leave out something that a wait waits for. No order refutes them, but time
does: hardware lets a warp go on soon after the last thing that it waits for. A wait that takes
longer after all that a lax machine knows of than any wait takes after all that the real one knows
of has waited for something that the lax one has left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from tilesim.conform.compare import Times
from tilesim.conform.order import Group, Order
from tilesim.conform.recorded import Recorded
from tilesim.sim.observers.timeline import Instance


@dataclass
class Facts:
    """A recording with the machine's order: who gives to a group, who waits for it."""

    order: Order
    times: dict[Instance, Times]
    off: dict[int, Times]
    givers: dict[Group, list[Instance]] = field(default_factory=lambda: defaultdict(list))
    issuers: dict[Group, list[Instance]] = field(default_factory=lambda: defaultdict(list))
    takers: dict[Group, list[Instance]] = field(default_factory=lambda: defaultdict(list))

    @staticmethod
    def of(order: Order, recorded: Recorded) -> Facts:
        """The facts of all launches."""
        rows = (tuple(row) for row in recorded.instances.tolist())
        facts = Facts(
            order, dict(zip(rows, recorded.times.astype(np.float64), strict=True)),
            dict(zip(recorded.ctas.tolist(), recorded.off, strict=True)),
        )  # fmt: skip
        kinds = {"gives": facts.givers, "issues": facts.issuers, "takes": facts.takers}
        for what, instance, group in order.happenings:
            if group is not None and instance in facts.times:
                kinds[what][group].append(instance)
        return facts

    def between(self, first: Instance, later: Instance) -> Times:
        """How far their clocks may be apart, in ns."""
        if first[0] == later[0]:
            return np.zeros_like(self.off[first[0]])
        return np.asarray(self.off[first[0]] + self.off[later[0]])

    def contradicts(self, first: Instance, later: Instance, delay: float = 0.0) -> bool:
        """Whether a launch left ``later`` less than ``delay`` ns after it entered ``first``."""
        off = self.between(first, later)
        return bool(np.any(self.times[later][1] + off < self.times[first][0] + delay))

    def waits(self) -> Iterator[tuple[Group, Instance]]:
        """What waits for a phase or a round to which somebody gives."""
        for group, takers in self.takers.items():
            if self.givers.get(group) or self.issuers.get(group):
                yield from ((group, taker) for taker in takers)

    def after(self, taker: Instance, known: list[Instance], *, less: int = 0) -> Times:
        """How many ns after it was entered, and after ``known`` were (the last ``less`` of them
        left out), a wait is left: at least, and per launch."""
        entered, left = self.times[taker]
        if len(known) <= less:
            return np.asarray(left - entered)
        times = np.sort([self.times[i][0] + self.between(i, taker) for i in known], axis=0)
        return np.asarray(left - np.maximum(entered, times[-1 - less]))


#: an order that a strict machine claims: this first, so many ns later that
Claim = tuple[Instance, Instance, float]
Strict = Callable[[Facts], Iterator[Claim]]


def next_phase(facts: Facts) -> Iterator[Claim]:
    """A wait passes when the phase after its own is complete."""
    for group, takers in facts.takers.items():
        after = Group(group.object, group.number + 1, group.label)
        for giver in (*facts.givers.get(after, ()), *facts.issuers.get(after, ())):
            yield from ((giver, taker, 0.0) for taker in takers)


def other_barrier(facts: Facts) -> Iterator[Claim]:
    """A wait for a phase of a barrier waits for that phase of the next barrier, too."""
    for group, takers in facts.takers.items():
        if isinstance(group.object, int):
            beside = Group(group.object + 1, group.number, "")
            for giver in (*facts.givers.get(beside, ()), *facts.issuers.get(beside, ())):
                yield from ((giver, taker, 0.0) for taker in takers)


def slow_arrival(facts: Facts) -> Iterator[Claim]:
    """An arrival counts a microsecond after its instruction."""
    for group, takers in facts.takers.items():
        for giver in facts.givers.get(group, ()):
            yield from ((giver, taker, 1000.0) for taker in takers if taker != giver)


def slow_copy(facts: Facts) -> Iterator[Claim]:
    """A copy completes three microseconds after its issue."""
    for group, takers in facts.takers.items():
        for issuer in facts.issuers.get(group, ()):
            yield from ((issuer, taker, 3000.0) for taker in takers)


def together(facts: Facts) -> Iterator[Claim]:
    """Warps that wait for one phase come to the wait before any of them passes."""
    for takers in facts.takers.values():
        yield from ((a, b, 0.0) for a in takers for b in takers if a != b)


def acknowledged(facts: Facts) -> Iterator[Claim]:
    """Whoever arrives goes on when somebody has waited for the phase."""
    for group, takers in facts.takers.items():
        for giver in facts.givers.get(group, ()):
            yield from ((taker, giver, 0.0) for taker in takers if taker != giver)


STRICT: dict[str, Strict] = {
    m.__name__: m
    for m in (next_phase, other_barrier, slow_arrival, slow_copy, together, acknowledged)
}

#: of a wait for a group: the ns after all that the lax machine knows of; None if it knows the same
Lax = Callable[[Facts, Group, Instance], Times | None]


def early_phase(facts: Facts, group: Group, taker: Instance) -> Times | None:
    """A wait passes when the phase before its own is complete."""
    before = Group(group.object, group.number - 1, group.label)
    known = [*facts.givers.get(before, ()), *facts.issuers.get(before, ())]
    return facts.after(taker, known)


def one_arrival_less(facts: Facts, group: Group, taker: Instance) -> Times | None:
    """A phase, or a round of a barrier, is complete without the last arrival."""
    givers = facts.givers.get(group, [])
    copies = facts.issuers.get(group, [])
    last = facts.after(taker, givers, less=1) if givers else None
    if last is None or not copies:
        return last
    return np.minimum(last, facts.after(taker, copies))


def bytes_not_counted(facts: Facts, group: Group, taker: Instance) -> Times | None:
    """A phase is complete with its arrivals, whatever its copies do."""
    return facts.after(taker, facts.givers.get(group, [])) if facts.issuers.get(group) else None


def own_copies_only(facts: Facts, group: Group, taker: Instance) -> Times | None:
    """A multicast copy completes bytes in the CTA that issues it only."""
    copies = facts.issuers.get(group, [])
    own = [i for i in copies if i[0] == taker[0]]
    if len(own) == len(copies):
        return None
    return facts.after(taker, [*facts.givers.get(group, ()), *own])


def own_arrivals_only(facts: Facts, group: Group, taker: Instance) -> Times | None:
    """Arrivals from other CTAs do not count, at mbarriers nor at the cluster barrier."""
    givers = facts.givers.get(group, [])
    own = [i for i in givers if i[0] == taker[0]]
    if len(own) == len(givers):
        return None
    return facts.after(taker, [*own, *facts.issuers.get(group, ())])


LAX: dict[str, Lax] = {
    m.__name__: m
    for m in (
        early_phase, one_arrival_less, bytes_not_counted, own_copies_only, own_arrivals_only,
    )
}  # fmt: skip


def longest(facts: Facts) -> tuple[float, float]:
    """The longest time in ns after all that a wait waits for: arrivals only, and copies too."""
    found = [0.0, 0.0]
    for group, taker in facts.waits():
        copies = facts.issuers.get(group, [])
        took = facts.after(taker, [*facts.givers.get(group, ()), *copies])
        found[bool(copies)] = max(found[bool(copies)], float(took.max()))
    return found[0], found[1]


def refuted(facts: Facts) -> dict[str, bool | None]:
    """Which wrong machines the launches refute; None where one claims nothing else."""
    results: dict[str, bool | None] = {}
    for name, strict in STRICT.items():
        claims = list(strict(facts))
        results[name] = any(facts.contradicts(*c) for c in claims) if claims else None
    bound = max(longest(facts))
    for name, lax in LAX.items():
        found = [took for g, t in facts.waits() if (took := lax(facts, g, t)) is not None]
        results[name] = any(bool(np.any(took > bound)) for took in found) if found else None
    results["instant_copy"] = _instant_copy(facts)
    return results


def _instant_copy(facts: Facts) -> bool | None:
    """A copy completes its bytes when it is issued."""
    arrivals, copies = longest(facts)
    return copies > arrivals if arrivals and copies else None


def claim_of(name: str) -> str:
    """What a wrong machine says."""
    functions = {**STRICT, **LAX, "instant_copy": _instant_copy}
    return (functions[name].__doc__ or "").rstrip(".")
