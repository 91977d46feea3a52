"""Instructions that a kernel names but does not call: ``k.break_`` for ``k.break_()``.

Python evaluates such a statement and drops what it gives, so nothing would be recorded. It is seen
in the byte code: attributes of a variable that are looked up, one after the other, and dropped.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType

from tilesim.errors import Diagnostic
from tilesim.ir.loc import Loc, shortened


def uncalled(codes: set[CodeType], *things: object) -> list[Diagnostic]:
    """The statements of these functions that only name a method of one of ``things``."""
    found = []
    for code in codes:
        for chain, line in _dropped(code):
            if any(_is_method(thing, chain[1:]) for thing in things):
                text = ".".join(chain)
                found.append(Diagnostic(
                    "operand", f"`{text}` names an instruction, but does not call it: nothing is "
                    "recorded", Loc(shortened(code.co_filename), line, code.co_name),
                    f"write `{text}(...)`",
                ))  # fmt: skip
    return sorted(found, key=lambda d: (d.loc.file, d.loc.line))


def _is_method(thing: object, attributes: tuple[str, ...]) -> bool:
    for name in attributes:
        if name.startswith("_") or not hasattr(thing, name):
            return False
        thing = getattr(thing, name)
    return callable(thing)


@lru_cache(maxsize=256)
def _dropped(code: CodeType) -> tuple[tuple[tuple[str, ...], int], ...]:
    """The statements that are attributes of a variable and nothing else, with their lines."""
    return tuple(_statements(code))


def _statements(code: CodeType) -> Iterator[tuple[tuple[str, ...], int]]:
    chain: tuple[str, ...] = ()
    for step in dis.get_instructions(code):
        if step.opname.startswith("LOAD_") and isinstance(step.argval, str):
            chain = (
                (*chain, step.argval) if step.opname == "LOAD_ATTR" and chain else (step.argval,)
            )
        elif step.opname == "POP_TOP" and len(chain) > 1 and step.positions is not None:
            yield chain, step.positions.lineno or code.co_firstlineno
            chain = ()
        elif step.opname not in ("CACHE", "EXTENDED_ARG"):
            chain = ()
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _statements(inner)
