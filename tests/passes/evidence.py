"""The standard of proof for a pass that inserts fences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from tests.kernels.evidence import verdict
from tilesim.ir.op import Op
from tilesim.ir.program import Program, Stmt, instructions, rewrite

Pass = Callable[[Program], Program]
Inputs = Mapping[str, NDArray[Any]]


def count(program: Program, mnemonic: str) -> int:
    """Instructions of this mnemonic."""
    return sum(op.mnemonic == mnemonic for op in instructions(program))


def without(program: Program, mnemonic: str, nth: int | None = None) -> Program:
    """``program`` without these instructions, or without one of them."""
    seen = -1

    def visit(stmt: Stmt) -> tuple[Stmt, ...]:
        nonlocal seen
        if not isinstance(stmt, Op) or stmt.mnemonic != mnemonic:
            return (stmt,)
        seen += 1
        return () if nth in (None, seen) else (stmt,)

    return replace(program, body=rewrite(program.body, visit))


def assert_restores_what_is_needed(
    program: Program, fence: str, insert: Pass, given: Inputs | None = None
) -> None:
    """``program``, which is large, without its fences: the pass puts in as many, with which it is
    proved."""
    bare = without(program, fence)
    fenced = insert(bare)
    assert verdict(fenced, "ptx", given) == "proved"
    assert without(fenced, fence) == bare
    assert count(fenced, fence) == count(program, fence)


def assert_inserts_what_is_needed(
    bare: Program, fence: str, insert: Pass, given: Inputs | None = None
) -> Program:
    """``bare`` fails; with the pass it is proved, without any one inserted fence it fails again."""
    assert verdict(bare, "ptx", given) == "failed"
    fenced = insert(bare)
    assert verdict(fenced, "ptx", given) == "proved"
    assert insert(fenced) == fenced
    assert without(fenced, fence) == without(bare, fence)
    assert count(fenced, fence) > count(bare, fence)
    for nth in range(count(fenced, fence)):
        lacking = without(fenced, fence, nth)
        assert verdict(lacking, "ptx", given) == "failed", f"{fence} {nth} is not needed"
    return fenced
