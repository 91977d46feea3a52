"""The verifier: everything that is wrong with a program and visible without running it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilesim.errors import Diagnostic, InvalidProgram
from tilesim.ir.checks.declarations import check_maps, check_shared, check_tensors
from tilesim.ir.checks.instructions import (
    check_alignment,
    check_counts,
    check_encodings,
    check_multimem,
    check_operands,
    check_paired_copies,
    check_target,
    check_tcgen05,
)
from tilesim.ir.checks.launch import check_launch, check_shared_memory
from tilesim.ir.checks.structure import (
    check_guards,
    check_meetings,
    check_names,
    check_not_empty,
    check_one_way,
    check_regions,
    check_waits,
)
from tilesim.ir.frozen import cached
from tilesim.ir.mir import Mir, condition
from tilesim.ir.op import Op
from tilesim.ir.program import If, Program, Stmt
from tilesim.records import replace

Check = Callable[[Program], Iterator[Diagnostic]]

#: declarations first: the instructions' checks rely on them
_DECLARATIONS: tuple[Check, ...] = (check_launch, check_tensors, check_shared, check_maps)
_BODY: tuple[Check, ...] = (
    check_shared_memory, check_regions, check_names, check_target, check_operands,
    check_counts, check_alignment, check_multimem, check_tcgen05, check_paired_copies,
    check_waits,
)  # fmt: skip
#: what is asked of a list without regions
_LIST = tuple(check for check in _BODY if check not in (check_regions, check_waits))
#: these rely on operands that are right
_ENCODINGS: tuple[Check, ...] = (check_encodings,)


@cached
def diagnose(program: Program) -> tuple[Diagnostic, ...]:
    """Every problem of ``program`` that is visible without running it, in source order per check.

    If declarations are wrong the body is not looked at, and if that is, not its encoding: their
    problems would follow.
    """
    return _diagnose(program, (_BODY, _ENCODINGS))


def _diagnose(program: Program, stages: tuple[tuple[Check, ...], ...]) -> tuple[Diagnostic, ...]:
    problems = [d for check in _DECLARATIONS for d in check(program)]
    for checks in stages:
        if not problems:
            problems = [d for check in checks for d in check(program)]
    return tuple(dict.fromkeys(problems))


def verify(program: Program | Mir, *, to_run: bool = False, jumps: bool = True) -> None:
    """Raises `InvalidProgram` with every problem that `diagnose` finds.

    What regions need is not asked of `Mir`, but that lanes meet, and jump, as it says. ``to_run``:
    the program must have an instruction, too; ``jumps``: that lanes go one way where a jump says so
    can be seen without running it.
    """
    problems = _diagnose_list(program) if isinstance(program, Mir) else diagnose(program)
    if isinstance(program, Mir) and jumps and not problems:
        problems = tuple(check_one_way(program))
    if to_run and not problems:
        problems = tuple(check_not_empty(_flat(program) if isinstance(program, Mir) else program))
    if problems:
        raise InvalidProgram(problems)


@cached
def _diagnose_list(mir: Mir) -> tuple[Diagnostic, ...]:
    found = tuple(check_guards(mir)) or _diagnose(_flat(mir), (_LIST, _ENCODINGS))
    return found or tuple(check_meetings(mir))


@cached
def _flat(mir: Mir) -> Program:
    """The instructions of ``mir`` and what they test, one after another."""
    body: list[Stmt] = []
    for instruction in mir.code:
        cond = condition(instruction)
        if cond is not None:
            body.append(If(cond=cond, then=(), loc=instruction.loc))
        if isinstance(instruction.what, Op):
            body.append(instruction.what)
    return replace(mir.kernel, body=tuple(body))
