"""A small program made flat for the reference: the steps of each warp, and who accesses what."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import NamedTuple

from tests.sim.steps import (
    Add,
    Arrive,
    ArriveExpect,
    Commit,
    Complete,
    Copy,
    Cp,
    Expect,
    Init,
    Inval,
    Ld,
    Mma,
    Peek,
    Poll,
    Read,
    Red,
    Remote,
    Scope,
    Set,
    Small,
    Spin,
    St,
    Step,
    Store,
    Wait,
    WaitGroup,
    WaitUnless,
    WgMma,
    Write,
    every,
    unrolled,
)

#: where a warp is that has ended
END = -1
#: what warps do to barriers themselves: count something, or look
_Use = Arrive | ArriveExpect | Expect | Complete | Wait | WaitUnless | Peek | Poll
_CREDITS = (Arrive, ArriveExpect, Expect, Complete)
_WAITS = (Wait, WaitUnless, Peek, Poll)


class Cell(NamedTuple):
    """An access to tensor memory: what makes it, the warp, and the events of its end and issue."""

    kind: type[Step]
    warp: int
    over: int
    issued: int


class Strength(NamedTuple):
    """Of a strong access: its scope, the CTA of its thread, whether the async proxy makes it."""

    scope: Scope
    cta: int
    asynchronous: bool = False


class Line:
    """One step: its place, where its warp goes on (``no``: if a poll answers no), its events.

    ``events`` are bits: of a copy those of each destination, one per word, of a store its read and
    its write, of a wait for groups everything it learns of, of tcgen05 its end and, if there are
    such, its issue and its read of a word. ``goals`` are the CTAs a copy writes, ``rivals`` the
    accesses of tensor memory that conflict with this one, ``breaks`` a rule that the line breaks in
    any case, ``use`` the event of what it does to a barrier that is invalidated somewhere.
    """

    __slots__ = ("after", "breaks", "events", "goals", "no", "place", "rivals", "step", "use")

    def __init__(self, step: Step, place: int, after: int, no: int) -> None:
        self.step = step
        self.place = place
        self.after = after
        self.no = no
        self.events: tuple[int, ...] = ()
        self.goals: tuple[int, ...] = ()
        self.rivals: tuple[Cell, ...] = ()
        self.breaks = ""
        self.use = 0


class Code:
    """The lines of all warps, and per CTA and word the events that read and write it.

    Event bit c is the store of CTA c's first warp to all of its words, before everything else.
    """

    def __init__(self, program: Small) -> None:
        self.events = program.ctas
        self.cta = [w // program.width for w in range(len(program.warps))]
        self.writes = [[1 << c] * program.words for c in range(program.ctas)]
        self.reads = [[0] * program.words for _ in range(program.ctas)]
        #: the same of flags
        self.flag_writes = [[1 << c] * program.flags for c in range(program.ctas)]
        self.flag_reads = [[0] * program.flags for _ in range(program.ctas)]
        self.strength: dict[int, Strength] = {}
        #: per CTA and slot of tensor memory: the lines that access it
        self._cells: dict[tuple[int, int], list[tuple[Line, Cell]]] = {}
        #: the ends of all accesses to tensor memory, and those of a warp's loads and stores
        self.tensor = 0
        self.loads = [0] * len(program.warps)
        self.stores = [0] * len(program.warps)
        #: writes of global memory, per place
        self.places: dict[int, int] = {}
        #: accesses by copies and stores: the others are seen by the async proxy after a fence only
        self.asynchronous = 0
        #: per warp: reads of its stores, and of those that it never commits
        self.sources: list[int] = []
        self.uncommitted: list[int] = []
        self.lines: list[list[Line]] = []
        self.start: list[int] = []
        #: by place of a barrier that some warp invalidates: what warps do to it, and what counts
        self.uses: dict[int, int] = {}
        self.credits: dict[int, int] = {}
        mortal = {
            x.barrier for steps in program.warps for x in every(steps) if isinstance(x, Inval)
        }
        for warp, steps in enumerate(program.warps):
            lines: list[Line] = []
            self.start.append(_lay(lines, tuple(unrolled(steps)), END))
            self.lines.append(lines)
            for line in lines:
                self._note(line, self.cta[warp])
                if isinstance(line.step, (*_CREDITS, *_WAITS)) and line.step.barrier in mortal:
                    self._note_use(line, self.cta[warp], line.step, len(program.counts))
                self._note_strong(line, self.cta[warp])
                self._note_tensor(line, warp, self.cta[warp])
            self._groups(lines, self.start[-1])
        for cells in self._cells.values():
            for line, cell in cells:
                line.rivals = tuple(o for _, o in cells if o is not cell and _collide(cell, o))

    def words_of(self, cta: int) -> int:
        """The accesses to the words of a CTA, whoever makes them."""
        return reduce(or_, (*self.writes[cta], *self.reads[cta]), 0)

    def _new(self) -> int:
        self.events += 1
        return 1 << (self.events - 1)

    def _note(self, line: Line, cta: int) -> None:
        """The events of a line."""
        match line.step:
            case Init() | Inval():
                line.events = (self._new(),)
            case WgMma(word=word):
                line.events = (self._new(),)
                self.asynchronous |= line.events[0]
                self.reads[cta][word] |= line.events[0]
            case Copy(word=first, words=words, mask=mask):
                line.goals = (cta,) if mask is None else tuple(c for c in (0, 1) if mask >> c & 1)
                each = [[self._new() for _ in range(words)] for _ in line.goals]
                line.events = tuple(map(sum, each))
                self.asynchronous |= sum(line.events)
                for goal, events in zip(line.goals, each, strict=True):
                    for word, event in zip(range(first, first + words), events, strict=True):
                        self.writes[goal][word] |= event
            case Store(word=word, place=place):
                read, write = line.events = (self._new(), self._new())
                self.asynchronous |= read | write
                self.reads[cta][word] |= read
                self.places[place] = self.places.get(place, 0) | write
            case _:
                pass

    def _note_use(self, line: Line, own: int, step: _Use, barriers: int) -> None:
        """The event of an access to a barrier by the warp itself."""
        line.use = self._new()
        cta = step.cta if isinstance(step, Arrive) and step.cta is not None else own
        index = cta * barriers + step.barrier
        self.uses[index] = self.uses.get(index, 0) | line.use
        if isinstance(step, _CREDITS):
            self.credits[index] = self.credits.get(index, 0) | line.use

    def _note_strong(self, line: Line, own: int) -> None:
        """The events of loads, stores, reductions and flags."""
        step = line.step
        if not isinstance(step, (Read, Write, Red, Remote, Set, Add, Spin)):
            return
        event = self._new()
        line.events = (event,)
        cta = own if step.cta is None else step.cta
        line.goals = (cta,)
        scope: Scope | None = None
        bulk = False
        match step:
            case Read(word=word, scope=scope):
                self.reads[cta][word] |= event
            case Write(word=word, scope=scope) | Red(word=word, scope=scope):
                self.writes[cta][word] |= event
            case Remote(word=word, source=source, form=form):
                self.writes[cta][word] |= event
                bulk = form in ("copy", "reduce")
                scope = "cluster" if form == "red" else "gpu" if form == "reduce" else None
                if bulk:
                    line.events = (event, self._new())
                    self.asynchronous |= sum(line.events)
                    self.reads[own][source] |= line.events[1]
            case Set(flag=flag, scope=scope) | Add(flag=flag, scope=scope):
                self.flag_writes[cta][flag] |= event
            case Spin(flag=flag, scope=scope):
                self.flag_reads[cta][flag] |= event
        if scope is not None:
            self.strength[event] = Strength(scope, own, bulk)

    def _note_tensor(self, line: Line, warp: int, cta: int) -> None:
        """The events of tcgen05: the end, and of an mma or a copy the issue and the read."""
        step = line.step
        if not isinstance(step, (Mma, Cp, Ld, St)):
            return
        over = self._new()
        issued = 0
        self.tensor |= over
        line.events = (over,)
        if isinstance(step, (Mma, Cp)):
            issued, read = self._new(), self._new()
            line.events = (over, issued, read)
            self.reads[cta][step.word] |= read
            self.asynchronous |= read
        elif isinstance(step, Ld):
            self.loads[warp] |= over
        else:
            self.stores[warp] |= over
        cell = Cell(type(step), warp, over, issued)
        self._cells.setdefault((cta, step.slot), []).append((line, cell))

    def _groups(self, lines: list[Line], at: int) -> None:
        """What each wait for groups learns (B29 to B31); stores are never in the arm of a poll."""
        issued: list[Line] = []
        closed: list[list[Line]] = []
        sources = 0
        while at != END:
            line = lines[at]
            match line.step:
                case Store():
                    issued.append(line)
                    sources |= line.events[0]
                case Commit():
                    closed.append(issued)
                    issued = []
                case WaitGroup(pending=pending, read=read):
                    events = 0
                    for group in closed[: max(0, len(closed) - pending)]:
                        for store in group:
                            events |= store.events[0] if read else sum(store.events)
                    line.events = (events,)
                case _:
                    pass
            at = line.after
        self.sources.append(sources)
        self.uncommitted.append(sum(store.events[0] for store in issued))


def _collide(one: Cell, two: Cell) -> bool:
    """Two accesses of a slot: warps have lanes of their own, mma and cp touch those of all."""
    if one.kind is two.kind is Ld:
        return False
    return one.warp == two.warp or not {one.kind, two.kind} <= {Ld, St}


def _lay(lines: list[Line], steps: tuple[Step, ...], follow: int) -> int:
    """Appends lines for ``steps``, after which the warp is at ``follow``; returns the first."""
    for step in reversed(steps):
        yes, no = follow, END
        if isinstance(step, Poll):
            yes, no = _lay(lines, step.then, follow), _lay(lines, step.orelse, follow)
        lines.append(Line(step, len(lines), yes, no))
        follow = len(lines) - 1
    return follow
