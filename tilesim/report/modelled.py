"""What a run models, and what it does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tilesim.ir.effects import Defines
from tilesim.ir.lower import lower
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.ir.program import Program, Strict
from tilesim.loader import Target
from tilesim.words import count


@dataclass(frozen=True)
class Modelled:
    """What was ``done``, and what was ``left_out``, each in a sentence without a full stop."""

    done: str
    left_out: str


def modelled(
    target: Target, program: Program | Mir, schedule: str, strict: Strict, seed: int
) -> Modelled:
    """What a run of ``schedule`` says, and what it leaves open."""
    mir = lower(program) if isinstance(program, Program) else program
    numbers = "all numbers"
    if target.ptx is not None:
        inputs = "memory as the launch description has it"
        numbers = "addresses, integers and what branches ask for"
    elif not mir.kernel.tensors:
        inputs = "no inputs"
    elif target.kernel is not None and target.kernel.inputs is not None:
        inputs = f"the kernel's own inputs (seed {seed})"
    else:
        inputs = f"random integers as inputs (seed {seed})"
    done = (
        f"{schedule}, with barriers, copies, proxies and {numbers}; {inputs}; strictness {strict}"
    )
    return Modelled(done, "; ".join(_left_out(mir, numbers=target.ptx is None)))


def _left_out(mir: Mir, *, numbers: bool) -> Iterator[str]:
    done = [
        (i.what, effects)
        for i, effects in zip(mir.code, mir.effects, strict=True)
        if isinstance(i.what, Op)
    ]
    yield "other schedules (tilesim check tries them)"
    yield "speed: cycles only order events"
    if not numbers:
        yield "floating-point numbers and matrices"
    elif any("mma" in op.mnemonic for op, _ in done):
        yield "the order in which tensor cores add"
    idle = Counter(op.mnemonic for op, effects in done if not effects)
    if idle:
        named = ", ".join(f"{name} ({count(n, 'place')})" for name, n in sorted(idle.items()))
        yield f"without effect here: {named}"
    for what in sorted({effect.chance for _, effect in mir.all_of(Defines) if effect.chance}):
        yield f"of what chance decides, {what}, more than one answer"
