"""Loops that do nothing but repeat ``mbarrier.try_wait`` until it succeeds: they are waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilesim.arith.bit_vectors import Value, apply
from tilesim.arith.opcodes import operation
from tilesim.ptx.constants import named, narrowed, set_by
from tilesim.ptx.flat import Both, Flat, Kernel, Not, Register, Target
from tilesim.ptx.liveness import entered
from tilesim.ptx.syntax import Integer


@dataclass(frozen=True)
class Spin:
    """``wait`` is the number of the try_wait, ``back`` that of the branch that repeats it."""

    wait: int
    back: int


def spins(kernel: Kernel) -> dict[int, Spin]:
    """Every such loop by the number of its try_wait, and by that of its branch.

    Between the target of the branch and the branch there is nothing but one try_wait and arithmetic
    that gives the same in every turn (no counter), nobody jumps in between, and the branch is taken
    if and only if the try_wait fails.
    """
    places = entered(kernel)
    found: dict[int, Spin] = {}
    for back, step in enumerate(kernel.code):
        match step.base, step.operands, step.guard:
            case "bra", (Target(head),), (Register() | Not()) if head < back:
                wait = _wait_in(kernel, head, back)
                if wait is None or any(n in places for n in range(head + 1, back + 1)):
                    continue
                if _same_every_turn(kernel, head, back) and _repeats(kernel, head, wait, back):
                    found[wait] = found[back] = Spin(wait, back)
            case _:
                pass
    return found


def _wait_in(kernel: Kernel, head: int, back: int) -> int | None:
    """The only try_wait between two instructions, if all others are arithmetic."""
    wait = None
    for number in range(head, back):
        step = kernel.code[number]
        if step.guard is not None:
            return None
        if step.opcode.startswith("mbarrier.try_wait"):
            if wait is not None:
                return None
            wait = number
        elif operation(step.opcode) is None or narrowed(step):
            return None
    return wait


def _same_every_turn(kernel: Kernel, head: int, back: int) -> bool:
    """Whether nothing that a turn reads is left over from the turn before."""
    body = kernel.code[head:back]
    set_here = {r.name for step in body for r in set_by(step)}
    done: set[str] = set()
    for step in body:
        read = {r.name for operand in step.operands[1:] for r in named(operand)}
        if read & (set_here - done):
            return False
        done |= {r.name for r in set_by(step)}
    return True


def _repeats(kernel: Kernel, head: int, wait: int, back: int) -> bool:
    """Whether the branch is taken if the try_wait fails, and only then."""
    return _taken(kernel, head, wait, back, 0) is True and (
        _taken(kernel, head, wait, back, 1) is False
    )


def _taken(kernel: Kernel, head: int, wait: int, back: int, answer: int) -> bool | None:
    """Whether the branch is taken if the try_wait answers so; None: other things decide."""
    values: dict[str, Value] = {}
    for number in range(head, back):
        step = kernel.code[number]
        if number == wait:
            results: tuple[Value, ...] = (answer,)
        else:
            found = operation(step.opcode)
            sources = step.operands[1:]
            if found is None or len(sources) != len(found.sources):
                return None
            results = apply(found, tuple(_value(values, o) for o in sources))
        target = step.operands[0]
        targets = (target.first, target.second) if isinstance(target, Both) else (target,)
        for register, value in zip(targets, results, strict=False):
            if isinstance(register, Register):
                values[register.name] = value
    guard = kernel.code[back].guard
    if guard is None:
        return None
    inner = guard.operand if isinstance(guard, Not) else guard
    held = values.get(inner.name)
    if not isinstance(held, int):
        return None
    return bool(held) is not isinstance(guard, Not)


def _value(values: Mapping[str, Value], operand: Flat) -> Value:
    match operand:
        case Register(name):
            return values.get(name)
        case Integer(value):
            return value & (1 << 64) - 1
        case Not(register):
            held = values.get(register.name)
            return 1 - held if isinstance(held, int) else None
        case _:
            return None
