"""Strong accesses to words: their order, and what one learns of another (SEMANTICS H2 to H6).

Strong accesses to one location in no order do not race, but the order decides (H2, H6).

A strong read observes the write it reads from, if the two are morally strong, and through a chain
of RMWs, each so with the next, those before (H5). They come before all that comes after the read;
what was before them does not, an earlier store by the same thread to the same word among it: unless
what the read acquires says so.

A wait stands for one in every schedule (`tilesim.sim.observers.monotone_words`). In another one it
may find another store, with which the word begins anew, and observe nothing of what it has in this
run: an access that relies on that makes the schedules differ.

The elements of a vector that acquires or releases do not order each other (SEMANTICS H15). PTX
makes of a vector access as many accesses of one element, in no order. So what each element releases
is what its thread knew before the whole vector, and its own store; what they acquire, the thread
knows after the last one. All stores of a vector are made in one interval of their thread, and what
an element tells of its own is told at a component of its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tilesim.arith.types import DType
from tilesim.ir import effects as fx
from tilesim.ir.frozen import cached
from tilesim.ir.op import Op
from tilesim.ir.ops.fence import FenceScope
from tilesim.ir.scalars import word_access
from tilesim.records import dataclass, field, replace
from tilesim.sim.machine.clock import GENERIC, SHARED, Clock, join
from tilesim.sim.machine.footprint import EVERY, MANY, Access, Footprint, Records, leave_the_same
from tilesim.sim.machine.memory import Memory
from tilesim.sim.machine.release import Released, mutual, narrower
from tilesim.sim.machine.unknown import require_known
from tilesim.sim.machine.warp import Agent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tilesim.sim.machine.interface import Core
    from tilesim.sim.observers.monotone_words import Counter


#: what a verdict says of them, between warps and between lanes of one
UNORDERED = "unordered strong accesses to one location"
UNORDERED_LANES = "unordered strong accesses of lanes of one warp to one location"


@dataclass(eq=False, slots=True)
class Overlap:
    """An access to a memory, by what has this ``clock``, and an earlier one (``record``) to some of
    the same bytes: they touch ``footprint`` and ``other``."""

    memory: Memory
    footprint: Footprint
    access: Access
    other: Footprint
    record: Access
    clock: Clock

    @property
    def foreign(self) -> bool:
        """Whether the earlier one is by another cluster, which runs as a machine of its own."""
        return self.record.warp.machine is not self.access.warp.machine

    @property
    def strong(self) -> bool:
        """Whether both are morally strong accesses of the same elements."""
        same = morally_strong(self.access, self.record)
        return same and self.footprint.same_elements(self.other)


class WordOrder:
    """Notes where the order of strong accesses may decide what is found in memory.

    It does not where they commute; and of words that count, the conditions on counters say whether
    it does (`tilesim.sim.observers.monotone_words`), in the timed run. Which words of shared memory
    count is known when a wait for one is met: what is said of those without a wait is put off.
    """

    def __init__(self, machine: Core) -> None:
        self._machine = machine
        #: tensors with a word that several lanes of a strong access took turns at
        self.crowded: set[str] = set()
        #: by memory and address: what there is to say if the word does not count
        self._put_off: dict[tuple[int, int], tuple[str, Op, bool]] = {}

    def immaterial(self, pair: Overlap) -> bool:
        """Whether the order of two strong accesses to one location decides nothing by itself:
        reductions of one kind commute, but for numbers that some leave, which steer nothing; and of
        two that may not be made, it is unknown what they leave, or find, in either order."""
        access, record = pair.access, pair.record
        if access.may_access is not None and record.may_access is not None:
            return True
        plan, tensor = self._machine.plan, pair.footprint.tensor
        if self._machine.timed and tensor in plan.counters:
            return True
        if not same_reduction(access.op, record.op):
            return False
        if tensor in plan.flow.steering:
            return exact(access.op)
        self._machine.outcome.rounds |= not exact(access.op)
        return True

    def note(self, pair: Overlap) -> None:
        """Two strong accesses are in no order in memory."""
        if self.immaterial(pair):
            return
        machine, counting = self._machine, self._machine.plan.counting
        access, record, places = pair.access, pair.record, (pair.footprint, pair.other)
        lanes = not pair.foreign and record.warp.origin is access.warp.origin
        # exploration branches on the order of scalar accesses only, and not of lanes
        explorable = not (lanes or access.asynchronous or record.asynchronous)
        explorable = explorable and self.crowded.isdisjoint(place.tensor for place in places)
        what = UNORDERED_LANES if lanes else UNORDERED
        if machine.timed and access.op.number in counting and record.op.number in counting:
            shared = np.intersect1d(pair.footprint.addresses, pair.other.addresses)
            for address in shared.tolist():
                self._put_off.setdefault((id(pair.memory), address), (what, access.op, explorable))
            return
        machine.nondeterministic(what, access.op, explorable=explorable)

    def settle(self, counters: Mapping[tuple[int, int], Counter]) -> None:
        """At the end of a run: says what was put off, of words for which there was no wait."""
        for key, (what, op, explorable) in self._put_off.items():
            counter = counters.get(key)
            if counter is None or counter.open:
                self._machine.nondeterministic(what, op, explorable=explorable)


# ---------------------------------------------------- strong accesses that do not race (H2, H3, H6)


def hides(access: Access, record: Access) -> bool:
    """Whether what conflicts with an earlier write conflicts with a strong one after it, too.

    What is strong can be unordered with the second and not race, and yet race with the first, if
    that is weak, of a narrower scope or of the other proxy (H2). And a reduction commutes with
    others, not with the store that comes before them.
    """
    assert access.scope is not None
    if record.scope is None or record.asynchronous != access.asynchronous:
        return False
    if record.warp.cta is not access.warp.cta:
        return False
    if narrower(access.scope, record.scope) != access.scope:
        return False
    return reduction_form(access.op) is None or same_reduction(access.op, record.op)


def morally_strong(access: Access, record: Access) -> bool:
    """Whether both are strong, of one proxy, and each scope includes the other's thread (H2)."""
    if access.scope is None or record.scope is None:
        return False
    if access.asynchronous != record.asynchronous:
        return False
    return mutual(access.scope, access.warp.cta, record.scope, record.warp.cta)


