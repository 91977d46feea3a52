"""Race detection: an access is checked against all unordered conflicting ones (SEMANTICS H.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesim.sim.machine.access import Access
from tilesim.sim.machine.clock import Clock
from tilesim.sim.machine.footprint import Footprint
from tilesim.sim.machine.memory import Memory
from tilesim.sim.machine.reduction import alike, exact
from tilesim.sim.machine.release import mutual

if TYPE_CHECKING:
    from tilesim.ir.op import Op
    from tilesim.sim.findings import Participant
    from tilesim.sim.machine.machine import Machine
    from tilesim.sim.machine.warp import Warp


class RaceDetector:
    """Checks and records accesses; the records live on the footprints.

    A record is ordered before an access if the accessor's clock knows its component at its tick:
    in row A for an earlier generic access seen by an asynchronous one, in row G otherwise.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        size = machine.components.size
        ptx = machine.options.ptx
        generic = {(False, False): size, (False, True): size,
                   (True, False): size, (True, True): size}  # fmt: skip
        #: row offset by (record is asynchronous, record writes), per kind of accessor
        self._rows = {
            False: generic,
            True: {**generic, (False, True): 2 * size,
                   (False, False): 2 * size if ptx else size},
        }  # fmt: skip
        self._unwritten: dict[tuple[object, ...], tuple[Memory, Footprint, Warp, Op]] = {}
        self._raced: set[Footprint] = set()

    # ------------------------------------------------------------------ the two entry points

    def read(self, memory: Memory, footprint: Footprint, access: Access, clock: Clock) -> None:
        """Records a read, after checking it against unordered writes."""
        if not memory.tracked:
            return
        if memory.mbarriers is None:
            self._check_global(memory, footprint, access, clock)
            footprint.reads[access.warp, access.component, access.scope] = access
            return
        rows = self._rows[access.asynchronous]
        for other in footprint.overlaps:
            for record in other.writes:
                row = rows[record.asynchronous, True]
                if clock[row + record.component] < record.tick:
                    self._conflict(memory, footprint, access, other, record, clock)
        footprint.reads[access.component, access.asynchronous, access.scope] = access
        if footprint.barriers:
            self._check_lifetime(memory, footprint, access)
        if not footprint.initialised and not memory.table.is_initialised(footprint):
            key = (access.op.loc, footprint.tensor)
            self._unwritten.setdefault(key, (memory, footprint, access.warp, access.op))

    def write(self, memory: Memory, footprint: Footprint, access: Access, clock: Clock) -> None:
        """Records a write, after checking it against all unordered accesses.

        What the write covers and is ordered before it needs no record any more: a later access
        that is ordered after this write is ordered after those too.
        """
        if not memory.tracked:
            return
        if memory.mbarriers is None:
            kept = self._check_global(memory, footprint, access, clock)
            self._supersede(footprint, access, kept)
            return
        rows = self._rows[access.asynchronous]
        after_write, after_read = rows[False, True], rows[False, False]
        after_async = rows[True, True]
        unordered: list[Footprint] = []
        for other in footprint.overlaps:
            for record in other.writes:
                row = after_async if record.asynchronous else after_write
                if clock[row + record.component] < record.tick:
                    if self._read_since(other, after_async, clock):
                        continue
                    self._conflict(memory, footprint, access, other, record, clock)
                    unordered.append(other)
            for record in other.reads.values():
                row = after_async if record.asynchronous else after_read
                if clock[row + record.component] < record.tick:
                    self._conflict(memory, footprint, access, other, record, clock)
                    unordered.append(other)
        self._supersede(footprint, access, unordered)
        memory.table.note_write(footprint)
        if footprint.barriers:
            self._check_lifetime(memory, footprint, access)

    @staticmethod
    def _read_since(written: Footprint, row: int, clock: Clock) -> bool:
        """True if the write is known through a completed asynchronous read of its bytes.

        The read was ordered after the write, and what completes on an mbarrier publishes nothing
        else (A28): tcgen05.commit hands a stage back that TMA has filled and an mma has read.
        """
        return any(
            read.asynchronous and clock[row + read.component] >= read.tick
            for inside in written.covers
            for read in inside.reads.values()
        )

    @staticmethod
    def _supersede(footprint: Footprint, access: Access, unordered: list[Footprint]) -> None:
        """Drops what the write covers and is ordered after, and records the write."""
        for covered in footprint.covers:
            if covered not in unordered:
                covered.writes.clear()
                covered.reads.clear()
            elif not access.asynchronous:
                # the same instruction of the same warp, once more: the earlier time adds nothing
                covered.writes[:] = [
                    record
                    for record in covered.writes
                    if record.op is not access.op or record.warp is not access.warp
                ]
        footprint.writes.append(access)

    def _check_global(
        self, memory: Memory, footprint: Footprint, access: Access, clock: Clock
    ) -> list[Footprint]:
        """Checks a global access; returns the footprints with accesses not ordered before it.

        Accesses of other clusters, which run as machines of their own, are never ordered.
        """
        if memory.dependent:
            self._check_dependency(footprint, access, clock)
        rows = self._rows[access.asynchronous]
        unordered: list[Footprint] = []
        for other in footprint.overlaps:
            records = [*other.writes, *other.reads.values()] if access.write else other.writes
            for record in records:
                row = rows[record.asynchronous, record.write]
                foreign = record.warp.machine is not self.machine
                if foreign or clock[row + record.component] < record.tick:
                    self._conflict(memory, footprint, access, other, record, clock)
                    unordered.append(other)
        return unordered

    def _check_dependency(self, footprint: Footprint, access: Access, clock: Clock) -> None:
        """An access to what the grid before this one uses comes after griddepcontrol.wait."""
        machine = self.machine
        assert machine.dependency is not None
        if clock[machine.components.size + machine.dependency]:
            return
        machine.report(
            "race",
            f"{describe(access)} {footprint.name}, which the grid before this one may still be "
            "using: no griddepcontrol.wait is ordered before it (D17)",
            (self._side(access, footprint),),
            fix="execute griddepcontrol.wait before the first use of what the earlier grid "
            "produces; launch_dependents publishes nothing",
        )

    # ------------------------------------------------------------------ findings

    def _check_lifetime(self, memory: Memory, footprint: Footprint, access: Access) -> None:
        assert memory.mbarriers is not None
        for address in footprint.barriers:
            barrier = memory.mbarriers[address]
            if barrier.live and barrier.init is not None:
                machine = self.machine
                machine.report(
                    "barrier-lifetime",
                    f"{describe(access)} {footprint.name}, which overlaps the live mbarrier "
                    f"{barrier.label} (A6)",
                    (
                        self._side(access, footprint),
                        machine.participant(
                            barrier.init.warp, f"initialised {barrier.label}", barrier.init.op
                        ),
                    ),
                    fix="mbarrier.inval the barrier (and synchronise) before its bytes are "
                    "reused, or give it storage of its own",
                )

    def _side(self, access: Access, footprint: Footprint) -> Participant:
        verb = "writes" if access.write else "reads"
        action = f"{verb} {footprint.name} by {access.op.mnemonic}"
        return self.machine.participant(access.warp, action, access.op)

    def _conflict(
        self,
        memory: Memory,
        footprint: Footprint,
        access: Access,
        other: Footprint,
        record: Access,
        clock: Clock,
    ) -> None:
        machine = self.machine
        if _morally_strong(access, record):
            same = alike(access.op, record.op)
            if not (same and exact(access.op)):
                # exploration branches on the order of scalar accesses only
                explorable = same or not (access.asynchronous or record.asynchronous)
                machine.nondeterministic(
                    "unordered strong accesses to one location", access.op, explorable=explorable
                )
            return
        self._raced.update((footprint, other))
        size = machine.components.size
        foreign = record.warp.machine is not machine
        if not foreign and clock[size + record.component] >= record.tick:
            machine.report(
                "proxy-fence",
                f"{describe(access)} {footprint.name} after {describe(record, past=True)} "
                f"{other.name}: they are synchronised, but no fence.proxy.async lies between the "
                "generic and the async proxy (H6, H11)",
                (self._side(access, footprint), self._side(record, other)),
                (f"memory: {memory.label}",),
                fix="execute fence.proxy.async after the generic access and before the "
                "synchronisation that leads to the asynchronous one, in every thread that made it",
            )
            return
        machine.report(
            "race",
            f"{describe(access)} {footprint.name} and nothing orders it after "
            f"{describe(record, noun=True)} {other.name}",
            (self._side(access, footprint), self._side(record, other)),
            (f"memory: {memory.label}", self._missing_edge(access, record, clock, foreign=foreign)),
            fix=_fix(record, access),
        )

    def _missing_edge(self, access: Access, record: Access, clock: Clock, *, foreign: bool) -> str:
        if access.scope is not None and record.scope is not None:
            return (
                f"both are strong, but scope {record.scope} of the earlier and scope "
                f"{access.scope} of the later one do not include each other's thread (H2)"
            )
        if foreign:
            return "the two CTAs are in different clusters and do not synchronise"
        if clock[record.component] >= record.tick:
            return (
                "the two are ordered in time by operations that publish no memory to the other "
                "side (relaxed, or of a scope that does not include it)"
            )
        if record.asynchronous or record.engine:
            state = "is still in flight" if record.in_flight else "has completed, unobserved"
            return f"{record.op.mnemonic} at {record.op.loc} {state}"
        return "no chain of release and acquire operations leads from one to the other"

    def report_unwritten(self) -> None:
        """At the end of a run: reads of bytes that nothing had written."""
        for memory, footprint, warp, op in self._unwritten.values():
            if any(f in self._raced for f in footprint.overlaps):
                continue
            who = self.machine.participant(warp, f"reads {footprint.name} by {op.mnemonic}", op)
            self.machine.report(
                "uninitialised-read",
                f"{warp} reads {footprint.name} ({memory.label}) before anything wrote it",
                (who,),
                fix="write it first, or wait for the copy that fills it",
            )


