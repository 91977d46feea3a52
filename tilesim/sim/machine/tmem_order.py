"""Whether accesses to tensor memory are ordered (SEMANTICS G.5, G.6), and what is reported if not.

An earlier access is ordered before a later one if

* the two kinds execute in one pipeline (G19) and the second is issued after the first, or
* the first is known to be complete where the second is issued.

"Known" means, at strictness ``ptx``, that the hand-over went through the tcgen05 fences (a commit
implies the first of them); ``practice`` also accepts a release and an acquire without them (U20).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilesim.ir.tmem import LANES
from tilesim.sim.findings import Deed, Kind, Named
from tilesim.sim.machine.agent import Agent
from tilesim.sim.machine.groups import DRAINED
from tilesim.sim.machine.tmem import Allocation, Cells, Tmem, TmemAccess

if TYPE_CHECKING:
    from tilesim.ir.op import Op
    from tilesim.sim.findings import Participant
    from tilesim.sim.machine.core import Core
    from tilesim.sim.machine.cta import Cta

#: pairs of different kinds that execute in issue order (G19)
_PIPELINED = frozenset({("cp", "mma"), ("shift", "mma"), ("mma", "shift")})
_COMPLETION = {
    "mma": "tcgen05.commit on an mbarrier and a wait for it",
    "cp": "tcgen05.commit on an mbarrier and a wait for it",
    "shift": "tcgen05.commit on an mbarrier and a wait for it",
    "ld": "tcgen05.wait::ld",
    "st": "tcgen05.wait::st",
}
#: what to do about lanes of another warp
FOREIGN_LANES = "add 32 * (warp_id % 4) lanes to the address"


class TmemOrder:
    """Checks and records the accesses of one machine."""

    def __init__(self, machine: Core, ctas: Sequence[Cta]) -> None:
        self._machine = machine
        self._ctas = ctas
        self._ptx = machine.options.ptx
        self._size = machine.components.size
        self._unwritten: dict[object, tuple[Cells, Agent, Op]] = {}
        self._raced: set[Cells] = set()
        #: by CTA, warpgroup and instruction: the warps, by their quarter of the lanes, for which it
        #: has an address in the first quarter
        self._alike: dict[tuple[int, int, int], dict[int, tuple[Agent, Op]]] = {}

    def access(self, tmem: Tmem, box: Cells, new: TmemAccess) -> None:
        """Checks an access against all that conflict with it, and records it."""
        tmem.require_allocated(new.warp, new.op, box)
        unordered: list[Cells] = []
        for other in box.overlaps:
            for record in other.writes:
                if not self._ordered(record, new):
                    self._conflict(tmem, box, new, other, record)
                    unordered.append(other)
            if not new.write:
                continue
            for record in other.reads.values():
                if not self._ordered(record, new):
                    self._conflict(tmem, box, new, other, record)
                    unordered.append(other)
        if not new.write:
            box.reads[new.warp.index, new.lanes, new.kind] = new
            return
        for covered in box.covers:
            if covered not in unordered:
                covered.writes.clear()
                covered.reads.clear()
        box.writes.append(new)
        tmem.initialise(box)

    def require_initialised(self, tmem: Tmem, box: Cells, warp: Agent, op: Op) -> None:
        """Notes a read of cells that nothing has written since they were allocated."""
        tmem.require_allocated(warp, op, box)
        if not box.initialised and not tmem.is_initialised(box):
            self._unwritten.setdefault((op.loc, box.columns), (box, warp, op))

    def free(self, tmem: Tmem, allocation: Allocation, new: TmemAccess) -> bool:
        """Every access to the columns must be complete where they are freed (G8, U25); whether
        that is so."""
        whole = tmem.box(0, LANES, allocation.address, allocation.columns)
        complete = True
        for other in whole.overlaps:
            for record in (*other.writes, *other.reads.values()):
                if not self._ordered(record, new):
                    self._early_free(tmem, new, other, record)
                    complete = False
        return complete

    # ------------------------------------------------------------------ the rule

    def _ordered(self, old: TmemAccess, new: TmemAccess) -> bool:
        if self._is_one(old, new):
            return False  # one operation, which reads what it writes
        if self._directly(old, new):
            return True
        # what runs in the pipeline after it completes after it, and orders what comes after that
        return any(self._directly(follower, new) for follower in old.followers)

    @staticmethod
    def _is_one(old: TmemAccess, new: TmemAccess) -> bool:
        """Whether two accesses are of one operation."""
        return (old.queue, old.order, old.warp) == (new.queue, new.order, new.warp)

    @staticmethod
    def _of_one_thread(old: TmemAccess, new: TmemAccess) -> bool:
        """Whether one thread has issued both of two operations of tensor cores."""
        return old.warp is new.warp and old.lanes == new.lanes

    def _directly(self, old: TmemAccess, new: TmemAccess) -> bool:
        if self._pipelined(old, new) and self._issued_before(old, new):
            if old.kind != new.kind and not any(
                self._of_one_thread(follower, new) for follower in old.followers
            ):
                old.followers.append(new)
            return True
        return self._completed(old, new)

    def _pipelined(self, old: TmemAccess, new: TmemAccess) -> bool:
        pair = (old.kind, new.kind)
        same = old.accumulator is not None and old.accumulator == new.accumulator
        if pair == ("mma", "mma") and same:
            return True
        if pair in (("mma", "mma"), ("mma", "cp")):
            # U19: not in the list; relied on all the same for operands that the mma only reads,
            # by block-scaled mainloops (cp) and by attention with P in the columns of S (mma)
            if old.write or self._ptx:
                return False
            self._machine.lean("U19", new.op, old.op)
            return True
        if pair == ("shift", "cp"):
            return getattr(new.op, "shape", "") == "4x256b"
        return pair in _PIPELINED

    def _issued_before(self, old: TmemAccess, new: TmemAccess) -> bool:
        if self._of_one_thread(old, new) or self._seen(new, old.queue, old.order):
            return True
        return self._accepted(old, new, self._heard_of(old, new.warp))

    def _heard_of(self, old: TmemAccess, warp: Agent) -> bool:
        """Whether a hand-over of memory says that it has been issued."""
        if warp.clock[self._size + old.issuer] >= old.tick:
            return True
        parts = old.warp.parts
        return parts is not None and parts.lanes_known(
            warp.clock, self._size, old.issuer, old.tick, old.lanes
        )

    def _accepted(self, old: TmemAccess, new: TmemAccess, known: bool) -> bool:
        """Whether a hand-over without the tcgen05 fences is enough for what is ``known`` (U20)."""
        if known and not self._ptx:
            self._machine.lean("U20", new.op, old.op)
            return True
        return False

    def _completed(self, old: TmemAccess, new: TmemAccess) -> bool:
        warp = new.warp
        if self._seen(new, old.component, old.sequence):
            return True
        # a thread's own wait::ld and wait::st need no fence (G23, pattern 2)
        own = old.warp is warp and old.kind in ("ld", "st")
        known = bool(warp.clock[self._size + old.component] >= old.sequence)
        return (known and own) or self._accepted(old, new, known) or self._drained(old, new)

    def _drained(self, old: TmemAccess, new: TmemAccess) -> bool:
        """Whether all that a load has loaded had been stored, and this was handed over (U33)."""
        group = old.warp.groups.get(DRAINED)
        if self._ptx or old.kind != "ld" or group is None:
            return False
        warp, component = new.warp, group.component
        if old.warp is not warp:
            known = bool(warp.clock[self._size + component] >= old.sequence)
        else:
            # what its own lanes have stored it comes after where all of them have met since
            known = warp.known_to_all.get(component, 0) >= old.sequence
            known = known or (new.kind == "st" and self._is_given(old))
        if known:
            self._machine.lean("U33", new.op, old.op)
        return known

    @staticmethod
    def _is_given(load: TmemAccess) -> bool:
        """Whether the tcgen05.st that is executed stores what is made of all that was loaded."""
        issuer = load.warp.tcgen05
        assert issuer is not None
        number = load.op.number
        return number in issuer.given and issuer.loaded.get(number) == load.sequence

    @staticmethod
    def _seen(new: TmemAccess, component: int, count: int) -> bool:
        """Whether the thread that issues it, or some lane of a warp that does, has fenced since it
        knows so much of a component."""
        assert new.warp.tcgen05 is not None
        return new.warp.tcgen05.saw(new.lanes, component, count)

    # ------------------------------------------------------------------ findings

    def _side(self, access: TmemAccess, box: Cells) -> Participant:
        verb = "writes" if access.write else "reads"
        label = f"{access.name} ({box.name})"
        action = f"{verb} {label} by {access.op.mnemonic}"
        deed = Deed("writes" if access.write else "reads", Named(label, access.name))
        return self._machine.participant(access.warp, action, access.op, deed)

    def _place(self, tmem: Tmem) -> str:
        several = self._machine.program.ctas > 1
        return f"memory: {f'CTA {tmem.cta.number} ' if several else ''}tensor memory"

    def _conflict(
        self, tmem: Tmem, box: Cells, new: TmemAccess, other: Cells, record: TmemAccess
    ) -> None:
        self._raced.update((box, other))
        kind, why, fix = self._missing(record, new)
        self._machine.report(
            "tcgen05-order",
            f"{new.op.mnemonic} of {new.warp} {'writes' if new.write else 'reads'} {new.name} "
            f"({box.name}) after {record.op.mnemonic} of {record.warp} "
            f"{'wrote' if record.write else 'read'} {record.name} ({other.name}): {why}",
            (self._side(new, box), self._side(record, other)),
            (self._place(tmem),),
            fix,
            kind=kind,
        )

    def _missing(self, old: TmemAccess, new: TmemAccess) -> tuple[Kind, str, str]:
        """What keeps ``old`` from being ordered before ``new``, and what would order it."""
        if self._is_one(old, new):
            return (
                "tcgen05-order/operands",
                f"an operand of {new.op.mnemonic} stays as it is until the operation is complete "
                "(G17)",
                "keep the operands and D of one instruction in different columns",
            )
        if self._known_somehow(old, new.warp):
            return (
                "tcgen05-order/no-fence",
                "it is complete, but no tcgen05.fence orders the two (G23)",
                f"{self._fences(old, new)}, before {new.op.mnemonic}",
            )
        if self._pipelined(old, new):
            handed = self._heard_of(old, new.warp)
            return (
                "tcgen05-order/issue-order",
                "they execute in issue order, but "
                + (
                    "the hand-over between the threads lacks the tcgen05 fences (G23)"
                    if handed
                    else "nothing orders the second issue after the first (G23)"
                ),
                "hand over from one thread to the other: tcgen05.fence::before_thread_sync, "
                "arrive, wait, tcgen05.fence::after_thread_sync",
            )
        completion = _COMPLETION[old.kind]
        if old.warp is not new.warp:
            completion += ", then a hand-over to the other thread"
        return (
            "tcgen05-order/not-complete",
            f"{old.kind} and then {new.kind} are not executed in order, and the first is not known "
            "to be complete (G20)",
            f"complete the earlier operation first: {completion}",
        )

    def _known_somehow(self, old: TmemAccess, warp: Agent) -> bool:
        """Whether the completion was handed over at all."""
        clock = warp.clock
        return bool(max(clock[old.component], clock[self._size + old.component]) >= old.sequence)

    def _fences(self, old: TmemAccess, new: TmemAccess) -> str:
        after = "tcgen05.fence::after_thread_sync after the hand-over"
        if old.warp is new.warp or old.kind in ("mma", "cp", "shift"):
            return after
        return f"tcgen05.fence::before_thread_sync before the hand-over and {after}"

    def _early_free(self, tmem: Tmem, new: TmemAccess, other: Cells, record: TmemAccess) -> None:
        kind: Kind | None = None
        if self._known_somehow(record, new.warp):
            kind = "tmem-lifetime/no-fence"
            why, fix = "no tcgen05.fence orders the two (G23)", self._fences(record, new)
        else:
            why = "that is not known to be complete"
            fix = f"complete every use ({_COMPLETION[record.kind]}) and synchronise all users"
            fix += " of both CTAs" if record.warp.cta is not new.warp.cta else ""
            fix += " with the warp that frees"
        self._machine.report(
            "tmem-lifetime",
            f"tcgen05.dealloc of {new.warp} frees {record.name} ({other.name}) after "
            f"{record.op.mnemonic} of {record.warp}, but {why} (G8)",
            (
                self._machine.participant(new.warp, "frees the columns", new.op),
                self._side(record, other),
            ),
            (self._place(tmem),),
            fix,
            kind=kind,
        )

    def address_without_quarter(self, warp: Agent, op: Op) -> None:
        """In practice it means the warp's own quarter, if all warps of a warpgroup are given it."""
        group, quarter = divmod(warp.number, 4)
        users = self._alike.setdefault((warp.cta.number, group, op.number), {})
        users[quarter] = warp, op
        if quarter:
            self._machine.lean("U21", op)

    def report_foreign_lanes(self) -> None:
        """At the end of a run: addresses in the first quarter that its warp was not given (U21)."""
        for users in self._alike.values():
            for quarter, (warp, op) in () if 0 in users else sorted(users.items()):
                lanes = f"lanes {32 * quarter}..{32 * quarter + 31}"
                self._machine.report(
                    "out-of-bounds",
                    f"{op.mnemonic} of {warp} on the first quarter of the lanes: warp "
                    f"{warp.number} of the CTA can only access {lanes} (G12, U21)",
                    (self._machine.participant(warp, f"executes {op.mnemonic}", op),),
                    fix=FOREIGN_LANES,
                )

    def report_unwritten(self) -> None:
        """At the end of a run: reads of cells that nothing had written."""
        for box, warp, op in self._unwritten.values():
            if any(other in self._raced for other in box.overlaps):
                continue
            self._machine.report(
                "uninitialised-read",
                f"{op.mnemonic} of {warp} reads tensor memory nothing has written ({box.name})",
                (self._machine.participant(warp, f"reads {box.name} by {op.mnemonic}", op),),
                fix="start an accumulation with accumulate=0 (enable-input-d false), or store to "
                "the columns first: a fresh allocation holds anything",
            )

    def _report_lone_permit(self, cta: Cta) -> None:
        """A relinquish_alloc_permit.cta_group::2 is executed in both CTAs of a pair (G9)."""
        assert cta.tmem is not None
        side = cta.tmem.relinquished
        if side is None or getattr(side.op, "cta_group", 1) == 1:
            return
        peer = cta.cluster.ctas[cta.rank ^ 1]
        if peer.tmem is not None and peer.tmem.relinquished is None:
            self._machine.report(
                "tmem-lifetime",
                f"{side.warp} executes {side.op.mnemonic}.cta_group::2, and no warp of CTA "
                f"{peer.number}, the other one of the pair, does (G9)",
                (self._machine.participant(side.warp, "relinquishes the permit", side.op),),
                fix="execute it in one warp of each CTA of the pair",
            )

    def report_leaks(self) -> None:
        """At the end of a run: allocations that nobody freed, permits of half a pair (G8, G9)."""
        for cta in self._ctas:
            assert cta.tmem is not None
            self._report_lone_permit(cta)
            for allocation in cta.tmem.live:
                warp, op = allocation.warp, allocation.op
                self._machine.report(
                    "tmem-lifetime",
                    f"the kernel ends with {allocation.columns} columns of tensor memory that "
                    f"{warp} allocated and nobody freed (G8)",
                    (self._machine.participant(warp, "allocates the columns", op),),
                    fix="tcgen05.dealloc them in the warp that allocated them, after their last "
                    "use has been waited for",
                    kind="tmem-lifetime/not-freed",
                )