def observe(
    released: Released, warp: Agent, scope: FenceScope, *, acquires: bool, in_shared: bool = False,
    settles: bool = False,
) -> None:  # fmt: skip
    """A strong read of what is ``released`` at an address: an acquire learns of it.

    ``in_shared``: the address lies in shared memory. ``settles``: each lane that reads has waited
    for all of that in every schedule, so of what its own lanes released, each of them knows.

    Whatever the scopes, the read comes after the write in time; data is ordered only where the
    two are morally strong.
    """
    size = warp.machine.components.size
    for (sent, cta), clock in released.items():
        warp.follows(clock)
        join(warp.clock[:size], clock[:size])
        if not mutual(scope, warp.cta, sent, cta):
            continue
        if acquires and settles:
            warp.learns(clock)
        elif acquires:
            join(warp.clock, clock)
        else:
            warp.fences.saw(cta, clock)
            if in_shared and warp.machine.components.in_shared:
                warp.fences.saw(cta, clock, in_shared=True)


def same_value(pair: Overlap) -> bool:
    """Whether both are one instruction, and it stores the same in shared memory (H23): one number,
    so that elements are the same wherever they overlap, or the same data to the same addresses.
    All warps of Triton's default partition say so what the others have to do; and where a layout
    replicates data over warps, all of them store it. Numbers that are addresses of several things
    are equal by where these lie only.

    Where the data is not known, it is noted that it would have to be looked at.
    """
    access, record, near = pair.access, pair.record, pair.memory.mbarriers is not None
    machine, plan = access.warp.machine, access.warp.machine.plan
    # lanes that go their own way may execute another copy of it
    twins = plan.places and plan.twin(access.op.number) == plan.twin(record.op.number)
    if access.op is not record.op and not twins:
        return False
    if not near or machine.options.ptx or access.op.number in plan.mixed:
        return False
    if access.stored is None or record.stored is None:
        if access.write and record.write and access.scope is None:
            machine.outcome.unnamed.add(access.op.number)
        return False
    return leave_the_same(access.stored, record.stored)