def _morally_strong(access: Access, record: Access) -> bool:
    """Whether both are strong and each one's scope includes the other's thread (H2)."""
    if access.scope is None or record.scope is None:
        return False
    return mutual(access.scope, access.warp.cta, record.scope, record.warp.cta)


def describe(access: Access, *, past: bool = False, noun: bool = False) -> str:
    """``producer (warp 4) writes``, or the asynchronous operation it issued."""
    if access.asynchronous or access.engine:
        who = f"{access.op.mnemonic} of {access.warp}"
    else:
        who = str(access.warp)
    if noun:
        return f"the {'write' if access.write else 'read'} by {who} of"
    if past:
        return f"{who} {'wrote' if access.write else 'read'}"
    return f"{who} {'writes' if access.write else 'reads'}"


def _fix(record: Access, access: Access) -> str:
    """What would order ``record`` before ``access``."""
    if access.scope is not None and record.scope is not None:
        return "give both a scope that includes the other: cluster within a cluster, else gpu"
    completion = {
        "wgmma.mma_async": "wgmma.commit_group and wait_group",
        "cp.async.bulk.tensor.load": "a wait on its mbarrier",
        "cp.async.bulk.load": "a wait on its mbarrier",
        "tcgen05.mma": "tcgen05.commit on an mbarrier and a wait for it",
        "tcgen05.cp": "tcgen05.commit on an mbarrier and a wait for it",
        "clusterlaunchcontrol.try_cancel": "a wait on its mbarrier",
        "cp.async": "cp.async.wait_group (or cp.async.mbarrier.arrive and a wait)",
    }.get(record.op.mnemonic, "cp.async.bulk.commit_group and wait_group")
    if record.asynchronous or record.engine:
        handoff = (
            "" if record.warp is access.warp else ", then a release that the other side acquires"
        )
        return f"complete the earlier operation first: {completion}{handoff}"
    return (
        "order the two: release after the first (mbarrier arrive, barrier, ...) and acquire it "
        "(wait, barrier.sync, ...) before the second"
    )
