"""What the parts of a machine need to know of it, and how it reads the rules.

The parts stand between this and the machine (`tilesim.sim.machine.machine`), which knows them all.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import TypeAlias

import simpy

from tilesim.findings.finding import (
    NOTHING_STATED,
    Deed,
    Finding,
    Kind,
    Named,
    Participant,
    Rule,
    Stated,
    relabelled,
)
from tilesim.ir.loc import Loc
from tilesim.ir.op import Op
from tilesim.ir.program import Program
from tilesim.records import dataclass, replace
from tilesim.sim.machine.clock import Components
from tilesim.sim.machine.events import ByLanes, Event, Trace, Views
from tilesim.sim.machine.events import Kind as EventKind
from tilesim.sim.machine.executable import Facts
from tilesim.sim.machine.labels import AgentLike, Place
from tilesim.sim.machine.result import Leant, Outcome, Violation
from tilesim.sim.machine.schedule import Answers, ChoiceEnvironment, Move, Order
from tilesim.sim.machine.unknown import Unknown, UnknownSteers


@dataclass(frozen=True, slots=True)
class Options:
    """How strictly the machine reads the rules, and whether it computes numbers.

    ``ptx``: the text as written; otherwise also what shipping code relies on (SEMANTICS 0.3).
    ``answers`` is what clusterlaunchcontrol answers; None: the grid is dealt out. ``order`` is the
    order of draws from counters; None: as it comes. ``first_lane``: ``elect.sync`` chooses the
    first lane also where the text is followed, which names none. ``leaves``: at which of the
    branches by which data makes all threads of a CTA end they do (`tilesim.sim.machine.havoc`).
    ``max_steps`` bounds scheduling points of one run, ``deadline`` the time; ``patience``, in warp
    instructions, is for callers that know another way if a run takes long: those that are skipped
    count as well, so that what they do then does not depend on what is skipped. A run stops
    after ``most_findings`` different findings. ``rounds``: how often all suspended try_waits may
    give up while no mbarrier changes, before the run counts as one that has come to a halt; None:
    as often as steps allow.
    """

    ptx: bool = False
    numbers: bool = True
    answers: Answers | None = None
    order: Order | None = None
    first_lane: bool = False
    leaves: int | None = None
    max_steps: int = 20_000_000
    #: when to stop, in seconds of `time.monotonic`
    deadline: float | None = None
    patience: int | None = None
    rounds: int | None = None
    most_findings: int = 20
    #: what every byte of shared memory holds at the start
    garbage: int = 0


class Stop(Exception):
    """Undefined behaviour was reached; nothing that follows has a meaning."""


_index = attrgetter("index")
#: what a warp does, in words, and by which instruction, as one side of a finding
Acts: TypeAlias = tuple[AgentLike, str, Op | Loc] | tuple[AgentLike, str, Op | Loc, Deed]


class Core:
    """The program that runs and how, the components of clocks, and where findings go."""

    def __init__(
        self, program: Program, plan: Facts, env: simpy.Environment, options: Options
    ) -> None:
        self.program: Program = program
        self.plan = plan
        self.env = env
        self.options = options
        self.timed = not isinstance(env, ChoiceEnvironment)
        #: recorded for exploration and stories; None where it is not recorded
        self.trace: Trace | None = getattr(env, "trace", None)
        #: the schedule is one of an exploration, which decides the order of strong accesses
        self.explored = self.trace is not None and not self.timed
        #: by the component of a warpgroup, those of what each of its warps has waited for (F5)
        self.own_waits: dict[int, list[int]] = {}
        #: what they have done in tensor memory, by warps: issued, or complete
        self.tensor_components: list[int] = []
        self.components = Components(
            own=program.cluster_size if plan.fences_own else 0, in_shared=plan.fences_in_shared,
            tensor=plan.fences_tensor, generic=plan.is_generic,
        )  # fmt: skip
        #: what strong accesses need not have seen, where schedules are chosen
        self.views: Views | None = None
        #: knows that the grids this one depends on have completed (griddepcontrol.wait)
        self.dependency: int | None = None
        self.outcome = Outcome()
        #: where schedules are explored
        self.lane_order: ByLanes | None = None
        #: the CTA that stands for any (`tilesim.sim.machine.warp.Agent.sender`)
        self.any_cta: Place
        self._reported: set[object] = set()
        #: cycles in which nothing has happened, as a schedule may have it
        self.lost = 0
        #: what the mbarriers were when suspended try_waits gave up last, and how often since then
        self.given_up: tuple[object, int] = (None, 0)

    def wake(self, warp: AgentLike) -> None:
        """Makes a parked warp runnable."""
        warp.woken()
        Move(self.env, warp.run, 0, warp)

    def wake_all(self, warps: Sequence[AgentLike]) -> None:
        """Makes parked warps runnable, under the timed policy in the order of their numbers.

        Nothing says in which: if it were the one in which they have come, it would change from
        iteration to iteration of a loop, and their state would repeat much later.
        """
        for warp in sorted(warps, key=_index) if self.timed else warps:
            self.wake(warp)

    def gives_up(self) -> bool:
        """Whether a try_wait that would suspend answers 0 right away, or a clock that is looked at
        has gone on for long: the schedule decides."""
        flip = getattr(self.env, "flip", None)
        return False if flip is None else bool(flip())

    @cached_property
    def _regions(self) -> bool:
        """Whether the program has regions of roles; PTX has none."""
        return any(instruction.role for instruction in self.plan.mir.code)

    def role_at(self, warp: AgentLike, op: Op | None) -> str:
        """What ``warp`` is called where it executes ``op``: the role whose region that is in, and
        in no region its number."""
        if op is None or op.number < 0 or not self._regions:
            return warp.role
        return self.plan.role_of(op) or f"warp {warp.number}"

    def note(
        self, kind: EventKind, obj: Hashable, warp: AgentLike, op: Op | None, text: str = "",
        *, phase: int = 0, named: Named | None = None,
    ) -> None:  # fmt: skip
        """Adds an event to the current move, if moves are recorded: ``text``, with ``named`` as it
        is seen from the warp's CTA for its braces; "": the instruction is executed."""
        if self.trace is not None:
            text = text or f"executes {op.mnemonic if op else ''}"
            text = text if named is None else text.format(named.seen_from(warp.cta.number))
            self.trace.note(Event(kind, obj, phase, False, warp, op, text))

    def participant(
        self, warp: AgentLike, action: str, op: Op | Loc, deed: Deed | None = None
    ) -> Participant:
        """``warp`` doing ``op`` as one side of a finding; ``deed``: what ``action`` says."""
        cta, number = warp.cta.number, warp.number
        if isinstance(op, Loc):
            return Participant(warp.role, cta, number, action, op, deed=deed)
        role, place = self.role_at(warp, op), self.plan.place(op)
        return Participant(role, cta, number, action, op.loc, place, deed=deed)

    def report(
        self,
        rule: Rule,
        message: str,
        sides: tuple[Participant | Acts, ...],
        notes: tuple[str, ...] = (),
        fix: str = "",
        depends: Unknown | None = None,
        kind: Kind | None = None,
        facts: Stated = NOTHING_STATED,
        noted: Stated = NOTHING_STATED,
    ) -> None:
        """Adds a finding unless the same rule was reported for the same lines.

        Raises:
            UnknownSteers: whether it is one ``depends`` on an unknown value.
        """
        participants = (x if isinstance(x, Participant) else self.participant(*x) for x in sides)
        finding = Finding(
            rule, message, tuple(participants), notes, fix, kind=kind, facts=facts, noted=noted
        )
        if depends is not None:
            raise UnknownSteers(depends, finding)
        self.add(finding)

    def add(self, finding: Finding) -> None:
        """Adds a finding unless the same rule was reported for the same lines."""
        key = (finding.rule, tuple((p.loc, self.known_as(p)) for p in finding.participants))
        if key in self._reported:
            if self.trace is not None:
                self.trace.again(finding)
            return
        self._reported.add(key)
        self.outcome.findings.append(replace(finding, message=self._by_region(finding)))
        if len(self.outcome.findings) >= self.options.most_findings:
            raise Stop

    def known_as(self, p: Participant) -> str:
        """The role that a participant is one of; several warps without one are one of each."""
        own = f"warp {p.warp}"
        return self.plan.mir.roles[p.warp] if p.warp is not None and p.role == own else p.role

    def _by_region(self, finding: Finding) -> str:
        """The message, which names a role only for what is in its region."""
        message, roles = finding.message, self.plan.mir.roles
        for p in finding.participants:
            alike = {q.role for q in finding.participants if (q.cta, q.warp) == (p.cta, p.warp)}
            if p.warp is not None and len(alike) == 1:
                message = relabelled(message, p.cta, p.warp, roles[p.warp], p.role)
        return message

    def violation(self, violation: Violation, barrier: object) -> None:
        """Records a determinacy condition that failed."""
        if self.lane_order is not None:
            self.lane_order.contend()
        self.outcome.violations.setdefault(violation.key, (violation, barrier))

    def lean(self, switch: str, *ops: Op, surely: bool = False) -> None:
        """Notes what may be what accepts something: an assumption; or a switch of SEMANTICS 0.3,
        which only `practice` has. ``surely``: the text refuses it here, else a check at `ptx` says
        whether it does (`tilesim.checker.coverage`)."""
        self.outcome.leaned.add(Leant(switch, tuple(op.number for op in ops), surely))

    def accepts(self, switch: str, *ops: Op) -> bool:
        """Whether what the text refuses here is accepted: by a switch that `practice` has."""
        if self.options.ptx:
            return False
        self.lean(switch, *ops, surely=True)
        return True

    def nondeterministic(
        self, what: str, where: Op | Loc, *, explorable: bool = True, contended: bool = True
    ) -> None:
        """Records that the outcome of something may depend on the schedule.

        Not ``explorable``: even all interleavings of the machine's moves do not show all outcomes.
        Not ``contended``: if an order decides it, that of accesses which is noted besides.
        """
        loc = where if isinstance(where, Loc) else where.loc
        if contended and self.lane_order is not None:
            self.lane_order.contend()
        self.outcome.nondeterminism.setdefault(what, loc)
        self.outcome.explorable = self.outcome.explorable and explorable