def accepted_unfenced(pair: Overlap) -> bool:
    """Whether a write that is ordered after a record needs no proxy fence in practice: a copy over
    the word of tcgen05.alloc (H24), but no reduction, which reads the word."""
    write, record = pair.access, pair.record
    machine = write.warp.machine
    if any(isinstance(e, fx.Writes) and e.combine for e in write.op.effects()):
        return False
    if machine.options.ptx or pair.foreign:
        return False
    if pair.clock[machine.components.size + record.component] < record.tick:
        return False
    if any(isinstance(effect, fx.AllocatesTmem) for effect in record.op.effects()):
        machine.lean("H24", write.op, record.op)
        return True
    return False


def known_to_all(
    machine: Core, least: Clock, rows: dict[tuple[bool, bool], int], fenced: int
) -> Callable[[Access], bool]:
    """Whether every warp knows of an access: ``least`` is what they all do, and a later access
    looks at ``rows``; in ``fenced``, if not 0, at a proxy fence, which is asked for in practice as
    well where a switch does without it (U12, U14)."""
    size = machine.components.size

    def settled(record: Access) -> bool:
        leans = record.bridged or not (record.asynchronous or record.write)
        row = fenced if fenced and leans else rows[record.asynchronous, record.write]
        component = record.component
        return bool(min(least[size + component], least[row + component]) >= record.tick)

    return settled


def note_may_access(machine: Core, memory: Memory, footprint: Footprint, access: Access) -> None:
    """An access of which it is not known whether it is made: to data, which orders nothing.

    Raises:
        UnknownSteers: it has to be known.
    """
    plan, warp = machine.plan, access.warp
    in_shared = memory.mbarriers is not None
    names = {memory.label, footprint.tensor}
    if in_shared and access.among == EVERY:
        names |= {tensor.name for tensor in machine.program.shared}
    tells = access.write and not names.isdisjoint(plan.counters | plan.map_tensors)
    if tells or (in_shared and (memory is not warp.cta.memory or memory.overlaid is not None)):
        require_known(warp.may_access)
    access.may_access = warp.may_access
    if access.write:
        warp.may_be_written.append((footprint, partial(memory.forget, footprint.bytes)))
        if warp.havoc_region is not None and memory.private and access.among != EVERY:
            warp.havoc_region.stores(footprint, access.op.number)


def supersede(
    footprint: Footprint, access: Access, unordered: list[Footprint], outlast: list[Access]
) -> None:
    """Drops what the write covers and is ordered after, but those that ``outlast`` it, and records
    the write."""
    excused = access.iteration or access.stored is not None or access.warp.machine.plan.places
    if access.scope is None and excused:
        access.over = _over(footprint, access, unordered)
    for covered in footprint.covers:
        if covered not in unordered:
            if access.scope is None:
                covered.writes.clear()
                covered.reads.clear()
            else:
                same = covered.same_elements(footprint)
                if same:
                    covered.writes.keep(lambda r: not hides(access, r) or r in outlast)
        elif not access.asynchronous:
            # the same instruction of the same warp, once more: the earlier time adds nothing, but
            # what other parts of the warp do at this one, which only they make known
            warp = access.warp
            own = warp.parts.components if warp.may_divide else (access.component,)
            again = [
                record
                for record in covered.writes.at(own)
                if record.op is access.op
                and record.warp is warp
                and not (record.iteration and record.iteration == access.iteration)
                and record not in outlast
            ]
            for record in again:
                del covered.writes[record]
    writes = footprint.writes
    writes[access] = access
    if len(writes) == MANY:
        footprint.writes = writes.indexed()


def _over(
    footprint: Footprint, access: Access, unordered: list[Footprint]
) -> tuple[tuple[Footprint, Access], ...]:
    """What a weak store supersedes, and earlier ones by the same instruction did: the last access
    of each kind at each component, as what knows that knows the others."""
    last: dict[tuple[object, ...], tuple[Footprint, Access]] = {}
    for covered in footprint.covers:
        if covered in unordered:
            continue
        for record in (*covered.writes, *covered.reads.values()):
            before = record.over if record.op is access.op else ()
            record.over = ()
            for where, one in (*before, (covered, record)):
                key = where, one.component, one.asynchronous, one.write, one.lanes
                if key not in last or last[key][1].tick < one.tick:
                    last[key] = where, one
    return tuple(last.values())


