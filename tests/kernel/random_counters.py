"""Random programs that wait for words in memory: a certified one is right in every interleaving.

    python -m tests.kernel.random_counters [--seconds 60] [--seed 1]

Two or three threads (of warps or CTAs of their own, or lanes of one warp) add to words, store to
them, wait for numbers in them, fence, meet, and access data (`tests.sim.counting`). The command
ends with 1 if a certified one races, or waits for ever, in some interleaving of the model.
"""

from __future__ import annotations

import random

import click

from tests.kernel.campaign import tallied
from tests.sim.counting import DATA, WORDS, Meet, Model, TooLarge, Warps, emit, sample, translate
from tests.verdicts.row import kind
from tilesim import Builder, all_of
from tilesim.arith.types import s32
from tilesim.ir.program import Program, Strict
from tilesim.proof.check import certify
from tilesim.transforms.lower import lower

#: states of an interleaving that are looked at
_LARGEST = 20_000


def without_barriers(threads: Warps) -> Warps:
    """The same threads without barriers."""
    return tuple(tuple(s for s in steps if not isinstance(s, Meet)) for steps in threads)


def apart(threads: Warps, *, ctas: bool) -> Program:
    """The program with lanes of one warp as its threads, or each in one of so many ``ctas``."""
    k = Builder("small", "sm_90a", 1)
    k.launch(grid=len(threads) if ctas else 1, cooperative=True)
    words, data = k.tensor("words", s32, (WORDS,)), k.tensor("data", s32, (DATA,))
    seen, got = k.var("seen", 0), k.var("got", 0)
    for number, steps in enumerate(threads):
        here = all_of(k.lane_id.eq(0), k.cta_x.eq(number)) if ctas else k.lane_id.eq(number)
        with k.if_(here, sync=False):
            for step in steps:
                emit(k, step, words, data, seen, got)
    return k.finish()


def judged(seed: int) -> str:
    """What the kernel says of a program, at one of the two levels, and whether it is right."""
    threads = sample(random.Random(seed))
    threads = threads if seed % 3 == 1 else without_barriers(threads)
    program = translate(threads) if seed % 3 == 1 else apart(threads, ctas=seed % 3 == 2)
    strict: Strict = "ptx" if seed % 2 else "practice"
    answer = certify(
        lower(program), strict=strict, assumed=("zero-state",), together=program.ctas > 1
    )
    try:
        truth = "wrong" if Model(threads).failures(_LARGEST) else "right"
    except TooLarge:
        truth = "too large"
    why = f": {kind(answer.what)}" if answer.verdict == "not covered" else ""
    return f"{answer.verdict}, {truth}{why}"


@click.command()
@click.option("--seconds", default=60.0, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(seconds: float, seed: int) -> None:
    """Compares what is certified with all interleavings of the model."""
    tallied(judged, seed, seconds)


if __name__ == "__main__":
    main()
