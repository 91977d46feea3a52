"""Random programs of strong accesses: what is certified has no race by PTX's axioms.

    python -m tests.kernel.random_memory_model [--kind barriers] [--seconds 60] [--seed 1]

Two or three threads load, store, exchange and add to words in shared memory, and some look at data
if they have found certain numbers (`tests.sim.weak_campaign`): warps, lanes of one warp that may
meet, or either with an mbarrier at which they arrive, which they poll, and for which they wait. The
command ends with 1 if a certified one has a race, or an mbarrier that does not end, in some
execution by the axioms.
"""

from __future__ import annotations

import random
from functools import partial

import click

from tests.campaign import Judge, Judged, command
from tests.kernel.campaign import compared
from tests.sim.weak_campaign import Kind, shape_of, wrong_by_axioms
from tests.sim.weak_shapes import translate
from tilesim.errors import InvalidProgram
from tilesim.ir.verify import verify
from tilesim.proof.check import certify
from tilesim.transforms.lower import lower


def judged(number: int, kind: Kind) -> Judged:
    """What the kernel says of a program, at one of the two levels; of one that it certifies, also
    whether it is right, if that is known."""
    shape = shape_of(random.Random(number), kind)
    try:
        program = translate(shape)
        verify(program)
        answer = certify(lower(program), strict="ptx" if number % 2 else "practice")
    except InvalidProgram:
        return Judged("rejected")
    if shape.grid or answer.verdict != "certified":
        return Judged(answer.verdict)
    wrong = wrong_by_axioms(shape, kind)
    return compared(answer, "too large" if wrong is None else "wrong" if wrong else "right")


@command
@click.option("--kind", type=click.Choice(["threads", "lanes", "barriers"]), default="barriers")
def main(kind: Kind) -> Judge:
    """Compare what is certified with all executions by the axioms."""
    return partial(judged, kind=kind)


if __name__ == "__main__":
    main()
