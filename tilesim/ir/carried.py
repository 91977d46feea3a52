"""Python variables that change inside a loop of the kernel.

Python runs the body of ``with k.loop(...)`` once, to record it. A variable that is read there and
then changed (``phase ^= 1``) is the same in every turn: what it was before the loop. That is found
when the loop ends, in the byte code of the function that has the loop and in what its variables
are before and after.
"""

from __future__ import annotations

import dis
import re
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

from tilesim.errors import InvalidProgram, reject
from tilesim.ir.expr import Expr, Var, named
from tilesim.ir.loc import Loc, shortened

_PARTS = re.compile(r"(LOAD|STORE)_(?:FAST_CHECK|FAST|DEREF|NAME|GLOBAL|CLOSURE)")
#: what a comprehension does to keep its variables apart from those of the function
_APART = "LOAD_FAST_AND_CLEAR"


class _Use(NamedTuple):
    """An instruction of Python's that reads or sets a variable."""

    offset: int
    name: str
    sets: bool
    line: int


class Watch:
    """The variables of a frame that hold a number or an expression when a loop begins."""

    def __init__(self, frame: FrameType) -> None:
        self._frame: FrameType | None = frame
        self._start = frame.f_lasti
        self._before = {n: value for n, value in frame.f_locals.items() if _is_plain(value)}

    def problem(self, frame: FrameType) -> InvalidProgram | None:
        """What is wrong with the body of the loop, which ends where ``frame`` is."""
        began, self._frame = self._frame, None
        if frame is not began:
            return None
        first: dict[str, _Use] = {}
        after = frame.f_locals
        for use in _uses(frame.f_code):
            if not self._start < use.offset < frame.f_lasti or use.name not in self._before:
                continue
            begun = first.setdefault(use.name, use)
            old, new = self._before[use.name], after.get(use.name)
            if use.sets and not begun.sets and _is_plain(new) and _differ(old, new):
                return _changed(use, old, new, frame.f_code)
        return None


def carried(frame: FrameType, start: int) -> frozenset[str]:
    """The variables of a function that it reads between ``start`` and where it is before it sets
    them there, and those that functions in it may read."""
    first: dict[str, _Use] = {}
    for use in _uses(frame.f_code):
        if start < use.offset < frame.f_lasti:
            first.setdefault(use.name, use)
    read = (name for name, use in first.items() if not use.sets)
    return frozenset((*read, *frame.f_code.co_cellvars))


def _is_plain(value: object) -> bool:
    return isinstance(value, bool | int | float | Expr)


def _differ(old: Any, new: Any) -> bool:
    if isinstance(old, Expr) and isinstance(new, Expr):
        return old is not new and old != new
    return isinstance(old, Expr) or isinstance(new, Expr) or bool(old != new)


@lru_cache(maxsize=256)
def _uses(code: CodeType) -> tuple[_Use, ...]:
    """Where the variables of a function are read and set, in order."""
    found = []
    for step in dis.get_instructions(code):
        kinds = [] if step.opname == _APART else _PARTS.findall(step.opname)
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        line = (step.positions.lineno if step.positions else None) or code.co_firstlineno
        for kind, name in zip(kinds, names, strict=False):
            if isinstance(name, str):
                found.append(_Use(step.offset, name, kind == "STORE", line))
    return tuple(found)


def _changed(use: _Use, old: object, new: object, code: CodeType) -> InvalidProgram:
    name = use.name
    if isinstance(old, Var):
        keep = f"set the register with `k.assign({name}, ...)`"
    else:
        keep = (
            f'let the kernel keep it: with `{name} = k.var("{name}", {old})` before the loop, '
            f"`{name} += 1` and the like are executed in every turn"
        )
    return reject(
        f"{name} is {_said(old)} before this line and {_said(new)} after it in every turn of the "
        "loop: Python runs the body of a loop once, to record it",
        Loc(shortened(code.co_filename), use.line, code.co_name),
        rule="region",
        fix=f"{keep}; or compute it from the loop's variable; or, if it is to be the same in all "
        "turns, set it in the loop before it is used",
    )


def _said(value: object) -> str:
    return str(value) if isinstance(value, Expr) else named(value)
