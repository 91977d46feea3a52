"""What comes before what: synchronisation causality and memory happens-before, by lane.

Every lane of a cluster is an agent. It has a position, which grows with each instruction that it
executes, and two kinds of vectors over all lanes of the cluster:

* its *past*: up to which position each lane must have come before this lane is where it is
  (docs/soundness.md, synchronisation causality). Further components count, for each life of an
  mbarrier, the phases that must be over;
* for each row of `Row`, its *knowledge*: up to which position the accesses of each lane come before
  accesses of that kind that this lane makes now (memory happens-before with proxies, H5).

An asynchronous operation has no position. It is over for a lane that knows its *fact*: one bit of
an integer, given out by `Order.new_fact`, which the completion of a phase or group tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilesim.proof.rules import rule
from tilesim.proof.state import State

Positions: TypeAlias = NDArray[np.int32]
#: sets of facts, as integers
Facts: TypeAlias = NDArray[np.object_]
#: numbers of lanes in the cluster
Lanes: TypeAlias = NDArray[np.int64]

_COUNT = np.arange(1 << 12)
#: components of the past that are added at a time
_MORE = 64


class Row(IntEnum):
    """Kinds of accesses that are ordered apart from each other (H5, H9, D6, G22).

    Behind these, `Order.own` has a row for each CTA: accesses of its shared memory by the
    asynchronous proxy, as far as fences of .shared::cta that it has executed go. Behind those, in
    programs with one-way fences, `Order.half`: what releases of it have begun to hand over (H10).
    """

    GENERIC = 0  # generic proxy, shared memory
    GENERIC_GLOBAL = 1
    ASYNC_SHARED = 2  # asynchronous proxy, any shared memory
    ASYNC_GLOBAL = 3
    INIT = 4  # starts of mbarriers, handed over by fence.mbarrier_init
    TMEM = 5
    #: what tcgen05.fence::before_thread_sync and a relaxed operation hand over: it counts for TMEM
    #: behind a tcgen05.fence::after_thread_sync (G22, G24)
    TMEM_FENCED = 6


#: what a lane knows of its own accesses without a fence
OWN = (Row.GENERIC, Row.GENERIC_GLOBAL, Row.TMEM)
#: what a fence that concerns shared memory only does not hand over (H18)
NOT_SHARED = (Row.GENERIC_GLOBAL, Row.ASYNC_GLOBAL, Row.TMEM, Row.TMEM_FENCED)


class Knowledge:
    """What an operation hands over: by row, positions of lanes, and facts."""

    __slots__ = ("facts", "rows")

    def __init__(self, rows: Positions, facts: Facts) -> None:
        self.rows = rows
        self.facts = facts

    @classmethod
    def like(cls, rows: Positions) -> Knowledge:
        """Nothing, in so many rows and of so many lanes as these have."""
        return cls(np.zeros_like(rows), np.zeros(len(rows), object))

    def state(self, s: State) -> None:
        """Tells it, for comparisons."""
        s.vectors(self.rows)
        s.facts(self.facts.tolist())

    def join(self, other: Knowledge, rows: Iterable[int] | None = None) -> None:
        """Adds what another one has, of some rows or all."""
        of: Any = slice(None) if rows is None else list(rows)
        self.rows[of] = np.maximum(self.rows[of], other.rows[of])
        self.facts[of] |= other.facts[of]

    def copy(self) -> Knowledge:
        """What it is now."""
        return Knowledge(self.rows.copy(), self.facts.copy())

    def covers(self, other: Knowledge) -> bool:
        """Whether it has all that another one has."""
        facts = zip(self.facts, other.facts, strict=True)
        return bool((self.rows >= other.rows).all()) and not any(b & ~a for a, b in facts)

    def add(self, fact: int, rows: Iterable[int]) -> None:
        """Adds a fact to some rows."""
        self.facts[list(rows)] |= fact


def merged(vectors: Sequence[Positions]) -> Positions:
    """The component-wise maximum of pasts, of which older ones may lack the last components."""
    width = max(len(v) for v in vectors)
    found = np.zeros(width, np.int32)
    for v in vectors:
        np.maximum(found[: len(v)], v, out=found[: len(v)])
    return found


def _span(lanes: Sequence[int] | Lanes) -> slice | Sequence[int] | Lanes:
    """Lanes one behind the other as a slice, in which NumPy copies nothing."""
    many = len(lanes)
    if many > 1 and int(lanes[-1]) - (first := int(lanes[0])) == many - 1:
        return slice(first, first + many) if (_COUNT[:many] + first == lanes).all() else lanes
    return lanes


class Order:
    """The pasts and the knowledge of all lanes of a cluster of ``ctas``."""

    def __init__(self, lanes: int, ctas: int, *, halves: bool, ptx: bool) -> None:
        self.lanes, self.ctas, self.ptx = lanes, ctas, ptx
        self.position = np.zeros(lanes, np.int32)
        self.past = np.zeros((lanes, lanes + _MORE), np.int32)
        count = len(Row) + (2 * ctas if halves else ctas)
        self.rows = np.zeros((lanes, count, lanes), np.int32)
        self.facts: Facts = np.zeros((lanes, count), object)
        #: rows about shared memory
        self.shared = [row for row in range(count) if row not in NOT_SHARED]
        #: rows that are handed over. By the text it takes tcgen05 fences for tensor memory (U20)
        self.handed = [row for row in range(count) if row != Row.TMEM or not ptx]
        self._columns = lanes
        self._facts = 0
        #: by CTA, facts about what it has done to its own memory
        self.of_cta = [0] * ctas
        #: by lane, what relaxed operations hand over as they come behind a fence that releases
        self._fenced: dict[int, Knowledge] = {}
        #: by lane, what relaxed operations have observed, for a fence that acquires
        self._observed: dict[int, Knowledge] = {}

    @staticmethod
    def own(cta: int) -> int:
        """The row of a CTA's fences of .shared::cta."""
        return len(Row) + cta

    def half(self, cta: int) -> int:
        """The row of what one-way releases of a CTA hand over to acquires (H10)."""
        return len(Row) + self.ctas + cta

    def nothing(self) -> Knowledge:
        """What nothing hands over."""
        return Knowledge.like(self.rows[0])

    def new_column(self) -> int:
        """A component of the past that counts phases."""
        if self._columns == self.past.shape[1]:
            self.past = np.pad(self.past, ((0, 0), (0, _MORE)))
        self._columns += 1
        return self._columns - 1

    def new_fact(self, cta: int | None) -> int:
        """A bit of its own: what a CTA has done, in shared memory to its own; None: maybe not."""
        self._facts += 1
        fact = 1 << (self._facts - 1)
        if cta is not None:
            self.of_cta[cta] |= fact
        return fact

    def state(self, s: State) -> None:
        """Tells all of it, for comparisons."""
        s.same(self._columns)
        s.now[: self.lanes] = self.position
        s.vectors(self.past)
        for i in range(self.lanes):
            Knowledge(self.rows[i], self.facts[i]).state(s)
        for some in (self._fenced, self._observed):
            s.same(sorted(some))
            for lane in sorted(some):
                some[lane].state(s)

    def step(self, lanes: Lanes) -> None:
        """Each of the lanes executes one more instruction."""
        self.position[lanes] = now = self.position[lanes] + 1
        self.past[lanes, lanes] = now
        for row in OWN:
            self.rows[lanes, row, lanes] = now

    # ------------------------------------------------------------------ lanes that meet

    def meet_in_time(self, lanes: Lanes, others: Lanes | None = None) -> None:
        """All of the lanes have come here before any of them goes on; ``others``: so have they, or
        have ended."""
        self.past[_span(lanes)] = self.past[_span(lanes if others is None else others)].max(0)

    def meet(self, lanes: Lanes) -> None:
        """They have also made their accesses known to each other (E4, E11)."""
        self.meet_in_time(lanes)
        self.learn(lanes, self.of(lanes))

    # ------------------------------------------------------------------ what is handed over

    def of(self, lanes: Lanes) -> Knowledge:
        """What the lanes hand over together, their own accesses included."""
        of = _span(lanes)
        together = Knowledge(self.rows[of].max(0), np.bitwise_or.reduce(self.facts[of]))
        if len(self.handed) == len(together.rows):
            return together
        knowledge = self.nothing()
        knowledge.join(together, self.handed)
        return knowledge

    def learn(
        self, lanes: Sequence[int] | Lanes, knowledge: Knowledge, rows: Iterable[int] | None = None
    ) -> None:
        """Each of the lanes knows that of some rows."""
        of: Any = slice(None) if rows is None else list(rows)
        at: Any = _span(lanes) if rows is None else np.ix_(np.array(lanes), np.array(of))
        if isinstance(at, slice):
            np.maximum(self.rows[at], knowledge.rows, out=self.rows[at])
        else:
            self.rows[at] = np.maximum(self.rows[at], knowledge.rows[of])
        self.facts[at] |= knowledge.facts[of]

    def learn_fact(self, lanes: Sequence[int], fact: int, rows: Iterable[int]) -> None:
        """Each of the lanes knows a fact, for accesses of some kinds (B3: implicit fence)."""
        self.facts[np.ix_(np.array(lanes), np.array(list(rows)))] |= fact

    def released(self, lane: int, sem: str) -> Knowledge | None:
        """What an operation of this strength hands over (H3): a relaxed one in any case the order
        of execution, which is all that tcgen05 fences need (G22, G24)."""
        if sem in ("release", "acq_rel"):
            return self.of(np.array([lane]))
        fenced, executed = self._fenced.get(lane), self.rows[lane, Row.TMEM_FENCED]
        if not (self.facts[lane, Row.TMEM_FENCED] or executed.any()):
            return fenced
        known = self.nothing() if fenced is None else fenced.copy()
        known.join(Knowledge(self.rows[lane], self.facts[lane]), (Row.TMEM_FENCED,))
        return known

    def observe(self, lanes: Lanes, knowledge: Knowledge, sem: str) -> None:
        """Lanes observe what was released; a relaxed operation acquires with a later fence."""
        for lane in lanes.tolist() if sem == "relaxed" else ():
            self._observed.setdefault(lane, self.nothing()).join(knowledge)
        self.learn(lanes, knowledge, (Row.TMEM_FENCED,) if sem == "relaxed" else None)

    def known_in_time(self, lane: int) -> int:
        """The facts that a lane has learned, also by relaxed operations (B34)."""
        observed = self._observed.get(lane)
        return int(self.facts[lane, 0] | (0 if observed is None else observed.facts[0]))

    def acquire_fence(self, lane: int, rows: Iterable[int] | None = None) -> None:
        """What relaxed operations have observed is known behind the fence (H3)."""
        if lane in self._observed:
            self.learn([lane], self._observed[lane], rows)

    def release_fence(self, lane: int) -> None:
        """What is known before the fence is handed over by relaxed operations behind it (H3)."""
        self._fenced.setdefault(lane, self.nothing()).join(self.of(np.array([lane])))

    @rule("H18", "a restricted release orders what threads of its CTA did to the CTA's own memory")
    def release_own(self, lane: int) -> None:
        """The same of a fence for the shared memory of the lane's CTA."""
        done, each = self.of(np.array([lane])), self.lanes // self.ctas
        cta = lane // each
        done.rows[:, : cta * each] = done.rows[:, (cta + 1) * each :] = 0
        done.facts &= self.of_cta[cta]
        self._fenced.setdefault(lane, self.nothing()).join(done, self.shared)

    def tmem_fence(self, lane: int, *, before: bool) -> None:
        """A tcgen05.fence: what the lane knows of tensor memory is handed over by what it does next
        (``before``), or what has been handed to it so counts for what it does next (G22)."""
        if before:
            self.cross(np.array([lane]), Row.TMEM, Row.TMEM_FENCED)
        else:
            self.cross(np.array([lane]), Row.TMEM_FENCED, Row.TMEM)

    def publish_own(self, lanes: Lanes) -> None:
        """A fence.mbarrier_init: each lane's own starts of mbarriers can be handed over (D6)."""
        self.rows[lanes, Row.INIT, lanes] = self.rows[lanes, Row.GENERIC, lanes]

    def cross(self, lanes: Lanes, source: int, target: int) -> None:
        """A proxy fence: what one kind of access sees, the other one sees as well (H9)."""
        self.rows[lanes, target] = np.maximum(self.rows[lanes, target], self.rows[lanes, source])
        self.facts[lanes, target] |= self.facts[lanes, source]
