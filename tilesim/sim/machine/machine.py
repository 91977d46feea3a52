"""The machine: CTAs of one cluster, their warps and memories, and how it runs to its end.

It holds state and the primitive transitions; the executors of effects
(`tilesim.sim.machine.execute`) call them. All nondeterminism is in the environment
(`tilesim.sim.machine.schedule`). An instruction that cannot be executed as it stands is a finding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import chain, count
from time import monotonic
from typing import Any, TypeAlias

import numpy as np
import simpy

from tilesim.findings.finding import Named, Stated
from tilesim.ir import effects as fx
from tilesim.ir.expr import Binary, Expr
from tilesim.ir.loc import Loc
from tilesim.ir.op import MeaninglessOperand, Op
from tilesim.ir.program import Program
from tilesim.records import dataclass, field
from tilesim.sim.machine.async_groups import (
    LANE_GROUPS,
    MAX_STREAMS,
    Groups,
    Inits,
    Issuer,
    LaneGroups,
)
from tilesim.sim.machine.cta import UNPLACED, Cluster, Cta, LaunchControl, place_tmem
from tilesim.sim.machine.errors import (
    FAULTS,
    TOO_LONG,
    BarrierError,
    CutOff,
    NotKnown,
    NotUniform,
    OutOfBounds,
    UnassignedVariable,
)
from tilesim.sim.machine.events import InFlight, Trace
from tilesim.sim.machine.executable import Facts
from tilesim.sim.machine.footprint import FootprintTable
from tilesim.sim.machine.interface import Acts, Core, Options, Stop
from tilesim.sim.machine.lanes import mask_array
from tilesim.sim.machine.mbarrier import Mbarrier, Token
from tilesim.sim.machine.memory import GlobalMemory, Overlaid
from tilesim.sim.machine.named_barrier import NamedBarrier
from tilesim.sim.machine.release import Released, ReleasePatterns
from tilesim.sim.machine.schedule import Move, copy_cycles
from tilesim.sim.machine.tickets import Tickets
from tilesim.sim.machine.unknown import UnknownSteers, content
from tilesim.sim.machine.warp import Agent, Blocked
from tilesim.sim.machine.warpgroup import Warpgroup
from tilesim.sim.observers.monotone_words import Counter
from tilesim.sim.observers.peers import PeerLog
from tilesim.sim.observers.races import RaceDetector
from tilesim.sim.observers.tmem_order import TmemOrder


def misuse_of(fault: Exception, what: str, origin: Op | Loc) -> BarrierError:
    """What a fault of an instruction, or of control flow, is called in a finding."""
    match fault:
        case BarrierError():
            return fault
        case MeaninglessOperand(rule, message, fix):
            return BarrierError(rule, message, fix)
        case OutOfBounds(tensor=tensor):
            facts = Stated((Named(tensor, tensor),))
            text = f"{what} touches {fault}"
            return BarrierError("out-of-bounds", text, "keep the index inside", facts=facts)
        case NotUniform() if isinstance(origin, Op) and _is_collective(origin):
            return BarrierError(
                "participation",
                f"{what} has an operand that differs between the lanes of the warp, which execute "
                "it together (E2, F1, G13)",
                "make the operand warp-uniform",
            )
        case NotUniform():
            return BarrierError(
                "unsupported",
                f"{what} with an operand that differs between the lanes of a warp is not modelled",
                "make it warp-uniform, execute it in one lane at a time, or write a loop as while_",
            )
        case UnassignedVariable():
            return BarrierError(
                "uninitialised-read", f"{what} reads %{fault} before it is assigned",
                "assign it first, in each lane that reads it",
            )  # fmt: skip
        case _:
            return BarrierError("unsupported", f"{what}: {fault or type(fault).__name__}", "")


def _is_collective(op: Op) -> bool:
    """Whether the lanes of a warp execute it together, with the same operands (E2, F1, G13)."""
    return any(
        isinstance(e, fx.JoinsBarrier | fx.GathersWarps) or (isinstance(e, fx.Gathers) and e.whole)
        for e in op.effects()
    )


# ------------------------------------------------------------------ the machine


#: scheduling points between two looks at the clock
_STEPS_PER_LOOK = 64


#: instructions without a scheduling point between two looks at the clock
_BETWEEN_LOOKS = 1024
#: steps of a warp without a scheduling point, at most
_STRETCH = 5_000_000
#: bytes of the clocks of all warps, at most
_MOST_CLOCKS = 6 << 30
#: components of asynchronous accesses (`tilesim.sim.machine.execute.memory`) of a warp
_ASYNC_ACCESSES = 64
Step: TypeAlias = "Callable[[Warp], bool | None]"
#: a step, whether it is a scheduling point, and its issue cycles (0 for control flow)
Entry: TypeAlias = tuple[Step, bool, int]


@dataclass(slots=True)
class Code(Facts):
    """A loaded program: what a warp does, step by step."""

    steps: list[Entry] = field(default_factory=list)
    #: each instruction by itself
    alone: list[Entry] = field(default_factory=list)
    #: several instructions as one step, which is that of the first one; of them, rows of
    #: assignments, and what makes one
    rows: dict[tuple[int, ...], Entry] = field(default_factory=dict)
    assigned: set[tuple[int, ...]] = field(default_factory=set)
    row: Callable[[tuple[int, ...]], Entry] | None = None
    #: by identity of an expression: it, and what evaluates it (`tilesim.sim.machine.expression`)
    evaluators: dict[int, tuple[Expr, Callable[[Warp], Any]]] = field(default_factory=dict)
    #: of a quotient, whether a division by zero leaves it open
    opens: Callable[[Binary], bool] | None = None
    #: branches that go back, of which iterations have been skipped in some run, or could not be
    repeating: set[int] = field(default_factory=set)
    differing: set[int] = field(default_factory=set)
    #: what judges accesses to memory
    detector: type[RaceDetector] = RaceDetector

    def apart(self, steps: Sequence[Entry]) -> list[Entry]:
        """The same steps, each instruction by itself."""
        rows = {id(entry) for entry in self.rows.values()}
        pairs = zip(steps, self.alone, strict=True)
        return [own if id(step) in rows else step for step, own in pairs]


@dataclass(slots=True)
class Skipped:
    """What a run has not executed because it is what it had executed before, up to shifts: how many
    repetitions, how many instructions and cycles these are."""

    repetitions: int = 0
    instructions: int = 0
    cycles: float = 0

    def add(self, repetitions: int, instructions: int, cycles: float) -> None:
        """More is skipped."""
        self.repetitions += repetitions
        self.instructions += instructions
        self.cycles += cycles


class Watcher(Trace, ABC):
    """A trace that puts steps of its own around those of the program."""

    @abstractmethod
    def watch(self, machine: Machine) -> list[Entry]:
        """The steps that ``machine`` is to execute."""


class Warp(Agent):
    """One warp of a CTA; `run` executes until the next scheduling point, block or exit."""

    machine: Machine
    cta: Cta
    origin: Warp

    def __init__(
        self, machine: Machine, cta: Cta, index: int, number: int, warpgroup: Warpgroup
    ) -> None:
        super().__init__(machine, cta, index, number, machine.plan.mir.roles[number])
        self.warpgroup = warpgroup

    def run(self, _event: object = None) -> None:
        """Executes instructions up to the next synchronising one after at least one of them."""
        machine = self.machine
        code = machine.code
        self.blocked = None
        fresh = True
        cost = executed = 0
        before: object = None
        try:
            for looks in count(1):
                for _ in range(_BETWEEN_LOOKS):
                    pc = self.pc
                    step, sync, latency = code[pc]
                    if sync:
                        if not fresh:
                            machine.pause(self, cost)
                            return
                        fresh = False
                    if latency:
                        cost += latency
                        executed += 1
                    self.pc = pc + 1
                    if step(self):
                        return
                self.executed += executed
                executed = 0
                machine.look_at_clock()
                if looks >= PATIENCE:
                    before = compared(self, looks, before, machine.version)
                    if self.blocked is not None:
                        machine.pollers.append(self)
                        return
                if looks * _BETWEEN_LOOKS > min(_STRETCH, machine.options.max_steps):
                    raise CutOff("the run was cut off where a warp does not end")
        except FAULTS as fault:
            machine.fault(self, fault)
        finally:
            self.executed += executed


class Machine(Core):
    """Runs ``code`` on ``clusters``, given as CTA numbers in rank order.

    That is one cluster, or the whole grid if its clusters communicate.
    """

    plan: Code

    def __init__(
        self,
        program: Program,
        code: Code,
        clusters: Sequence[Sequence[int]],
        memory: GlobalMemory,
        env: simpy.Environment,
        options: Options,
        first_cluster: int = 0,
    ) -> None:
        super().__init__(program, code, env, options)
        if not self.timed and (self.trace is not None or code.fences_sc):
            from tilesim.sim.observers.weak_memory import LaneOrder, Views

            self.views = Views(self.components, self.trace, ordered=code.fences_sc)
            if self.trace is not None:
                self.lane_order = self.trace.lanes = LaneOrder(self.outcome)
        self.globals = memory
        #: the program, without the steps of what watches it
        self.loaded = code
        self.code = self.trace.watch(self) if isinstance(self.trace, Watcher) else code.steps
        self.version = 0
        self.pollers: list[Warp] = []
        self.split_groups: list[Warp] = []  #: lanes that are agents of their own
        #: by the numbers that stand for them
        self.tokens: dict[int, Token] = {}
        self.in_flight: dict[int, InFlight] = {}
        self._issued = 0
        #: how long a copy of so many bytes takes: the search for repetitions may choose
        self.copy_cycles: Callable[[int], int] = copy_cycles
        #: scheduling points so far
        self.steps = 0
        self.skipped = Skipped()
        #: how often lanes that act apart have executed something for themselves
        self.by_parts = 0
        #: how often something was done that no repetition is known to do in the same way
        self.irregular = 0
        self.released: dict[tuple[int, int], Released] = {}
        self.release_patterns = ReleasePatterns() if code.stores_relaxed else None
        #: words that only count, by memory and address, under the timed policy
        self.counters: dict[tuple[int, int], Counter] = {}
        self.clusters: list[Cluster] = [Cluster(first_cluster + i) for i in range(len(clusters))]
        self.ctas: list[Cta] = []
        for cluster, numbers in zip(self.clusters, clusters, strict=True):
            for number in numbers:
                self.ctas.append(Cta(self, cluster, number, len(self.ctas)))
        self.any_cta = self.ctas[0]
        if code.overlaid:
            for cta in self.ctas:
                cta.memory.overlaid = Overlaid(code.overlaid, len(cta.memory.data))
        if code.fences_own:
            for cta in self.ctas:
                cta.memory.own_row = self.components.own_row(cta.rank)
        self.warps: list[Warp] = []
        for cta in self.ctas:
            self._require_time()
            self.warps += [self._warp(cta, n) for n in range(program.warps)]
        if any(t.dependent for t in program.tensors):
            self.dependency = self.components.new()
        self._barriers()
        self.tmem = TmemOrder(self, self.ctas) if code.uses_tcgen05 else None
        if self.tmem is not None:
            place_tmem(program, self.clusters)
        self.tickets = Tickets(options.order, self.warps)
        self.outcome.draws, self.outcome.contenders = self.tickets.drawn, self.tickets.contenders
        self.launch = LaunchControl(self, len(self.clusters), first_cluster, memory.cancelled)
        self.races = code.detector(
            self, self.warps, [c.memory for c in self.ctas], memory, self.tickets
        )
        self.peers = PeerLog(self, self.ctas)
        for warp in self.warps:
            self._require_time()
            warp.begin()

    # ------------------------------------------------------------------ construction

    def _warp(self, cta: Cta, number: int) -> Warp:
        index = len(cta.warps) + cta.index * self.program.warps
        if number % 4 == 0:
            self._warpgroup = Warpgroup(self, f"warpgroup {number // 4} of CTA {cta.number}")
        warp = Warp(self, cta, index, number, self._warpgroup)
        warp.registers = [None] * len(self.plan.slots)
        warp.warpgroup.warps.append(warp)
        for kind in self.plan.group_kinds:
            if kind in LANE_GROUPS:
                if (number, kind) not in self.plan.group_warps:
                    continue
                several = self.plan.issuers.get((number, kind), 0)
                streams = max(self.plan.parts.get(number, 0), several if several > 1 else 0)
                streams = min(streams, MAX_STREAMS)
                spares = [self.components.new() for _ in range(streams)]
                warp.lane_groups[kind] = LaneGroups(self.components.new(), spares=spares)
            elif kind == "wgmma":
                warp.groups[kind] = Groups(warp.warpgroup.component)
                warp.warpgroup.waited.append(self.components.new())
                self.own_waits[warp.warpgroup.component] = warp.warpgroup.waited
            else:
                warp.groups[kind] = Groups(self.components.new())
        if number in self.plan.async_accesses:
            warp.async_ticks = {self.components.new(): 0 for _ in range(_ASYNC_ACCESSES)}
        if number in self.plan.fence_inits:
            warp.inits = Inits(self.components.new())
        if self.plan.uses_tcgen05:
            lanes = self.plan.issuers.get((number, "tcgen05"), 0)
            own = range(lanes if lanes > 1 else 0)
            pairs = [(self.components.new(), self.components.new()) for _ in own]
            warp.tcgen05 = Issuer(spares=[*pairs])
            groups = (g for kind, g in warp.groups.items() if kind.startswith("tcgen05."))
            self.tensor_components += [*(g.component for g in groups), *chain(*pairs)]
        warp.part.settled.update(dict.fromkeys(warp.group_components, 0))
        parts = self.plan.parts.get(number)
        if parts is not None:
            warp.parts.allow([self.components.new() for _ in range(2 * parts - 2)])
        for owner in warp.parts.components if self.plan.elements else ():
            warp.elements[owner] = tuple(self.components.new() for _ in range(self.plan.elements))
        cta.warps.append(warp)
        return warp

    def _barriers(self) -> None:
        plan, new = self.plan, self.components.new
        # components first: a clock has as many entries as there are components
        addresses = (*plan.mbarrier_addresses, *[UNPLACED] * plan.spare_mbarriers)
        tracked = [(c, a, new()) for c in self.ctas for a in addresses]
        engines = [new() if plan.uses_remote_stores else None for _ in tracked]
        scopes = self.options.ptx and plan.tracks_loads and self.program.cluster_size > 1
        peers = [new() if scopes else None for _ in tracked]
        named = [(c, n, new()) for c in self.ctas for n in plan.named_barriers]
        clusters = [(c, new()) for c in self.clusters if plan.uses_cluster]
        nbytes = len(self.warps) * self.components.clock().nbytes
        if nbytes > _MOST_CLOCKS:
            raise TooLarge(len(self.ctas), nbytes)
        for (cta, address, component), *landed in zip(tracked, engines, peers, strict=True):
            mbarrier = Mbarrier(self, cta, cta.warps, address, component, *landed)
            mbarrier.keeps_clocks = plan.has_loose_credits
            if address == UNPLACED:
                cta.spare_mbarriers.append(mbarrier)
            else:
                cta.mbarriers[address] = mbarrier
        for cta, number, component in named:
            prefix = "" if self.program.ctas == 1 else f"CTA {cta.number} "
            name = f"named barrier {number}{plan.constants_of_barriers.get(number, '')}"
            called = Named(f"{prefix}{name}", name, None, cta.number)
            cta.named[number] = NamedBarrier(self, called, component, cta.warps, of_cta=True)
        for cluster, component in clusters:
            several = len(self.clusters) > 1
            label = f"cluster {cluster.number}'s barrier" if several else "cluster barrier"
            warps = [w for cta in cluster.ctas for w in cta.warps]
            called = Named(label, label)
            cluster.barrier = NamedBarrier(self, called, component, warps, of_cta=False)
        for cta in self.ctas:
            cta.memory.table.barrier_addresses[:] = plan.mbarrier_addresses

    def peer(self, warp: Warp, rank: int) -> Cta:
        """CTA ``rank`` of the warp's cluster, for an access by ``warp``."""
        ctas = warp.cta.cluster.ctas
        if not 0 <= rank < len(ctas):
            raise BarrierError(
                "out-of-bounds",
                f"{warp} addresses CTA rank {rank} of a cluster of {len(ctas)} (D7)",
                "cluster ranks are 0 to cluster_size - 1",
            )
        cta = ctas[rank]
        if cta is not warp.cta:
            self.peers.touch(warp, cta)
        return cta

    # ------------------------------------------------------------------ running

    def release(self) -> None:
        """Drops what is only needed while running (records of global accesses keep the warps)."""
        if self.trace is not None:
            self.trace.over()
        for cta in self.ctas:
            cta.memory.table = FootprintTable("")
            cta.memory.data = np.zeros(0, dtype=np.uint8)
            cta.mbarriers.clear()
            cta.tmem = None

    def pause(self, warp: Warp, cost: float) -> None:
        """A scheduling point: ``warp`` goes on after ``cost`` cycles, or when chosen."""
        self.steps += 1
        if self.steps > self.options.max_steps:
            raise CutOff(TOO_LONG)
        if not self.steps % _STEPS_PER_LOOK:
            self.look_at_clock()
        if self.races.crowded_tables:
            self.races.sweep()
        Move(self.env, warp.run, cost, warp)

    def look_at_clock(self) -> None:
        """Raises `TimeIsUp` after the deadline, `TakesLong` after what the caller has patience
        for."""
        self._require_time()
        patience = self.options.patience
        if patience is not None and sum(w.executed for w in self.warps) > patience:
            raise TakesLong

    def _require_time(self) -> None:
        deadline = self.options.deadline
        if deadline is not None and monotonic() >= deadline:
            raise TimeIsUp

    @property
    def executed(self) -> int:
        """About how many warp instructions were executed, not skipped."""
        return sum(w.executed for w in self.warps) - self.skipped.instructions

    def sleep_until(self, warp: Warp, time: float) -> bool | None:
        """Under the timed policy, repeats the warp's instruction at ``time`` if that is later."""
        if not self.timed or self.env.now >= time:
            return None
        warp.pc -= 1
        Move(self.env, warp.run, time - self.env.now, warp)
        return True

    def changed(self) -> None:
        """Something a spin loop may be polling has changed."""
        self.version += 1
        if self.pollers:
            pollers, self.pollers = self.pollers, []
            for warp in pollers:
                self.wake(warp)

    def launch_async(self, op: Op, warp: Warp, delay: float, land: Callable[[], None]) -> InFlight:
        """Starts an asynchronous operation; ``land`` is its effect when it completes."""
        self._issued += 1
        warp.issued += 1
        key = (warp.index, warp.issued)
        operation = InFlight(len(self.warps) + self._issued, op, warp, key)
        if self.trace is not None:
            self.trace.spawn(operation)
        self.in_flight[operation.index] = operation

        def complete(_event: object) -> None:
            del self.in_flight[operation.index]
            if self.trace is not None:
                self.trace.lands(operation)
            try:
                land()
            except FAULTS as fault:
                self.fault(warp, fault, op)
            if self.trace is not None:
                self.trace.landed(operation)

        Move(self.env, complete, delay, operation)
        return operation

    def fault(self, warp: Warp, fault: Exception, op: Op | None = None) -> None:
        """Turns what an instruction could not do into a finding.

        Raises:
            Stop: always, or
            CutOff: it needs an unknown value.
        """
        origin = op or self.plan.origins[warp.pc - 1]
        what = "control flow" if isinstance(origin, Loc) else origin.mnemonic
        if isinstance(fault, UnknownSteers):
            loc = origin if isinstance(origin, Loc) else origin.loc
            raise NotKnown(needs(fault, what, loc))
        found = misuse_of(fault, what, origin)
        sides: list[Acts] = [(warp, f"executes {what}", origin)]
        if found.other is not None:
            other = found.other
            sides.append((other.warp, f"executes {other.op.mnemonic}", other.op))
        self.report(
            found.rule, found.message, tuple(sides), found.notes, found.fix, facts=found.facts,
            noted=found.noted,
        )  # fmt: skip
        raise Stop

    def exit(self, warp: Warp) -> None:
        """All lanes of ``warp`` have ended."""
        warp.exited = True
        barriers = [*warp.cta.named.values()]
        if warp.cta.cluster.barrier is not None:
            barriers.append(warp.cta.cluster.barrier)
        for barrier in barriers:
            barrier.note_exit(warp)
            barrier.complete_if_full()
        self.changed()


