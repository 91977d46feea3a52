"""Whether recorded launches are executions that the machine allows.

An instruction takes effect at some time after it is entered; one that waits, before it is left.
Times like these exist for all instructions of a launch exactly if whatever the machine puts before
a wait was entered when the wait was left: each effect can be as early as what comes before it
permits. So a launch that does not conform has two events that say so, and a chain of others that
leads from the one to the other.

Clocks of one CTA agree. Those of several only within a measured bound, which is allowed for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tilesim.conform.order import Group, Order
from tilesim.conform.recorded import Recorded
from tilesim.ir.op import Op
from tilesim.records import dataclass
from tilesim.sim.observers.timeline import Instance

Times = NDArray[np.float64]


@dataclass(frozen=True)
class Violation:
    """What no execution of the machine has.

    ``order``: a launch left ``later`` so many ns ``early``, before it entered ``first`` or what
    comes before that; in the machine ``later`` waits for ``group``, to which ``first`` gives.
    ``count``: in a launch a warp executes an instruction more or less often than in the machine.
    """

    kind: Literal["order", "count"]
    launch: int
    first: Instance
    later: Instance
    group: Group | None
    early: float
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Conformance:
    """The result of a comparison, with so many ``orders`` between waits and what each CTA has done
    for them in each launch."""

    launches: int
    instances: int
    orders: int
    violations: tuple[Violation, ...]

    @property
    def conforms(self) -> bool:
        """Whether all launches are executions of the machine."""
        return not self.violations


def compare(order: Order, recorded: Recorded) -> Conformance:
    """Compares all launches at once."""
    counted = [*_counts(order, recorded)]
    if counted:
        return Conformance(recorded.launches, len(recorded.instances), 0, tuple(counted))
    return _Replay(order, recorded).result()


def _counts(order: Order, recorded: Recorded) -> Iterator[Violation]:
    """Instructions that a warp executes more or less often than in the machine."""
    apart = {*recorded.apart.tolist()}
    expected = Counter({p: n for p, n in order.counts().items() if p[2] not in apart})
    executed = ~np.isnan(recorded.times[:, 1, :])
    found: dict[tuple[int, int, int], NDArray[np.int64]] = {}
    zero = np.zeros(recorded.launches, dtype=np.int64)
    for (cta, warp, number, _), there in zip(recorded.instances.tolist(), executed, strict=True):
        found[cta, warp, number] = found.get((cta, warp, number), zero) + there
    for place in sorted(expected.keys() | found.keys()):
        times = found.get(place, zero)
        wrong = np.flatnonzero(times != expected[place])
        if not len(wrong):
            continue
        launch, (cta, warp, number) = int(wrong[0]), place
        text = (
            f"launch {launch}: warp {warp} of CTA {cta} executes {_named(order.ops.get(number))} "
            f"{times[launch]} times, {expected[place]} times in the machine"
        )
        yield Violation("count", launch, (*place, 0), (*place, 0), None, 0.0, text)


class _Replay:
    """The happenings of the machine, with the times of all launches.

    Per warp and per group: for each CTA the latest time at which anything before was entered.
    """

    def __init__(self, order: Order, recorded: Recorded) -> None:
        self._order = order
        self._launches = recorded.launches
        self._apart = {*recorded.apart.tolist()}
        self._times = dict(
            zip((tuple(row) for row in recorded.instances.tolist()), recorded.times, strict=True)
        )
        self._off = dict(zip(recorded.ctas.tolist(), recorded.off, strict=True))
        self._before: dict[tuple[int, int], dict[int, Times]] = defaultdict(dict)
        self._given: dict[Group, dict[int, Times]] = defaultdict(dict)
        #: the last entered of those that gave to a group, for the text
        self._givers: dict[Group, list[Instance]] = defaultdict(list)
        self._issued: dict[Instance, list[Group]] = defaultdict(list)
        for what, instance, group in order.happenings:
            if what == "issues" and group is not None:
                self._issued[instance].append(group)
        self._violations: list[Violation] = []
        self._orders = 0

    def result(self) -> Conformance:
        """Goes through the happenings."""
        for what, instance, group in self._order.happenings:
            if instance[2] in self._apart:
                continue
            if what == "enters":
                self._enters(instance)
            elif group is not None and what == "gives":
                self._gives(instance, group)
            elif group is not None and what == "takes":
                self._takes(instance, group)
        times, found = len(self._times), tuple(self._violations)
        return Conformance(self._launches, times, self._orders, found)

    def _enters(self, instance: Instance) -> None:
        cta, warp = instance[:2]
        _latest(self._before[cta, warp], {cta: self._times[instance][0]})
        for group in self._issued.get(instance, ()):
            self._gives(instance, group)

    def _gives(self, instance: Instance, group: Group) -> None:
        _latest(self._given[group], self._before[instance[:2]])
        self._givers[group].append(instance)

    def _takes(self, instance: Instance, group: Group) -> None:
        cta, left = instance[0], self._times[instance][1]
        for other, entered in self._given[group].items():
            self._orders += 1
            allowed = 0.0 if other == cta else self._off[cta] + self._off[other]
            spare = left - entered + allowed
            launch = int(np.argmin(spare))
            if spare[launch] < 0:
                self._violations.append(self._violation(instance, group, launch, -spare[launch]))
        _latest(self._before[instance[:2]], self._given[group])

    def _violation(self, later: Instance, group: Group, launch: int, early: float) -> Violation:
        first = max(self._givers[group], key=lambda i: float(self._times[i][0][launch]))
        text = (
            f"launch {launch}: {self._said(later)} is left {early:.0f} ns before "
            f"{self._said(first)}, or what comes before it, is entered; in the machine it waits "
            f"for {group}"
        )
        return Violation("order", launch, first, later, group, float(early), text)

    def _said(self, instance: Instance) -> str:
        cta, warp, number, nth = instance
        return f"{_named(self._order.ops.get(number))} of warp {warp} of CTA {cta} (number {nth})"


def _latest(known: dict[int, Times], more: dict[int, Times]) -> None:
    """Takes over what is later."""
    for cta, times in more.items():
        known[cta] = np.maximum(known[cta], times) if cta in known else times


def _named(op: Op | None) -> str:
    return (
        "an instruction that is not in the machine" if op is None else f"{op.mnemonic} ({op.loc})"
    )
