"""Data in dynamic shared memory that is not aligned as a copy needs it, as an edit of the one place
in the source that says where it begins: ``(float *)(smem + 8)``.

The compiled code has the offset in every access: those at this offset and behind it are of that
data, if the source adds nothing else to the address of the variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from tilesim.analysis.uses_defs import reads
from tilesim.findings.source_names import number_of
from tilesim.ir import effects as fx
from tilesim.ir.expr import Base, Binary, Const, Expr, walk
from tilesim.ir.op import Op
from tilesim.mistakes.edits import Edit
from tilesim.records import replace
from tilesim.repair.cuda import Source
from tilesim.repair.source_edits import SourceEdits
from tilesim.transforms.rewrite import Instead, Patch

#: what copies need, and what copies through tensor maps do
_ALIGNMENTS = (16, 128)
#: what stands behind the name of a variable whose address is taken as it is, or is added to
_ALONE = re.compile(r"\s*(?:\[\s*\]\s*)?[);,]")
_PLUS = re.compile(r"\s*\+\s*")


def moved_data(edits: SourceEdits) -> Iterator[Edit]:
    """For each variable in shared memory to whose address the kernel adds one offset that is no
    multiple of these, the edits that make it one."""
    source, code = edits.source, edits.mir.code
    line = next((lines[0] for lines in edits.lines if lines), 0)
    function = source.function(line)
    if function is None:
        return
    begin, end = function.begin, function.body.last
    for variable in edits.mir.kernel.shared:
        name = variable.name.rpartition("::")[2]
        place = _offset(source, name, begin, end)
        if place is None:
            continue
        first, last = place
        old = number_of(source.text[first:last], source.lines)
        for alignment in _ALIGNMENTS if old else ():
            assert old is not None
            new = -(-old // alignment) * alignment
            instead = _shifted(edits, variable.name, old, new - old) if new != old else None
            if instead is None:
                continue
            patch = _patch(source, first, last, new)
            yield Edit(
                f"{name} + {new} instead of {name} + {source.text[first:last].strip()}", instead,
                1, tuple(dict.fromkeys(code[n].loc for n in instead)), "number", patches=(patch,),
            )  # fmt: skip


def _offset(source: Source, name: str, begin: int, last_line: int) -> tuple[int, int] | None:
    """Where the text stands that a kernel adds to the address of a variable; None if it does so at
    several places, or changes the address in another way."""
    end = source.start(last_line)
    found: list[tuple[int, int]] = []
    for use in re.finditer(rf"(?<![\w.>]){re.escape(name)}\b", source.bare[begin:end]):
        at = begin + use.end()
        plus = _PLUS.match(source.bare, at, end)
        if plus is None:
            if _ALONE.match(source.bare, at, end) is None:
                return None
            continue
        if found:
            return None
        depth, stop = 0, plus.end()
        while stop < end and (depth or source.bare[stop] not in "),;"):
            depth += (source.bare[stop] in "([") - (source.bare[stop] in ")]")
            stop += 1
        found.append((plus.end(), stop))
    return found[0] if found else None


def _patch(source: Source, first: int, last: int, new: int) -> Patch:
    """Another number in the place of a text."""
    line = source.line(first)
    begin, own = source.start(line), source.lines[line - 1]
    text = f"{own[: first - begin]}{new}{own[last - begin :]}"
    return Patch(source.file, line, line, (own,), (text,))


class _Unknown(Exception):
    """An address is made in another way than by sums."""


def _shifted(edits: SourceEdits, name: str, offset: int, by: int) -> dict[int, Instead] | None:
    """The instructions with what lies at an offset of a variable, and behind it, further on; None
    if that is not known."""
    found: dict[int, Instead] = {}
    for number, instruction in enumerate(edits.mir.code):
        what = instruction.what
        if not isinstance(what, Op):
            continue
        try:
            new = _with_shift(what, name, offset, by)
        except _Unknown:
            return None
        only_defines = all(isinstance(e, fx.Defines) for e in what.effects())
        if new is what and only_defines and f"&{name}" in reads(edits.mir, number):
            return None  # what is added to the register is not known
        if new is not what:
            assert isinstance(new, Op)
            found[number] = (new,)
    return found or None


def _with_shift(value: object, name: str, offset: int, by: int) -> object:
    if isinstance(value, Expr):
        return _sum_with_shift(value, name, offset, by) if _mentions(value, name) else value
    if isinstance(value, tuple):
        parts = tuple(_with_shift(part, name, offset, by) for part in value)
        return parts if any(a is not b for a, b in zip(parts, value, strict=True)) else value
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changed = {
        f.name: new for f in fields(value) if f.init
        if (new := _with_shift(old := getattr(value, f.name), name, offset, by)) is not old
    }  # fmt: skip
    return replace(value, **changed) if changed else value


def _sum_with_shift(expr: Expr, name: str, offset: int, by: int) -> Expr:
    terms = [*_terms(expr)]
    known = sum(int(term.value) for term in terms if isinstance(term, Const))
    bases = [term for term in terms if isinstance(term, Base) and term.name == name]
    rest = [term for term in terms if not isinstance(term, Base)]
    if len(bases) != 1 or any(_mentions(term, name) for term in rest):
        raise _Unknown
    return Binary("+", expr, Const(by)) if known >= offset else expr


def _terms(expr: Expr) -> Iterator[Expr]:
    if isinstance(expr, Binary) and expr.op == "+":
        yield from _terms(expr.lhs)
        yield from _terms(expr.rhs)
    else:
        yield expr


def _mentions(expr: Expr, name: str) -> bool:
    return any(isinstance(part, Base) and part.name == name for part in walk(expr))
