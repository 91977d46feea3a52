"""The search for repairs: edits one after another, each checked; pairs where single ones fail."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from time import monotonic

from tilesim.errors import Diagnostic, InvalidProgram
from tilesim.ir import effects as fx
from tilesim.ir.edits import edited
from tilesim.ir.expr import Expr, Var, walk
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.program import Program
from tilesim.repair.edit import Edit
from tilesim.repair.facts import Facts
from tilesim.repair.focus import Focus
from tilesim.repair.order import candidates
from tilesim.sim.findings import Finding

#: repairs that are shown
MOST = 3
#: edits that are tried after the first repair is found
_FURTHER = 16
#: first edits of pairs, and second ones for each
_FIRST, _SECOND = 16, 60

CERTAIN = ("proved", "exhausted")


@dataclass(frozen=True)
class Trial:
    """What a check says of a program."""

    verdict: str
    findings: tuple[Finding | Diagnostic, ...] = ()
    instructions: int = 0


#: checks a program; ``thorough``: with all the schedules that the user has asked for
Check = Callable[[Program | Mir, bool], Trial]
#: whether a program that is proved, by edits of some families, does the work of the one to repair
Keeps = Callable[[Program | Mir, frozenset[str]], bool]


@dataclass(frozen=True)
class Found:
    """Edits that, one after the other, mend the program, the programs between, and the verdict."""

    edits: tuple[Edit, ...]
    programs: tuple[Program | Mir, ...]
    verdict: str
    #: of all edits, and the distance of the nearest one
    size: int
    distance: int


@dataclass
class Search:
    """What has been tried. ``ended``: nothing is left to try, or enough has been found."""

    check: Check
    keeps: Keeps
    #: a time of `time.monotonic`
    until: float
    progress: Callable[[int, int], None] = lambda tried, found: None
    tried: int = 0
    found: list[Found] = field(default_factory=list)
    ended: bool = False
    interrupted: bool = False
    _left: int | None = None
    _findings: tuple[Finding | Diagnostic, ...] = ()
    #: those that only make a wait pass, which are shown if there are no others
    _idle: list[Found] = field(default_factory=list)

    def run(self, program: Program | Mir, trial: Trial) -> None:
        """Looks for repairs until time is up, the user interrupts, or it ends."""
        self._findings = trial.findings
        try:
            self.ended = self._run(program, trial)
        except KeyboardInterrupt:
            self.interrupted = monotonic() < self.until
        self.found = self.found or self._idle[:MOST]
        self.found.sort(key=lambda f: (CERTAIN.index(f.verdict), f.size, f.distance))

    def _run(self, program: Program | Mir, trial: Trial) -> bool:
        open_: list[tuple[Edit, Program | Mir]] = []
        failed: list[tuple[Edit, Program | Mir, Trial]] = []
        for edit in self._edits(program, trial):
            if self._over():
                return self._enough()
            result = self._try(program, edit)
            if result is None:
                continue
            mended, said = result
            if said.verdict in CERTAIN:
                self._keep((edit,), (program, mended), said.verdict)
            elif said.verdict in ("bounded", "unsupported"):
                open_.append((edit, mended))
            else:
                failed.append((edit, mended, said))
        for edit, mended in open_:
            if self._over():
                return self._enough()
            said = self.check(mended, True)
            if said.verdict in CERTAIN:
                self._keep((edit,), (program, mended), said.verdict)
        if self.found or self._idle:
            return True
        return self._pairs(program, trial, failed)

    def _edits(self, program: Program | Mir, trial: Trial) -> Iterator[Edit]:
        facts = Facts(program)
        return candidates(facts, Focus(facts, trial.findings))

    def _pairs(
        self, program: Program | Mir, trial: Trial,
        failed: list[tuple[Edit, Program | Mir, Trial]],
    ) -> bool:  # fmt: skip
        """Second edits where a first one has changed what is found first."""
        before = _head(trial)
        moved = [f for f in failed if _head(f[2]) != before]
        rest = [f for f in failed if _head(f[2]) == before]
        for edit, mended, said in (*moved, *rest)[:_FIRST]:
            for count, second in enumerate(self._edits(mended, said)):
                if self._over():
                    return self._enough()
                if count == _SECOND:
                    break
                result = self._try(mended, second)
                if result is not None and result[1].verdict in CERTAIN:
                    both, final = result
                    self._keep((edit, second), (program, mended, both), final.verdict)
        return True

    def _try(self, program: Program | Mir, edit: Edit) -> tuple[Program | Mir, Trial] | None:
        """The program with an edit and what is said of it; None: it is no program."""
        self.tried += 1
        if self._left is not None:
            self._left -= 1
        self.progress(self.tried, len(self.found))
        try:
            mended = edit.of(program)
            return mended, self.check(mended, False)
        except InvalidProgram as error:
            return mended, Trial("rejected", error.diagnostics)

    def _keep(
        self, edits: tuple[Edit, ...], programs: tuple[Program | Mir, ...], verdict: str
    ) -> None:
        mended = programs[-1]
        if not self.keeps(mended, frozenset(e.family for e in edits)):
            return
        places = zip(edits, programs, strict=False)
        near = min(Focus(Facts(p), self._findings).of_edit(e.numbers) for e, p in places)
        found = Found(edits, programs, verdict, sum(e.size for e in edits), near)
        idle = self._is_idle(edits[-1], mended)
        (self._idle if idle else self.found).append(found)
        if self._left is None:
            self._left = _FURTHER

    def _is_idle(self, edit: Edit, mended: Program | Mir) -> bool:
        """Whether an edit of waits is as good as to take them out: the program would be right
        without them."""
        new = {n: what[0] for n, what in edit.instead.items() if len(what) == 1}
        waits = [n for n, what in new.items() if _waits(what)]
        set_ = {what.var.name for what in new.values() if isinstance(what, Assign)}
        if len(waits) + len(set_) < len(edit.instead):
            return edit.family == "wait too many"
        waits += [p.number for p in Facts(mended).ops if _waits_for(p.op, set_)]
        if not waits:
            return False
        try:
            without = self.check(edited(mended, dict.fromkeys(waits, ())), False)
        except InvalidProgram:
            return False
        return without.verdict in CERTAIN

    def _over(self) -> bool:
        return self._enough() or monotonic() >= self.until

    def _enough(self) -> bool:
        return len(self.found) >= MOST or (self._left is not None and self._left <= 0)


def _waits(what: object) -> bool:
    return isinstance(what, Op) and any(isinstance(e, fx.Waits) for e in what.effects())


def _waits_for(op: Op, names: Collection[str]) -> bool:
    """Whether it waits for a phase that is made of registers of these names."""
    phases = (e.phase for e in op.effects() if isinstance(e, fx.Waits))
    parts = (part for phase in phases if isinstance(phase, Expr) for part in walk(phase))
    return any(isinstance(part, Var) and part.name in names for part in parts)


def _head(trial: Trial) -> object:
    """What is found first, and how far the program comes before."""
    first = trial.findings[:1]
    if not first or isinstance(first[0], Diagnostic):
        return first, trial.instructions
    return first[0].rule, first[0].locations, first[0].message
