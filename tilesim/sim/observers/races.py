"""Race detection: an access is checked against all unordered conflicting ones (SEMANTICS H.5)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import reduce
from itertools import product
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from tilesim.arith.byte_set import ByteSet
from tilesim.sim.machine.clock import GENERIC, GLOBAL, SHARED, Clock
from tilesim.sim.machine.footprint import (
    MANY,
    Access,
    Footprint,
    FootprintTable,
    has_noncoherent_loads,
    noncoherent,
    reads_noncoherently,
)
from tilesim.sim.machine.memory import Memory
from tilesim.sim.machine.word_order import (
    Observations,
    Overlap,
    WordOrder,
    accepted_unfenced,
    known_to_all,
    morally_strong,
    note_may_access,
    same_value,
    supersede,
)
from tilesim.sim.observers.lane_races import (
    MEET,
    LaneExchange,
    apart_note,
    by_parts,
    by_the_same,
    known_as_one,
    lanes_at,
    of_one_store,
    published_also,
    same_instruction,
)
from tilesim.sim.observers.race_text import (
    MIXED,
    check_dependency,
    folded,
    in_no_order,
    missing_edge,
    noncoherent_load,
    overlaps_barrier,
    remedy,
    stores_to_constant,
    without_proxy_fence,
)
from tilesim.sim.observers.tensormap_proxy import MapProxy
from tilesim.sim.observers.uninitialised_reads import Unwritten

if TYPE_CHECKING:
    from tilesim.sim.machine.interface import Core
    from tilesim.sim.machine.mbarrier import Mbarrier
    from tilesim.sim.machine.memory import GlobalMemory
    from tilesim.sim.machine.tickets import Tickets
    from tilesim.sim.machine.warp import Agent

#: what an access is judged by
_Judge: TypeAlias = "Callable[[Memory, Footprint, Access, Clock], None]"
#: row offset by (record is asynchronous, record writes), per kind of accessor
_Rows: TypeAlias = "dict[bool, dict[tuple[bool, bool], int]]"


class Observer(Protocol):
    """Is shown accesses to memory."""

    def touch(self, memory: Memory, footprint: Footprint, access: Access) -> None:
        """``access`` to ``footprint`` is about to be checked and recorded."""
        ...


class RaceDetector:
    """Checks and records accesses; the records live on the footprints.

    A record is ordered before an access if the accessor's clock knows its component at its tick:
    in the async proxy's row for an earlier generic access seen by an asynchronous one, in row G
    otherwise.
    """

    def __init__(
        self,
        machine: Core,
        warps: Sequence[Agent],
        shared: Sequence[Memory],
        global_: GlobalMemory,
        tickets: Tickets,
    ) -> None:
        self.machine = machine
        self._warps = warps
        self._tickets = tickets
        self._noncoherent = has_noncoherent_loads(machine.plan.mir)
        self.observations = Observations()
        #: is shown accesses to global memory; None where there is none
        self.observer: Observer | None = None
        #: is shown all accesses; None where there is none
        self.witness: Observer | None = None
        size = machine.components.size
        self._rows = self._rows_of(SHARED * size)
        #: in practice, the rows in which a copy over what was read would know a fence
        self._unfenced = (0, 0) if machine.options.ptx else (SHARED * size, GLOBAL * size)
        self._global_rows = self._rows_of(GLOBAL * size)
        #: by whether an access is to shared memory, asynchronous, and a write: in which rows it
        #: looks for writes, reads, and what is asynchronous; and for reads behind a fence, or 0
        self._compared = {
            (near, asynchronous, write): (
                rows[asynchronous][False, True],
                rows[asynchronous][False, False],
                rows[asynchronous][True, True],
                fenced if asynchronous and write else 0,
            )
            for near, rows, fenced in (
                (True, self._rows, self._unfenced[0]), (False, self._global_rows, self._unfenced[1])
            )
            for asynchronous, write in product((False, True), repeat=2)
        }  # fmt: skip
        #: (component, tick) of phases acquired by warps that have not acquired those before them
        self._alone: dict[tuple[int, int], set[Agent]] = {}
        self.maps = MapProxy(machine)
        self.words = WordOrder(machine)
        #: agents of accesses that are under way (`tilesim.sim.machine.execute.memory`)
        self.async_agents: list[Agent] = []
        self.unwritten = Unwritten(machine)
        self._losing = machine.plan.losing
        self._raced: set[Footprint] = set()
        self._lanes = LaneExchange(machine, self.words, self._raced)
        #: by the table of a memory that may be tidied up: what its accessors look at
        self._after: dict[FootprintTable, tuple[dict[tuple[bool, bool], int], int]] = {}
        #: those of them that are worth it
        self.crowded_tables: list[FootprintTable] = []
        self._watch(machine.plan.async_tensors, shared, global_)
        self._over = Completions(machine).over

    def _rows_of(self, proxy: int) -> _Rows:
        """The rows to look at, where ``proxy`` is the one of the async proxy in this memory."""
        size = self.machine.components.size
        generic = {(False, False): size, (False, True): size,
                   (True, False): size, (True, True): size}  # fmt: skip
        after_read = proxy if self.machine.options.ptx else size
        return {False: generic,
                True: {**generic, (False, True): proxy, (False, False): after_read}}  # fmt: skip

    def _watch(
        self, asynchronous: frozenset[str], shared: Sequence[Memory], global_: GlobalMemory
    ) -> None:
        """Prepares `sweep` for the memories that no other machine accesses after this one."""
        machine = self.machine
        engines = any(s.name in asynchronous for s in machine.program.shared)
        near, far = self._unfenced
        after = {memory.table: (self._rows[engines], near * engines) for memory in shared}
        # of what the non-coherent cache may read no write is ever settled
        if len(shared) == machine.program.ctas and not self._noncoherent:
            for name, memory in global_.memories.items():
                if name in machine.plan.map_tensors:
                    continue  # whether copies know of a write is asked even if all warps do
                copied = name in asynchronous
                after[memory.table] = self._global_rows[copied], far * copied
        for table in after:
            table.crowded = self.crowded_tables
        self._after = after

    # ------------------------------------------------------------------ the two entry points

    def read(
        self, memory: Memory, footprint: Footprint, access: Access, clock: Clock,
        *, again: bool = False, ordered: bool = False,
    ) -> None:  # fmt: skip
        """Records a read, after checking it against unordered writes.

        ``again``: that is done for another warp, which takes part in the same operation.
        ``ordered``: there are none, as `knows_writes` says.
        """
        if self._is_judged_elsewhere(memory, footprint, access, clock, self.read):
            return
        if ordered:
            for other in footprint.overlaps:
                for record in other.writes:
                    record.precedes(access, footprint)
        else:
            self._unordered(memory, footprint, access, clock, again=again)
        if again:
            return
        if memory.mbarriers is None:
            if memory.begins_empty:
                self.unwritten.note(memory, footprint, access)
            if self._losing:
                self.unwritten.note_lost(memory, footprint, access, self._losing)
            apart = self._noncoherent and reads_noncoherently(access.op)
            key = access.warp, access.component, access.scope, access.lanes, apart
            footprint.reads[key] = access
            if len(footprint.reads) == MANY:
                footprint.reads = footprint.reads.indexed()
            return
        footprint.reads[access.component, access.asynchronous, access.scope, access.lanes] = access
        if memory.overlaid is not None:
            for writer in memory.overlaid.others(footprint):
                self.machine.outcome.crossed.add((writer, footprint.tensor))
        if footprint.barriers:
            overlaps_barrier(memory, footprint, access)
        self.unwritten.note(memory, footprint, access)

    def knows_writes(self, near: Sequence[Footprint], clock: Clock) -> bool:
        """Whether an asynchronous read of shared memory comes after all writes to what is ``near``
        it, by what clocks say: there is nothing to say of it then."""
        rows = self._rows[True]
        after_write, after_async = rows[False, True], rows[True, True]
        known = clock.item
        for other in near:
            for record in other.writes:
                row = after_async if record.asynchronous else after_write
                component, tick = record.component, record.tick
                if known(row + component) < tick or (
                    record.engine and record.bridged and known(after_write + component) < tick
                ):
                    return False
        return True

    def write(self, memory: Memory, footprint: Footprint, access: Access, clock: Clock) -> None:
        """Records a write, after checking it against all unordered accesses.

        What the write covers and is ordered before it needs no record any more: a later access
        that is ordered after this write is ordered after those too.
        """
        if self._is_judged_elsewhere(memory, footprint, access, clock, self.write):
            return
        if footprint.folded and access.scope is None:
            folded(footprint, access)
        unordered = self._unordered(memory, footprint, access, clock)
        near = memory.mbarriers is not None
        if near and (access.asynchronous or access.engine):
            Completions.note_write(footprint, access, unordered)
        elif near and access.scope is None and len(footprint.covers) != len(footprint.overlaps):
            Completions.note_part(footprint, access, unordered)
        outlast = self.observations.outlast(footprint, access)
        self.observations.wrote(footprint, access)
        supersede(footprint, access, unordered, outlast)
        if memory.begins_empty:
            memory.table.note_write(footprint, access.may_access)
        if not near:
            return
        if memory.overlaid is not None:
            memory.overlaid.wrote(footprint)
        if footprint.barriers:
            overlaps_barrier(memory, footprint, access)

    def _is_judged_elsewhere(
        self, memory: Memory, footprint: Footprint, access: Access, clock: Clock, each: _Judge
    ) -> bool:
        """Shows an access to those that look on; whether that is all: nothing is said of its
        memory, or it has been judged for ``each`` of the parts of the warp by itself."""
        if self.witness is not None:
            self.witness.touch(memory, footprint, access)
        if not memory.tracked:
            return True
        warp = access.warp
        access.iteration = warp.iteration
        if warp.may_access is not None:
            note_may_access(self.machine, memory, footprint, access)
        parts, part = warp.acting, warp.part
        if len(parts) > 1 and access.component == warp.component:
            for warp.part, own in by_parts(access, parts):
                warp.acting = [warp.part]
                each(memory, footprint, own, warp.part.clock)
            warp.acting, warp.part = parts, part
            return True
        if access.among and warp.exchanges:
            self._lanes.check(memory, footprint, access, clock)
        return False

    def _unordered(
        self, memory: Memory, footprint: Footprint, access: Access, clock: Clock,
        *, again: bool = False,
    ) -> list[Footprint]:  # fmt: skip
        """Checks an access; returns the footprints with records that are not ordered before it.

        Accesses of other clusters, which run as machines of their own, are never ordered.
        """
        machine, near = self.machine, memory.mbarriers is not None
        asynchronous, write = access.asynchronous, access.write
        after_write, after_read, after_async, fenced = self._compared[near, asynchronous, write]
        bridges, counts, apart = near and asynchronous, False, False
        read_in_flight = bridges and not write
        #: by component of a warpgroup, what publishes the waits of its warps, and up to where each
        #: of them is known to have waited
        own_waits, waited = machine.own_waits, dict[int, int]()
        if not near:
            own_waits = {}
            self._enters_global(memory, footprint, access, clock)
            counts, apart = self._word_only_counts(memory, footprint, access), self._noncoherent
        unordered: list[Footprint] = []
        known = clock.item
        for other in footprint.overlaps:
            records: Collection[Access] = other.writes
            if counts and footprint.same_elements(other):
                records = [*other.writes.narrow, *(other.reads.narrow if write else ())]
                if len(records) < len(other.writes) + len(other.reads if write else ()):
                    unordered.append(other)
            elif write and other.reads:
                records = [*records, *other.reads.values()]
            for record in records:
                component, tick = record.component, record.tick
                if record.asynchronous:
                    row = after_async
                    if bridges and record.engine and known(after_write + component) < tick:
                        machine.lean("U14", record.op, access.op)
                else:
                    row = after_write if record.write else after_read
                if near:
                    late = known(row + component) < tick and self._late(memory, row, record, clock)
                else:
                    late = known(row + component) < tick or record.warp.machine is not machine
                if late:
                    pair = Overlap(memory, footprint, access, other, record, clock)
                    if near and self._is_excused(pair):
                        continue
                    unordered.append(other)
                    if self._conflict(pair):
                        continue
                elif read_in_flight:
                    if not again:
                        record.precedes(access, footprint)
                elif record.write:
                    pass
                elif component in own_waits:
                    if component not in waited:
                        waited[component] = min([known(row + own) for own in own_waits[component]])
                    if waited[component] < tick:
                        machine.lean("warpgroup-wait", access.op, record.op)
                elif (
                    fenced
                    and not record.asynchronous
                    and known(fenced + component) < tick
                    and not (near and not self._late(memory, fenced, record, clock))
                ):
                    surely = self._only_clocks_order(access, record)
                    machine.lean("U12", access.op, record.op, surely=surely)
                if apart and noncoherent(access, record):
                    unordered.append(other)
                    if not self._tickets.apart(access.warp, record.warp):
                        memory.table.require_all()
                        self._raced.update((footprint, other))
                        pair = Overlap(memory, footprint, access, other, record, clock)
                        noncoherent_load(pair)
        return unordered

    def _is_excused(self, pair: Overlap) -> bool:
        """Whether an access to shared memory comes after a record that its clock does not know."""
        write, rows = pair.access.write, self._rows[pair.access.asynchronous]
        if pair.record.later and self._over(pair, rows, writes=write):
            return True
        return write and pair.record.write and accepted_unfenced(pair)

    def _only_clocks_order(self, access: Access, record: Access) -> bool:
        """Whether two weak accesses race wherever no clock has the order of them."""
        plain = access.scope is record.scope is None and record.also is None and not record.later
        apart = self._alone or self._tickets.apart(access.warp, record.warp)
        return plain and not record.warp.may_divide and not (self.machine.plan.places or apart)

    def _late(self, memory: Memory, row: int, record: Access, clock: Clock) -> bool:
        """True if a record that is not known in ``row`` is not known in the other one either."""
        of_owner = record.warp.cta.memory is memory
        also = self.machine.components.also(row, memory.own_row, of_owner=of_owner)
        return not also or bool(clock[also + record.component] < record.tick)

    def _enters_global(
        self, memory: Memory, footprint: Footprint, access: Access, clock: Clock
    ) -> None:
        """What an access to global memory is judged by before others there are looked at."""
        if self.observer is not None:
            self.observer.touch(memory, footprint, access)
        if memory.dependent:
            check_dependency(self.machine, footprint, access, clock)
        if access.write and memory.constant:
            self._raced.add(footprint)
            stores_to_constant(footprint, access)
        if memory.table.past:
            rows = self._global_rows[access.asynchronous]
            memory.table.require_past_over(footprint, access, clock, rows)

    def _word_only_counts(self, memory: Memory, footprint: Footprint, access: Access) -> bool:
        """Whether what others count at the same word need not be compared with a strong access: in
        whatever order, it is no race, and decides nothing (`WordOrder.immaterial`)."""
        wide = access.wide and not self._noncoherent
        counts = footprint.tensor in self.machine.plan.counters and not self.machine.explored
        return wide and counts and not memory.table.skipped

    def sweep(self) -> None:
        """Forgets accesses that every warp knows: none that comes can be unordered with them."""
        accessors = (*self._warps, *self.async_agents)
        least = reduce(np.minimum, (w.known for w in accessors if not w.exited))
        keep = {*self._raced, *self.unwritten.footprints}
        for table in self.crowded_tables:
            settled = known_to_all(self.machine, least, *self._after[table])
            table.sweep(settled, keep)
        self.crowded_tables.clear()

    def skip(
        self, barrier: Mbarrier, warp: Agent, known: int,
        components: tuple[int, ...] | None = None,
    ) -> None:  # fmt: skip
        """``warp`` acquires the last phase of ``barrier``, of those before only ``known`` (U7), of
        some of its ``components`` or of all.

        A clock cannot say that, so it stays at ``known`` and the last phase is noted apart.
        """
        every = barrier.component, barrier.engine, barrier.peers
        for component in every if components is None else components:
            if component is not None:
                own = warp.rows(component)[GENERIC:]
                np.minimum(own, known, out=own)
                self._alone.setdefault((component, barrier.base + barrier.phase), set()).add(warp)

    def _acquired_alone(self, access: Access, record: Access) -> bool:
        """True if the clocks do not show that ``record`` is ordered before ``access``, or may be.

        What another warp learns from one that has skipped a phase is not followed.
        """
        warps = self._alone.get((record.component, record.tick))
        if warps is None:
            return False
        if access.warp not in warps:
            self.machine.nondeterministic(
                f"what {access.warp} knows through a wait that skipped a phase",
                access.op,
                explorable=False,
            )
        return True

    # ------------------------------------------------------------------ findings

    def _rows_for(self, memory: Memory) -> _Rows:
        return self._global_rows if memory.mbarriers is None else self._rows

    def _conflict(self, pair: Overlap) -> bool:
        """Whether two accesses that clocks do not order race; reports it if they do."""
        memory, footprint, other, clock = pair.memory, pair.footprint, pair.other, pair.clock
        access, record, foreign = pair.access, pair.record, pair.foreign
        machine = self.machine
        if not foreign:  # others' are unordered, whenever they were
            memory.table.require_all()
        if self._acquired_alone(access, record) or self._tickets.apart(access.warp, record.warp):
            return False
        if by_the_same(pair):
            return False
        if same_instruction(access, record):
            self._check_superseded(pair)
            return False
        row = self._rows_for(memory)[access.asynchronous][record.asynchronous, record.write]
        near = memory.mbarriers is not None
        of_owner = record.warp.cta.memory is memory
        also = machine.components.also(row, memory.own_row, of_owner=of_owner) if near else 0
        for at in (row, also) if also else (row,):
            if published_also(record, clock, at) or known_as_one(record, other, clock, at):
                return False
            if record.warp.may_divide and not foreign:
                lanes = lanes_at(record, other, footprint, access)
                if record.warp.is_known(clock, at, record.component, record.tick, lanes):
                    self._lanes.check_split(pair, at)
                    if access.write and (access.asynchronous or access.engine):
                        record.precedes(access, footprint)
                    return False
        if self._lanes.check_waited(pair):
            return False
        if pair.strong:
            self.words.note(pair)
            return False
        sure = access.may_access is record.may_access is None
        same = sure and footprint is other and not foreign
        if same and self.observations.before(access, record, other, clock):
            return False
        if (of_one_store(pair) or same_value(pair)) and machine.accepts("H23", access.op):
            self._check_superseded(pair)
            return False
        self._raced.update((footprint, other))
        size = machine.components.size
        if not foreign and clock[size + record.component] >= record.tick:
            without_proxy_fence(pair)
            return True
        (kind, why), fix = missing_edge(pair), remedy(pair)
        apart = None if foreign else apart_note(pair)
        if morally_strong(access, record):
            kind, (why, fix) = "race/mixed-sizes", MIXED
        elif apart is not None:
            (kind, why), fix = apart, MEET
        in_no_order(pair, kind, why, fix)
        return True

    def _check_superseded(self, pair: Overlap) -> None:
        """A write that need not come after another one comes after what that one came after."""
        memory, clock, near = pair.memory, pair.clock, pair.memory.mbarriers is not None
        rows = self._rows_for(memory)[pair.access.asynchronous]
        for other, before in pair.record.over:
            row = rows[before.asynchronous, before.write]
            known = clock[row + before.component] >= before.tick
            if known or other not in pair.footprint.overlaps:
                continue
            if near and not self._late(memory, row, before, clock):
                continue
            earlier = Overlap(memory, pair.footprint, pair.access, other, before, clock)
            if not (near and before.later and self._over(earlier, rows, writes=True)):
                self._conflict(earlier)

    def report_unwritten(self) -> None:
        """At the end of a run: reads of bytes that nothing had written."""
        self.unwritten.report(self._raced)


# ------------------------------------------------------- what accesses that are complete tell (A28)


#: remembered answers about bytes that completed accesses vouch for
_VOUCHED = 4096


class Completions:
    """An asynchronous access publishes itself alone when it completes, not what its issuer knew.

    Yet what it came after on its own bytes is over by then: what comes after an asynchronous write
    sees nothing older there, and a stage that TMA has filled and an mma has read may be filled
    again after tcgen05.commit. Bytes that were not touched are not handed back.
    """

    def __init__(self, machine: Core) -> None:
        self._machine = machine
        #: by the bytes of an access, those of an earlier one, and those touched in between
        self._vouched: dict[tuple[Footprint, Footprint, tuple[Footprint, ...]], bool] = {}

    @staticmethod
    def note_write(footprint: Footprint, write: Access, unordered: list[Footprint]) -> None:
        """An asynchronous write comes after the records there are; it does not replace all."""
        if write.scope is None and len(footprint.covers) == len(footprint.overlaps):
            return
        for other in footprint.overlaps:
            if other not in unordered:
                for record in (*other.writes, *other.reads.values()):
                    record.precedes(write, footprint)

    @staticmethod
    def note_part(footprint: Footprint, write: Access, unordered: list[Footprint]) -> None:
        """A write of a thread comes after asynchronous accesses to more than it writes: on its own
        bytes, what comes after it sees nothing of them."""
        for other in footprint.overlaps:
            if other not in unordered and other not in footprint.covers:
                for record in (*other.writes, *other.reads.values()):
                    if record.asynchronous:
                        record.precedes(write, footprint)

    def over(self, pair: Overlap, rows: dict[tuple[bool, bool], int], *, writes: bool) -> bool:
        """Whether an earlier access is known through accesses that came after it to all bytes that
        it shares with the later one, which ``writes``: only then reads count as well.

        ``rows`` are those of the accessor's clock by kind of access; fences for this memory alone
        have one of their own.
        """
        memory, record, clock = pair.memory, pair.record, pair.clock
        also = self._machine.components.also

        def knows(at: int, access: Access) -> bool:
            row = rows[access.asynchronous, access.write]
            own = also(row, memory.own_row, of_owner=access.warp.cta.memory is memory)
            known = clock[row + at] >= access.tick
            return bool(known or (own and clock[own + at] >= access.tick))

        later = (record.later or {}).items()
        known = tuple(
            part for (at, part), access in later if (writes or access.write) and knows(at, access)
        )
        if not known:
            return False
        key = (pair.footprint, pair.other, known)
        answer = self._vouched.get(key)
        if answer is None:
            if len(self._vouched) >= _VOUCHED:
                self._vouched.clear()
            vouched = ByteSet.union(part.bytes for part in known)
            answer = self._vouched[key] = vouched.contains(pair.footprint.bytes & pair.other.bytes)
        if answer:
            self._note_bridged(record, rows, clock)
        return answer

    def _note_bridged(
        self, record: Access, rows: dict[tuple[bool, bool], int], clock: Clock
    ) -> None:
        """What would not be known if cp.async were not taken to write through both proxies."""
        unfenced = rows[False, True]
        for (at, _), access in (record.later or {}).items():
            if (record.bridged and not access.asynchronous) or (
                access.bridged and clock[unfenced + at] < access.tick
            ):
                self._machine.lean("U14", record.op, access.op)
