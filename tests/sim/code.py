"""A small program made flat for the reference: the steps of each warp, and who accesses what."""

from __future__ import annotations

from tests.sim.steps import (
    Commit,
    Copy,
    Init,
    Inval,
    Poll,
    Read,
    Small,
    Step,
    Store,
    WaitGroup,
    Write,
    unrolled,
)

#: where a warp is that has ended
END = -1


class Line:
    """One step: its place, where its warp goes on (``no``: if a poll answers no), its events.

    ``events`` are bits: of a copy one per destination, of a store its read and its write, of a wait
    for groups everything it learns of. ``goals`` are the CTAs a copy writes.
    """

    __slots__ = ("after", "events", "goals", "no", "place", "step")

    def __init__(self, step: Step, place: int, after: int, no: int) -> None:
        self.step = step
        self.place = place
        self.after = after
        self.no = no
        self.events: tuple[int, ...] = ()
        self.goals: tuple[int, ...] = ()


class Code:
    """The lines of all warps, and per CTA and word the events that read and write it.

    Event bit c is the store of CTA c's first warp to all of its words, before everything else.
    """

    def __init__(self, program: Small) -> None:
        self.events = program.ctas
        self.cta = [w // program.width for w in range(len(program.warps))]
        self.writes = [[1 << c] * program.words for c in range(program.ctas)]
        self.reads = [[0] * program.words for _ in range(program.ctas)]
        #: writes of global memory, per place
        self.places: dict[int, int] = {}
        #: accesses by copies and stores: the others are seen by the async proxy after a fence only
        self.asynchronous = 0
        #: per warp: reads of its stores, and of those that it never commits
        self.sources: list[int] = []
        self.uncommitted: list[int] = []
        self.lines: list[list[Line]] = []
        self.start: list[int] = []
        for warp, steps in enumerate(program.warps):
            lines: list[Line] = []
            self.start.append(_lay(lines, tuple(unrolled(steps)), END))
            self.lines.append(lines)
            for line in lines:
                self._note(line, self.cta[warp])
            self._groups(lines, self.start[-1])

    def _new(self) -> int:
        self.events += 1
        return 1 << (self.events - 1)

    def _note(self, line: Line, cta: int) -> None:
        """The events of a line."""
        match line.step:
            case Read(word=word):
                line.events = (self._new(),)
                self.reads[cta][word] |= line.events[0]
            case Write(word=word):
                line.events = (self._new(),)
                self.writes[cta][word] |= line.events[0]
            case Init() | Inval():
                line.events = (self._new(),)
            case Copy(word=first, words=words, mask=mask):
                line.goals = (cta,) if mask is None else tuple(c for c in (0, 1) if mask >> c & 1)
                line.events = tuple(self._new() for _ in line.goals)
                for goal, event in zip(line.goals, line.events, strict=True):
                    self.asynchronous |= event
                    for word in range(first, first + words):
                        self.writes[goal][word] |= event
            case Store(word=word, place=place):
                read, write = line.events = (self._new(), self._new())
                self.asynchronous |= read | write
                self.reads[cta][word] |= read
                self.places[place] = self.places.get(place, 0) | write
            case _:
                pass

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
                    for group in closed[: len(closed) - pending]:
                        for store in group:
                            events |= store.events[0] if read else sum(store.events)
                    line.events = (events,)
                case _:
                    pass
            at = line.after
        self.sources.append(sources)
        self.uncommitted.append(sum(store.events[0] for store in issued))


def _lay(lines: list[Line], steps: tuple[Step, ...], follow: int) -> int:
    """Appends lines for ``steps``, after which the warp is at ``follow``; returns the first."""
    for step in reversed(steps):
        yes, no = follow, END
        if isinstance(step, Poll):
            yes, no = _lay(lines, step.then, follow), _lay(lines, step.orelse, follow)
        lines.append(Line(step, len(lines), yes, no))
        follow = len(lines) - 1
    return follow
