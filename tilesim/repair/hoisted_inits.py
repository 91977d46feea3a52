"""A statement that initialises mbarriers in a loop, as an edit that puts it before the loop.

It may be one instruction or an ``if`` of instructions that only synchronise. What it does before
the loop is known from the compiled code where no register that it reads is set in the loop, and
from the source where nothing that it names is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilesim.analysis.cfg import graph_of
from tilesim.analysis.uses_defs import reads
from tilesim.ir import effects as fx
from tilesim.ir.expr import Unary
from tilesim.ir.mir import Branch, Control, Instruction, Join
from tilesim.ir.op import Op
from tilesim.mistakes.context import has
from tilesim.mistakes.edits import Edit
from tilesim.repair.cuda import Function, Statement
from tilesim.repair.source_edits import SourceEdits, falls_through, synchronises
from tilesim.transforms.rewrite import Patch

_WORD = re.compile(r"[A-Za-z_]\w*")
#: a word that is set, or declared: the last of a declaration, or followed by others
_SET = r"\b{0}\b(?:\[[^\[\]]*\])*\s*(?:[-+*/%&|^]?=(?!=)|\+\+|--)|(?:\+\+|--)\s*{0}\b"
_DECLARED = r"[\w>][\s*&]+{0}\b\s*[,;:({{\[]"
_LOOPS = ("for", "while", "do")


def hoisted_inits(edits: SourceEdits) -> Iterator[Edit]:
    """For each statement of a loop that initialises mbarriers, the edit that moves it before the
    innermost loop around it."""
    seen = set[int]()
    for number, instruction in enumerate(edits.mir.code):
        if not _initialises(instruction.what):
            continue
        for line in edits.lines[number][:1]:
            function = edits.source.function(line)
            around = list(edits.source.statements(line))
            loops = [s for s in around if s.kind in _LOOPS]
            inside = around[around.index(loops[-1]) + 1 :] if loops else []
            whole = [s for s in inside if s.around is not None and s in edits.source.whole(line)]
            if function is None or not whole or whole[0].first in seen:
                continue
            seen.add(whole[0].first)
            made = _moved(edits, function, whole[0], loops[-1])
            if made is not None:
                yield made


def _moved(
    edits: SourceEdits, function: Function, statement: Statement, loop: Statement
) -> Edit | None:
    """The edit of one statement; None: what it does before the loop is not known."""
    source, mir = edits.source, edits.mir
    if loop.first not in [s.first for s in source.whole(loop.first)] or (
        statement.kind not in ("simple", "if") or _names_what_changes(edits, statement, loop)
    ):
        return None
    numbers = edits.anchors_of(statement, function)
    guards = [n for n in numbers if isinstance(mir.code[n].what, Branch)]
    inner = [n for n in numbers if _initialises(mir.code[n].what) or synchronises(mir.code[n].what)]
    if len(numbers) != len(guards) + len(inner) or len(guards) > 1 or not inner:
        return None
    guard = None
    if guards:
        (at,) = guards
        branch = mir.code[at].what
        assert isinstance(branch, Branch)
        between = mir.code[at + 1 : branch.target]
        if branch.cond is None or [i for i in between if not isinstance(i.what, Join)] != [
            mir.code[n] for n in inner
        ]:
            return None  # more than one way, or something else is in it
        guard = Unary("not", branch.cond) if branch.sense else branch.cond
    bodies = [body for body in edits.bodies.items() if inner[0] in body[1]]
    heads = [head for head, body in bodies if not edits.is_inside(body, statement, function)]
    if not heads or any(mir.code[n].guard is not None for n in inner):
        return None
    head = max(heads)  # of the innermost loop
    body = dict(bodies)[head]
    if not head or not falls_through(mir.code[head - 1].what) or not all(
        _is_known_before(edits, head, body, n) for n in numbers
    ):  # fmt: skip
        return None
    before = mir.code[head - 1]
    new = tuple(Instruction(mir.code[n].what, guard, before.role) for n in inner)
    code: dict[int, tuple[Instruction, ...]] = dict.fromkeys([*guards, *inner], ())
    code[head - 1] = (before, *new)
    return Edit(
        f"mbarrier.init before the loop at line {loop.first}",
        {n: tuple(i.what for i in found) for n, found in code.items()}, 3,
        tuple(dict.fromkeys(mir.code[n].loc for n in inner)), "move",
        patches=_patches(edits, statement, loop), code=code,
    )  # fmt: skip


def _initialises(what: Op | Control) -> bool:
    return isinstance(what, Op) and has(what, fx.InitsMbarrier)


def _names_what_changes(edits: SourceEdits, statement: Statement, loop: Statement) -> bool:
    """Whether a statement names something that the loop declares or sets elsewhere."""
    text = edits.source.bare
    own = text[statement.begin : statement.end]
    rest = text[loop.begin : statement.begin] + text[statement.end : loop.end]
    return any(
        re.search(_SET.format(word), rest) or re.search(_DECLARED.format(word), rest)
        for word in set(_WORD.findall(own)) if word != "if"
    )  # fmt: skip


def _is_known_before(edits: SourceEdits, head: int, body: frozenset[int], number: int) -> bool:
    """Whether the registers that an instruction of a loop reads have before it what they have in
    it."""
    graph = graph_of(edits.mir)
    for name in reads(edits.mir, number):
        setters = edits.mir.setters.get(name, ())
        if not setters:
            continue  # an address or a parameter
        if len(setters) > 1 or setters[0] in body:
            return False
        if not graph.dominates(graph.block_of[setters[0]], graph.block_of[head]):
            return False
    return True


def _patches(edits: SourceEdits, statement: Statement, loop: Statement) -> tuple[Patch, ...]:
    """The lines of a statement put before those of a loop."""
    source = edits.source
    old = source.lines[statement.first - 1 : statement.last]
    margin, indent = source.indent(statement), source.indent(loop)
    moved = tuple(f"{indent}{line.removeprefix(margin)}" if line.strip() else line for line in old)
    first = source.lines[loop.first - 1]
    return (
        Patch(source.file, loop.first, loop.first, (first,), (*moved, first)),
        Patch(source.file, statement.first, statement.last, old, ()),
    )
