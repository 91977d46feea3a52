"""Random small programs: what the proof kernel certifies is right in every execution.

    python -m tests.kernel.campaign --cases 2000 [--seed 1] [--jobs 2] [--seconds 100]
                                    [--strict ptx] [--regions]

Each program (`tests.sim.generate`) goes through the kernel; one that it certifies or refutes, also
through the exhaustive reference of the tests, which shares no code with tilesim. The command ends
with 1 if a certified one is wrong there. The reference has one level, `practice`; what is certified
at `ptx` has to be right there, too. ``--regions``: data decides about some of the accesses
(`tests.kernel.small_regions`); the reference executes what it may make of the program.
"""

from __future__ import annotations

import random
from functools import partial

import click

from tests.campaign import Judge, Judged, command
from tests.kernel import small_regions
from tests.sim.code_lanes import IllFormed
from tests.sim.comparison import explore
from tests.sim.generate import FAMILIES, sample
from tests.sim.reference import TooLarge
from tests.sim.small import translate
from tests.verdicts.row import kind
from tilesim.errors import InvalidProgram
from tilesim.ir.program import Strict
from tilesim.ir.verify import verify
from tilesim.proof.check import certify
from tilesim.proof.rules import Answer
from tilesim.transforms.lower import lower


def compared(answer: Answer, truth: str) -> Judged:
    """What the kernel says of a program beside what is so; it must not certify what is "wrong"."""
    if answer.verdict == "not covered":
        return Judged(f"not covered: {kind(answer.what)}")
    wrong = answer.verdict == "certified" and truth == "wrong"
    return Judged(f"{answer.verdict}, {truth}", "it must not be" if wrong else "")


def judged(number: int, strict: Strict, regions: bool = False) -> Judged:
    """What the kernel says at a level, and what the reference says, of a program; ``regions``: of
    one with regions that data decides."""
    some = small_regions.FAMILIES if regions else FAMILIES
    family, choose = some[number % len(some)], random.Random(number).randrange
    try:
        _, small = sample(choose, family)
        every = [small]
        if regions:
            small = small_regions.with_regions(choose, small)
            every = [*small_regions.executions(small)]
        program = small_regions.translated(small) if regions else translate(small)
        verify(program)
        answer = certify(lower(program), strict=strict, assumed=("loops-end",))
        if answer.verdict == "not covered":
            return compared(answer, "")
        return compared(answer, "right" if all(explore(one).clean for one in every) else "wrong")
    except (IllFormed, InvalidProgram):
        return Judged("refused")
    except TooLarge:
        return Judged(f"{answer.verdict}, too large")


@command
@click.option("--strict", type=click.Choice(["practice", "ptx"]), default="practice")
@click.option("--regions", is_flag=True, help="Data decides about some accesses.")
def main(strict: Strict, regions: bool) -> Judge:
    """Compare what the kernel says of random programs with an exhaustive reference."""
    return partial(judged, strict=strict, regions=regions)


if __name__ == "__main__":
    main()
