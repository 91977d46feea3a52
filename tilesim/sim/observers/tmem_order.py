"""Whether accesses to tensor memory are ordered (SEMANTICS G.5, G.6, U33).

An earlier access is ordered before a later one if

* the two kinds execute in one pipeline (G19) and the second is issued after the first, or
* the first is known to be complete where the second is issued.

"Known" means, at strictness ``ptx``, that the hand-over went through the tcgen05 fences (a commit
implies the first of them); ``practice`` also accepts a release and an acquire without them (U20).

What stores a register has it, so the load that sets the register has read tensor memory (U33). The
load of a warp is one instruction: it is over where all of its registers have been stored by all
lanes, and what comes after the stores comes after it, as behind ``tcgen05.wait::ld``. So does a
tcgen05.st whose registers are made of all that it has loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tilesim.analysis.cfg import FlowGraph
from tilesim.analysis.solver import states
from tilesim.analysis.uses_defs import expressions_in, mentions_of
from tilesim.findings.finding import Deed, Kind, Named
from tilesim.ir.addressed import AddressedTensor
from tilesim.ir.effects import Defines, Effect, UsesFragment, UsesTmem, WaitsGroup, Writes
from tilesim.ir.expr import Var, walk
from tilesim.ir.op import Op
from tilesim.ir.tensor_memory import LANES
from tilesim.records import dataclass
from tilesim.sim.machine.async_groups import DRAINED
from tilesim.sim.machine.clock import GENERIC, SHARED, Clock
from tilesim.sim.machine.executable import Drained
from tilesim.sim.machine.tensor_memory import Allocation, Cells, Tmem, TmemAccess
from tilesim.sim.machine.warp import Agent

if TYPE_CHECKING:
    from tilesim.findings.finding import Participant
    from tilesim.sim.machine.cta import Cta
    from tilesim.sim.machine.interface import Core


#: what of `practice` something needs; nothing: it is so by the text
_Switches: TypeAlias = tuple[str, ...]
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
        self._components, self._size = machine.components, machine.components.size
        #: in the strict reading: an instruction that hands over between CTAs at scope ``.cta``
        self.narrow: Op | None = None
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
            for record in (*other.writes, *other.reads.values()) if new.write else other.writes:
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
        """Whether an access comes before another one, by a rule that the strictness has."""
        needs = self._needs(old, new)
        if needs is None or not all(
            self._machine.accepts(switch, new.op, old.op) for switch in needs
        ):
            return False
        if self.narrow is not None and old.warp.cta is not new.warp.cta:
            what = "whether scope .cta orders operations on tensor memory for other CTAs (U4)"
            self._machine.nondeterministic(what, self.narrow, explorable=False)
        return True

    def _needs(self, old: TmemAccess, new: TmemAccess) -> _Switches | None:
        """The switches of `practice` without which nothing orders two accesses; None if nothing
        does with all of them."""
        if self._is_one(old, new):
            return None  # one operation, which reads what it writes
        best = self._directly(old, new)
        # what runs in the pipeline after it completes after it, and orders what comes after that
        for follower, needed in old.followers:
            if best == ():
                break
            further = self._directly(follower, new)
            if further is not None and (best is None or not needed + further):
                best = needed + further
        return best

    @staticmethod
    def _is_one(old: TmemAccess, new: TmemAccess) -> bool:
        """Whether two accesses are of one operation."""
        return (old.queue, old.order, old.warp) == (new.queue, new.order, new.warp)

    @staticmethod
    def _of_one_thread(old: TmemAccess, new: TmemAccess) -> bool:
        """Whether one thread has issued both of two operations of tensor cores."""
        return old.warp is new.warp and old.lanes == new.lanes

    def _directly(self, old: TmemAccess, new: TmemAccess) -> _Switches | None:
        piped = self._pipelined(old, new)
        issued = None if piped is None else self._issued_before(old, new)
        if piped is None or issued is None:
            return self._completed(old, new)
        needs = piped + issued
        if old.kind != new.kind and not any(
            self._of_one_thread(follower, new) and (not needed or needs)
            for follower, needed in old.followers
        ):
            old.followers.append((new, needs))
        if needs and self._completed(old, new) == ():
            return ()
        return needs

    @staticmethod
    def _pipelined(old: TmemAccess, new: TmemAccess) -> _Switches | None:
        """With which switches the kinds execute in issue order; None if they do not."""
        pair = (old.kind, new.kind)
        same = old.accumulator is not None and old.accumulator == new.accumulator
        if pair == ("mma", "mma") and same:
            return ()
        if pair in (("mma", "mma"), ("mma", "cp")):
            # U19: not in the list; relied on all the same for operands that the mma only reads,
            # by block-scaled mainloops (cp) and by attention with P in the columns of S (mma)
            return None if old.write else ("U19",)
        if pair == ("shift", "cp"):
            return () if getattr(new.op, "shape", "") == "4x256b" else None
        return () if pair in _PIPELINED else None

    def _issued_before(self, old: TmemAccess, new: TmemAccess) -> _Switches | None:
        def is_known(clock: Clock) -> bool:
            return old.warp.is_known(clock, 0, old.queue, old.order, old.lanes)

        if self._of_one_thread(old, new) or self._seen(old, new, is_known):
            return ()
        return ("U20",) if self._heard_of(old, new.warp) else None

    def _heard_of(self, old: TmemAccess, warp: Agent) -> bool:
        """Whether a hand-over of memory says that it has been issued, be it by way of a thread
        that has fenced."""
        clock, row = warp.clock, self._components.tensor_row * self._size
        return old.warp.is_known(clock, self._size, old.issuer, old.tick, old.lanes) or (
            self._components.tensor
            and old.warp.is_known(clock, row, old.queue, old.order, old.lanes)
        )

    def _completed(self, old: TmemAccess, new: TmemAccess) -> _Switches | None:
        """With which switches it is known to be complete: without the tcgen05 fences by U20."""
        rows = new.warp.rows(old.component)
        known = bool(rows[GENERIC] >= old.sequence)
        # a thread's own wait::ld and wait::st need no fence (G23, pattern 2)
        own = old.warp is new.warp and old.kind in ("ld", "st")
        if (known and own) or self._seen(
            old, new, lambda clock: bool(clock[old.component] >= old.sequence)
        ):
            return ()
        if known or (self._components.tensor and rows[self._components.tensor_row] >= old.sequence):
            return ("U20",)
        return ("U33",) if self._drained(old, new) else None

    def _drained(self, old: TmemAccess, new: TmemAccess) -> bool:
        """Whether all that a load has loaded had been stored, and this was handed over (U33)."""
        group = old.warp.groups.get(DRAINED)
        if old.kind != "ld" or group is None:
            return False
        warp, component = new.warp, group.component
        if old.warp is not warp:
            return bool(warp.rows(component)[GENERIC] >= old.sequence)
        # what its own lanes have stored it comes after where all of them have met since
        known = warp.part.settled.get(component, 0) >= old.sequence
        return known or (new.kind == "st" and self._is_given(old))

    @staticmethod
    def _is_given(load: TmemAccess) -> bool:
        """Whether the tcgen05.st that is executed stores what is made of all that was loaded."""
        issuer = load.warp.tcgen05
        assert issuer is not None
        number = load.op.number
        return number in issuer.given and issuer.loaded.get(number) == load.sequence

    def _seen(self, old: TmemAccess, new: TmemAccess, known: Callable[[Clock], bool]) -> bool:
        """Whether the threads that issue an access have fenced since they know so much: each of
        them, but that in practice lanes of one warp that act together know what some lane does."""
        assert new.warp.tcgen05 is not None
        each = self._ptx or old.warp is not new.warp
        return new.warp.tcgen05.saw(new.lanes, known, each=each)

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
        piped = self._pipelined(old, new)
        if piped is not None and not (piped and self._ptx):
            handed = self._heard_of(old, new.warp)
            return (
                "tcgen05-order/issue-order",
                "they execute in issue order, but "
                + (
                    "the hand-over between the threads lacks the tcgen05 fences (G23)"
                    if handed
                    else "nothing orders the second issue after the first (G23)"
                ),
                "order the second thread after the first: tcgen05.fence::before_thread_sync, "
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
        return bool(warp.rows(old.component)[:SHARED].max() >= old.sequence)

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
                (new.warp, "frees the columns", new.op),
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
            self._machine.lean("U21", op, surely=True)

    def report_foreign_lanes(self) -> None:
        """At the end of a run: addresses in the first quarter that its warp was not given (U21)."""
        for users in self._alike.values():
            for quarter, (warp, op) in () if 0 in users else sorted(users.items()):
                lanes = f"lanes {32 * quarter}..{32 * quarter + 31}"
                self._machine.report(
                    "out-of-bounds",
                    f"{op.mnemonic} of {warp} on the first quarter of the lanes: warp "
                    f"{warp.number} of the CTA can only access {lanes} (G12, U21)",
                    ((warp, f"executes {op.mnemonic}", op),),
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
                ((warp, f"reads {box.name} by {op.mnemonic}", op),),
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
                ((side.warp, "relinquishes the permit", side.op),),
                fix="execute it in one warp of each CTA of the pair",
            )

    def report_leaks(self) -> None:
        """At the end of a run: allocations that were not freed, permits of half a pair (G8, G9)."""
        for cta in self._ctas:
            assert cta.tmem is not None
            self._report_lone_permit(cta)
            for allocation in cta.tmem.live:
                warp, op = allocation.warp, allocation.op
                self._machine.report(
                    "tmem-lifetime",
                    f"the kernel ends with {allocation.columns} columns of tensor memory that "
                    f"{warp} allocated and no warp freed (G8)",
                    ((warp, "allocates the columns", op),),
                    fix="tcgen05.dealloc them in the warp that allocated them, after a wait for "
                    "their last use",
                    kind="tmem-lifetime/not-freed",
                )


# ----------------------------------------------------------- loads whose registers are stored (U33)


_LOADS, _STORES = "tcgen05.ld", "tcgen05.st"
#: what holds what tcgen05.st has been given since ``tcgen05.wait::st``: no register has its name
_GIVEN = "tcgen05.st"


def drained(graph: FlowGraph) -> Drained:
    """What has been stored where, in a program."""
    loads: dict[int, list[str]] = {}
    for number, effect in graph.mir.all_of(Defines):
        if effect.group == _LOADS:
            loads.setdefault(number, []).append(effect.var.name)
    return _Flow(graph, loads).found if loads else Drained()


@dataclass
class _Left:
    """At one place: what has been loaded and may not have been stored, as bits, and of that, what
    each register holds something that is made of, where it has not been stored."""

    bits: int
    holds: dict[str, int]

    def joined(self, other: _Left) -> _Left:
        """What is so on the ways of either."""
        bits = self.bits | other.bits
        holds: dict[str, int] = {}
        for name in {*self.holds, *other.holds}:
            own = self.holds.get(name, 0) | ~self.bits
            held = own & (other.holds.get(name, 0) | ~other.bits) & bits
            if held:
                holds[name] = held
        return _Left(bits, holds)

    def held_by(self, names: Iterable[str]) -> int:
        """What any of these registers is made of."""
        found = 0
        for name in names:
            found |= self.holds.get(name, 0)
        return found

    def load(self, registers: Mapping[str, int], lost: int) -> None:
        """Registers are loaded, each with its bit."""
        own = sum(registers.values())
        if self.bits & own:
            self.bits |= lost
        self.bits |= own
        for name in [name for name, held in self.holds.items() if held & own]:
            self.holds[name] &= ~own
        self.holds.update(registers)

    def store(self, held: int) -> bool:
        """What is made of that is stored; whether it is the last of what was left."""
        was, self.bits = self.bits, self.bits & ~held
        return bool(was) and not self.bits


class _Flow:
    """What is left at the beginning of each block, from the loads on."""

    def __init__(self, graph: FlowGraph, loads: Mapping[int, list[str]]) -> None:
        self._graph = graph
        #: by load: a bit for each of its registers, and one for that some of them are lost: it was
        #: executed again before they had been stored
        self._loads: dict[int, tuple[dict[str, int], int]] = {}
        place = 0
        for number, names in loads.items():
            bits = {name: 1 << place + k for k, name in enumerate(names)}
            place += len(names) + 1
            self._loads[number] = bits, 1 << place - 1
        #: what the assembler may keep in registers
        self._private = frozenset(t.name for t in graph.mir.kernel.tensors if t.private)
        self._stored: set[int] = set()
        self._given: dict[int, frozenset[int]] = {}

    @property
    def found(self) -> Drained:
        """Where nothing is left."""
        graph = self._graph
        before = states(graph.order, graph.successors, self._through, _Left.joined, _Left(0, {}))
        self._stored, self._given = set(), {}
        for block, left in before.items():
            self._through(block, left)
        return Drained(frozenset(self._stored), self._given)

    def _through(self, block: int, before: _Left) -> _Left:
        """What is left behind a block."""
        left = _Left(before.bits, dict(before.holds))
        for number in self._graph.blocks[block]:
            if number in self._loads:
                left.load(*self._loads[number])
            elif left.bits:
                what = self._graph.mir.code[number].what
                if isinstance(what, Op):
                    self._pass(left, number, what)
        return left

    def _pass(self, left: _Left, number: int, op: Op) -> None:
        """An instruction that loads nothing."""
        instruction, effects = self._graph.mir.code[number], op.effects()
        waits = [effect.group for effect in effects if isinstance(effect, WaitsGroup)]
        if instruction.guard is None:
            if _LOADS in waits:
                left.bits, left.holds = 0, {}
            elif _STORES in waits:
                if left.store(left.holds.pop(_GIVEN, 0)):
                    self._stored.add(number)
            elif any(map(self._stores, effects)):
                if left.store(left.held_by(_data(op))):
                    self._stored.add(number)
            elif any(map(_gives, effects)):
                held = left.held_by(_data(op))
                left.holds[_GIVEN] = left.holds.get(_GIVEN, 0) | held
                whole = (
                    n for n, (bits, _) in self._loads.items() if not sum(bits.values()) & ~held
                )
                self._given[number] = frozenset(map(self._load_before, whole))
        sets = [e.var.name for e in effects if isinstance(e, Defines)]
        # one of several results need not be made of all sources, nor one register of those for
        # which a variable stands
        whole_result = len(effects) == 1 and not getattr(op, "partly", False)
        made = left.held_by(mentions_of(instruction).used) if sets and whole_result else 0
        for name in sets:
            kept = -1 if instruction.guard is None else left.holds.get(name, 0)
            left.holds[name] = made & kept

    def _load_before(self, number: int) -> int:
        """The load whose registers an instruction sets."""
        effects = self._graph.mir.effects
        return next(
            n for n in range(number, -1, -1)
            if any(isinstance(e, UsesTmem) and e.kind == "ld" for e in effects[n])
        )  # fmt: skip

    def _stores(self, effect: Effect) -> bool:
        """Whether it writes what lanes give it, when it is executed, where others may see it."""
        if not isinstance(effect, Writes) or effect.proxy != "generic" or effect.asynchronous:
            return False
        tensor = effect.view.tensor
        if not isinstance(tensor, AddressedTensor):
            return tensor.name not in self._private
        if tensor.space.startswith("shared"):
            return True
        places = (tensor.within,) if tensor.within else tensor.among or tuple(self._private)
        return self._private.isdisjoint(places)


def _gives(effect: Effect) -> bool:
    """Whether it is of registers that tcgen05.st stores."""
    return isinstance(effect, UsesFragment) and effect.write and effect.partly


def _data(store: Op) -> set[str]:
    """The registers in what a store stores."""
    found = (e for name in store.data for e in expressions_in(getattr(store, name)))
    return {part.name for e in found for part in walk(e) if isinstance(part, Var)}