def needs(steers: UnknownSteers, what: str, loc: Loc) -> str:
    """Why nothing is proved where ``what``, which stands at ``loc``, needs a value."""
    value, finding = steers.value, steers.finding
    text = f"depends on a value that is not known: {value}"
    if value.fix:
        text += f"; {value.fix}"
    if finding is None:
        return f"{what} at {loc.whole} {text}"
    others = {p.loc.whole: None for p in finding.participants if p.loc != loc}
    where = " and ".join((loc.whole, *others))
    return f"{finding.rule} at {where}, if data allows it: {finding.message}; that {text}"


class TimeIsUp(KeyboardInterrupt):
    """The deadline has passed: ends what is going on as Ctrl-C does."""


class TooLarge(KeyboardInterrupt):
    """CTAs that run together know too much of each other to keep; ends what is going on, too."""

    def __init__(self, ctas: int, nbytes: int) -> None:
        super().__init__(
            f"{ctas} CTAs that wait for each other are simulated together, and their vector "
            f"clocks would take {nbytes >> 30} GiB: check a smaller grid"
        )


class TakesLong(Exception):
    """The run has executed more than its caller has patience for."""


# ---------------------------------------------------------------------- loops that compute for ever

# As ``while (i < n) i = (i + 1) % 8;`` does for an n of 10. Between two scheduling points of a warp
# nothing else moves. If its state is again what it was, and it has left nothing in memory
# meanwhile, it will be so again and again, unless others change what the loop reads. How long a
# loop is does not matter: of a state that comes back every p instructions one look in a thousand
# sees it after p looks at most.


