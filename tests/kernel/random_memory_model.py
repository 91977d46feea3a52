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
from typing import Literal

import click

from tests.kernel.campaign import tallied
from tests.sim import weak_barriers, weak_campaign
from tests.sim.weak_reference import Reference
from tests.sim.weak_shapes import Shape, translate
from tilesim.errors import InvalidProgram
from tilesim.ir.verify import verify
from tilesim.proof.check import certify
from tilesim.transforms.lower import lower

Kind = Literal["threads", "lanes", "barriers"]
#: executions of a program that are enumerated at most
_LARGEST = 30_000


def judged(seed: int, kind: Kind) -> str:
    """What the kernel says of a program, at one of the two levels; of one that it certifies, also
    whether it is right, if that is known."""
    rng = random.Random(seed)
    draw = {"threads": weak_campaign.sample, "lanes": weak_campaign.lanes,
            "barriers": weak_barriers.barriers}[kind]  # fmt: skip
    shape = draw(rng)
    try:
        program = translate(shape)
        verify(program)
        answer = certify(lower(program), strict="ptx" if seed % 2 else "practice")
    except InvalidProgram:
        return "rejected"
    if shape.grid or answer.verdict != "certified":
        return answer.verdict
    wrong = _wrong(shape, kind)
    return (
        "certified, too large" if wrong is None else f"certified, {'wrong' if wrong else 'right'}"
    )


def _wrong(shape: Shape, kind: Kind) -> bool | None:
    if kind != "barriers":
        return Reference(shape).wrong() if weak_campaign.small(shape) else None
    size = sum(map(weak_campaign.candidates, weak_barriers.references(shape)))
    if size > _LARGEST or weak_barriers.overfull(shape):
        return None
    return weak_barriers.wrong(shape)


@click.command()
@click.option("--kind", type=click.Choice(["threads", "lanes", "barriers"]), default="barriers")
@click.option("--seconds", default=60.0, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(kind: Kind, seconds: float, seed: int) -> None:
    """Compares what is certified with all executions by the axioms."""
    tallied(lambda number: judged(number, kind), seed, seconds)


if __name__ == "__main__":
    main()