# --------------------------------------------------- which accesses have observed which writes (H5)


@dataclass(frozen=True, slots=True)
class Look:
    """A read: of the writes below ``end`` that are recorded it observed, or its lanes came after,
    those from ``since`` on only, if that is not None. ``waits``: it ended a wait, and, if that is
    ``open``, may find another store in another schedule."""

    component: int
    tick: int
    since: int | None
    end: int
    waits: bool = False
    open: bool = False

    def saw(self, number: int) -> bool:
        """Whether what comes after it comes after the write of this number."""
        return (self.since is None or self.since <= number) and number < self.end


@dataclass(eq=False, slots=True)
class Word:
    """What is known of the strong writes to one footprint, and the reads of it: by which warps, and
    by which lanes, each of which has made them.

    A read of it now observes those numbered from ``since`` on, all of them if that is None; the
    store with which they begin is at ``begin``, component and tick, if it comes after another
    strong write. It is taken to observe none if the word is ``torn``: written asynchronously, or
    not as the word that it is.
    """

    since: int | None = None
    begin: tuple[int, int] | None = None
    last: Access | None = None
    looks: dict[tuple[Agent, int], list[Look]] = field(default_factory=dict)
    torn: bool = False

    def goes_on(self, access: Access) -> bool:
        """Whether what observes a strong write observes the one before it."""
        return _is_rmw(access.op) and (self.last is None or _strong(access, self.last))

    def look(self, look: Look, read: Access, recorded: Records[Access]) -> None:
        """Lanes have observed; of their looks those are kept that were the first to observe some
        write which is still ``recorded``, or the first that are not open."""
        key = read.warp, read.lanes
        before = self.looks.get(key, ())
        since = self._since(read, before, recorded)
        left = {False: recorded.numbers, True: recorded.numbers}
        kept = []
        for one in (*before, replace(look, since=since)):
            numbers = left[one.open]
            first = 0 if one.since is None else bisect_left(numbers, one.since)
            stop = bisect_left(numbers, one.end)
            if first < stop:
                kept.append(one)
                left[one.open] = numbers[:first] + numbers[stop:]
        self.looks[key] = kept

    def _since(self, read: Access, before: Sequence[Look], recorded: Records[Access]) -> int | None:
        """From which of the ``recorded`` writes on lanes come after all of them once they have
        read: because they, too, are observed, have been, or are in their past anyway."""
        since = self.since
        if since is None:
            return None
        older = {r.number: r for r in recorded if r.number is not None and r.number < since}
        for number in sorted(older, reverse=True):
            seen = any(look.saw(number) for look in before if not look.open)
            if not (seen or _knows(read, older[number])):
                break
            since = number
        return since

    def surely_found(self, warp: Agent, end: int, recorded: Records[Access]) -> int | None:
        """Up to which of the ``recorded`` writes below ``end`` a wait of ``warp`` finds in every
        schedule; None if it may end with what was before the store with which they begin."""
        if self.begin is not None and not warp.passed(*self.begin):
            return None
        numbers, components, ticks = recorded.numbered
        known = warp.clock[components]
        own = components == warp.component
        if own.any():
            known[own] = np.minimum(known[own], warp.common)
        late = numbers[(known < ticks) & (numbers >= (self.since or 0)) & (numbers < end)]
        return int(late[0]) if len(late) else end

    def reopen(self, store: Access) -> None:
        """In another schedule the waits that it need not come after find this store."""
        for key, looks in self.looks.items():
            self.looks[key] = [
                replace(
                    look,
                    open=look.open
                    or (look.waits and not store.warp.passed(look.component, look.tick)),
                )
                for look in looks
            ]

    def stands_in(self, later: Access, record: Access) -> bool:
        """Whether all that comes after ``later``, in whichever way, comes after an earlier write by
        the same thread: no agent has observed it without that one."""
        number, after = record.number, later.number
        if number is None or after is None or after <= number or not hides(later, record):
            return False
        if (later.component, later.lanes) != (record.component, record.lanes):
            return False
        return all(
            look.saw(number) for looks in self.looks.values() for look in looks if look.saw(after)
        )