#: looks without a scheduling point before states are compared: most loops are over by then
PATIENCE = 16
#: what such a warp does, for reports
COMES_BACK = "repeats a loop without a change"


def compared(warp: Agent, looks: int, before: object, version: int) -> object:
    """Blocks a warp, at its ``looks``-th look in a row, that would go on like this for ever: its
    state is the one ``before``. What to compare with at the next look. ``version`` counts all
    changes."""
    if warp.havoc_region is not None:
        return None
    state = version, _state(warp)
    where = _way_back(warp) if state == before else None
    if where is not None:
        warp.blocked = Blocked(None, COMES_BACK, None, where, True)
    return before if looks & (looks - 1) else state


def _state(warp: Agent) -> tuple[object, ...]:
    """All that decides what a warp does next, but for what is in memory."""
    frames = tuple((f.meet, f.mask, tuple(f.pending)) for f in warp.frames)
    private, active = warp.machine.plan.private, mask_array(warp.mask)
    # what other lanes have in a private register is set before it is used
    registers = tuple(
        content(
            value[active]
            if slot in private and isinstance(value, np.ndarray) and value.shape == active.shape
            else value
        )
        for slot, value in enumerate(warp.registers)
    )
    return warp.pc, warp.mask, frames, warp.effects, registers


def _way_back(warp: Agent) -> Loc | None:
    """Where the innermost loop around a warp goes back; None if no loop is, or if one looks at the
    time, which goes on."""
    graph = warp.machine.plan.graph
    block = graph.block_of[warp.pc]
    around = [loop for loop in graph.loops if block in loop.blocks]
    inside = {n for loop in around for b in loop.blocks for n in graph.blocks[b]}
    if any(isinstance(e, fx.Defines) and e.oracle for n in inside for e in graph.mir.effects[n]):
        return None
    inner = min(around, key=lambda loop: len(loop.blocks), default=None)
    return None if inner is None else graph.mir.code[graph.blocks[inner.tail][-1]].what.loc
