"""The search for repairs: edits one after another, each checked; pairs where single ones fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from time import monotonic

from tilesim.errors import Diagnostic, InvalidProgram
from tilesim.findings.finding import Finding
from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr, Var, walk
from tilesim.ir.mir import Control, Mir
from tilesim.ir.op import Op
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.program import Program
from tilesim.mistakes.barrier_use import COUNTED_FAMILIES, counted
from tilesim.mistakes.context import Facts, Focus, has, names
from tilesim.mistakes.edits import Edit
from tilesim.mistakes.table import FAMILIES, edits_for, edits_for_rule
from tilesim.records import dataclass, field
from tilesim.repair.hoisted_inits import hoisted_inits
from tilesim.repair.moved_data import moved_data
from tilesim.repair.repairs import Trial
from tilesim.repair.source_edits import SourceEdits
from tilesim.transforms.rewrite import edited, statements

#: repairs that are shown
MOST = 3
#: edits that are tried after the first repair is found
_FURTHER = 16
#: edits that are tried alone before pairs are, in turns with further ones
_ALONE = 60
#: first edits of pairs, second ones for each, and how many of these are tried in a row
_FIRST, _SECOND, _ROW = 16, 60, 4

CERTAIN = ("proved", "exhausted")
#: edits of registers, which are nothing that the source of a compiled program has
_OF_REGISTERS = frozenset({"missing step", "number"})
#: by rule, edits that only a source shows to be one
_OF_SOURCE = {"barrier-lifetime": hoisted_inits, "out-of-bounds": moved_data}

#: checks a program; ``thorough``: with all the schedules that the user has asked for
Check = Callable[[Program | Mir, bool], Trial]
#: the findings of a trial, with their causes
Explain = Callable[[Program | Mir, Trial], Trial]
#: what an edit has made of a program, and what is said of that
_Failed = tuple[Edit, Program | Mir, Trial]
#: whether a program that is proved, by edits of some families, does the work of the one to repair
Keeps = Callable[[Program | Mir, frozenset[str]], bool]
#: what reads see in a program that they do not in the order of the source
Reversal = Callable[[Program | Mir], str]


@dataclass(frozen=True)
class Found:
    """Edits that, one after the other, mend the program, the programs between, and the verdict."""

    edits: tuple[Edit, ...]
    programs: tuple[Program | Mir, ...]
    verdict: str
    #: of all edits, and the distance of the nearest one
    size: int
    distance: int
    #: what reads see with them that they do not see in the order of the source; empty: nothing
    reversal: str = ""


@dataclass
class Search:
    """What has been tried. ``ended``: nothing is left to try, or enough has been found."""

    check: Check
    keeps: Keeps
    reversal: Reversal
    explain: Explain
    #: a time of `time.monotonic`
    until: float
    progress: Callable[[int, int], None] = lambda tried, found: None
    tried: int = 0
    found: list[Found] = field(default_factory=list)
    ended: bool = False
    interrupted: bool = False
    _left: int | None = None
    _findings: tuple[Finding | Diagnostic, ...] = ()
    #: what was ended at its share of the work; what was neither proved nor failed
    _cut_off: list[tuple[Edit, Program | Mir]] = field(default_factory=list)
    _open: list[tuple[Edit, Program | Mir]] = field(default_factory=list)
    #: those that only make a wait pass, which are shown if there are no others
    _idle: list[Found] = field(default_factory=list)
    #: those after which reads see something else, which are shown if there are no others at all
    _reversing: list[Found] = field(default_factory=list)

    def run(self, program: Program | Mir, trial: Trial) -> None:
        """Looks for repairs until time is up, the user interrupts, or it ends."""
        self._findings = trial.findings
        try:
            self.ended = self._run(program, trial)
        except KeyboardInterrupt:
            self.interrupted = monotonic() < self.until
        self.found = self.found or self._idle[:MOST] or self._reversing[:1]
        self.found.sort(
            key=lambda f: (CERTAIN.index(f.verdict), f.size - self._likely(f), f.distance)
        )

    def _run(self, program: Program | Mir, trial: Trial) -> bool:
        failed: list[_Failed] = []
        pairs: Iterator[None] | None = None
        for number, edit in enumerate(self._edits(program, trial)):
            if number == _ALONE and not self._again(program, self._cut_off):
                return self._enough()
            if number >= _ALONE and not self.found and not self._idle:
                pairs = pairs or self._pairs(program, trial, list(failed))
                next(pairs, None)
            if self._over():
                return self._enough()
            result = self._try(program, edit)
            if result is None:
                continue
            mended, said = result
            if said.verdict in CERTAIN:
                self._keep((edit,), (program, mended), said.verdict)
            elif said.verdict in ("bounded", "unsupported"):
                (self._cut_off if said.cut_off else self._open).append((edit, mended))
            else:
                failed.append((edit, mended, said))
        if not (self._again(program, self._cut_off) and self._again(program, self._open)):
            return self._enough()
        if not self.found and not self._idle:
            for _ in pairs or self._pairs(program, trial, failed):
                if self._over():
                    return self._enough()
        return True

    def _again(self, program: Program | Mir, left: list[tuple[Edit, Program | Mir]]) -> bool:
        """Checks what has been left undecided with all that the user has asked for; False: there is
        no time left, or no need."""
        while left:
            if self._over():
                return False
            edit, mended = left.pop(0)
            said = self.check(mended, True)
            if said.verdict in CERTAIN:
                self._keep((edit,), (program, mended), said.verdict)
        return True

    def _edits(self, program: Program | Mir, trial: Trial) -> Iterator[Edit]:
        """The edits to try; of a program that was compiled from a source at hand those of the
        source first, then what is no edit of lines."""
        facts = Facts(program)
        edits = candidates(facts, Focus(facts, trial.findings))
        source_edits = SourceEdits.of(program)
        if source_edits is None:
            yield from edits
            return
        for rule in dict.fromkeys(finding.rule for finding in trial.findings):
            if rule in _OF_SOURCE:
                yield from _OF_SOURCE[rule](source_edits)
        others: list[Edit] = []
        seen: set[object] = set()
        for edit in edits:
            found = list(source_edits.edits(edit))
            for one in found:
                key = tuple(sorted((n, repr(w)) for n, w in one.instead.items()))
                if key not in seen:
                    seen.add(key)
                    yield one
            if not found and edit.family not in _OF_REGISTERS:
                others.append(edit)
        yield from others

    def _pairs(self, program: Program | Mir, trial: Trial, failed: list[_Failed]) -> Iterator[None]:
        """Tries second edits where a first one has changed what is found first, one at each step:
        some for each first one in turn. Those come first after which something else is found than
        what they have changed."""
        before = _head(trial)
        firsts = sorted(failed, key=lambda f: (_head(f[2]) == before, _is_hit(*f)))[:_FIRST]
        seconds = [self._seconds(mended, said) for _, mended, said in firsts]
        for _ in range(_SECOND // _ROW):
            for (edit, mended, _), edits in zip(firsts, seconds, strict=True):
                for second in islice(edits, _ROW):
                    result = self._try(mended, second)
                    if result is not None and result[1].verdict in CERTAIN:
                        both, final = result
                        self._keep((edit, second), (program, mended, both), final.verdict)
                    yield

    def _seconds(self, mended: Program | Mir, said: Trial) -> Iterator[Edit]:
        yield from self._edits(mended, self.explain(mended, said))

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
        reversal = self.reversal(mended)
        places = zip(edits, programs, strict=False)
        near = min(Focus(Facts(p), self._findings).of_edit(e.numbers) for e, p in places)
        found = Found(edits, programs, verdict, sum(e.size for e in edits), near, reversal)
        if reversal:
            self._reversing.append(found)
            return
        idle = self._is_idle(edits[-1], programs[-2], mended)
        (self._idle if idle else self.found).append(found)
        if self._left is None:
            self._left = _FURTHER

    def _likely(self, found: Found) -> int:
        """How much smaller a repair counts: by its two instructions, if it begins with what mends
        the cause that is named."""
        diagnosis = getattr(self._findings[0], "diagnosis", "") if self._findings else ""
        return 2 * (found.edits[0].family in edits_for(diagnosis)[:1])

    def _is_idle(self, edit: Edit, program: Program | Mir, mended: Program | Mir) -> bool:
        """Whether an edit of waits is as good as to take them out: the program would be right
        without them."""
        before = statements(program)
        gone = [n for n, what in edit.instead.items() if not what]
        if edit.family == "move" and all(_waits(before[n]) for n in gone):
            return self._is_certain(edited(program, dict.fromkeys(gone, ())))
        new = {n: what[0] for n, what in edit.instead.items() if len(what) == 1}
        waits = [n for n, what in new.items() if _waits(what)]
        set_ = {what.var.name for what in new.values() if isinstance(what, Assign)}
        if len(waits) + len(set_) < len(edit.instead):
            return False
        waits += [p.number for p in Facts(mended).ops if _waits_for(p.op, set_)]
        return bool(waits) and self._is_certain(edited(mended, dict.fromkeys(waits, ())))

    def _is_certain(self, program: Program | Mir) -> bool:
        try:
            return self.check(program, False).verdict in CERTAIN
        except InvalidProgram:
            return False

    def _over(self) -> bool:
        return self._enough() or monotonic() >= self.until

    def _enough(self) -> bool:
        return len(self.found) >= MOST or (self._left is not None and self._left <= 0)


def _waits(what: object) -> bool:
    return isinstance(what, Op) and has(what, fx.Waits)


def _waits_for(op: Op, names: Collection[str]) -> bool:
    """Whether it waits for a phase that is made of registers of these names."""
    phases = (e.phase for e in op.effects() if isinstance(e, fx.Waits))
    parts = (part for phase in phases if isinstance(phase, Expr) for part in walk(phase))
    return any(isinstance(part, Var) and part.name in names for part in parts)


def _is_hit(edit: Edit, mended: Program | Mir, said: Trial) -> bool:
    """Whether what is found after an edit is about what the edit has changed."""
    facts = Facts(mended)
    focus = Focus(facts, said.findings[:1])
    changed = {name for what in edit.instead.values() for op in what if isinstance(op, Op)
               for name in names(op)}  # fmt: skip
    return bool(focus.lines.intersection(edit.lines) or changed & focus.names)


def _head(trial: Trial) -> object:
    """What is found first, and how far the program comes before."""
    first = trial.findings[:1]
    if not first or isinstance(first[0], Diagnostic):
        return first, trial.instructions
    return first[0].rule, first[0].locations, first[0].message


#: what makes an edit less likely: each further one at the same lines, a kind that only a further
#: finding suggests, one that none does
_VARIANT, _OF_FURTHER, _OTHER = 0.25, 1, 3
#: what makes it likelier: a kind that mends the cause (less for each one before it), the line that
#: the cause names first
_LIKELY_KIND, _LATER, _CULPRIT = 3, 0.25, 0.5


def _fits(facts: Facts, edit: Edit) -> bool:
    """Whether a program can have what an edit puts in: machine code has no regions, and nothing
    is put behind its end, where no warp comes."""
    return isinstance(facts.program, Program) or not any(
        not isinstance(what, Op | Control) or _ends(new[:place])
        for new in edit.instead.values() for place, what in enumerate(new)
    )  # fmt: skip


def _ends(before: tuple[object, ...]) -> bool:
    return any(
        isinstance(e, fx.Exits) for what in before if isinstance(what, Op) for e in what.effects()
    )  # fmt: skip


def candidates(facts: Facts, focus: Focus) -> Iterator[Edit]:
    """The edits to try, each once, the likeliest first: small, near to the finding, of a kind that
    its rule suggests, and not the tenth of its kind at the same place."""
    suggested = edits_for_rule(focus.rule)
    inverse = {f: _LIKELY_KIND - _LATER * n for n, f in enumerate(edits_for(focus.diagnosis))}
    further = {f for rule in focus.rules[1:] for f in edits_for_rule(rule)}
    ranked: list[tuple[float, int, Edit, bool]] = []
    for name in [*suggested, *(f for f in FAMILIES if f not in suggested)]:
        unlikely = 0 if name in suggested else _OF_FURTHER if name in further else _OTHER
        variants: Counter[object] = Counter()
        for edit in FAMILIES[name](facts, focus):
            if not _fits(facts, edit):
                continue
            cost: float = 2 * edit.size + focus.of_edit(edit.numbers)
            cost -= inverse.get(name, -unlikely)
            cost -= _CULPRIT * (focus.culprit in edit.lines)
            cost += _VARIANT * variants[edit.lines]
            ranked.append((cost, len(ranked), edit, False))
            if name in inverse and name in COUNTED_FAMILIES:  # of another line, the init's
                ranked.append((cost + 2, len(ranked), edit, True))
            variants[edit.lines] += 1
    seen: set[object] = set()
    for _, _, single, together in sorted(ranked, key=lambda r: r[:2]):
        chosen = counted(facts, single) if together else single
        if chosen is None:
            continue
        key = tuple(sorted((n, repr(new)) for n, new in chosen.instead.items()))
        if key not in seen:
            seen.add(key)
            yield chosen
