"""What a mistake is: a row of the table, the finding that it may be the cause of, and the cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from tilesim.findings.finding import NOTHING_STATED, Deed, Finding, Participant, Stated, relabelled
from tilesim.ir.expr import Expr, Var, walk
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.mistakes.context import loop_of, loop_range
from tilesim.mistakes.history import Done, History, Made, Touch, key_of
from tilesim.records import dataclass, replace
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.memory import Memory
from tilesim.sim.machine.named_barrier import NamedBarrier
from tilesim.sim.machine.warp import Agent


@dataclass(frozen=True)
class Cause:
    """What a finding comes from: a sentence, and what did it, the line to change first.

    ``fix``: what to do about it; empty: what the finding says. ``diagnosis``: the name of it.
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

    @property
    def mir(self) -> Mir:
        """The code that was run."""
        return self.history.machine.loaded.mir

    @property
    def roles(self) -> tuple[str, ...]:
        """By warp of a CTA, its role."""
        return self.mir.roles

    def same_role(self, warp: Agent, other: Agent) -> bool:
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
    def _made(self) -> Made | None:
        return self.history.made.get(key_of(self.finding))

    @property
    def made(self) -> int:
        """When the finding was made."""
        return self.history.now if self._made is None else self._made.at

    @cached_property
    def sides(self) -> tuple[Side, ...]:
        """The participants that are warps which execute an instruction."""
        return tuple(self._sides())

    def _sides(self) -> Iterator[Side]:
        unknown = ((p, None) for p in self.finding.participants)
        for p, accessed in unknown if self._made is None else self._made.sides:
            warp = self.history.warp(p.cta, p.warp)
            if warp is None or p.instruction is None or not 0 <= p.instruction < len(self.mir.code):
                continue
            op = self.mir.code[p.instruction].what
            if isinstance(op, Op):
                done = self.history.made_by(accessed)
                last = done or self.history.last(warp, p.instruction, self.made)
                alone = len(self.history.executions(warp, p.instruction)) == 1
                yield Side(warp, op, last, done is not None or alone)

    @property
    def memory(self) -> Memory | None:
        """What both sides access; None if the finding is about none, or it is not known."""
        made = () if self._made is None else self._made.sides
        return next((accessed.memory for _, accessed in made if accessed is not None), None)

    def deed(self, side: Side) -> Deed | None:
        """What the finding says that a side does."""
        own = (p for p in self.finding.participants if p.instruction == side.op.number)
        return next((p.deed for p in own), None)

    def passed(self, side: Side) -> list[Touch]:
        """The waits on mbarriers that the warp of a side has passed up to its access."""
        return [p for p in self.history.passes(side.warp) if p.at <= side.at]

    def landed(self, side: Side) -> list[Touch]:
        """What the copy of a side has completed on mbarriers."""
        return [
            t for t in self.history.touches
            if t.tx < 0 and t.warp is side.warp and t.op is side.op and t.issued == side.at
        ]  # fmt: skip

    def loop_of(self, op: Op | None) -> Loc | None:
        """Where the innermost loop around an instruction is written."""
        return loop_of(self.mir, op)

    def loop_range(self, op: object) -> tuple[int, int] | None:
        """The first and the last instruction of the innermost loop around an instruction."""
        return loop_range(self.mir, op)

    def warp(
        self, warp: Agent, op: Op | Loc | Done, action: str,
        on: Mbarrier | NamedBarrier | None = None,
    ) -> Participant:  # fmt: skip
        """``warp`` as one side of a cause; of what it has executed, in which turns of its loops.
        ``on``: the barrier that ``action`` names."""
        iterations = op.iterations if isinstance(op, Done) else ()
        deed = None if on is None else Deed("touches", on.named)
        where = op.op if isinstance(op, Done) else op
        return replace(
            self.history.machine.participant(warp, action, where, deed), iterations=iterations
        )

    def side(
        self, side: Side, action: str, on: Mbarrier | NamedBarrier | None = None
    ) -> Participant:
        """A side of the finding as one of the cause, when it acted."""
        return self.warp(side.warp, side.done or side.op, action, on)

    def of(self, touch: Touch, action: str) -> Participant:
        """What touched a barrier."""
        done = self.history.at(touch.warp, touch.op.number, touch.issued)
        deed = Deed("touches", touch.on.named, bytes=abs(touch.tx))
        return replace(self.warp(touch.warp, done or touch.op, action), deed=deed)

    def arrives(self, touch: Touch) -> Participant:
        """What has arrived on a barrier."""
        return self.of(touch, f"arrives on {touch.on.label}")

    def waits(self, touch: Touch) -> Participant:
        """What has waited on a barrier."""
        return self.of(touch, f"waits on {touch.on.label}")

    def inits(self, on: Mbarrier) -> list[Participant]:
        """Where a barrier was initialised, with its count; empty if that is not known."""
        if on.init is None:
            return []
        action = f"initialises {on.label} with {on.expected}"
        return [self.warp(on.init.warp, on.init.op, action, on)]


#: a function of a finding in its run: what it comes from, or None
Diagnosis = Callable[[Case], Cause | None]


@dataclass(frozen=True)
class Mistake:
    """A row of the table: findings of ``rules`` (or of these kinds of a rule, as ``race/lanes``)
    may come of it if ``diagnose`` says so.

    ``mend``: families of edits that take it back, the likeliest first; ``inject``: faults that make
    it.
    """

    diagnose: Diagnosis
    rules: tuple[str, ...]
    mend: tuple[str, ...]
    inject: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What `Finding.diagnosis` has."""
        return self.diagnose.__name__


def with_cause(case: Case, cause: Cause | None) -> Finding:
    """The finding, which names its cause, with the turns of loops that each side was in."""
    finding, iterations_of = case.finding, case.history.iterations_of
    sides = tuple(
        replace(p, iterations=() if _said_before(finding, n) else iterations_of(finding, p))
        for n, p in enumerate(finding.participants)
    )
    finding = replace(finding, participants=sides)
    if cause is None:
        return finding
    known = {(p.cta, p.warp, p.instruction): p.iterations for p in sides}
    culprits = (
        p
        if p.iterations
        else replace(
            p,
            iterations=known.get((p.cta, p.warp, p.instruction)) or iterations_of(case.finding, p),
        )
        for p in cause.sides
    )
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


def setters_in_loop(case: Case, op: Op, values: Iterable[object]) -> list[int]:
    """What sets the registers that some operands are made of, in the innermost loop around an
    instruction."""
    loop = case.loop_range(op) or (0, -1)
    names = dict.fromkeys(
        p.name for e in values if isinstance(e, Expr) for p in walk(e) if isinstance(p, Var)
    )
    inside = (n for name in names for n in case.mir.setters.get(name, ()))
    return [n for n in inside if loop[0] <= n <= loop[1]]
