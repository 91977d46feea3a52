"""`python -m tests.ptx.campaign --cases N --seed S`: PTX of random programs against the reference.

The programs are those of `tests.sim.campaign`. Each is emitted, compiled and read back; what
`check` says of its first run must not contradict the reference, which follows all executions of the
program it was made from. Where it decides nothing, `check` of the program itself should not, too.
"""

from __future__ import annotations

import random

from tests.campaign import Judge, Judged, command
from tests.sim.comparison import LIMIT, explore, goes_on, opinion, opinion_of, written
from tests.sim.generate import MIXTURE, sample
from tests.sim.reference import TooLarge
from tests.sim.small import translate
from tilesim.errors import InvalidProgram
from tilesim.gpu.compile import compile_ptx
from tilesim.gpu.describe_launch import describe
from tilesim.gpu.emit import Source, emit
from tilesim.gpu.errors import EmitError
from tilesim.ir.mir import Mir
from tilesim.ptx.description import dumps, loads
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower


def back(source: Source) -> Mir:
    """A program from the PTX that was emitted of it."""
    module = read(compile_ptx(source), "k.ptx")
    return lower(module, module.entries[0], loads(dumps(describe(source))))


def judged(number: int) -> Judged:
    """Compares on a random program: what is said of its PTX, and whether it is right."""
    _, small = sample(random.Random(number).randrange, MIXTURE[number % len(MIXTURE)])
    try:
        opined = opinion_of(back(emit(translate(small))), full=False)
    except EmitError:
        return Judged("has no CUDA")
    except InvalidProgram:
        return Judged("rejected")
    if opined.verdict == "rejected":
        return Judged("rejected")
    try:
        truth = explore(small, LIMIT, until=opined.rules[0] if opined.verdict == "failed" else "")
    except TooLarge:
        return Judged("too large")
    said = f"{opined.verdict}, is {'right' if truth.clean else 'wrong'}"
    wrong = opined.disagrees(truth)
    if wrong and not (wrong == "wrong rule" and goes_on(small, opined.rules[0])):
        return Judged(said, f"{wrong}: {opined}, {written(small)}")
    if opined.verdict == "bounded" and opinion(small, full=False).verdict != "bounded":
        said += f", decided for the program only: {small.family}: {opined.reasons[0]}"
    return Judged(said)


@command
def main() -> Judge:
    """Compare the PTX of random programs with the reference."""
    return judged


if __name__ == "__main__":
    main()