class Observations:
    """The words of one machine that are written strongly; the writes are numbered as they come."""

    def __init__(self) -> None:
        self._words: dict[Footprint, Word] = {}
        self.count = 0

    def of(self, footprint: Footprint) -> Word | None:
        """What is known of a word; None if it has not been written strongly."""
        return self._words.get(footprint)

    def outlast(self, footprint: Footprint, access: Access) -> list[Access]:
        """The records that have to stay though a strong write which conflicts with all that they do
        comes after them: what observes it has not observed those.

        Of one thread that is the last one, and each before it that an agent has not observed which
        has observed the next.
        """
        word = self._words.get(footprint)
        if access.scope is None or word is None or word.torn or word.goes_on(access):
            return []
        writes = footprint.writes
        return [
            r
            for r in writes
            if r.number is not None
            and not any(word.stands_in(later, r) for later in writes.at((r.component,)))
        ]

    def wrote(self, footprint: Footprint, access: Access) -> None:
        """A write of any kind; an RMW of the same word goes on from the one before.

        A weak one needs no more than that no agent observes through it: what conflicts with it is
        ordered with it, and so what was observed before it comes before all that follow it.
        """
        if access.scope is None:
            for other in footprint.overlaps if self._words else ():
                word = self._words.get(other)
                if word is not None:
                    word.since, word.begin = self.count, None
            return
        for other in footprint.overlaps:
            if other is not footprint and other in self._words:
                self._words[other].torn = True
        word = self._words.setdefault(footprint, Word())
        if word.last is not None and not word.goes_on(access):
            word.since, word.begin = self.count, (access.component, access.tick)
            word.reopen(access)
        word.torn |= access.asynchronous
        access.number, word.last = self.count, access
        self.count += 1

    def saw(self, read: Access, footprint: Footprint, *, waits: bool = False) -> None:
        """Lanes have used what their strong read of one word found, or one what its own RMW did,
        just now. ``waits``: it has ended a wait, and they know what they do in every schedule."""
        place = footprint if footprint in self._words else self._same_word(footprint)
        word = None if place is None else self._words[place]
        if place is None or word is None or word.torn or word.last is None:
            return
        own, number = word.last is read, word.last.number
        if number is None or not (own or _strong(read, word.last)):
            return
        end = number + (not own)
        sure = word.surely_found(read.warp, end, place.writes) if waits else end
        if sure is not None:
            look = Look(read.component, read.tick, word.since, sure, waits)
            word.look(look, read, place.writes)
        if sure != end:
            look = Look(read.component, read.tick, word.since, end, waits, open=True)
            word.look(look, read, place.writes)

    def _same_word(self, footprint: Footprint) -> Footprint | None:
        """The bytes of a word that is written by one lane, and read by several at once."""
        return next(
            (
                other
                for other in footprint.overlaps
                if other in self._words
                and other.bytes.nbytes == footprint.bytes.nbytes == footprint.itemsize
                and other.same_elements(footprint)
            ),
            None,
        )

    def before(self, access: Access, record: Access, footprint: Footprint, clock: Clock) -> bool:
        """Whether ``access`` comes after a read that observed ``record``. Where it may be that it
        observes something else in another schedule, schedules differ."""
        word, number = self._words.get(footprint), record.number
        if word is None or number is None or clock[record.component] < record.tick:
            return False
        found = [
            look
            for (warp, lanes), looks in word.looks.items()
            for look in looks
            if look.saw(number) and _follows(access, clock, look, warp, lanes)
        ]
        if found and all(look.open for look in found):
            access.warp.machine.nondeterministic("the store that a wait finds", access.op)
        return bool(found)


def _follows(access: Access, clock: Clock, look: Look, warp: Agent, lanes: int) -> bool:
    """Whether ``access`` comes after a look by ``lanes`` of ``warp``, which comes before all that
    one of them does next."""
    if warp is access.warp:
        if not access.lanes & ~lanes:
            return True
        clock = warp.shared_by_lanes(clock)
    row = GENERIC * warp.machine.components.size
    return warp.is_known(clock, row, look.component, look.tick, lanes)


def _knows(read: Access, record: Access) -> bool:
    """Whether each lane that has read comes after a write in base causality."""
    warp = read.warp
    if record.warp is warp:
        return record.lanes == read.lanes
    return bool(warp.rows(record.component)[GENERIC] >= record.tick)


