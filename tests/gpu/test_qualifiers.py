"""No qualifier is lost on the way to PTX: changing one changes the emitted text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from tilesim import Builder, Program, bf16
from tilesim.gpu.emit import emit
from tilesim.gpu.errors import EmitError
from tilesim.ir.op import Op
from tilesim.ir.program import Stmt, instructions, rewrite
from tilesim.ir.verify import diagnose

from .programs import PROGRAMS

#: qualifiers that say nothing where they stand: a weak access has no scope
_SILENT = {
    ("Load", "scope"), ("Store", "scope"), ("MultimemLdReduce", "scope"),
    ("MultimemStore", "scope"), ("LoadVector", "scope"), ("StoreVector", "scope"),
}  # fmt: skip


def text(program: Program) -> str:
    """The emitted kernel without source comments."""
    return re.sub(r"  // .*", "", emit(program).text)


def qualifiers(cls: type[Op]) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """The fields of an instruction that have a few values, with these."""
    hints = get_type_hints(cls)
    found = []
    for field in fields(cls):
        hint = hints[field.name]
        if get_origin(hint) is Literal:
            found.append((field.name, get_args(hint)))
        elif hint is bool:
            found.append((field.name, (False, True)))
    return tuple(found)


def changed(program: Program) -> Iterator[tuple[tuple[str, str], Program]]:
    """The programs with one qualifier of one instruction changed that are still legal.

    One mutant per kind of instruction, qualifier and value.
    """
    seen = set()
    for op in instructions(program):
        for name, values in qualifiers(type(op)):
            for value in values:
                key = type(op), name, value
                if value == getattr(op, name) or key in seen:
                    continue
                other = replace(op, **{name: value})

                def visit(stmt: Stmt, op: Op = op, other: Op = other) -> tuple[Stmt, ...]:
                    return (other,) if stmt is op else (stmt,)

                mutant = replace(program, body=rewrite(program.body, visit))
                if not diagnose(mutant):
                    seen.add(key)
                    yield (type(op).__name__, name), mutant


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_every_qualifier_reaches_the_text(name: str) -> None:
    program = PROGRAMS[name]
    before = text(program)
    for qualifier, mutant in changed(program):
        try:
            after = text(mutant)
        except EmitError:
            continue
        assert qualifier in _SILENT or after != before, qualifier


def test_a_load_that_completes_in_the_peer_says_so() -> None:
    """Without ``.cta_group::2`` the barrier must be in the CTA of the tile (SEMANTICS B26)."""

    def loads(cta_group: Literal[1, 2]) -> str:
        k = Builder("pair", "sm_100a", 4)
        k.launch(grid=2, cluster=2)
        source = k.tensor("A", bf16, (64, 64))
        tile = k.shared("tile", bf16, (64, 64))
        full = k.mbarriers("full")
        with k.one_thread():
            k.mbarrier.init(full, 1)
        k.cluster.sync()
        with k.one_thread():
            k.tma.load(k.tensor_map(source, (64, 64)), tile, (0, 0), full, cta_group=cta_group)
        return text(k.finish())

    assert "complete_tx::bytes.cta_group::2 [" in loads(2)
    assert "cta_group" not in loads(1)
