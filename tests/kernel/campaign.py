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
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from itertools import islice

import click

from tests.kernel import small_regions
from tests.sim.code_lanes import IllFormed
from tests.sim.comparison import explore
from tests.sim.generate import FAMILIES, sample
from tests.sim.reference import TooLarge
from tests.sim.small import translate
from tests.verdicts.row import kind
from tilesim.errors import InvalidProgram
from tilesim.ir.lower import lower
from tilesim.ir.program import Strict
from tilesim.ir.verify import verify
from tilesim.proof.check import certify


def judged(number: int, strict: Strict, regions: bool = False) -> tuple[int, str, str, str]:
    """(number, family, what the kernel says at a level, what the reference says) of a program;
    ``regions``: of one with regions that data decides."""
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
    except (IllFormed, InvalidProgram):
        return number, family, "refused", ""
    if answer.verdict == "not covered":
        return number, family, answer.verdict, kind(answer.what)
    try:
        truth = "right" if all(explore(one).clean for one in every) else "wrong"
    except TooLarge:
        truth = "too large"
    except IllFormed:
        return number, family, "refused", ""
    return number, family, answer.verdict, truth


def found(
    cases: int, seed: int, jobs: int, seconds: float, strict: Strict, regions: bool
) -> Iterator[tuple[int, str, str, str]]:
    """What is said of so many programs, as far as the time goes."""
    end = time.monotonic() + seconds
    numbers = iter(range(seed, seed + cases))
    with ProcessPoolExecutor(jobs) as pool:
        left = {pool.submit(judged, n, strict, regions) for n in islice(numbers, 4 * jobs)}
        while left:
            done, left = wait(left, return_when=FIRST_COMPLETED)
            if time.monotonic() < end:
                left |= {
                    pool.submit(judged, n, strict, regions) for n in islice(numbers, len(done))
                }
            yield from (f.result() for f in done)


@click.command()
@click.option("--cases", default=500, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--jobs", default=2, show_default=True)
@click.option("--seconds", default=1e9, help="Stop after so long.")
@click.option("--strict", type=click.Choice(["practice", "ptx"]), default="practice")
@click.option("--regions", is_flag=True, help="Data decides about some accesses.")
def main(cases: int, seed: int, jobs: int, seconds: float, strict: Strict, regions: bool) -> None:
    """Compares what the kernel says of random programs with an exhaustive reference."""
    tally: Counter[tuple[str, str]] = Counter()
    wrong = []
    for number, family, verdict, truth in found(cases, seed, jobs, seconds, strict, regions):
        tally[verdict, truth] += 1
        if verdict == "certified" and truth == "wrong":
            wrong.append(number)
            print(f"CERTIFIED AND WRONG: {number} of {family}", flush=True)
    for (verdict, truth), n in tally.most_common():
        print(f"{n:7} {verdict:12} {truth}")
    print(f"{tally.total()} programs from {seed} on, certified and wrong: {wrong or 'none'}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