@cached
def _is_rmw(op: Op) -> bool:
    """Whether what an instruction leaves in a word goes on from what it finds there."""
    access = word_access(op.effects())
    return access is not None and access.combine is not None


def _strong(one: Access, other: Access) -> bool:
    """Whether each of two strong accesses has the other's thread in its scope (H2)."""
    assert one.scope is not None
    assert other.scope is not None
    return mutual(one.scope, one.warp.cta, other.scope, other.warp.cta)


# ------------------------------------------------------------------ elements of vectors (H15)


#: which one of how many
Element: TypeAlias = tuple[int, int]


def begins(element: Element) -> bool:
    """Whether it is the first one."""
    return element[0] == 0


def ends(element: Element) -> bool:
    """Whether it is the last one."""
    return element[0] == element[1] - 1


def position(warp: Agent, element: Element) -> tuple[int, int]:
    """The component that publishes the store of an element, and the tick."""
    return warp.elements[warp.component][element[0]], warp.tick


def published(warp: Agent, element: Element, *, own: bool) -> Clock:
    """What the store of an element releases: no other store of its vector; ``own``: itself."""
    clock, rows = warp.clock.copy(), warp.components.rows
    before = rows(clock, warp.component)
    np.minimum(before, warp.tick - 1, out=before)
    if own:
        component, tick = position(warp, element)
        rows(clock, component)[:SHARED] = tick
    return clock


def gather(released: Released, warp: Agent, scope: FenceScope) -> None:
    """An element has read what is ``released`` at its address, which is learned at the end; of what
    is not morally strong, only that the read comes after it in time."""
    size = warp.machine.components.size
    for (sent, cta), clock in released.items():
        known = clock.copy()
        if not mutual(scope, warp.cta, sent, cta):
            known[size:] = 0
        warp.fences.gather(known)


def acquire(warp: Agent) -> None:
    """The last element has been read: the thread learns what all of them have found."""
    clock = warp.fences.gathered()
    if clock is not None:
        warp.follows(clock)
        join(warp.clock, clock)


# --------------------------------------------------------- reductions: what they make of two values


Combine = Callable[[Any, Any], Any]

COMBINE: dict[str, Combine] = {
    "add": lambda a, b: a + b,
    "min": np.minimum,
    "max": np.maximum,
    "inc": lambda a, b: np.where(a >= b, 0, a + 1),
    "dec": lambda a, b: np.where((a == 0) | (a > b), b, a - 1),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


_KINDS = ("int", "uint", "float", "pred")
#: operations that leave the same integer in whatever order they are applied
COMMUTATIVE = ("add", "min", "max", "and", "or", "xor")
_REDUCTIONS = (*COMMUTATIVE, "inc", "dec")


def reduction_form(op: Op) -> int | None:
    """A number for the kind and type of a reduction that returns nothing, else None."""
    effects = op.effects()
    found = next(filter(None, map(_reduces, effects)), None)
    if found is None or any(isinstance(e, fx.Defines) for e in effects):
        return None
    kind, dtype = found
    if kind not in _REDUCTIONS:
        return None
    return (_KINDS.index(dtype.kind) * 256 + dtype.bits) * len(_REDUCTIONS) + _REDUCTIONS.index(
        kind
    )


def _reduces(effect: fx.Effect) -> tuple[str, DType] | None:
    """What an effect combines with what is there, and of which type."""
    match effect:
        case fx.Writes(view=view, combine=str() as kind):
            return kind, view.dtype
        case fx.RemoteStore(view=view, combine=str() as kind):
            return kind, view.dtype
        case fx.WritesMap(map=map_, combine=str() as kind):
            return kind, map_.tensor.dtype
        case _:
            return None


def same_reduction(first: Op, second: Op) -> bool:
    """Whether both are the same reduction: if it is `exact`, their order changes nothing."""
    form = reduction_form(first)
    return form is not None and form == reduction_form(second)


def exact(op: Op) -> bool:
    """Whether a reduction leaves the same bits in any order: sums of floats do not, nor does what
    counts up to limits."""
    form = reduction_form(op)
    if form is None or form % len(_REDUCTIONS) >= len(COMMUTATIVE):
        return False
    return form // len(_REDUCTIONS) // 256 != _KINDS.index("float")
