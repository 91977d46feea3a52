"""A finding to be explained, what diagnoses say, and their registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import ModuleType

from tilesim.blame.history import Done, History, Touch, key_of
from tilesim.ir import effects as fx
from tilesim.ir.loc import Loc
from tilesim.ir.op import Op
from tilesim.sim.findings import NOTHING_STATED, Deed, Finding, Participant, Stated, relabelled
from tilesim.sim.machine.agent import Agent
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.named_barrier import NamedBarrier


@dataclass(frozen=True)
class Cause:
    """What a finding comes from: a sentence, and who did it, the line to change first.

    ``fix``: what to do about it; empty: what the finding says. ``diagnosis``: who says so.
    ``facts``: what both texts state besides what the sides do.
    """

    what: str
    sides: tuple[Participant, ...]
    fix: str = ""
    diagnosis: str = ""
    facts: Stated = NOTHING_STATED


@dataclass(frozen=True)
class Side:
    """A participant of a finding as the history knows it: its warp, and when it acted."""

    warp: Agent
    op: Op
    done: Done | None
    #: which execution it was is certain
    sure: bool = False

    @property
    def at(self) -> int:
        """When that was; after everything else if it is not known."""
        return 1 << 62 if self.done is None else self.done.at


@dataclass
class Case:
    """One finding of one run."""

    history: History
    finding: Finding
    _told: dict[str, object] = field(default_factory=dict)

    @property
    def roles(self) -> tuple[str, ...]:
        """By warp of a CTA, its role."""
        return self.history.machine.plan.mir.roles

    def alike(self, warp: Agent, other: Agent) -> bool:
        """Whether two warps have one role; where all have one, as in PTX: wait at one place."""
        if len(set(self.roles)) > 1:
            return warp.role == other.role
        return bool(self._waits_at(warp) & self._waits_at(other))

    def _waits_at(self, warp: Agent) -> set[int]:
        """The waits on mbarriers that a warp has executed, or is in."""
        found = {t.op.number for t in self.history.passes(warp)}
        here = None if warp.blocked is None else warp.blocked.op
        return found if here is None else found | {here.number}

    @cached_property
    def made(self) -> int:
        """When the finding was made."""
        return self.history.found.get(key_of(self.finding), self.history.now)

    @cached_property
    def sides(self) -> tuple[Side, ...]:
        """The participants that are warps which execute an instruction."""
        return tuple(self._sides())

    def _sides(self) -> Iterator[Side]:
        code = self.history.machine.loaded.mir.code
        for p in self.finding.participants:
            warp = self.history.warp(p.cta, p.warp)
            if warp is None or p.instruction is None or not 0 <= p.instruction < len(code):
                continue
            op = code[p.instruction].what
            if isinstance(op, Op):
                done = None
                if p.moment is not None:
                    done = self.history.moment(warp, p.instruction, p.moment, self.made)
                last = done or self.history.last(warp, p.instruction, self.made)
                alone = len(self.history.executions(warp, p.instruction)) == 1
                yield Side(warp, op, last, done is not None or alone)

    def deed(self, side: Side) -> Deed | None:
        """What the finding says that a side does."""
        own = (p for p in self.finding.participants if p.instruction == side.op.number)
        return next((p.deed for p in own), None)

    def who(
        self, warp: Agent, op: Op | Loc | Done, action: str,
        on: Mbarrier | NamedBarrier | None = None,
    ) -> Participant:  # fmt: skip
        """``warp`` as one side of a cause; of what it has executed, in which turns of its loops.
        ``on``: the barrier that ``action`` names."""
        turns = op.turns if isinstance(op, Done) else ()
        deed = None if on is None else Deed("touches", on.named)
        where = op.op if isinstance(op, Done) else op
        return replace(self.history.machine.participant(warp, action, where, deed), turns=turns)

    def of(self, touch: Touch, action: str) -> Participant:
        """Who touched a barrier."""
        done = self.history.at(touch.warp, touch.op.number, touch.issued)
        deed = Deed("touches", touch.on.named, bytes=abs(touch.tx))
        return replace(self.who(touch.warp, done or touch.op, action), deed=deed)

    def init(self, on: Mbarrier) -> Participant | None:
        """Where a barrier was initialised, with its count."""
        if on.init is None:
            return None
        action = f"initialises {on.label} with {on.expected}"
        return self.who(on.init.warp, on.init.op, action, on)


Diagnosis = Callable[[Case], Cause | None]
#: by rule, its diagnoses in the order in which they are asked
DIAGNOSES: dict[str, list[Diagnosis]] = {}
#: those that are asked before all others
_FIRST: set[Diagnosis] = set()


def diagnosis(*rules: str, first: bool = False) -> Callable[[Diagnosis], Diagnosis]:
    """Registers a diagnosis of findings of some rules; of several the first that answers counts.

    ``first``: before all others.
    """

    def register(function: Diagnosis) -> Diagnosis:
        for rule in rules:
            known = DIAGNOSES.setdefault(rule, [])
            known.insert(0 if first else len(known), function)
        if first:
            _FIRST.add(function)
        return function

    return register


def ask_in_order(modules: Sequence[ModuleType]) -> None:
    """Asks the diagnoses of these modules in their order, whichever was loaded before."""
    place = {module.__name__: number for number, module in enumerate(modules)}
    for known in DIAGNOSES.values():
        known.sort(key=lambda f: (f not in _FIRST, place[f.__module__]))


def diagnose(case: Case) -> Cause | None:
    """The first cause that a diagnosis of the finding's rule finds."""
    for function in DIAGNOSES.get(case.finding.rule, ()):
        cause = function(case)
        if cause is not None:
            return replace(cause, diagnosis=cause.diagnosis or function.__name__)
    return None


def with_cause(case: Case, cause: Cause | None) -> Finding:
    """The finding, which names its cause, and everybody the turns of loops that they were in."""
    finding, turns_of = case.finding, case.history.turns_of
    sides = tuple(
        replace(p, turns=() if _said_before(finding, n) else turns_of(finding, p))
        for n, p in enumerate(finding.participants)
    )
    finding = replace(finding, participants=sides)
    if cause is None:
        return finding
    known = {(p.cta, p.warp, p.instruction): p.turns for p in sides}
    culprits = (
        replace(p, turns=known.get((p.cta, p.warp, p.instruction)) or turns_of(case.finding, p))
        if not p.turns else p
        for p in cause.sides
    )  # fmt: skip
    what = cause.what
    named: set[tuple[int, int]] = set()
    for p in cause.sides:
        if p.warp is not None and (p.cta, p.warp) not in named:
            named.add((p.cta, p.warp))
            what = relabelled(what, p.cta, p.warp, case.roles[p.warp], p.role)
    return replace(
        finding,
        cause=what,
        culprits=tuple(culprits),
        fix=cause.fix or finding.fix,
        diagnosis=cause.diagnosis,
        because=cause.facts,
        fixes_cause=bool(cause.fix),
    )


def _said_before(finding: Finding, number: int) -> bool:
    """Whether a participant did earlier what one before it did, and nothing tells when."""
    mine = finding.participants[number]
    return mine.moment is None and any(
        (p.cta, p.warp, p.instruction) == (mine.cta, mine.warp, mine.instruction)
        for p in finding.participants[:number]
    )


def waits(op: Op) -> fx.Waits | None:
    """The wait on an mbarrier that an instruction is."""
    return next((e for e in op.effects() if isinstance(e, fx.Waits)), None)
