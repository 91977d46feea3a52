"""Random programs that wait for words in memory: a certified one is right in every interleaving.

    python -m tests.kernel.random_counters [--seconds 60] [--seed 1]

Two or three threads (of warps or CTAs of their own, or lanes of one warp) add to words, store to
them, wait for numbers in them, fence, meet, and access data (`tests.sim.counting`). The command
ends with 1 if a certified one races, or waits for ever, in some interleaving of the model.
"""

from __future__ import annotations

import random

from tests.campaign import Judge, Judged, command
from tests.kernel.campaign import compared
from tests.sim.counting import DATA, WORDS, Meet, Model, TooLarge, Warps, emit, sample, translate
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


def judged(number: int) -> Judged:
    """What the kernel says of a program, at one of the two levels, and whether it is right."""
    threads = sample(random.Random(number))
    threads = threads if number % 3 == 1 else without_barriers(threads)
    program = translate(threads) if number % 3 == 1 else apart(threads, ctas=number % 3 == 2)
    strict: Strict = "ptx" if number % 2 else "practice"
    answer = certify(
        lower(program), strict=strict, assumed=("zero-state",), together=program.ctas > 1
    )
    try:
        return compared(answer, "wrong" if Model(threads).failures(_LARGEST) else "right")
    except TooLarge:
        return compared(answer, "too large")


@command
def main() -> Judge:
    """Compare what is certified with all interleavings of the model."""
    return judged


if __name__ == "__main__":
    main()
