"""Edits of compiled CUDA as edits of its source: where a line of it is in machine code, each time.

A compiler makes several copies of a statement (of the turns of a loop, of a function at each call),
and moves what nothing holds. A statement that a patch puts between two others of a block stands in
each copy of the block, behind all that the first of them does to memory and before what the second
one does. So that is what is edited, and proved: not the one instruction that an edit was thought of
for, and never a place that no line of the source is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import dropwhile
from typing import TypeGuard

from tilesim.analysis.cfg import graph_of
from tilesim.ir import effects as fx
from tilesim.ir.addressed import AddressedMbarriers
from tilesim.ir.addresses import peer_of
from tilesim.ir.expr import Const, Expr, constant
from tilesim.ir.mir import Branch, Control, Instruction, Join, Mir, Switch, targets_of
from tilesim.ir.op import Op
from tilesim.ir.ops.bar import BarSync
from tilesim.ir.program import Stmt
from tilesim.mistakes.context import DATA, SYNC, flipped, has, is_own_address
from tilesim.mistakes.edits import Edit, changed_operand, whole_number
from tilesim.records import dataclass, replace
from tilesim.repair.cuda import Block, Function, Source, Statement, of_file
from tilesim.transforms.rewrite import Instead, Patch

#: how much larger an edit counts for each loop around it: it is executed in every turn
_PER_ITERATION = 4
#: the last argument of a call: the last bit of something, or (``flip``) the other one
_PARITY = re.compile(r",\s*([^,;]*?(?:&\s*1|%\s*2)[uU]?\s*\)*\s*(?P<flip>\^\s*1[uU]?)?)\s*\)\s*;")
#: a whole number as C++ writes it
_NUMBER = re.compile(r"(?<![\w.])(0[xX][0-9a-fA-F]+|\d+)(?:[uUlL]*)(?![\w.])")
#: what moves no data out of registers, and orders nothing
_QUIET = (fx.Defines, fx.Reads)


@dataclass(frozen=True)
class Gap:
    """A place of the source where a statement may be put: before the ``index``-th of a block.

    ``beside``: the statement that it stands next to, which is compiled (others may be left out by
    the preprocessor), behind it if it is ``late``.
    """

    function: Function
    block: Block
    index: int
    beside: Statement
    late: bool


@dataclass(frozen=True)
class Spot:
    """A place in machine code: before an instruction, behind it (``late``)."""

    number: int
    late: bool


@dataclass(frozen=True)
class SourceEdits:
    """A program that was compiled from a CUDA file, and that file."""

    mir: Mir
    source: Source

    @classmethod
    def of(cls, program: object) -> SourceEdits | None:
        """None if it is none, or the file is not at hand."""
        if not isinstance(program, Mir):
            return None
        for file in dict.fromkeys(i.loc.file for i in program.code if i.loc.line):
            source = of_file(file)
            if source is not None and source.functions:
                return cls(program, source)
        return None

    # ------------------------------------------------------------------ lines of instructions

    @cached_property
    def lines(self) -> tuple[tuple[int, ...], ...]:
        """By instruction, its lines in the file: in the kernel, then in a function called there."""
        return tuple(
            tuple(loc.line for loc in i.loc.places if loc.file == self.source.file and loc.line)
            for i in self.mir.code
        )

    def _line(self, number: int, function: Function) -> int | None:
        """The line of an instruction in a function."""
        lines = self.lines[number]
        return next((n for n in lines if function.first <= n <= function.last), None)

    @cached_property
    def _anchors(self) -> tuple[int, ...]:
        """The instructions that are not moved: by numbers, in order."""
        return tuple(n for n, i in enumerate(self.mir.code) if is_anchor(i.what))

    def _sibling(self, block: Block, line: int) -> int | None:
        return next((n for n, s in enumerate(block.statements) if s.first <= line <= s.last), None)

    # ------------------------------------------------------------------ gaps

    def gaps(self, number: int, *, late: bool) -> Iterator[Gap]:
        """Where a patch would put what an edit has before (``late``: behind) an instruction: in the
        kernel, then in a function that is called there."""
        back = _goes_back(self.mir, number)
        for line in self.lines[number]:
            function = self.source.function(line)
            whole = self.source.whole(line)
            if function is None or not whole:
                continue
            statement = whole[-1]
            if back and statement.kind in ("for", "while", "do"):
                body = next((s.around for s in statement.inner if s.around is not None), None)
                if body is not None and not late:
                    last = self._last(body, function)
                    if last is not None:
                        yield Gap(function, body, len(body.statements), last, late=True)
                    continue
            assert statement.around is not None
            here = statement.around.statements.index(statement)
            yield Gap(function, statement.around, here + late, statement, late)

    def _last(self, block: Block, function: Function) -> Statement | None:
        """The last statement of a block that is compiled, if it takes whole lines."""
        lines = {self._line(n, function) for n in range(len(self.mir.code))}
        for statement in reversed(block.statements):
            if any(line in lines for line in range(statement.first, statement.last + 1)):
                return statement if statement in self.source.whole(statement.first) else None
        return None

    def spots(self, gap: Gap) -> tuple[Spot, ...] | None:
        """The places of the machine code that a gap is, one in each copy; None: it is none."""
        copies = self._copies(gap.function, gap.block)
        siblings = {s for copy in copies for _, s in copy}
        after = min((s for s in siblings if s >= gap.index), default=None)
        last = max((s for s in siblings if s < gap.index), default=None)
        found: dict[Spot, None] = {}
        begin = last if after is None else after
        does = any(self._does(n) for copy in copies for n, s in copy[:1] if s == begin)
        for copy in copies:
            if does:  # a copy that others begin with what they do is not begun by a test: that is
                copy = [*dropwhile(lambda c: not self._does(c[0]), copy)]  # of the copies' number
            # a turn may be in two parts, where the test of a loop was put at its end: it is the
            # one with the statement itself that has the gap
            own = [n for n, s in copy if s == begin]
            if not own:
                continue
            spot = (
                self._behind([(n, s) for n, s in copy if s < gap.index]) if after is None
                else self._ahead(own[0], gap.block.statements[after], gap.function)
            )  # fmt: skip
            if spot is None:
                return None
            found[spot] = None
        return tuple(found) or None

    def _does(self, number: int) -> bool:
        return isinstance(self.mir.code[number].what, Op)

    def _copies(self, function: Function, block: Block) -> list[list[tuple[int, int]]]:
        """The copies of a block: their anchors, each with the statement that it is of. A statement
        that has none is held by its loads."""
        own = [
            (n, line, is_anchor(i.what))
            for n, i in enumerate(self.mir.code)
            if (is_anchor(i.what) or _loads(i.what))
            and (line := self._line(n, function)) is not None
        ]
        there = [(n, self._sibling(block, line), hard) for n, line, hard in own]
        held = {s for _, s, hard in there if hard and s is not None}
        copies: list[list[tuple[int, int]]] = []
        copy: list[tuple[int, int]] = []
        iterations: frozenset[int] = frozenset()
        for number, sibling, hard in there:
            if not hard and (sibling is None or sibling in held):
                continue
            before = iterations
            if sibling is not None:
                iterations = self._around(number, block.statements[sibling], function)
            if sibling is None or (copy and (sibling < copy[-1][1] or iterations != before)):
                copies.append(copy)
                copy = []
            if sibling is not None:
                copy.append((number, sibling))
        copies.append(copy)
        whole = [c for c in copies if any(isinstance(self.mir.code[n].what, Op) for n, _ in c)]
        return whole or [c for c in copies if c]

    def is_inside(self, loop: frozenset[int], statement: Statement, function: Function) -> bool:
        """Whether all that a loop does is of one statement."""
        lines = (self._line(n, function) for n in loop if is_anchor(self.mir.code[n].what))
        return all(n is None or statement.first <= n <= statement.last for n in lines)

    @cached_property
    def bodies(self) -> dict[int, frozenset[int]]:
        """By the first instruction of a loop, all of its instructions."""
        graph = graph_of(self.mir)
        found: dict[int, set[int]] = {}
        for loop in graph.loops:
            body = {n for b in loop.blocks for n in graph.blocks[b]}
            found.setdefault(graph.blocks[loop.head].start, set()).update(body)
        return {head: frozenset(body) for head, body in found.items()}

    def _around(self, number: int, statement: Statement, function: Function) -> frozenset[int]:
        """The loops of machine code that an instruction is in and its statement is not all of."""
        return frozenset(
            head for head, body in self.bodies.items()
            if number in body and not self.is_inside(body, statement, function)
        )  # fmt: skip

    def _ahead(self, number: int, statement: Statement, function: Function) -> Spot | None:
        """Before the first anchor of a statement; before the loop that is all in the statement."""
        heads = [number, *(
            head for head, body in self.bodies.items()
            if number in body and self.is_inside(body, statement, function)
        )]  # fmt: skip
        first = min(heads)
        if first == number:
            return Spot(self._before_loads(number, statement, function), late=False)
        if first and falls_through(self.mir.code[first - 1].what):
            return Spot(first - 1, late=True)
        return None

    def _before_loads(self, number: int, statement: Statement, function: Function) -> int:
        """An anchor, or the first of the loads of its statement in front of it that have nothing of
        another one behind them."""
        first, block = number, graph_of(self.mir).block_of[number]
        for n in range(number - 1, -1, -1):
            what = self.mir.code[n].what
            if graph_of(self.mir).block_of[n] != block or is_anchor(what):
                break
            line = self._line(n, function)
            inside = line is not None and statement.first <= line <= statement.last
            if _loads(what):
                if not inside:
                    break
                first = n
        return first

    def _behind(self, copy: list[tuple[int, int]]) -> Spot | None:
        """Behind the last anchor, where lanes that have left out some of them come again; None if
        others come there as well."""
        last = copy[-1][0]
        after = next((n for n in self._anchors if n > last), len(self.mir.code))
        inside = {number for number, sibling in copy if sibling == copy[-1][1]}
        ends = [t for n in inside for t in targets_of(self.mir.code[n].what) if last < t <= after]
        if not ends:
            return Spot(last, late=True)
        end = max(ends)
        others = (n for n in self._anchors if n not in inside)
        if end == len(self.mir.code) or any(
            end in targets_of(self.mir.code[n].what) for n in others
        ):  # fmt: skip
            return None
        return Spot(end, late=isinstance(self.mir.code[end].what, Join))

    def _is_read_early(self, gap: Gap, spots: Sequence[Spot]) -> bool:
        """Whether the compiler has put a load from shared memory before a spot that the source has
        behind it: what is proved would be another program."""
        ends = [copy[-1][0] for copy in self._copies(gap.function, gap.block)]
        for spot in spots:
            begin = max((end + 1 for end in ends if end < spot.number), default=0)
            for number in range(begin, spot.number):
                what = self.mir.code[number].what
                shared = _loads(what) and any(e.view.space == "shared" for e in what.effects()
                                              if isinstance(e, fx.Reads))  # fmt: skip
                line = self._line(number, gap.function) if shared else None
                sibling = None if line is None else self._sibling(gap.block, line)
                if sibling is not None and sibling >= gap.index:
                    return True
        return False

    # ------------------------------------------------------------------ edits

    def edits(self, edit: Edit) -> Iterator[Edit]:
        """An edit as those of the source that it may be: each with its patches, and done to every
        copy of the statements; none if it is no edit of lines."""
        new = edit.instead
        before = {n: self.mir.code[n].what for n in new}
        if any(_cta_of(w) is not None for n in new for w in new[n] if w is not before[n]):
            yield from self._arriving_elsewhere(edit, before)
        elif all(any(w is before[n] for w in new[n]) for n in new):
            yield from self._inserted(edit, before)
        elif all(not new[n] for n in new):
            yield from self._deleted(edit)
        elif all(len(new[n]) == 1 for n in new):
            yield from self._exchanged(edit, before)
        else:
            yield from self._moved(edit, before)

    def _inserted(self, edit: Edit, before: dict[int, Op | Control]) -> Iterator[Edit]:
        sides: list[tuple[int, bool, tuple[Op, ...]]] = []
        for number, new in edit.instead.items():
            here = next(k for k, what in enumerate(new) if what is before[number])
            for late, part in ((False, new[:here]), (True, new[here + 1 :])):
                if part:
                    if not all(isinstance(what, Op) for what in part):
                        return
                    sides.append((number, late, tuple(w for w in part if isinstance(w, Op))))
        for level in (0, 1):
            wanted: dict[tuple[int, int, int], tuple[Gap, tuple[Op, ...]]] = {}
            for number, late, ops in sides:
                gaps = list(self.gaps(number, late=late))
                if len(gaps) <= level:
                    wanted = {}
                    break
                gap = gaps[level]
                key = (id(gap.function), id(gap.block), gap.index)
                wanted.setdefault(key, (gap, self._usual(ops)))
            made = self._put(edit, list(wanted.values())) if wanted else None
            if made is not None:
                yield made

    def _usual(self, ops: tuple[Op, ...]) -> tuple[Op, ...]:
        """A barrier of all threads is ``__syncthreads``, by whatever number an edit has it."""
        threads = self.mir.kernel.warps * 32
        return tuple(
            BarSync(id=Const(0), loc=op.loc)
            if isinstance(op, BarSync)
            and (op.threads is None or constant(op.threads) == threads) else op
            for op in ops
        )  # fmt: skip

    def _put(
        self, edit: Edit, wanted: Sequence[tuple[Gap, tuple[Op, ...]]],
        texts: Sequence[tuple[str, ...]] = (), gone: Sequence[int] = (),
        patches: Sequence[Patch] = (),
    ) -> Edit | None:  # fmt: skip
        """The edit that puts instructions into gaps, where their text can be said."""
        code: dict[int, tuple[Instruction, ...]] = dict.fromkeys(gone, ())
        found, said = list(patches), list[str]()
        for place, (gap, ops) in enumerate(wanted):
            spots = self.spots(gap)
            text = texts[place] if texts else self.source.spelled(ops)
            if spots is None or text is None or self._is_read_early(gap, spots):
                return None
            for spot in spots:
                old = code.get(spot.number, (self.mir.code[spot.number],))
                new = tuple(Instruction(op, None, self._role(spot)) for op in ops)
                code[spot.number] = (*old, *new) if spot.late else (*new, *old)
            found.append(self._patch(gap, text))
            said.append(self._said(gap, text))
        what = f"{', '.join(said)}{f', not at line {patches[0].first}' if patches else ''}"
        longer = sum(len(p.new) - len(p.old) for p in found) - 1
        iterations = _PER_ITERATION * max(self._loops(gap) for gap, _ in wanted)
        sized = replace(edit, size=edit.size + max(0, longer) + iterations)
        return self._made(sized, what, code, tuple(found))

    def _loops(self, gap: Gap) -> int:
        """How many loops are around a gap: what stands there costs something in each turn."""
        above, found = gap.beside.above, 0
        while above is not None:
            found += above.kind in ("for", "while", "do")
            above = above.above
        return found

    def _role(self, spot: Spot) -> str:
        return self.mir.code[spot.number].role

    def _patch(self, gap: Gap, text: tuple[str, ...]) -> Patch:
        """Statements put into a gap, in lines of their own."""
        line = gap.beside.last if gap.late else gap.beside.first
        own = self.source.lines[line - 1]
        further = tuple(f"{self.source.indent(gap.beside)}{t}" for t in text)
        new = (own, *further) if gap.late else (*further, own)
        return Patch(self.source.file, line, line, (own,), new)

    def _said(self, gap: Gap, text: tuple[str, ...]) -> str:
        line = gap.beside.last if gap.late else gap.beside.first
        return f"{' '.join(text).rstrip(';')} {'after' if gap.late else 'before'} line {line}"

    def _made(
        self,
        edit: Edit,
        what: str,
        code: dict[int, tuple[Instruction, ...]],
        patches: tuple[Patch, ...],
    ) -> Edit:
        instead: dict[int, Instead] = {n: tuple(i.what for i in new) for n, new in code.items()}
        return replace(edit, what=what, instead=instead, code=code, patches=patches)

    def _statement(self, numbers: Sequence[int]) -> tuple[Statement, Function] | None:
        """The statement of whole lines that some instructions are of."""
        found: set[int] = set()
        last: tuple[Statement, Function] | None = None
        for number in numbers:
            for line in self.lines[number][:1]:
                function = self.source.function(line)
                whole = self.source.whole(line)
                if function is None or not whole:
                    return None
                last = (whole[-1], function)
                found.add(id(whole[-1]))
        return last if len(found) == 1 else None

    def anchors_of(self, statement: Statement, function: Function) -> tuple[int, ...]:
        """The anchors that a statement has, in all copies."""
        return tuple(
            n for n in self._anchors
            if (line := self._line(n, function)) is not None
            and statement.first <= line <= statement.last
        )  # fmt: skip

    def _without(self, statement: Statement) -> Patch | None:
        """The lines of a statement taken out."""
        if statement.kind != "simple" or statement.around is None:
            return None
        old = self.source.lines[statement.first - 1 : statement.last]
        return Patch(self.source.file, statement.first, statement.last, old, ())

    def _taken_out(self, numbers: Sequence[int]) -> tuple[Statement, tuple[int, ...], Patch] | None:
        """A statement that does nothing but synchronise, which some instructions are all of; its
        anchors in every copy; and its lines, taken out."""
        found = self._statement(numbers)
        if found is None:
            return None
        statement, function = found
        every = self.anchors_of(statement, function)
        patch = self._without(statement)
        kinds = {type(self.mir.code[n].what) for n in numbers}
        if patch is None or any(
            type(self.mir.code[n].what) not in kinds or not synchronises(self.mir.code[n].what)
            for n in every
        ):
            return None
        return statement, every, patch

    def _deleted(self, edit: Edit) -> Iterator[Edit]:
        found = self._taken_out(edit.numbers)
        if found is not None:
            statement, every, patch = found
            text = " ".join(self.source.source(statement).split()).rstrip(";")
            what = f"without {text} at line {statement.first}"
            yield self._made(edit, what, dict.fromkeys(every, ()), (patch,))

    def _moved(self, edit: Edit, before: dict[int, Op | Control]) -> Iterator[Edit]:
        """A statement that is taken out and put in elsewhere."""
        gone = [n for n, new in edit.instead.items() if not new]
        found = self._taken_out(gone) if gone else None
        if found is None:
            return
        statement, every, patch = found
        targets = [n for n in edit.instead if n not in gone]
        wanted: dict[tuple[int, int], Gap] = {}
        for number in targets:
            new = edit.instead[number]
            if not any(what is before[number] for what in new):
                return
            gap = next(self.gaps(number, late=new[0] is before[number]), None)
            if gap is None:
                return
            wanted.setdefault((id(gap.block), gap.index), gap)
        if len(wanted) != 1:
            return
        (gap,) = wanted.values()
        first = targets[0]
        ops = tuple(
            w for w in edit.instead[first] if w is not before[first] and isinstance(w, Op)
        )  # fmt: skip
        text = tuple(line.strip() for line in self.source.source(statement).split("\n"))
        made = self._put(edit, [(gap, ops)], [text], every, [patch])
        if made is not None:
            yield made

    def _arriving_elsewhere(self, edit: Edit, before: dict[int, Op | Control]) -> Iterator[Edit]:
        """A call that arrives on the barriers of other CTAs, and another count of the inits."""
        arrivals = {n: new for n, new in edit.instead.items() if _arrives(before[n])}
        lines = {self.lines[n][:1] for n in arrivals}
        if len(lines) != 1 or not next(iter(lines)):
            return
        ((line,),) = lines
        same = [
            n for n, i in enumerate(self.mir.code) if self.lines[n][:1] == (line,)
            and _arrives(i.what)
        ]  # fmt: skip
        if sorted(same) != sorted(arrivals):
            return
        ctas = {tuple(map(_cta_of, new)) for new in arrivals.values()}
        text = self.source.arriving_elsewhere(line, next(iter(ctas))) if len(ctas) == 1 else None
        if text is None:
            return
        own = self.source.lines[line - 1]
        patches = [Patch(self.source.file, line, line, (own,), text)]
        rest = {n: new for n, new in edit.instead.items() if n not in arrivals}
        counts: dict[tuple[int, ...], dict[int, Instead]] = {}
        counted: list[str] = []
        for number, new in rest.items():
            counts.setdefault(self.lines[number][:1], {})[number] = new
        for part in counts.values():
            made = next(self._exchanged(replace(edit, instead=part), before), None)
            if made is None:
                return
            patches += made.patches
            number, (changed, *_) = next(iter(part.items()))
            old = before[number]
            pair = _changed_number(old, changed)
            assert pair is not None
            assert isinstance(old, Op)
            _, name, was, worth = pair
            counted.append(f"{name} {worth} instead of {was} in {old.mnemonic}")
        own_as_well = " as well" if None in next(iter(ctas)) else ""
        where = f"an arrival on the barrier of another CTA{own_as_well} at line {line}"
        what = "; ".join(dict.fromkeys((where, *counted)))
        yield replace(edit, what=what, patches=tuple(patches))

    def _exchanged(self, edit: Edit, before: dict[int, Op | Control]) -> Iterator[Edit]:
        """Another number in a line, wherever the line has made an instruction with the old one; or
        the other parity."""
        lines = {self.lines[n][:1] for n in edit.instead}
        if len(lines) != 1 or not next(iter(lines)):
            return
        ((line,),) = lines
        if all(_is_flipped(before[n], new[0]) for n, new in edit.instead.items()):
            yield from self._flipped(edit, line)
            return
        pairs = {_changed_number(before[n], new[0]) for n, new in edit.instead.items()}
        if len(pairs) != 1 or (pair := next(iter(pairs))) is None:
            return
        kind, name, was, worth = pair
        same = [
            n for n in range(len(self.mir.code))
            if self.lines[n][:1] == (line,) and type(self.mir.code[n].what) is kind
            and whole_number(getattr(self.mir.code[n].what, name)) == was
        ]  # fmt: skip
        if sorted(same) != sorted(edit.instead):
            return
        own = self.source.lines[line - 1]
        code = own.partition("//")[0]
        tokens = [t for t in _NUMBER.finditer(code) if int(t[1], 0) == was]
        if len(tokens) != 1:
            return
        (token,) = tokens
        new = f"{own[: token.start(1)]}{worth}{own[token.end(1) :]}"
        patch = Patch(self.source.file, line, line, (own,), (new,))
        yield replace(edit, patches=(patch,))

    def _flipped(self, edit: Edit, line: int) -> Iterator[Edit]:
        """The other parity in a line that waits, if one argument there says the last bit of
        something."""
        waits = [n for n in range(len(self.mir.code))
                 if self.lines[n][:1] == (line,) and _waits(self.mir.code[n].what)]  # fmt: skip
        own = self.source.lines[line - 1]
        code = own.partition("//")[0]
        found = [*_PARITY.finditer(code)]
        if sorted(waits) != sorted(edit.instead) or len(found) != 1:
            return
        (parity,) = found
        text = parity[1].strip()
        if text.count("(") != text.count(")"):
            return
        other = text[: -len(parity["flip"])].rstrip() if parity["flip"] else f"({text}) ^ 1"
        new = f"{own[: parity.start(1)]}{other}{own[parity.end(1) :]}"
        patch = Patch(self.source.file, line, line, (own,), (new,))
        what = f"{other} instead of {text}"
        yield replace(edit, what=what, patches=(patch,))


def is_anchor(what: Stmt | Control) -> bool:
    """Whether an instruction stays where the source has it: all but arithmetic and weak loads."""
    if isinstance(what, Branch | Switch):
        return True
    if not isinstance(what, Op):
        return False
    quiet = all(isinstance(e, _QUIET) for e in what.effects())
    return not quiet or bool(getattr(what, "synchronises", False))


def _loads(what: Stmt | Control) -> TypeGuard[Op]:
    return (
        isinstance(what, Op) and not is_anchor(what)
        and has(what, fx.Reads)
    )  # fmt: skip


def synchronises(what: Stmt | Control) -> bool:
    if not isinstance(what, Op):
        return False
    effects = what.effects()
    return any(isinstance(e, SYNC) for e in effects) and not any(isinstance(e, DATA)
                                                                 for e in effects)  # fmt: skip


def _arrives(what: Stmt | Control) -> bool:
    """Whether it is a plain arrival on a barrier of the executing CTA at an address."""
    return (
        isinstance(what, Op)
        and any(
            isinstance(e, fx.Arrives) and e.bytes is None and is_own_address(e.mbar)
            for e in what.effects()
        )
    )  # fmt: skip


def _cta_of(what: Stmt | Control) -> Expr | None:
    """The CTA on whose barrier an instruction arrives; None: its own."""
    for effect in what.effects() if isinstance(what, Op) else ():
        array = effect.mbar.array if isinstance(effect, fx.Arrives) else None
        if isinstance(array, AddressedMbarriers) and array.space == "shared::cluster":
            there = peer_of(array.address)
            return None if there is None else there[1]
    return None


def _goes_back(mir: Mir, number: int) -> bool:
    what = mir.code[number].what
    return isinstance(what, Branch) and what.target <= number


def falls_through(what: Op | Control) -> bool:
    return not isinstance(what, Switch) and not (isinstance(what, Branch) and what.cond is None)


def _waits(what: Stmt | Control) -> bool:
    """Whether an instruction waits for a phase."""
    return isinstance(what, Op) and any(isinstance(e, fx.Waits) for e in what.effects())


def _is_flipped(old: Stmt | Control, new: Stmt | Control) -> bool:
    """Whether a wait is changed to the other parity of an expression."""
    if not (isinstance(old, Op) and isinstance(new, Op) and _waits(old)):
        return False
    found = changed_operand(old, new)
    was, worth = (None, None) if found is None else found[1:]
    return isinstance(was, Expr) and whole_number(was) is None and flipped(was) == worth


def _changed_number(old: Stmt | Control, new: Stmt | Control) -> tuple[type, str, int, int] | None:
    """The one operand in which two instructions of a class differ, both numbers."""
    found = changed_operand(old, new) if isinstance(old, Op) and isinstance(new, Op) else None
    was, worth = (None, None) if found is None else map(whole_number, found[1:])
    if found is None or was is None or worth is None:
        return None
    return type(old), found[0], was, worth
